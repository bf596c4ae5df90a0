//! The open windows of one backend: a shard for each receiving worker, and what outlives them.
//!
//! Points are taken in where they are received, under the mutex of the worker's own shard,
//! which nobody else wants but the shaper at the window's edge. A shard holds no more than what it
//! has seen of each series, by the series' place in the [`directory`], which all share; whoever knows
//! a place already touches nothing else. At the edge the shaper takes each shard's states away,
//! which costs the same however many there are, and turns them into rows at its leisure
//! ([`closed`]). No lock is held for longer than a page of [`pages::PAGE`] series takes.
//!
//! A lane that ends writes the open window [in part](Windows::part) and remembers it; what is
//! [remembered](Windows::remembered) outlives the process, and is [taken up](Windows::take_up) by
//! the next.
//!
//! Locks are taken in this order, if at all: keeper, walk, shard, directory, spare pages.
//!
//! Limits: `max_series` places (see [`directory`]), [`BYTES_MAX`] for the names and tags of all
//! series (beyond that, no new one gets a place), and as much for the open window's samples, set
//! members and gauge shifts. Beside these a series costs about a hundred bytes, its states in the
//! open window and in the one that is being written among them.

mod carried;
mod closed;
mod directory;
mod edges;
mod idle;
mod pages;
mod shard;
mod snapshot;
mod twins;

pub(super) use closed::Closed;
pub use directory::Place;
pub use edges::window_end;
pub(super) use shard::Shard;
pub(super) use snapshot::{Error, Order, Remembered, Snapshot};

use super::riders::Riders;
use super::table::Series;
use super::{Expire, Layout};
use crate::books::BackendBook;
use carried::Carried;
use closed::{Earlier, Terms, Walk};
use directory::Directory;
use edges::Edges;
use idle::Idles;
use pages::{Page, blank};
use protocols::{Measure, UnixNanos};
use shard::State;
use snapshot::{Entries, Memory};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
use std::time::Duration;

/// What the windows of one backend hold; belongs to the backend's name.
#[derive(Debug)]
pub(super) struct Windows {
    shards: Vec<Mutex<Shard>>,
    directory: RwLock<Directory>,
    /// What the open windows' samples, members and gauge shifts take.
    bytes: AtomicUsize,
    /// Of how many samples of a series in a window the values are kept.
    exact: AtomicUsize,
    turns: AtomicU64,
    keeper: Mutex<Keeper>,
    /// Pages to be used again.
    spare: Mutex<Vec<Page<State>>>,
    /// How many closed windows are not written yet.
    closings: AtomicUsize,
    names_max: usize,
    book: Arc<BackendBook>,
}

