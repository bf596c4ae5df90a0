//! Servers that go away and come back: what was sent meanwhile is there in the end, no more and
//! no less, and nobody else noticed. The servers are real; the faults are on the way to them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{
    API, Answer, FakeHttp, Fault, Gateway, Influxd, Passage, Proxy, Traffic, all_to, eventually,
    numbers_at, numbers_in, post_numbers,
};
use serde_json::json;
use std::collections::BTreeSet;

#[tokio::test]
async fn recover_exact_from_a_stop() {
    recover_exact(async |b, _| b.kill9(), async |b, _| b.restart().await).await;
}

#[tokio::test]
async fn recover_exact_from_answers_of_500() {
    let fault = Fault::Answer { status: 500, body: r#"{"error":"timeout"}"# };
    recover_exact(
        async move |_, way| way.switch(fault.clone()).await,
        async |_, way| way.switch(Fault::Pass).await,
    )
    .await;
}

#[tokio::test]
async fn recover_exact_from_a_kill_in_the_middle_of_an_answer() {
    recover_exact(
        async |b, way| {
            way.switch(Fault::ResetInAnswer).await;
            let cut = |passage: &Passage| passage.fault == Fault::ResetInAnswer;
            eventually("an answer is cut off", async || way.passages().iter().any(cut)).await;
            b.kill9();
            way.switch(Fault::Refuse).await;
        },
        async |b, way| {
            b.restart().await;
            way.switch(Fault::Pass).await;
        },
    )
    .await;
}

#[tokio::test]
async fn recover_exact_from_answers_that_are_lost() {
    recover_exact(
        async |_, way| way.switch(Fault::LoseAnswer).await,
        async |_, way| way.switch(Fault::Pass).await,
    )
    .await;
}

/// A and B are sent everything; something happens to B at number 2000, and it is well again at
/// 6000.
async fn recover_exact(
    falls_ill: impl AsyncFnOnce(&mut Influxd, &Proxy),
    is_mended: impl AsyncFnOnce(&mut Influxd, &Proxy),
) {
    let (a, mut b) = (Influxd::start().await, Influxd::start().await);
    let (way_to_a, way_to_b) = (Proxy::start(&a.url()).await, Proxy::start(&b.url()).await);
    let sections = [("a", way_to_a.url()), ("b", way_to_b.url())];
    let sections = sections.map(|(name, url)| section(name, &json!(url).to_string(), SMALL));
    let gateway = Gateway::start(&config(&sections.concat(), &["a", "b"])).await;
    let traffic = Traffic::of(10_000, &gateway, 2000);

    traffic.reach(2000).await;
    falls_ill(&mut b, &way_to_b).await;
    traffic.reach(6000).await;
    assert!(written(&way_to_b).len() < 6000, "B has fallen behind");
    eventually("A has not", async || written(&way_to_a).len() >= 6000).await;
    is_mended(&mut b, &way_to_b).await;
    traffic.finish().await;
    for name in ["a", "b"] {
        eventually("all is delivered", async || held(&gateway, name).await == 0).await;
        let book = gateway.book(name).await;
        assert_eq!((&book["delivered"], &book["dropped"]), (&json!(10_000), &json!({})), "{book}");
    }
    let all: Vec<_> = (0..10_000).collect();
    let at_a: Vec<_> = writes(&way_to_a).iter().flat_map(|body| numbers_in(body)).collect();
    assert_eq!(at_a, all, "A is sent each once and in order");
    assert_eq!(written(&way_to_b), all, "B is sent nothing out of order but the same again");
    assert_ne!(gateway.book("b").await["retries"], 0);
    let all = all.into_iter().collect();
    assert_eq!((numbers_at(&a).await == all, numbers_at(&b).await == all), (true, true));
}

/// The numbers that went this way in writes, in order. A write that repeats the one before is
/// left out.
fn written(way: &Proxy) -> Vec<u64> {
    let mut bodies = writes(way);
    bodies.dedup();
    bodies.iter().flat_map(|body| numbers_in(body)).collect()
}

/// The bodies of the writes that went this way, in order.
fn writes(way: &Proxy) -> Vec<String> {
    let writes = way.passages().into_iter().filter(|passage| passage.target.contains("/write"));
    writes.map(|passage| passage.body).collect()
}

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
        let book = gateway.book("b").await;
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
    let book = gateway.book("b").await;
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
            gateway.book("b").await["delivered"].as_u64().unwrap() > sent
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

/// It answers every question and takes no points: each trial costs one payload two seconds, and
/// no attempt fails.
#[tokio::test]
async fn pool_member_that_only_answers_questions_stays_aside() {
    let healthy = Influxd::start().await;
    let silent = FakeHttp::judging(|request| match request.target.as_str() {
        "/ping" => Answer::status(204),
        _ => Answer::hang(),
    })
    .await;
    let urls = json!([silent.url(), healthy.url()]).to_string();
    let keys = "probe = '1s'\ntimeout = '5s'";
    let gateway = Gateway::start(&config(&section("b", &urls, keys), &["b"])).await;
    let traffic = Traffic::start(&gateway, 100);
    let trials = || silent.received().iter().filter(|request| request.target != "/ping").count();
    eventually("it was on trial", async || trials() > 2).await;
    let total = traffic.stop().await;
    eventually("all is delivered", async || held(&gateway, "b").await == 0).await;
    assert_eq!(numbers_at(&healthy).await, (0..total).collect());
    let book = gateway.book("b").await;
    assert_eq!(book["retries"], 1, "the first that had no answer: {book}");
    assert!(!is_healthy(&gateway, &silent.url()).await);
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
    assert_eq!(written(&ways[1]), (0..100).collect::<Vec<_>>(), "once, in order");
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

async fn held(gateway: &Gateway, backend: &str) -> u64 {
    gateway.book(backend).await["held"]["total"].as_u64().unwrap()
}

fn config(sections: &str, names: &[&str]) -> String {
    format!("grace = '1s'\n{API}{sections}{}", all_to(names))
}

/// A backend's section; the URL, or a list of them, is written as in TOML.
fn section(name: &str, url: &str, keys: &str) -> String {
    format!(
        "[backends.{name}]\nkind = 'influxdb'\nurl = {url}\ndatabase = 'd'\n\
         create_database = true\naggregate = false\nflush = '100ms'\n\
         retry = {{ first = '20ms', max = '200ms' }}\n{keys}\n"
    )
}

/// Little memory, so that an outage of a second goes to disk.
const SMALL: &str = "memory = '16KiB'\nbatch = { points = 100, bytes = '4KiB' }";
