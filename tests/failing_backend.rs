//! A backend that answers 500 may be down, or have no better word for one bad record. Which of the
//! two it is decides what is given up: the record, or nothing at all.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{
    Answer, FakeHttp, Gateway, Received, V1, V2, api_to_influxdb, eventually, numbers_in, post,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The server names the fault, which is enough.
#[tokio::test]
async fn be_retention_500() {
    let reason =
        r#"{"code":"internal error","message":"points beyond retention policy dropped=139"}"#;
    check_poisoned(reason, Duration::from_secs(1), V2).await;
}

/// The server says nothing: that others are taken tells what the trouble is.
#[tokio::test]
async fn be_retention_500_without_a_reason() {
    check_poisoned(r#"{"error":"internal error"}"#, SUSPECT_AFTER, V1).await;
}

#[tokio::test]
async fn an_outage_of_500_gives_nothing_up_and_keeps_order() {
    let (began, well) = (Instant::now(), AtomicBool::new(false));
    let taken = Taken::default();
    let server = FakeHttp::judging(taken.clone().judge(move |request| {
        // So that it gets well while the first is tried, as a server does at any other time.
        let outage = 5 * SUSPECT_AFTER;
        if began.elapsed() > outage && numbers_in(&request.body).contains(&0) {
            well.store(true, Relaxed);
        }
        well.load(Relaxed).then_some(()).ok_or("down")
    }))
    .await;
    let gateway = Gateway::start(&config(&server, V1)).await;
    for n in 0..40 {
        post(&gateway, (0..10).map(|m| point("m", 10 * n + m)).collect::<Vec<_>>()).await;
        sleep(Duration::from_millis(50)).await;
    }
    eventually("all are delivered", async || gateway.book("influx").await["delivered"] == 400)
        .await;
    let failed = server.received().len() - taken.0.lock().unwrap().len();
    assert!(failed > 20, "it was an outage: {failed}");
    let order: Vec<_> = taken.numbers().into_iter().map(|(number, _)| number).collect();
    assert_eq!(order, (0..400).collect::<Vec<_>>(), "once each, in order");
    let book = gateway.book("influx").await;
    assert_eq!((&book["dropped"], &book["balanced"]), (&json!({}), &json!(true)), "{book}");
}

/// Three points are too old for a server that then fails at the whole body, and others keep coming.
async fn check_poisoned(reason: &'static str, patience: Duration, api: &str) {
    let taken = Taken::default();
    let server = FakeHttp::judging(
        taken.clone().judge(
            move |request| {
                if request.body.contains("old") { Err(reason) } else { Ok(()) }
            },
        ),
    )
    .await;
    let gateway = Gateway::start(&config(&server, api)).await;
    let name = |n| if [20, 21, 150].contains(&n) { "old" } else { "m" };
    post(&gateway, (0..200).map(|n| point(name(n), n)).collect::<Vec<_>>()).await;
    let mut sent = Vec::new();
    let began = Instant::now();
    while gateway.book("influx").await["refused"]["rejected_permanent"] != 3 {
        assert!(began.elapsed() < Duration::from_secs(25), "{}", gateway.book("influx").await);
        sent.push(Instant::now());
        post(&gateway, [point("m", 199 + sent.len() as u64)]).await;
        sleep(Duration::from_millis(100)).await;
    }
    let total = 200 + sent.len() as u64;
    let book = eventually("all is settled", async || {
        let book = gateway.book("influx").await;
        let is_over =
            book["handed"] == total && book["held"]["total"] == book["held"]["dead_letters"];
        is_over.then_some(book)
    })
    .await;

    assert_eq!(book["refused"], json!({"rejected_permanent": 3}));
    assert_eq!((&book["held"]["dead_letters"], &book["dropped"]), (&json!(3), &json!({})));
    assert_eq!((&book["delivered"], &book["balanced"]), (&json!(total - 3), &json!(true)));
    let arrived = taken.numbers();
    // A number that comes again takes the place of what was there, as a point does.
    let last: BTreeMap<_, _> = arrived.iter().zip(0..).map(|((n, _), place)| (n, place)).collect();
    let numbers = last.keys().map(|number| **number);
    assert!(numbers.eq((0..total).filter(|n| name(*n) == "m")), "every good one: {arrived:?}");
    assert!(last.values().is_sorted(), "in the end in order: {arrived:?}");
    let repeated = arrived.len() - last.len();
    assert!(repeated < 3 * 200, "less than the batch for each bad one: {repeated}");
    let first: BTreeMap<_, _> = arrived.iter().rev().copied().collect();
    let fresh = first.iter().filter(|(number, _)| **number >= 200);
    let delay = fresh.map(|(number, at)| *at - sent[*number as usize - 200]).max();
    assert!(delay < Some(patience + Duration::from_secs(2)), "{delay:?}");
    let peak = gateway.daemon.peak_bytes();
    assert!(peak < 128 << 20, "{peak} bytes");
}

/// The bodies that a server has taken, and when.
#[derive(Clone, Default)]
struct Taken(Arc<Mutex<Vec<(Instant, String)>>>);

impl Taken {
    /// Answers 204 to what the rule takes, and 500 with its words to anything else.
    fn judge(
        self,
        rule: impl Fn(&Received) -> Result<(), &'static str> + Send,
    ) -> impl Fn(&Received) -> Answer + Send {
        move |request| match rule(request) {
            Ok(()) => {
                self.0.lock().unwrap().push((request.at, request.body.clone()));
                Answer::status(204)
            }
            Err(words) => Answer::status(500).body(words),
        }
    }

    /// The numbers of the points, in the order in which they came, and when.
    fn numbers(&self) -> Vec<(u64, Instant)> {
        let taken = self.0.lock().unwrap();
        let numbers = taken.iter().flat_map(|(at, body)| {
            numbers_in(body).into_iter().map(|number| (number, *at)).collect::<Vec<_>>()
        });
        numbers.collect()
    }
}

fn point(name: &str, n: u64) -> Value {
    json!({"name": name, "time": 1_700_000_000 + n, "value": n})
}

fn config(server: &FakeHttp, api: &str) -> String {
    api_to_influxdb(&server.url(), KEYS).replace(V1, api)
}

const KEYS: &str = "aggregate = false\nflush = '100ms'\n\
                    retry = { first = '20ms', max = '200ms', suspect_after = '1s' }";
const SUSPECT_AFTER: Duration = Duration::from_secs(1);
