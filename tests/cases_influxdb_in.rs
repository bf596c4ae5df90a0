//! Line protocol in, as clients of InfluxDB send it: a bad line costs only itself and is told by
//! its number, a quote in a tag is a character, a unit of time is obeyed or refused, and a real
//! InfluxDB behind the gateway ends up with the rows that it would have had without it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{Gateway, Influxd, Reply, eventually};
use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::Method;
use serde_json::{Value, json};
use std::io::Write as _;
use tokio::process::Command;

#[tokio::test]
async fn lpin_bad_lines_cost_no_good_one_and_are_told_by_number() {
    let gateway = Gateway::start(&caught("")).await;
    let bad = [
        ("m,foo= v=1i", "invalid_tag"),
        ("m, v=1i", "invalid_tag"),
        ("m,foo v=1", "invalid_tag"),
        ("m v=", "missing_value"),
        ("m", "no_fields"),
        ("m,a=1,a=2 v=1", "duplicate_tag"),
        (r#"m s="a "b" c""#, "unbalanced_quotes"),
        ("m v=1i,v=2", "duplicate_field"),
    ];
    let body: String = bad.iter().map(|(line, _)| format!("{line}\n")).collect();
    let answer = write(&gateway, "?db=d", &format!("{body}good,h=x v=4i\n")).await;

    assert_eq!(answer.status, 400);
    let error = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("partial write: ") && error.ends_with(" dropped=8"), "{error}");
    let told: Vec<_> = error.strip_prefix("partial write: ").unwrap().lines().collect();
    assert_eq!(told.len(), bad.len());
    for (index, (line, _)) in bad.iter().enumerate() {
        let expected = format!("line {}: unable to parse '{line}': ", index + 1);
        let reason = told[index].strip_prefix(&expected);
        assert!(reason.is_some_and(|reason| reason.len() > 10), "{}", told[index]);
    }
    let reasons = json!({
        "invalid_tag": 3, "missing_value": 1, "no_fields": 1, "duplicate_tag": 1,
        "unbalanced_quotes": 1, "duplicate_field": 1,
    });
    balanced(&gateway, 1, &reasons).await;
    let [row] = &rows(&gateway)[..] else { panic!("{:?}", rows(&gateway)) };
    assert_eq!((&row["name"], &row["tags"]), (&json!("good"), &json!({ "h": "x" })));
    assert_eq!(row["fields"], json!({ "v": 4 }));
}

#[tokio::test]
async fn lpin_bad_lines_around_texts_that_span_lines_keep_their_numbers() {
    let gateway = Gateway::start(&caught("")).await;
    let body = "a s=\"one\ntwo\" 7\r\nm s=\"open\n# not \"a\" point\nb v=1 7\n\nm v=x\n";
    let answer = write(&gateway, "", body).await;
    assert_eq!(answer.status, 400);
    let error = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("line 3: unable to parse 'm s=\"open'"), "{error}");
    assert!(error.contains("line 7: unable to parse 'm v=x'"), "{error}");
    balanced(&gateway, 2, &json!({ "unbalanced_quotes": 1, "invalid_field": 1 })).await;
    let values: Vec<_> = rows(&gateway).iter().map(|row| row["fields"].clone()).collect();
    assert_eq!(values, [json!({ "s": "one\ntwo" }), json!({ "v": 1.0 })]);
}

#[tokio::test]
async fn lpin_quote_tag_joins_no_lines() {
    let gateway = Gateway::start(&caught("")).await;
    let body = "t,label=hey\\ \"ya a=1i,value=0i\nt,label=\"q\" a=2i 1700000000000000000\n";
    assert_eq!(write(&gateway, "?db=d", body).await.status, 204);
    balanced(&gateway, 2, &json!({})).await;
    let labels: Vec<_> = rows(&gateway).iter().map(|row| row["tags"]["label"].clone()).collect();
    assert_eq!(labels, ["hey \"ya", "\"q\""]);
}

