//! statsd lines on TCP and on Unix sockets.

use super::rig::Rig;
use serde_json::{Value, json};
use socket2::SockRef;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

fn start(more: Value) -> Rig {
    Rig::start("statsd", "tcp://127.0.0.1:0", more)
}

/// Closes with a reset.
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

#[tokio::test]
async fn every_split_gives_the_same_points() {
    let rig = start(json!({}));
    let stream = "aa:1|c\nbb:20|c|#é:ö\n".as_bytes();
    for at in 1..stream.len() {
        let mut connection = rig.connect().await;
        connection.set_nodelay(true).unwrap();
        connection.write_all(&stream[..at]).await.unwrap();
        let bytes = at as u64 + (at as u64 - 1) * stream.len() as u64;
        rig.until(|book| book.received_bytes.get() == bytes).await;
        connection.write_all(&stream[at..]).await.unwrap();
        rig.until(|book| book.received_bytes.get() == (at * stream.len()) as u64).await;
    }
    assert_eq!(rig.rejected(), []);
    let seen = rig.finish().await;
    assert_eq!(seen.len(), 2 * (stream.len() - 1));
    assert!(seen.chunks(2).all(|pair| pair == ["aa=1c/1", "bb{é=ö}=20c/1"]));
}

#[tokio::test]
async fn the_last_line_needs_no_lf_at_the_end() {
    let rig = start(json!({}));
    rig.exchange(b"foo:1|c").await;
    rig.exchange(b"bar:1|").await;
    rig.until(|book| book.received.get() == 1 && book.rejected.total() == 1).await;
    let mut open = rig.connect().await;
    open.write_all(b"baz:1|c").await.unwrap();
    rig.until(|book| book.received_bytes.get() == 20).await;
    assert_eq!(rig.book.received.get(), 1, "not before its LF");
    open.write_all(b"\n").await.unwrap();
    rig.until(|book| book.received.get() == 2).await;
    assert_eq!(rig.finish().await, ["foo=1c/1", "baz=1c/1"]);
}

#[tokio::test]
async fn a_reset_ends_no_line() {
    let rig = start(json!({}));
    let mut stream = rig.connect().await;
    stream.write_all(b"whole:1|c\nqux:1|c").await.unwrap();
    rig.until(|book| book.received_bytes.get() == 17).await;
    reset(stream);
    rig.until(|book| book.connections.get() == 0).await;
    assert_eq!(rig.rejected(), [("incomplete_line", 1)]);
    assert_eq!(rig.finish().await, ["whole=1c/1"]);
}

#[tokio::test]
async fn an_over_long_line_costs_only_itself() {
    let rig = start(json!({}));
    let text = format!("ok1:1|c\n{}:1|c\nok2:1|c\n", "x".repeat(70_000));
    rig.exchange(text.as_bytes()).await;
    assert_eq!(rig.rejected(), [("line_too_long", 1)]);
    assert_eq!(rig.finish().await, ["ok1=1c/1", "ok2=1c/1"]);
}

#[tokio::test]
async fn silence_ends_a_connection() {
    let rig = start(json!({ "limits": { "idle": "50ms" } }));
    let mut stream = rig.connect().await;
    stream.write_all(b"a:1|c\ntail").await.unwrap();
    let end = stream.read(&mut [0; 9]).await;
    assert!(matches!(end, Ok(0) | Err(_)));
    rig.until(|book| book.connections.get() == 0).await;
    assert_eq!(rig.rejected(), [("idle_timeout", 1), ("incomplete_line", 1)]);
}

#[tokio::test]
async fn one_connection_too_many_is_refused_and_the_others_go_on() {
    let rig = start(json!({ "limits": { "connections": 2 } }));
    let mut first = rig.connect().await;
    let second = rig.connect().await;
    rig.until(|book| book.connections.get() == 2).await;
    let mut third = rig.connect().await;
    assert!(matches!(third.read(&mut [0; 9]).await, Ok(0) | Err(_)));
    assert_eq!(rig.rejected(), [("connection_limit", 1)]);
    drop(second);
    rig.until(|book| book.connections.get() == 1).await;
    rig.exchange(b"b:1|c\n").await;
    first.write_all(b"a:1|c\n").await.unwrap();
    rig.until(|book| book.received.get() == 2).await;
    assert_eq!(rig.finish().await, ["b=1c/1", "a=1c/1"]);
}

#[tokio::test]
async fn at_a_stop_complete_lines_are_processed_and_connections_end() {
    let mut rig = start(json!({}));
    let mut streams = Vec::new();
    for _ in 0..5 {
        let mut stream = rig.connect().await;
        stream.write_all("n:1|c\n".repeat(5000).as_bytes()).await.unwrap();
        stream.write_all(b"tail:1|").await.unwrap();
        streams.push(stream);
    }
    let address = rig.address().to_owned();
    rig.stop().await;
    assert_eq!(rig.rejected(), [("incomplete_line", 5)]);
    assert_eq!(rig.book.connections.get(), 0);
    assert!(TcpStream::connect(address).await.is_err());
    assert_eq!(rig.finish().await.len(), 25_000);
}

#[tokio::test]
async fn while_a_backend_refuses_nothing_is_read() {
    let rig = start(json!({}));
    rig.set_refusing(true);
    let mut stream = rig.connect().await;
    stream.write_all(b"a:1|c\n").await.unwrap();
    rig.until(|book| book.noticed.counts() == [("paused", 1)]).await;
    assert_eq!(rig.book.received_bytes.get(), 0);
    rig.set_refusing(false);
    rig.until(|book| book.received.get() == 1).await;
}

#[tokio::test]
async fn a_unix_socket_takes_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("statsd.sock");
    let rig = Rig::start("statsd", &format!("unix://{}", path.display()), json!({}));
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"a:1|c\nb:2|c").await.unwrap();
    drop(stream);
    rig.until(|book| book.received.get() == 2).await;
    assert_eq!(rig.finish().await, ["a=1c/1", "b=2c/1"]);
}

#[tokio::test]
async fn datagrams_are_for_statsd() {
    let config = super::rig::config("http", "udp://127.0.0.1:0", json!({}));
    let mut sockets = crate::net::Sockets::new();
    let bound = sockets.bind_all(&config.wanted("x").unwrap()).unwrap();
    let rig = start(json!({}));
    let (router, book) = (rig.router.clone(), rig.book.clone());
    let clock = crate::clock::Clock::System;
    let spawned = crate::ingest::spawn("x", &config, bound, router, book, clock, &rig.keys);
    let error = spawned.unwrap_err();
    assert_eq!(error.to_string(), "http is not spoken in datagrams");
}