/// What outlives a window.
#[derive(Debug, Default)]
struct Keeper {
    idle: Idles,
    edges: Edges,
    carried: Carried,
    /// The number of the open window.
    window: u32,
    /// The window that was closed last.
    latest: Weak<Mutex<Walk>>,
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

impl Windows {
    /// Empty windows for so many shards.
    pub(super) fn new(shards: usize, book: Arc<BackendBook>) -> Self {
        Self {
            shards: (0..shards.max(1)).map(|_| Mutex::default()).collect(),
            directory: RwLock::default(),
            bytes: AtomicUsize::new(0),
            exact: AtomicUsize::new(usize::MAX),
            turns: AtomicU64::new(1),
            keeper: Mutex::default(),
            spare: Mutex::default(),
            closings: AtomicUsize::new(0),
            names_max: BYTES_MAX,
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
        if self.is_full(measure) {
            return Taken::NoRoom;
        }
        let place = self.place(shard, series, places);
        let taken = place.and_then(|place| self.absorb(shard, place, measure, turn));
        taken.unwrap_or(Taken::NoPlace)
    }

    /// Where a series stands, if it does or may. It stands there at least until the end of the
    /// shard's open window.
    pub(super) fn place(
        &self,
        shard: &mut Shard,
        series: &Series<'_>,
        places: u64,
    ) -> Option<Place> {
        let found = read(&self.directory).find(series, shard.window);
        found.or_else(|| self.admit(series, places, shard.window))
    }

    /// Takes a point of the series at a place into a shard. `None` says that the series has left the
    /// place since it was asked for.
    #[inline]
    pub(super) fn absorb(
        &self,
        shard: &mut Shard,
        place: Place,
        measure: &Measure<'_>,
        turn: u64,
    ) -> Option<Taken> {
        if self.is_full(measure) {
            return Some(Taken::NoRoom);
        }
        let state = match shard.known(place) {
            Some(state) => state,
            None => self.begin(shard, place)?,
        };
        if state.points == u32::MAX {
            self.folded(std::mem::take(&mut state.points), 0);
        }
        let bytes = state.take(measure, turn, self.exact.load(Relaxed));
        shard.fresh += bytes;
        if shard.fresh >= FRESH_MAX {
            self.tell(shard);
        }
        Some(Taken::In(place))
    }

    /// Adds what the points of a batch need to what all shards hold. To do so for each of them would
    /// cost more than all else, since the processor finishes everything before it adds for others to
    /// see.
    pub(super) fn tell(&self, shard: &mut Shard) {
        let fresh = std::mem::take(&mut shard.fresh);
        if fresh > 0 {
            shard.told += fresh;
            self.bytes.fetch_add(fresh, Relaxed);
        }
    }

    /// Whether the series that was given a place still has it. If so it keeps it at least until the
    /// end of the shard's open window, since it counts as seen.
    #[inline]
    pub(super) fn is_current(&self, shard: &mut Shard, place: Place) -> bool {
        let is_seen = shard.known(place).map(|state| state.ask_for()).is_some();
        is_seen || read(&self.directory).see(place, shard.window).is_some()
    }

    /// A series comes to a shard for the first time in this window.
    fn begin<'a>(&self, shard: &'a mut Shard, place: Place) -> Option<&'a mut State> {
        let series = read(&self.directory).see(place, shard.window)?;
        shard.begin(place.at, series, || self.blank())
    }

    fn admit(&self, series: &Series<'_>, places: u64, window: u32) -> Option<Place> {
        let mut directory = write(&self.directory);
        // Another worker may have been quicker.
        if let Some(place) = directory.find(series, window) {
            return Some(place);
        }
        if directory.len() >= places || directory.bytes() >= self.names_max {
            return None;
        }
        let place = directory.insert(series, window);
        self.book.series.set(directory.len());
        place
    }

    fn is_full(&self, measure: &Measure<'_>) -> bool {
        grows(measure) && self.bytes.load(Relaxed) >= BYTES_MAX
    }

    /// Keeps so many of a series' samples in a window as they came.
    pub(super) fn keep_exact(&self, samples: usize) {
        self.exact.store(samples, Relaxed);
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
        self.settle_latest(&mut keeper);
        let carried = self.reunite(&mut keeper, stamp);
        let spread = carried.as_ref().map(Carried::spread);
        let earlier = carried.map_or(Earlier::Nothing, |carried| Earlier::Here(Box::new(carried)));
        let (window, expire) = (keeper.window, *expire);
        let terms = Terms { window, stamp, expire, repeats: true, earlier, spread };
        Some(self.shut(&mut keeper, terms))
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
        self.settle_latest(&mut keeper);
        if keeper.carried.stamp != stamp {
            self.carry(&mut keeper, Carried::new(stamp, layout));
        }
        let spread = Some(keeper.carried.spread());
        let (window, expire, earlier) = (keeper.window, *expire, Earlier::Kept);
        let terms = Terms { window, stamp, expire, repeats: false, earlier, spread };
        Some(self.shut(&mut keeper, terms))
    }

    /// The window that ends because its lane does: what was seen in it, nothing idle.
    pub(super) fn end(self: &Arc<Self>, now: UnixNanos, expire: &Expire) -> Closed {
        let mut keeper = lock(&self.keeper);
        let stamp = keeper.edges.end(now);
        self.settle_latest(&mut keeper);
        let (window, expire, earlier) = (keeper.window, *expire, Earlier::Nothing);
        let terms = Terms { window, stamp, expire, repeats: false, earlier, spread: None };
        self.shut(&mut keeper, terms)
    }