#[tokio::test]
async fn precision_param_is_obeyed_or_refused() {
    let gateway = Gateway::start(&caught("")).await;
    for (query, line, status) in [
        ("?db=d&precision=ms", "test value=1i 1491601527552", 204),
        ("?precision=m", "test value=1i 24860025", 204),
        ("?precision=parsec", "test value=1i 1", 400),
        ("", "test value=1i 1491601527552", 204),
    ] {
        let answer = write(&gateway, query, line).await;
        assert_eq!(answer.status, status, "{query}: {answer:?}");
        assert_eq!(answer.body.contains("precision"), status == 400, "{answer:?}");
    }
    balanced(&gateway, 3, &json!({ "invalid_precision": 1 })).await;
    let mut times: Vec<_> =
        rows(&gateway).iter().map(|row| row["time"].as_i64().unwrap()).collect();
    times.sort_unstable();
    // The last of them said milliseconds and meant nanoseconds, as the protocol has it.
    assert_eq!(times, [1_491_601_527_552, 1_491_601_500_000_000_000, 1_491_601_527_552_000_000]);
}

#[tokio::test]
async fn precision_param_that_was_forgotten_is_caught_by_the_time_window() {
    let gateway = Gateway::start(&caught("time_window = { past = \"10000d\" }")).await;
    let answer = write(&gateway, "", "test value=1i 1491601527552\n").await;
    assert_eq!(answer.status, 400);
    let error = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("line 1: ") && error.ends_with("is the precision right?"), "{error}");
    balanced(&gateway, 0, &json!({ "ts_out_of_range": 1 })).await;
}

#[tokio::test]
async fn a_real_influxdb_has_the_rows_that_were_written_to_the_gateway() {
    let influxd = Influxd::start().await;
    influxd.create_database("direct").await;
    influxd.create_database("via").await;
    let gateway = Gateway::start(&relay(&influxd, "keep")).await;
    influxd.write("direct", LINES).await.expect_success();

    // Half of it by each API, one half compressed, both with a database of the client's own.
    let (first, second) = LINES.split_at(LINES.find("m2").unwrap());
    assert_eq!(write(&gateway, "?db=other&u=me&p=secret", first).await.status, 204);
    let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
    zipped.write_all(second.as_bytes()).unwrap();
    let headers = [("Content-Encoding", "gzip"), ("Authorization", "Token t")];
    let answer = gateway
        .http("lines")
        .send(
            Method::POST,
            "/api/v2/write?org=o&bucket=b&precision=ns",
            &headers,
            zipped.finish().unwrap(),
        )
        .await;
    assert_eq!(answer.unwrap().status, 204);

    balanced(&gateway, LINES.lines().count() as u64, &json!({})).await;
    for measurement in ["a b,c=d", "m2", "m3", "größe"] {
        let select = format!("SELECT * FROM \"{measurement}\" GROUP BY *");
        let expected = influxd.rows("direct", &select).await;
        assert!(!expected.is_empty(), "{measurement}");
        assert_eq!(influxd.rows("via", &select).await, expected, "{measurement}");
    }
    let series = influxd.query("via", "SHOW SERIES").await;
    assert_eq!(series, influxd.query("direct", "SHOW SERIES").await);
}

#[tokio::test]
async fn whole_numbers_are_floats_unless_they_are_to_be_kept() {
    let influxd = Influxd::start().await;
    influxd.create_database("via").await;
    let gateway = Gateway::start(&relay(&influxd, "float")).await;
    let body = "m v=1i 1000\nm v=1.5 2000\nm v=7u 3000\n";
    assert_eq!(write(&gateway, "", body).await.status, 204);
    balanced(&gateway, 3, &json!({})).await;
    let keys = influxd.query("via", "SHOW FIELD KEYS").await;
    assert_eq!(keys["results"][0]["series"][0]["values"], json!([["v", "float"]]));
    let values: Vec<_> = influxd.rows("via", "SELECT v FROM m").await;
    assert_eq!(values.iter().map(|row| &row["v"]).collect::<Vec<_>>(), [1.0, 1.5, 7.0]);
}

