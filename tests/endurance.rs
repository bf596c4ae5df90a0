//! An outage of a real server that is longer than memory, with restarts in the middle of it:
//! nothing is missing afterwards, nothing came twice or out of order, those that were well
//! noticed nothing, and the gateway stayed small.
//!
//! A and B are real. C is down whenever B is, and keeps what it gets in the order in which it
//! comes. Points carry their number, and name, time and way in follow from it. And: a disk that is
//! busy with an outage does not slow senders down.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr)]

mod common;

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{FakeHttp, Gateway, Influxd, eventually, eventually_within, size};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::interval;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recover_exact_from_an_outage_longer_than_memory() {
    let mut outage = Outage::begin().await;
    let third = size(40_000, 800_000);
    outage.send(0..third).await;
    outage.restart().await;
    outage.send(third..2 * third).await;
    outage.restart().await;
    outage.send(2 * third..3 * third).await;
    let on_disk = size_of_dir(&outage.gateway.data_dir());
    let spooled = outage.held("b", "spool").await;
    assert!(spooled > 2 * third, "{spooled} points of B are on disk");
    let lasted = outage.began.elapsed();
    let recovery = outage.end(3 * third).await;
    outage.check(3 * third).await;
    eprintln!(
        "{} points, {lasted:.1?} to spool them, {} MiB on disk for B and C, back in {recovery:.1?} \
         ({:.0} points/s to each); {} MiB in memory at the most; A was {:.2} s behind at the most",
        3 * third,
        on_disk >> 20,
        (3 * third) as f64 / recovery.as_secs_f64(),
        outage.peak >> 20,
        outage.behind,
    );
}

/// 20,000 points a second: senders do not notice whether the backend is well, or away and all of
/// it goes to disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buf_throughput_is_not_throttled_by_the_disk() {
    let backend = FakeHttp::start([]).await;
    let address = backend.address();
    let mut config = config(&[("b", &backend.url(), "")]).replace("['a', 'b', 'c']", "['b']");
    config = config.replace(size("2MiB", "16MiB"), "1MiB") + STATSD;
    let gateway = Gateway::start(&config).await;
    let well = steady(&gateway, 0).await;
    drop(backend);
    let away = steady(&gateway, well.points).await;
    for (what, pace) in [("well", &well), ("away", &away)] {
        eprintln!(
            "{what}: {:.0} points/s, p99 of the answers {:.1?}, {:.1} s of CPU a million",
            pace.points as f64 / pace.took.as_secs_f64(),
            pace.p99,
            pace.cpu * 1e6 / pace.points as f64
        );
        assert!(pace.p99 < size(Duration::from_secs(2), Duration::from_millis(100)), "{what}");
    }
    let ledger = gateway.ledger().await;
    assert_eq!(ledger["listeners"]["statsd"]["kernel_dropped"], 0);
    assert!(ledger["backends"]["b"]["held"]["spool"].as_u64().unwrap() > away.points / 2);

    let _backend = FakeHttp::start_at(address, []).await;
    eventually_within(LONG, "all is delivered", async || {
        let ledger = gateway.ledger().await;
        ledger["backends"]["b"]["delivered"] == well.points + away.points
    })
    .await;
}

struct Steady {
    points: u64,
    took: Duration,
    /// Of the answers to requests.
    p99: Duration,
    /// Seconds of the gateway.
    cpu: f64,
}

/// Sends for some seconds: a request of 190 points and a datagram of 10 every 10 ms.
async fn steady(gateway: &Gateway, before: u64) -> Steady {
    let (steps, api) = (size(300, 3000), gateway.http("api"));
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let datagram = (0..10).map(|n| format!("d{n}:1|c\n")).collect::<String>();
    let mut pace = interval(Duration::from_millis(10));
    let (began, cpu) = (Instant::now(), cpu_seconds(gateway));
    let mut answers = Vec::new();
    for step in 0..steps {
        pace.tick().await;
        let items: Vec<_> = (0..190).map(|n| item(before + step * 190 + n)).collect();
        udp.send_to(datagram.as_bytes(), gateway.addr("statsd", "udp")).await.unwrap();
        let asked = Instant::now();
        api.post("/v1/points", format!("[{}]", items.join(","))).await.expect_success();
        answers.push(asked.elapsed());
    }
    let (took, points) = (began.elapsed(), steps * 200);
    eventually_within(LONG, "all has come in", async || {
        let ledger = gateway.ledger().await;
        let handed = &ledger["backends"]["b"]["handed"];
        *handed == before + points && ledger["backends"]["b"]["held"]["open"] == 0
    })
    .await;
    answers.sort();
    let p99 = answers[answers.len() * 99 / 100];
    Steady { points, took, p99, cpu: cpu_seconds(gateway) - cpu }
}

