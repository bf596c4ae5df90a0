//! The same packets, sent to the real statsd/statsd 0.9 and to Pointsman with
//! `layout = "statsd"`, give the same readings: every name, and every value to the last bit.
//!
//! Each test starts a pair, one daemon of each with windows of the same length, and sends seeded
//! bursts of packets (`parity/traffic.rs`) to both. Then it compares all that both sent: for the
//! window that took a burst, and for the idle windows after it. JSON carries the doubles whole on
//! both sides (but no sign of a zero, which the comparison therefore cannot see).
//!
//! *Windows.* Ours end at multiples of their length since 1970, statsd's at multiples since the
//! second in which it started. Both are known, so a burst is sent while both have room for it.
//! Whether it really fell into one window on each side is read from what they sent: its first and
//! its last packet carry counters of their own. A burst that an edge has split (on a machine that
//! stood still) is not compared, and changes nothing for the next; the pair is run again if too
//! few are left. Idle windows are paired by their distance from the burst.
//!
//! *Loss.* The sender waits after every few packets until the kernel's queues of both sockets are
//! empty. In the end both sides must have counted every packet, every sample and every refusal.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::print_stderr)]
#![allow(unreachable_pub, missing_docs)]

mod common;
#[path = "parity/readings.rs"]
mod readings;
#[path = "parity/traffic.rs"]
mod traffic;

use std::collections::BTreeMap;
use std::time::SystemTime;

use common::{Gateway, StatsdJs, StatsdOptions, eventually, is_drained};
use readings::{Readings, differences, of_flush, of_lines};
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use traffic::Traffic;

/// The large one: 7 bursts of 9,000 samples, default percentiles, nothing is ever forgotten, and
/// gauges and idle series go from window to window.
#[tokio::test]
async fn every_reading_agrees_to_the_last_bit() {
    let setup = Setup {
        // A length that is a bit off when it is rounded twice; statsd rounds it once.
        window_ms: 2361,
        percentiles: None,
        statsd: json!({}),
        expire: r#"{ counter = "never", timer = "never", set = "never", gauge = "never" }"#,
        bursts: 7,
        samples: 9_000,
        idle_windows: 0,
    };
    check(&setup, 50_000).await;
}

/// statsd's `deleteIdleStats`: a series is sent only for windows in which it was seen. With every
/// sort of percentile: fractions, and of the largest samples, all of them even.
#[tokio::test]
async fn idle_series_are_forgotten_alike() {
    let setup = Setup {
        window_ms: 1500,
        percentiles: Some(vec![50.0, 90.0, 95.0, 99.0, 99.9, 100.0, -10.0, -0.5, -100.0]),
        statsd: json!({ "deleteIdleStats": true }),
        expire: r#"{ gauge = "0s" }"#,
        bursts: 4,
        samples: 1_500,
        idle_windows: 1,
    };
    check(&setup, 3_000).await;
}

/// statsd's `gaugesMaxTTL = 2` sends a gauge for one idle window more; so does `gauge` in `expire`
/// when it is one window long. A change to a forgotten gauge starts from zero on both sides.
#[tokio::test]
async fn idle_gauges_live_on_alike() {
    let setup = Setup {
        window_ms: 1500,
        percentiles: Some(vec![75.0]),
        statsd: json!({ "deleteIdleStats": true, "gaugesMaxTTL": 2 }),
        expire: r#"{ gauge = "1500ms" }"#,
        bursts: 3,
        samples: 300,
        idle_windows: 2,
    };
    check(&setup, 600).await;
}

/// How a pair is set up, and what it is sent.
struct Setup {
    window_ms: u64,
    percentiles: Option<Vec<f64>>,
    statsd: Value,
    expire: &'static str,
    bursts: usize,
    samples: usize,
    /// Whole windows without a packet between two bursts.
    idle_windows: u32,
}

/// Runs pairs until so many samples were compared, which the first one does unless the machine
/// stands still at the wrong moments. Any difference fails at once.
async fn check(setup: &Setup, samples: usize) {
    for seed in 1..=4 {
        let outcome = run(setup, seed).await;
        let compared = outcome.compare();
        eprintln!("{} windows, {} of them idle", compared.windows, compared.idle);
        if compared.bursts * setup.samples >= samples && compared.idle > 0 {
            return;
        }
    }
    panic!("window edges fell into the bursts of every run");
}