    /// What a later process needs to know, in bytes: what outlives the windows, and what was
    /// written of the open one.
    pub(super) fn remembered(&self, part: Option<&Closed>, layout: Layout) -> Option<Vec<u8>> {
        let (mut idle, mut parts) = (Entries::default(), Entries::default());
        let mut twins = Vec::new();
        for page in 0..read(&self.directory).pages() {
            self.remember_idle(pages::places_of(page), &mut idle, Some(&mut twins));
        }
        // In the order in which they came, as they are written.
        twins.sort_unstable();
        self.remember_idle(twins.iter().map(|(_, at)| *at), &mut idle, None);
        if let Some(part) = part {
            part.content(|series, aggregate, shift| parts.add(series, (aggregate, shift)));
        }
        let keeper = lock(&self.keeper);
        // In the order of the fields of `Part`.
        let rest = keeper.carried.rest();
        rest.for_each(|(series, aggregate, shift)| parts.add(&series, (aggregate, shift)));
        let edges = keeper.edges;
        drop(keeper);
        Memory { layout, edges: &edges, idle, parts }.into_bytes()
    }

    /// Remembers what is idle at these places, but for twins, if there is a list for them.
    fn remember_idle(
        &self,
        places: impl Iterator<Item = u32>,
        entries: &mut Entries,
        mut twins: Option<&mut Vec<(u32, u32)>>,
    ) {
        let keeper = lock(&self.keeper);
        let directory = read(&self.directory);
        for at in places {
            let Some(idle) = keeper.idle.get(at) else { continue };
            let Some((standing, (series, _))) = directory.standing(at).zip(directory.at(at)) else {
                continue;
            };
            match twins.as_deref_mut().filter(|_| standing.twin) {
                Some(twins) => twins.push((standing.born, at)),
                None => entries.add(&series, idle),
            }
        }
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
        let window = keeper.window;
        memory.idle.drain(|series, idle| {
            if let Some(place) = self.admit(&series, places, window) {
                keeper.idle.keep(place.at, idle);
            }
        });
        let open = keeper.edges.resume(memory.edges, now).filter(|_| layout == memory.layout);
        let mut carried = Carried::new(open.unwrap_or_default(), layout);
        if open.is_some() {
            memory.parts.drain(|series, part| {
                let _ = self.admit(&series, places, window);
                carried.insert(&series, part);
            });
        }
        self.carry(&mut keeper, carried);
        self.book.series.set(read(&self.directory).len());
    }

    /// Gives no row the stamp of the open window's end.
    pub(super) fn shun(&self, now: UnixNanos, length: Duration) {
        lock(&self.keeper).edges.shun(now, length);
    }

    /// Puts what was written of a window in front of the rest. What belongs to a later edge (the
    /// clock was set back, or windows are shorter now) waits for that.
    fn reunite(&self, keeper: &mut Keeper, stamp: UnixNanos) -> Option<Carried> {
        if keeper.carried.is_empty() || keeper.carried.stamp > stamp {
            return None;
        }
        let carried = self.carry(keeper, Carried::default());
        (carried.stamp == stamp).then_some(carried)
    }

    /// Replaces what is carried.
    fn carry(&self, keeper: &mut Keeper, carried: Carried) -> Carried {
        self.bytes.fetch_add(carried.bytes, Relaxed);
        self.bytes.fetch_sub(keeper.carried.bytes, Relaxed);
        std::mem::replace(&mut keeper.carried, carried)
    }

    /// Windows are settled one after the other.
    fn settle_latest(&self, keeper: &mut Keeper) {
        if let Some(walk) = keeper.latest.upgrade() {
            lock(&walk).settle_all(keeper, self);
        }
    }

    /// Takes what the shards hold.
    fn shut(self: &Arc<Self>, keeper: &mut Keeper, terms: Terms) -> Closed {
        let (mut seen, mut riders) = (Vec::new(), Riders::default());
        for shard in &self.shards {
            let (taken, riding, bytes) = lock(shard).turn();
            self.bytes.fetch_sub(bytes, Relaxed);
            riders.join(&riding);
            seen.push(taken);
        }
        keeper.window = keeper.window.wrapping_add(1);
        let pages = read(&self.directory).pages();
        let walk = Arc::new(Mutex::new(Walk::new(seen, pages, terms)));
        keeper.latest = Arc::downgrade(&walk);
        Closed::new(self, walk, riders)
    }

