//! Every limit of a listener holds, is counted with its reason, and leaves the others alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::Duration;

use common::{Case, eventually, read_to_end};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[tokio::test]
async fn a_line_too_long_is_refused_alone() {
    let case = Case::start(&limits(r#"line = "100B""#)).await;
    let long = "x".repeat(100);
    case.datagrams([format!("a:1|c\n{long}:1|c\nb:1|c\n"), "c:1|c".to_owned()]).await;
    case.books("statsd", 3, json!({ "line_too_long": 1 })).await;
    case.exchange("statsd", format!("d:1|c\n{long}:1|c\ne:1|c\n")).await;
    case.books("statsd", 5, json!({ "line_too_long": 2 })).await;
    let at = 1_700_000_000;
    let puts = format!("put f {at} 1\nput {long} {at} 1\nput g {at} 1\n");
    let answer = case.exchange("tsdb", puts).await;
    assert!(answer.starts_with("put: ") && answer.lines().count() == 1, "{answer}");
    case.books("tsdb", 2, json!({ "line_too_long": 1 })).await;
    let names: Vec<_> = case.raw_sorted().iter().map(|point| point[..1].to_owned()).collect();
    assert_eq!(names.concat(), "abcdefg");
}

#[tokio::test]
async fn a_body_too_large_is_refused_whole() {
    let case = Case::start(&limits(r#"body = "1KiB""#)).await;
    for (listener, path) in [("api", "/v1/points"), ("api", "/api/put"), ("tsdb", "/api/put")] {
        let before = case.gateway.ledger().await["listeners"][listener].take();
        let http = case.gateway.http(listener);
        let point = |metric| json!([{ "metric": metric, "timestamp": 1_700_000_000, "value": 1 }]);
        let blanks = " ".repeat(1024);
        let (small, large) = tokio::join!(
            http.post(path, point("small").to_string()),
            http.post(path, format!("{}{blanks}", point("large")))
        );
        assert_eq!((small.status, large.status), (204, 413));
        assert!(large.json()["error"]["message"].as_str().unwrap().contains("1024 bytes"));
        let count = |book: &Value| book["rejected"]["body_too_large"].as_u64().unwrap_or(0) + 1;
        let received = before["received"].as_u64().unwrap() + 1;
        case.books(listener, received, json!({ "body_too_large": count(&before) })).await;
    }
    assert_eq!(case.raw(), ["small sample 1"; 3]);
}

#[tokio::test]
async fn a_connection_too_many_is_refused_and_the_others_go_on() {
    let case = Case::start(&limits("connections = 2")).await;
    for (listener, received) in [("statsd", 2), ("tsdb", 2), ("api", 2)] {
        let mut held = [case.connect(listener).await, case.connect(listener).await];
        connections(&case, listener, 2).await;
        let mut third = case.connect(listener).await;
        assert_eq!(read_to_end(&mut third).await, "", "{listener}");
        say(&mut held[0], listener, "a").await;
        case.books(listener, 1, json!({ "connection_limit": 1 })).await;

        // A place that is free again is taken by the next.
        drop(held);
        connections(&case, listener, 0).await;
        say(&mut case.connect(listener).await, listener, "b").await;
        case.books(listener, received, json!({ "connection_limit": 1 })).await;
    }
}

#[tokio::test]
async fn silence_ends_a_connection_and_no_other() {
    let case = Case::start(&limits(r#"idle = "1s""#)).await;
    for (listener, begun) in [("statsd", "half:1"), ("tsdb", "put half 17"), ("api", "")] {
        let mut busy = case.connect(listener).await;
        let (mut silent, mut begins) = (case.connect(listener).await, case.connect(listener).await);
        begins.write_all(begun.as_bytes()).await.unwrap();
        let mut said = 0;
        let closed = async {
            tokio::join!(read_to_end(&mut silent), read_to_end(&mut begins));
        };
        let mut closed = std::pin::pin!(closed);
        while timeout(Duration::from_millis(100), &mut closed).await.is_err() {
            say(&mut busy, listener, "a").await;
            said += 1;
        }
        assert!(said > 5, "{listener}: closed long before its time");
        connections(&case, listener, 1).await;
        say(&mut busy, listener, "a").await;
        drop(busy);
        // HTTP clients keep connections for later and expect nothing else.
        let (rejected, noticed) = match listener {
            "api" => (json!({}), json!({ "idle_timeout": 2 })),
            _ => (json!({ "idle_timeout": 2, "incomplete_line": 1 }), json!({})),
        };
        let ledger = case.books(listener, said + 1, rejected).await;
        assert_eq!(ledger["listeners"][listener]["noticed"], noticed);
    }
}

#[tokio::test]
async fn a_head_too_slow_ends_its_connection_and_no_other() {
    let case = Case::start(&limits(r#"header = "300ms""#)).await;
    for listener in ["api", "tsdb"] {
        let mut slow = case.connect(listener).await;
        slow.write_all(b"POST /api/put HTTP/1.1\r\nHost: ").await.unwrap();
        let answered = case.gateway.http(listener).post("/api/put", POINT).await;
        assert_eq!(answered.status, 204);
        let answer = read_to_end(&mut slow).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
        case.books(listener, 1, json!({ "header_timeout": 1 })).await;
    }
}

#[tokio::test]
async fn a_body_too_slow_is_answered_and_costs_no_other() {
    let case = Case::start(&limits(r#"request = "300ms""#)).await;
    for (listener, path) in [("api", "/v1/points"), ("tsdb", "/api/put")] {
        let mut slow = case.connect(listener).await;
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n[");
        slow.write_all(head.as_bytes()).await.unwrap();
        let answered = case.gateway.http(listener).post("/api/put", POINT).await;
        assert_eq!(answered.status, 204);
        let answer = read_to_end(&mut slow).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        case.books(listener, 1, json!({ "request_timeout": 1 })).await;
    }
}

#[tokio::test]
async fn a_tag_too_many_refuses_its_point_and_no_other() {
    let case = Case::start(&limits("tags = 2")).await;
    case.datagrams(["a:1|c|#x:1,y:2\nb:1|c|#x:1,y:2,z:3\nc:1|c\n"]).await;
    case.books("statsd", 2, json!({ "too_many_tags": 1 })).await;

    let at = 1_700_000_000;
    let puts = format!("put a {at} 1 x=1 y=2\nput b {at} 1 x=1 y=2 z=3\nput c {at} 1\n");
    assert!(case.exchange("tsdb", puts).await.starts_with("put: "));
    let tags = [json!({ "x": "1", "y": "2" }), json!({ "x": "1", "y": "2", "z": "3" }), json!({})];
    let item = |(name, tags): (&str, &Value)| json!({ "metric": name, "timestamp": at, "value": 1, "tags": tags });
    let items = Value::from(["a", "b", "c"].into_iter().zip(&tags).map(item).collect::<Vec<_>>());
    let tsdb = case.gateway.http("tsdb");
    assert_eq!(tsdb.post("/api/put", items.to_string()).await.status, 400);
    case.books("tsdb", 4, json!({ "too_many_tags": 2 })).await;

    let api = case.gateway.http("api");
    for path in ["/api/put", "/v1/points"] {
        assert_eq!(api.post(path, items.to_string()).await.status, 400);
    }
    for (query, status) in [("tag.x=1&tag.y=2", 204), ("tag.x=1&tag.y=2&tag.z=3", 400)] {
        let answer = api.post(&format!("/v1/point/d?value=1&{query}"), "").await;
        assert_eq!(answer.status, status);
    }
    case.books("api", 5, json!({ "too_many_tags": 3 })).await;
    assert!(case.raw().iter().all(|point| !point.starts_with('b')), "{:?}", case.raw());
}

/// The same limit for every listener.
fn limits(limit: &str) -> String {
    ["statsd", "tsdb", "api"].map(|name| format!("[listeners.{name}.limits]\n{limit}\n")).concat()
}

/// Sends one point over a connection that is kept; of HTTP, the answer is awaited.
async fn say(stream: &mut TcpStream, listener: &str, name: &str) {
    let text = match listener {
        "statsd" => format!("{name}:1|c\n"),
        "tsdb" => format!("put {name} 1700000000 1\n"),
        _ => format!("POST /v1/point/{name}?value=1 HTTP/1.1\r\nHost: x\r\n\r\n"),
    };
    stream.write_all(text.as_bytes()).await.unwrap();
    if listener == "api" {
        let mut answer = [0; 1024];
        let length = stream.read(&mut answer).await.unwrap();
        assert!(answer[..length].starts_with(b"HTTP/1.1 204 "));
    }
}

async fn connections(case: &Case, listener: &str, count: u64) {
    eventually("so many connections are open", async || {
        case.gateway.ledger().await["listeners"][listener]["connections"] == count
    })
    .await;
}

const POINT: &str = r#"{"metric":"a","timestamp":1700000000,"value":1}"#;
