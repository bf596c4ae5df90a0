//! The open windows of one backend: a shard for each receiving worker, and what outlives them.
//!
//! Points are taken in where they are received, under the mutex of the worker's own shard,
//! which nobody else wants but the shaper at the window's edge. The shaper swaps each shard
//! for an empty one, merges what it took, and turns it into rows at its leisure.
//!
//! Limits: `max_series` places (see [`super::roster`]), [`BYTES_MAX`] for the open window's
//! names, tags, samples, set members and gauge shifts, and as much for the names and tags of
//! what outlives it (beyond that, no new series gets a place); beside these a series costs
//! about 150 bytes. Closing a window of a million series costs its thread some tenths
//! of a second; receiving goes on meanwhile.

use super::aggregate::{Aggregate, Trail};
use super::edges::Edges;
use super::riders::Riders;
use super::roster::Roster;
use super::table::{Series, Table};
use super::{Expire, ExpireAfter};
use crate::books::BackendBook;
use crate::clock::nanos;
use protocols::{Kind, Measure, UnixNanos};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the windows of one backend hold; belongs to the backend's name.
#[derive(Debug)]
pub(super) struct Windows {
    shards: Vec<Mutex<Shard>>,
    roster: Mutex<Roster>,
    bytes: AtomicUsize,
    /// Names and tags of what outlives the windows.
    kept: AtomicUsize,
    turns: AtomicU64,
    keeper: Mutex<Keeper>,
    book: Arc<BackendBook>,
}

/// One worker's part of the open window.
#[derive(Debug, Default)]
pub(super) struct Shard {
    table: Table<Tally>,
    bytes: usize,
    /// Who rides with the points in it.
    pub(super) riders: Riders,
    /// A name that had to be made fit; here so that its memory is kept.
    pub(super) scratch: String,
}

/// What the open window holds of one series.
#[derive(Debug)]
pub(super) struct Tally {
    points: u64,
    aggregate: Aggregate,
}

/// What became of a point that came to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is in.
    In,
    /// Its series is new and there is no place for it.
    NoPlace,
    /// There is no room for more samples or members.
    NoRoom,
}

/// What outlives a window.
#[derive(Debug, Default)]
struct Keeper {
    idle: Table<Idle>,
    edges: Edges,
    spare: Vec<Table<Tally>>,
}

/// A series between the windows in which it is seen.
#[derive(Clone, Copy, Debug)]
struct Idle {
    /// Where a gauge stands.
    value: f64,
    /// The end of the last window in which it was seen.
    seen: UnixNanos,
}

impl Windows {
    /// Empty windows for so many shards.
    pub(super) fn new(shards: usize, book: Arc<BackendBook>) -> Self {
        Self {
            shards: (0..shards.max(1)).map(|_| Mutex::default()).collect(),
            roster: Mutex::default(),
            bytes: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            turns: AtomicU64::new(1),
            keeper: Mutex::default(),
            book,
        }
    }

