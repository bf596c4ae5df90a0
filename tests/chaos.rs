//! Conservation under chaos: faults by turns, seeded and printed, on three InfluxDB backends, a
//! datagram sink and a stream server at once, while points come in by every protocol and the
//! configuration is reloaded all the time.
//!
//! At each quiet moment both equations of the books hold for every listener and every backend. At
//! the end, when all is well again and nothing is held any more:
//!
//! - `flaky`, which is at worst sent a payload again, has every point once (a point that comes
//!   again is the same row), and nothing was dropped;
//! - `folded`, as flaky, but of windows: the counters' sum is that of what was sent;
//! - `picky`, which refuses for good now and then and whose queue is small: what it has is at
//!   least what is counted as delivered, and at most that and what is counted as dropped (a lost
//!   answer and a refusal after it, say);
//! - `local`, the store, has what is counted as delivered;
//! - `datagrams` and `streams` got nothing that was not sent. Of datagrams, what is counted as
//!   delivered is there, but for the few that lay unread in the sink's socket each time it went,
//!   which nobody can know of. Streams may lose, and get again, what was on its way when they
//!   broke. Of the calm at the end, both get all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr, unreachable_pub)]

mod common;
#[path = "chaos/traffic.rs"]
mod traffic;
#[path = "chaos/weather.rs"]
mod weather;

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

use common::{Gateway, Influxd, eventually, eventually_within, size};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use tokio::time::sleep;
use traffic::{PACE, TCP, Traffic, UDP};
use weather::Weather;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_unseen_whatever_goes_wrong() {
    let seed = std::env::var("POINTSMAN_SEED")
        .ok()
        .map_or_else(by_the_clock, |seed| seed.parse().expect("POINTSMAN_SEED is a number"));
    eprintln!("POINTSMAN_SEED={seed}");
    let mut chaos = Chaos::begin(seed).await;
    let began = Instant::now();
    let length = Duration::from_secs(size(14, 600));
    while began.elapsed() < length {
        chaos.act().await;
        chaos.check_equations().await;
    }
    chaos.end().await;
    chaos.check_what_arrived().await;
    chaos.check_calm().await;
    chaos.tell(began.elapsed()).await;
}

fn by_the_clock() -> u64 {
    u64::from(SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos())
}

struct Chaos {
    gateway: Gateway,
    one: Influxd,
    other: Influxd,
    weather: Weather,
    traffic: Traffic,
    reloads: u64,
    refused: u64,
}

impl Chaos {
    async fn begin(seed: u64) -> Chaos {
        let (one, other) = (Influxd::start().await, Influxd::start().await);
        for (server, database) in [(&one, "flaky"), (&one, "picky"), (&other, "folded")] {
            server.create_database(database).await;
        }
        let weather = Weather::new(seed, &one, &other).await;
        let gateway = Gateway::start(&config(&weather, 0)).await;
        let traffic = Traffic::new().await;
        Chaos { gateway, one, other, weather, traffic, reloads: 0, refused: 0 }
    }

    /// Some seconds of points, changes of weather, and a reload.
    async fn act(&mut self) {
        let mut change = Instant::now();
        for _ in 0..STEPS {
            let next = Instant::now() + PACE;
            self.traffic.step(&self.gateway).await;
            while change <= Instant::now() {
                self.weather.change().await;
                change += self.weather.pause();
            }
            if self.weather.below(STEPS / 3) == 0 {
                self.reload().await;
            }
            sleep(next.saturating_duration_since(Instant::now())).await;
        }
    }

    /// To another configuration, or to none: one with a mistake changes nothing.
    async fn reload(&mut self) {
        let choice = self.weather.below(8);
        let config = config(&self.weather, choice);
        if choice == 7 {
            self.refused += 1;
            let reply = self.gateway.reload(&(config + "[backends.wrong]\nkind = 'none'\n")).await;
            assert_eq!(reply.status, 422, "{reply:?}");
        } else {
            self.reloads += 1;
            self.gateway.reload(&config).await.expect_success();
        }
    }

    /// Nothing comes in for a moment: the books balance, and tell of each point that was sent.
    async fn check_equations(&mut self) {
        let (sent, bad) = (self.traffic.sent, self.traffic.bad);
        let ledger = eventually("all that was sent is received", async || {
            let ledger = self.gateway.ledger().await;
            let received = |name: &str| ledger["listeners"][name]["received"].as_u64();
            let is_in = WAYS.iter().all(|(name, ways)| received(name) == Some(ways * sent));
            is_in.then_some(ledger)
        })
        .await;
        for (name, ways) in WAYS {
            let book = &ledger["listeners"][name];
            assert_eq!(sum(&book["rejected"]), ways * bad, "{name}: {book}");
            assert_eq!((&book["balanced"], &book["kernel_dropped"]), (&json!(true), &json!(0)));
            assert_eq!(book["routed"], book["received"], "{name}: {book}");
        }
        for (name, book) in ledger["backends"].as_object().unwrap() {
            assert_eq!(book["balanced"], true, "{name}: {book}");
        }
        for name in ["flaky", "folded", "picky", "local"] {
            let book = &ledger["backends"][name];
            assert_eq!(book["handed"], 4 * sent, "{name}: {book}");
        }
        self.gateway.daemon.assert_alive();
    }

