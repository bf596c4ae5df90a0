//! What InfluxDB's clients ask, and what they are told.

use super::{Answer, GZIP, Rig, ask, gzip};
use serde_json::{Value, json};

fn start(more: Value) -> Rig {
    Rig::start("influxdb", "tcp://127.0.0.1:0", more)
}

fn error(answer: &Answer) -> String {
    let body = answer.json();
    assert_eq!(body["error"], body["message"]);
    body["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn both_write_paths_take_lines_and_every_unit() {
    let rig = start(json!({}));
    for (query, ticks) in [
        ("", "1491601500000000000"),
        ("db=d&rp=r&consistency=all&u=a&p=b&precision=ns", "1491601500000000000"),
        ("precision=n", "1491601500000000000"),
        ("precision=u", "1491601500000000"),
        ("org=o&bucket=b&precision=us", "1491601500000000"),
        ("precision=ms", "1491601500000"),
        ("precision=s", "1491601500"),
        ("precision=m", "24860025"),
    ] {
        for path in ["/write", "/api/v2/write"] {
            let line = format!("m,h=x value=1i {ticks}\n");
            let answer = ask(&rig, &format!("POST {path}?{query}"), "", line.as_bytes()).await;
            assert_eq!((answer.status, &*answer.body), (204, ""), "{path}?{query}");
            assert!(answer.head.contains("x-influxdb-version: 1.8"), "{}", answer.head);
        }
    }
    let zipped = gzip(b"m,h=x value=1i 413778\n");
    let token = format!("{GZIP}Authorization: Token t\r\n");
    assert_eq!(ask(&rig, "POST /write?precision=h", &token, &zipped).await.status, 204);
    assert_eq!(rig.rejected(), []);
    let mut points = rig.finish().await;
    points.sort();
    let point = |secs: i64| format!("m{{h=x}}={{\"value\": Number(I64(1))}}@{secs}");
    let others = vec![point(1_491_601_500); 16];
    assert_eq!(points, [vec![point(1_489_600_800)], others].concat());
}

#[tokio::test]
async fn bad_lines_are_told_and_counted() {
    let rig = start(json!({ "time_window": { "past": "1d" } }));
    let body = b"m v=1 1700000000000000000\nm v=1 1491601527552\nm, v=1\nm v=\"x\n";
    let answer = ask(&rig, "POST /write", "", body).await;
    assert_eq!(answer.status, 400);
    assert!(error(&answer).starts_with("partial write: line 2: unable to parse"), "{answer:?}");
    assert!(error(&answer).ends_with("dropped=3"), "{answer:?}");
    let reasons = [("invalid_tag", 1), ("ts_out_of_range", 1), ("unbalanced_quotes", 1)];
    assert_eq!(rig.rejected(), reasons);
    assert_eq!(rig.finish().await.len(), 1);
}

#[tokio::test]
async fn requests_are_refused_in_the_shape_that_clients_read() {
    let rig = start(json!({ "limits": { "body": "1KiB" } }));
    let large = vec![b' '; 1025];
    for (status, code, reason, request, headers, body) in [
        (404, "not found", "not_found", "POST /api/v3/write_lp", "", &b"m v=1"[..]),
        (405, "method not allowed", "wrong_method", "GET /write", "", b""),
        (415, "invalid", "unsupported_encoding", "POST /write", "Content-Encoding: br\r\n", b"x"),
        (413, "request too large", "body_too_large", "POST /write", "", &large),
        (413, "request too large", "body_too_large", "POST /write", GZIP, &gzip(&large)),
        (400, "invalid", "bad_encoding", "POST /api/v2/write", GZIP, b"m v=1"),
        (400, "invalid", "invalid_precision", "POST /write?precision=parsec", "", b"m v=1 1"),
        (400, "invalid", "unknown_query", "POST /query?q=DROP%20DATABASE%20x", "", b""),
        (400, "invalid", "unknown_query", "GET /query", "", b""),
    ] {
        let answer = ask(&rig, request, headers, body).await;
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{request}");
        assert!(!error(&answer).is_empty());
        let counted = rig.rejected().iter().any(|(name, _)| *name == reason);
        assert!(counted, "{reason}: {:?}", rig.rejected());
    }
    rig.set_refusing(true);
    let answer = ask(&rig, "POST /write", "", b"m v=1").await;
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("unavailable")));
    assert!(answer.head.contains("retry-after"));
    assert_eq!(rig.finish().await, Vec::<String>::new());
}

#[tokio::test]
async fn what_clients_ask_before_they_write() {
    let rig = start(json!({}));
    for (request, status) in [
        ("GET /ping", 204),
        ("HEAD /ping", 204),
        ("GET /ping?verbose=true", 200),
        ("GET /health", 200),
        ("POST /query?q=CREATE%20DATABASE%20%22x%22", 200),
        ("GET /query?q=create+database+x", 200),
    ] {
        let answer = ask(&rig, request, "", b"").await;
        assert_eq!(answer.status, status, "{request}");
        assert!(answer.head.contains("\r\nx-influxdb-version: "), "{request}: {}", answer.head);
    }
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let answer = ask(&rig, "POST /query", form, b"q=CREATE+DATABASE+%22x%22").await;
    assert_eq!(answer.json(), json!({ "results": [{ "statement_id": 0 }] }));
    assert_eq!(ask(&rig, "GET /health", "", b"").await.json()["status"], json!("pass"));
    assert_eq!(rig.rejected(), []);
}
