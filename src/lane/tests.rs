//! Lanes from the outside: a scripted backend, tokio's paused clock, and the books.

mod acks;
mod clock;
mod restart;

use super::*;
use crate::backend::{Outcome, Payload, Shipping, TOO_LARGE};
use crate::origin::{Origin, Protocol};
use crate::units::{Size, Span};
use crate::waybill::{Leg, Via, Waybill};
use proptest::prelude::*;
use protocols::{Batch as Points, Measure, Number, Point, Skip};
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Writes `name tags time field=value …`, one line a point.
struct Lines;

impl Encode for Lines {
    fn encode(&mut self, point: &Point<'_>, out: &mut Vec<u8>) -> Result<(), Skip> {
        let mut line = point.name.to_owned();
        for tag in point.tags.sorted() {
            write!(line, ",{}={}", tag.key, tag.value_or_true()).unwrap();
        }
        write!(line, " {}", point.time.map_or(-1, |time| time.0)).unwrap();
        match point.measure {
            Measure::Fields(fields) => {
                for (key, value) in fields.iter() {
                    let protocols::FieldValue::Number(number) = value else { continue };
                    write!(line, " {key}={}", number.as_f64()).unwrap();
                }
            }
            Measure::Reading(number) if !number.as_f64().is_finite() => {
                return Err(Skip::NotFinite);
            }
            Measure::Reading(number) => write!(line, " {}", number.as_f64()).unwrap(),
            other => write!(line, " {other:?}").unwrap(),
        }
        line.push('\n');
        out.extend_from_slice(line.as_bytes());
        Ok(())
    }
}

/// What a backend did, for the test to look at.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    lines: Vec<String>,
    attempts: Vec<(Instant, usize)>,
    /// Of what was taken.
    waybills: Vec<Waybill>,
}

impl Record {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().lines.clone()
    }

    fn attempts(&self) -> Vec<(Instant, usize)> {
        self.0.lock().unwrap().attempts.clone()
    }
}

/// Answers as the script says, then takes everything; each answer takes its time.
struct Scripted {
    record: Record,
    script: VecDeque<Outcome>,
    takes: Duration,
    largest: usize,
    /// A payload that holds this is refused as a whole.
    abhors: Option<&'static str>,
    /// Lines that hold this are refused, and nothing but their number is told.
    refuses: Option<&'static str>,
    /// At a payload that holds this it fails, and so it does at all until then.
    fails: Option<&'static str>,
    ill_until: Option<Instant>,
    idempotent: bool,
}

impl Scripted {
    fn new(record: &Record) -> Self {
        Self {
            record: record.clone(),
            script: VecDeque::new(),
            takes: Duration::ZERO,
            largest: usize::MAX,
            abhors: None,
            refuses: None,
            fails: None,
            ill_until: None,
            idempotent: false,
        }
    }

    fn answer(&mut self, payload: &Payload) -> Outcome {
        if payload.body.len() > self.largest {
            return Outcome::Divide { reason: TOO_LARGE, detail: "413".to_owned() };
        }
        let text = str::from_utf8(&payload.body).unwrap();
        let is_ill = self.ill_until.is_some_and(|end| Instant::now() < end);
        if is_ill || self.fails.is_some_and(|word| text.contains(word)) {
            return failure();
        }
        if self.abhors.is_some_and(|word| text.contains(word)) {
            return Outcome::Divide { reason: "rejected", detail: "400".to_owned() };
        }
        if let Some(outcome) = self.script.pop_front() {
            return outcome;
        }
        let bad = |word| text.lines().filter(|line| line.contains(word)).count();
        match u32::try_from(self.refuses.map_or(0, bad)).unwrap() {
            0 => Outcome::Delivered,
            rejected => Outcome::Partial { rejected, reason: "partial", detail: "bad".to_owned() },
        }
    }
}

impl Ship for Scripted {
    fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a> {
        Box::pin(async move {
            let attempt = (Instant::now(), payload.body.len());
            self.record.0.lock().unwrap().attempts.push(attempt);
            sleep(self.takes).await;
            let outcome = self.answer(payload);
            if matches!(outcome, Outcome::Delivered | Outcome::Partial { .. }) {
                let is_bad = |line: &&str| self.refuses.is_some_and(|word| line.contains(word));
                let text = str::from_utf8(&payload.body).unwrap();
                let mut recorded = self.record.0.lock().unwrap();
                let kept = text.lines().filter(|line| !is_bad(line));
                recorded.lines.extend(kept.map(str::to_owned));
                recorded.waybills.push(payload.waybill.clone());
            }
            outcome
        })
    }

    fn is_idempotent(&self) -> bool {
        self.idempotent
    }
}

fn again(after: Option<u64>) -> Outcome {
    let (after, detail) = (after.map(Duration::from_secs), "later".to_owned());
    Outcome::Retry { after, answered: false, detail }
}

fn failure() -> Outcome {
    Outcome::Retry { after: None, answered: true, detail: "500".to_owned() }
}