    /// All is well, and everything that is held finds its end.
    async fn end(&mut self) {
        self.weather.clear().await;
        self.gateway.reload(&config(&self.weather, 0)).await.expect_success();
        eventually_within(LONG, "nothing is held any more", async || {
            let ledger = self.gateway.ledger().await;
            let mut books = ledger["backends"].as_object().unwrap().values();
            books.all(|book| book["held"]["total"] == 0)
        })
        .await;
        self.check_equations().await;
    }

    async fn check_what_arrived(&self) {
        let (sent, sum) = (self.traffic.sent, self.traffic.sum());
        let flaky = self.book("flaky").await;
        assert_eq!((&flaky["dropped"], &flaky["delivered"]), (&json!({}), &json!(4 * sent)));
        assert_eq!(rows(&self.one, "flaky").await, 4 * sent);

        let folded = self.book("folded").await;
        assert_eq!(folded["dropped"], json!({}));
        assert_eq!(json!(rows(&self.other, "folded").await), folded["delivered"]);
        for name in [UDP, TCP] {
            let select = format!("SELECT sum(count) AS n FROM \"{name}\"");
            assert_eq!(self.other.rows("folded", &select).await[0]["n"], json!(sum), "{name}");
        }

        let picky = self.book("picky").await;
        let (delivered, dropped) =
            (picky["delivered"].as_u64().unwrap(), self::sum(&picky["dropped"]));
        let present = rows(&self.one, "picky").await;
        assert!((delivered..=delivered + dropped).contains(&present), "{present}: {picky}");

        assert_eq!(json!(self.stored()), self.book("local").await["delivered"]);
        self.check_relays().await;
    }

    async fn check_relays(&self) {
        let sent: HashSet<String> = self.relayed(0).collect();
        let (datagrams, streams) = (self.weather.udp.lines(), self.weather.tcp.lines());
        for line in datagrams.iter().chain(&streams) {
            assert!(sent.contains(line), "never sent: {line}");
        }
        let different: HashSet<_> = datagrams.iter().collect();
        let delivered = self.book("datagrams").await["delivered"].as_u64().unwrap();
        // Each time that streams may have lost what was on its way is counted.
        let breaks = self.weather.tcp.departures;
        let told = self.book("streams").await["noticed"]["reconnected"].as_u64().unwrap_or(0);
        assert!((1..=breaks).contains(&told) || breaks == 0, "{told} of {breaks}");
        let unread = self.weather.udp.departures * UNREAD;
        let known = delivered.saturating_sub(unread)..=delivered;
        assert!(known.contains(&(different.len() as u64)), "{} not in {known:?}", different.len());
    }

    /// When nothing goes wrong, everybody has everything.
    async fn check_calm(&mut self) {
        let first = self.traffic.sent;
        for _ in 0..10 {
            self.traffic.step(&self.gateway).await;
        }
        let calm: HashSet<String> = self.relayed(first).collect();
        eventually("the relays have all of the calm", async || {
            let lines = |lines: Vec<String>| lines.into_iter().collect::<HashSet<_>>();
            let (udp, tcp) = (lines(self.weather.udp.lines()), lines(self.weather.tcp.lines()));
            calm.is_subset(&udp) && calm.is_subset(&tcp)
        })
        .await;
        self.end().await;
        self.check_what_arrived().await;
    }

    /// The lines that relays are sent, from this number on.
    fn relayed(&self, first: u64) -> impl Iterator<Item = String> {
        let line = |name: &str, n: u64| format!("{name}:{n}|c|#s:{}", n % 1000);
        (first..self.traffic.sent).flat_map(move |n| [line(UDP, n), line(TCP, n)])
    }

    fn stored(&self) -> i64 {
        let file = self.gateway.data_dir().join("store.db");
        let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        db.query_row("SELECT count(*) FROM points", [], |row| row.get(0)).unwrap()
    }

    async fn book(&self, backend: &str) -> Value {
        self.gateway.ledger().await["backends"][backend].take()
    }

