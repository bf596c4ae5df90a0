//! Points that carry numbers, so that what is missing, comes twice or out of order shows itself.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

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

/// Numbers that are posted one small request after the other, at a steady rate, until this is
/// stopped.
pub struct Traffic {
    sent: Arc<AtomicU64>,
    goes_on: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Traffic {
    /// Numbers from 0 on to the listener `api`, so many a second.
    pub fn start(gateway: &Gateway, rate: u64) -> Traffic {
        let (sent, goes_on) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        let sending = send(gateway.http("api"), rate, Arc::clone(&sent), Arc::clone(&goes_on));
        Traffic { sent, goes_on, task: tokio::spawn(sending) }
    }

    /// How many have been answered.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Ends it; answers how many were sent. Panics if the gateway refused any.
    pub async fn stop(self) -> u64 {
        self.goes_on.store(false, Relaxed);
        self.task.await.unwrap();
        self.sent.load(Relaxed)
    }
}

async fn send(api: Http, rate: u64, sent: Arc<AtomicU64>, goes_on: Arc<AtomicBool>) {
    let chunk = (rate / REQUESTS_A_SECOND).max(1);
    let mut pace = interval(Duration::from_secs(1).mul_f64(chunk as f64 / rate as f64));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while goes_on.load(Relaxed) {
        pace.tick().await;
        let first = sent.load(Relaxed);
        api.post("/v1/points", numbered(first..first + chunk)).await.expect_success();
        sent.store(first + chunk, Relaxed);
    }
}

const REQUESTS_A_SECOND: u64 = 50;
