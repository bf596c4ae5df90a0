//! A request is answered when its points are where its sender wants them: in memory, on disk, or at
//! every backend; and told so when they did not come so far.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Answer, FakeHttp, Gateway, Reply, assert_balanced, eventually};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

#[tokio::test]
async fn every_level_with_a_backend_that_is_well() {
    let influx = FakeHttp::start([]).await;
    let gateway = Gateway::start(&config("", &influxdb("b", &influx.url(), ""), &["b"])).await;
    for (number, level) in ["accepted", "queued", "delivered"].into_iter().enumerate() {
        let began = Instant::now();
        let reply = post(&gateway, &format!("?ack={level}"), number).await;
        assert_eq!((reply.status, &*reply.body), (204, ""));
        // The batch is held open for an hour for those who do not wait.
        assert!(began.elapsed() < Duration::from_secs(20), "{level}: {:?}", began.elapsed());
        let is_there = has(&influx, number);
        assert!(is_there || level != "delivered", "{level}");
    }
    for path in
        ["/v1/point/n?value=7&time=1700000007&ack=delivered", "/v1/points?ack=delivered&details"]
    {
        let body = if path.contains("details") { point(8) } else { String::new() };
        gateway.http("api").post(path, body).await.expect_success();
    }
    let lines = "n value=9 1700000009";
    let write = "/write?precision=s&ack=delivered";
    gateway.http("lines").post(write, lines).await.expect_success();
    let put = r#"{"metric":"n","timestamp":1700000010,"value":10}"#;
    gateway.http("tsdb").post("/api/put?ack=delivered", put).await.expect_success();
    assert!((7..=10).all(|number| has(&influx, number)), "{:?}", influx.received());
    assert!(!influx.received().iter().any(|request| request.body.contains("ack=")));
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("pointsman_acks_total", &[("listener", "api")]), 4.0);
    assert!(metrics.sum("pointsman_ack_wait_seconds_sum", &[("listener", "api")]) > 0.0);
}

#[tokio::test]
async fn a_listener_says_when_and_a_request_may_say_otherwise() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let keys = "ack = 'delivered'\nlimits = { request = '300ms' }\n";
    let gateway = Gateway::start(&config(keys, &influxdb("b", &dead.url(), ""), &["b"])).await;
    let late = post(&gateway, "", 1).await;
    assert_eq!(late.status, 504);
    let text = late.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(text.contains("1 point not delivered yet") && text.contains("Idempotency-Key"));
    for (query, status) in [
        ("?ack=queued", 204),
        ("?ack=accepted&timeout=5", 204),
        ("?ack=delivered&timeout=50ms", 504),
        ("?ack=sooner", 400),
        ("?ack", 400),
        ("?timeout=5", 400),
    ] {
        assert_eq!(post(&gateway, query, 2).await.status, status, "{query}");
    }
    let ledger = gateway.ledger().await;
    let rejected = json!({ "ack_timeout": 2, "invalid_ack": 2, "invalid_timeout": 1 });
    assert_eq!(ledger["listeners"]["api"]["rejected"], rejected);
    // Late is not lost.
    assert_eq!(ledger["backends"]["b"]["held"]["total"], 4);
    assert_eq!(ledger["listeners"]["api"]["received"], 4, "invalid requests left nothing");
}

/// One of two is away: on disk will do, at every backend will not.
#[tokio::test]
async fn one_of_two_backends_is_dead() {
    let (well, dead) = (FakeHttp::start([]).await, FakeHttp::judging(|_| Answer::reset()).await);
    let sections = influxdb("well", &well.url(), "") + &influxdb("dead", &dead.url(), "");
    let gateway = Gateway::start(&config("", &sections, &["well", "dead"])).await;
    post(&gateway, "?ack=queued", 1).await.expect_success();
    // The book is written a moment after the answer.
    eventually("it is on disk", async || {
        gateway.ledger().await["backends"]["dead"]["held"]["spool"] == 1
    })
    .await;
    let late = post(&gateway, "?ack=delivered&timeout=300ms", 2).await;
    assert_eq!(late.status, 504, "{late:?}");
    assert!(has(&well, 2));
}

/// What is told as queued is on disk, or there already; it outlives a kill.
#[tokio::test]
async fn queued_outlives_a_kill() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let config = config("", &influxdb("b", &dead.url(), ""), &["b"]);
    let mut gateway = Gateway::start(&config).await;
    // One that does not ask for it stands in line before it, and goes to disk with it.
    post(&gateway, "?ack=accepted", 1).await.expect_success();
    post(&gateway, "?ack=queued", 2).await.expect_success();
    gateway.kill9();
    gateway.restart().await;
    let book = gateway.ledger().await["backends"]["b"].take();
    assert_eq!(book["recovered"], 2, "{book}");
}

