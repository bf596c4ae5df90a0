//! Lanes from the outside: a scripted backend, tokio's paused clock, and the books.

mod acks;
mod aggregation;
mod clock;
mod delivery;
mod life;
mod relay;
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
    /// It gets well in the moment in which it is asked about this, and fails at all before.
    well_at: Option<&'static str>,
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
            well_at: None,
            idempotent: false,
        }
    }

    fn answer(&mut self, payload: &Payload) -> Outcome {
        if payload.body.len() > self.largest {
            return Outcome::Divide { reason: TOO_LARGE, detail: "413".to_owned() };
        }
        let text = str::from_utf8(&payload.body).unwrap();
        self.well_at.take_if(|word| text.contains(*word));
        let is_ill = self.ill_until.is_some_and(|end| Instant::now() < end);
        if is_ill || self.well_at.is_some() || self.fails.is_some_and(|word| text.contains(word)) {
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
    let origin = Origin::new("edge", Protocol::Http);
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

fn value(line: &str, key: &str) -> u64 {
    let word = line.split(' ').find_map(|word| word.strip_prefix(key));
    word.unwrap().parse().unwrap()
}