    /// A worker's shard.
    pub(super) fn shard(&self, worker: usize) -> Option<MutexGuard<'_, Shard>> {
        self.shards.get(worker % self.shards.len()).map(lock)
    }

    /// A number for a batch, greater than that of every batch before.
    pub(super) fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Relaxed)
    }

    /// Takes a point into a shard.
    pub(super) fn take(
        &self,
        shard: &mut Shard,
        series: &Series<'_>,
        measure: &Measure<'_>,
        turn: u64,
        places: u64,
    ) -> Taken {
        if grows(measure) && self.bytes.load(Relaxed) >= BYTES_MAX {
            return Taken::NoRoom;
        }
        let place = self.place(shard, series, places);
        let Some(tally) = place.and_then(|place| shard.table.state(place)) else {
            return Taken::NoPlace;
        };
        tally.points += 1;
        let bytes = tally.aggregate.absorb(measure, turn);
        if bytes > 0 {
            self.grow(shard, bytes);
        }
        Taken::In
    }

    /// Where a series stands in a shard, if it does or may.
    fn place(&self, shard: &mut Shard, series: &Series<'_>, places: u64) -> Option<usize> {
        if let Some(place) = shard.table.place(series) {
            return Some(place);
        }
        if self.bytes.load(Relaxed) >= BYTES_MAX || !self.admit(series.hash, places) {
            return None;
        }
        let (place, bytes) = (shard.table.len(), shard.table.key_bytes());
        shard.table.insert(series, Tally { points: 0, aggregate: Aggregate::new(series.kind) })?;
        self.grow(shard, shard.table.key_bytes() - bytes);
        Some(place)
    }

    fn grow(&self, shard: &mut Shard, bytes: usize) {
        shard.bytes += bytes;
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn admit(&self, series: u64, places: u64) -> bool {
        // What is kept has its place; when its names fill the memory, nothing new gets one.
        let places = if self.kept.load(Relaxed) < BYTES_MAX { places } else { 0 };
        let mut roster = lock(&self.roster);
        let admitted = roster.admit(series, places);
        self.book.series.set(roster.len());
        admitted
    }

    /// Starts, or goes on under other settings.
    pub(super) fn align(&self, now: UnixNanos, length: i64) {
        lock(&self.keeper).edges.align(now, length);
    }

    /// How many nanoseconds until the open window may end.
    pub(super) fn wait(&self, now: UnixNanos) -> u64 {
        lock(&self.keeper).edges.wait(now)
    }

    /// The window that ends now, if one does.
    pub(super) fn close(self: &Arc<Self>, now: UnixNanos, expire: &Expire) -> Option<Closed> {
        let mut keeper = lock(&self.keeper);
        let stamp = keeper.edges.close(now)?;
        let (mut table, riders) = self.swap(&mut keeper);
        self.outlive(&mut keeper, &mut table, stamp, expire);
        self.repeat(&mut keeper, &mut table, stamp, expire);
        Some(self.closed(table, riders, stamp))
    }

    /// The window that ends because its lane does: what was seen in it, nothing idle.
    pub(super) fn end(self: &Arc<Self>, now: UnixNanos, expire: &Expire) -> Closed {
        let mut keeper = lock(&self.keeper);
        let stamp = keeper.edges.end(now);
        let (mut table, riders) = self.swap(&mut keeper);
        self.outlive(&mut keeper, &mut table, stamp, expire);
        self.book.series.set(lock(&self.roster).len());
        self.closed(table, riders, stamp)
    }

    /// Takes a closed window's memory back.
    fn recycle(&self, mut table: Table<Tally>) {
        table.clear();
        let mut keeper = lock(&self.keeper);
        if keeper.spare.len() < self.shards.len() {
            keeper.spare.push(table);
        }
    }

    fn closed(self: &Arc<Self>, table: Table<Tally>, riders: Riders, stamp: UnixNanos) -> Closed {
        Closed { table, riders, stamp, done: 0, windows: Arc::clone(self) }
    }

    /// Takes what the shards hold, merged.
    fn swap(&self, keeper: &mut Keeper) -> (Table<Tally>, Riders) {
        let freed = lock(&self.roster).turn();
        drop(freed);
        let (mut merged, mut riders) = (Table::default(), Riders::default());
        for shard in &self.shards {
            let spare = keeper.spare.pop().unwrap_or_default();
            let (mut taken, riding) = self.exchange(shard, spare);
            riders.join(&riding);
            if merged.is_empty() {
                std::mem::swap(&mut merged, &mut taken);
            }
            taken.drain(|series, tally| unite(&mut merged, &series, tally));
            keeper.spare.push(taken);
        }
        (merged, riders)
    }

    fn exchange(&self, shard: &Mutex<Shard>, empty: Table<Tally>) -> (Table<Tally>, Riders) {
        let mut shard = lock(shard);
        self.bytes.fetch_sub(std::mem::take(&mut shard.bytes), Relaxed);
        let riders = std::mem::take(&mut shard.riders);
        (std::mem::replace(&mut shard.table, empty), riders)
    }

    /// Lets gauges run on from where they stood, and notes what is to outlive the window.
    fn outlive(
        &self,
        keeper: &mut Keeper,
        table: &mut Table<Tally>,
        stamp: UnixNanos,
        expire: &Expire,
    ) {
        table.update(|series, tally| {
            let idle = keeper.idle.find(&series);
            let base = idle.as_ref().map_or(0.0, |idle| idle.value);
            let value = settle(&mut tally.aggregate, base);
            let now = Idle { value, seen: stamp };
            match idle {
                Some(idle) => *idle = now,
                None if outlives(expire, series.kind) => {
                    keeper.idle.insert(&series, now);
                    lock(&self.roster).keep(series.hash);
                }
                None => {}
            }
        });
    }

    /// Adds the series that are idle, and forgets those that were so for too long.
    fn repeat(
        &self,
        keeper: &mut Keeper,
        table: &mut Table<Tally>,
        stamp: UnixNanos,
        expire: &Expire,
    ) {
        let expired = |kind, idle: &Idle| match after(expire, kind) {
            ExpireAfter::Never => false,
            ExpireAfter::After(span) => stamp.0 - idle.seen.0 > nanos(span.0),
        };
        let mut forgotten = 0;
        for (series, idle) in keeper.idle.iter().filter(|(_, idle)| idle.seen != stamp) {
            if expired(series.kind, idle) {
                forgotten += 1;
            } else {
                table.insert(&series, Tally { points: 0, aggregate: repeated(series.kind, idle) });
            }
        }
        if forgotten > 0 {
            let old = std::mem::take(&mut keeper.idle);
            let (lost, kept): (Vec<_>, Vec<_>) =
                old.iter().partition(|(series, idle)| expired(series.kind, idle));
            for (series, idle) in kept {
                keeper.idle.insert(&series, *idle);
            }
            let mut roster = lock(&self.roster);
            lost.iter().for_each(|(series, _)| roster.let_go(series.hash));
        }
        self.kept.store(keeper.idle.key_bytes(), Relaxed);
        self.book.series.set(lock(&self.roster).len());
    }
}