#[tokio::test]
async fn a_slow_backend_is_waited_for() {
    let slow = FakeHttp::judging(|_| Answer::status(204).after(Duration::from_millis(300))).await;
    let gateway = Gateway::start(&config("", &influxdb("b", &slow.url(), ""), &["b"])).await;
    let began = Instant::now();
    post(&gateway, "?ack=delivered", 1).await.expect_success();
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_refusal_is_told_to_whom_it_concerns() {
    let influx = FakeHttp::judging(|request| {
        if request.body.contains("=13 ") || request.body.contains("=13.0 ") {
            Answer::status(400).body(r#"{"error":"field type conflict: thirteen"}"#)
        } else {
            Answer::status(204).after(Duration::from_millis(100))
        }
    })
    .await;
    let gateway = Gateway::start(&config("", &influxdb("b", &influx.url(), ""), &["b"])).await;
    let posts = [11, 12, 13, 14].map(|number| post(&gateway, "?ack=delivered", number));
    let [a, b, refused, c] = posts;
    let (a, b, refused, c) = tokio::join!(a, b, refused, c);
    assert_eq!([a.status, b.status, refused.status, c.status], [204, 204, 422, 204], "{refused:?}");
    let text = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(text.contains("backend `b`: 1 point") && text.contains("thirteen"), "{text}");
    let ledger = gateway.ledger().await;
    assert_eq!(ledger["listeners"]["api"]["rejected"], json!({ "ack_refused": 1 }));
    let lines = gateway.http("lines").post("/write?ack=delivered", "n value=13 1").await;
    assert_eq!(lines.status, 422);
    assert!(lines.json()["message"].as_str().unwrap().contains("thirteen"), "{lines:?}");
}

#[tokio::test]
async fn opentsdb_sync_counts_what_is_not_there_in_time() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let gateway = Gateway::start(&config("", &influxdb("b", &dead.url(), ""), &["b"])).await;
    let put = async |query: &str| {
        let item = |n| format!(r#"{{"metric":"n","timestamp":{},"value":{n}}}"#, 1_700_000_000 + n);
        let body = format!("[{},{},{{}}]", item(1), item(2));
        gateway.http("tsdb").post(&format!("/api/put?{query}"), body).await
    };
    let details = put("sync&sync_timeout=200&details").await;
    assert_eq!(details.status, 400);
    let body = details.json();
    let counts = [&body["success"], &body["failed"], &body["timeouts"]];
    assert_eq!(counts, [&json!(0), &json!(1), &json!(2)], "{body}");
    let errors = body["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 2, "{body}");
    assert!(errors[1]["error"].as_str().unwrap().starts_with("Timeout exception"), "{body}");
    let summary = put("sync=&sync_timeout=50&summary").await;
    assert_eq!(summary.json(), json!({ "success": 0, "failed": 1, "timeouts": 2 }));
    let quiet = put("sync&sync_timeout=50").await;
    assert_eq!((quiet.status, &quiet.json()["error"]["code"]), (400, &json!(400)));
    assert_eq!(put("ack=delivered&timeout=50ms").await.status, 504);
    let _well = revived(dead).await;
    let well = put("sync&sync_timeout=20000&details").await.json();
    assert_eq!((&well["success"], &well["timeouts"]), (&json!(2), &json!(0)), "{well}");
}

/// Such a request is answered when its window has closed.
#[tokio::test]
async fn aggregated_points_are_queued_when_their_window_is() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let section = format!(
        "[backends.b]\nkind = 'influxdb'\nurl = '{}'\ndatabase = 'd'\nflush = '1s'\n",
        dead.url()
    );
    let mut gateway = Gateway::start(&config("", &section, &["b"])).await;
    let counter = r#"{"name":"c","type":"counter","value":2}"#;
    let api = gateway.http("api");
    let posts = [0; 3].map(|_| api.post("/v1/points?ack=queued", counter));
    let [one, two, three] = posts;
    let replies = tokio::join!(one, two, three);
    assert_eq!([replies.0.status, replies.1.status, replies.2.status], [204; 3]);
    gateway.kill9();
    gateway.restart().await;
    let well = revived(dead).await;
    eventually("the rows are there", async || {
        let rows: Vec<_> = well.received().into_iter().map(|request| request.body).collect();
        let counts = rows.iter().flat_map(|body| body.lines()).map(|line| {
            let (_, rest) = line.split_once("count=").unwrap();
            rest.split([',', ' ']).next().unwrap().parse::<f64>().unwrap()
        });
        counts.sum::<f64>() == 6.0
    })
    .await;
}

/// A server that takes everything, where one was that did not.
async fn revived(dead: FakeHttp) -> FakeHttp {
    let address = dead.address();
    drop(dead);
    FakeHttp::start_at(address, []).await
}

/// The spool holds so much and no more; what does not find room is told to its sender.
#[tokio::test]
async fn a_full_spool_is_told() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let keys = "memory = '4KiB'\nspool = { max_size = '16KiB' }\nwhen_full = 'drop_newest'";
    let section = influxdb("b", &dead.url(), keys);
    let well = FakeHttp::start([]).await;
    let sections = section + &influxdb("well", &well.url(), "");
    let gateway = Gateway::start(&config("", &sections, &["b", "well"])).await;
    let (mut kept, mut lost) = (0, 0);
    for number in 0..200 {
        let reply = post(&gateway, "?ack=queued", number).await;
        match reply.status {
            204 => kept += 1,
            503 => {
                assert!(reply.body.contains("backend `b`: 1 point, queue_full"), "{reply:?}");
                assert!(reply.body.contains("some may have been"), "{reply:?}");
                assert_eq!(reply.header("retry-after"), Some("1"));
                lost += 1;
            }
            _ => panic!("{reply:?}"),
        }
    }
    eventually("the book is written", async || {
        gateway.ledger().await["backends"]["b"]["held"]["spool"] == kept
    })
    .await;
    let ledger = gateway.ledger().await;
    assert_balanced(&ledger);
    let book = &ledger["backends"]["b"];
    assert_eq!(book["dropped"]["queue_full"], lost, "{book}");
    assert_eq!(ledger["listeners"]["api"]["rejected"]["ack_lost"], lost);
    assert!(kept > 10 && lost > 10, "{kept} and {lost}");
}

/// Clients as fast as they can, a backend that is away and wants to be spared: what was answered
/// 2xx is what was handed over, and none of it is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_backend_refuses_has_left_nothing() {
    let windows = "memory = '16KiB'\nspool = false\nbatch = { bytes = '8KiB' }\naggregate = true";
    for keys in [
        // What is summed up finds room when its window has closed.
        windows,
        "memory = '256KiB'\nspool = false\nbatch = { bytes = '16KiB' }",
        "memory = '64KiB'\nspool = { max_size = '512KiB' }\nbatch = { bytes = '16KiB' }",
        // Smaller than a request.
        "memory = '2KiB'\nspool = false\nbatch = { bytes = '2KiB' }",
    ] {
        let dead = FakeHttp::judging(|_| Answer::status(503)).await;
        let keys = format!("{keys}\nwhen_full = 'refuse'");
        let section = influxdb("b", &dead.url(), &keys).replace("'1h'", "'20ms'");
        let section =
            section.replacen("aggregate = false\n", "", usize::from(keys.contains("aggre")));
        let gateway = Arc::new(Gateway::start(&config("", &section, &["b"])).await);
        let one = if keys.contains(windows) { counter } else { point };
        let (taken, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut clients = JoinSet::new();
        for client in 0..8 {
            let (gateway, taken, refused) =
                (Arc::clone(&gateway), Arc::clone(&taken), Arc::clone(&refused));
            clients.spawn(async move {
                let api = gateway.http("api");
                for round in 0..40 {
                    let count = [1, 10, 500][round % 3];
                    let points: Vec<_> = (0..count).map(|n| one(client * 1000 + n)).collect();
                    let reply = api.post("/v1/points", format!("[{}]", points.join(","))).await;
                    match reply.status {
                        204 => taken.fetch_add(count as u64, Ordering::Relaxed),
                        503 => {
                            assert!(reply.body.contains("nothing of the request was kept"));
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                        _ => panic!("{reply:?}"),
                    };
                }
            });
        }
        clients.join_all().await;
        let ledger = gateway.ledger().await;
        assert_balanced(&ledger);
        let book = &ledger["backends"]["b"];
        assert!(one(0) == point(0) || book["folded_points"].as_u64() > Some(100), "{book}");
        assert_eq!(book["handed"], taken.load(Ordering::Relaxed), "{keys}: {book}");
        assert_eq!(book["dropped"], json!({}), "{keys}");
        assert!(refused.load(Ordering::Relaxed) > 100, "{keys}: {refused:?}");
        assert_eq!(ledger["listeners"]["api"]["received"], book["handed"]);
    }
}

/// A stop closes windows and spills queues, so requests that wait are answered with what is so.
#[tokio::test]
async fn a_stop_answers_who_waits() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let section = format!(
        "[backends.b]\nkind = 'influxdb'\nurl = '{}'\ndatabase = 'd'\nflush = '1h'\n",
        dead.url()
    );
    let mut gateway = Gateway::start(&config("", &section, &["b"])).await;
    let api = gateway.http("api");
    let counter = r#"{"name":"c","type":"counter","value":2}"#;
    let waiting = [
        ("/v1/points?ack=queued", counter.to_owned()),
        ("/v1/points?ack=delivered", counter.to_owned()),
        ("/v1/points?ack=delivered", point(1)),
    ];
    let mut replies = JoinSet::new();
    for (place, (path, body)) in waiting.into_iter().enumerate() {
        let api = gateway.http("api");
        replies.spawn(async move { (place, api.post(path, body).await.status) });
    }
    eventually("they are taken", async || {
        gateway.ledger().await["listeners"]["api"]["received"] == 3
    })
    .await;
    let idle = api.get("/").await;
    assert_eq!(idle.status, 404);
    let began = Instant::now();
    let ended = gateway.terminate().await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(ended.status.success(), "{}", ended.log);
    assert!(ended.log.contains("\"kept\":2"), "one row and one point: {}", ended.log);
    let mut replies = replies.join_all().await;
    replies.sort_unstable();
    assert_eq!(replies, [(0, 204), (1, 504), (2, 504)]);
}

/// A client that does not finish keeps nobody else from an answer.
#[tokio::test]
async fn a_stop_answers_who_waits_beside_a_client_that_hangs() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let mut gateway = Gateway::start(&config("", &influxdb("b", &dead.url(), ""), &["b"])).await;
    let mut half = TcpStream::connect(gateway.addr("api", "tcp")).await.unwrap();
    half.write_all(b"POST /v1/points HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n[")
        .await
        .unwrap();
    let api = gateway.http("api");
    let waiting =
        tokio::spawn(async move { api.post("/v1/points?ack=delivered", point(1)).await.status });
    eventually("it is taken", async || gateway.ledger().await["listeners"]["api"]["received"] == 1)
        .await;
    let ended = gateway.terminate().await;
    assert!(ended.log.contains("\"kept\":1"), "{}", ended.log);
    assert_eq!(waiting.await.unwrap(), 504);
}

