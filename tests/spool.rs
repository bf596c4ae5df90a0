//! What a backend has not taken outlives the gateway on disk: through outages, restarts and
//! kills, and beside files that are damaged or gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{
    API, Answer, Ended, FakeHttp, Gateway, Influxd, STATSD, all_to, eventually, numbers_in,
    pointsman, post_numbers,
};
use nix::sys::signal::Signal;
use tokio::net::UdpSocket;
use tokio::time::Instant;

/// B is away while most of the points come, and the gateway is stopped and started twice
/// meanwhile. A sees nothing of it.
#[tokio::test]
async fn recover_exact_through_two_restarts() {
    let (a, mut b) = (Influxd::start().await, Influxd::start().await);
    let sections = [("a", a.url()), ("b", b.url())]
        .map(|(name, url)| influxdb(name, &url, "create_database = true"));
    let mut gateway = Gateway::start(&config(&sections.concat(), &["a", "b"])).await;
    post_numbers(&gateway, 0..2000).await;
    eventually("B has the first", async || delivered(&gateway, "b").await == 2000).await;
    let mut total = 2000;
    b.kill9();
    for round in 1..=2_u64 {
        post_numbers(&gateway, round * 2000..(round + 1) * 2000).await;
        eventually("A has them", async || count(&a).await == (round + 1) * 2000).await;
        let ended = gateway.terminate().await;
        assert!(ended.status.success(), "nothing is lost: {}", ended.log);
        gateway.restart().await;
        let book = gateway.book("b").await;
        assert_eq!(book["recovered"], round * 2000, "{book}");
        assert_eq!(book["balanced"], true, "{book}");
    }
    post_numbers(&gateway, 6000..8000).await;
    b.restart().await;
    eventually("B has all", async || held(&gateway, "b").await == 0).await;
    total += delivered(&gateway, "b").await;
    assert_eq!((count(&a).await, count(&b).await), (8000, 8000));
    assert_eq!(total, 8000, "none was delivered twice");
    assert_eq!(gateway.book("b").await["dropped"], serde_json::json!({}));
}

#[tokio::test]
async fn order_is_kept_through_memory_disk_and_restart() {
    let influx = FakeHttp::judging(|_| Answer::status(503)).await;
    let mut gateway = Gateway::start(&config(&influxdb("b", &influx.url(), SMALL), &["b"])).await;
    post_numbers(&gateway, 0..3000).await;
    eventually("it is on disk", async || spooled(&gateway).await == 3000).await;
    assert!(gateway.terminate().await.status.success());
    let address = influx.address();
    drop(influx);
    let influx = FakeHttp::start_at(address, []).await;
    gateway.restart().await;
    post_numbers(&gateway, 3000..4000).await;
    eventually("all is delivered", async || held(&gateway, "b").await == 0).await;
    assert_eq!(numbers(&influx, 0), (0..4000).collect::<Vec<_>>());
}

#[tokio::test]
async fn term_dead_backend_keeps_its_points_on_disk() {
    let silent = FakeHttp::start((0..100).map(|_| Answer::hang())).await;
    let mut gateway = Gateway::start(&config(&influxdb("b", &silent.url(), ""), &["b"])).await;
    post_numbers(&gateway, 0..5000).await;
    eventually("it was asked", async || !silent.received().is_empty()).await;
    let began = Instant::now();
    let ended = gateway.terminate().await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(ended.status.success(), "{}", ended.log);
    assert!(ended.log.contains("\"kept\":5000"), "{}", ended.log);

    let before = silent.received().len();
    silent.heal();
    gateway.restart().await;
    eventually("all is delivered", async || held(&gateway, "b").await == 0).await;
    assert_eq!(numbers(&silent, before), (0..5000).collect::<Vec<_>>());
}

