//! The OpenTSDB port as its senders use it: telnet and HTTP, tidy and untidy, collectors that
//! never read an answer among them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::Duration;

use common::{Case, FakeHttp, Reply, eventually, eventually_within, gzip, read_to_end};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn put_silent_client_loses_answers_and_no_points() {
    let case = Case::start("").await;
    let mut stream = case.connect("tsdb").await;
    let bad = "put bad.value 1700000000 abc h=x\n".repeat(1000);
    for _ in 0..200 {
        stream.write_all(bad.as_bytes()).await.unwrap();
    }
    stream.write_all(b"put good 1700000000 1 h=x\n").await.unwrap();
    let ledger = case.books("tsdb", 1, json!({ "invalid_value": 200_000 })).await;
    assert_eq!(case.raw(), ["good{h=x} sample 1"]);
    let dropped = &ledger["listeners"]["tsdb"]["noticed"]["reply_dropped"];
    assert!(dropped.as_u64().is_some_and(|dropped| dropped > 0), "{ledger}");
    let told = case.gateway.log().matches("\"message\":\"refused\"").count();
    assert!((1..=10).contains(&told), "{told} lines about one kind of bad put");
    // The client is connected all the while.
    stream.write_all(b"put better 1700000000 2 h=x\n").await.unwrap();
    case.books("tsdb", 2, json!({ "invalid_value": 200_000 })).await;
}

#[tokio::test]
async fn put_whitespace_of_every_sort_is_taken() {
    let case = Case::start("").await;
    let lines = concat!(
        "put a.b 1700000000 1\n",
        "put a.b 1700000000 1 \n",
        "put  c.d\t1700000000   -1.5e2   h=x   r=eu \r\n",
        "put tc.lines 1700000000 5  host=x\n"
    );
    assert_eq!(case.exchange("tsdb", lines).await, "");
    case.books("tsdb", 4, json!({})).await;
    assert_eq!(
        case.raw(),
        [
            "a.b sample 1",
            "a.b sample 1",
            "c.d{h=x,r=eu} sample -150.0",
            "tc.lines{host=x} sample 5"
        ]
    );
}

#[tokio::test]
async fn put_whitespace_without_tags_is_refused_by_a_strict_listener() {
    let case = Case::start("[listeners.strict]\nprotocol = \"opentsdb\"\nstrict = true\nbind = [\"tcp://127.0.0.1:0\"]\n").await;
    let answer = case.exchange("strict", "put a.b 1700000000 1\nput a.b 1700000000 1 h=x\n").await;
    assert!(answer.starts_with("put: ") && answer.lines().count() == 1, "{answer}");
    case.books("strict", 1, json!({ "missing_tags": 1 })).await;
}

#[tokio::test]
async fn put_dup_tag_identical_is_one_and_conflicting_is_refused() {
    let case = Case::start("").await;
    let lines = concat!(
        "put m 1700000000 42 foo=bar foo=bar\n",
        "put m 1700000000 43 foo=bar foo=qux\n",
        "put m 1700000000 44 foo=\n",
        "put m 1700000000 45 =v\n",
        "put m 1700000000 46 foo\n",
        "put m 1700000000 47 foo=baz\n"
    );
    let answer = case.exchange("tsdb", lines).await;
    let answers: Vec<_> = answer.lines().collect();
    assert_eq!(answers.len(), 4, "{answer}");
    for (answer, problem) in answers.iter().zip(["foo", "foo", "=v", "foo"]) {
        assert!(answer.starts_with("put: ") && answer.contains(problem), "{answer}");
    }
    case.books("tsdb", 2, json!({ "duplicate_tag": 1, "invalid_tag": 3 })).await;
    assert_eq!(case.raw(), ["m{foo=bar} sample 42", "m{foo=baz} sample 47"]);
}

#[tokio::test]
async fn telnet_negotiation_is_skipped_and_never_echoed_or_logged() {
    let case = Case::start("").await;
    let mut bytes = b"\xff\xfb\x18\xff\xfd\x03put a 1700000000 1 h=x\r\n".to_vec();
    bytes.extend_from_slice(b"\xff\xfb\x18bogus\r\n");
    let answer = case.exchange("tsdb", bytes).await;
    assert!(answer.contains("bogus") && answer.is_ascii(), "{answer:?}");
    case.books("tsdb", 1, json!({ "unknown_command": 1 })).await;
    assert_eq!(case.raw(), ["a{h=x} sample 1"]);
    assert!(case.gateway.log().is_ascii(), "{}", case.gateway.log());
}

