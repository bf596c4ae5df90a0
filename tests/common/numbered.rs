//! Points that carry numbers, so that what is missing, comes twice or out of order shows itself.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::eventually::eventually;
use super::gateway::Gateway;
use super::http::Http;
use super::influxd::Influxd;

/// A body for `/v1/points`: the numbers as values of the series `n`, and as seconds of its times.
pub fn numbered(numbers: Range<u64>) -> String {
    let point = |n: u64| format!("{{\"name\":\"n\",\"time\":{},\"value\":{n}}}", 1_700_000_000 + n);
    format!("[{}]", numbers.map(point).collect::<Vec<_>>().join(","))
}

/// Posts these numbers to the gateway's listener `api`.
pub async fn post_numbers(gateway: &Gateway, numbers: Range<u64>) {
    gateway.http("api").post("/v1/points", numbered(numbers)).await.expect_success();
}

/// The numbers in a body of line protocol, in order.
pub fn numbers_in(body: &str) -> Vec<u64> {
    let number = |line: &str| {
        let (_, value) = line.split_once("value=").unwrap();
        value.split_once(' ').unwrap().0.parse::<f64>().unwrap() as u64
    };
    body.lines().map(number).collect()
}

/// The numbers that a server has in the database `d`; panics where a time is not its number's.
pub async fn numbers_at(server: &Influxd) -> BTreeSet<u64> {
    let rows = server.rows("d", "SELECT value FROM n").await;
    let number = |row: &serde_json::Map<String, serde_json::Value>| {
        let number = row["value"].as_f64().unwrap() as u64;
        assert_eq!(row["time"].as_u64().unwrap(), (1_700_000_000 + number) * 1_000_000_000);
        number
    };
    rows.iter().map(number).collect()
}

/// Numbers from 0 on that are posted one small request after the other, at a steady rate.
pub struct Traffic {
    sent: Arc<AtomicU64>,
    goes_on: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Traffic {
    /// So many a second to the listener `api`, until this is stopped.
    pub fn start(gateway: &Gateway, rate: u64) -> Traffic {
        Traffic::of(u64::MAX, gateway, rate)
    }

    /// The same, up to so many.
    pub fn of(count: u64, gateway: &Gateway, rate: u64) -> Traffic {
        let (sent, goes_on) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        let pace = (rate, count);
        let sending = send(gateway.http("api"), pace, Arc::clone(&sent), Arc::clone(&goes_on));
        Traffic { sent, goes_on, task: tokio::spawn(sending) }
    }

    /// How many have been answered.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Waits until so many have been answered.
    pub async fn reach(&self, number: u64) {
        let what = format!("number {number} is sent");
        eventually(&what, async || self.task.is_finished() || self.sent() >= number).await;
    }

    /// Waits for the end of those that have one. Panics if the gateway refused any.
    pub async fn finish(self) {
        self.task.await.unwrap();
    }

    /// Ends it; answers how many were sent. Panics if the gateway refused any.
    pub async fn stop(self) -> u64 {
        self.goes_on.store(false, Relaxed);
        self.task.await.unwrap();
        self.sent.load(Relaxed)
    }
}

async fn send(
    api: Http,
    (rate, count): (u64, u64),
    sent: Arc<AtomicU64>,
    goes_on: Arc<AtomicBool>,
) {
    let chunk = (rate / REQUESTS_A_SECOND).max(1);
    let mut pace = interval(Duration::from_secs(1).mul_f64(chunk as f64 / rate as f64));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while goes_on.load(Relaxed) && sent.load(Relaxed) < count {
        pace.tick().await;
        let first = sent.load(Relaxed);
        let next = (first + chunk).min(count);
        api.post("/v1/points", numbered(first..next)).await.expect_success();
        sent.store(next, Relaxed);
    }
}

const REQUESTS_A_SECOND: u64 = 50;
