//! What is told of trouble: enough to see it, never so much that input can fill a disk, and
//! every loss as a number.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::time::Duration;

use common::{Case, Gateway, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

#[tokio::test]
async fn log_flood_of_bad_lines_is_counted_to_the_last_and_hardly_logged() {
    let case = Case::start("").await;
    let bad: [&[u8]; 3] = [b"bad.value:abc|c\n", b"bad.type:1|q\n", b"bad.\xff\xfe:1|c\n"];
    // Three peers, and 100 bad lines with a good one after every ten in a datagram.
    let peers = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let to = case.gateway.addr("statsd", "udp");
    for nth in 0..1000 {
        let mut datagram: Vec<u8> = (0..100).flat_map(|line| bad[line % 3]).copied().collect();
        if nth % 10 == 0 {
            datagram.extend_from_slice(b"good:1|c\n");
        }
        peers[nth % 3].send_to(&datagram, to).unwrap();
        // The kernel's buffer is not what is tested here.
        if nth % 100 == 99 {
            sleep(Duration::from_millis(50)).await;
        }
    }
    let rejected =
        json!({ "invalid_value": 34_000, "unknown_kind": 33_000, "invalid_utf8": 33_000 });
    let ledger = case.books("statsd", 100, rejected).await;
    assert_eq!(ledger["listeners"]["statsd"]["kernel_dropped"], 0);
    assert_eq!(case.sum("good", "count"), 100.0);

    let refused = messages(&case, "refused");
    let mut lines = BTreeMap::<_, u32>::new();
    for line in &refused {
        *lines.entry(line["reason"].as_str().unwrap()).or_default() += 1;
        let peer = line["peer"].as_str().unwrap();
        assert!(peers.iter().any(|own| own.local_addr().unwrap().to_string() == peer), "{line}");
        assert!(line["example"].as_str().unwrap().starts_with("bad."), "{line}");
        assert!(line["suppressed"].is_u64(), "{line}");
    }
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines.values().all(|count| *count <= 10), "{lines:?}");
}

#[tokio::test]
async fn udp_drop_visible_in_numbers_and_in_the_log() {
    let config = Case::config("").replacen(
        "[listeners.statsd]\n",
        "[listeners.statsd]\nreceive_buffer = \"64KiB\"\n",
        1,
    );
    let case = Case { gateway: Gateway::start(&config).await };
    let granted = &messages(&case, "receive buffer")[0];
    assert_eq!(granted["asked"], 64 << 10, "{granted}");
    assert!(granted["given"].as_u64().is_some_and(|bytes| bytes > 0), "{granted}");

    case.gateway.daemon.freeze();
    let to = case.gateway.addr("statsd", "udp");
    let flood = tokio::task::spawn_blocking(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..SENT {
            socket.send_to(b"a:1|c", to).unwrap();
        }
    });
    flood.await.unwrap();
    case.gateway.daemon.thaw();

    let book = eventually("every datagram is received or counted as lost", async || {
        let book = case.gateway.ledger().await["listeners"]["statsd"].take();
        let received = book["received"].as_u64().unwrap();
        (received + book["kernel_dropped"].as_u64().unwrap() == SENT).then_some(book)
    })
    .await;
    assert!(book["received"].as_u64().unwrap() > 0, "{book}");
    assert!(book["kernel_dropped"].as_u64().unwrap() > SENT / 2, "{book}");
    case.books("statsd", book["received"].as_u64().unwrap(), json!({})).await;
    let metrics = case.gateway.metrics().await;
    let dropped =
        metrics.sum("pointsman_kernel_dropped_datagrams_total", &[("listener", "statsd")]);
    assert_eq!(json!(dropped), json!(book["kernel_dropped"].as_f64()));
    let log = case.gateway.log();
    assert_eq!(log.matches("set receive_buffer higher").count(), 1, "{log}");
}

/// Whoever looks at the log has not seen the answer.
#[tokio::test]
async fn log_flood_has_an_example_of_what_came_by_http() {
    let case = Case::start("").await;
    let api = case.gateway.http("api");
    let lines = [("content-type", "application/x-ndjson")];
    for (headers, body) in [(&[][..], "no JSON"), (&lines, "{\"name\":\"a\"}\n{")] {
        let reply = api.send(Method::POST, "/v1/points", headers, body.into()).await.unwrap();
        assert_eq!(reply.status, 400, "{reply:?}");
    }
    let refused = messages(&case, "refused");
    let reasons: BTreeSet<_> = refused.iter().filter_map(|line| line["reason"].as_str()).collect();
    assert_eq!(reasons, BTreeSet::from(["invalid_json", "no_fields"]));
    for line in refused {
        assert!(!line["example"].as_str().unwrap().is_empty(), "{line}");
    }
}

/// The lines of the log with this message.
fn messages(case: &Case, message: &str) -> Vec<Value> {
    let log = case.gateway.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}

const SENT: u64 = 200_000;
