//! What a listener says in the log.

use super::rig::Rig;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// The fields of all lines with this message.
    fn lines(&self, message: &str) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| line["fields"].clone()).filter(|line| line["message"] == message).collect()
    }
}

fn listen() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    (log, tracing::subscriber::set_default(subscriber))
}

#[tokio::test]
async fn every_socket_is_told_once() {
    let (log, _guard) = listen();
    let rig = Rig::start("statsd", "tcp://localhost:0", json!({}));
    let expected: Vec<_> = rig
        .addresses
        .iter()
        .map(|address| json!({ "message": "listening", "listener": "under_test", "address": address }))
        .collect();
    assert_eq!(log.lines("listening"), expected);
}

#[tokio::test]
async fn a_flood_of_bad_lines_is_a_line_for_each_reason() {
    let (log, _guard) = listen();
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