#[tokio::test]
async fn api_put_partial_keeps_the_good_and_names_the_bad() {
    let case = Case::start("").await;
    let point = |metric: &str, value: Value| json!({ "metric": metric, "timestamp": 1_700_000_000, "value": value, "tags": { "h": "x" } });
    let some = json!([point("a", json!(1)), point("b", json!("zz")), point("c", json!(3))]);
    let all = json!([point("a", json!(1)), point("c", json!(3))]);

    for (nth, listener) in ["tsdb", "api"].into_iter().enumerate() {
        let details = put(&case, listener, "?details", &some).await;
        assert_eq!(details.status, 400);
        let body = details.json();
        assert_eq!((&body["success"], &body["failed"]), (&json!(2), &json!(1)));
        assert_eq!(body["errors"].as_array().unwrap().len(), 1);
        assert_eq!(body["errors"][0]["datapoint"], some[1]);
        assert!(body["errors"][0]["error"].as_str().is_some_and(|text| !text.is_empty()));

        let summary = put(&case, listener, "?summary", &some).await;
        assert_eq!((summary.status, summary.json()), (400, json!({ "success": 2, "failed": 1 })));

        let quiet = put(&case, listener, "", &some).await;
        assert_eq!(quiet.status, 400);
        assert!(quiet.json()["error"]["message"].as_str().is_some_and(|text| !text.is_empty()));

        let good = put(&case, listener, "", &all).await;
        assert_eq!((good.status, good.body.as_str()), (204, ""));
        let counted = put(&case, listener, "?summary", &all).await;
        assert_eq!((counted.status, counted.json()), (200, json!({ "success": 2, "failed": 0 })));

        case.books(listener, 10, json!({ "invalid_value": 3 })).await;
        let stored = case.raw().split_off(10 * nth);
        assert_eq!(stored, ["a{h=x} sample 1", "c{h=x} sample 3"].repeat(5));
    }
}

#[tokio::test]
async fn api_put_large_bodies_in_every_framing() {
    let case = Case::start("").await;
    let body = points(160);
    assert!(body.len() > 15_000, "{}", body.len());
    let length = |body: &[u8]| format!("Content-Length: {}\r\n", body.len());

    let head = request_head(&length(&body));
    let answer = in_pieces(&case, &head, body.chunks(1024)).await;
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");

    let head = request_head("Transfer-Encoding: chunked\r\n");
    let mut chunks: Vec<_> = body.chunks(1024).map(chunk).collect();
    chunks.push(b"0\r\n\r\n".to_vec());
    let answer = in_pieces(&case, &head, chunks.iter().map(Vec::as_slice)).await;
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");

    let answer = expecting(&case, &body).await;
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");

    let packed = gzip(&body);
    let head = request_head(&format!("Content-Encoding: gzip\r\n{}", length(&packed)));
    let answer = in_pieces(&case, &head, packed.chunks(1024)).await;
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");

    case.books("tsdb", 4 * 160, json!({})).await;
    assert_eq!(case.raw().len(), 4 * 160);
}

#[tokio::test]
async fn api_put_large_over_the_limit_is_413_and_nothing_is_stored() {
    let case = Case::start("[listeners.tsdb.limits]\nbody = \"10KiB\"\n").await;
    let body = points(160);
    for (nth, framing) in
        [format!("Content-Length: {}\r\n", body.len()), "Transfer-Encoding: chunked\r\n".to_owned()]
            .iter()
            .enumerate()
    {
        let sent = if framing.starts_with('C') { body.clone() } else { chunked(&body) };
        let answer = in_pieces(&case, &request_head(framing), sent.chunks(1024)).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(answer.contains("10240 bytes"), "{answer}");
        case.books("tsdb", 0, json!({ "body_too_large": nth + 1 })).await;
    }
    let small = put(&case, "tsdb", "", &serde_json::from_slice(&points(1)).unwrap()).await;
    assert_eq!(small.status, 204);
    case.books("tsdb", 1, json!({ "body_too_large": 2 })).await;
}

