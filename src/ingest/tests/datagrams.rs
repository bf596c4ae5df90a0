//! statsd in datagrams.

use super::rig::{NOW, Rig};
use crate::net::Socket;
use serde_json::json;
use std::os::unix::net::UnixDatagram;

fn start(more: serde_json::Value) -> Rig {
    Rig::start("statsd", "udp://127.0.0.1:0", more)
}

#[tokio::test]
async fn lines_end_with_lf_or_crlf_or_the_datagram() {
    let rig = start(json!({}));
    let datagrams: [&[u8]; 7] =
        [b"a:1|c", b"a:1|c\n", b"a:1|c\r\n", b"a:1|c\n\nb:2|c\n", b"\n\n", b"", b"t:320|ms\r\n"];
    rig.datagrams(&datagrams).await;
    rig.until(|book| book.received.get() == 6).await;
    assert_eq!(rig.rejected(), []);
    let bytes: usize = datagrams.iter().map(|datagram| datagram.len()).sum();
    assert_eq!(rig.book.received_bytes.get(), bytes as u64);
    assert_eq!(rig.finish().await, ["a=1c/1", "a=1c/1", "a=1c/1", "a=1c/1", "b=2c/1", "t=320ms/1"]);
}

#[tokio::test]
async fn more_datagrams_than_one_round_and_one_batch() {
    let rig = start(json!({}));
    let lines = "n:1|c\n".repeat(20);
    rig.datagrams(&vec![lines.as_bytes(); 200]).await;
    rig.until(|book| book.received.get() + book.kernel_dropped.get() * 20 == 4000).await;
    assert_eq!(rig.finish().await.len(), 4000);
}

#[tokio::test]
async fn bad_lines_are_counted_by_reason_and_cost_no_good_one() {
    let rig = start(json!({ "limits": { "line": "64B", "tags": 1 } }));
    let long = format!("{}:1|c", "x".repeat(64));
    rig.datagrams(&[
        b"bad:x|c\ngood:1|c\nbad\xff:1|c\nbad:1|q",
        long.as_bytes(),
        b"tags:1|c|#a:1,b:2",
        b"_e{5,4}:title|text",
        b"_sc|name|0",
        b"known:1|c|Z:later",
    ])
    .await;
    rig.until(|book| book.received.get() == 2 && book.rejected.total() == 7).await;
    assert_eq!(
        rig.rejected(),
        [
            ("invalid_utf8", 1),
            ("invalid_value", 1),
            ("line_too_long", 1),
            ("too_many_tags", 1),
            ("unknown_kind", 1),
            ("unsupported_event", 2),
        ]
    );
    assert_eq!(rig.book.noticed.counts(), [("unknown_field", 1)]);
    assert_eq!(rig.finish().await, ["good=1c/1", "known=1c/1"]);
}

#[tokio::test]
async fn what_the_socket_holds_at_a_stop_is_still_taken() {
    let rig = start(json!({}));
    rig.datagrams(&vec![&b"n:1|c"[..]; 500]).await;
    assert_eq!(rig.finish().await.len(), 500);
}

#[tokio::test]
async fn several_sockets_take_all() {
    let rig = start(json!({ "sockets": 4 }));
    assert_eq!(rig.addresses.len(), 4);
    for _ in 0..40 {
        rig.datagrams(&[b"n:1|c"]).await;
    }
    assert_eq!(rig.finish().await.len(), 40);
}

#[tokio::test]
async fn a_time_outside_the_window_is_refused() {
    let rig = start(json!({ "time_window": { "past": "1h", "future": "10s" } }));
    let line = |time: i64| format!("n:{time}|c|T{time}");
    for time in [NOW - 3000, NOW - 4000, NOW + 5, NOW + 60] {
        rig.datagrams(&[line(time).as_bytes()]).await;
    }
    rig.datagrams(&[b"now:1|c"]).await;
    rig.until(|book| book.received.get() == 3).await;
    assert_eq!(rig.rejected(), [("ts_out_of_range", 2)]);
}

#[tokio::test]
async fn dialects_can_be_switched_off() {
    let rig = start(json!({ "dialects": ["dogstatsd"] }));
    rig.datagrams(&[b"n,a=b:1|c|#c:d"]).await;
    assert_eq!(rig.finish().await, ["n,a=b{c=d}=1c/1"]);
}

#[tokio::test]
async fn a_unix_socket_takes_datagrams_and_cuts_long_ones() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("statsd.sock");
    let rig = Rig::start("statsd", &format!("unixgram://{}", path.display()), json!({}));
    let sender = UnixDatagram::unbound().unwrap();
    sender.send_to(b"a:1|c\nb:2|c", &path).unwrap();
    sender.send_to("n:1|c\n".repeat(11_000).as_bytes(), &path).unwrap();
    rig.until(|book| book.rejected.total() > 0).await;
    assert_eq!(rig.rejected(), [("truncated_datagram", 1)]);
    let whole = (64 << 10) / "n:1|c\n".len();
    assert_eq!(rig.finish().await.len(), 2 + whole);
    assert!(!path.exists(), "the file is removed with the pool");
}

/// Everything sent was received, or the kernel says that it lost it, burst or trickle.
#[tokio::test]
async fn what_the_kernel_loses_is_counted() {
    let rig = start(json!({ "receive_buffer": "4KiB" }));
    // The listener's task cannot run before this one waits.
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..5000 {
        sender.send_to(b"n:1|c", rig.address()).unwrap();
    }
    let sum = |book: &crate::books::ListenerBook| book.received.get() + book.kernel_dropped.get();
    rig.until(|book| sum(book) == 5000).await;
    assert!(rig.book.kernel_dropped.get() > 0);
    for _ in 0..10 {
        sender.send_to(b"n:1|c", rig.address()).unwrap();
        tokio::task::yield_now().await;
    }
    rig.until(|book| sum(book) == 5010).await;
}

#[tokio::test]
async fn a_new_listener_takes_over_and_nothing_is_lost_or_counted_twice() {
    let mut rig = start(json!({ "receive_buffer": "4KiB" }));
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = rig.address().to_owned();
    let wanted = super::rig::config("statsd", "udp://127.0.0.1:0", json!({})).wanted("under_test");
    let mut sent = 0;
    let mut burst = |count: u64| {
        sent += count;
        for _ in 0..count {
            sender.send_to(b"n:1|c", &address).unwrap();
        }
        sent
    };
    burst(2000);
    let bound = rig.sockets.bind_all(&wanted.unwrap()).unwrap();
    assert!(matches!(bound[0].socket, Socket::Udp(..)));
    let config = super::rig::config("statsd", "udp://127.0.0.1:0", json!({ "limits": {} }));
    let clock = crate::clock::Clock::System;
    let next = crate::ingest::spawn(
        "under_test",
        &config,
        bound,
        rig.router.clone(),
        rig.book.clone(),
        clock,
        &rig.keys,
    );
    burst(10);
    let old = rig.listener.replace(next.unwrap());
    old.expect("the first listener").stop().await;
    rig.sockets.let_go();
    let sent = burst(10);
    rig.until(|book| book.received.get() + book.kernel_dropped.get() == sent).await;
}