/// A lane to a scripted backend, started at 1000.3 s since 1970.
struct Bench {
    lane: Lane,
    running: Running,
    state: Arc<State>,
    record: Record,
    clock: Clock,
}

fn settings(kind: &'static str, config: &str) -> Settings {
    Settings::new("b", kind, &toml(config))
}

fn toml(config: &str) -> Config {
    let source = ::config::File::from_str(config, ::config::FileFormat::Toml);
    ::config::Config::builder().add_source(source).build().unwrap().try_deserialize().unwrap()
}

impl Bench {
    fn new(settings: Settings, scripted: impl FnOnce(&mut Scripted)) -> Self {
        let clock = Clock::starting_at(UnixNanos::from_millis(1_000_300));
        let state = State::new(Arc::default(), settings.shards);
        let record = Record::default();
        let (lane, running) = start(settings, &state, &record, clock, scripted);
        Self { lane, running, state, record, clock }
    }

    fn send(&self, worker: usize, fill: impl FnOnce(&mut Points)) {
        send(&self.lane, self.clock, worker, fill);
    }

    fn book(&self) -> Arc<BackendBook> {
        Arc::clone(&self.state.book)
    }

    /// Ends the lane and answers what the backend took.
    async fn end(mut self) -> Vec<String> {
        drop(self.lane);
        self.running.drained().await;
        balanced(&self.state.book);
        assert_eq!(self.state.book.held(), 0);
        self.record.lines()
    }
}

fn start(
    settings: Settings,
    state: &Arc<State>,
    record: &Record,
    clock: Clock,
    scripted: impl FnOnce(&mut Scripted),
) -> (Lane, Running) {
    let mut ship = Scripted::new(record);
    scripted(&mut ship);
    spawn(settings, Arc::clone(state), Box::new(Lines), Box::new(ship), clock)
}

fn send(lane: &Lane, clock: Clock, worker: usize, fill: impl FnOnce(&mut Points)) {
    let mut points = Points::new();
    fill(&mut points);
    hand_over(lane, worker, clock.now(), Terms::default(), &points);
}

fn hand_over(lane: &Lane, worker: usize, now: UnixNanos, terms: Terms<'_>, points: &Points) {
    let origin = Origin { listener: "edge".into(), protocol: Protocol::Http };
    let via = Arc::new(Via { route: "all".into(), rewrite: None });
    let mut front = lane.front(worker, now, &origin, terms);
    for point in points.iter() {
        front.take(&point, series_hash(point.name, point.tags), &via);
    }
    front.close();
}

fn balanced(book: &BackendBook) {
    let entered = book.handed.get() + book.folded_rows.get() - book.folded_points.get();
    let left = book.delivered.get() + book.dropped.total() + book.held();
    assert_eq!(entered, left, "{book:?}");
}

fn count(points: &mut Points, name: &str, delta: f64) {
    points.begin(name).finish(Measure::Count { delta, rate: 1.0 }, None, "");
}

fn reading(points: &mut Points, name: &str, value: i64, time: Option<i64>) {
    let measure = Measure::Reading(Number::I64(value));
    points.begin(name).finish(measure, time.map(UnixNanos::from_secs), "");
}

fn dropped(book: &BackendBook, reason: &str) -> u64 {
    book.dropped.counts().iter().find(|(name, _)| *name == reason).map_or(0, |(_, n)| *n)
}

#[tokio::test(start_paused = true)]
async fn windows_carry_the_time_of_their_end() {
    let bench = Bench::new(settings("influxdb", ""), |_| {});
    bench.send(0, |points| count(points, "c", 1.0));
    bench.send(1, |points| count(points, "c", 2.0));
    sleep(Duration::from_secs(9)).await;
    assert_eq!(bench.record.lines(), [""; 0]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.record.lines(), ["c 1010000000000 count=3 rate=0.3"]);
    bench.send(0, |points| count(points, "c", 5.0));
    assert_eq!(bench.end().await[1..], ["c 1010300000000 count=5 rate=0.5"]);
}

