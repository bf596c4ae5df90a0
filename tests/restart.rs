//! A restart continues windows and gauges: a database holds one row for each series and window,
//! and a gauge counts on from where it stood.
//!
//! Windows end by the wall clock, which a test cannot hold. Those that must not end meanwhile are
//! an hour long, and whoever meets the end of the hour begins again; those that must end are short,
//! and are waited for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Ended, Gateway, Influxd, assert_balanced, eventually, eventually_within, size};
use serde_json::Value;

#[tokio::test]
async fn one_row_a_series_in_influxdb() {
    let server = Influxd::start().await;
    one_row_a_series(&Database::Influx(&server)).await;
}

#[tokio::test]
async fn one_row_a_series_in_the_store() {
    one_row_a_series(&Database::Store).await;
}

/// Three processes within one window: each adds something, and what is read has all of it.
async fn one_row_a_series(database: &Database<'_>) {
    let mut gateway = Gateway::start(&database.config("1h")).await;
    let end = loop {
        let end = window_end(HOUR);
        let rounds = [
            "c:1|c\nt:10|ms\nt:30|ms|@0.5\ns:a|s\ng:5|g\nonce:7|c",
            "c:2|c\nt:20|ms\ns:b|s\ns:a|s\ng:+1|g",
            "c:4|c\ng:-2|g\nlate:1|c",
        ];
        for lines in rounds {
            send(&gateway, lines).await;
            stop(&mut gateway).await;
            gateway.restart().await;
        }
        if window_end(HOUR) == end {
            break end;
        }
        fs::remove_dir_all(gateway.data_dir()).unwrap();
        gateway.restart().await;
    };
    for (name, fields) in [
        ("c", &[("count", 7.0)][..]),
        ("t", &[("count", 4.0), ("sum", 90.0), ("lower", 10.0), ("upper", 30.0), ("mean", 22.5)]),
        ("s", &[("count", 2.0)]),
        ("g", &[("value", 4.0)]),
        ("once", &[("count", 7.0)]),
        ("late", &[("count", 1.0)]),
    ] {
        let rows = database.rows(&gateway, name).await;
        let rows: Vec<_> = rows.into_iter().filter(|row| row.time == end).collect();
        assert_eq!(rows.len(), 1, "{name}: {rows:?}");
        for (field, value) in fields {
            assert_eq!(rows[0].fields[*field], *value, "{name}.{field}: {rows:?}");
        }
    }
    let noticed = &gateway.ledger().await["backends"]["b"]["noticed"];
    assert_eq!(noticed, &serde_json::json!({}));
}

#[tokio::test]
async fn a_window_that_ends_later_takes_the_place_of_its_part() {
    let server = Influxd::start().await;
    let mut gateway = Gateway::start(&influx(&server, "5s")).await;
    for round in 0.. {
        let name = format!("c{round}");
        let end = next_window(FIVE).await + FIVE;
        send(&gateway, &format!("{name}:1|c")).await;
        stop(&mut gateway).await;
        gateway.restart().await;
        send(&gateway, &format!("{name}:2|c")).await;
        if window_end(FIVE) != end {
            // The machine was busy; this one does not count.
            continue;
        }
        let database = Database::Influx(&server);
        let rows = eventually("the window is complete", async || {
            let rows = database.rows(&gateway, &name).await;
            rows.iter().any(|row| row.fields["count"] == 3.0).then_some(rows)
        })
        .await;
        assert_eq!((rows.len(), rows[0].time), (1, end), "{rows:?}");
        assert_eq!(rows[0].fields["rate"], 0.6);
        let ledger = gateway.ledger().await;
        assert_balanced(&ledger);
        assert_eq!(ledger["backends"]["b"]["folded_points"], 1, "what was taken up weighs nothing");
        return;
    }
}

#[tokio::test]
async fn gauge_restart_in_another_window() {
    let server = Influxd::start().await;
    let mut gateway = Gateway::start(&influx(&server, "1s")).await;
    send(&gateway, "conn:+10|g\nhits:1|c").await;
    stop(&mut gateway).await;
    // Nobody is there when the window ends.
    next_window(SECOND).await;
    next_window(SECOND).await;
    gateway.restart().await;
    send(&gateway, "conn:-1|g\nhits:2|c").await;
    stop(&mut gateway).await;
    let database = Database::Influx(&server);
    let conn = database.rows(&gateway, "conn").await;
    let values: Vec<_> = conn.iter().map(|row| row.fields["value"]).collect();
    assert_eq!((values[0], values.last()), (10.0, Some(&9.0)), "{conn:?}");
    let hits = database.rows(&gateway, "hits").await;
    let counts: Vec<_> = hits.iter().map(|row| row.fields["count"]).collect();
    assert_eq!(counts, [1.0, 2.0], "{hits:?}");
    assert!(hits.iter().all(|row| row.time % SECOND == 0), "{hits:?}");
}

