//! One task a lane: batches and closed windows in, payloads out to the queue.
//!
//! Owns the encoder and the payload that is being filled, and the only flush timer there is. Never
//! waits for the network. A payload is pushed when it is full (points or bytes), when its oldest
//! point has waited long enough, at the end of each window, and a few milliseconds after somebody
//! began to wait for it. Counts `dropped` by the encoder's reasons, `lost_parts`, `time_moved`,
//! `name_collision`, and what windows folded.

mod open;
mod records;
mod relay;

use super::distinct::Distinct;
use super::layout::{Rows, folds};
use super::names::Names;
use super::parcel::Parcel;
use super::riders::Riders;
use super::series::series_hash;
use super::settings::Settings;
use super::table::Series;
use super::windows::Closed;
use super::{Expire, ExpireAfter, State};
use crate::clock::Clock;
use crate::units::Span;
use crate::waybill::Source;
use open::Open;
use protocols::{Batch, Encode, Kind, Point, UnixNanos};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The task's state.
pub(super) struct Shaper {
    settings: Arc<Settings>,
    state: Arc<State>,
    encode: Box<dyn Encode>,
    inbox: mpsc::Receiver<Parcel>,
    clock: Clock,
    handed_over: CancellationToken,
    rows: Rows,
    scratch: Batch,
    open: Open,
    /// Who rides with what is shaped now.
    riders: Riders,
    distinct: Option<Distinct>,
    names: Names,
    /// When what outlives the windows was last remembered on disk.
    remembered: Instant,
    /// Bytes encoded so far, to know when it is the others' turn.
    written: usize,
}

impl Shaper {
    pub(super) fn new(
        settings: Arc<Settings>,
        state: Arc<State>,
        encode: Box<dyn Encode>,
        inbox: mpsc::Receiver<Parcel>,
        clock: Clock,
        handed_over: CancellationToken,
    ) -> Self {
        Self {
            rows: Rows::new(&settings),
            scratch: Batch::new(),
            open: Open::new(Arc::clone(&state.book)),
            riders: Riders::default(),
            distinct: settings.unique_times.then(Distinct::default),
            names: Names::default(),
            remembered: Instant::now(),
            written: 0,
            settings,
            state,
            encode,
            inbox,
            clock,
            handed_over,
        }
    }

    /// Runs until the last handle of the lane is gone.
    pub(super) async fn run(mut self) {
        loop {
            // Timers first: a full inbox must not hold a window open.
            tokio::select! {
                biased;
                () = tokio::time::sleep(self.until_edge()) => self.close_window().await,
                () = tokio::time::sleep_until(self.open.due), if !self.open.is_empty() => self.push(),
                parcel = self.inbox.recv() => match parcel {
                    Some(parcel) => self.unpack(parcel).await,
                    None => break,
                },
            }
        }
        if !self.handed_over.is_cancelled() {
            self.end_window().await;
        }
        self.push();
    }

    /// Writes the open window before its time, in part if somebody will know what it held when
    /// the rest comes; the rows of the whole window then take the place of these.
    async fn end_window(&mut self) {
        self.close_window().await;
        let (settings, state) = (Arc::clone(&self.settings), Arc::clone(&self.state));
        let now = self.clock.now();
        let part =
            settings.replaces.then(|| state.windows.part(now, &self.expire(), settings.layout));
        let Some(mut part) = part.flatten() else {
            let mut end = state.windows.end(now, &self.expire());
            self.write(&mut end).await;
            self.push();
            if settings.aggregate {
                state.keep(&settings, None).await;
            }
            return;
        };
        let announced = state.announce(&settings).await;
        if !announced && !part.ends_at(now) {
            state.spoil();
        }
        self.write(&mut part).await;
        self.push();
        if announced {
            state.keep(&settings, Some(&part)).await;
        }
    }

    /// A lane that was handed over has no windows any more, and looks up only now and then.
    fn until_edge(&self) -> Duration {
        if self.handed_over.is_cancelled() {
            return self.settings.flush;
        }
        Duration::from_nanos(self.state.windows.wait(self.clock.now()))
    }

    async fn close_window(&mut self) {
        if self.handed_over.is_cancelled() {
            return;
        }
        if let Some(mut closed) = self.state.windows.close(self.clock.now(), &self.expire()) {
            self.write(&mut closed).await;
            self.push();
            self.remember();
        }
    }

