//! What InfluxDB answers decides what becomes of the points: held, divided, given up by reason,
//! never repeated without end and never lost without a word. The servers are scripted.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::time::Duration;

use common::{
    Answer, FakeHttp, Gateway, Received, V1, V2, api_to_influxdb, eventually, influxdb, post,
};
use serde_json::{Value, json};

#[tokio::test]
async fn be_413_split_halves_and_learns() {
    let server = FakeHttp::judging(|request| match request.body.len() {
        0..=2048 => Answer::status(204),
        _ => Answer::status(413),
    })
    .await;
    let gateway = Gateway::start(&api_to_influxdb(&server.url(), "gzip = false")).await;
    let refused = || bodies(&server).into_iter().filter(|body| body.len() > 2048).count();

    post(&gateway, &(0..100).map(sixty_bytes).collect::<Vec<_>>()).await;
    eventually("all are delivered", async || delivered(&gateway).await == 100).await;
    assert!((1..=3).contains(&refused()), "{}", refused());
    let first = refused();

    post(&gateway, &[json!({"name": "large", "text": "x".repeat(3000), "time": TIME})]).await;
    eventually("the large one is given up", async || {
        gateway.metrics().await.sum(REFUSED, &[("reason", "too_large")]) == 1.0
    })
    .await;
    assert_eq!(refused(), first + 1, "it was tried once, alone");

    post(&gateway, &(100..200).map(sixty_bytes).collect::<Vec<_>>()).await;
    eventually("all are delivered", async || delivered(&gateway).await == 200).await;
    assert_eq!(refused(), first + 1, "the size was learnt");
    let kept = lines(&server, |request| request.body.len() <= 2048);
    assert_eq!(kept, (0..200).map(sixty_byte_line).collect::<Vec<_>>(), "once each, in order");
    assert_balanced(&gateway, 1).await;
}

#[tokio::test]
async fn one_bad_line_that_refuses_the_body_costs_no_neighbour() {
    let server = FakeHttp::judging(|request| {
        let refusal = r#"{"code":"invalid","message":"unable to parse 'bad'"}"#;
        match request.body.contains("bad") {
            true => Answer::status(400).body(refusal),
            false => Answer::status(204),
        }
    })
    .await;
    let gateway = Gateway::start(&api_to_influxdb(&server.url(), "")).await;
    let name = |n| if n == 1234 { "bad".to_owned() } else { format!("good{n}") };
    let points = |n: u32| json!({"name": name(n), "value": n, "time": TIME});
    post(&gateway, &(0..5000).map(points).collect::<Vec<_>>()).await;

    eventually("the good ones are delivered", async || delivered(&gateway).await == 4999).await;
    let kept = lines(&server, |request| !request.body.contains("bad"));
    let expected = (0..5000).filter(|n| *n != 1234);
    let expected = expected.map(|n| format!("good{n} value={n} {TIME}"));
    assert!(kept.into_iter().eq(expected), "all the others, once each and in order");
    assert!(server.received().len() <= 30, "{}", server.received().len());
    assert_eq!(gateway.book("influx").await["refused"], json!({"rejected": 1}));
    assert_balanced(&gateway, 1).await;
    assert!(gateway.log().contains("unable to parse 'bad'"), "the server's words are logged");
}

#[tokio::test]
async fn be_missing_db_holds_the_points() {
    let missing = r#"{"code":"not found","message":"bucket \"b\" not found"}"#;
    check_held(Answer::status(404).body(missing), "bucket").await;
}

