//! One dead backend delays neither the others nor the senders, and what it did not take is
//! accounted for to the last point.
//!
//! A accepts connections and never answers, B is healthy, C refuses connections. All three are
//! sent everything by one route.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{
    API, Answer, FakeHttp, Fault, Gateway, Influxd, Proxy, Traffic, eventually, numbers_at,
    numbers_in, post_numbers,
};
use serde_json::Value;

#[tokio::test]
async fn dead_backend_delays_neither_the_others_nor_the_senders() {
    let story = FanOut::run(5000, "").await;

    for name in ["a", "c"] {
        let book = story.book(name);
        assert_eq!((&book["delivered"], &book["held"]["total"]), (&0.into(), &5000.into()));
        assert!(book["retries"].as_u64().unwrap() > 1, "{book}");
        accounts_for(book, 5000);
    }
    story.heal().await;
}

#[tokio::test]
async fn dead_backend_with_a_small_queue_gives_up_the_oldest_and_counts_them() {
    let small = "spool = false\nmemory = '32KiB'\nbatch = { points = 100, bytes = '4KiB' }";
    let story = FanOut::run(10_000, small).await;

    for name in ["a", "c"] {
        let book = story.book(name);
        let overflown = book["dropped"]["queue_full"].as_u64().unwrap_or(0);
        assert!((1..10_000).contains(&overflown), "{book}");
        assert!(book["queued_bytes"].as_u64().unwrap() <= 32 << 10, "{book}");
        accounts_for(book, 10_000);
    }
    accounts_for(story.book("b"), 10_000);
    story.heal().await;
}

/// The third batch is refused twice; nothing may overtake it.
#[tokio::test]
async fn order_on_retry_is_kept_at_concurrency_1() {
    let statuses = [204, 204, 503, 503];
    let influx = FakeHttp::start(statuses.map(Answer::status)).await;
    let gateway = Gateway::start(&format!(
        "{API}{}retry = {{ first = '20ms', max = '20ms' }}\nbatch = {{ points = 10 }}\n\
         [[routes]]\nto = ['b']\n",
        influxdb("b", &influx.url())
    ))
    .await;
    post_numbers(&gateway, 1..101).await;

    let accepted = || {
        let requests = influx.received().into_iter().enumerate();
        let refused = |place: usize| statuses.get(place) == Some(&503);
        requests
            .filter(|(place, _)| !refused(*place))
            .flat_map(|(_, request)| numbers_in(&request.body))
            .collect::<Vec<_>>()
    };
    eventually("all points are there", async || accepted().len() >= 100).await;
    assert_eq!(accepted(), (1..101).collect::<Vec<_>>());
}

/// With four attempts side by side, younger batches may overtake those that are refused; none is
/// lost, and none comes twice.
#[tokio::test]
async fn order_on_retry_is_given_up_at_concurrency_4_and_nothing_else() {
    let statuses = [204, 204, 503, 503];
    let influx = FakeHttp::start(statuses.map(Answer::status)).await;
    let gateway = Gateway::start(&format!(
        "{API}{}concurrency = 4\nretry = {{ first = '20ms', max = '20ms' }}\n\
         batch = {{ points = 10 }}\n[[routes]]\nto = ['b']\n",
        influxdb("b", &influx.url())
    ))
    .await;
    post_numbers(&gateway, 1..101).await;

    let settled = eventually("all points are there", async || {
        let ledger = gateway.ledger().await;
        (ledger["backends"]["b"]["delivered"] == 100).then_some(ledger)
    })
    .await;
    assert_eq!(settled["backends"]["b"]["retries"], 2);
    let requests = influx.received();
    let taken = requests.iter().enumerate().filter(|(place, _)| !(2..4).contains(place));
    let mut accepted: Vec<_> = taken.flat_map(|(_, request)| numbers_in(&request.body)).collect();
    accepted.sort_unstable();
    assert_eq!(accepted, (1..101).collect::<Vec<_>>());
}

/// One server and three ways to it, which stand for three.
struct FanOut {
    count: u64,
    gateway: Gateway,
    ways: [Proxy; 3],
    /// At a quiet moment after all was sent.
    ledger: Value,
    _server: Influxd,
}

impl FanOut {
    /// Sends so many points, 1000 a second, through one route to A, B and C. `keys` go into the
    /// sections of all three. B must have all in the end, and most of it all the time.
    async fn run(count: u64, keys: &str) -> FanOut {
        let server = Influxd::start().await;
        server.create_database("d").await;
        let start = async || Proxy::start(&server.url()).await;
        let ways = [start().await, start().await, start().await];
        ways[0].switch(Fault::Hang).await;
        ways[2].switch(Fault::Refuse).await;
        let sections = ["a", "b", "c"].into_iter().zip(&ways);
        let sections =
            sections.map(|(name, way)| format!("{}{keys}\n", influxdb(name, &way.url())));
        let gateway = Gateway::start(&format!(
            "grace = '1s'\n{API}{}[[routes]]\nto = ['a', 'b', 'c']\n",
            sections.collect::<String>()
        ))
        .await;

        let traffic = Traffic::of(count, &gateway, RATE);
        for sent in (RATE..=count).step_by(RATE as usize) {
            traffic.reach(sent).await;
            let at_b = gateway.ledger().await["backends"]["b"]["delivered"].as_u64().unwrap();
            assert!(at_b + BEHIND >= sent, "B has {at_b} of {sent}");
        }
        traffic.finish().await;
        let all = (0..count).collect();
        eventually("B has all points", async || numbers_at(&server).await == all).await;
        let ledger = eventually("the books balance", async || {
            let ledger = gateway.ledger().await;
            let quiet = |name: &str| {
                let book = &ledger["backends"][name];
                book["balanced"] == true && book["held"]["inbox"] == 0 && book["held"]["open"] == 0
            };
            let b_is_done = ledger["backends"]["b"]["held"]["total"] == 0;
            (b_is_done && ["a", "c"].into_iter().all(quiet)).then_some(ledger)
        })
        .await;
        assert_eq!(ledger["backends"]["b"]["dropped"], serde_json::json!({}));
        FanOut { count, gateway, ways, ledger, _server: server }
    }

    fn book(&self, name: &str) -> &Value {
        &self.ledger["backends"][name]
    }

    /// A and C are well again, and take all that was kept for them.
    async fn heal(self) {
        for way in &self.ways {
            way.switch(Fault::Pass).await;
        }
        for name in ["a", "c"] {
            let book = eventually("all that was kept is delivered", async || {
                let book = self.gateway.ledger().await["backends"][name].take();
                (book["held"]["total"] == 0).then_some(book)
            })
            .await;
            assert_ne!(book["delivered"], 0);
            accounts_for(&book, self.count);
        }
    }
}

#[track_caller]
fn accounts_for(book: &Value, points: u64) {
    let count = |value: &Value| value.as_u64().unwrap();
    let dropped: u64 = book["dropped"].as_object().unwrap().values().map(count).sum();
    let (delivered, held) = (count(&book["delivered"]), count(&book["held"]["total"]));
    assert_eq!(count(&book["handed"]), points, "{book}");
    assert_eq!(delivered + held + dropped, points, "{book}");
}

fn influxdb(name: &str, url: &str) -> String {
    common::influxdb(name, url, "aggregate = false\nflush = '100ms'\ntimeout = '1s'")
}

/// Points a second.
const RATE: u64 = 1000;

/// How many points B may be behind: an age, so that only a lane that waits for another is it.
const BEHIND: u64 = 3000;
