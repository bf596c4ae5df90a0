//! A request that waits for what becomes of its points and carries an `Idempotency-Key`: what is
//! remembered is what became of them, however long that took and whoever was there to hear it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::Duration;

use common::{Answer, FakeHttp, Gateway, Reply, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

#[tokio::test]
async fn a_repeated_request_is_told_the_truth_when_it_is_known() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let gateway = Gateway::start(&config(&influxdb(&dead, ""))).await;
    let late = ask(&gateway, WRITE).await;
    assert_eq!((late.status, late.header("retry-after")), (504, Some("1")), "{late:?}");
    assert!(late.body.contains("what becomes of it is open"), "{late:?}");
    let open = ask(&gateway, WRITE).await;
    assert_eq!((open.status, open.header("retry-after")), (409, Some("1")), "{open:?}");
    assert_eq!(open.header("idempotency-replayed"), None);
    let sync = "/api/put?sync&sync_timeout=100&summary";
    let put = r#"{"metric":"n","timestamp":1700000002,"value":2}"#;
    assert_eq!(send(&gateway, sync, "other", put).await.json()["timeouts"], 1);

    let well = revived(dead, []).await;
    assert_eq!(known(&gateway, WRITE).await.status, 204);
    let counts = eventually("that of the other is known", async || {
        let reply = send(&gateway, sync, "other", put).await;
        (reply.status != 409).then_some(reply)
    })
    .await;
    assert_eq!(counts.json(), json!({ "success": 1, "failed": 0, "timeouts": 0 }));
    assert_eq!(received(&gateway).await, 2, "each was kept once");
    let lines: Vec<_> = well.received().into_iter().map(|request| request.body).collect();
    assert_eq!(lines.concat().lines().count(), 2, "{lines:?}");
    assert_eq!(send(&gateway, "/v1/points", "k", POINT).await.status, 422, "another request");
}

/// Whether its sender hears it or not, a refusal is remembered as one.
#[tokio::test]
async fn a_sender_that_goes_away_turns_no_refusal_into_a_success() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let listener = "limits = { request = '20s' }";
    let gateway = Gateway::start(&config(&influxdb(&dead, "")).replace(LIMITS, listener)).await;
    let first = timeout(Duration::from_millis(300), ask(&gateway, WRITE)).await;
    assert!(first.is_err(), "its sender is gone");
    assert_eq!(received(&gateway).await, 1);
    let refusal = Answer::status(400).body(r#"{"error":"field type conflict"}"#);
    let _well = revived(dead, [refusal]).await;
    let told = ask(&gateway, WRITE).await;
    assert_eq!((told.status, told.header("idempotency-replayed")), (422, Some("true")), "{told:?}");
    assert!(told.body.contains("field type conflict"), "{told:?}");
    assert_eq!(received(&gateway).await, 1);
}

#[tokio::test]
async fn what_was_lost_is_told_again_and_when_to_come_back() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let keys = "memory = '1B'\nspool = false\nwhen_full = 'drop_newest'";
    let gateway = Gateway::start(&config(&influxdb(&dead, keys))).await;
    send(&gateway, "/v1/points?ack=queued", "first", POINT).await.expect_success();
    for replayed in [None, Some("true"), Some("true")] {
        let lost = send(&gateway, "/v1/points?ack=queued", "second", POINT).await;
        assert_eq!((lost.status, lost.header("retry-after")), (503, Some("1")), "{lost:?}");
        assert_eq!(lost.header("idempotency-replayed"), replayed);
    }
}