async fn run(setup: &Setup, seed: u64) -> Outcome {
    let pair = Pair::start(setup).await;
    let mut traffic = Traffic::new(seed);
    let mut packets_sent = 0;
    for burst in 0..setup.bursts {
        let mut packets = traffic.burst(setup.samples);
        packets.insert(0, format!("{}:1|c", marker(burst, "first")));
        packets.push(format!("{}:1|c", marker(burst, "last")));
        traffic.good += 2;
        packets_sent += packets.len();
        pair.send(&packets).await;
        pair.next_windows(setup.idle_windows).await;
    }
    pair.next_windows(1).await;
    pair.finish(packets_sent, &traffic, setup.bursts).await
}

/// A daemon of each sort, with windows of the same length.
struct Pair {
    statsd: StatsdJs,
    gateway: Gateway,
    socket: UdpSocket,
    grids: [Grid; 2],
}

impl Pair {
    async fn start(setup: &Setup) -> Pair {
        let gateway = Gateway::start(&configuration(setup)).await;
        let statsd = StatsdJs::start(StatsdOptions {
            flush_interval_ms: setup.window_ms,
            percentiles: setup.percentiles.clone().unwrap_or(vec![90.0]),
            extra: setup.statsd.clone(),
        })
        .await;
        let started_ms = statsd.started().await * 1000;
        let window_ms = setup.window_ms;
        let grids = [0, started_ms % window_ms].map(|offset_ms| Grid { offset_ms, window_ms });
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        Pair { statsd, gateway, socket, grids }
    }

    /// Sends a burst at a moment when both sides have just begun a window, if there is one, or
    /// else will not end theirs for a while.
    async fn send(&self, packets: &[String]) {
        let fits = || self.grids.iter().all(|grid| grid.has_room(now_ms()));
        eventually("both windows have room", async || fits()).await;
        let receivers = [self.statsd.address(), self.gateway.addr("statsd", "udp")];
        for few in packets.chunks(AT_ONCE) {
            for packet in few {
                for to in receivers {
                    self.socket.send_to(packet.as_bytes(), to).await.unwrap();
                }
            }
            eventually("the packets are taken", async || receivers.into_iter().all(is_drained))
                .await;
        }
    }

    /// Waits for the end of the present windows, and of so many more.
    async fn next_windows(&self, more: u32) {
        let ends = self.grids.map(|grid| grid.end(now_ms()) + u64::from(more) * grid.window_ms);
        let end = ends[0].max(ends[1]);
        eventually("the windows end", async || now_ms() > end).await;
    }

    /// Ends both, and checks that nothing was lost on the way to them.
    async fn finish(mut self, packets: usize, traffic: &Traffic, bursts: usize) -> Outcome {
        // The books are read one number after the other, and balance when nothing moves.
        let ledger = eventually("the books balance", async || {
            let ledger = self.gateway.ledger().await;
            let balanced = |book: &serde_json::Value| book["balanced"] == true;
            let quiet =
                balanced(&ledger["listeners"]["statsd"]) && balanced(&ledger["backends"]["screen"]);
            quiet.then_some(ledger)
        })
        .await;
        let flushes = self.statsd.finish_all().await;
        let sum = |counter: &str| -> f64 {
            flushes.iter().map(|flush| flush["counters"][counter].as_f64().unwrap()).sum()
        };
        assert_eq!(sum("statsd.packets_received"), packets as f64);
        assert_eq!(sum("statsd.bad_lines_seen"), traffic.bad as f64);
        let listener = &ledger["listeners"]["statsd"];
        let dropped = &ledger["backends"]["screen"]["dropped"];
        let refused = total(&listener["rejected"]) + total(dropped);
        assert_eq!(refused, traffic.bad as u64, "{ledger:#}");
        let taken = listener["received"].as_u64().unwrap() - total(dropped);
        assert_eq!(taken, traffic.good as u64, "{ledger:#}");
        assert_eq!(listener["kernel_dropped"], 0);
        self.gateway.terminate().await;
        Outcome {
            statsd: flushes.iter().map(of_flush).collect(),
            ours: of_lines(&self.gateway.stdout()),
            window_ns: i64::try_from(self.grids[0].window_ms).unwrap() * 1_000_000,
            bursts,
        }
    }
}