#[tokio::test]
async fn a_damaged_snapshot_is_set_aside_named_and_counted() {
    let server = Influxd::start().await;
    let mut gateway = Gateway::start(&influx(&server, "1h")).await;
    send(&gateway, "c:1|c\ng:10|g").await;
    stop(&mut gateway).await;
    let snapshot = gateway.data_dir().join("windows/b.snapshot");
    let mut bytes = fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&snapshot, &bytes).unwrap();
    gateway.restart().await;
    let aside = gateway.data_dir().join("windows/b.snapshot.damaged");
    assert_eq!(fs::read(&aside).unwrap(), bytes);
    let told = |line: &&Value| line["set_aside"] == aside.to_str().unwrap();
    let log = lines(&gateway.log());
    let line = log.iter().find(told).unwrap();
    assert_eq!((&line["level"], &line["backend"]), (&"ERROR".into(), &"b".into()));
    let noticed = &gateway.ledger().await["backends"]["b"]["noticed"];
    assert_eq!(noticed["snapshot_damaged"], 1);
    send(&gateway, "c:2|c\ng:+1|g").await;
    stop(&mut gateway).await;
    // What was written before is still there.
    let rows = Database::Influx(&server).rows(&gateway, "c").await;
    let sum: f64 = rows.iter().map(|row| row.fields["count"]).sum();
    assert_eq!((sum, rows.len()), (3.0, 2), "{rows:?}");
}

#[tokio::test]
async fn a_kill_costs_only_what_came_since_the_last_stop() {
    let server = Influxd::start().await;
    let mut gateway = Gateway::start(&influx(&server, "1h")).await;
    let end = window_end(HOUR);
    send(&gateway, "c:1|c\ng:10|g").await;
    stop(&mut gateway).await;
    gateway.restart().await;
    send(&gateway, "c:2|c\ng:20|g").await;
    gateway.kill9();
    gateway.restart().await;
    send(&gateway, "c:4|c\ng:+1|g").await;
    stop(&mut gateway).await;
    let database = Database::Influx(&server);
    let sum = |rows: Vec<Row>| rows.iter().map(|row| row.fields["count"]).sum::<f64>();
    assert_eq!(sum(database.rows(&gateway, "c").await), 5.0);
    let gauge = database.rows(&gateway, "g").await;
    assert_eq!(gauge.last().unwrap().fields["value"], 11.0);
    if window_end(HOUR) == end {
        assert_eq!(gauge.len(), 1, "{gauge:?}");
    }
}

#[tokio::test]
async fn without_a_data_directory_a_gateway_starts_and_stops() {
    let server = Influxd::start().await;
    let config = influx(&server, "1h").replace("kind =", "spool = false\nkind =");
    let mut gateway = Gateway::start(&config).await;
    stop(&mut gateway).await;
    // Not even root can make a directory of a file.
    fs::remove_dir_all(gateway.data_dir()).unwrap();
    fs::write(gateway.data_dir(), "").unwrap();
    gateway.restart().await;
    assert!(gateway.log().contains("begin anew at the next restart"), "{}", gateway.log());
    for sum in [1.0, 2.0] {
        send(&gateway, "c:1|c").await;
        stop(&mut gateway).await;
        let rows = rows_in_influx(&server, "c").await;
        assert_eq!(rows.iter().map(|row| row.fields["count"]).sum::<f64>(), sum, "{rows:?}");
        gateway.restart().await;
    }
}

