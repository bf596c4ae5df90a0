//! What a listener says in the log.

use super::rig::Rig;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Once;

/// What this thread has logged: a test and all its tasks run on one thread.
///
/// The subscriber is that of the whole process. One that is set for a thread alone loses lines now
/// and then: when another thread comes to a log line first, what is remembered of the line is that
/// nobody listens.
struct Log;

thread_local! {
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.with_borrow_mut(|written| written.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn listen() -> Self {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(|| tracing_subscriber::fmt().json().with_writer(|| Log).init());
        WRITTEN.with_borrow_mut(Vec::clear);
        Self
    }

    /// The fields of all lines with this message.
    fn lines(&self, message: &str) -> Vec<Value> {
        let text = WRITTEN.with_borrow(|written| String::from_utf8(written.clone()).unwrap());
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| line["fields"].clone()).filter(|line| line["message"] == message).collect()
    }
}

#[tokio::test]
async fn every_socket_is_told_once() {
    let log = Log::listen();
    let rig = Rig::start("statsd", "tcp://localhost:0", json!({}));
    let expected: Vec<_> = rig
        .addresses
        .iter()
        .map(|address| json!({ "message": "listening", "listener": "under_test", "address": address }))
        .collect();
    assert_eq!(log.lines("listening"), expected);
}

/// Nobody is at the other end of a file.
#[tokio::test]
async fn what_is_refused_of_a_file_is_told_with_its_name() {
    let log = Log::listen();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl");
    crate::ingest::file::tests::refuse_line_and_file(path.clone()).await;
    let told = log.lines("refused");
    let expected = json!([
        {
            "message": "refused", "listener": "files", "reason": "invalid_json", "file": path,
            "example": "line 1: the JSON is broken at column 2 nonsense", "suppressed": 0,
        },
        {
            "message": "refused", "listener": "files", "reason": "file_failed", "file": path,
            "example": "no more", "suppressed": 0,
        },
    ]);
    assert_eq!(Value::from(told), expected);
}

#[tokio::test]
async fn a_flood_of_bad_lines_is_a_line_for_each_reason() {
    let log = Log::listen();
    let rig = Rig::start("statsd", "tcp://127.0.0.1:0", json!({}));
    let bad = b"a:x|c\nb:1|q\nc\xff\x1b[2J:1|c\nd:1|c\n".repeat(10_000);
    rig.exchange(&bad).await;
    assert_eq!(rig.book.rejected.total(), 30_000);
    assert_eq!(rig.book.received.get(), 10_000);
    let mut refused = log.lines("refused");
    refused.sort_by_key(|line| line["reason"].to_string());
    let told: Vec<_> = refused
        .iter()
        .map(|line| [&line["reason"], &line["example"], &line["suppressed"]])
        .collect();
    assert_eq!(
        told,
        [
            [&json!("invalid_utf8"), &json!("c\\xff\\u{1b}[2J:1|c"), &json!(0)],
            [&json!("invalid_value"), &json!("a:x|c"), &json!(0)],
            [&json!("unknown_kind"), &json!("b:1|q"), &json!(0)],
        ]
    );
    assert!(
        refused.iter().all(|line| {
            line["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:"))
        })
    );
}
