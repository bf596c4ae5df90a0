//! A kill costs nothing that was acknowledged: rounds of load with `ack = "queued"`, each of which
//! ends with `kill -9` at a moment that chance chooses, and a start on the same data.
//!
//! Every point tells its number in its series, its time and its value, so that afterwards a real
//! InfluxDB can be asked for each of them. Points whose answer never came may be there or not.
//! `POINTSMAN_ENDURANCE=full` plays 200 rounds instead of 10; `POINTSMAN_SEED` repeats a run, as
//! far as machines do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr)]

mod common;

use std::collections::BTreeMap;
use std::env;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Gateway, Http, Influxd, eventually_within};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The backend is well, so what is acknowledged is in it already, or on disk, or in both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill9_costs_nothing_that_was_acknowledged() {
    let influx = Influxd::start().await;
    let mut story = Story::begin(&influx).await;
    for _ in 0..rounds() {
        story.round().await;
    }
    story.check(&influx).await;
}

/// The backend is away all the while, so all of it has to come from disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill9_while_the_backend_is_away_costs_nothing_that_was_acknowledged() {
    let mut influx = Influxd::start().await;
    let mut story = Story::begin(&influx).await;
    influx.kill9();
    for _ in 0..rounds() {
        story.round().await;
        let recovered = book(&story.gateway).await["recovered"].as_u64().unwrap();
        assert!(recovered + 1 >= story.acknowledged(), "{recovered} of {}", story.acknowledged());
    }
    influx.restart().await;
    story.check(&influx).await;
}

struct Story {
    gateway: Gateway,
    chance: StdRng,
    next: Arc<AtomicU64>,
    /// What each request's numbers were, and whether it was acknowledged.
    told: Vec<(Range<u64>, bool)>,
    longest_start: Duration,
}

impl Story {
    async fn begin(influx: &Influxd) -> Story {
        let seed = env::var("POINTSMAN_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seed = seed.unwrap_or(now.as_nanos() as u64);
        eprintln!("POINTSMAN_SEED={seed}");
        let gateway = Gateway::start(&config(&influx.url())).await;
        // The first creates the database, and sees the way through.
        let reply = gateway.http("api").post("/v1/points?ack=delivered", points(0..1)).await;
        reply.expect_success();
        let chance = StdRng::seed_from_u64(seed);
        let next = Arc::new(AtomicU64::new(1));
        Story { gateway, chance, next, told: vec![(0..1, true)], longest_start: Duration::ZERO }
    }

    /// Clients send until the gateway is killed; then it is started again.
    async fn round(&mut self) {
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let put = client % 3 == 2;
            let http = self.gateway.http(if put { "tsdb" } else { "api" });
            let next = Arc::clone(&self.next);
            let count = self.chance.random_range(1..=10);
            clients.spawn(send(http, put, next, count));
        }
        let moment = self.chance.random_range(20..400);
        sleep(Duration::from_millis(moment)).await;
        self.gateway.kill9();
        self.told.extend(clients.join_all().await.into_iter().flatten());
        let began = Instant::now();
        self.gateway.restart().await;
        self.longest_start = self.longest_start.max(began.elapsed());
    }

    fn acknowledged(&self) -> u64 {
        self.told.iter().filter(|(_, acked)| *acked).map(|(range, _)| range.end - range.start).sum()
    }

    /// Asks the database for all of them.
    async fn check(&mut self, influx: &Influxd) {
        eventually_within(Duration::from_secs(120), "all is delivered", async || {
            book(&self.gateway).await["held"]["total"] == 0
        })
        .await;
        let mut there = BTreeMap::<u64, u32>::new();
        for series in 0..SERIES {
            for row in influx.rows("d", &format!("SELECT value FROM s{series}")).await {
                let number = row["value"].as_f64().unwrap() as u64;
                assert_eq!(number % SERIES, series);
                assert_eq!(row["time"], millis(number) * 1_000_000);
                *there.entry(number).or_default() += 1;
            }
        }
        let twice: Vec<_> = there.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "more than once: {twice:?}");
        let missing: Vec<_> = self
            .told
            .iter()
            .filter(|(range, acked)| *acked && !range.clone().all(|n| there.contains_key(&n)))
            .collect();
        assert!(missing.is_empty(), "acknowledged and not there: {missing:?}");
        let sent = self.next.load(Ordering::Relaxed);
        assert!(there.keys().all(|number| *number < sent), "nobody sent these");
        let (rounds, acked) = (rounds(), self.acknowledged());
        assert!(acked > rounds * 10, "only {acked} points in {rounds} rounds");
        let (found, longest) = (there.len(), self.longest_start);
        eprintln!(
            "{rounds} kills: {sent} points sent, {acked} acknowledged, {found} found, none missing, \
             none twice; the longest start took {longest:?}"
        );
    }
}

/// Sends requests of so many points one after the other, until one is not answered.
async fn send(http: Http, put: bool, next: Arc<AtomicU64>, count: u64) -> Vec<(Range<u64>, bool)> {
    let mut told = Vec::new();
    loop {
        let first = next.fetch_add(count, Ordering::Relaxed);
        let numbers = first..first + count;
        let (path, body) = match put {
            true => ("/api/put", puts(numbers.clone())),
            false => ("/v1/points", points(numbers.clone())),
        };
        let answer = http.send(reqwest::Method::POST, path, &[], body.into_bytes()).await;
        let acknowledged = answer.as_ref().is_ok_and(|reply| reply.status == 204);
        told.push((numbers, acknowledged));
        match answer {
            Ok(reply) => assert_eq!(reply.status, 204, "{reply:?}"),
            Err(_) => return told,
        }
    }
}

async fn book(gateway: &Gateway) -> serde_json::Value {
    gateway.ledger().await["backends"]["b"].take()
}

fn points(numbers: Range<u64>) -> String {
    let point = |n| format!(r#"{{"name":"s{}","time":{},"value":{n}}}"#, n % SERIES, millis(n));
    format!("[{}]", numbers.map(point).collect::<Vec<_>>().join(","))
}

fn puts(numbers: Range<u64>) -> String {
    let point =
        |n| format!(r#"{{"metric":"s{}","timestamp":{},"value":{n}}}"#, n % SERIES, millis(n));
    format!("[{}]", numbers.map(point).collect::<Vec<_>>().join(","))
}

fn millis(number: u64) -> u64 {
    1_700_000_000_000 + number
}

fn rounds() -> u64 {
    if env::var("POINTSMAN_ENDURANCE").as_deref() == Ok("full") { 200 } else { 10 }
}

fn config(url: &str) -> String {
    format!(
        "[admin]\nbind = '127.0.0.1:0'\n\
         [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\nack = 'queued'\n\
         [listeners.tsdb]\nprotocol = 'opentsdb'\nbind = ['tcp://127.0.0.1:0']\nack = 'queued'\n\
         [backends.b]\nkind = 'influxdb'\nurl = '{url}'\ndatabase = 'd'\ncreate_database = true\n\
         retry = {{ first = '20ms', max = '200ms' }}\n[[routes]]\nto = ['b']\n"
    )
}

const CLIENTS: u64 = 6;
const SERIES: u64 = 7;