/// A reload replaces the listener; who waits at the old one is answered all the same.
#[tokio::test]
async fn a_reload_leaves_nobody_without_an_answer() {
    let influx = FakeHttp::start([]).await;
    let section = format!(
        "[backends.b]\nkind = 'influxdb'\nurl = '{}'\ndatabase = 'd'\nflush = '5s'\n",
        influx.url()
    );
    let mut gateway = Gateway::start(&config("", &section, &["b"])).await;
    let api = gateway.http("api");
    let counter = r#"{"name":"c","type":"counter","value":2}"#;
    let waiting = tokio::spawn(async move { api.post("/v1/points?ack=delivered", counter).await });
    eventually("it is taken", async || gateway.ledger().await["listeners"]["api"]["received"] == 1)
        .await;
    let began = Instant::now();
    let changed = config("limits = { tags = 5, request = '20s' }\n", &section, &["b"]);
    gateway.reload(&changed).await.expect_success();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(waiting.await.unwrap().status, 204);
}

async fn post(gateway: &Gateway, query: &str, number: usize) -> Reply {
    gateway.http("api").post(&format!("/v1/points{query}"), point(number)).await
}

fn point(number: usize) -> String {
    format!(r#"{{"name":"n","time":{},"value":{number}}}"#, 1_700_000_000 + number)
}

fn counter(number: usize) -> String {
    format!(r#"{{"name":"c{number}","type":"counter","value":1}}"#)
}

/// Whether the point with this number has arrived.
fn has(server: &FakeHttp, number: usize) -> bool {
    let mark = format!("value={number} ");
    let float = format!("value={number}.0 ");
    let lines = |body: &str| body.contains(&mark) || body.contains(&float);
    server.received().iter().any(|request| lines(&request.body))
}

fn config(keys: &str, backends: &str, names: &[&str]) -> String {
    let listener = |name: &str, protocol: &str| {
        format!("[listeners.{name}]\nprotocol = '{protocol}'\nbind = ['tcp://127.0.0.1:0']\n{keys}")
    };
    let listeners = [("api", "http"), ("tsdb", "opentsdb"), ("lines", "influxdb")];
    let listeners = listeners.map(|(name, protocol)| listener(name, protocol)).concat();
    format!(
        "grace = '1s'\n[admin]\nbind = '127.0.0.1:0'\n{listeners}{backends}[[routes]]\nto = {names:?}\n"
    )
}

/// A backend that holds its batches open for an hour for those who do not wait.
fn influxdb(name: &str, url: &str, keys: &str) -> String {
    format!(
        "[backends.{name}]\nkind = 'influxdb'\nurl = '{url}'\ndatabase = 'd'\naggregate = false\n\
         flush = '1h'\nretry = {{ first = '20ms', max = '100ms' }}\n{keys}\n"
    )
}
