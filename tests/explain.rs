//! `pointsman explain` tells what the gateway does, word for word and byte for byte.
//!
//! Each triple in `golden/explain` is a configuration, lines that begin with their listener's
//! name, and what is told about them at a fixed time. `UPDATE_GOLDEN=1` writes the answers anew,
//! for `git diff` to judge.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{FakeHttp, Gateway, TcpSink, UdpSink, eventually, pointsman};
use pointsman::config::Inputs;
use pointsman::explain::explain;
use pointsman::plan::Plan;
use protocols::UnixNanos;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};

#[test]
fn every_story_is_the_golden_one() {
    let mut seen = 0;
    for config in golden_configurations() {
        let plan = plan_of(&config);
        let mut told = String::new();
        for line in fs::read_to_string(config.with_extension("in")).unwrap().lines() {
            let (listener, text) = line.split_once(' ').unwrap();
            let story = explain(&plan, listener, text.as_bytes(), NOW);
            let story = story.unwrap_or_else(|problem| format!("error: {problem}\n\n"));
            write!(told, "> {line}\n{story}").unwrap();
        }
        let golden = config.with_extension("out");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &told).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        let name = config.display();
        assert!(told == expected, "{name}\n--- expected\n{expected}\n--- told\n{told}");
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} configurations");
}