#[tokio::test(start_paused = true)]
async fn gauges_live_on_and_expire() {
    let config = "flush = \"1s\"\nexpire = { gauge = \"2s\" }";
    let bench = Bench::new(settings("influxdb", config), |_| {});
    bench.send(0, |points| points.begin("g").finish(Measure::Gauge(10.0), None, ""));
    sleep(Duration::from_secs(1)).await;
    bench.send(1, |points| points.begin("g").finish(Measure::GaugeShift(-3.0), None, ""));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.book().series.get(), 0);
    bench.send(2, |points| points.begin("g").finish(Measure::GaugeShift(-3.0), None, ""));
    let lines = bench.end().await;
    assert_eq!(
        lines,
        [
            "g 1001000000000 value=10",
            "g 1002000000000 value=7",
            "g 1003000000000 value=7",
            "g 1004000000000 value=7",
            "g 1006300000000 value=-3",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn idle_kinds_send_zeros_when_asked() {
    let config = "flush = \"1s\"\nexpire = { counter = \"1s\", timer = \"1s\", set = \"1s\" }";
    let bench = Bench::new(settings("influxdb", config), |_| {});
    bench.send(0, |points| {
        count(points, "c", 1.0);
        points.begin("t").finish(Measure::Timing { ms: 2.0, rate: 1.0 }, None, "");
        points.begin("s").finish(Measure::Set("m"), None, "");
    });
    sleep(Duration::from_secs(4)).await;
    assert_eq!(
        bench.end().await[3..],
        [
            "c 1002000000000 count=0 rate=0",
            "t 1002000000000 count=0 rate=0",
            "s 1002000000000 count=0"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_point_with_its_own_time_leaves_the_window() {
    let bench = Bench::new(settings("influxdb", ""), |_| {});
    bench.send(0, |points| {
        let measure = Measure::Count { delta: 1.0, rate: 0.5 };
        points.begin("c").finish(measure, Some(UnixNanos(7)), "");
        reading(points, "r", 1, None);
        reading(points, "r", 2, Some(5));
    });
    assert_eq!(bench.end().await, ["c 7 count=2 rate=0.2", "r 1000300000000 1", "r 5000000000 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_relay_passes_points_as_they_are() {
    let bench = Bench::new(settings("statsd", ""), |_| {});
    bench.send(0, |points| count(points, "c", 1.0));
    assert_eq!(bench.end().await, ["c -1 Count { delta: 1.0, rate: 1.0 }"]);
}

#[tokio::test(start_paused = true)]
async fn a_payload_knows_where_its_records_came_from() {
    let bench = Bench::new(settings("influxdb", ""), |ship| ship.abhors = Some("bad"));
    bench.send(0, |points| {
        reading(points, "r", 1, Some(1));
        reading(points, "bad", 1, Some(1));
        reading(points, "r", 2, Some(2));
        let measure = Measure::Count { delta: 1.0, rate: 1.0 };
        points.begin("c").finish(measure, Some(UnixNanos(7)), "");
    });
    sleep(Duration::from_secs(2)).await;
    bench.send(0, |points| count(points, "c", 1.0));
    let record = bench.record.clone();
    assert_eq!(bench.end().await.len(), 4);
    let say = |leg: &Leg| {
        let known = leg.origin.as_deref().unwrap();
        let listener = known.origin.as_ref().map_or("no", |origin| &origin.listener);
        let route = known.via.as_ref().map_or("none", |via| &via.route);
        format!("{} {} of {listener} by {route}", leg.lines, known.kind.unwrap())
    };
    let waybills = record.0.lock().unwrap().waybills.clone();
    let said: Vec<_> = waybills.iter().flat_map(|waybill| waybill.legs().iter().map(say)).collect();
    assert_eq!(
        said,
        [
            "1 sample of edge by all",
            "1 sample of edge by all",
            "1 counter of edge by all",
            "1 counter of no by none"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn points_of_one_nanosecond_are_told_apart() {
    let bench = Bench::new(settings("influxdb", ""), |_| {});
    bench.send(0, |points| {
        reading(points, "r", 1, Some(5));
        reading(points, "r", 2, Some(5));
    });
    let book = bench.book();
    assert_eq!(bench.end().await, ["r 5000000000 1", "r 5000000001 2"]);
    assert_eq!(book.noticed.counts(), [("time_moved", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_names_never_costs_a_known_series() {
    let bench = Bench::new(settings("influxdb", "flush = \"1s\"\nmax_series = 100"), |_| {});
    for round in 0..5 {
        for n in 0..300 {
            bench.send(n, |points| count(points, &format!("x.{round}.{n}"), 1.0));
            bench.send(0, |points| count(points, "known", 1.0));
        }
        assert!(bench.book().series.get() <= 100);
        sleep(Duration::from_secs(1)).await;
    }
    let book = bench.book();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(book.series.get(), 0);
    let lines = bench.end().await;
    let known = lines.iter().filter(|line| line.starts_with("known "));
    assert!(known.clone().all(|line| line.ends_with("count=300 rate=300")), "{lines:?}");
    assert_eq!(known.count(), 5);
    assert!(dropped(&book, "series_limit") >= 1000);
}

#[tokio::test(start_paused = true)]
async fn an_inbox_is_full_by_bytes_as_well() {
    let bench = Bench::new(settings("stdout", ""), |_| {});
    let one = |points: &mut Points| reading(points, "r", 1, None);
    bench.state.inbox_bytes.store(INBOX_BYTES_MAX, Relaxed);
    assert!(bench.lane.behind());
    bench.send(0, one);
    bench.state.inbox_bytes.store(0, Relaxed);
    assert!(!bench.lane.behind());
    bench.send(0, one);
    let state = Arc::clone(&bench.state);
    assert!(state.inbox_bytes.load(Relaxed) > 0);
    assert_eq!(dropped(&bench.book(), "inbox_full"), 1);
    assert_eq!(bench.end().await.len(), 1);
    assert_eq!(state.inbox_bytes.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_worked_on_holds_up_neither_others_nor_a_stop() {
    let mut bench = Bench::new(settings("stdout", ""), |_| {});
    bench.send(0, |points| (0..5000).for_each(|n| reading(points, "r", n, None)));
    let book = bench.book();
    while book.open.get() == 0 {
        tokio::task::yield_now().await;
    }
    assert!((1..5000).contains(&book.inbox.get()), "{}", book.inbox.get());
    balanced(&book);
    assert_eq!(bench.running.abandon().await, 5000);
    assert_eq!(book.held(), 0);
    balanced(&book);
}

#[tokio::test(start_paused = true)]
async fn a_slow_backend_does_not_merge_windows() {
    let bench = Bench::new(settings("influxdb", "flush = \"1s\""), |ship| {
        ship.takes = Duration::from_millis(2500);
    });
    let start = Instant::now() + Duration::from_millis(750);
    let mut tenths = tokio::time::interval_at(start, Duration::from_millis(100));
    for _ in 0..200 {
        tenths.tick().await;
        bench.send(0, |points| count(points, "c", 1.0));
    }
    sleep(Duration::from_secs(1)).await;
    let lines = bench.end().await;
    assert_eq!(lines.len(), 20);
    for (n, line) in lines.iter().enumerate() {
        assert_eq!(*line, format!("c {} count=10 rate=10", (1002 + n) * 1_000_000_000));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_backend_keeps_the_newest_and_its_neighbour_gets_all() {
    let dead = Bench::new(settings("stdout", "memory = \"4KiB\"\nflush = \"100ms\""), |ship| {
        ship.takes = Duration::from_secs(3600);
    });
    let well = Bench::new(settings("stdout", "flush = \"100ms\""), |_| {});
    for n in 0..1000 {
        for bench in [&dead, &well] {
            bench.send(0, |points| reading(points, "r", n, Some(n)));
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(well.end().await.len(), 1000);
    let book = dead.book();
    balanced(&book);
    assert!(dropped(&book, "queue_full") > 0 && book.retries.get() > 0);
    assert!(book.queued_bytes.get() <= 4096);
    let Bench { lane, mut running, .. } = dead;
    drop(lane);
    let held = book.held();
    assert_eq!(running.abandon().await, held);
    assert_eq!((book.held(), dropped(&book, "shutdown")), (0, held));
    balanced(&book);
}

#[tokio::test(start_paused = true)]
async fn order_is_kept_under_retry() {
    let bench = Bench::new(settings("stdout", "batch = { points = 10 }"), |ship| {
        ship.script = [Outcome::Delivered, Outcome::Delivered, again(None), again(None)].into();
    });
    bench.send(0, |points| (0..100).for_each(|n| reading(points, "s", n, Some(n))));
    let book = bench.book();
    let lines = bench.end().await;
    let expected: Vec<_> = (0..100).map(|n| format!("s {} {n}", n * 1_000_000_000i64)).collect();
    assert_eq!(lines, expected);
    assert_eq!(book.retries.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_peer_says_when_to_come_back() {
    let bench = Bench::new(settings("stdout", "retry = { max = \"5s\" }"), |ship| {
        ship.script = [again(Some(2)), again(None), again(Some(2_000_000_000))].into();
    });
    bench.send(0, |points| reading(points, "r", 1, Some(1)));
    let record = bench.record.clone();
    assert_eq!(bench.end().await.len(), 1);
    let at: Vec<_> = record.attempts().iter().map(|(at, _)| *at).collect();
    let waits: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits[0] >= Duration::from_secs(2) && waits[0] <= Duration::from_millis(2101));
    assert!(waits[1] <= Duration::from_millis(201));
    assert!(waits[2] >= Duration::from_secs(5) && waits[2] < Duration::from_millis(5002));
}

#[tokio::test(start_paused = true)]
async fn a_large_payload_is_halved_and_the_size_is_learnt() {
    let bench = Bench::new(settings("stdout", "batch = { points = 1000 }"), |ship| {
        ship.largest = 2048;
    });
    let name = "n".repeat(50);
    bench.send(0, |points| (0..100).for_each(|n| reading(points, &name, n, Some(1))));
    sleep(Duration::from_secs(3)).await;
    let refused = |record: &Record| record.attempts().iter().filter(|(_, n)| *n > 2048).count();
    let first = refused(&bench.record);
    assert!((1..=3).contains(&first));
    bench.send(0, |points| {
        (0..100).for_each(|n| reading(points, &name, 100 + n, Some(1)));
        reading(points, &"x".repeat(3000), 0, Some(1));
    });
    let (book, record) = (bench.book(), bench.record.clone());
    let lines = bench.end().await;
    assert_eq!(lines.len(), 200);
    assert!(lines.iter().enumerate().all(|(n, line)| line.ends_with(&format!(" {n}"))));
    assert_eq!(refused(&record), first + 1, "only the lone large record was tried");
    assert_eq!(book.dropped.counts(), [("too_large", 1)]);
}

#[tokio::test(start_paused = true)]
async fn one_bad_record_costs_a_few_attempts_and_no_neighbour() {
    let bench = Bench::new(settings("stdout", ""), |ship| ship.abhors = Some("bad"));
    let name = |n| if n == 3210 { "bad" } else { "r" };
    bench.send(0, |points| (0..5000).for_each(|n| reading(points, name(n), n, Some(n))));
    let (book, record) = (bench.book(), bench.record.clone());
    let lines = bench.end().await;
    let values = lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<i64>().unwrap());
    assert!(values.eq((0..5000).filter(|n| *n != 3210)), "one is gone and order is kept");
    assert_eq!(book.dropped.counts(), [("rejected", 1)]);
    assert!(record.attempts().len() <= 2 * 13 + 1, "{}", record.attempts().len());
}

#[tokio::test(start_paused = true)]
async fn a_payload_full_of_bad_records_costs_a_bounded_number_of_attempts() {
    let bench = Bench::new(settings("stdout", ""), |ship| ship.abhors = Some("bad"));
    bench.send(0, |points| (0..5000).for_each(|n| reading(points, "bad", n, Some(n))));
    let (book, record) = (bench.book(), bench.record.clone());
    assert_eq!(bench.end().await, [""; 0]);
    assert_eq!(book.dropped.counts(), [("rejected", 5000)]);
    assert_eq!(record.attempts().len(), 2 * 64 + 1);
}

/// Delivers 5000 points of which those are bad; answers the book and how many attempts it took.
async fn some_are_refused(is_bad: impl Fn(i64) -> bool) -> (Arc<BackendBook>, usize) {
    let bench = Bench::new(settings("influxdb", ""), |ship| {
        (ship.refuses, ship.idempotent) = (Some("bad"), true);
    });
    let name = |n| if is_bad(n) { "bad" } else { "r" };
    bench.send(0, |points| (0..5000).for_each(|n| reading(points, name(n), n, Some(n))));
    let (book, record) = (bench.book(), bench.record.clone());
    let lines: std::collections::BTreeSet<_> = bench.end().await.into_iter().collect();
    let bad = (0..5000).filter(|n| is_bad(*n)).count();
    assert_eq!(lines.len(), 5000 - bad, "every good one is there");
    assert_eq!(book.delivered.get(), 5000 - bad as u64);
    assert_eq!(book.dropped.counts(), [("partial", bad as u64)]);
    (book, record.attempts().len())
}

#[tokio::test(start_paused = true)]
async fn which_records_were_refused_is_found() {
    let (_, attempts) = some_are_refused(|n| n % 700 == 6).await;
    assert!((9..=2 * 8 * 13 + 1).contains(&attempts), "{attempts}");
}

#[tokio::test(start_paused = true)]
async fn when_all_are_refused_nobody_is_asked_again() {
    let (_, attempts) = some_are_refused(|_| true).await;
    assert_eq!(attempts, 1);
    let (_, attempts) = some_are_refused(|n| n >= 2500).await;
    assert!(attempts <= 2 * 13 + 1, "only where the border runs: {attempts}");
}

#[tokio::test(start_paused = true)]
async fn what_is_spent_on_finding_them_is_bounded_and_their_number_is_right() {
    let (_, attempts) = some_are_refused(|n| n % 9 == 0).await;
    assert_eq!(attempts, 2 * 512 + 1);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_counted_by_reason() {
    let bench = Bench::new(settings("stdout", "batch = { points = 4 }"), |ship| {
        let (reason, detail) = ("rejected", "bad".to_owned());
        let partial = Outcome::Partial { rejected: 1, reason: "partial", detail: detail.clone() };
        ship.script = [partial, Outcome::Rejected { reason, detail }].into();
    });
    bench.send(0, |points| {
        (0..8).for_each(|n| reading(points, "r", n, Some(n)));
        points.begin("r").finish(Measure::Reading(Number::F64(f64::NAN)), None, "");
    });
    let book = bench.book();
    bench.end().await;
    assert_eq!(book.delivered.get(), 3);
    assert_eq!(book.dropped.counts(), [("not_finite", 1), ("partial", 1), ("rejected", 4)]);
}

/// A lane whose backend fails at what holds `bad`, and at all for so many seconds.
fn failing(seconds: u64) -> Bench {
    let config = "retry = { max = \"1s\", suspect_after = \"2s\" }\nbatch = { points = 100 }";
    Bench::new(settings("influxdb", config), |ship| {
        (ship.fails, ship.idempotent) = (Some("bad"), true);
        ship.takes = Duration::from_millis(5);
        ship.ill_until = Some(Instant::now() + Duration::from_secs(seconds));
    })
}

/// The numbers of what was delivered, in order.
fn numbers(lines: &[String]) -> Vec<i64> {
    lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_backend_fails_at_for_good_is_found_and_others_go_on() {
    let bench = failing(0);
    let name = |n| if n == 17 || n == 60 { "bad" } else { "r" };
    bench.send(0, |points| (0..100).for_each(|n| reading(points, name(n), n, Some(n))));
    for second in 1..15 {
        sleep(Duration::from_secs(1)).await;
        bench.send(0, |points| reading(points, "r", 100 + second, Some(second)));
    }
    sleep(Duration::from_secs(2)).await;
    let (book, record) = (bench.book(), bench.record.clone());
    assert_eq!(book.held(), 0);
    let mut kept = numbers(&bench.end().await);
    kept.sort_unstable();
    assert_eq!(kept, (0..115).filter(|n| ![17, 60, 100].contains(n)).collect::<Vec<_>>());
    assert_eq!(book.dropped.counts(), [("rejected_permanent", 2)]);
    assert!(record.attempts().len() < 100, "{}", record.attempts().len());
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_failures_costs_nothing_and_keeps_order() {
    let bench = failing(20);
    for n in 0..40 {
        bench.send(0, |points| (0..10).for_each(|m| reading(points, "r", 10 * n + m, Some(n))));
        sleep(Duration::from_millis(700)).await;
    }
    let book = bench.book();
    assert_eq!(numbers(&bench.end().await), (0..400).collect::<Vec<_>>());
    assert_eq!((book.delivered.get(), book.dropped.total()), (400, 0));
}

#[tokio::test(start_paused = true)]
async fn who_sends_bad_records_all_the_time_holds_up_nobody() {
    let bench = failing(0);
    let book = bench.book();
    for n in 0..60 {
        bench.send(0, |points| {
            (0..50).for_each(|m| reading(points, if m == 7 { "bad" } else { "r" }, n, Some(m)));
        });
        sleep(Duration::from_secs(1)).await;
        assert!(book.held() < 50 * 6, "{n}: {}", book.held());
    }
    for _ in 0..4 {
        bench.send(0, |points| reading(points, "r", 1, Some(1)));
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(bench.end().await.len(), 60 * 49 + 4);
    assert_eq!(book.dropped.counts(), [("rejected_permanent", 60)]);
}

#[tokio::test(start_paused = true)]
async fn shippers_side_by_side_find_what_their_backend_fails_at() {
    let (clock, record) = (Clock::starting_at(UnixNanos(0)), Record::default());
    let state = State::new(Arc::default(), 1);
    let ships = (0..3).map(|_| {
        let takes = Duration::from_millis(50);
        let (fails, idempotent) = (Some("bad"), true);
        Box::new(Scripted { takes, fails, idempotent, ..Scripted::new(&record) }) as Box<dyn Ship>
    });
    let config = "retry = { max = \"1s\", suspect_after = \"2s\" }\nbatch = { points = 20 }";
    let settings = settings("influxdb", config);
    let (lane, mut running) =
        spawn_many(settings, Arc::clone(&state), Box::new(Lines), ships.collect(), clock);
    let name = |n| if n % 33 == 5 { "bad" } else { "r" };
    for n in 0..300 {
        send(&lane, clock, 0, |points| reading(points, name(n), n, Some(n)));
        sleep(Duration::from_millis(100)).await;
    }
    for n in 300..310 {
        send(&lane, clock, 0, |points| reading(points, "r", n, Some(n)));
        sleep(Duration::from_secs(1)).await;
    }
    drop(lane);
    running.drained().await;
    let bad = (0..300).filter(|n| n % 33 == 5).count();
    assert_eq!(state.book.dropped.counts(), [("rejected_permanent", bad as u64)]);
    let kept: std::collections::BTreeSet<_> = numbers(&record.lines()).into_iter().collect();
    assert_eq!(kept.len(), 310 - bad);
    balanced(&state.book);
}

#[tokio::test(start_paused = true)]
async fn alone_in_line_nobody_is_given_up() {
    let bench = failing(0);
    bench.send(0, |points| reading(points, "bad", 1, Some(1)));
    sleep(Duration::from_secs(600)).await;
    let book = bench.book();
    assert_eq!((book.held(), book.dropped.total()), (1, 0));
    for n in 0..3 {
        bench.send(0, |points| reading(points, "r", n, Some(1)));
        sleep(Duration::from_millis(1500)).await;
    }
    assert_eq!(numbers(&bench.end().await), [0, 1, 2]);
    assert_eq!(book.dropped.counts(), [("rejected_permanent", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_full_inbox_drops_the_newest_batch() {
    let bench = Bench::new(settings("stdout", ""), |_| {});
    for n in 0..100 {
        bench.send(0, |points| reading(points, "r", n, Some(n)));
    }
    let book = bench.book();
    assert_eq!(bench.end().await.len(), 64);
    assert_eq!(book.dropped.counts(), [("inbox_full", 36)]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_refuses_while_what_is_on_its_way_still_finds_room() {
    let config = "memory = \"8KiB\"\nwhen_full = \"refuse\"\nbatch = { points = 1 }";
    let bench = Bench::new(settings("stdout", config), |ship| {
        ship.takes = Duration::from_secs(9);
    });
    let mut sent = 0;
    while !bench.lane.refusing() {
        bench.send(0, |points| reading(points, "r", sent, Some(sent)));
        sent += 1;
        tokio::task::yield_now().await;
    }
    assert!(sent > 5);
    bench.send(0, |points| reading(points, "r", sent, Some(sent)));
    let book = bench.book();
    assert_eq!(bench.end().await.len() as i64, sent + 1);
    assert_eq!(book.dropped.total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_successor_takes_window_and_queue_over() {
    let mut old = Bench::new(settings("influxdb", "flush = \"1s\""), |ship| {
        ship.takes = Duration::from_secs(3);
    });
    old.send(0, |points| {
        count(points, "c", 1.0);
        points.begin("g").finish(Measure::Gauge(4.0), None, "");
    });
    sleep(Duration::from_secs(1)).await;
    old.send(0, |points| {
        count(points, "c", 2.0);
        reading(points, "raw", 1, Some(1));
    });
    let successor = settings("influxdb", "flush = \"10s\"");
    let (lane, running) = start(successor, &old.state, &old.record, old.clock, |_| {});
    old.running.hand_over();
    drop(std::mem::replace(&mut old.lane, lane));
    old.running.drained().await;
    old.send(1, |points| {
        count(points, "c", 3.0);
        points.begin("g").finish(Measure::GaugeShift(1.0), None, "");
    });
    old.running = running;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(
        old.end().await,
        [
            "c 1001000000000 count=1 rate=1",
            "g 1001000000000 value=4",
            "raw 1000000000 1",
            "c 1010000000000 count=5 rate=0.5",
            "g 1010000000000 value=5",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_successor_without_windows_empties_those_it_finds() {
    let mut old = Bench::new(settings("stdout", "aggregate = true"), |_| {});
    old.send(0, |points| {
        count(points, "c", 1.0);
        points.begin("g").finish(Measure::Gauge(4.0), None, "");
    });
    let plain = settings("stdout", "");
    let (lane, running) = start(plain, &old.state, &old.record, old.clock, |_| {});
    drop(std::mem::replace(&mut old.lane, lane));
    old.running.drained().await;
    old.running = running;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(old.record.lines(), ["c 1001000000000 count=1 rate=1", "g 1001000000000 value=4"]);
    assert_eq!(old.book().series.get(), 0);
    old.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_counts_what_is_lost() {
    let bench = Bench::new(settings("influxdb", ""), |ship| ship.takes = Duration::from_secs(60));
    bench.send(0, |points| {
        reading(points, "queued", 1, Some(1));
    });
    sleep(Duration::from_secs(2)).await;
    bench.send(0, |points| reading(points, "open", 1, Some(1)));
    tokio::task::yield_now().await;
    bench.send(0, |points| {
        count(points, "window", 1.0);
        count(points, "window", 1.0);
        reading(points, "inbox", 1, Some(1));
    });
    let book = bench.book();
    let held = [&book.queued, &book.open, &book.windows, &book.inbox].map(|gauge| gauge.get());
    assert_eq!(held, [1, 1, 2, 1]);
    let Bench { lane, mut running, .. } = bench;
    drop(lane);
    assert_eq!(running.abandon().await, 5);
    assert_eq!((book.held(), dropped(&book, "shutdown")), (0, 5));
    balanced(&book);
}

#[tokio::test(start_paused = true)]
async fn shippers_side_by_side() {
    let clock = Clock::starting_at(UnixNanos(0));
    let state = State::new(Arc::default(), 1);
    let record = Record::default();
    let ships = (0..2).map(|_| {
        let takes = Duration::from_secs(5);
        Box::new(Scripted { takes, ..Scripted::new(&record) }) as Box<dyn Ship>
    });
    let plain = settings("stdout", "batch = { points = 1 }");
    let (lane, mut running) =
        spawn_many(plain, Arc::clone(&state), Box::new(Lines), ships.collect(), clock);
    send(&lane, clock, 0, |points| (0..4).for_each(|n| reading(points, "r", n, Some(n))));
    sleep(Duration::from_millis(5001)).await;
    assert_eq!(record.lines().len(), 2);
    drop(lane);
    running.drained().await;
    assert_eq!(record.lines().len(), 4);
    balanced(&state.book);
}

#[tokio::test(start_paused = true)]
async fn the_classic_layout_merges_names_and_kinds_of_samples() {
    let bench = Bench::new(settings("influxdb", "layout = \"statsd\""), |_| {});
    bench.send(0, |points| {
        count(points, "a b", 1.0);
        count(points, "a_b", 2.0);
        points.begin("t").finish(Measure::Timing { ms: -1.0, rate: 1.0 }, None, "");
        points.begin("t").finish(Measure::Histogram { value: 1.0, rate: 0.5 }, None, "");
        points.begin("t").finish(Measure::Timing { ms: 2.0, rate: 1.0 }, None, "");
    });
    let book = bench.book();
    let lines = bench.end().await;
    let of = |name: &str| {
        let prefix = format!("{name} 1000300000000 ");
        lines.iter().filter_map(|line| line.strip_prefix(&prefix)).collect::<Vec<_>>()
    };
    assert_eq!(of("stats.counters.a_b.count"), ["3"]);
    assert_eq!(of("stats.timers.t.count"), ["3"]);
    assert_eq!(of("stats.timers.t.mean"), ["1.5"]);
    assert_eq!(of("stats.timers.t.upper_90"), ["2"]);
    assert_eq!(book.dropped.counts(), [("unrepresentable", 1)]);
}

/// Workers that race with windows of a millisecond: nothing is lost or counted twice, and no
/// series gets two rows for one edge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_race_with_the_windows() {
    const WORKERS: usize = 4;
    const BATCHES: usize = 200;
    let record = Record::default();
    let state = State::new(Arc::default(), WORKERS);
    let windows = settings("store", "flush = \"1ms\"");
    let (lane, mut running) = start(windows, &state, &record, Clock::System, |_| {});
    let workers = (0..WORKERS).map(|worker| {
        let lane = lane.clone();
        tokio::task::spawn_blocking(move || {
            for _ in 0..BATCHES {
                send(&lane, Clock::System, worker, |points| {
                    (0..40).for_each(|n| count(points, &format!("c{}", n % 8), 1.0));
                });
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    drop(lane);
    running.drained().await;
    let lines = record.lines();
    let total: u64 = lines.iter().map(|line| value(line, "count=")).sum();
    assert_eq!(total, (WORKERS * BATCHES * 40) as u64);
    let places = lines.iter().map(|line| line.split(" count=").next().unwrap());
    assert_eq!(places.collect::<std::collections::BTreeSet<_>>().len(), lines.len());
    balanced(&state.book);
    assert_eq!(state.book.folded_points.get(), total);
}

fn value(line: &str, key: &str) -> u64 {
    let word = line.split(' ').find_map(|word| word.strip_prefix(key));
    word.unwrap().parse().unwrap()
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let detail = String::new;
    prop_oneof![
        Just(Outcome::Delivered),
        Just(again(None)),
        Just(again(Some(3))),
        Just(failure()),
        Just(Outcome::Divide { reason: TOO_LARGE, detail: detail() }),
        Just(Outcome::Divide { reason: "rejected", detail: detail() }),
        Just(Outcome::Rejected { reason: "rejected", detail: detail() }),
        (0u32..9).prop_map(move |rejected| {
            Outcome::Partial { rejected, reason: "partial", detail: detail() }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the backend answers and whenever the lane ends, every point is accounted for.
    #[test]
    fn the_books_balance(
        script in prop::collection::vec(outcome(), 0..30),
        batches in prop::collection::vec((0usize..4, 1i64..40, 0u64..1500), 1..30),
        kind in prop_oneof![Just("stdout"), Just("influxdb")],
        when_full in prop_oneof![Just("drop_oldest"), Just("drop_newest"), Just("refuse")],
        patience in prop_oneof![Just(0u64), Just(7), Just(100_000)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        let config = format!(
            "flush = \"1s\"\nmemory = \"2KiB\"\nmax_series = 20\nwhen_full = \"{when_full}\"\n\
             batch = {{ points = 7, bytes = \"300B\" }}\nretry = {{ suspect_after = \"1s\" }}",
        );
        runtime.block_on(async {
            let bench = Bench::new(settings(kind, &config), |ship| {
                ship.script = script.into();
                ship.idempotent = kind == "influxdb";
                ship.takes = Duration::from_millis(300);
            });
            let book = bench.book();
            for (worker, size, pause) in batches {
                bench.send(worker, |points| (0..size).for_each(|n| match n % 3 {
                    0 => count(points, &format!("c{n}"), 1.0),
                    1 => reading(points, "r", n, Some(n)),
                    _ => points.begin("g").finish(Measure::GaugeShift(1.0), None, ""),
                }));
                balanced(&book);
                sleep(Duration::from_millis(pause)).await;
                balanced(&book);
            }
            let Bench { lane, mut running, .. } = bench;
            drop(lane);
            if tokio::time::timeout(Duration::from_secs(patience), running.drained()).await.is_err() {
                running.abandon().await;
            }
            balanced(&book);
            assert_eq!(book.held(), 0);
        });
    }
}

#[test]
fn sizes_and_spans_are_what_the_configuration_says() {
    let config = toml("memory = \"1MiB\"\ntimeout = \"2s\"\nexpire = { timer = \"never\" }");
    assert_eq!(config.memory, Some(Size::mib(1)));
    assert_eq!(config.timeout, Some(Span::secs(2)));
    assert_eq!(config.expire.timer, ExpireAfter::Never);
}