#[tokio::test]
async fn be_missing_db_holds_while_a_token_is_wrong() {
    check_held(Answer::status(401).body(r#"{"message":"unauthorized access"}"#), "401").await;
}

#[tokio::test]
async fn an_answer_without_end_is_judged_by_its_status_and_costs_no_memory() {
    for (status, refused, expected) in [(200, 0, json!({})), (422, 1, json!({"rejected": 1}))] {
        let server = FakeHttp::judging(move |_| Answer::status(status).endless_body()).await;
        let gateway = Gateway::start(&api_to_influxdb(&server.url(), "")).await;
        post(&gateway, &[sixty_bytes(1)]).await;

        let book = eventually("it is settled", async || {
            let book = gateway.book("influx").await;
            let fates = (book["delivered"] == 1 - refused, book["refused"] == expected);
            (fates == (true, true)).then_some(book)
        })
        .await;
        assert_eq!((&book["refused"], &book["retries"]), (&expected, &json!(0)), "{status}");
        assert_eq!(server.received().len(), 1, "{status}: sent once");
        let peak = gateway.daemon.peak_bytes();
        assert!(peak < 128 << 20, "{status}: {peak} bytes");
        assert_balanced(&gateway, refused).await;
    }
}

#[tokio::test]
async fn a_database_is_created_by_an_answer_without_end_and_refused_in_the_servers_words() {
    let server = FakeHttp::judging(|request| match request.target.starts_with("/query") {
        true => Answer::status(200).endless_body(),
        false => Answer::status(204),
    })
    .await;
    server.then(Answer::status(401).body(r#"{"error":"authorization failed"}"#));
    server.then(Answer::status(200).body(r#"{"results":[{"error":"invalid name"}]}"#));
    let keys = "create_database = true\nretry = { first = \"20ms\", max = \"20ms\" }";
    let gateway = Gateway::start(&api_to_influxdb(&server.url(), keys)).await;
    post(&gateway, &[sixty_bytes(1)]).await;

    eventually("it is delivered", async || delivered(&gateway).await == 1).await;
    let targets: Vec<_> = server.received().into_iter().map(|request| request.target).collect();
    let create = "/query?q=CREATE+DATABASE+%22d%22";
    assert_eq!(targets, [create, create, create, "/write?db=d&precision=ns"]);
    let peak = gateway.daemon.peak_bytes();
    assert!(peak < 128 << 20, "{peak} bytes");
    let log = gateway.log();
    assert!(log.contains("create database `d`: 401 authorization failed"), "{log}");
}

/// The answer comes until somebody mends the server, and whoever asks is told of it meanwhile.
async fn check_held(answer: Answer, words: &str) {
    let server = FakeHttp::start(vec![answer; 1000]).await;
    let keys = "retry = { first = \"50ms\", max = \"200ms\" }";
    let gateway = Gateway::start(&api_to_influxdb(&server.url(), keys)).await;
    let points: Vec<_> = (0..100).map(sixty_bytes).collect();
    assert_eq!(health(&gateway).await, (Value::Null, 1.0), "nothing speaks against it");
    post(&gateway, &points).await;
    eventually("it is asked again", async || server.received().len() >= 5).await;
    let (ill, healthy) = health(&gateway).await;
    assert!(ill.as_str().is_some_and(|ill| ill.contains(words)), "{ill}");
    assert_eq!(healthy, 0.0);

    server.heal();
    eventually("all are delivered", async || delivered(&gateway).await == 100).await;
    assert_eq!(health(&gateway).await, (Value::Null, 1.0));
    let received = server.received();
    assert!(received.iter().all(|request| request.body == received[0].body), "nothing changed");
    let book = gateway.book("influx").await;
    let retries = json!(received.len() - 1);
    assert_eq!((&book["dropped"], &book["retries"]), (&json!({}), &retries));
    let log = gateway.log();
    let complaints = log.lines().filter(|line| line.contains("takes no points")).count();
    assert_eq!(complaints, 1, "it is said once:\n{log}");
    assert!(log.contains(words), "{log}");
    assert_eq!(gateway.admin_get("/-/ready").await.status, 200);
}

/// Why the backend takes nothing, and what the metrics say.
async fn health(gateway: &Gateway) -> (Value, f64) {
    let ill = gateway.book("influx").await["ill"].take();
    (ill, gateway.metrics().await.sum("pointsman_backend_healthy", &[("backend", "influx")]))
}

#[tokio::test]
async fn be_429_waits_as_it_is_told_and_no_other_backend_does() {
    be_429(V1).await;
}

#[tokio::test]
async fn be_429_by_the_api_of_2x() {
    be_429(V2).await;
}

async fn be_429(api: &str) {
    let tired = FakeHttp::start([
        Answer::status(429).header("Retry-After", "2"),
        Answer::status(503),
        Answer::status(429).header("Retry-After", "Wed, 21 Oct 2099 07:28:00 GMT"),
    ])
    .await;
    let well = FakeHttp::start([]).await;
    let gateway = Gateway::start(&format!(
        "{}{}[[routes]]\nname = 'copy'\nto = ['well']",
        api_to_influxdb(&tired.url(), "retry = { max = '5s' }").replace(V1, api),
        influxdb("well", &well.url(), ""),
    ))
    .await;
    post(&gateway, &[sixty_bytes(7)]).await;

    eventually("it is delivered in the end", async || delivered(&gateway).await == 1).await;
    let received = tired.received();
    assert_eq!(received.len(), 4);
    let path = if api.contains("v2") { "/api/v2/write?" } else { "/write?" };
    assert!(received.iter().all(|request| request.target.starts_with(path)));
    assert!(received.iter().all(|request| request.body == received[0].body));
    let waits: Vec<_> = received.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(waits[0] >= Duration::from_secs(2), "{waits:?}");
    assert!(waits[2] >= Duration::from_millis(4900), "{waits:?}");
    assert!(waits[2] < Duration::from_secs(60), "a silly date is capped: {waits:?}");
    assert_eq!(well.received().len(), 1);
    assert!(well.received()[0].at < received[1].at, "the other backend did not wait");
}

/// A point whose line has sixty bytes.
fn sixty_bytes(n: u32) -> Value {
    json!({"name": format!("{n:031}"), "value": 1, "time": TIME})
}

fn sixty_byte_line(n: u32) -> String {
    format!("{n:031} value=1 {TIME}")
}

async fn delivered(gateway: &Gateway) -> u64 {
    gateway.book("influx").await["delivered"].as_u64().unwrap()
}

/// Nothing is dropped, and nothing held but so many dead letters.
async fn assert_balanced(gateway: &Gateway, dead: u64) {
    let book = gateway.book("influx").await;
    assert_eq!((&book["balanced"], &book["dropped"]), (&json!(true), &json!({})), "{book}");
    assert_eq!(book["held"]["total"], dead, "{book}");
    assert_eq!(book["held"]["dead_letters"], dead, "{book}");
}

fn bodies(server: &FakeHttp) -> Vec<String> {
    server.received().into_iter().map(|request| request.body).collect()
}

/// The lines of the requests that the server took.
fn lines(server: &FakeHttp, taken: impl Fn(&Received) -> bool) -> Vec<String> {
    let taken = server.received().into_iter().filter(taken);
    taken.flat_map(|request| request.body.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

const TIME: i64 = 1_700_000_000_000_000_000;
const REFUSED: &str = "pointsman_refused_points_total";
