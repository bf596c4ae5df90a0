//! A real InfluxDB 1.6 keeps what we send it: any point that the encoder writes is read back as it
//! was, and the settings of the backend (database, user, retention policy) do what they say.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use common::{Gateway, Influxd, Metrics, api_to_influxdb, eventually, post};
use influxdb::{Client, ReadQuery};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use protocols::influxdb::{
    Encoder, EncoderOptions, Integers, ReadOptions, TIME_MAX, TIME_MIN, parse_line,
};
use protocols::{Batch, Encode, FieldValue, Measure, Number, UnixNanos};
use serde_json::{Map, Value, json};

/// Whatever the names, tags, columns and times are, the server holds the point that our own
/// strict reader finds in the line. (That this is the point that was sent, made fit, is the
/// property of `protocols/tests/influxdb_round_trip.rs`.)
#[test]
fn what_the_encoder_writes_is_read_back_from_a_server() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Influxd::start());
    let config = Config {
        cases: CASES,
        max_shrink_iters: 100,
        failure_persistence: None,
        ..Config::default()
    };
    let case = AtomicU32::new(0);
    TestRunner::new(config)
        .run(&(vec(row(), POINTS), any::<bool>()), |(rows, keep)| {
            let case = case.fetch_add(1, Relaxed);
            let lines: Vec<_> = rows.iter().filter_map(|row| encode(row, case, keep)).collect();
            runtime.block_on(check_read_back(&server, &lines))
        })
        .unwrap();
}

#[tokio::test]
async fn the_client_library_pings_and_reads() {
    let server = Influxd::start().await;
    let (_, version) = Client::new(server.url(), "").ping().await.unwrap();
    assert!(version.starts_with("1."), "{version}");
    let gateway = Gateway::start(&api_to_influxdb(&server.url(), "create_database = true")).await;
    post(&gateway, &[json!({"name": "builds", "tags": {"os": "linux"}, "time": 1, "n": 2.5})])
        .await;
    eventually("it is delivered", async || delivered(&gateway).await == 1.0).await;

    let client = Client::new(server.url(), "d");
    let answer = client.query(ReadQuery::new("SELECT n, os FROM builds")).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        answer["results"][0]["series"][0]["values"],
        json!([["1970-01-01T00:00:01Z", 2.5, "linux"]])
    );
}

#[tokio::test]
async fn a_column_of_two_types_in_one_body_costs_one_point_of_5000() {
    let server = Influxd::start().await;
    // That is what makes it a case: such a body is refused, and nothing of it is stored.
    server.create_database("d").await;
    let answer = server.write("d", "probe n=1 1\nprobe n=\"one\" 2").await;
    assert_eq!(answer.status, 400);
    assert!(!answer.body.contains("partial write"), "{answer:?}");
    assert_eq!(server.rows("d", "SELECT * FROM probe").await.len(), 0);

    let gateway = Gateway::start(&api_to_influxdb(&server.url(), "")).await;
    let value = |n| if n == 3210 { json!("text") } else { json!(n) };
    let points = (0..5000).map(|n| json!({"name": "m", "time": 1_700_000_000 + n, "n": value(n)}));
    post(&gateway, &points.collect::<Vec<_>>()).await;
    eventually("the others are delivered", async || delivered(&gateway).await == 4999.0).await;

    let rows = server.rows("d", "SELECT n FROM m").await;
    let kept: Vec<_> = rows.iter().map(|row| row["n"].as_u64().unwrap()).collect();
    assert_eq!(kept, (0..5000).filter(|n| *n != 3210).collect::<Vec<_>>());
    assert_eq!(refused(&gateway.metrics().await), 1.0);
    assert_eq!(gateway.ledger().await["backends"]["influx"]["balanced"], json!(true));
}

#[tokio::test]
async fn a_guarded_server_takes_points_of_the_right_user_only() {
    let server = Influxd::start_guarded().await;
    let admin = Client::new(server.url(), "").with_auth("root", "root's own");
    let statement = "CREATE USER root WITH PASSWORD 'root''s own' WITH ALL PRIVILEGES";
    // 1.x escapes a quote by a backslash.
    let statement = statement.replace("''", "\\'");
    Client::new(server.url(), "").query(ReadQuery::new(statement)).await.unwrap();

    let keys = |password: &str| {
        format!(
            "create_database = true\nusername = \"root\"\npassword = \"{password}\"\n\
                 retry = {{ first = \"50ms\", max = \"200ms\" }}"
        )
    };
    let mut gateway = Gateway::start(&api_to_influxdb(&server.url(), &keys("wrong"))).await;
    post(&gateway, &[json!({"name": "builds", "time": 1, "n": 1})]).await;
    eventually("it is tried", async || {
        gateway.metrics().await.sum("pointsman_delivery_retries_total", &[]) >= 2.0
    })
    .await;
    assert_eq!(delivered(&gateway).await, 0.0);

    gateway.reload(&api_to_influxdb(&server.url(), &keys("root's own"))).await.expect_success();
    eventually("it was held until then", async || delivered(&gateway).await == 1.0).await;
    let query = ReadQuery::new("SELECT n FROM d.autogen.builds");
    assert!(admin.query(query).await.unwrap().contains("[\"1970-01-01T00:00:01Z\",1]"));
    assert!(!gateway.log().contains("root's own"), "the log tells no password");
}