    async fn tell(&self, took: Duration) {
        let (points, peak) = (4 * self.traffic.sent, self.gateway.daemon.peak_bytes() >> 20);
        let (reloads, refused) = (self.reloads, self.refused);
        eprintln!(
            "{points} points in {took:.0?}, {reloads} reloads and {refused} refused, {peak} MiB"
        );
        for (name, book) in self.gateway.ledger().await["backends"].as_object().unwrap() {
            let of = |key: &str| book[key].to_string();
            let [handed, rows, delivered, dropped, retries] =
                ["handed", "folded_rows", "delivered", "dropped", "retries"].map(of);
            eprintln!(
                "{name}: {handed} handed, {rows} rows of windows, {delivered} delivered, \
                 {dropped} dropped, {retries} retries"
            );
        }
        let heard = [self.weather.udp.lines().len(), self.weather.tcp.lines().len()];
        let departures = self.weather.udp.departures;
        eprintln!("the sinks heard {heard:?} lines; that of datagrams went {departures} times");
    }
}

/// Rows of all measurements; each row has one field that is never missing.
async fn rows(server: &Influxd, database: &str) -> u64 {
    let rows = server.rows(database, "SELECT count(*) FROM /chaos.*/").await;
    let most = |row: serde_json::Map<String, Value>| {
        let counts = row.iter().filter(|(key, _)| key.starts_with("count_"));
        counts.filter_map(|(_, count)| count.as_u64()).max().unwrap_or(0)
    };
    rows.into_iter().map(most).sum()
}

fn sum(reasons: &Value) -> u64 {
    reasons.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// The bits of `choice` change a backend each.
fn config(weather: &Weather, choice: u32) -> String {
    let bit = |bit: u32| choice >> bit & 1 == 1;
    let database = |name: &str, url: String, keys: String| {
        format!(
            "[backends.{name}]\nkind = 'influxdb'\nurl = '{url}'\ndatabase = '{name}'\n\
             retry = {{ first = '20ms', max = '200ms' }}\n{keys}\n"
        )
    };
    let timeout = if bit(0) { "300ms" } else { "600ms" };
    let flush = if bit(1) { "200ms" } else { "350ms" };
    let points = if bit(2) { 50 } else { 300 };
    let streams = if bit(0) && bit(1) { "" } else { ", 'streams'" };
    [
        LISTENERS.to_owned(),
        database(
            "flaky",
            weather.flaky.url(),
            format!(
                "aggregate = false\nflush = '50ms'\ntimeout = '{timeout}'\nmemory = '16KiB'\n\
                 batch = {{ points = {points} }}"
            ),
        ),
        database(
            "folded",
            weather.folded.url(),
            format!(
                "flush = '{flush}'\ntimeout = '400ms'\nmemory = '64KiB'\n\
                 expire = {{ gauge = '0s' }}\nbatch = {{ points = 500 }}"
            ),
        ),
        database(
            "picky",
            weather.picky.url(),
            format!(
                "aggregate = false\nflush = '50ms'\ntimeout = '{timeout}'\nmemory = '64KiB'\n\
                 spool = false\nbatch = {{ points = {points} }}"
            ),
        ),
        format!("[backends.local]\nkind = 'store'\naggregate = false\nflush = '{flush}'\n"),
        relay("datagrams", &format!("udp://{}", weather.udp.address), timeout),
        relay("streams", &format!("tcp://{}", weather.tcp.address), timeout),
        format!(
            "[[routes]]\nname = 'statsd'\nmatch = {{ listener = 'statsd' }}\n\
             to = ['flaky', 'picky', 'local', 'datagrams'{streams}]\n\
             [[routes]]\nname = 'sums'\nmatch = {{ listener = 'statsd' }}\nto = ['folded']\n\
             rewrite = {{ tags = {{ drop = ['s'] }} }}\n\
             [[routes]]\nname = 'the others'\nmatch = {{ listener = ['tsdb', 'api'] }}\n\
             to = ['flaky', 'folded', 'picky', 'local']\n"
        ),
    ]
    .concat()
}

fn relay(name: &str, address: &str, timeout: &str) -> String {
    format!(
        "[backends.{name}]\nkind = 'statsd'\naddress = '{address}'\nflush = '50ms'\n\
         timeout = '{timeout}'\nmemory = '16KiB'\nretry = {{ first = '20ms', max = '200ms' }}\n\
         batch = {{ points = 50 }}\n"
    )
}

const LISTENERS: &str = "grace = '1s'\n[admin]\nbind = '127.0.0.1:0'\n\
    [listeners.statsd]\nprotocol = 'statsd'\nbind = ['udp://127.0.0.1:0', 'tcp://127.0.0.1:0']\n\
    [listeners.tsdb]\nprotocol = 'opentsdb'\nbind = ['tcp://127.0.0.1:0']\n\
    [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n";

/// By how many ways points come to each listener.
const WAYS: [(&str, u64); 3] = [("statsd", 2), ("tsdb", 1), ("api", 1)];
/// Between two quiet moments.
const STEPS: u32 = 60;
/// Lines in the sink's socket when it goes: as much as is sent in a tenth of a second, and more.
const UNREAD: u64 = 200;
const LONG: Duration = Duration::from_secs(120);