/// A closed window on its way to becoming rows. What is not written when it is dropped counts
/// as lost to the shutdown.
#[derive(Debug)]
pub(super) struct Closed {
    table: Table<Tally>,
    pub(super) riders: Riders,
    stamp: UnixNanos,
    done: usize,
    windows: Arc<Windows>,
}

impl Closed {
    /// Hands the next series to `write`, which answers how many rows it made of it; none when
    /// the window is written.
    pub(super) fn write_next(
        &mut self,
        write: impl FnOnce(&Series<'_>, &Aggregate, UnixNanos) -> usize,
    ) -> Option<usize> {
        let (series, tally) = self.table.at(self.done)?;
        let rows = write(&series, &tally.aggregate, self.stamp);
        self.done += 1;
        let book = &self.windows.book;
        book.windows.sub(tally.points);
        book.folded_points.add(tally.points);
        book.folded_rows.add(rows as u64);
        Some(rows)
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let left = self.table.iter().skip(self.done).map(|(_, tally)| tally.points).sum();
        self.windows.book.windows.sub(left);
        self.windows.book.dropped.add("shutdown", left);
        self.riders.lose(left, "shutdown", None);
        self.windows.recycle(std::mem::take(&mut self.table));
    }
}

fn unite(merged: &mut Table<Tally>, series: &Series<'_>, tally: Tally) {
    match merged.find(series) {
        Some(first) => {
            first.points += tally.points;
            first.aggregate.merge(tally.aggregate);
        }
        None => {
            merged.insert(series, tally);
        }
    }
}

/// Replaces an aggregate's trail by the value it leads to; other kinds have none.
fn settle(aggregate: &mut Aggregate, base: f64) -> f64 {
    let Aggregate::Gauge(trail) = aggregate else { return 0.0 };
    let value = trail.end(base);
    *trail = Trail::at(value);
    value
}

fn repeated(kind: Kind, idle: &Idle) -> Aggregate {
    match kind {
        Kind::Gauge => Aggregate::Gauge(Trail::at(idle.value)),
        _ => Aggregate::new(kind),
    }
}

const fn after(expire: &Expire, kind: Kind) -> ExpireAfter {
    match kind {
        Kind::Gauge => expire.gauge,
        Kind::Set => expire.set,
        Kind::Timer | Kind::Histogram | Kind::Distribution => expire.timer,
        Kind::Counter | Kind::Sample | Kind::Fields => expire.counter,
    }
}

fn outlives(expire: &Expire, kind: Kind) -> bool {
    match after(expire, kind) {
        ExpireAfter::Never => true,
        ExpireAfter::After(span) => !span.0.is_zero(),
    }
}

const fn grows(measure: &Measure<'_>) -> bool {
    !matches!(measure, Measure::Count { .. } | Measure::Gauge(_))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names, samples, members and gauge shifts of one backend's open window: about 30 million
/// samples, or a million series with names and tags of 150 bytes and ten samples each.
const BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Span;
    use protocols::Tags;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn when_kept_names_fill_the_memory_only_known_series_have_places() {
        let windows = Arc::new(Windows::new(1, Arc::default()));
        windows.align(UnixNanos(0), SECOND);
        let take = |name| {
            let series = Series { hash: 7, kind: Kind::Gauge, name, tags: Tags::EMPTY };
            let series = Series { hash: series.hash + name.len() as u64, ..series };
            let mut shard = windows.shard(0).unwrap();
            windows.take(&mut shard, &series, &Measure::Gauge(1.0), 1, 100)
        };
        let at_once = ExpireAfter::After(Span::secs(0));
        let keeping = Expire::default();
        let forgetting = Expire { gauge: at_once, ..keeping };
        let close = |second, expire| drop(windows.close(UnixNanos(second * SECOND), expire));

        assert_eq!(take("kept"), Taken::In);
        close(1, &keeping);
        assert!(windows.kept.load(Relaxed) >= "kept".len());
        windows.kept.store(BYTES_MAX, Relaxed);
        assert_eq!([take("kept"), take("stranger")], [Taken::In, Taken::NoPlace]);
        close(2, &keeping);
        assert_eq!(take("stranger"), Taken::In, "the names are counted anew at each edge");
        close(3, &forgetting);
        close(9, &forgetting);
        assert_eq!(windows.kept.load(Relaxed), 0);
    }
}