#[tokio::test]
async fn points_go_to_the_retention_policy_and_not_beyond_it() {
    let server = Influxd::start().await;
    server.create_database("d").await;
    let policy = "CREATE RETENTION POLICY \"one day\" ON d DURATION 1d REPLICATION 1";
    server.query("", policy).await;
    let gateway =
        Gateway::start(&api_to_influxdb(&server.url(), "retention_policy = \"one day\"")).await;
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let points =
        [now, 1_000_000_000, now - 1].map(|time| json!({"name": "m", "time": time, "n": 1}));
    post(&gateway, &points).await;
    eventually("the young ones are delivered", async || delivered(&gateway).await == 2.0).await;

    assert_eq!(server.rows("d", "SELECT n FROM \"one day\".m").await.len(), 2);
    assert_eq!(server.rows("d", "SELECT n FROM autogen.m").await.len(), 0);
    let metrics = gateway.metrics().await;
    assert_eq!(refused(&metrics), 1.0);
    assert_eq!(metrics.sum("pointsman_delivery_retries_total", &[]), 0.0);
}

/// A point as plain data.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    /// Whether what makes the name its own stands before it or behind it.
    named_before: bool,
    tags: BTreeMap<String, Option<String>>,
    columns: BTreeMap<String, Column>,
    time: i64,
}

#[derive(Clone, Debug)]
enum Column {
    Number(Number),
    Bool(bool),
    Text(String),
}

/// One line for a row, under a measurement of its own; none for a row of which nothing can be said.
fn encode(row: &Row, case: u32, keep: bool) -> Option<String> {
    static ROW: AtomicU32 = AtomicU32::new(0);
    let own = format!("{case}.{}", ROW.fetch_add(1, Relaxed));
    let name = match row.named_before {
        true => format!("{own} {}", row.name),
        false => format!("{} {own}", row.name),
    };
    let mut batch = Batch::new();
    let mut writer = batch.begin(&name);
    for (key, value) in &row.tags {
        writer.tag(key, value.as_deref());
    }
    for (key, value) in &row.columns {
        writer.field(
            key,
            match value {
                Column::Number(number) => FieldValue::Number(*number),
                Column::Bool(truth) => FieldValue::Bool(*truth),
                Column::Text(text) => FieldValue::Text(text),
            },
        );
    }
    writer.finish_fields(Some(UnixNanos(row.time)));
    drop(writer);
    let integers = if keep { Integers::Keep } else { Integers::Float };
    let mut line = Vec::new();
    let options = EncoderOptions { integers, unsigned: false };
    Encoder::new(options).encode(&batch.point(0).unwrap(), &mut line).ok()?;
    Some(String::from_utf8(line).unwrap())
}

async fn check_read_back(server: &Influxd, lines: &[String]) -> Result<(), TestCaseError> {
    server.create_database("d").await;
    let reply = server.write("d", &lines.concat()).await;
    prop_assert_eq!(reply.status, 204, "{:?}", reply);
    let mut batch = Batch::new();
    for line in lines {
        let read =
            parse_line(line.trim_end_matches('\n').as_bytes(), &ReadOptions::default(), &mut batch);
        prop_assert_eq!(read, Ok(()), "{:?}", line);
    }
    // One measurement a statement, for a server makes floats of integers where one answer has both.
    let names: Vec<_> = batch.iter().map(|point| quoted(point.name)).collect();
    let select = names.iter().map(|name| format!("SELECT *::field FROM {name} GROUP BY *;"));
    let types = names.iter().map(|name| format!("SHOW FIELD KEYS FROM {name};"));
    let found = server.query("d", &select.collect::<String>()).await;
    let types = server.query("d", &types.collect::<String>()).await;
    server.query("", "DROP DATABASE d").await;
    for (at, (point, line)) in batch.iter().zip(lines).enumerate() {
        let series = &found["results"][at]["series"];
        prop_assert_eq!(
            series.as_array().map(Vec::len),
            Some(1),
            "{:?}: {}",
            line,
            found["results"][at]
        );
        prop_assert_eq!(&series[0]["name"], &json!(point.name));
        let tags: Map<_, _> =
            point.tags.iter().map(|tag| (tag.key.to_owned(), json!(tag.value))).collect();
        let tags_found = series[0].get("tags").cloned().unwrap_or_else(|| json!({}));
        prop_assert_eq!(tags_found, Value::from(tags), "{:?}", line);
        let Measure::Fields(fields) = point.measure else { panic!("{point:?}") };
        let mut expected: BTreeMap<_, _> =
            fields.iter().map(|(key, value)| (key.to_owned(), typed(value))).collect();
        expected
            .insert("time".to_owned(), ("time".to_owned(), json!(point.time.map(|time| time.0))));
        let read = read(&series[0], &types["results"][at]["series"][0]["values"]);
        prop_assert_eq!(read, expected, "{:?}", line);
    }
    Ok(())
}

