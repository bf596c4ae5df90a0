//! A request that carries an `Idempotency-Key` may be repeated: it is answered as before and
//! counts once, at the same time, later, after a restart and after a kill.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use common::{Gateway, Http, Reply, Tmpfs, eventually, pointsman};
use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};

#[tokio::test]
async fn every_way_to_write_may_be_repeated() {
    let gateway = Gateway::start(&config("")).await;
    let points = r#"[{"name":"a","value":1},{"name":"","value":2}]"#;
    let puts = r#"[{"metric":"a","timestamp":1700000000,"value":1,"tags":{"h":"x"}},
                   {"metric":"b","timestamp":1700000000,"value":"x","tags":{"h":"x"}}]"#;
    for (listener, method, path, body, status) in [
        ("api", Method::POST, "/v1/points", r#"{"name":"a","value":1}"#, 204),
        ("api", Method::PUT, "/v1/points?details", r#"{"name":"a","value":1}"#, 200),
        ("api", Method::POST, "/v1/points?details", points, 400),
        ("api", Method::PUT, "/v1/point/a?value=1", "", 204),
        ("api", Method::POST, "/v1/point/b?details&value=1", "", 200),
        ("api", Method::POST, "/api/put?summary", puts, 400),
        ("tsdb", Method::POST, "/api/put?details", puts, 400),
        ("tsdb", Method::POST, "/api/v1/put?details&sync&sync_timeout=100", puts, 400),
        ("lines", Method::POST, "/write?db=d&precision=s", "a v=1 1700000000", 204),
        ("lines", Method::POST, "/api/v2/write?org=o&bucket=b", "a v=1\nb\n", 400),
    ] {
        let before = book(&gateway, listener).await;
        let key = format!("{method}{path}");
        let ask = async || send(&gateway, listener, method.clone(), path, &key, body).await;
        let first = ask().await;
        assert_eq!((first.status, first.header("idempotency-replayed")), (status, None), "{path}");
        for _ in 0..2 {
            assert_repeated(&ask().await, &first);
        }
        let after = book(&gateway, listener).await;
        assert_eq!(number(&after, "received"), number(&before, "received") + 1, "{path}: {after}");
        assert_eq!(number(&after, "keys"), number(&before, "keys") + 1, "{after}");
        assert_eq!(repeated(&after), repeated(&before) + 2, "{after}");
        assert_eq!(after["balanced"], true);
        let rejected = |book: &Value| {
            book["rejected"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>()
        };
        let refused = u64::from(status == 400);
        assert_eq!(rejected(&after), rejected(&before) + refused, "refused once: {after}");
    }
    let metrics = gateway.metrics().await;
    let api = ("listener", "api");
    assert_eq!(metrics.sum("pointsman_idempotency_keys", &[api]), 6.0);
    let kind = ("kind", "repeated_request");
    assert_eq!(metrics.sum("pointsman_noticed_total", &[api, kind]), 12.0);
}

#[tokio::test]
async fn fifty_at_once_count_once() {
    let gateway = Gateway::start(&config("")).await;
    let http = Arc::new(gateway.http("api"));
    let body = r#"[{"name":"a","value":1},{"name":"b","value":2},{"value":3}]"#;
    for round in 1..=5 {
        let key = format!("round-{round}");
        let requests: Vec<_> = (0..50)
            .map(|_| {
                let (http, key) = (Arc::clone(&http), key.clone());
                tokio::spawn(async move { send_to(&http, "/v1/points?details", &key, body).await })
            })
            .collect();
        let mut replies = Vec::new();
        for request in requests {
            replies.push(request.await.unwrap().unwrap());
        }
        assert!(replies.iter().all(|reply| reply.status == 400), "{replies:?}");
        assert!(replies.iter().all(|reply| reply.body == replies[0].body), "{replies:?}");
        let anew = replies.iter().filter(|reply| reply.header("idempotency-replayed").is_none());
        assert_eq!(anew.count(), 1);
        let book = book(&gateway, "api").await;
        assert_eq!((number(&book, "received"), repeated(&book)), (2 * round, 49 * round), "{book}");
    }
}

#[tokio::test]
async fn a_restart_and_a_kill_forget_nothing() {
    let mut gateway = Gateway::start(&config("")).await;
    let mut answered: Vec<(String, Reply)> = Vec::new();
    for round in 0..4 {
        for number in 0..20 {
            let key = format!("{round}-{number}");
            let reply = post(&gateway, "api", "/v1/points?details", &key, &one(number)).await;
            answered.push((key, reply));
        }
        match round {
            0 | 2 => gateway.kill9(),
            _ => assert!(gateway.terminate().await.status.success()),
        }
        gateway.restart().await;
        eventually("they are counted", async || {
            number(&book(&gateway, "api").await, "keys") == answered.len() as u64
        })
        .await;
        for (at, (key, first)) in answered.iter().enumerate() {
            let again =
                post(&gateway, "api", "/v1/points?details", key, &one(at as u64 % 20)).await;
            assert_repeated(&again, first);
        }
        assert_eq!(number(&book(&gateway, "api").await, "received"), 0);
    }
}

/// Killed in the middle of it: who was answered is answered again, and who was not may ask again.
#[tokio::test]
async fn a_kill_under_load_breaks_no_promise() {
    let mut gateway = Gateway::start(&config("")).await;
    let http = Arc::new(gateway.http("api"));
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let http = Arc::clone(&http);
            tokio::spawn(async move {
                let mut answered = Vec::new();
                for number in 0.. {
                    let key = format!("{client}-{number}");
                    match send_to(&http, "/v1/points?details", &key, &one(number)).await {
                        Ok(reply) => answered.push((key, number, reply)),
                        Err(_) => break,
                    }
                }
                answered
            })
        })
        .collect();
    eventually("some are answered", async || {
        number(&book(&gateway, "api").await, "received") > 300
    })
    .await;
    gateway.kill9();
    let mut answered = Vec::new();
    for client in clients {
        answered.extend(client.await.unwrap());
    }
    assert!(answered.len() > 250, "{}", answered.len());
    gateway.restart().await;
    for (key, number, first) in &answered {
        let again = post(&gateway, "api", "/v1/points?details", key, &one(*number)).await;
        assert_repeated(&again, first);
    }
    assert_eq!(number(&book(&gateway, "api").await, "received"), 0);
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused() {
    let gateway = Gateway::start(&config("")).await;
    post(&gateway, "api", "/v1/points", "k", &one(1)).await.expect_success();
    for (path, body) in
        [("/v1/points", one(2)), ("/v1/points?details", one(1)), ("/api/put", one(1))]
    {
        let reply = post(&gateway, "api", path, "k", &body).await;
        assert_eq!(reply.status, 422, "{path}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("was used for another request"), "{message}");
    }
    let book = book(&gateway, "api").await;
    assert_eq!((number(&book, "received"), &book["rejected"]), (1, &json!({"key_conflict": 3})));
}

#[tokio::test]
async fn the_same_key_at_two_listeners_is_two_keys() {
    let gateway = Gateway::start(&config("")).await;
    let put = r#"{"metric":"a","timestamp":1700000000,"value":1}"#;
    for listener in ["api", "tsdb"] {
        let reply = post(&gateway, listener, "/api/put", "k", put).await;
        assert_eq!((reply.status, reply.header("idempotency-replayed")), (204, None));
        assert_eq!(number(&book(&gateway, listener).await, "received"), 1);
    }
}

#[tokio::test]
async fn what_was_refused_whole_may_be_mended_under_the_same_key() {
    let gateway = Gateway::start(&config("limits = { body = \"1KiB\" }")).await;
    let large = format!("{}{}", one(1), " ".repeat(1024));
    for (status, body) in [
        (400, "[{]"),
        (400, r#"{"name":"","value":1}"#),
        (413, &*large),
        (204, &*one(1)),
        (422, "[{]"),
    ] {
        let reply = post(&gateway, "api", "/v1/points", "k", body).await;
        assert_eq!(reply.status, status, "{body}");
    }
    assert_eq!(number(&book(&gateway, "api").await, "received"), 1);
}

#[tokio::test]
async fn what_cannot_be_a_key_is_told_so() {
    let gateway = Gateway::start(&config("")).await;
    let (huge, long) = ("x".repeat(20_000), "x".repeat(256));
    for key in ["", "\"\"", &long, &huge, "a b", "\"a", "\"a\"; b"] {
        let reply = post(&gateway, "api", "/v1/points", key, &one(1)).await;
        assert_eq!(reply.status, 400, "{key}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("the Idempotency-Key "), "{message}");
    }
    let headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    let http = gateway.http("lines");
    let reply = http.send(Method::POST, "/write?db=d", &headers, b"a v=1".to_vec()).await.unwrap();
    assert_eq!(reply.status, 400);
    assert!(reply.json()["error"].as_str().unwrap().contains("several"), "{reply:?}");
    let book = book(&gateway, "api").await;
    assert_eq!((number(&book, "received"), &book["rejected"]), (0, &json!({"invalid_key": 7})));
    let longest = "x".repeat(255);
    let first = post(&gateway, "api", "/v1/points", &longest, &one(1)).await.expect_success();
    let quoted = format!("\"{longest}\"");
    assert_repeated(&post(&gateway, "api", "/v1/points", &quoted, &one(1)).await, &first);
}

#[tokio::test]
async fn a_key_is_forgotten_after_its_window() {
    let gateway = Gateway::start(&config("idempotency = { window = \"1s\" }")).await;
    let asks = eventually("it counts again", async || {
        post(&gateway, "api", "/v1/points", "k", &one(1)).await.expect_success();
        let book = book(&gateway, "api").await;
        (number(&book, "received") == 2).then(|| repeated(&book) + 2)
    })
    .await;
    assert!(asks > 2, "it was remembered for a while");
    eventually("nothing is held", async || {
        number(&book(&gateway, "api").await, "keys") == 0 && !keys_file(&gateway).exists()
    })
    .await;
}

#[tokio::test]
async fn the_oldest_key_makes_room() {
    let gateway = Gateway::start(&config("idempotency = { max_keys = 2 }")).await;
    for key in ["a", "b", "c", "b", "c", "a"] {
        post(&gateway, "api", "/v1/points", key, &one(1)).await.expect_success();
    }
    let book = book(&gateway, "api").await;
    assert_eq!((number(&book, "received"), number(&book, "keys")), (4, 2), "{book}");
    assert_eq!(book["noticed"], json!({"repeated_request": 2, "key_limit": 2}));
}

#[tokio::test]
async fn a_damaged_file_is_no_reason_not_to_serve() {
    let mut gateway = Gateway::start(&config("")).await;
    post(&gateway, "api", "/v1/points", "k", &one(1)).await.expect_success();
    gateway.terminate().await;
    fs::write(keys_file(&gateway), "garbage".repeat(10_000)).unwrap();
    gateway.restart().await;
    let first = post(&gateway, "api", "/v1/points", "k", &one(1)).await.expect_success();
    assert_eq!(first.header("idempotency-replayed"), None);
    assert_repeated(&post(&gateway, "api", "/v1/points", "k", &one(1)).await, &first);
    assert_eq!(damaged(&gateway).await, 1);
    assert!(gateway.data_dir().join("keys.db.damaged-1").exists());
    assert!(gateway.log().contains("the file of keys is damaged"), "{}", gateway.log());
}

/// Where the file should be is a directory.
#[tokio::test]
async fn a_data_directory_that_cannot_be_used_is_no_reason_not_to_serve() {
    let gateway = Gateway::start(&config("")).await;
    fs::create_dir_all(keys_file(&gateway)).unwrap();
    let first = post(&gateway, "api", "/v1/points", "k", &one(1)).await.expect_success();
    assert_repeated(&post(&gateway, "api", "/v1/points", "k", &one(1)).await, &first);
    let book_of_api = book(&gateway, "api").await;
    assert!(number(&book_of_api["noticed"], "key_disk_failed") > 0, "{book_of_api}");
    assert_eq!((number(&book_of_api, "received"), number(&book_of_api, "keys")), (1, 1));
    assert!(gateway.log().contains("they are remembered in memory"), "{}", gateway.log());
    fs::remove_dir(keys_file(&gateway)).unwrap();
    eventually("the disk learns of it", async || keys_file(&gateway).is_file()).await;
    eventually("it is told", async || gateway.log().contains("keys can be written again")).await;
    assert_repeated(&post(&gateway, "api", "/v1/points", "k", &one(1)).await, &first);
}

#[tokio::test]
async fn a_full_disk_is_no_reason_not_to_serve() {
    let mut gateway = Gateway::start(&config("")).await;
    gateway.terminate().await;
    let Some(_mount) = Tmpfs::mount(&gateway.data_dir(), "4m") else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    gateway.restart().await;
    let ask = async |key: &str| post(&gateway, "api", "/v1/points", key, &one(1)).await;
    let on_disk = ask("disk").await.expect_success();
    let ballast = gateway.data_dir().join("ballast");
    // It takes whatever there is.
    let _ = fs::write(&ballast, vec![7; 8 << 20]);
    let in_memory = ask("memory").await.expect_success();
    assert_repeated(&ask("memory").await, &in_memory);
    assert_repeated(&ask("disk").await, &on_disk);
    let full = book(&gateway, "api").await;
    assert_eq!(full["noticed"], json!({"repeated_request": 2, "key_disk_failed": 1}));
    fs::remove_file(&ballast).unwrap();
    let rows = || {
        let db = Connection::open(keys_file(&gateway)).unwrap();
        db.query_row("SELECT count(*) FROM keys", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    eventually("the disk learns of it", async || rows() == 2).await;
}

#[tokio::test]
async fn reloads_keep_keys() {
    let mut gateway = Gateway::start(&config("")).await;
    let first = post(&gateway, "api", "/v1/points", "k", &one(1)).await.expect_success();
    for more in ["", "limits = { tags = 9 }"] {
        gateway.reload(&config(more)).await.expect_success();
        assert_repeated(&post(&gateway, "api", "/v1/points", "k", &one(1)).await, &first);
        assert_eq!(number(&book(&gateway, "api").await, "keys"), 1);
    }
}

/// Without keys nothing is in the data directory, and with the first one it has an owner.
#[tokio::test]
async fn the_data_directory_is_taken_with_the_first_key() {
    let gateway = Gateway::start(&config("")).await;
    gateway.http("api").post("/v1/points", one(1)).await.expect_success();
    assert!(!gateway.data_dir().exists());
    let second = Gateway::start(&config("")).await;
    std::os::unix::fs::symlink(gateway.data_dir(), second.data_dir()).unwrap();
    post(&gateway, "api", "/v1/points", "k", &one(1)).await.expect_success();
    let first = post(&second, "api", "/v1/points", "k", &one(1)).await.expect_success();
    assert_eq!(first.header("idempotency-replayed"), None, "it has no access to the file");
    assert_repeated(&post(&second, "api", "/v1/points", "k", &one(1)).await, &first);
    assert!(second.log().contains("is in use by another gateway"), "{}", second.log());
    let (file, data) = (gateway.config_file(), gateway.data_dir());
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
    let third = pointsman(&["run", "--config", file, "--data-dir", data]);
    assert_eq!(third.status.code(), Some(1), "there is a file that it would have to use");
}

fn config(more: &str) -> String {
    format!(
        "[admin]\nbind = '127.0.0.1:0'\n\
         [listeners.tsdb]\nprotocol = 'opentsdb'\nbind = ['tcp://127.0.0.1:0']\n\
         [listeners.lines]\nprotocol = 'influxdb'\nbind = ['tcp://127.0.0.1:0']\n\
         [backends.b]\nkind = 'blackhole'\n[[routes]]\nto = ['b']\n\
         [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n{more}\n"
    )
}

fn one(number: u64) -> String {
    format!("{{\"name\":\"n\",\"value\":{number}}}")
}

async fn send_to(http: &Http, path: &str, key: &str, body: &str) -> reqwest::Result<Reply> {
    let headers = [("Idempotency-Key", key)];
    http.send(Method::POST, path, &headers, body.as_bytes().to_vec()).await
}

async fn post(gateway: &Gateway, listener: &str, path: &str, key: &str, body: &str) -> Reply {
    send(gateway, listener, Method::POST, path, key, body).await
}

async fn send(
    gateway: &Gateway,
    listener: &str,
    method: Method,
    path: &str,
    key: &str,
    body: &str,
) -> Reply {
    let headers = [("Idempotency-Key", key)];
    let http = gateway.http(listener);
    http.send(method, path, &headers, body.as_bytes().to_vec()).await.unwrap()
}

#[track_caller]
fn assert_repeated(again: &Reply, first: &Reply) {
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_eq!(again.header("idempotency-replayed"), Some("true"), "{again:?}");
}

async fn book(gateway: &Gateway, listener: &str) -> Value {
    gateway.ledger().await["listeners"][listener].take()
}

async fn damaged(gateway: &Gateway) -> u64 {
    let ledger = gateway.ledger().await;
    let books = ledger["listeners"].as_object().unwrap().values();
    books.map(|book| number(&book["noticed"], "keys_damaged")).sum()
}

fn number(book: &Value, key: &str) -> u64 {
    book[key].as_u64().unwrap_or(0)
}

fn repeated(book: &Value) -> u64 {
    number(&book["noticed"], "repeated_request")
}

fn keys_file(gateway: &Gateway) -> PathBuf {
    gateway.data_dir().join("keys.db")
}
