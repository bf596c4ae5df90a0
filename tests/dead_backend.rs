//! One dead backend delays neither the others nor the senders, and what it did not take is
//! accounted for to the last point.
//!
//! A accepts connections and never answers, B is healthy, C refuses connections. All three are
//! sent everything by one route.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::Duration;

use common::{Answer, FakeHttp, Gateway, Http, eventually};
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio::time::{Instant, MissedTickBehavior, interval};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_backend_delays_neither_the_others_nor_the_senders() {
    let story = fan_out(15, "").await;

    assert_eq!(story.numbers_at_b, (0..15_000).collect::<Vec<_>>());
    assert!(story.delay_p99 < Duration::from_secs(2), "{:?}", story.delay_p99);
    assert!(story.slowest_request < Duration::from_secs(2), "{:?}", story.slowest_request);
    for name in ["a", "c"] {
        let book = &story.ledger["backends"][name];
        assert_eq!((&book["delivered"], &book["held"]["total"]), (&0.into(), &15_000.into()));
        assert!(book["retries"].as_u64().unwrap() > 1, "{book}");
        accounts_for(book, 15_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_backend_with_a_small_queue_gives_up_the_oldest_and_counts_them() {
    let small = "spool = false\nmemory = '32KiB'\nbatch = { points = 100, bytes = '4KiB' }";
    let story = fan_out(5, small).await;

    assert_eq!(story.numbers_at_b, (0..5_000).collect::<Vec<_>>());
    for name in ["a", "c"] {
        let book = &story.ledger["backends"][name];
        let overflown = book["dropped"]["queue_full"].as_u64().unwrap_or(0);
        assert!((1..5_000).contains(&overflown), "{book}");
        assert!(book["queued_bytes"].as_u64().unwrap() <= 32 << 10, "{book}");
        accounts_for(book, 5_000);
    }
    accounts_for(&story.ledger["backends"]["b"], 5_000);
}

/// The third batch is refused twice; nothing may overtake it.
#[tokio::test]
async fn order_on_retry_is_kept_at_concurrency_1() {
    let statuses = [204, 204, 503, 503];
    let influx = FakeHttp::start(statuses.map(Answer::status)).await;
    let gateway = Gateway::start(&format!(
        "{LISTENERS}{}retry = {{ first = '20ms', max = '20ms' }}\nbatch = {{ points = 10 }}\n\
         [[routes]]\nto = ['b']\n",
        influxdb("b", &influx.url())
    ))
    .await;
    gateway.http("api").post("/v1/points", points(1..101)).await.expect_success();

    let accepted = || {
        let requests = influx.received().into_iter().enumerate();
        let refused = |place: usize| statuses.get(place) == Some(&503);
        requests
            .filter(|(place, _)| !refused(*place))
            .flat_map(|(_, request)| numbers(&request.body))
            .collect::<Vec<_>>()
    };
    eventually("all points are there", async || accepted().len() >= 100).await;
    assert_eq!(accepted(), (1..101).collect::<Vec<_>>());
}

struct Story {
    numbers_at_b: Vec<u64>,
    /// From the request to the gateway to the arrival at B.
    delay_p99: Duration,
    slowest_request: Duration,
    /// At a quiet moment afterwards.
    ledger: Value,
}

/// Sends 1000 points a second for so long through one route to A, B and C. `keys` go into the
/// sections of all three.
async fn fan_out(seconds: u64, keys: &str) -> Story {
    let a = FakeHttp::start((0..1000).map(|_| Answer::hang())).await;
    let b = FakeHttp::start([]).await;
    // A port that is ours, and that nobody listens on: whoever connects is refused.
    let c = TcpSocket::new_v4().unwrap();
    c.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let c = format!("http://{}", c.local_addr().unwrap());
    let sections = [("a", a.url()), ("b", b.url()), ("c", c)];
    let sections = sections.map(|(name, url)| format!("{}{keys}\n", influxdb(name, &url)));
    let gateway = Gateway::start(&format!(
        "grace = '1s'\n{LISTENERS}{}[[routes]]\nto = ['a', 'b', 'c']\n",
        sections.concat()
    ))
    .await;

    let count = seconds * 1000;
    let (sent, slowest_request) = send(&gateway.http("api"), count).await;
    let arrived = eventually("B has all points", async || {
        let requests = b.received();
        let arrivals = requests.iter().flat_map(|request| {
            numbers(&request.body).into_iter().map(|number| (number, request.at))
        });
        let arrivals: Vec<_> = arrivals.collect();
        (arrivals.len() as u64 >= count).then_some(arrivals)
    })
    .await;
    let ledger = eventually("the books balance", async || {
        let ledger = gateway.ledger().await;
        let quiet = |name: &str| ledger["backends"][name]["balanced"] == true;
        ["a", "b", "c"].into_iter().all(quiet).then_some(ledger)
    })
    .await;

    let mut delays: Vec<_> =
        arrived.iter().map(|(number, at)| *at - sent[(number / CHUNK) as usize]).collect();
    delays.sort();
    let mut numbers_at_b: Vec<_> = arrived.iter().map(|(number, _)| *number).collect();
    numbers_at_b.sort_unstable();
    Story { numbers_at_b, delay_p99: delays[delays.len() * 99 / 100], slowest_request, ledger }
}

/// Posts the numbers below `count` in small requests, 1000 points a second. Answers when each
/// request was sent, and how long the slowest answer took.
async fn send(api: &Http, count: u64) -> (Vec<Instant>, Duration) {
    let mut pace = interval(Duration::from_millis(CHUNK));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut sent, mut slowest) = (Vec::new(), Duration::ZERO);
    for first in (0..count).step_by(CHUNK as usize) {
        pace.tick().await;
        let began = Instant::now();
        api.post("/v1/points", points(first..first + CHUNK)).await.expect_success();
        slowest = slowest.max(began.elapsed());
        sent.push(began);
    }
    (sent, slowest)
}

#[track_caller]
fn accounts_for(book: &Value, points: u64) {
    let count = |value: &Value| value.as_u64().unwrap();
    let dropped: u64 = book["dropped"].as_object().unwrap().values().map(count).sum();
    let (delivered, held) = (count(&book["delivered"]), count(&book["held"]["total"]));
    assert_eq!(count(&book["handed"]), points, "{book}");
    assert_eq!(delivered + held + dropped, points, "{book}");
}

/// Points that carry these numbers as values, and as times too.
fn points(numbers: std::ops::Range<u64>) -> String {
    let point = |n: u64| format!("{{\"name\":\"n\",\"time\":{},\"value\":{n}}}", 1_700_000_000 + n);
    format!("[{}]", numbers.map(point).collect::<Vec<_>>().join(","))
}

/// The numbers in a body of line protocol, in order.
fn numbers(body: &str) -> Vec<u64> {
    let number = |line: &str| {
        let (_, value) = line.split_once("value=").unwrap();
        value.split_once(' ').unwrap().0.parse::<f64>().unwrap() as u64
    };
    body.lines().map(number).collect()
}

fn influxdb(name: &str, url: &str) -> String {
    format!(
        "[backends.{name}]\nkind = 'influxdb'\nurl = '{url}'\ndatabase = 'd'\n\
         aggregate = false\nflush = '100ms'\ntimeout = '1s'\n"
    )
}

const LISTENERS: &str = "[admin]\nbind = '127.0.0.1:0'\n\
                         [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n";

/// Points in a request, and milliseconds between requests.
const CHUNK: u64 = 10;