/// The columns of a series of one row: name, type, value.
fn read(series: &Value, types: &Value) -> BTreeMap<String, (String, Value)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut types: BTreeMap<_, _> =
        types.as_array().unwrap().iter().map(|row| (text(&row[0]), text(&row[1]))).collect();
    types.insert("time".to_owned(), "time".to_owned());
    let columns = series["columns"].as_array().unwrap().iter().map(text);
    let values = series["values"][0].as_array().unwrap().iter();
    columns
        .zip(values)
        .map(|(name, value)| {
            let kind = types.get(&name).cloned().unwrap_or_default();
            // A whole number that is a float comes without a point, digits and all.
            let value =
                if kind == "float" { float(value.as_f64().unwrap()) } else { value.clone() };
            (name, (kind, value))
        })
        .collect()
}

fn typed(value: FieldValue<'_>) -> (String, Value) {
    let (kind, value) = match value {
        FieldValue::Number(Number::F64(value)) => ("float", float(value)),
        FieldValue::Number(Number::I64(value)) => ("integer", json!(value)),
        FieldValue::Number(Number::U64(value)) => ("unsigned", json!(value)),
        FieldValue::Bool(truth) => ("boolean", json!(truth)),
        FieldValue::Text(text) => ("string", json!(text)),
    };
    (kind.to_owned(), value)
}

/// Told by its bits, so that -0 is not 0.
fn float(value: f64) -> Value {
    json!(format!("{value:e} {:016x}", value.to_bits()))
}

/// A name as InfluxQL quotes it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

fn row() -> impl Strategy<Value = Row> {
    let tags = btree_map(text(), prop::option::of(text()), 0..4);
    let columns = btree_map(text(), column(), 1..5);
    (text(), any::<bool>(), tags, columns, time()).prop_map(
        |(name, named_before, tags, columns, time)| Row { name, named_before, tags, columns, time },
    )
}

/// Text made of what the protocol cares about, and any other.
fn text() -> impl Strategy<Value = String> {
    let special = vec![
        '\\',
        ',',
        ' ',
        '=',
        '"',
        '\'',
        '\n',
        '\r',
        '\t',
        '\0',
        '\x1b',
        '\x7f',
        '\u{85}',
        '\u{2028}',
        '#',
        '/',
        '*',
        ';',
        '<',
        '&',
        'é',
        'e',
        '\u{301}',
        '漢',
        '\u{1f600}',
        '\u{feff}',
    ];
    let piece = prop_oneof![
        3 => prop::sample::select(special),
        1 => prop::char::range('a', 'c'),
        1 => any::<char>(),
    ];
    prop_oneof![
        8 => vec(piece, 1..9).prop_map(String::from_iter),
        1 => prop::sample::select(vec!["time", "time_", "host", "select"]).prop_map(str::to_owned),
    ]
}

fn column() -> impl Strategy<Value = Column> {
    let extremes = [
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        f64::EPSILON,
        5e-324,
        0.0,
        -0.0,
        0.1,
        1e21,
        1e-7,
        9_007_199_254_740_993.0,
    ];
    let float = prop_oneof![
        1 => prop::sample::select(extremes.to_vec()),
        1 => prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL,
        1 => -1e9..1e9,
    ];
    let integer = prop_oneof![
        prop::sample::select(vec![i64::MIN, i64::MAX, -1, 0, (1 << 53) + 1]),
        any::<i64>(),
    ];
    prop_oneof![
        3 => float.prop_map(|value| Column::Number(Number::F64(value))),
        2 => integer.prop_map(|value| Column::Number(Number::I64(value))),
        1 => (i64::MAX as u64 + 1..).prop_map(|value| Column::Number(Number::U64(value))),
        1 => any::<bool>().prop_map(Column::Bool),
        3 => prop_oneof![Just(String::new()), text()].prop_map(Column::Text),
    ]
}

/// From few weeks only: a server makes a directory for each.
fn time() -> impl Strategy<Value = i64> {
    let ends = [TIME_MIN, TIME_MIN + 1, -1, 0, 1, TIME_MAX - 1, TIME_MAX];
    let fortnight = 14 * 86_400 * 1_000_000_000;
    let recent = 1_700_000_000_000_000_000_i64;
    prop_oneof![prop::sample::select(ends.to_vec()), recent..recent + fortnight]
}

async fn delivered(gateway: &Gateway) -> f64 {
    gateway.metrics().await.sum("pointsman_delivered_points_total", &[])
}

fn refused(metrics: &Metrics) -> f64 {
    assert_eq!(metrics.sum("pointsman_dropped_points_total", &[]), 0.0, "it is kept");
    metrics.sum("pointsman_refused_points_total", &[("reason", "partial_write")])
}

/// Together several thousand points.
const CASES: u32 = 40;
const POINTS: usize = 100;
