//! A reload applies a good configuration whole, a bad one not at all, and loses nothing either
//! way: no datagram on a socket that stays, no window, no queue.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Answer, Daemon, FakeHttp, Gateway, eventually, pointsman};
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};

#[tokio::test]
async fn reload_bad_changes_nothing_and_says_why() {
    let good = with_statsd("", "[backends.b]\nkind = 'stdout'\nflush = '10ms'\n");
    let mut gateway = Gateway::start(&good).await;
    let statsd = gateway.addr("statsd", "udp");
    let mut refused = 0;
    for (bad, says) in [
        ("[listeners.statsd\n", &["pointsman.toml:1:"][..]),
        (&good.replace("to = ['b']", "to = ['nobody']"), &["pointsman.toml:", "to[0]", "`nobody`"]),
        ("", &["pointsman.toml"]),
    ] {
        let reply = gateway.reload(bad).await;
        assert_eq!(reply.status, 422, "{reply:?}");
        gateway.hang_up(bad);
        refused += 2;
        refusals_are(&gateway, refused).await;
        says_why(&gateway, &reply.body, says);
    }
    for unreadable in [become_directory, vanish] {
        unreadable(&gateway.config_file());
        let reply = gateway.admin.post("/-/reload", "").await;
        assert_eq!(reply.status, 422, "{reply:?}");
        gateway.daemon.signal(Signal::SIGHUP);
        refused += 2;
        refusals_are(&gateway, refused).await;
        says_why(&gateway, &reply.body, &["pointsman.toml"]);
        let _ = fs::remove_dir(gateway.config_file());
    }

    // All that time the configuration from the start was in force, on the same socket.
    send(statsd, "before:1|c").await;
    eventually("the old configuration works", async || gateway.stdout().contains("before")).await;
    gateway.hang_up(&good.replace("to = ['b']", "to = ['b']\nrewrite = { name = 'new.${name}' }"));
    eventually("the good file applies", async || applied(&gateway).await == 1).await;
    send(statsd, "after:1|c").await;
    eventually("the new route works", async || gateway.stdout().contains("new.after")).await;
    assert!(gateway.terminate().await.status.success());
}

/// The configuration is a pipe that nobody has written to, so the gateway is certain not to have
/// read it when the signal comes.
#[tokio::test]
async fn reload_bad_an_early_signal_never_kills() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pointsman.toml");
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    command.args(["--log-format", "json", "--config"]).arg(&file);
    command.arg("--data-dir").arg(directory.path().join("data"));
    let mut daemon = Daemon::spawn("pointsman", &mut command, directory.path().join("log"));

    eventually("SIGHUP is no longer deadly", async || daemon.survives(Signal::SIGHUP)).await;
    daemon.signal(Signal::SIGHUP);
    daemon.assert_alive();
    let config = with_statsd("", "[backends.b]\nkind = 'blackhole'\n");
    // Opening waits for the gateway; what it opened stays the pipe while its name moves on.
    let mut pipe = fs::File::options().write(true).open(&file).unwrap();
    fs::remove_file(&file).unwrap();
    fs::write(&file, &config).unwrap();
    std::io::Write::write_all(&mut pipe, config.as_bytes()).unwrap();
    drop(pipe);
    eventually("the early wish is granted after the start", async || {
        daemon.assert_alive();
        let log = daemon.log();
        let ready = log.find("\"ready\"");
        ready.is_some() && log.find("nothing has changed") > ready
    })
    .await;
    assert!(daemon.terminate().await.status.success());
}

#[tokio::test]
async fn reload_same_port_with_other_limits() {
    let config = |body: &str| {
        format!(
            "{ADMIN}[listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n\
             limits.body = '{body}'\n{BLACKHOLE}"
        )
    };
    let mut gateway = Gateway::start(&config("1KiB")).await;
    let api = gateway.addr("api", "tcp");
    let large = format!("[{}]", vec!["{\"name\":\"a\",\"value\":1}"; 100].join(","));
    assert_eq!(gateway.http("api").post("/v1/points", large.clone()).await.status, 413);
    gateway.reload(&config("1MiB")).await.expect_success();
    assert_eq!(gateway.addr("api", "tcp"), api);
    assert_eq!(gateway.http("api").post("/v1/points", large).await.status, 204);
}

