//! The bytes that InfluxDB is sent: one line a point whatever its names hold, escaped as servers
//! read it, and never a number that no server takes.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::sync::Arc;

use common::{FakeHttp, Gateway, Reply, STATSD, api_to_influxdb, eventually};
use pointsman::backend::{Config, World};
use pointsman::clock::Clock;
use pointsman::lane::{self, Settings, State, Terms, series_hash};
use pointsman::origin::{Origin, Protocol};
use pointsman::waybill::Via;
use protocols::{Batch, FieldValue, Number, UnixNanos};
use serde_json::{Value, json};
use tokio::net::UdpSocket;

#[tokio::test]
async fn lp_newline_is_one_record_a_point() {
    let points = json!([
        {"name": "m", "time": 1, "value": 1, "tags": {"t": "a\nevil value=666 1\n"}},
        {"name": "s", "time": 1, "text": "a\"\nevil value=666 1\r\n"},
        {"name": "good", "time": 1, "value": 1},
    ]);
    let expected = [
        r"m,t=a_evil\ value\=666\ 1_ value=1 1000000000",
        r#"s text="a\" evil value=666 1  " 1000000000"#,
        "good value=1 1000000000",
    ];
    assert_eq!(sent(points, "", expected.len()).await, expected);
}

#[tokio::test]
async fn lp_newline_in_opentsdb_json_is_refused_or_harmless() {
    let server = FakeHttp::start([]).await;
    let gateway = Gateway::start(&config(&server, "")).await;
    let points = json!([
        {"metric": "m", "timestamp": 1, "value": 1, "tags": {"t": "a\nevil value=666 1\n"}},
        {"metric": "n\r\nput x 1 1 a=b", "timestamp": 1, "value": 1, "tags": {"h": "x"}},
        {"metric": "good", "timestamp": 1, "value": 1, "tags": {"h": "x"}},
    ]);
    gateway.http("api").post("/api/put", points.to_string()).await;
    let good = "good,h=x value=1 1000000000".to_owned();
    eventually("the good one arrives", async || lines(&server).contains(&good)).await;
    let harmless =
        |line: &String| ["m,t=", r"n__put\ x", "good,"].iter().any(|start| line.starts_with(start));
    assert!(lines(&server).iter().all(harmless), "{:?}", lines(&server));
}

#[tokio::test]
async fn lp_escaping_is_complete() {
    let point = |key: &str, value: Value| {
        let tags = json!({"k 1,=": "v \"1\",="});
        json!({"name": "a b,c=d", "time": 1, "tags": tags, "fields": {key: value}})
    };
    let points = json!([
        point("f", json!("he said \"x\\y\"")),
        point("f 1,=", json!("a, b=c")),
        point("i", json!(7)),
        point("f", json!(7.0)),
        point("b", json!(true)),
    ]);
    let series = r#"a\ b\,c=d,k\ 1\,\==v\ "1"\,\="#;
    let fields = |integer: &str| {
        [
            r#"f="he said \"x\\y\"""#.to_owned(),
            r#"f\ 1\,\=="a, b=c""#.to_owned(),
            integer.to_owned(),
            "f=7".to_owned(),
            "b=true".to_owned(),
        ]
    };
    // Points of one series and time are told apart by a nanosecond, so the times are cut off.
    for (keys, integer) in [("", "i=7"), ("integers = \"keep\"", "i=7i")] {
        let lines = sent(points.clone(), keys, 5).await;
        let lines: Vec<_> = lines.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        let expected = fields(integer).map(|field| format!("{series} {field}"));
        assert_eq!(lines, expected);
    }
}

#[tokio::test]
async fn lp_no_tags_means_no_comma() {
    let server = FakeHttp::start([]).await;
    let gateway = Gateway::start(&config(&server, "flush = \"1s\"")).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(b"m:1|c\n", gateway.addr("statsd", "udp")).await.unwrap();
    let line = eventually("the counter arrives", async || lines(&server).into_iter().next()).await;
    assert!(line.starts_with("m count=1,rate=1 "), "{line}");
}

/// No listener lets such a number in, so the points are made here.
#[tokio::test]
async fn lp_nan_field_is_left_out_and_counted() {
    let server = FakeHttp::start([]).await;
    let kind = json!({"url": server.url(), "database": "d"});
    let kind = Config::Influxdb(serde_json::from_value(kind).unwrap());
    let settings = Settings::new("influx", kind.kind(), &lane::Config::default());
    let state = State::new(Arc::default(), settings.shards);
    let (clock, book) = (Clock::System, Arc::default());
    let world = World {
        name: "influx",
        data_dir: std::path::Path::new("."),
        clock,
        book: &book,
        certificates: &Default::default(),
    };
    let ship = kind.shippers(1, &world).unwrap().remove(0);
    let (lane, mut running) = lane::spawn(settings, state, kind.encoder(), ship, clock);
    let book = Arc::clone(lane.book());

    let origin = Origin::new("lines", Protocol::Influxdb);
    let via = Arc::new(Via { route: "all".into(), rewrite: None });
    let mut front = lane.front(0, clock.now(), &origin, Terms::default());
    for point in not_all_finite().iter() {
        front.take(&point, series_hash(point.name, point.tags), &via);
    }
    front.close();
    drop(lane);
    running.drained().await;

    assert_eq!(lines(&server).len(), 99);
    assert_eq!(lines(&server)[0], "some a=1.5 0");
    assert_eq!((book.delivered.get(), book.retries.get()), (99, 0));
    assert_eq!(book.lost_parts.counts(), [("not_finite", 2)]);
    assert_eq!(book.dropped.counts(), [("not_finite", 1)]);
    assert_eq!(server.received().len(), 1);
}

/// One row with a good field and two that are not finite, one with none that is, 98 good ones.
fn not_all_finite() -> Batch {
    let mut batch = Batch::new();
    let number = |value: f64| FieldValue::Number(Number::F64(value));
    let mut row = |name: &str, columns: &[(&str, f64)], time: i64| {
        let mut writer = batch.begin(name);
        for (key, value) in columns {
            writer.field(key, number(*value));
        }
        writer.finish_fields(Some(UnixNanos(time)));
    };
    row("some", &[("a", 1.5), ("b", f64::NAN), ("c", f64::INFINITY)], 0);
    row("none", &[("a", f64::NAN)], 0);
    (0..98).for_each(|n| row("good", &[("a", 1.0)], n));
    batch
}

/// The lines that become of these points.
async fn sent(points: Value, keys: &str, count: usize) -> Vec<String> {
    let server = FakeHttp::start([]).await;
    let gateway = Gateway::start(&config(&server, keys)).await;
    let reply: Reply = gateway.http("api").post("/v1/points", points.to_string()).await;
    reply.expect_success();
    eventually("all lines arrive", async || lines(&server).len() >= count).await;
    lines(&server)
}

fn lines(server: &FakeHttp) -> Vec<String> {
    let requests = server.received();
    // Not `lines()`, which would take a carriage return away.
    let lines = requests.iter().flat_map(|request| request.body.split_terminator('\n'));
    lines.map(str::to_owned).collect()
}

fn config(server: &FakeHttp, keys: &str) -> String {
    format!("{STATSD}{}", api_to_influxdb(&server.url(), keys))
}