/// As many series as windows hold by default, when it is played at full length. Both stops write
/// a row for each; the second one's, which hold the whole window, take the places of the first's.
#[tokio::test]
async fn no_series_of_many_is_lost_by_a_restart() {
    let series = size(20_000, 1_000_000);
    let config = config("kind = 'store'", "1h").replace("udp://", "tcp://");
    let mut gateway = Gateway::start(&format!("grace = '5m'\n{config}")).await;
    let end = window_end(HOUR);
    for _ in 0..2 {
        send_counters(&gateway, series).await;
        let began = Instant::now();
        stop(&mut gateway).await;
        let stopped = began.elapsed();
        let file = fs::metadata(gateway.data_dir().join("windows/b.snapshot")).unwrap();
        let began = Instant::now();
        gateway.restart().await;
        let started = began.elapsed();
        let mib = file.len() >> 20;
        eprintln!(
            "{series} series: stopped in {stopped:?}, snapshot of {mib} MiB, started in {started:?}"
        );
        assert_eq!(gateway.ledger().await["backends"]["b"]["noticed"], serde_json::json!({}));
    }
    if window_end(HOUR) == end {
        let sums = "SELECT count(*), sum(json_extract(fields, '$.count')) FROM points";
        let db = rusqlite::Connection::open(gateway.data_dir().join("store.db")).unwrap();
        let found = db.query_row(sums, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(found, (series as i64, 2.0 * series as f64));
    }
}

async fn send_counters(gateway: &Gateway, series: u64) {
    let lines: String = (0..series).map(|n| format!("c{n}:1|c\n")).collect();
    let mut client = TcpStream::connect(gateway.addr("statsd", "tcp")).unwrap();
    client.write_all(lines.as_bytes()).unwrap();
    let patience = Duration::from_secs(120);
    eventually_within(patience, "all have come", async || windows(gateway).await >= series).await;
}

/// What a backend writes to.
enum Database<'a> {
    Influx(&'a Influxd),
    Store,
}

#[derive(Debug)]
struct Row {
    time: i64,
    fields: BTreeMap<String, f64>,
}

impl Database<'_> {
    fn config(&self, flush: &str) -> String {
        match self {
            Self::Influx(server) => influx(server, flush),
            Self::Store => config("kind = 'store'", flush),
        }
    }

    async fn rows(&self, gateway: &Gateway, name: &str) -> Vec<Row> {
        match self {
            Self::Influx(server) => rows_in_influx(server, name).await,
            Self::Store => rows_in_store(gateway, name).await,
        }
    }
}

async fn rows_in_influx(server: &Influxd, name: &str) -> Vec<Row> {
    let rows = server.rows("d", &format!("SELECT * FROM \"{name}\"")).await;
    let row = |row: serde_json::Map<String, Value>| Row {
        time: row["time"].as_i64().unwrap(),
        fields: row
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), value.as_f64()?)))
            .collect(),
    };
    rows.into_iter().map(row).collect()
}

/// As the file has them, since an answer shows times as text.
async fn rows_in_store(gateway: &Gateway, name: &str) -> Vec<Row> {
    let db = rusqlite::Connection::open(gateway.data_dir().join("store.db")).unwrap();
    let mut select = db
        .prepare("SELECT time, fields FROM points JOIN series ON series.id = series WHERE name = ?1 ORDER BY time")
        .unwrap();
    let rows = select.query_map([name], |row| Ok((row.get(0)?, row.get::<_, String>(1)?))).unwrap();
    let row = |row: rusqlite::Result<(i64, String)>| {
        let (time, fields) = row.unwrap();
        Row { time, fields: serde_json::from_str(&fields).unwrap() }
    };
    rows.map(row).collect()
}

/// Sends lines, and waits until they are in the window.
async fn send(gateway: &Gateway, lines: &str) {
    let before = windows(gateway).await;
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(lines.as_bytes(), gateway.addr("statsd", "udp")).unwrap();
    let after = before + lines.lines().count() as u64;
    eventually("they have come", async || windows(gateway).await >= after).await;
}

/// Points that are in a window, or have been.
async fn windows(gateway: &Gateway) -> u64 {
    let ledger = gateway.ledger().await;
    let book = &ledger["backends"]["b"];
    book["held"]["windows"].as_u64().unwrap() + book["folded_points"].as_u64().unwrap()
}

async fn stop(gateway: &mut Gateway) {
    let Ended { status, log } = gateway.terminate().await;
    assert!(status.success(), "{log}");
}

/// Waits until a window begins, and answers when that was.
async fn next_window(length: i64) -> i64 {
    let begin = window_end(length);
    eventually("a window begins", async || now() >= begin).await;
    begin
}

fn window_end(length: i64) -> i64 {
    (now() / length + 1) * length
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_nanos()).unwrap()
}

fn lines(log: &str) -> Vec<Value> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn influx(server: &Influxd, flush: &str) -> String {
    let backend = format!(
        "kind = 'influxdb'\nurl = '{}'\ndatabase = 'd'\ncreate_database = true\npercentiles = []",
        server.url()
    );
    config(&backend, flush)
}

fn config(backend: &str, flush: &str) -> String {
    format!(
        "[admin]\nbind = '127.0.0.1:0'\n\
         [listeners.statsd]\nprotocol = 'statsd'\nbind = ['udp://127.0.0.1:0']\n\
         [backends.b]\n{backend}\nflush = '{flush}'\n[[routes]]\nto = ['b']\n"
    )
}

const SECOND: i64 = Duration::from_secs(1).as_nanos() as i64;
const FIVE: i64 = 5 * SECOND;
const HOUR: i64 = 3600 * SECOND;