/// Whoever stops the gateway may have less patience than its `grace`: he says so by a second signal,
/// or kills it. What waited for a backend is on disk by then.
#[tokio::test]
async fn a_stop_that_is_cut_short_loses_nothing_that_has_a_place_on_disk() {
    for is_killed in [false, true] {
        let silent = FakeHttp::start((0..100).map(|_| Answer::hang())).await;
        let section = influxdb("b", &silent.url(), "");
        let patient = config(&section, &["b"]).replace("grace = '1s'", "grace = '10m'");
        let mut gateway = Gateway::start(&patient).await;
        post_numbers(&gateway, 0..5000).await;
        eventually("it was asked", async || !silent.received().is_empty()).await;
        gateway.daemon.signal(Signal::SIGTERM);
        if is_killed {
            eventually("it is on disk", async || spooled(&gateway).await == 5000).await;
            gateway.kill9();
        } else {
            eventually("it stops", async || gateway.log().contains("\"stopping\"")).await;
            let ended = gateway.terminate().await;
            assert!(ended.status.success(), "{}", ended.log);
            assert!(ended.log.contains("\"kept\":5000"), "{}", ended.log);
        }
        let before = silent.received().len();
        silent.heal();
        gateway.restart().await;
        assert_eq!(gateway.book("b").await["recovered"], 5000);
        eventually("all is delivered", async || held(&gateway, "b").await == 0).await;
        assert_eq!(numbers(&silent, before), (0..5000).collect::<Vec<_>>());
    }
}

/// What waits for its batch or for the end of its window is on no list yet of what goes to disk, and needs
/// nothing but the processor to be there.
#[tokio::test]
async fn a_stop_without_time_keeps_what_is_not_in_line_yet() {
    let silent = FakeHttp::judging(|_| Answer::hang()).await;
    let sections = [("raw", "aggregate = false\nflush = '1h'"), ("windows", "flush = '1h'")]
        .map(|(name, keys)| common::influxdb(name, &silent.url(), keys));
    let all = config(&sections.concat(), &["raw", "windows"]);
    for is_told_twice in [false, true] {
        let grace = if is_told_twice { "grace = '10m'" } else { "grace = '0s'" };
        let mut gateway = Gateway::start(&all.replace("grace = '1s'", grace)).await;
        post_numbers(&gateway, 0..5000).await;
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(b"c:3|c\nc:4|c", gateway.addr("statsd", "udp")).await.unwrap();
        eventually("they are held", async || held(&gateway, "windows").await == 5002).await;
        if is_told_twice {
            gateway.daemon.signal(Signal::SIGINT);
        }
        let Ended { status, log } = gateway.terminate().await;
        assert!(status.success(), "{log}");
        assert!(log.contains("\"kept\":5002") && log.contains("\"kept\":5001"), "{log}");
    }
}

/// The stop closes the window, and its row goes to disk like any other.
#[tokio::test]
async fn a_window_that_the_stop_has_closed_is_kept() {
    let influx = FakeHttp::judging(|_| Answer::status(503)).await;
    let keys = "flush = '1h'\nexpire = { gauge = '0s' }";
    let section = common::influxdb("b", &influx.url(), keys);
    let mut gateway = Gateway::start(&config(&section, &["b"])).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(b"c:3|c\nc:4|c", gateway.addr("statsd", "udp")).await.unwrap();
    eventually("they are in a window", async || gateway.book("b").await["held"]["windows"] == 2)
        .await;
    let ended = gateway.terminate().await;
    assert!(ended.log.contains("\"kept\":1"), "{}", ended.log);
    let address = influx.address();
    drop(influx);
    let influx = FakeHttp::start_at(address, []).await;
    gateway.restart().await;
    let row = eventually("the row is there", async || influx.received().pop()).await;
    assert!(row.body.contains("count=7"), "{}", row.body);
}

