//! Servers that go away and come back: what was sent meanwhile is there in the end, no more and
//! no less, and nobody else noticed. The servers are real; the faults are on the way to them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{
    Fault, Gateway, Influxd, Proxy, Traffic, eventually, numbers_at, numbers_in, post_numbers,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One of two endpoints is killed and comes back, with traffic throughout.
#[tokio::test]
async fn pool_member_dies_and_returns() {
    let (mut e1, e2) = (Influxd::start().await, Influxd::start().await);
    let way_to_e2 = Proxy::start(&e2.url()).await;
    let urls = [e1.url(), way_to_e2.url()];
    let gateway = Gateway::start(&pool(&urls)).await;
    let traffic = Traffic::start(&gateway, 100);
    eventually("both have a share", async || {
        taken(&gateway, &urls[0]).await > 0.0 && taken(&gateway, &urls[1]).await > 0.0
    })
    .await;

    e1.kill9();
    eventually("it is set aside", async || !is_healthy(&gateway, &urls[0]).await).await;
    let (at_e1, sent) = (taken(&gateway, &urls[0]).await, traffic.sent());
    eventually("points go on", async || traffic.sent() > sent + 100).await;
    let then = eventually("e2 takes them all", async || {
        let book = book(&gateway, "b").await;
        (book["delivered"].as_u64().unwrap() > sent + 100).then_some(book)
    })
    .await;
    assert_eq!(then["noticed"]["failed_over"], 1, "one attempt found out: {then}");

    e1.restart().await;
    eventually("e1 has a share again", async || taken(&gateway, &urls[0]).await > at_e1).await;
    let total = traffic.stop().await;
    eventually("all is delivered", async || held(&gateway, "b").await == 0).await;
    let at_both: BTreeSet<_> = &numbers_at(&e1).await | &numbers_at(&e2).await;
    assert_eq!(at_both, (0..total).collect(), "none is lost");
    let book = book(&gateway, "b").await;
    assert_eq!((&book["dropped"], &book["balanced"]), (&json!({}), &json!(true)), "{book}");
    assert!(way_to_e2.connections() <= 2, "{} connections to e2", way_to_e2.connections());
    let log = gateway.log();
    for words in ["the endpoint is set aside", "the endpoint takes points again"] {
        assert_eq!(log.matches(words).count(), 1, "{words}:\n{log}");
    }
    assert!(!log.contains("takes no points"), "the backend as a whole was never ill:\n{log}");
}

/// However an endpoint fails, its points go to the other, and it is back once it answers.
#[tokio::test]
async fn pool_member_may_fail_in_any_way() {
    let (e1, e2) = (Influxd::start().await, Influxd::start().await);
    let way_to_e1 = Proxy::start(&e1.url()).await;
    let urls = [way_to_e1.url(), e2.url()];
    let gateway = Gateway::start(&pool(&urls)).await;
    let traffic = Traffic::start(&gateway, 100);
    for fault in [
        Fault::Refuse,
        Fault::Hang,
        Fault::LoseAnswer,
        Fault::ResetInAnswer,
        Fault::Answer { status: 502, body: "Bad Gateway" },
        Fault::Answer { status: 503, body: "no server is available" },
    ] {
        way_to_e1.switch(fault.clone()).await;
        let what = format!("it is set aside: {fault:?}");
        eventually(&what, async || !is_healthy(&gateway, &urls[0]).await).await;
        let sent = traffic.sent();
        eventually("the other takes the points", async || {
            book(&gateway, "b").await["delivered"].as_u64().unwrap() > sent
        })
        .await;
        way_to_e1.switch(Fault::Pass).await;
        let what = format!("it is back: {fault:?}");
        eventually(&what, async || is_healthy(&gateway, &urls[0]).await).await;
    }
    let total = traffic.stop().await;
    eventually("all is delivered", async || held(&gateway, "b").await == 0).await;
    let at_both: BTreeSet<_> = &numbers_at(&e1).await | &numbers_at(&e2).await;
    assert_eq!(at_both, (0..total).collect(), "none is lost");
}

/// With all of them away the backend is away, and any that is back ends that.
#[tokio::test]
async fn pool_member_that_is_back_first_takes_all() {
    let (e1, e2) = (Influxd::start().await, Influxd::start().await);
    let ways = [Proxy::start(&e1.url()).await, Proxy::start(&e2.url()).await];
    let urls = [ways[0].url(), ways[1].url()];
    for way in &ways {
        way.switch(Fault::Refuse).await;
    }
    let gateway = Gateway::start(&pool(&urls)).await;
    post_numbers(&gateway, 0..100).await;
    eventually("both were asked", async || {
        !is_healthy(&gateway, &urls[0]).await && !is_healthy(&gateway, &urls[1]).await
    })
    .await;
    ways[1].switch(Fault::Pass).await;
    eventually("all is delivered", async || held(&gateway, "b").await == 0).await;
    assert_eq!(numbers_at(&e2).await, (0..100).collect());
    let writes = ways[1].passages().into_iter().filter(|passage| passage.target.contains("/write"));
    let written: Vec<_> = writes.flat_map(|passage| numbers_in(&passage.body)).collect();
    assert_eq!(written, (0..100).collect::<Vec<_>>(), "once, in order");
    assert!(gateway.log().contains("takes no points"), "{}", gateway.log());
}

fn pool(urls: &[String]) -> String {
    config(&section("b", &json!(urls).to_string(), "probe = '1s'\ntimeout = '1s'"), &["b"])
}

async fn is_healthy(gateway: &Gateway, endpoint: &str) -> bool {
    gateway.metrics().await.sum("pointsman_endpoint_healthy", &[("endpoint", endpoint)]) == 1.0
}

async fn taken(gateway: &Gateway, endpoint: &str) -> f64 {
    let metrics = gateway.metrics().await;
    metrics.sum("pointsman_endpoint_delivered_points_total", &[("endpoint", endpoint)])
}

async fn book(gateway: &Gateway, backend: &str) -> Value {
    gateway.ledger().await["backends"][backend].take()
}

async fn held(gateway: &Gateway, backend: &str) -> u64 {
    book(gateway, backend).await["held"]["total"].as_u64().unwrap()
}

fn config(sections: &str, names: &[&str]) -> String {
    format!("{LISTENERS}{sections}[[routes]]\nto = {names:?}\n")
}

/// A backend's section; the URL, or a list of them, is written as in TOML.
fn section(name: &str, url: &str, keys: &str) -> String {
    format!(
        "[backends.{name}]\nkind = 'influxdb'\nurl = {url}\ndatabase = 'd'\n\
         create_database = true\naggregate = false\nflush = '100ms'\n\
         retry = {{ first = '20ms', max = '200ms' }}\n{keys}\n"
    )
}

const LISTENERS: &str = "grace = '1s'\n[admin]\nbind = '127.0.0.1:0'\n\
                         [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n";