/// What the kernel has booked on the gateway: user and system time, in ticks of 10 ms.
fn cpu_seconds(gateway: &Gateway) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", gateway.daemon.pid())).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_ascii_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

struct Outage {
    gateway: Gateway,
    a: Influxd,
    b: Influxd,
    /// Its address, while it is down.
    c: Result<FakeHttp, std::net::SocketAddr>,
    began: Instant,
    /// How old the oldest that A had not got yet ever was, in seconds.
    behind: f64,
    /// The most bytes that a gateway ever had in memory.
    peak: u64,
}

impl Outage {
    async fn begin() -> Outage {
        let (a, mut b) = (Influxd::start().await, Influxd::start().await);
        let c = FakeHttp::start([]).await;
        let gateway = Gateway::start(&config(&[
            ("a", &a.url(), "create_database = true\nspool = false"),
            ("b", &b.url(), "create_database = true"),
            ("c", &c.url(), ""),
        ]))
        .await;
        b.kill9();
        let c = Err(c.address());
        Outage { gateway, a, b, c, began: Instant::now(), behind: 0.0, peak: 0 }
    }

    /// Sends these points, half of the series over HTTP and half as puts, and waits until A has
    /// all that was ever sent.
    async fn send(&mut self, numbers: Range<u64>) {
        let end = numbers.end;
        let received = self.received().await + numbers.end - numbers.start;
        let mut puts = TcpStream::connect(self.gateway.addr("tsdb", "tcp")).await.unwrap();
        let api = self.gateway.http("api");
        for first in numbers.step_by(STEP as usize) {
            let step = first..(first + STEP).min(end);
            let lines: String = step.clone().filter(|n| !goes_by_http(*n)).map(put).collect();
            let items: Vec<_> = step.filter(|n| goes_by_http(*n)).map(item).collect();
            let (posted, put) = tokio::join!(
                api.post("/v1/points", format!("[{}]", items.join(","))),
                puts.write_all(lines.as_bytes())
            );
            posted.expect_success();
            put.unwrap();
            self.look().await;
        }
        eventually_within(LONG, "all has come in and gone to A", async || {
            self.received().await == received && self.held("a", "total").await == 0
        })
        .await;
        self.look().await;
    }

    /// How A and the gateway are.
    async fn look(&mut self) {
        let ledger: Value = self.gateway.admin_get("/v1/ledger").await.json();
        let behind = ledger["backends"]["a"]["oldest_seconds"].as_f64().unwrap();
        self.behind = self.behind.max(behind);
        self.peak = self.peak.max(self.gateway.daemon.peak_bytes());
    }

    async fn restart(&mut self) {
        let held = self.held("b", "total").await;
        let ended = self.gateway.terminate().await;
        assert!(ended.status.success(), "nothing is lost: {}", ended.log);
        self.gateway.restart().await;
        for name in ["b", "c"] {
            let book = self.book(name).await;
            assert_eq!((&book["recovered"], &book["balanced"]), (&held.into(), &true.into()));
        }
    }

    /// B and C come back; answers how long it took until they had all.
    async fn end(&mut self, total: u64) -> Duration {
        self.b.restart().await;
        let began = Instant::now();
        self.c = Ok(FakeHttp::start_at(self.c.as_ref().err().copied().unwrap(), []).await);
        eventually_within(LONG, "B and C have all", async || {
            self.held("b", "total").await + self.held("c", "total").await == 0
        })
        .await;
        let took = began.elapsed();
        self.look().await;
        for name in ["b", "c"] {
            let book = self.book(name).await;
            assert_eq!(book["delivered"], total, "none was lost, none delivered twice: {book}");
            assert_eq!(book["dropped"], serde_json::json!({}), "{book}");
        }
        took
    }

