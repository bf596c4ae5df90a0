//! The open windows of one backend: a shard for each receiving worker, and what outlives them.
//!
//! Points are taken in where they are received, under the mutex of the worker's own shard,
//! which nobody else wants but the shaper at the window's edge. The shaper swaps each shard
//! for an empty one, merges what it took, and turns it into rows at its leisure.
//!
//! A lane that ends writes the open window [in part](Windows::part) and remembers it; what is
//! [remembered](Windows::remembered) outlives the process, and is [taken up](Windows::take_up) by
//! the next.
//!
//! Limits: `max_series` places (see [`roster`]), [`BYTES_MAX`] for the open window's
//! names, tags, samples, set members and gauge shifts, and as much for the names and tags of
//! what outlives it (beyond that, no new series gets a place); beside these a series costs
//! about 150 bytes. Closing a window of a million series costs its thread some tenths
//! of a second; receiving goes on meanwhile.

mod carried;
mod closed;
mod edges;
mod idle;
mod roster;
mod snapshot;

pub(super) use closed::Closed;
pub use edges::window_end;
pub(super) use snapshot::{Error, Order, Remembered, Snapshot};

use super::aggregate::Aggregate;
use super::riders::Riders;
use super::table::{Series, Table};
use super::{Expire, Layout};
use crate::books::BackendBook;
use carried::Carried;
use edges::Edges;
use idle::Idle;
use protocols::{Measure, UnixNanos};
use roster::Roster;
use snapshot::{Memory, Parts};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    /// Which of the tables that stood here this is.
    epoch: u32,
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
    pub(super) aggregate: Aggregate,
    /// By how many nanoseconds its rows are later than the window's stamp.
    pub(super) shift: u8,
    /// Whether its rows take the place of earlier ones.
    pub(super) again: bool,
}

/// What outlives a window.
#[derive(Debug, Default)]
struct Keeper {
    idle: Table<Idle>,
    edges: Edges,
    carried: Carried,
    spare: Vec<Table<Tally>>,
}

/// Where a series stands in a shard, to find it there again without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    at: u32,
    born: u32,
}

impl Shard {
    /// Whether the series that was given this place still has it.
    pub(super) fn is_current(&self, place: Place) -> bool {
        place.born == self.epoch
    }
}

/// What became of a point that came to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is in, and its series stands there.
    In(Place),
    /// Its series is new and there is no place for it.
    NoPlace,
    /// There is no room for more samples or members.
    NoRoom,
}

impl Tally {
    const fn new(aggregate: Aggregate) -> Self {
        Self { points: 0, aggregate, shift: 0, again: false }
    }