#[tokio::test]
async fn one_port_both_speaks_telnet_and_http() {
    let case = Case::start("").await;
    let body = r#"{"metric":"a","timestamp":1700000000,"value":1,"tags":{"h":"x"}}"#;
    let request = format!(
        "POST /api/put HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    // The first byte alone, too: it is all that there may be to tell the two apart.
    for first in [1, request.len()] {
        let mut stream = case.connect("tsdb").await;
        stream.write_all(&request.as_bytes()[..first]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        stream.write_all(&request.as_bytes()[first..]).await.unwrap();
        let answer = read_to_end(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    }
    assert_eq!(case.exchange("tsdb", "put b 1700000000 2 h=x\n").await, "");
    case.books("tsdb", 3, json!({})).await;
    assert_eq!(case.raw(), ["a{h=x} sample 1", "a{h=x} sample 1", "b{h=x} sample 2"]);
}

#[tokio::test]
async fn put_ms_means_the_same_over_telnet_and_http() {
    let influx = FakeHttp::start([]).await;
    let case = Case::start(&format!(
        "[backends.influx]\nkind = \"influxdb\"\nurl = \"{}\"\ndatabase = \"d\"\nflush = \"1s\"\n\
         [[routes]]\nname = \"influx\"\nto = [\"influx\"]\n",
        influx.url()
    ))
    .await;
    let times = ["1559746555444", "1559746555", "1559746555.444"];
    let line = |(nth, time): (usize, &&str)| format!("put t{nth} {time} 7 s=telnet\n");
    let lines: String = times.iter().enumerate().map(line).collect();
    assert_eq!(case.exchange("tsdb", lines).await, "");
    let item = |(nth, time): (usize, &&str)| {
        format!(r#"{{"metric":"t{nth}","timestamp":{time},"value":7,"tags":{{"s":"http"}}}}"#)
    };
    let items: Vec<_> = times.iter().enumerate().map(item).collect();
    let body = format!("[{}]", items.join(","));
    assert_eq!(case.gateway.http("tsdb").post("/api/put", body).await.status, 204);
    case.books("tsdb", 6, json!({})).await;
    let bodies = influx.received().into_iter().map(|request| request.body);
    let written: String = bodies.collect();
    for way in ["telnet", "http"] {
        for (nth, nanos) in
            ["1559746555444000000", "1559746555000000000", "1559746555444000000"].iter().enumerate()
        {
            let line = format!("t{nth},s={way} value=7 {nanos}\n");
            assert!(written.contains(&line), "{line} in {written}");
        }
    }
}

#[tokio::test]
async fn ts_edge_is_refused_and_never_taken_for_another_time() {
    let case =
        Case::start("[listeners.tsdb.time_window]\npast = \"3650d\"\nfuture = \"1d\"\n").await;
    let outside = ["1", "4294967296", "9999999999"];
    let malformed =
        ["0", "-5", "10000000000", "99999999999999", "1700000000..5", "1700000000.", "abc", "1e9"];
    let all = || outside.iter().chain(&malformed);
    let lines: String = all().map(|time| format!("put t {time} 1 h=x\n")).collect();
    let answer = case.exchange("tsdb", lines).await;
    assert_eq!(answer.lines().count(), 11, "{answer}");
    let once = json!({ "ts_out_of_range": 3, "invalid_timestamp": 8 });
    case.books("tsdb", 0, once).await;

    // What JSON has no number for is quoted, as some senders quote every number.
    let item = |time: &&str| {
        let is_number = serde_json::from_str::<Value>(time).is_ok();
        let time = if is_number { (*time).to_owned() } else { format!("\"{time}\"") };
        format!(r#"{{"metric":"t","timestamp":{time},"value":1,"tags":{{"h":"x"}}}}"#)
    };
    let items: Vec<_> = all().map(item).collect();
    let body = format!("[{}]", items.join(","));
    let answer = case.gateway.http("tsdb").post("/api/put?summary", body).await;
    assert_eq!((answer.status, answer.json()), (400, json!({ "success": 0, "failed": 11 })));
    case.books("tsdb", 0, json!({ "ts_out_of_range": 6, "invalid_timestamp": 16 })).await;

    // Within the window, both ways of writing it are taken as they are.
    assert_eq!(case.exchange("tsdb", "put t 1700000000 1 h=x\n").await, "");
    case.books("tsdb", 1, json!({ "ts_out_of_range": 6, "invalid_timestamp": 16 })).await;
    assert_eq!(case.timed(), ["t{h=x} 1 1700000000000000000"]);
}

#[tokio::test]
async fn ts_edge_far_times_are_kept_where_no_window_is_set() {
    let case = Case::start("").await;
    let lines = "put t 1 1 h=x\nput t 4294967296 2 h=x\nput t 9999999999 3 h=x\n";
    let answer = case.exchange("tsdb", lines).await;
    // The last is after the year 2262, where nanoseconds end.
    assert!(answer.starts_with("put: ") && answer.lines().count() == 1, "{answer}");
    case.books("tsdb", 2, json!({ "ts_out_of_range": 1 })).await;
    assert_eq!(case.timed(), ["t{h=x} 1 1000000000", "t{h=x} 2 4294967296000000000"]);
}

#[tokio::test]
async fn tcollector_asks_for_the_version_and_never_reads_again() {
    let case = Case::start("").await;
    let mut stream = case.connect("tsdb").await;
    // It checks the connection like this, and takes whatever comes for a sign of life.
    stream.write_all(b"version\n").await.unwrap();
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer).await.unwrap();
    assert!(String::from_utf8_lossy(&answer[..length]).contains("pointsman"));
    for round in 0..20 {
        let puts: String = (0..50)
            .map(|nth| format!("put tc.{nth} 17000000{round:02} {nth}  host=web01 type=x\n"))
            .collect();
        stream.write_all(format!("version\n{puts}").as_bytes()).await.unwrap();
    }
    let ledger = case.books("tsdb", 1000, json!({})).await;
    assert_eq!(ledger["listeners"]["tsdb"]["connections"], 1);
    assert!(case.raw().contains(&"tc.49{host=web01,type=x} sample 49".to_owned()));
}

#[tokio::test]
async fn scollector_posts_gzip_and_wants_204_to_the_digit() {
    let case = Case::start("").await;
    let tsdb = case.gateway.http("tsdb");
    let point = json!([{ "metric": "os.cpu", "timestamp": 1_700_000_000, "value": 1.5,
        "tags": { "host": "web01" } }]);
    let gzipped = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")];
    let body = gzip(point.to_string().as_bytes());
    let answer = tsdb.send(Method::POST, "/api/put", &gzipped, body).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));

    let metadata = r#"[{"Metric":"os.cpu","Tags":{},"Name":"desc","Value":"CPU"}]"#;
    let plain = [("Content-Type", "application/json")];
    for (headers, body) in
        [(&plain[..], metadata.as_bytes().to_vec()), (&gzipped[..], gzip(metadata.as_bytes()))]
    {
        let answer = tsdb.send(Method::POST, "/api/metadata/put", headers, body).await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    }
    case.books("tsdb", 1, json!({})).await;
    assert_eq!(case.raw(), ["os.cpu{host=web01} sample 1.5"]);
}

#[tokio::test]
async fn diediedie_is_answered_and_stops_nothing() {
    let case = Case::start("").await;
    let answer = case.exchange("tsdb", "diediedie\nput a 1700000000 1 h=x\n").await;
    assert!(answer.starts_with("diediedie: "), "{answer}");
    case.books("tsdb", 1, json!({ "refused_command": 1 })).await;
    assert_eq!(case.gateway.http("tsdb").get("/diediedie").await.status, 404);
    eventually("others are served", async || {
        case.exchange("tsdb", "version\n").await.contains("pointsman")
    })
    .await;
    case.books("tsdb", 1, json!({ "refused_command": 1, "not_found": 1 })).await;
}

async fn put(case: &Case, listener: &str, query: &str, body: &Value) -> Reply {
    let path = format!("/api/put{query}");
    case.gateway.http(listener).post(&path, body.to_string()).await
}

/// A body of so many points.
fn points(count: usize) -> Vec<u8> {
    let point = |nth: usize| {
        json!({
            "metric": format!("some.metric.of.usual.length.{nth}"),
            "timestamp": 1_700_000_000 + nth,
            "value": nth,
            "tags": { "host": "web01.example.org" },
        })
    };
    Value::from((0..count).map(point).collect::<Vec<_>>()).to_string().into_bytes()
}

fn request_head(headers: &str) -> String {
    format!(
        "POST /api/put HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/json\r\n{headers}\r\n"
    )
}

/// Sends each piece as a segment of its own; a peer that has heard enough may end it early.
async fn in_pieces<'a>(case: &Case, head: &str, pieces: impl Iterator<Item = &'a [u8]>) -> String {
    let mut stream = case.connect("tsdb").await;
    stream.write_all(head.as_bytes()).await.unwrap();
    for piece in pieces {
        if stream.write_all(piece).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    read_to_end(&mut stream).await
}

/// Waits to be asked for the body; returns the answer after that.
async fn expecting(case: &Case, body: &[u8]) -> String {
    let mut stream = case.connect("tsdb").await;
    let head = request_head(&format!("Expect: 100-continue\r\nContent-Length: {}\r\n", body.len()));
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut asked = Vec::new();
    eventually_within(Duration::from_secs(10), "the body is asked for", async || {
        asked.push(stream.read_u8().await.unwrap());
        asked.ends_with(b"\r\n\r\n")
    })
    .await;
    assert!(asked.starts_with(b"HTTP/1.1 100 "), "{}", String::from_utf8_lossy(&asked));
    stream.write_all(body).await.unwrap();
    read_to_end(&mut stream).await
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn chunked(body: &[u8]) -> Vec<u8> {
    body.chunks(1024).flat_map(chunk).chain(*b"0\r\n\r\n").collect()
}