#[tokio::test]
async fn reload_same_port_with_another_transport() {
    let config = |bind: &str| {
        format!("{ADMIN}[listeners.statsd]\nprotocol = 'statsd'\nbind = ['{bind}']\n{BLACKHOLE}")
    };
    // An address of its own: a port that is free for UDP on 127.0.0.1 may be some client's for TCP.
    let mut gateway = Gateway::start(&config("udp://127.77.0.2:0")).await;
    let address = gateway.addr("statsd", "udp");
    send(address, "a:1|c").await;
    received(&gateway, "statsd", 1).await;

    gateway.reload(&config(&format!("tcp://{address}"))).await.expect_success();
    assert_eq!(gateway.addr("statsd", "tcp"), address);
    TcpStream::connect(address).await.unwrap().write_all(b"a:1|c\n").await.unwrap();
    received(&gateway, "statsd", 2).await;

    gateway.reload(&config(&format!("udp://{address}"))).await.expect_success();
    assert!(TcpStream::connect(address).await.is_err(), "the TCP socket is closed");
    send(address, "a:1|c").await;
    received(&gateway, "statsd", 3).await;
}

#[tokio::test]
async fn reload_same_port_with_all_listeners_replaced() {
    let config = |statsd: (&str, &str), api: (&str, &str)| {
        format!(
            "{ADMIN}[listeners.{}]\nprotocol = 'statsd'\nbind = ['udp://{}']\n\
             [listeners.{}]\nprotocol = 'http'\nbind = ['tcp://{}']\n{BLACKHOLE}",
            statsd.0, statsd.1, api.0, api.1
        )
    };
    let free = "127.0.0.1:0";
    let mut gateway = Gateway::start(&config(("old_statsd", free), ("old_api", free))).await;
    let (statsd, api) = (gateway.addr("old_statsd", "udp"), gateway.addr("old_api", "tcp"));

    // Other names at the same ports; then other ports.
    let moved = config(("statsd", &statsd.to_string()), ("api", &api.to_string()));
    gateway.reload(&moved).await.expect_success();
    assert_eq!(gateway.addr("statsd", "udp"), statsd);
    send(statsd, "a:1|c").await;
    received(&gateway, "statsd", 1).await;
    let point = "{\"name\":\"a\",\"value\":1}";
    gateway.http("api").post("/v1/points", point).await.expect_success();

    gateway.reload(&config(("third", free), ("fourth", free))).await.expect_success();
    send(gateway.addr("third", "udp"), "a:1|c").await;
    received(&gateway, "third", 1).await;
    gateway.http("fourth").post("/v1/points", point).await.expect_success();
    assert!(TcpStream::connect(api).await.is_err(), "the old socket is closed");
    gateway.daemon.assert_alive();
}