    fn remember(&mut self) {
        if self.settings.aggregate && self.remembered.elapsed() >= REMEMBER_EVERY {
            self.remembered = Instant::now();
            self.state.remember(&self.settings);
        }
    }

    /// Without aggregation the windows are empty, but for what an aggregating lane of the
    /// same name has left in them.
    fn expire(&self) -> Expire {
        if self.settings.aggregate { self.settings.expire } else { AT_ONCE }
    }

    async fn write(&mut self, closed: &mut Closed) {
        self.take_on(closed.riders.clone());
        while self.write_some(closed) {
            tokio::task::yield_now().await;
        }
        self.take_on(Riders::default());
    }

    /// What is shaped from now on has these riders. Who wants to know what becomes of his points
    /// shares no payload with what is before or behind them.
    fn take_on(&mut self, riders: Riders) {
        if riders.want_delivery() || self.riders.want_delivery() {
            self.push();
        }
        self.open.joined = riders.is_empty();
        self.riders = riders;
    }

    /// Writes as many series of a page as may pass without letting other tasks run.
    fn write_some(&mut self, closed: &mut Closed) -> bool {
        if !closed.turn_page() {
            return false;
        }
        let mut rows = std::mem::take(&mut self.scratch);
        let mut turn = Turn::begin(self.written);
        while turn.goes_on(self.written) {
            rows.clear();
            let (mut kind, mut again) = (Kind::Fields, false);
            let written = closed.write_next(|due| {
                let Series { name, tags, .. } = due.series;
                self.rows.write(name, tags, due.aggregate, due.time, &mut rows);
                turn.spend(due.aggregate.weight());
                (kind, again) = (due.series.kind, due.again);
                rows.len()
            });
            if written.is_none() {
                break;
            }
            let source = Source { kind: Some(kind), origin: None, via: None };
            rows.iter().for_each(|row| self.shape_as(&row, None, source, again));
        }
        self.open.tell();
        self.scratch = rows;
        true
    }

    async fn unpack(&mut self, mut parcel: Parcel) {
        self.take_on(parcel.riders.clone());
        while self.unpack_some(&mut parcel) {
            tokio::task::yield_now().await;
        }
        self.take_on(Riders::default());
        self.state.book.inbox_waits.add(parcel.wait(), parcel.len() as u64);
        self.state.give_back(parcel.unpack());
    }

    /// Works on as many points as may pass without letting other tasks run.
    fn unpack_some(&mut self, parcel: &mut Parcel) -> bool {
        let mut turn = Turn::begin(self.written);
        let mut done = 0;
        while turn.goes_on(self.written) {
            let Parcel { load, manifest, point: next, line, record, .. } = parcel;
            if let Some(lines) = manifest.next_lines() {
                let text = load.lines.get(*line..).unwrap_or_default();
                if lines.are_records {
                    let records = load.records.get(*record..).unwrap_or_default();
                    self.records(text, records.get(..lines.count).unwrap_or(records), lines.source);
                    *record += lines.count;
                } else {
                    self.relay(text, &lines);
                }
                *line += lines.bytes;
                done += lines.count;
                continue;
            }
            let Some(point) = load.batch.point(*next) else { break };
            let hash = manifest.hash(*next);
            self.shape_or_fold(&point, hash, manifest.next_source(point.measure.kind()));
            *next += 1;
            done += 1;
        }
        self.open.tell();
        parcel.finish(done);
        !parcel.is_done()
    }

    fn shape_or_fold(&mut self, point: &Point<'_>, hash: Option<u64>, source: Source<'_>) {
        if self.settings.aggregate && folds(point.measure.kind()) {
            self.fold_alone(point, source);
        } else {
            self.shape_as(point, hash, source, false);
        }
    }

    /// A point that left the window because it has a time of its own.
    fn fold_alone(&mut self, point: &Point<'_>, source: Source<'_>) {
        let mut rows = std::mem::take(&mut self.scratch);
        rows.clear();
        let time = point.time.unwrap_or_else(|| self.clock.now());
        self.rows.alone(point, time, &mut rows);
        self.state.book.folded_points.add(1);
        self.state.book.folded_rows.add(rows.len() as u64);
        rows.iter().for_each(|row| self.shape_as(&row, None, source, false));
        self.scratch = rows;
    }