    async fn check(&self, total: u64) {
        for server in [&self.a, &self.b] {
            check_series(server, total).await;
        }
        let mut numbers = vec![Vec::new(); SERIES as usize];
        for request in self.c.as_ref().ok().unwrap().received() {
            request.body.lines().map(number).for_each(|n| numbers[series(n) as usize].push(n));
        }
        for (series, numbers) in numbers.into_iter().enumerate() {
            let expected = (series as u64..total).step_by(SERIES as usize);
            assert!(numbers.into_iter().eq(expected), "the order of series {series}");
        }
        assert!(self.peak < MEMORY_MAX, "{} MiB in memory", self.peak >> 20);
        assert!(self.behind < BEHIND_MAX, "A was {} s behind", self.behind);
        // An empty file is kept for a moment.
        eventually("the disk is given back", async || {
            size_of_dir(&self.gateway.data_dir()) < 300 << 10
        })
        .await;
    }

    async fn received(&self) -> u64 {
        let ledger = self.gateway.ledger().await;
        let received = |name: &str| ledger["listeners"][name]["received"].as_u64().unwrap();
        received("api") + received("tsdb")
    }

    async fn book(&self, backend: &str) -> Value {
        self.gateway.ledger().await["backends"][backend].take()
    }

    async fn held(&self, backend: &str, place: &str) -> u64 {
        self.book(backend).await["held"][place].as_u64().unwrap()
    }
}

/// Count, sum, and the values at both ends of time, of each series.
async fn check_series(server: &Influxd, total: u64) {
    let select = "SELECT count(value), sum(value), first(value), last(value) FROM n GROUP BY s";
    let rows = server.rows("d", select).await;
    assert_eq!(rows.len() as u64, SERIES);
    for row in rows {
        let series: u64 = row["s"].as_str().unwrap().parse().unwrap();
        let numbers = || (series..total).step_by(SERIES as usize);
        let expected = [
            numbers().count() as u64,
            numbers().sum(),
            numbers().next().unwrap(),
            numbers().last().unwrap(),
        ];
        let found = ["count", "sum", "first", "last"].map(|key| row[key].as_f64().unwrap() as u64);
        assert_eq!(found, expected, "series {series}");
    }
    for (selector, n) in [("first", 0), ("last", total - SERIES)] {
        let select = format!("SELECT {selector}(value) FROM n WHERE s = '0'");
        let rows = server.rows("d", &select).await;
        assert_eq!(rows[0]["time"], seconds(n) * 1_000_000_000, "the {selector} time");
    }
}

fn series(n: u64) -> u64 {
    n % SERIES
}

fn seconds(n: u64) -> u64 {
    1_600_000_000 + n / SERIES
}

fn goes_by_http(n: u64) -> bool {
    series(n) < SERIES / 2
}

fn item(n: u64) -> String {
    let (series, time) = (series(n), seconds(n));
    format!(r#"{{"name":"n","tags":{{"s":"{series}"}},"time":{time},"value":{n}}}"#)
}

fn put(n: u64) -> String {
    format!("put n {} {n} s={}\n", seconds(n), series(n))
}

/// The number that a line of line protocol tells.
fn number(line: &str) -> u64 {
    let (_, value) = line.split_once("value=").unwrap();
    value.split_once(' ').unwrap().0.parse::<f64>().unwrap() as u64
}

fn size_of_dir(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(inside) if inside.is_dir() => size_of_dir(&entry.path()),
        Ok(file) => file.len(),
        // It went while we looked.
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn config(backends: &[(&str, &str, &str)]) -> String {
    let memory = size("2MiB", "16MiB");
    let sections = backends.iter().map(|(name, url, keys)| {
        format!(
            "[backends.{name}]\nkind = 'influxdb'\nurl = '{url}'\ndatabase = 'd'\n\
             aggregate = false\nmemory = '{memory}'\nretry = {{ max = '200ms' }}\n{keys}\n"
        )
    });
    let sections: String = sections.collect();
    format!("{LISTENERS}{sections}[[routes]]\nto = ['a', 'b', 'c']\n")
}

const LISTENERS: &str = "grace = '1s'\n[admin]\nbind = '127.0.0.1:0'\n\
                         [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n\
                         [listeners.tsdb]\nprotocol = 'opentsdb'\nbind = ['tcp://127.0.0.1:0']\n";

const STATSD: &str = "[listeners.statsd]\nprotocol = 'statsd'\nbind = ['udp://127.0.0.1:0']\n";

const SERIES: u64 = 100;
/// Points sent at a time.
const STEP: u64 = 10_000;
/// All of the gateway, with three queues of 16 MiB and as much again on its way to two disks.
const MEMORY_MAX: u64 = 256 << 20;
/// A flush, and an attempt on a busy machine.
const BEHIND_MAX: f64 = 3.0;
const LONG: Duration = Duration::from_secs(600);