/// What `check` prints ends with the same routes that `explain` tries.
#[test]
fn check_prints_the_table_that_is_tried() {
    for config in golden_configurations() {
        let output = pointsman(&["check", "--config", config.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        let table = String::from_utf8(output.stdout).unwrap();
        let plan = plan_of(&config);
        let (_, routes) = table.split_once("\nroutes, tried in this order\n").unwrap();
        for (place, route) in plan.routes.iter().enumerate() {
            let number = place + 1;
            let name = route.name.clone().unwrap_or_else(|| format!("route {number}"));
            assert!(routes.contains(&format!("  {number}  {name}\n")), "{table}");
        }
        for name in plan.backends.keys().chain(plan.listeners.keys()) {
            assert!(table.contains(&format!("\n  {name} ")), "{table} does not show {name}");
        }
    }
}

#[test]
fn lines_come_from_standard_input_too() {
    let config = golden().join("statsd.toml");
    let run = |input: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pointsman"))
            .args(["explain", "--listener", "statsd", "--config"])
            .arg(&config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let good = run("a:1|c\nb:2|c\n");
    let told = String::from_utf8(good.stdout).unwrap();
    assert!(good.status.success() && told.contains("\"a\"") && told.contains("\"b\""), "{told}");
    let mixed = run("a:1|z\nb:2|c");
    let told = String::from_utf8(mixed.stdout).unwrap();
    assert_eq!(mixed.status.code(), Some(1));
    assert!(told.contains("\"b\"") && !told.contains("\"a\""), "one bad line costs no other");
    assert!(!mixed.stderr.is_empty());
}

#[tokio::test]
async fn what_is_explained_is_what_is_sent_to_statsd_servers() {
    let (udp, tcp) = (UdpSink::start().await, TcpSink::start().await);
    let config = format!(
        "{LISTENERS}[backends.udp]\nkind = 'statsd'\naddress = 'udp://{}'\nflush = '10ms'\n\
         [backends.tcp]\nkind = 'statsd'\naddress = 'tcp://{}'\ntags = 'graphite'\nflush = '10ms'\n\
         [[routes]]\nmatch = {{ name = 'r.*' }}\nto = ['udp']\n\
         rewrite = {{ name = 'new.${{name}}', tags = {{ add = {{ via = 'p' }} }} }}\n\
         [[routes]]\nto = ['udp', 'tcp']\n",
        udp.address(),
        tcp.address()
    );
    let gateway = Gateway::start(&config).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for line in [
        "a:1|c",
        "a:3|c|@0.1|#os:linux,canary",
        "b:-2|g",
        "c:0.1:0.2|ms|@0.5",
        "d:x y|s|#k:v",
        "e,os=linux:7|h",
        "f:1|d|c:abc",
        "g:1|c|T1700000000",
        "ä ö:1|c",
        "r.x:1|c|#os:linux",
    ] {
        let (had_udp, had_tcp) = (udp.lines().len(), tcp.lines().len());
        socket.send_to(line.as_bytes(), gateway.addr("statsd", "udp")).await.unwrap();
        let told = explained(&gateway, "statsd", line);
        let (told_udp, told_tcp) = (bytes_for("udp", &told), bytes_for("tcp", &told));
        assert!(!told_udp.is_empty() && !told_tcp.is_empty(), "{told}");
        eventually(&format!("{line} is sent on: {told}"), async || {
            udp.lines()[had_udp..] == told_udp && tcp.lines()[had_tcp..] == told_tcp
        })
        .await;
    }
}

#[tokio::test]
async fn what_is_explained_is_what_is_sent_to_influxdb() {
    let influx = FakeHttp::start([]).await;
    let config = format!(
        "{LISTENERS}[backends.influx]\nkind = 'influxdb'\nurl = '{}'\ndatabase = 'd'\nflush = '10ms'\n\
         [[routes]]\nto = ['influx']\n",
        influx.url()
    );
    let gateway = Gateway::start(&config).await;
    // Points with a time of their own: what it is does not hang on when the test runs.
    for (listener, line) in [
        ("statsd", "a:1|c|T1700000000|#os:linux"),
        ("tsdb", "put sys.load 1700000000 0.5 host=web01"),
        ("tsdb", "put sys.load 1700000000123 -3"),
        (
            "api",
            r#"{"name":"a b,c","tags":{"x=y":"z"},"time":1700000001,"n":1,"ok":true,"t":"q\"q"}"#,
        ),
    ] {
        let had = influx.received().len();
        match listener {
            "statsd" => {
                let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                let to = gateway.addr("statsd", "udp");
                socket.send_to(line.as_bytes(), to).await.unwrap();
            }
            "tsdb" => {
                let mut stream = TcpStream::connect(gateway.addr("tsdb", "tcp")).await.unwrap();
                stream.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            }
            _ => {
                gateway.http("api").post("/v1/points", line).await.expect_success();
            }
        }
        let told = bytes_for("influx", &explained(&gateway, listener, line)).join("\n") + "\n";
        eventually(&format!("{line} is sent on as {told}"), async || {
            influx.received().get(had).is_some_and(|request| request.body == told)
        })
        .await;
    }
}

fn explained(gateway: &Gateway, listener: &str, line: &str) -> String {
    let file = gateway.config_file();
    let config = file.to_str().unwrap();
    let output = pointsman(&["explain", "--config", config, "--listener", listener, "--", line]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The lines that a story says this backend would be sent.
fn bytes_for(backend: &str, story: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut ours = false;
    for line in story.lines() {
        match line.strip_prefix("         ") {
            Some(bytes) if ours => lines.push(bytes.to_owned()),
            Some(_) => {}
            None => ours = line.starts_with(&format!("backend  {backend} (")),
        }
    }
    lines
}

fn plan_of(config: &Path) -> Plan {
    let inputs = Inputs { files: vec![config.to_owned()], ..Inputs::default() };
    Plan::load(&inputs).unwrap_or_else(|report| panic!("{report}")).plan
}

fn golden_configurations() -> Vec<PathBuf> {
    let entries = fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "toml")).collect();
    files.sort();
    files
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/explain")
}

const LISTENERS: &str = "\
[admin]
bind = '127.0.0.1:0'
[listeners.statsd]
protocol = 'statsd'
bind = ['udp://127.0.0.1:0']
[listeners.tsdb]
protocol = 'opentsdb'
bind = ['tcp://127.0.0.1:0']
[listeners.api]
protocol = 'http'
bind = ['tcp://127.0.0.1:0']
";

/// 2023-11-14T22:13:23Z.
const NOW: UnixNanos = UnixNanos(1_700_000_003_000_000_000);