/// Nobody will know any more, and that is what is remembered; whoever waits is not left waiting.
#[tokio::test]
async fn a_stop_remembers_that_nothing_is_known() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let listener = "limits = { request = '20s' }";
    let config = config(&influxdb(&dead, "")).replace(LIMITS, listener);
    let mut gateway = Gateway::start(&config).await;
    let path = "/v1/points?ack=delivered&timeout=15s";
    let http = [gateway.http("api"), gateway.http("api")];
    let [one, twin] = http.map(|http| {
        tokio::spawn(async move {
            let headers = [("Idempotency-Key", "k")];
            http.send(Method::POST, path, &headers, POINT.into()).await.unwrap()
        })
    });
    eventually("both are there", async || {
        let ledger = gateway.ledger().await;
        let book = &ledger["listeners"]["api"];
        book["received"] == 1 && book["connections"] == 2
    })
    .await;
    let began = Instant::now();
    let ended = gateway.terminate().await;
    assert!(ended.status.success(), "{}", ended.log);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let (one, twin) = (one.await.unwrap(), twin.await.unwrap());
    assert_eq!((one.status, twin.status), (504, 504), "{one:?} {twin:?}");
    gateway.restart().await;
    let again = send(&gateway, path, "k", POINT).await;
    assert_eq!((again.status, &again.body), (504, &one.body));
    let headers = ["idempotency-replayed", "retry-after"].map(|name| again.header(name));
    assert_eq!(headers, [Some("true"), Some("1")]);
    let well = revived(dead, []).await;
    eventually("the point is there", async || !well.received().is_empty()).await;
    assert_eq!(received(&gateway).await, 0, "and was not taken again");
}

/// The listener that took the request has gone, and its successor knows what it has learnt.
#[tokio::test]
async fn a_reload_loses_sight_of_nothing() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let backend = influxdb(&dead, "");
    let mut gateway = Gateway::start(&config(&backend)).await;
    assert_eq!(ask(&gateway, WRITE).await.status, 504);
    let changed = config(&backend).replace(LIMITS, "limits = { request = '400ms' }");
    gateway.reload(&changed).await.expect_success();
    assert_eq!(ask(&gateway, WRITE).await.status, 409, "it is still open");
    let _well = revived(dead, []).await;
    let told = known(&gateway, WRITE).await;
    assert_eq!((told.status, told.header("idempotency-replayed")), (204, Some("true")));
    assert_eq!(received(&gateway).await, 1);
}

/// What is open is known to memory alone, so a kill makes it at least once.
#[tokio::test]
async fn a_kill_forgets_what_nobody_knew() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let mut gateway = Gateway::start(&config(&influxdb(&dead, ""))).await;
    assert_eq!(ask(&gateway, WRITE).await.status, 504);
    gateway.kill9();
    gateway.restart().await;
    let well = revived(dead, []).await;
    assert_eq!(ask(&gateway, WRITE).await.status, 204, "it is a first one again");
    assert!(well.received().iter().any(|request| request.body.contains("n value=1")));
    gateway.kill9();
    gateway.restart().await;
    let again = ask(&gateway, WRITE).await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (204, Some("true")));
}

/// What comes of the request once that is known.
async fn known(gateway: &Gateway, path: &str) -> Reply {
    eventually("the fate is known", async || {
        let reply = ask(gateway, path).await;
        (reply.status != 409).then_some(reply)
    })
    .await
}

async fn ask(gateway: &Gateway, path: &str) -> Reply {
    send(gateway, path, "k", POINT).await
}

async fn send(gateway: &Gateway, path: &str, key: &str, body: &str) -> Reply {
    let headers = [("Idempotency-Key", key)];
    gateway.http("api").send(Method::POST, path, &headers, body.into()).await.unwrap()
}

async fn received(gateway: &Gateway) -> Value {
    gateway.ledger().await["listeners"]["api"]["received"].take()
}

/// A server that is well after these answers, where one was that is not.
async fn revived(dead: FakeHttp, script: impl IntoIterator<Item = Answer>) -> FakeHttp {
    let address = dead.address();
    drop(dead);
    FakeHttp::start_at(address, script).await
}

fn config(backend: &str) -> String {
    format!(
        "grace = '2s'\n[admin]\nbind = '127.0.0.1:0'\n\
         [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n{LIMITS}\n\
         {backend}[[routes]]\nto = ['b']\n"
    )
}

fn influxdb(server: &FakeHttp, keys: &str) -> String {
    format!(
        "[backends.b]\nkind = 'influxdb'\nurl = '{}'\ndatabase = 'd'\naggregate = false\n\
         flush = '1h'\nretry = {{ first = '20ms', max = '100ms' }}\n{keys}\n",
        server.url()
    )
}

const LIMITS: &str = "limits = { request = '300ms' }";
const WRITE: &str = "/v1/points?ack=delivered";
const POINT: &str = r#"{"name":"n","time":1700000001,"value":1}"#;