    /// Goes on from what was written earlier.
    pub(super) fn follow(&mut self, earlier: Aggregate) {
        self.aggregate.precede(earlier);
        self.again = true;
    }
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
        // Before a new series gets a place that it then would not use.
        if grows(measure) && self.bytes.load(Relaxed) >= BYTES_MAX {
            return Taken::NoRoom;
        }
        match self.place(shard, series, places).map(u32::try_from) {
            Some(Ok(at)) => self.absorb(shard, Place { at, born: shard.epoch }, measure, turn),
            _ => Taken::NoPlace,
        }
    }

    /// Takes a point of a series whose place is known, and [current](Shard::is_current), into a
    /// shard.
    pub(super) fn absorb(
        &self,
        shard: &mut Shard,
        place: Place,
        measure: &Measure<'_>,
        turn: u64,
    ) -> Taken {
        if grows(measure) && self.bytes.load(Relaxed) >= BYTES_MAX {
            return Taken::NoRoom;
        }
        let Some(tally) = shard.table.state(place.at as usize) else { return Taken::NoPlace };
        tally.points += 1;
        let bytes = tally.aggregate.absorb(measure, turn);
        if bytes > 0 {
            self.grow(shard, bytes);
        }
        Taken::In(place)
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
        shard.table.insert(series, Tally::new(Aggregate::new(series.kind)))?;
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
        let carried = self.reunite(&mut keeper, &mut table, stamp);
        self.outlive(&mut keeper, &mut table, stamp, expire);
        self.repeat(&mut keeper, &mut table, stamp, expire);
        carried.inspect(|carried| carried.spread(&mut table));
        Some(self.closed(table, riders, stamp))
    }

    /// What was seen so far of the window that will be closed by a later lane, with the stamp of
    /// its end; nothing idle. `None` if it has ended already.
    pub(super) fn part(
        self: &Arc<Self>,
        now: UnixNanos,
        expire: &Expire,
        layout: Layout,
    ) -> Option<Closed> {
        let mut keeper = lock(&self.keeper);
        if keeper.edges.wait(now) == 0 {
            return None;
        }
        let stamp = keeper.edges.part();
        let (mut table, riders) = self.swap(&mut keeper);
        if keeper.carried.stamp != stamp {
            self.carry(&mut keeper, Carried::new(stamp, layout));
        }
        keeper.carried.unite(&mut table);
        keeper.carried.spread(&mut table);
        self.outlive(&mut keeper, &mut table, stamp, expire);
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

    /// What a later process needs to know, in bytes: what outlives the windows, and what was
    /// written of the open one.
    pub(super) fn remembered(&self, part: Option<&Closed>, layout: Layout) -> Option<Vec<u8>> {
        let keeper = lock(&self.keeper);
        let Keeper { idle, edges, carried, .. } = &*keeper;
        let parts = Parts { seen: part.map(|part| &part.table), carried };
        Memory { layout, edges, idle, parts }.to_bytes()
    }

    /// Whether there is anything to remember between two windows.
    pub(super) fn has_memory(&self) -> bool {
        let keeper = lock(&self.keeper);
        !keeper.idle.is_empty() || !keeper.carried.is_empty()
    }

    /// Goes on from what an earlier process has left, as far as there are places.
    pub(super) fn take_up(
        &self,
        mut memory: Remembered,
        now: UnixNanos,
        layout: Layout,
        places: u64,
    ) {
        let mut keeper = lock(&self.keeper);
        let mut roster = lock(&self.roster);
        let mut known = Table::default();
        memory.idle.drain(|series, idle| {
            if roster.admit(series.hash, places) {
                roster.keep(series.hash);
                known.insert(&series, idle);
            }
        });
        keeper.idle = known;
        let open = keeper.edges.resume(memory.edges, now).filter(|_| layout == memory.layout);
        let mut carried = Carried::new(open.unwrap_or_default(), layout);
        if open.is_some() {
            memory.parts.drain(|series, part| carried.insert(&series, part));
        }
        carried.content(None).for_each(|(series, ..)| _ = roster.admit(series.hash, places));
        self.carry(&mut keeper, carried);
        self.kept.store(keeper.idle.key_bytes(), Relaxed);
        self.book.series.set(roster.len());
    }

    /// Gives no row the stamp of the open window's end.
    pub(super) fn shun(&self, now: UnixNanos, length: Duration) {
        lock(&self.keeper).edges.shun(now, length);
    }

    /// Puts what was written of a window in front of the rest. What belongs to a later edge (the
    /// clock was set back, or windows are shorter now) waits for that.
    fn reunite(
        &self,
        keeper: &mut Keeper,
        table: &mut Table<Tally>,
        stamp: UnixNanos,
    ) -> Option<Carried> {
        if keeper.carried.is_empty() || keeper.carried.stamp > stamp {
            return None;
        }
        let mut carried = self.carry(keeper, Carried::default());
        (carried.stamp == stamp).then(|| {
            carried.unite(table);
            carried
        })
    }

    /// Replaces what is carried.
    fn carry(&self, keeper: &mut Keeper, carried: Carried) -> Carried {
        self.bytes.fetch_add(carried.bytes, Relaxed);
        self.bytes.fetch_sub(keeper.carried.bytes, Relaxed);
        std::mem::replace(&mut keeper.carried, carried)
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
        shard.epoch = shard.epoch.wrapping_add(1);
        (std::mem::replace(&mut shard.table, empty), riders)
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
    use crate::lane::ExpireAfter;
    use crate::units::Span;
    use protocols::{Kind, Tags};

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
        let is_in = |taken| matches!(taken, Taken::In(_));
        let at_once = ExpireAfter::After(Span::secs(0));
        let keeping = Expire::default();
        let forgetting = Expire { gauge: at_once, ..keeping };
        let close = |second, expire| drop(windows.close(UnixNanos(second * SECOND), expire));

        assert!(is_in(take("kept")));
        close(1, &keeping);
        assert!(windows.kept.load(Relaxed) >= "kept".len());
        windows.kept.store(BYTES_MAX, Relaxed);
        assert!(is_in(take("kept")));
        assert_eq!(take("stranger"), Taken::NoPlace);
        close(2, &keeping);
        assert!(is_in(take("stranger")), "the names are counted anew at each edge");
        close(3, &forgetting);
        close(9, &forgetting);
        assert_eq!(windows.kept.load(Relaxed), 0);
    }
}
