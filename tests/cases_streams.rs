//! Lines on TCP connections: they may be cut anywhere, end without LF, or be too long, and every
//! one of them counts once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::time::Duration;

use common::{Case, eventually, read_to_end};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

#[tokio::test]
async fn tcp_split_at_the_places_of_the_case() {
    let case = Case::start("").await;
    let mut statsd = case.connect("statsd").await;
    in_segments(&mut statsd, &[b"aa:1|", b"c\nbb:2", b"0|c\n"]).await;
    case.books("statsd", 2, json!({})).await;
    let mut puts = case.connect("tsdb").await;
    let segments: [&[u8]; 3] = [b"put a.b 17000", b"00000 1 h=x\npu", b"t c.d 1700000000 2 h=y\n"];
    in_segments(&mut puts, &segments).await;
    case.books("tsdb", 2, json!({})).await;
    assert_eq!(case.raw()[..2], ["aa counter 1.0", "bb counter 20.0"]);
    let at = 1_700_000_000_000_000_000_u64;
    assert_eq!(case.timed()[2..], [format!("a.b{{h=x}} 1 {at}"), format!("c.d{{h=y}} 2 {at}")]);
}

#[tokio::test]
async fn tcp_split_at_every_byte_gives_the_same_points() {
    let case = Case::start("").await;
    for (listener, lines) in [
        ("statsd", "aa:1|c|#city:K\u{f6}ln\nbb:20|c\r\n"),
        ("tsdb", "put aa 1700000000 1 city=K\u{f6}ln\nput bb 1700000000 20\r\n"),
    ] {
        let lines = lines.as_bytes();
        for split in 1..lines.len() {
            let (one, other) = lines.split_at(split);
            let mut stream = case.connect(listener).await;
            in_segments(&mut stream, &[one, other]).await;
        }
        // Byte by byte.
        let mut stream = case.connect(listener).await;
        in_segments(&mut stream, &lines.chunks(1).collect::<Vec<_>>()).await;
        stream.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut stream).await, "");
        case.books(listener, 2 * lines.len() as u64, json!({})).await;
    }
    let mut kinds = case.raw_sorted();
    kinds.dedup();
    let expected = [
        "aa{city=K\u{f6}ln} counter 1.0",
        "aa{city=K\u{f6}ln} sample 1",
        "bb counter 20.0",
        "bb sample 20",
    ];
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn tcp_last_line_needs_no_lf_before_fin() {
    let case = Case::start("").await;
    case.exchange("statsd", "foo:1|c").await;
    case.books("statsd", 1, json!({})).await;
    case.exchange("statsd", "bar:1|").await;
    case.books("statsd", 1, json!({ "missing_kind": 1 })).await;

    let mut waiting = case.connect("statsd").await;
    waiting.write_all(b"baz:1|c").await.unwrap();
    let mut broken = case.connect("statsd").await;
    broken.write_all(b"qux:1|c").await.unwrap();
    arrived(&case, 27).await;
    assert_eq!(case.raw(), ["foo counter 1.0"], "a line that has no end yet is not one");
    reset(broken);
    waiting.write_all(b"\n").await.unwrap();
    case.books("statsd", 2, json!({ "missing_kind": 1, "incomplete_line": 1 })).await;
    assert_eq!(case.raw(), ["foo counter 1.0", "baz counter 1.0"]);
    drop(waiting);
    eventually("no connection is left", async || {
        case.gateway.ledger().await["listeners"]["statsd"]["connections"] == 0
    })
    .await;
    assert!(is_idle(&case).await, "it spins on a connection that has ended");
}

#[tokio::test]
async fn tcp_resync_after_an_over_long_line() {
    let case = Case::start("").await;
    let long = "x".repeat(70_000);
    case.exchange("statsd", format!("ok1:1|c\n{long}:1|c\nok2:1|c\n")).await;
    case.books("statsd", 2, json!({ "line_too_long": 1 })).await;
    assert_eq!(case.raw(), ["ok1 counter 1.0", "ok2 counter 1.0"]);

    let puts = format!("put ok1 1700000000 1\nput {long} 1700000000 1\nput ok2 1700000000 1\n");
    let answer = case.exchange("tsdb", puts).await;
    assert!(answer.starts_with("put: ") && answer.lines().count() == 1, "{answer}");
    case.books("tsdb", 2, json!({ "line_too_long": 1 })).await;
}

/// Sends each segment on its own; the pause lets it be read before the next one comes.
async fn in_segments(stream: &mut TcpStream, segments: &[&[u8]]) {
    for segment in segments {
        stream.write_all(segment).await.unwrap();
        sleep(Duration::from_millis(1)).await;
    }
}

async fn arrived(case: &Case, bytes: u64) {
    eventually("the bytes have arrived", async || {
        case.gateway.ledger().await["listeners"]["statsd"]["received_bytes"] == bytes
    })
    .await;
}

/// Closes a connection so that the peer sees a reset, not an end.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Whether the gateway leaves at least half of one core alone over half a second.
async fn is_idle(case: &Case) -> bool {
    let before = ticks(case);
    sleep(Duration::from_millis(500)).await;
    // A tick is a hundredth of a second.
    ticks(case) - before < 25
}

/// The processor time that the gateway has used, in ticks.
fn ticks(case: &Case) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", case.gateway.daemon.pid())).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let columns: Vec<_> = after_name.split(' ').collect();
    columns[11].parse::<u64>().unwrap() + columns[12].parse::<u64>().unwrap()
}
