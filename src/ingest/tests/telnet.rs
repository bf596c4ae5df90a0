//! The OpenTSDB port: telnet, and HTTP on the same port.

use super::rig::{NOW, PATIENCE, Rig};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

fn start(more: Value) -> Rig {
    Rig::start("opentsdb", "tcp://127.0.0.1:0", more)
}

#[tokio::test]
async fn blanks_tabs_and_ends_of_lines_do_not_matter() {
    let rig = start(json!({}));
    let answer = rig
        .exchange(
            b"put a.b 1700000000 1\nput a.b 1700000000 1 \n\
              put  c.d\t1700000000   -1.5e2   h=x   r=eu \r\n\
              put tc.lines 1700000000 5  host=x\nput last 1700000000 6",
        )
        .await;
    assert_eq!(answer, "");
    assert_eq!(
        rig.finish().await,
        [
            "a.b=1@1700000000",
            "a.b=1@1700000000",
            "c.d{h=x,r=eu}=-150@1700000000",
            "tc.lines{host=x}=5@1700000000",
            "last=6@1700000000",
        ]
    );
}

#[tokio::test]
async fn each_bad_put_is_answered_by_one_line() {
    let rig = start(json!({}));
    let answer = rig
        .exchange(
            b"put m 1700000000 42 foo=bar foo=bar\nput m 1700000000 43 foo=bar foo=qux\n\
              put m 1700000000 44 foo=\nput m 1700000000 45 =v\nput m 1700000000 46 foo\n\
              put m 1700000000 47 h=x\n",
        )
        .await;
    let lines: Vec<_> = answer.lines().collect();
    assert_eq!(lines.len(), 4, "{answer}");
    assert!(lines.iter().all(|line| line.starts_with("put: ")), "{answer}");
    assert_eq!(rig.rejected(), [("duplicate_tag", 1), ("invalid_tag", 3)]);
    let seen = rig.finish().await;
    assert_eq!(seen, ["m{foo=bar}=42@1700000000", "m{h=x}=47@1700000000"]);
}

#[tokio::test]
async fn strict_listeners_want_tags() {
    let rig = start(json!({ "strict": true }));
    let answer = rig.exchange(b"put m 1700000000 42\n").await;
    assert_eq!(answer, "put: illegal argument: Missing tags\n");
    assert_eq!(rig.rejected(), [("missing_tags", 1)]);
}

#[tokio::test]
async fn negotiation_is_skipped_and_never_echoed() {
    let rig = start(json!({}));
    let answer = rig.exchange(b"\xff\xfb\x18\xff\xfd\x03put a 1700000000 1 h=x\r\n").await;
    assert_eq!(answer, "");
    assert_eq!(rig.finish().await, ["a{h=x}=1@1700000000"]);
}

#[tokio::test]
async fn commands_are_answered() {
    let rig = start(json!({}));
    let version = rig.exchange(b"version\n").await;
    assert_eq!(version.lines().count(), 2);
    assert!(version.ends_with('\n'));
    assert!(rig.exchange(b"help\n").await.starts_with("available commands: "));
    assert_eq!(rig.exchange(b"status\r\n").await, "ok\n");
    assert_eq!(rig.exchange(b"dropcaches\n").await, "Caches dropped.\n");
    assert_eq!(rig.exchange(b"nonsense 1\n").await, "unknown command: nonsense.  Try `help'.\n");
    assert!(rig.exchange(b"diediedie\n").await.starts_with("diediedie: "));
    assert!(rig.exchange(b"rollup x\nversion\n").await.starts_with("rollup: "));
    assert_eq!(rig.rejected(), [("refused_command", 2), ("unknown_command", 1)]);
    let stats = rig.exchange(b"put a 1700000000 1\nstats\nexit\nput b 1700000000 1\n").await;
    let line = format!("pointsman.rejected {NOW} 3 listener=under_test");
    assert!(stats.lines().any(|other| other == line), "{stats}");
    assert_eq!(rig.finish().await, ["a=1@1700000000"], "nothing after exit");
}

#[tokio::test]
async fn a_client_that_never_reads_loses_answers_and_no_points() {
    let rig = start(json!({}));
    let mut stream = rig.connect().await;
    let bad = "put bad.value 1700000000 abc h=x\n".repeat(2000);
    let sent = timeout(PATIENCE, async {
        for _ in 0..100 {
            stream.write_all(bad.as_bytes()).await.unwrap();
        }
        stream.write_all(b"put good 1700000000 1 h=x\n").await.unwrap();
    });
    sent.await.expect("reading goes on");
    rig.until(|book| book.received.get() == 1).await;
    assert_eq!(rig.rejected(), [("invalid_value", 200_000)]);
    let dropped = rig.book.noticed.counts();
    assert!(matches!(dropped[..], [("reply_dropped", count)] if count > 0), "{dropped:?}");
}

#[tokio::test]
async fn times_are_seconds_or_milliseconds_and_have_a_window() {
    let rig = start(json!({ "time_window": { "past": "3650d", "future": "1d" } }));
    let answer = rig
        .exchange(
            b"put t 1559746555444 7 s=t\nput t 1559746555 7 s=t\nput t 1559746555.444 7 s=t\n\
              put t 1 7 s=t\nput t 4294967296 7 s=t\n",
        )
        .await;
    assert_eq!(answer.lines().count(), 2, "{answer}");
    assert_eq!(rig.rejected(), [("ts_out_of_range", 2)]);
    assert_eq!(
        rig.finish().await,
        ["t{s=t}=7@1559746555.444000000", "t{s=t}=7@1559746555", "t{s=t}=7@1559746555.444000000"]
    );
}

#[tokio::test]
async fn http_is_understood_on_the_same_port() {
    let rig = start(json!({}));
    let body = r#"{"metric":"a","timestamp":1700000000,"value":1,"tags":{"h":"x"}}"#;
    let request = format!(
        "POST /api/put HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert!(rig.exchange(request.as_bytes()).await.starts_with("HTTP/1.1 204 "));
    assert_eq!(rig.rejected(), []);
    assert_eq!(rig.finish().await, ["a{h=x}=1@1700000000"]);
}

#[tokio::test]
async fn a_silent_connection_ends_before_its_first_byte_too() {
    let rig = start(json!({ "limits": { "idle": "50ms" } }));
    let stream = rig.connect().await;
    rig.until(|book| book.rejected.counts() == [("idle_timeout", 1)]).await;
    rig.until(|book| book.connections.get() == 0).await;
    drop(stream);
}

#[tokio::test]
async fn an_over_long_line_is_answered_and_skipped() {
    let rig = start(json!({ "limits": { "line": "100B" } }));
    let text = format!("put {} 1700000000 1\nput ok 1700000000 2\n", "x".repeat(200));
    let answer = rig.exchange(text.as_bytes()).await;
    assert!(answer.starts_with("put: illegal argument: ") && answer.lines().count() == 1);
    assert_eq!(rig.rejected(), [("line_too_long", 1)]);
    assert_eq!(rig.finish().await, ["ok=2@1700000000"]);
}