/// What an agent does that was made for InfluxDB: it looks whether there is one, creates its
/// database, and writes.
#[tokio::test]
async fn curl_finds_a_server_creates_its_database_and_writes() {
    let gateway = Gateway::start(&caught("")).await;
    let base = format!("http://{}", gateway.addr("lines", "tcp"));
    for (arguments, path, expected) in [
        (&["-sI"][..], "/ping", "HTTP/1.1 204 No Content\r\n"),
        (&["-s"], "/health", "\"status\":\"pass\""),
        (
            &["-s", "--data-urlencode", "q=CREATE DATABASE \"d\""],
            "/query",
            "{\"results\":[{\"statement_id\":0}]}",
        ),
        (
            &["-si", "--data-binary", "cpu,host=a usage=0.5\ncpu,host=b usage=0.75\n"],
            "/write?db=d",
            "HTTP/1.1 204 No Content\r\n",
        ),
        (
            &["-s", "--data-binary", "cpu,host=a usage\n", "-H", "Authorization: Token t"],
            "/api/v2/write?org=o&bucket=d",
            "\"code\":\"invalid\"",
        ),
    ] {
        let url = format!("{base}{path}");
        let curl = Command::new("curl").args(arguments).arg(&url).output().await.unwrap();
        let said = String::from_utf8(curl.stdout).unwrap();
        assert!(curl.status.success() && said.contains(expected), "{url}: {said}");
    }
    balanced(&gateway, 2, &json!({ "not_a_field": 1 })).await;
}

/// Line by line a real server of 1.x is asked what it thinks; where we differ, we say so.
#[tokio::test]
async fn lines_are_taken_and_refused_as_a_real_influxdb_does() {
    let influxd = Influxd::start().await;
    influxd.create_database("d").await;
    let gateway = Gateway::start(&caught("")).await;
    for line in TAKEN.iter().chain(REFUSED).chain(TAKEN_ONLY_HERE).chain(REFUSED_ONLY_HERE) {
        let theirs = influxd.write("d", line).await;
        let ours = write(&gateway, "", line).await;
        let here = TAKEN.contains(line) || TAKEN_ONLY_HERE.contains(line);
        let there = TAKEN.contains(line) || REFUSED_ONLY_HERE.contains(line);
        assert_eq!(ours.status, if here { 204 } else { 400 }, "{line:?} here: {ours:?}");
        assert_eq!(theirs.status, if there { 204 } else { 400 }, "{line:?} there: {theirs:?}");
    }
}

fn caught(listener_keys: &str) -> String {
    format!(
        r#"
[listeners.lines]
protocol = "influxdb"
bind = ["tcp://127.0.0.1:0"]
{listener_keys}

[admin]
bind = "127.0.0.1:0"

[backends.caught]
kind = "stdout"
flush = "50ms"

[[routes]]
name = "lines"
match = {{ protocol = "influxdb" }}
to = ["caught"]
"#
    )
}

fn relay(influxd: &Influxd, integers: &str) -> String {
    format!(
        r#"
[listeners.lines]
protocol = "influxdb"
bind = ["tcp://127.0.0.1:0"]

[admin]
bind = "127.0.0.1:0"

[backends.influx]
kind = "influxdb"
url = "{}"
database = "via"
integers = "{integers}"
flush = "50ms"

[[routes]]
name = "lines"
to = ["influx"]
"#,
        influxd.url()
    )
}

async fn write(gateway: &Gateway, query: &str, body: &str) -> Reply {
    gateway.http("lines").post(&format!("/write{query}"), body).await
}