fn configuration(setup: &Setup) -> String {
    let percentiles = setup.percentiles.as_ref();
    let percentiles = percentiles.map_or(String::new(), |some| format!("percentiles = {some:?}"));
    let Setup { window_ms, expire, .. } = setup;
    format!(
        r#"
        [listeners.statsd]
        protocol = "statsd"
        bind = ["udp://127.0.0.1:0"]
        # That server knows no tags in names; its characters are to be made fit here too.
        dialects = ["dogstatsd"]
        [admin]
        bind = "127.0.0.1:0"
        [backends.screen]
        kind = "stdout"
        aggregate = true
        layout = "statsd"
        flush = "{window_ms}ms"
        expire = {expire}
        {percentiles}
        [[routes]]
        to = ["screen"]
        "#
    )
}

/// Where one side's windows end.
#[derive(Clone, Copy)]
struct Grid {
    offset_ms: u64,
    window_ms: u64,
}

impl Grid {
    fn end(self, now_ms: u64) -> u64 {
        now_ms + self.window_ms - self.since_edge(now_ms)
    }

    fn since_edge(self, now_ms: u64) -> u64 {
        (now_ms - self.offset_ms) % self.window_ms
    }

    /// Two grids cut time into pieces, one of which is at least half a window long, so that both
    /// have room once in each window.
    fn has_room(self, now_ms: u64) -> bool {
        let since = self.since_edge(now_ms);
        since >= TIMER_LATENESS_MS && self.window_ms - since >= self.window_ms * 2 / 5
    }
}

/// All that both sides sent.
struct Outcome {
    statsd: Vec<Readings>,
    ours: BTreeMap<i64, Readings>,
    window_ns: i64,
    bursts: usize,
}

/// How much was compared, and found equal.
#[derive(Default)]
struct Compared {
    bursts: usize,
    windows: usize,
    idle: usize,
}

impl Outcome {
    fn compare(&self) -> Compared {
        let mut compared = Compared::default();
        for burst in 0..self.bursts {
            let (Some(theirs), Some(ours)) = (self.theirs(burst), self.ours(burst)) else {
                continue;
            };
            assert_same(&self.statsd[theirs], &self.ours[&ours], &format!("burst {burst}"));
            compared.bursts += 1;
            compared.windows += 1;
            let idle = self.compare_idle(burst, theirs, ours);
            compared.windows += idle;
            compared.idle += idle;
        }
        compared
    }

    /// Compares the windows between a burst and the next; the last one of a run is left out,
    /// since it ended when its daemon did.
    fn compare_idle(&self, burst: usize, theirs: usize, ours: i64) -> usize {
        let first_of_next =
            |window: &Readings| window.get(&count_of(burst + 1, "first")) == Some(&1.0);
        let their_end = self.statsd.iter().position(first_of_next);
        let their_end = their_end.unwrap_or(self.statsd.len() - 1);
        let our_end = self.ours.iter().find(|(_, window)| first_of_next(window));
        let (last, _) = self.ours.last_key_value().unwrap();
        let our_end = our_end.map_or(*last, |(time, _)| *time);
        let windows = (theirs + 1..their_end).zip((1..).map(|n| ours + n * self.window_ns));
        let windows = windows.take_while(|(_, time)| *time < our_end);
        let nothing = Readings::new();
        let mut idle = 0;
        for (theirs, time) in windows {
            let ours = self.ours.get(&time).unwrap_or(&nothing);
            assert_same(&self.statsd[theirs], ours, &format!("idle after burst {burst}"));
            idle += 1;
        }
        idle
    }

    /// The one flush that holds all of a burst.
    fn theirs(&self, burst: usize) -> Option<usize> {
        self.statsd.iter().position(|window| holds(window, burst))
    }

    /// The end of our one window that holds all of a burst.
    fn ours(&self, burst: usize) -> Option<i64> {
        self.ours.iter().find(|(_, window)| holds(window, burst)).map(|(time, _)| *time)
    }
}

fn holds(window: &Readings, burst: usize) -> bool {
    ["first", "last"].iter().all(|end| window.get(&count_of(burst, end)) == Some(&1.0))
}

fn assert_same(statsd: &Readings, ours: &Readings, what: &str) {
    let differences = differences(statsd, ours);
    assert!(differences.is_empty(), "{what}:\n{}", differences.join("\n"));
}

fn marker(burst: usize, end: &str) -> String {
    format!("burst{burst}.{end}")
}

fn count_of(burst: usize, end: &str) -> String {
    format!("stats.counters.{}.count", marker(burst, end))
}

/// The sum of counts by reason.
fn total(counts: &Value) -> u64 {
    counts.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

/// So few large packets that the smallest usual receive buffer holds them.
const AT_ONCE: usize = 24;
/// How late a daemon's timer usually is.
const TIMER_LATENESS_MS: u64 = 30;
