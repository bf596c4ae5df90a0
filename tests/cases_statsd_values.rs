//! What statsd values mean, held against faults that other servers had: signs, fractions, sample
//! rates, percentiles, windows, floods of names, and relaying to another statsd.
//!
//! Most cases look at the rows of a window that is a year long and ends when the gateway does, so
//! that no edge falls between two packets; the others assert on sums over windows.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::print_stderr)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{Answer, FakeHttp, Gateway, TcpSink, UdpSink, eventually, is_drained};
use serde_json::{Map, Value, json};
use tokio::net::UdpSocket;
use tokio::time::Instant;

#[tokio::test]
async fn neg_histogram_is_a_sample_like_any_other() {
    let packets = ["resp.size:-1.000000|h\nresp.size:3|h\nok:1|c\n"];
    let rows = window_of(&packets, 3).await;
    let size =
        json!({ "count": 2, "lower": -1, "upper": 3, "sum": 2, "mean": 1, "p50": -1, "p99": 3 });
    assert_row(&rows["resp.size"], &size);
    assert_row(&rows["ok"], &json!({ "count": 1 }));
}

#[tokio::test]
async fn neg_histogram_may_be_empty_in_the_next_window() {
    let keys = r#"flush = "100ms"
        expire = { timer = "never", gauge = "0s" }"#;
    let classic = format!("{keys}\nlayout = \"statsd\"");
    for (keys, name, nothing) in [
        (keys, "resp.size", r#""fields":{"count":0.0,"rate":0.0}"#),
        (&classic, "stats.timers.resp.size.count", r#""value":0.0"#),
    ] {
        let gateway = Gateway::start(&to_screen(keys)).await;
        send(&gateway, &["resp.size:-1|h\nresp.size:3|h"]).await;
        let name = format!("\"{name}\"");
        let is_empty = |line: &str| line.contains(&name) && line.contains(nothing);
        eventually("an empty window", async || gateway.stdout().lines().any(is_empty)).await;
    }
}

#[tokio::test]
async fn gauge_sign_makes_a_change_across_packets() {
    let datagrams = ["10", "-3", "+5", "0", "-7"];
    let mut packets = Vec::new();
    for (name, seen) in ["t1", "t2", "t3", "t4", "t5"].iter().zip(1..) {
        packets.extend(datagrams[..seen].iter().map(|value| format!("{name}:{value}|g")));
    }
    packets.push("u:-4|g".to_owned());
    let rows = window_of(&packets, 16).await;
    let values: Vec<_> = rows.values().map(|row| row["value"].as_f64().unwrap()).collect();
    assert_eq!(values, [10.0, 7.0, 12.0, 0.0, -7.0, -4.0]);
}

#[tokio::test]
async fn gauge_sign_starts_from_zero_after_the_gauge_expired() {
    let mut gateway = Gateway::start(&to_screen(
        r#"flush = "100ms"
        expire = { gauge = "0s" }"#,
    ))
    .await;
    send(&gateway, &["t:10|g"]).await;
    eventually("the gauge is sent", async || gateway.stdout().contains(r#""value":10.0"#)).await;
    eventually("the gauge is forgotten", async || {
        gateway.metrics().await.sum("pointsman_aggregate_series", &[]) == 0.0
    })
    .await;
    send(&gateway, &["t:-3|g"]).await;
    gateway.terminate().await;
    let values: Vec<_> =
        points(&gateway).iter().map(|row| row["fields"]["value"].clone()).collect();
    assert_eq!(values, [10.0, -3.0]);
}

#[tokio::test]
async fn float_counter_is_summed_before_anything_is_cut() {
    let mut packets = vec!["cost:0.4|c"; 5];
    packets.push("sent:183.000000|c");
    let rows = window_of(&packets, 6).await;
    assert_row(&rows["cost"], &json!({ "count": 2 }));
    assert_row(&rows["sent"], &json!({ "count": 183 }));
}

#[tokio::test]
async fn neg_counter_is_accepted_and_not_worth_a_word() {
    let mut gateway = Gateway::start(&to_screen(YEAR)).await;
    let before = gateway.log();
    send(&gateway, &["c1:5|c\nc1:-2|c\nc2:-1|c\n"]).await;
    received(&gateway, 3).await;
    assert_eq!(gateway.log(), before);
    gateway.terminate().await;
    let rows = rows(&gateway);
    assert_row(&rows["c1"], &json!({ "count": 3 }));
    assert_row(&rows["c2"], &json!({ "count": -1 }));
}

#[tokio::test]
async fn sample_no_scale() {
    let kinds = ["ms", "h", "d"];
    let packets = kinds.map(|kind| format!("{kind}:1|{kind}|@0.001\n{kind}:2|{kind}|@0.001\n"));
    let rows = window_of(&packets, 6).await;
    for kind in kinds {
        let row = json!({ "count": 2000, "lower": 1, "upper": 2, "mean": 1.5, "sum": 3000, "median": 1.5 });
        assert_row(&rows[kind], &row);
    }
}

#[tokio::test]
async fn sample_order_of_rate_and_tags_is_free() {
    let packets = [
        "h:1|c|@0.5|#m:GET\nh:1|c|#m:GET|@0.5\nh:1|c|@1.0|#m:GET,handler:a_b\n",
        "o:1|c|#a:1,b:2\no:1|c|#b:2,a:1",
    ];
    let rows = window_of(&packets, 5).await;
    let counts: Vec<_> =
        rows.iter().map(|(name, row)| (name.as_str(), row["count"].as_f64())).collect();
    let expected = [
        (r#"h {"handler":"a_b","m":"GET"}"#, Some(1.0)),
        (r#"h {"m":"GET"}"#, Some(4.0)),
        (r#"o {"a":"1","b":"2"}"#, Some(2.0)),
    ];
    assert_eq!(counts, expected);
}

#[tokio::test]
async fn sample_restore_once_and_never_twice() {
    let sink = UdpSink::start().await;
    let relay = relay(&format!("udp://{}", sink.address()));
    let mut gateway =
        Gateway::start(&configuration(&["screen", "relay"], &[&screen(YEAR), &relay])).await;
    send(&gateway, &["m:1|c|@0.01\nn:1|c|@0.3333333333333333\n"]).await;
    received(&gateway, 2).await;
    gateway.terminate().await;
    let rows = rows(&gateway);
    assert_row(&rows["m"], &json!({ "count": 100 }));
    assert_row(&rows["n"], &json!({ "count": 3 }));
    eventually("the relay sends", async || sink.lines().len() == 2).await;
    assert_eq!(sink.lines(), ["m:1|c|@0.01", "n:1|c|@0.3333333333333333"]);
}

#[tokio::test]
async fn sample_gauge_is_set_as_it_was_read() {
    let packets = ["set:50|g|@0.1", "changed:50|g|@0.1", "changed:+5|g|@0.5"];
    let rows = window_of(&packets, 3).await;
    assert_row(&rows["set"], &json!({ "value": 50 }));
    assert_row(&rows["changed"], &json!({ "value": 55 }));
}

/// 200,000 names in a few seconds meet a limit of 10,000 series. A window is long enough to see
/// most of them.
#[tokio::test]
async fn cardinality_flood_costs_no_known_series_and_no_memory() {
    const NAMES: usize = 200_000;
    let keys = "flush = \"3s\"\nmax_series = 10000";
    let mut gateway = Gateway::start(&to_screen(keys)).await;
    let mut packets = Vec::new();
    for first in (0..NAMES).step_by(40) {
        let names =
            (first..first + 40).map(|n| format!("x.{n:08x}-0000-4000-8000-000000000000:1|c"));
        packets.push(format!("known:1|c\n{}", names.collect::<Vec<_>>().join("\n")));
    }
    let calm = gateway.daemon.resident_bytes();
    let mut most = 0;
    for packets in packets.chunks(500) {
        send(&gateway, packets).await;
        most = most.max(gateway.daemon.resident_bytes());
    }
    let sent = NAMES + packets.len();
    received(&gateway, sent as u64).await;
    eventually("the names are forgotten", async || {
        gateway.metrics().await.sum("pointsman_aggregate_series", &[]) == 0.0
    })
    .await;
    let ledger = gateway.ledger().await;
    let refused = ledger["backends"]["screen"]["dropped"]["series_limit"].as_f64().unwrap();
    assert_eq!(ledger["backends"]["screen"]["balanced"], true, "{ledger:#}");
    let ended = gateway.terminate().await;
    let points = points(&gateway);
    let (known, others): (Vec<_>, Vec<_>) = points.iter().partition(|row| row["name"] == "known");
    let count = |rows: &[&Value]| -> f64 {
        rows.iter().map(|row| row["fields"]["count"].as_f64().unwrap()).sum()
    };
    assert_eq!(count(&known), packets.len() as f64);
    assert_eq!(count(&others) + refused, NAMES as f64);
    let warnings = ended.log.lines().filter(|line| line.contains("max_series"));
    let warnings: Vec<Value> = warnings.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0]["prefix"].as_str().unwrap().starts_with("x."), "{warnings:?}");
    eprintln!("{refused} points refused; {calm} bytes resident before, {most} at the most");
    assert!(most < calm + RESIDENT_MOST, "{calm} bytes resident before, {most} at the most");
}

#[tokio::test]
async fn percentile_is_of_nearest_rank() {
    let shuffled = (0..100).map(|n| format!("v:{}|ms", n * 37 % 100 + 1));
    let mut packets: Vec<_> = shuffled.collect();
    packets.push("one:7|ms".to_owned());
    packets.extend((1..=10).map(|n| format!("w:{n}|ms")));
    let keys = format!("{YEAR}\npercentiles = [50, 90, 95, 99, 100]");
    let rows = window_with(&keys, &packets, 111).await;
    assert_row(&rows["v"], &json!({ "p50": 50, "p90": 90, "p95": 95, "p99": 99, "p100": 100 }));
    assert_row(&rows["one"], &json!({ "p50": 7, "p90": 7, "p95": 7, "p99": 7, "p100": 7 }));
    assert_row(&rows["w"], &json!({ "lower": 1, "p50": 5, "p90": 9, "p95": 10, "upper": 10 }));
}

/// The window ends before its time, with the gateway; its rate is still of ten seconds.
#[tokio::test]
async fn timer_rate_counts_what_clients_left_out() {
    let mut gateway = Gateway::start(&to_screen("flush = \"10s\"")).await;
    let packets = [vec!["a:100|ms"; 100].join("\n"), vec!["b:100|ms|@0.5"; 50].join("\n")];
    send(&gateway, &packets).await;
    received(&gateway, 150).await;
    gateway.terminate().await;
    for name in ["a", "b"] {
        let points = points(&gateway);
        let rows: Vec<_> = points.iter().filter(|row| row["name"] == name).collect();
        let sum = |field: &str| -> f64 {
            rows.iter().map(|row| row["fields"][field].as_f64().unwrap()).sum()
        };
        assert_eq!((sum("count"), sum("rate"), sum("sum")), (100.0, 10.0, 10_000.0), "{rows:?}");
        assert!(rows.iter().all(|row| row["fields"]["mean"] == 100.0), "{rows:?}");
    }
}

/// A backend that takes two and a half windows for an answer. Merged, the counts would come as
/// three or four points.
#[tokio::test]
async fn slow_flush_merges_no_windows() {
    let influx = FakeHttp::start((0..20).map(|_| Answer::status(204).after(SLOW))).await;
    let backend = format!(
        "[backends.influx]\nkind = \"influxdb\"\nurl = \"{}\"\ndatabase = \"d\"\nflush = \"500ms\"\n\
         expire = {{ gauge = \"0s\" }}",
        influx.url()
    );
    let gateway = Gateway::start(&configuration(&["influx"], &[&backend])).await;
    let mut sent = 0;
    let began = Instant::now();
    while began.elapsed() < SLOW * 4 {
        send(&gateway, &["c:1|c"]).await;
        sent += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let points = eventually("all is written", async || {
        let points = line_protocol(&influx);
        (points.iter().map(|(_, count)| count).sum::<f64>() >= f64::from(sent)).then_some(points)
    })
    .await;
    assert_eq!(points.iter().map(|(_, count)| count).sum::<f64>(), f64::from(sent));
    let times: BTreeSet<_> = points.iter().map(|(time, _)| *time).collect();
    assert_eq!(times.len(), points.len(), "{points:?}");
    assert!(times.iter().all(|time| time % 500_000_000 == 0), "{points:?}");
    assert!(times.len() >= 6, "{points:?}");
}

/// The time and count of each point that was written.
fn line_protocol(influx: &FakeHttp) -> Vec<(u64, f64)> {
    let bodies = influx.received().into_iter().map(|request| request.body);
    let lines: Vec<String> =
        bodies.flat_map(|body| body.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let point = |line: &String| {
        let (fields, time) = line.strip_prefix("c count=")?.split_once(' ')?;
        Some((time.parse().ok()?, fields.split(',').next()?.parse().ok()?))
    };
    lines.iter().map(|line| point(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

/// Gauges are kept over a restart; where their snapshot is gone, they start from zero.
#[tokio::test]
async fn gauge_restart_goes_on_from_where_it_stood() {
    for (forgets, expected) in [(false, 9), (true, -1)] {
        gauge_restart(forgets, expected).await;
    }
}

async fn gauge_restart(forgets: bool, expected: i64) {
    let mut gateway = Gateway::start(&to_screen(YEAR)).await;
    send(&gateway, &["conn:+10|g"]).await;
    gateway.terminate().await;
    assert_row(&rows(&gateway)["conn"], &json!({ "value": 10 }));
    let stopped = points(&gateway)[0]["time"].as_i64().unwrap();
    if forgets {
        std::fs::remove_dir_all(gateway.data_dir().join("windows")).unwrap();
    }
    gateway.restart().await;
    send(&gateway, &["conn:-1|g"]).await;
    gateway.terminate().await;
    assert_row(&rows(&gateway)["conn"], &json!({ "value": expected }));
    assert!(points(&gateway)[0]["time"].as_i64().unwrap() > stopped);
}

#[tokio::test]
async fn statsd_forward_types_and_units_survive() {
    let sink = UdpSink::start().await;
    let relay = relay(&format!("udp://{}", sink.address()));
    let gateway = Gateway::start(&configuration(&["relay"], &[&relay])).await;
    let lines =
        ["a:320|ms|@0.5", "b:3|h", "c:2|c|@0.1|#k:v", "d:u1|s", "e:1|d", "f:+2|g", "f:-1.5|g"];
    send(&gateway, &[lines.join("\n")]).await;
    eventually("all is relayed", async || sink.lines().len() >= lines.len()).await;
    assert_eq!(sink.lines(), lines);
}

#[tokio::test]
async fn udp_forward_mtu_is_kept_at_line_borders() {
    let (datagrams, stream) = (UdpSink::start().await, TcpSink::start().await);
    let udp = relay(&format!("udp://{}", datagrams.address()));
    let tcp = relay(&format!("tcp://{}", stream.address())).replace("relay", "stream");
    let gateway = Gateway::start(&configuration(&["relay", "stream"], &[&udp, &tcp])).await;
    let counters: Vec<_> = (0..500).map(|n| format!("counter{n}:{n}|c")).collect();
    let samples: Vec<_> = (0..4000).map(|n| n.to_string()).collect();
    let long = format!("long:1|c|#k:{}", "v".repeat(3000 - "long:1|c|#k:".len()));
    let dist = format!("dist:{}|d", samples.join(":"));
    send(&gateway, &[counters[..250].join("\n"), dist, long.clone(), counters[250..].join("\n")])
        .await;

    received(&gateway, 4501).await;
    eventually("all is relayed", async || datagrams.lines().len() >= 4500).await;
    eventually("the stream has it too", async || stream.lines().len() >= 4501).await;
    for datagram in datagrams.datagrams() {
        assert!(datagram.len() <= 1432, "{} bytes", datagram.len());
    }
    let sum = |lines: &[String], name: &str| -> f64 {
        lines.iter().filter_map(|line| value(line, name)).sum()
    };
    for lines in [datagrams.lines(), stream.lines()] {
        assert_eq!(sum(&lines, "counter"), f64::from(499 * 500 / 2));
        assert_eq!(sum(&lines, "dist"), f64::from(3999 * 4000 / 2));
    }
    assert!(stream.lines().contains(&long));
    let ledger = gateway.ledger().await;
    assert_eq!(ledger["backends"]["relay"]["dropped"], json!({ "too_large": 1 }));
    assert_eq!(ledger["backends"]["stream"]["dropped"], json!({}));
    assert_eq!(ledger["backends"]["relay"]["balanced"], true, "{ledger:#}");
}

/// The value of a whole line whose name begins so; half a line has none.
fn value(line: &str, name: &str) -> Option<f64> {
    let (_, rest) = line.strip_prefix(name)?.split_once(':')?;
    let (value, kind) = rest.split_once('|')?;
    assert!(kind == "c" || kind == "d", "{line}");
    Some(value.parse().unwrap())
}

/// Sends packets to a gateway whose window is a year long, ends it, and returns the window's rows
/// by name and tags.
async fn window_of(
    packets: &[impl AsRef<str>],
    points: u64,
) -> BTreeMap<String, Map<String, Value>> {
    window_with(YEAR, packets, points).await
}

async fn window_with(
    keys: &str,
    packets: &[impl AsRef<str>],
    points: u64,
) -> BTreeMap<String, Map<String, Value>> {
    let mut gateway = Gateway::start(&to_screen(keys)).await;
    send(&gateway, packets).await;
    received(&gateway, points).await;
    gateway.terminate().await;
    rows(&gateway)
}

fn to_screen(keys: &str) -> String {
    configuration(&["screen"], &[&screen(keys)])
}

fn screen(keys: &str) -> String {
    format!("[backends.screen]\nkind = \"stdout\"\naggregate = true\n{keys}\n")
}

fn relay(address: &str) -> String {
    format!("[backends.relay]\nkind = \"statsd\"\naddress = \"{address}\"\nflush = \"100ms\"\n")
}

fn configuration(to: &[&str], backends: &[&str]) -> String {
    format!(
        r#"
        [listeners.statsd]
        protocol = "statsd"
        bind = ["udp://127.0.0.1:0"]
        [admin]
        bind = "127.0.0.1:0"
        [[routes]]
        to = {to:?}
        {}
        "#,
        backends.join("\n")
    )
}

/// Sends packets over UDP, in order, and no faster than they are taken.
async fn send(gateway: &Gateway, packets: &[impl AsRef<str>]) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = gateway.addr("statsd", "udp");
    for few in packets.chunks(24) {
        for packet in few {
            socket.send_to(packet.as_ref().as_bytes(), to).await.unwrap();
        }
        eventually("the packets are taken", async || is_drained(to)).await;
    }
}

/// Waits for so many points, of which none may have been refused.
async fn received(gateway: &Gateway, points: u64) {
    let listener = eventually("the points come in", async || {
        let listener = gateway.ledger().await["listeners"]["statsd"].take();
        (listener["received"].as_u64().unwrap() >= points).then_some(listener)
    })
    .await;
    assert_eq!(listener["received"], points, "{listener:#}");
    assert_eq!(listener["rejected"], json!({}), "{listener:#}");
}

/// What was printed, one point a line.
fn points(gateway: &Gateway) -> Vec<Value> {
    gateway.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The fields of each series, of which each has one row.
fn rows(gateway: &Gateway) -> BTreeMap<String, Map<String, Value>> {
    let mut rows = BTreeMap::new();
    for point in points(gateway) {
        let tags = point.get("tags").map_or(String::new(), |tags| format!(" {tags}"));
        let series = format!("{}{tags}", point["name"].as_str().unwrap());
        let fields = point["fields"].as_object().unwrap().clone();
        assert!(rows.insert(series, fields).is_none(), "a second row: {point}");
    }
    rows
}

/// The row has these fields, within a rounding error, among others.
fn assert_row(row: &Map<String, Value>, expected: &Value) {
    for (field, value) in expected.as_object().unwrap() {
        let (found, value) = (row.get(field).and_then(Value::as_f64), value.as_f64().unwrap());
        assert!(found.is_some_and(|found| (found - value).abs() < 1e-9), "{field} of {row:?}");
    }
}

const YEAR: &str = "flush = \"365d\"";
/// The length of two and a half windows.
const SLOW: Duration = Duration::from_millis(1250);
/// For 10,000 series it is about 4 MB. Held all at once, the names of the flood cost 46 MB.
const RESIDENT_MOST: u64 = 16 << 20;