/// The rows that were caught, in order; half a line is passed over.
fn rows(gateway: &Gateway) -> Vec<Value> {
    let stdout = gateway.stdout();
    stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until so many points have come in and were delivered, and the rest refused for these
/// reasons; then the books must balance.
async fn balanced(gateway: &Gateway, received: u64, rejected: &Value) {
    eventually("all is delivered and the books balance", async || {
        let ledger = gateway.ledger().await;
        let listener = &ledger["listeners"]["lines"];
        let settled = |book: &Value| book["balanced"] == true && book["held"]["total"] == 0;
        listener["received"] == received
            && listener["rejected"] == *rejected
            && listener["balanced"] == true
            && ledger["backends"]
                .as_object()
                .unwrap()
                .values()
                .all(|book| settled(book) && book["delivered"] == received)
    })
    .await;
}

const TAKEN: &[&str] = &[
    "",
    "\n\n # m",
    "  m v=1",
    "\tm  v=1  7 ",
    "m,a=\"x v=1",
    "m v=1.,w=.5,x=-.5,y=1e5,z=1E+5",
    "m v=007,w=-0",
    "m i=007i,j=-0i,k=-9223372036854775808i",
    "m b=T,c=false",
    "m v=1 -7",
    "m v=1 -9223372036854775806",
    "m\\,x v=1",
    "m=x v=1",
    "m v\\=x=1,v\\ x=1,v\\,x=1,v\"x=1",
    "\"m\" \"v\"=1",
    "m,_a=1 v=1",
    "m,a=b\\=c v=1",
    "m s=\"\"",
    "m s=\"\\\\\"",
    "m s=\"\\n\"",
    "m s=\"a\nb\"",
    "m s=\"a,b c=d\",v=1 7",
    "m#x v=1",
];

const REFUSED: &[&str] = &[
    "m",
    "m ",
    "m v",
    "m 123",
    "m v=",
    "m v=,w=1",
    "m v=1,",
    "m v=1,,w=2",
    "m v=1, w=2",
    "m v = 1",
    "m =1",
    ",a=b v=1",
    "m, v=1",
    "m,a v=1",
    "m,a= v=1",
    "m,=b v=1",
    "m,a=b=c v=1",
    "m,a=b, v=1",
    "m,a=b\\ v=1",
    "m,a=b\\\\ v=1",
    "m,a=1,a=1 v=1",
    "m,a=1,b=2,a=3 v=1",
    "m,a=\"b c\" v=1",
    "m v=+1",
    "m v=1e",
    "m v=-",
    "m v=.",
    "m v=1.5i",
    "m v=1i7",
    "m v=tRUE",
    "m v=NaN",
    "m v=Inf",
    "m v=0x1",
    "m v=1e400",
    "m i=9223372036854775808i",
    "m v=word",
    "m v=1\t7",
    "m v=1 +7",
    "m v=1 1.5",
    "m v=1 7 8",
    "m v=1 #c",
    "m v=1 9223372036854775807",
    "m s=\"open",
    "m s=\"a\\\"",
];

/// Line ends of Windows, unsigned integers (which are 2.x's), and the key `time`, which is
/// sent on as `time_`.
const TAKEN_ONLY_HERE: &[&str] = &["m v=1\r\n", "m u=1u", "m,time=1 v=1", "m time=1"];

/// Fields that stand twice, text with quotes in it that are not escaped, and control characters
/// in names.
const REFUSED_ONLY_HERE: &[&str] =
    &["m s=\"a\"7", "m s=\"a \"b\" c\"", "m v=1,v=1", "m v=1,v=2", "m,a=b\t v=1", "m\u{1} v=1"];

/// Every type of value, every character that is escaped, and a time before 1970. A line without
/// a time would have another in each place.
const LINES: &str = concat!(
    r#"a\ b\,c=d,k\ 1\,\==v\ "1"\,\=,z=1 f="he said \"x\\y\", ok=1",i=7i,g=7,b=true 1700000000000000001"#,
    "\n",
    r#"a\ b\,c=d,z=2 f="",i=-9223372036854775808i,g=-1.5e-7,b=F -1000"#,
    "\n",
    "m2,b=2,a=1 v=9007199254740993i,w=1e300 1700000000000000002\n",
    "m2,b=2,a=1 x=t 1700000000000000005\n",
    "m3 v=.5,w=5.  1700000000000000003\n",
    "größe,ort=Köln v=1,w=\"日本\" 1700000000000000004\n",
);