    /// So many points became so many rows.
    fn folded(&self, points: u32, rows: usize) {
        self.book.windows.sub(points.into());
        self.book.folded_points.add(points.into());
        self.book.folded_rows.add(rows as u64);
    }

    /// Takes the places of series away that were last seen before a window.
    fn free(&self, gone: &[u32], window: u32) {
        let mut directory = write(&self.directory);
        for at in gone {
            if directory.is_gone(*at, window) {
                directory.free(*at);
            }
        }
        self.book.series.set(directory.len());
    }

    fn blank(&self) -> Page<State> {
        lock(&self.spare).pop().unwrap_or_else(blank)
    }

    /// Takes a page's memory back.
    fn recycle(&self, mut page: Page<State>) {
        page.iter_mut().for_each(|state| *state = State::default());
        lock(&self.spare).push(page);
    }

    /// Gives memory back that nobody is going to need.
    fn tidy(&self) {
        let mut directory = write(&self.directory);
        directory.trim();
        let pages = directory.pages();
        drop(directory);
        lock(&self.spare).truncate(pages);
    }
}

/// So much a shard may hold that the others do not know of.
const FRESH_MAX: usize = 64 << 10;

const fn grows(measure: &Measure<'_>) -> bool {
    !matches!(measure, Measure::Count { .. } | Measure::Gauge(_))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Samples, members and gauge shifts of one backend's open window, about 30 million samples; and
/// the names of its series, say a million of 150 bytes with their tags.
const BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::ExpireAfter;
    use crate::lane::series::{of_kind, series_hash};
    use crate::units::Span;
    use closed::Due;
    use protocols::{Kind, Tags};

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn when_names_fill_the_memory_only_known_series_have_places() {
        let mut windows = Windows::new(1, Arc::default());
        windows.names_max = 4;
        let windows = Arc::new(windows);
        windows.align(UnixNanos(0), SECOND);
        let take = |name| {
            let hash = of_kind(series_hash(name, Tags::EMPTY), Kind::Gauge);
            let series = Series { hash, kind: Kind::Gauge, name, tags: Tags::EMPTY };
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
        close(2, &keeping);
        assert!(is_in(take("kept")));
        assert_eq!(take("stranger"), Taken::NoPlace);
        close(3, &forgetting);
        close(4, &forgetting);
        assert!(is_in(take("stranger")), "the names of whom nobody knows take nothing");
    }

    #[test]
    fn a_place_is_good_for_as_long_as_its_series_has_it() {
        let windows = Arc::new(Windows::new(2, Arc::default()));
        windows.align(UnixNanos(0), SECOND);
        let hash = of_kind(series_hash("c", Tags::EMPTY), Kind::Counter);
        let series = Series { hash, kind: Kind::Counter, name: "c", tags: Tags::EMPTY };
        let one = Measure::Count { delta: 1.0, rate: 1.0 };
        let place = windows.place(&mut windows.shard(0).unwrap(), &series, 1).unwrap();
        let absorb = |worker| windows.absorb(&mut windows.shard(worker).unwrap(), place, &one, 1);
        let close = |second| {
            let mut closed = windows.close(UnixNanos(second * SECOND), &Expire::default()).unwrap();
            let mut sums = Vec::new();
            while closed.turn_page() {
                let mut note = |due: &Due<'_>| {
                    sums.push(format!("{:?}", due.aggregate));
                    1
                };
                while closed.write_next(&mut note).is_some() {}
            }
            sums
        };
        assert_eq!([absorb(0), absorb(1), absorb(1)], [Some(Taken::In(place)); 3]);
        assert_eq!(close(1), ["Counter(3.0)"]);
        assert_eq!(absorb(1), Some(Taken::In(place)));
        assert_eq!((close(2), close(3)), (vec!["Counter(1.0)".to_owned()], vec![]));
        assert_eq!([absorb(0), absorb(1)], [None; 2]);
        let other = Series { hash: hash + 1, name: "d", ..series };
        let next = windows.place(&mut windows.shard(0).unwrap(), &other, 1).unwrap();
        assert_eq!((next.at, absorb(0)), (place.at, None), "nor does it count for another one");
    }
}