#[tokio::test]
async fn buf_replay_once_and_the_disk_is_given_back() {
    let influx = FakeHttp::judging(|_| Answer::status(503)).await;
    let mut gateway = Gateway::start(&config(&influxdb("b", &influx.url(), SMALL), &["b"])).await;
    post_numbers(&gateway, 0..30_000).await;
    eventually("most is on disk", async || spooled(&gateway).await > 20_000).await;
    let full = size_of_dir(&gateway.data_dir());
    let address = influx.address();
    drop(influx);
    let influx = FakeHttp::start_at(address, []).await;
    eventually("all is delivered", async || held(&gateway, "b").await == 0).await;
    assert_eq!(numbers(&influx, 0), (0..30_000).collect::<Vec<_>>());
    let requests = influx.received().len();
    for _ in 0..2 {
        assert!(gateway.terminate().await.status.success());
        gateway.restart().await;
        assert_eq!(gateway.book("b").await["recovered"], 0);
    }
    assert_eq!(influx.received().len(), requests, "nothing came again");
    let empty = size_of_dir(&gateway.data_dir());
    assert!(empty < 300 << 10 && empty < full / 2, "{full} bytes, then {empty}");
}

/// What was on disk survives; what was in memory is lost, and the next run does not know of it.
#[tokio::test]
async fn kill9_while_the_backend_is_away_loses_no_more_than_memory() {
    let influx = FakeHttp::judging(|_| Answer::status(503)).await;
    let mut gateway = Gateway::start(&config(&influxdb("b", &influx.url(), SMALL), &["b"])).await;
    for part in 0..5 {
        post_numbers(&gateway, part * 1000..(part + 1) * 1000).await;
    }
    let on_disk = eventually("most is on disk", async || {
        let on_disk = spooled(&gateway).await;
        (on_disk > 3000).then_some(on_disk)
    })
    .await;
    gateway.kill9();
    let address = influx.address();
    drop(influx);
    let influx = FakeHttp::start_at(address, []).await;
    gateway.restart().await;
    let recovered = gateway.book("b").await["recovered"].as_u64().unwrap();
    assert!(recovered >= on_disk, "{recovered} < {on_disk}");
    eventually("all is delivered", async || held(&gateway, "b").await == 0).await;
    assert_eq!(numbers(&influx, 0), (0..recovered).collect::<Vec<_>>(), "no gap but at the end");
}

#[tokio::test]
async fn buf_missing_file_is_no_reason_not_to_start() {
    let influx = FakeHttp::judging(|_| Answer::status(503)).await;
    let mut gateway = Gateway::start(&config(&influxdb("b", &influx.url(), SMALL), &["b"])).await;
    post_numbers(&gateway, 0..2000).await;
    gateway.terminate().await;
    fs::remove_file(spool_file(&gateway)).unwrap();
    gateway.restart().await;
    assert_eq!(gateway.book("b").await["recovered"], 0);

    post_numbers(&gateway, 0..2000).await;
    gateway.terminate().await;
    fs::write(spool_file(&gateway), "garbage".repeat(10_000)).unwrap();
    gateway.restart().await;
    let book_of_b = gateway.book("b").await;
    assert_eq!(book_of_b["noticed"]["spool_damaged"], 1, "{book_of_b}");
    assert!(gateway.data_dir().join("spool/b.db.damaged-1").exists());
    assert!(gateway.log().contains("the spool is damaged"), "{}", gateway.log());

    post_numbers(&gateway, 0..2000).await;
    eventually("a new file is in use", async || spooled(&gateway).await > 0).await;
}

/// Bytes turned over in the middle of the file: whatever can still be read is delivered.
#[tokio::test]
async fn damaged_records_are_skipped_and_counted() {
    let influx = FakeHttp::judging(|_| Answer::status(503)).await;
    let mut gateway = Gateway::start(&config(&influxdb("b", &influx.url(), SMALL), &["b"])).await;
    post_numbers(&gateway, 0..10_000).await;
    gateway.terminate().await;
    let mut bytes = fs::read(spool_file(&gateway)).unwrap();
    let at = bytes.windows(6).rposition(|window| window == b"value=").unwrap();
    bytes[at] = b'V';
    fs::write(spool_file(&gateway), bytes).unwrap();
    let address = influx.address();
    drop(influx);
    let influx = FakeHttp::start_at(address, []).await;
    gateway.restart().await;
    eventually("the rest is delivered", async || held(&gateway, "b").await == 0).await;
    let book = gateway.book("b").await;
    let lost = book["dropped"]["spool_damaged"].as_u64().unwrap();
    assert!((1..10_000).contains(&lost), "{book}");
    assert_eq!(numbers(&influx, 0).len() as u64 + lost, 10_000);
    assert_eq!(book["balanced"], true, "{book}");
}