#[tokio::test]
async fn reload_of_a_port_in_use_changes_nothing() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap();
    let mut gateway = Gateway::start(&with_statsd("", "[backends.b]\nkind = 'blackhole'\n")).await;
    let statsd = gateway.addr("statsd", "udp");
    let more = format!("[listeners.api]\nprotocol = 'http'\nbind = ['tcp://{port}']\n");
    let reply = gateway.reload(&with_statsd(&more, "[backends.b]\nkind = 'blackhole'\n")).await;
    assert_eq!(reply.status, 422);
    assert!(reply.body.contains(&port.to_string()) && reply.body.contains("api"), "{reply:?}");
    send(statsd, "a:1|c").await;
    received(&gateway, "statsd", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_datagram_is_lost_while_other_sections_are_reloaded() {
    let round = |round: usize| {
        let more = format!(
            "[listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n\
             limits.tags = {}\n[backends.c]\nkind = 'blackhole'\nflush = '{}ms'\n",
            60 + round,
            10 + round
        );
        with_statsd(&more, "[backends.b]\nkind = 'stdout'\nflush = '50ms'\n")
    };
    datagrams_over_reloads(round).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_datagram_is_lost_while_the_listener_itself_is_reloaded() {
    let round = |round: usize| {
        with_statsd(
            &format!("[listeners.statsd.limits]\ntags = {}\n", 60 + round),
            "[backends.b]\nkind = 'stdout'\nflush = '50ms'\n",
        )
    };
    datagrams_over_reloads(round).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_datagram_is_lost_while_sockets_of_the_port_come_and_go() {
    let round = |round: usize| {
        let sockets = 1 + round % 3;
        with_statsd(
            &format!("sockets = {sockets}\n"),
            "[backends.b]\nkind = 'stdout'\nflush = '50ms'\n",
        )
    };
    datagrams_over_reloads(round).await;
}

/// Sends numbered datagrams at a steady pace while the rounds' configurations are applied one
/// after the other; every number must come out exactly once.
async fn datagrams_over_reloads(round: impl Fn(usize) -> String) {
    let mut gateway = Gateway::start(&round(0)).await;
    let statsd = gateway.addr("statsd", "udp");
    let enough = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&enough);
    let sending = tokio::spawn(async move {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        let mut number = 0_usize;
        while !told.load(Ordering::Relaxed) {
            pace.tick().await;
            for _ in 0..3 {
                socket.send_to(format!("n:{number}|g").as_bytes(), statsd).await.unwrap();
                number += 1;
            }
        }
        number
    });
    for number in 1..=RELOADS {
        gateway.reload(&round(number)).await.expect_success();
        assert_eq!(gateway.addr("statsd", "udp"), statsd);
    }
    enough.store(true, Ordering::Relaxed);
    let sent = sending.await.unwrap();

    let numbers = || -> Vec<usize> {
        let stdout = gateway.stdout();
        let whole = stdout.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let point = |line| serde_json::from_str::<Value>(line).unwrap();
        whole.map(|line| point(line)["value"].as_f64().unwrap() as usize).collect()
    };
    eventually("every datagram is counted", async || {
        let metrics = gateway.metrics().await;
        let label = [("listener", "statsd")];
        let lost = metrics.sum("pointsman_kernel_dropped_datagrams_total", &label);
        assert_eq!(lost, 0.0, "the kernel had no room");
        metrics.sum("pointsman_received_points_total", &label) as usize == sent
    })
    .await;
    eventually("every datagram came out", async || numbers().len() >= sent).await;
    let mut numbers = numbers();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
    assert_eq!(applied(&gateway).await, RELOADS);
}

#[tokio::test]
async fn reload_keeps_windows_even_of_a_changed_backend() {
    let influx = FakeHttp::start([]).await;
    let config = |more: &str, keys: &str| {
        // Nothing but the stop at the end closes such a window.
        with_statsd(more, &format!("{}flush = '1d'\n{keys}\n", influxdb("b", &influx.url())))
    };
    let mut gateway = Gateway::start(&config("", "")).await;
    let statsd = gateway.addr("statsd", "udp");
    let mut sent = 0;
    for next in [
        config("[backends.c]\nkind = 'blackhole'\n", ""),
        config("", "percentiles = [75]"),
        config("", "percentiles = [75]\nconcurrency = 2"),
    ] {
        for line in ["a:1|c", "t:7|ms", "g:+2|g"] {
            send(statsd, line).await;
        }
        sent += 3;
        received(&gateway, "statsd", sent).await;
        gateway.reload(&next).await.expect_success();
    }
    send(statsd, "a:4|c").await;
    received(&gateway, "statsd", sent + 1).await;
    assert!(gateway.terminate().await.status.success());

    let body: String = influx.received().iter().map(|request| request.body.clone()).collect();
    let row = |name: &str| {
        let rows: Vec<_> = body.lines().filter(|line| line.starts_with(name)).collect();
        assert_eq!(rows.len(), 1, "{body}");
        rows[0].to_owned()
    };
    assert!(row("a ").contains("count=7"), "{body}");
    assert!(row("t ").contains("count=3") && row("t ").contains("p75=7"), "{body}");
    assert!(row("g ").contains("value=6"), "{body}");
}

#[tokio::test]
async fn reload_keeps_queues_and_drains_a_backend_that_is_removed() {
    let influx = FakeHttp::start((0..100_000).map(|_| Answer::status(503))).await;
    let other = "[backends.other]\nkind = 'blackhole'\n";
    let b = |keys: &str| {
        let retry = "retry = { first = '20ms', max = '20ms' }\nflush = '10ms'\naggregate = false\n";
        format!("{}{retry}{keys}", influxdb("b", &influx.url()))
    };
    let mut gateway = Gateway::start(&with_statsd(other, &b(""))).await;
    let statsd = gateway.addr("statsd", "udp");
    let queue = async |gateway: &Gateway, points: u64| {
        eventually(&format!("{points} points wait"), async || {
            let ledger = gateway.ledger().await;
            ledger["backends"]["b"]["held"]["queue"] == points
        })
        .await;
    };
    send(statsd, "a:1|c").await;
    queue(&gateway, 1).await;
    gateway.reload(&with_statsd("", &b(""))).await.expect_success();
    queue(&gateway, 1).await;
    gateway.reload(&with_statsd(other, &b("timeout = '5s'\n"))).await.expect_success();
    send(statsd, "a:2|c").await;
    queue(&gateway, 2).await;
    let without = with_statsd("", other).replace("to = ['b']", "to = ['other']");
    gateway.reload(&without).await.expect_success();
    queue(&gateway, 2).await;

    let tried = influx.received().len();
    influx.heal();
    eventually("what the removed backend held is delivered", async || {
        let book = &gateway.ledger().await["backends"]["b"];
        book["delivered"] == 2 && book["held"]["total"] == 0
    })
    .await;
    let bodies: Vec<_> = influx.received().split_off(tried.saturating_sub(1));
    assert!(bodies.iter().any(|request| request.body.contains("a ")), "{bodies:?}");
}

#[tokio::test]
async fn env_in_config_is_replaced_after_parsing() {
    let check = |token: &str, variables: &[(&str, &str)]| {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        let config = format!(
            "# token = \"${{NOT_SET}}\"\n{ADMIN}[listeners.api]\nprotocol = 'http'\n\
             bind = ['tcp://127.0.0.1:0']\n[backends.b]\nkind = 'influxdb'\n\
             url = 'http://127.0.0.1:1'\napi = 'v1'\nusername = 'u'\npassword = 'pa$$word'\n\
             database = \"{token}\"\n[[routes]]\nto = ['b']\n"
        );
        fs::write(file.path(), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
        command.args(["check", "--config"]).arg(file.path()).envs(variables.iter().copied());
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    };
    let (code, said) = check("${NOT_SET}", &[]);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("NOT_SET") && said.contains("backends.b.database"), "{said}");

    let (code, said) = check("${NOT_SET:-fallback}", &[]);
    assert!(code == 0 && said.contains("database fallback"), "{said}");
    let (code, said) = check("cost$$", &[]);
    assert!(code == 0 && said.contains("database cost$"), "{said}");
    let injected = "x\"\n[backends.evil]\nkind = \"blackhole";
    let (code, said) = check("${SET}", &[("SET", injected)]);
    assert!(code == 0 && !said.contains("evil  "), "{said}");
}

#[tokio::test]
async fn unknown_key_and_an_empty_url_are_told_at_once() {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let config = format!(
        "{ADMIN}[listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n\
         [backends.a]\nkind = 'influxdb'\ntokn = 'S3CR3T'\nurl = ''\ndatabase = 'd'\n\
         [[routes]]\nto = ['a']\n"
    );
    fs::write(file.path(), config).unwrap();
    let path = file.path().to_str().unwrap();
    for arguments in [&["check", "--config", path][..], &["run", "--config", path]] {
        let output = pointsman(arguments);
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        for part in ["backends.a.tokn", "`token`", "backends.a.url", "empty"] {
            assert!(said.contains(part), "{said} does not say {part}");
        }
        for line in [8, 9] {
            assert!(said.contains(&format!("{path}:{line}:")), "{said}");
        }
        assert!(!said.contains("S3CR3T"), "{said}");
    }
}

fn become_directory(file: &Path) {
    fs::remove_file(file).unwrap();
    fs::create_dir(file).unwrap();
}

fn vanish(file: &Path) {
    let _ = fs::remove_file(file);
}

/// What the answer says, the log says as well: at least as much as is asked for.
#[track_caller]
fn says_why(gateway: &Gateway, answer: &str, says: &[&str]) {
    let log = gateway.log();
    let line = log.lines().rev().find(|line| line.contains("the reload changed nothing"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    for part in says {
        assert!(answer.contains(part), "the answer does not say {part}: {answer}");
        assert!(line.contains(part), "the log does not say {part}: {line}");
    }
}

async fn refusals_are(gateway: &Gateway, count: usize) {
    eventually(&format!("{count} reloads are refused"), async || {
        let failures = gateway.metrics().await.sum("pointsman_reload_failures_total", &[]);
        failures as usize == count
    })
    .await;
}

async fn applied(gateway: &Gateway) -> usize {
    gateway.metrics().await.sum("pointsman_reloads_total", &[]) as usize
}

async fn received(gateway: &Gateway, listener: &str, points: u64) {
    eventually(&format!("{listener} has received {points} points"), async || {
        gateway.ledger().await["listeners"][listener]["received"] == points
    })
    .await;
}

async fn send(to: SocketAddr, line: &str) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(line.as_bytes(), to).await.unwrap();
}

/// A statsd listener on UDP, and a route to the backend `b`.
fn with_statsd(more: &str, b: &str) -> String {
    format!(
        "{ADMIN}[listeners.statsd]\nprotocol = 'statsd'\nbind = ['udp://127.0.0.1:0']\n\
         {more}{b}[[routes]]\nto = ['b']\n"
    )
}

fn influxdb(name: &str, url: &str) -> String {
    format!("[backends.{name}]\nkind = 'influxdb'\nurl = '{url}'\ndatabase = 'd'\n")
}

const ADMIN: &str = "[admin]\nbind = '127.0.0.1:0'\n";

const BLACKHOLE: &str = "[backends.b]\nkind = 'blackhole'\n[[routes]]\nto = ['b']\n";

const RELOADS: usize = 20;