    /// `hash`: of its series, where it is known; `again`: it takes the place of an earlier one of
    /// its series and time.
    fn shape_as(&mut self, point: &Point<'_>, hash: Option<u64>, source: Source<'_>, again: bool) {
        let point = Point { time: self.told_apart(point, hash), ..*point };
        let start = self.open.body.len();
        let body = &mut self.open.body;
        let encoded = match again {
            true => self.encode.encode_again(&point, body),
            false => self.encode.encode(&point, body),
        };
        if let Err(skip) = encoded {
            self.state.book.dropped.add(skip.label(), 1);
            self.riders.lose(1, skip.label(), None);
            return;
        }
        self.written = self.written.wrapping_add(self.open.body.len() - start);
        let lines = self.encode.lines(self.open.body.get(start..).unwrap_or_default());
        self.watch_name(point.name);
        self.add_last(start, lines, source);
    }

    /// Counts in the record that begins there in the body, or begins the next payload with it.
    fn add_last(&mut self, start: usize, lines: usize, source: Source<'_>) {
        if start > 0 && self.open.body.len() > self.bytes_max() {
            let record = self.open.body.split_off(start);
            self.push();
            self.open.body.extend_from_slice(&record);
        }
        if self.open.is_empty() {
            self.open.begin(self.clock.now(), self.settings.wait);
        }
        self.open.add(1, lines, source, &self.riders);
        self.push_if_full();
    }

    fn push_if_full(&mut self) {
        let has_points = self.open.points >= self.settings.batch_points;
        if has_points || self.open.body.len() >= self.bytes_max() {
            self.push();
        }
    }

    fn told_apart(&mut self, point: &Point<'_>, hash: Option<u64>) -> Option<UnixNanos> {
        let time = point.time?;
        if self.distinct.is_none() {
            return Some(time);
        }
        let hash = hash.unwrap_or_else(|| series_hash(point.name, point.tags));
        Some(self.free_time(hash, time))
    }

    /// The time that a point of a series may have which asks for this one.
    fn free_time(&mut self, hash: u64, time: UnixNanos) -> UnixNanos {
        let Some(distinct) = &mut self.distinct else { return time };
        let free = distinct.claim(hash, time);
        if free != time {
            self.state.book.noticed.add("time_moved", 1);
        }
        free
    }

    fn watch_name(&mut self, name: &str) {
        if !self.names.collides(name, &*self.encode) {
            return;
        }
        self.state.book.noticed.add("name_collision", 1);
        if self.state.may_log("name_collision") {
            let (backend, name) = (&self.settings.name, name.escape_debug());
            let sent = self.names.spelled().escape_ascii();
            tracing::warn!(%backend, %name, %sent, "the backend takes this name for another one");
        }
    }

    fn bytes_max(&self) -> usize {
        self.settings.batch_bytes.min(self.state.learnt.load(Relaxed))
    }

    fn push(&mut self) {
        for (skip, count) in self.encode.lost_parts() {
            self.state.book.lost_parts.add(skip.label(), count);
        }
        let told = self.open.told();
        if let Some(entry) = self.open.take() {
            self.state.queue.push(entry);
            self.state.book.open.sub(told);
            self.open.joined = self.riders.is_empty();
        }
    }
}

/// How much a shaper does before it lets other tasks run, and sees whether it is to stop.
struct Turn {
    points: usize,
    begun: usize,
}

impl Turn {
    fn begin(written: usize) -> Self {
        Self { points: 0, begun: written }
    }

    /// So many samples had to be sorted.
    fn spend(&mut self, samples: usize) {
        self.points += samples / SAMPLES_A_POINT;
    }

    /// Whether there is time for one more.
    fn goes_on(&mut self, written: usize) -> bool {
        self.points += 1;
        self.points <= POINTS_AT_ONCE && written.wrapping_sub(self.begun) < BYTES_AT_ONCE
    }
}

const AT_ONCE: Expire = {
    let at_once = ExpireAfter::After(Span::secs(0));
    Expire { counter: at_once, timer: at_once, set: at_once, gauge: at_once }
};

/// What a kill may cost gauges; often enough, since it costs a file each time.
const REMEMBER_EVERY: Duration = Duration::from_secs(60);
/// About a millisecond's work.
const POINTS_AT_ONCE: usize = 512;
/// How many samples are sorted while a point is written.
const SAMPLES_A_POINT: usize = 32;
/// The same for points with much text.
const BYTES_AT_ONCE: usize = 256 << 10;