#[tokio::test]
async fn a_second_gateway_on_one_data_directory_is_refused() {
    let influx = FakeHttp::start([]).await;
    let mut gateway = Gateway::start(&config(&influxdb("b", &influx.url(), ""), &["b"])).await;
    let second = run_again(&gateway);
    assert_eq!(second.status.code(), Some(1));
    let log = String::from_utf8_lossy(&second.stderr).into_owned();
    let holder = format!("in use by another gateway (pid {}, started ", gateway.daemon.pid());
    assert!(log.contains(&holder), "{log}");
    // The one that runs has not noticed.
    post_numbers(&gateway, 0..10).await;
    eventually("it is delivered", async || delivered(&gateway, "b").await == 10).await;
    // A lock that a killed process has left is none.
    gateway.kill9();
    gateway.restart().await;
}

#[tokio::test]
async fn a_spool_belongs_to_its_kind_and_to_its_name() {
    let influx = FakeHttp::judging(|_| Answer::status(503)).await;
    let mut gateway = Gateway::start(&config(&influxdb("b", &influx.url(), ""), &["b"])).await;
    post_numbers(&gateway, 0..100).await;
    gateway.terminate().await;
    let statsd = "[backends.b]\nkind = 'statsd'\naddress = 'udp://127.0.0.1:9'\n";
    fs::write(gateway.config_file(), config(statsd, &["b"])).unwrap();
    let refused = run_again(&gateway);
    assert_eq!(refused.status.code(), Some(1));
    let log = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        log.contains("it holds points for the kind influxdb; give this backend another"),
        "{log}"
    );

    let other = influxdb("c", &influx.url(), "");
    fs::write(gateway.config_file(), config(&other, &["c"])).unwrap();
    gateway.restart().await;
    assert!(gateway.log().contains("left alone"), "{}", gateway.log());
    assert!(spool_file(&gateway).exists());
}

fn run_again(gateway: &Gateway) -> std::process::Output {
    let (file, data) = (gateway.config_file(), gateway.data_dir());
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
    pointsman(&["run", "--log-format", "json", "--config", file, "--data-dir", data])
}

async fn delivered(gateway: &Gateway, backend: &str) -> u64 {
    gateway.book(backend).await["delivered"].as_u64().unwrap()
}

async fn held(gateway: &Gateway, backend: &str) -> u64 {
    gateway.book(backend).await["held"]["total"].as_u64().unwrap()
}

async fn spooled(gateway: &Gateway) -> u64 {
    gateway.book("b").await["held"]["spool"].as_u64().unwrap()
}

async fn count(server: &Influxd) -> u64 {
    let rows = server.rows("d", "SELECT count(value) AS n FROM n").await;
    rows.first().and_then(|row| row["n"].as_u64()).unwrap_or(0)
}

/// The numbers in the requests from the given one on, in order.
fn numbers(server: &FakeHttp, from: usize) -> Vec<u64> {
    let requests = server.received();
    requests[from..].iter().flat_map(|request| numbers_in(&request.body)).collect()
}

fn spool_file(gateway: &Gateway) -> PathBuf {
    gateway.data_dir().join("spool/b.db")
}

fn size_of_dir(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let size = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        inside if inside.is_dir() => size_of_dir(&entry.path()),
        file => file.len(),
    };
    entries.map(size).sum()
}

fn config(backends: &str, names: &[&str]) -> String {
    format!("grace = '1s'\n{API}{STATSD}{backends}{}", all_to(names))
}

fn influxdb(name: &str, url: &str, keys: &str) -> String {
    let retry = "retry = { first = '20ms', max = '200ms' }";
    common::influxdb(name, url, &format!("aggregate = false\nflush = '100ms'\n{retry}\n{keys}"))
}

/// Little memory, so that there is something on disk soon.
const SMALL: &str = "memory = '16KiB'\nbatch = { points = 100, bytes = '4KiB' }";
