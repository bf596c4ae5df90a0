//! A closed window on its way to becoming rows, a page of places after the other.
//!
//! Closing takes the shards' states away and does nothing else. What they hold is then *settled* page
//! by page: shards are merged, gauges run on from where they stood, what is idle is added, and who
//! was not seen for long enough loses his place. Only a page is settled, or written, at once, so that
//! others have their turn in between. Settling happens in the order of the windows: whoever closes the
//! next one first settles what is left of this.

use super::carried::{Carried, Spread};
use super::directory::{Directory, Standing};
use super::pages::{Page, Pages, local, place, places_of};
use super::shard::{Seen, State};
use super::twins::Twins;
use super::{Keeper, Windows, lock, read};
use crate::lane::Expire;
use crate::lane::aggregate::Aggregate;
use crate::lane::riders::Riders;
use crate::lane::table::Series;
use hashbrown::HashMap;
use protocols::UnixNanos;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// What is not written when it is dropped counts as lost to the shutdown.
#[derive(Debug)]
pub(in crate::lane) struct Closed {
    pub(in crate::lane) riders: Riders,
    windows: Arc<Windows>,
    walk: Arc<Mutex<Walk>>,
    /// That of its rows.
    stamp: UnixNanos,
    /// Whether no row has a mark.
    is_plain: bool,
    /// The page that is being written, its number, and how much of it is.
    page: Option<Leaf>,
    number: usize,
    done: usize,
}

/// The content of a closed window, settled up to a page.
#[derive(Debug)]
pub(super) struct Walk {
    shards: Vec<Seen>,
    settled: Pages<State>,
    next: usize,
    end: usize,
    twins: Twins,
    /// All that [`Twins`] were given, behind the last page.
    tail: Option<Leaf>,
    /// Where rows stand apart from those of their series that were, or will be, written too.
    marks: HashMap<u32, Mark, foldhash::fast::RandomState>,
    terms: Terms,
}

/// Settled series that are written together.
#[derive(Debug)]
struct Leaf {
    states: Page<State>,
    /// Where they stand, if not at the places of a page.
    places: Option<Vec<u32>>,
}

/// How a window is settled.
#[derive(Debug)]
pub(super) struct Terms {
    /// The number of the window.
    pub(super) window: u32,
    /// The stamp of its end.
    pub(super) stamp: UnixNanos,
    pub(super) expire: Expire,
    /// Whether what is idle is written, too.
    pub(super) repeats: bool,
    /// What was written of it earlier.
    pub(super) earlier: Earlier,
    /// Sets rows of one name apart.
    pub(super) spread: Option<Spread>,
}

/// Where that is which was written of a window before it ended.
#[derive(Debug)]
pub(super) enum Earlier {
    Nothing,
    Here(Box<Carried>),
    /// It stays with the keeper, since this is a part, too.
    Kept,
}

/// How the rows of a series differ from others of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// By how many nanoseconds they are later than the window's stamp.
    shift: u8,
    /// Whether they take the place of earlier ones.
    again: bool,
}

impl Closed {
    pub(super) fn new(windows: &Arc<Windows>, walk: Arc<Mutex<Walk>>, riders: Riders) -> Self {
        windows.closings.fetch_add(1, Relaxed);
        let terms = |terms: &Terms| (terms.stamp, terms.spread.is_none());
        let (stamp, is_plain) = terms(&lock(&walk).terms);
        let windows = Arc::clone(windows);
        Self { riders, windows, stamp, is_plain, walk, page: None, number: 0, done: 0 }
    }

    /// Goes on to the next page, if this one is written; there is none when the window is.
    pub(in crate::lane) fn turn_page(&mut self) -> bool {
        if self.page.is_some() {
            return true;
        }
        let mut keeper = lock(&self.windows.keeper);
        let mut walk = lock(&self.walk);
        if self.number > walk.end {
            return false;
        }
        if self.number == walk.next {
            walk.settle_next(&mut keeper, &self.windows);
        }
        self.page = walk.take(self.number);
        if self.page.is_none() {
            self.number += 1;
        }
        true
    }

    /// Hands the next series of the page to `write`, which answers how many rows it made of it;
    /// none when the page is written.
    pub(in crate::lane) fn write_next(
        &mut self,
        write: impl FnOnce(&Due<'_>) -> usize,
    ) -> Option<usize> {
        let next = self.page.as_ref().and_then(|page| page.next(self.number, self.done));
        let Some((local, at, state)) = next else {
            self.leave_page();
            return None;
        };
        self.done = local + 1;
        let Mark { shift, again } = self.mark(at);
        let time = UnixNanos(self.stamp.0 + i64::from(shift));
        let directory = read(&self.windows.directory);
        let series = directory.at(at).filter(|(_, born)| *born == state.born);
        let aggregate = &state.aggregate;
        let rows = series.map_or(0, |(series, _)| write(&Due { series, aggregate, time, again }));
        self.windows.folded(state.points, rows);
        if aggregate.is_sketched() {
            self.windows.book.noticed.add("sketched", 1);
        }
        Some(rows)
    }

    /// Makes the rows of a part those of a window that nobody goes on with, unless some of them
    /// take the place of earlier ones. Answers whether it did.
    pub(in crate::lane) fn ends_at(&mut self, now: UnixNanos) -> bool {
        let mut keeper = lock(&self.windows.keeper);
        let mut walk = lock(&self.walk);
        walk.settle_all(&mut keeper, &self.windows);
        let alone = walk.marks.values().all(|mark| !mark.again);
        if alone {
            self.stamp = keeper.edges.end(now);
        }
        alone
    }

    /// What was seen in a part that is settled, for who goes on with it.
    pub(super) fn content(&self, mut each: impl FnMut(&Series<'_>, &Aggregate, u8)) {
        let walk = lock(&self.walk);
        let directory = read(&self.windows.directory);
        let mut show = |at: u32, state: &State| {
            if let Some((series, _)) = directory.at(at).filter(|_| state.is_seen()) {
                each(&series, &state.aggregate, walk.mark(at).shift);
            }
        };
        for number in 0..walk.settled.reach() {
            let page = walk.settled.page(number).unwrap_or_default();
            places_of(number).zip(page).for_each(|(at, state)| show(at, state));
        }
        let Some(Leaf { states, places: Some(places) }) = &walk.tail else { return };
        places.iter().zip(states).for_each(|(at, state)| show(*at, state));
    }

    fn mark(&self, at: u32) -> Mark {
        if self.is_plain { Mark::default() } else { lock(&self.walk).mark(at) }
    }

    fn leave_page(&mut self) {
        let Some(page) = self.page.take() else { return };
        let mut walk = lock(&self.walk);
        if matches!(walk.terms.earlier, Earlier::Kept) {
            walk.put_back(self.number, page);
        } else if page.places.is_none() {
            self.windows.recycle(page.states);
        }
        self.number += 1;
        self.done = 0;
    }

    /// How many points are not written.
    fn left(&self, walk: &Walk) -> u64 {
        let points = |page: &[State]| page.iter().map(|state| u64::from(state.points)).sum::<u64>();
        let begun = self.page.as_ref().and_then(|page| page.states.get(self.done..));
        let pages = (self.number..walk.settled.reach()).filter_map(|page| walk.settled.page(page));
        let tail = walk.tail.as_ref().filter(|_| self.number <= walk.end).map(|tail| &*tail.states);
        begun.into_iter().chain(pages).chain(tail).map(points).sum()
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let mut keeper = lock(&self.windows.keeper);
        let mut walk = lock(&self.walk);
        walk.settle_all(&mut keeper, &self.windows);
        let left = self.left(&walk);
        self.windows.closings.fetch_sub(1, Relaxed);
        self.windows.book.windows.sub(left);
        self.windows.book.dropped.add("shutdown", left);
        self.riders.lose(left, "shutdown", None);
        self.windows.tidy();
    }
}

impl Leaf {
    /// The first series from there on: where it is in the page, its place and its state.
    fn next(&self, number: usize, from: usize) -> Option<(usize, u32, &State)> {
        let mut rest = self.states.iter().enumerate().skip(from);
        let (local, state) = rest.find(|(_, state)| state.is_seen())?;
        let at = match &self.places {
            Some(places) => *places.get(local)?,
            None => place(number, local),
        };
        Some((local, at, state))
    }
}

impl Walk {
    pub(super) fn new(shards: Vec<Seen>, end: usize, terms: Terms) -> Self {
        let (settled, marks, twins) = (Pages::default(), HashMap::default(), Twins::default());
        Self { shards, settled, next: 0, end, twins, tail: None, marks, terms }
    }

    /// A page that is settled; the one behind the last holds twins.
    fn take(&mut self, number: usize) -> Option<Leaf> {
        if number == self.end {
            return self.tail.take();
        }
        self.settled.take(number).map(|states| Leaf { states, places: None })
    }

    fn put_back(&mut self, number: usize, page: Leaf) {
        if number == self.end {
            self.tail = Some(page);
        } else {
            self.settled.put(number, page.states);
        }
    }

    /// Settles what is left.
    pub(super) fn settle_all(&mut self, keeper: &mut Keeper, windows: &Windows) {
        while self.next <= self.end {
            self.settle_next(keeper, windows);
        }
    }

    /// Settles one page.
    fn settle_next(&mut self, keeper: &mut Keeper, windows: &Windows) {
        let number = self.next;
        self.next += 1;
        if number == self.end {
            return self.settle_twins(windows);
        }
        let mut page = self.unite(number, windows);
        let gone = self.settle(number, &mut page, keeper, windows);
        keeper.idle.tidy(number);
        if let Some(page) = page {
            self.settled.put(number, page);
        }
        if !gone.is_empty() && windows.closings.load(Relaxed) <= 1 {
            // An earlier window that is being written still may need the names.
            windows.free(&gone, self.terms.window);
        }
    }

    fn settle_twins(&mut self, windows: &Windows) {
        let listed = self.shards.iter_mut().flat_map(|shard| std::mem::take(&mut shard.twins));
        let (places, states) = self.twins.in_order(listed.collect());
        let directory = read(&windows.directory);
        places.iter().for_each(|at| self.spread(*at, &directory));
        self.tail = Some(Leaf { states: states.into(), places: Some(places) });
    }

    /// What all shards have seen, as the first of them has it.
    fn unite(&mut self, number: usize, windows: &Windows) -> Option<Page<State>> {
        let mut pages = self.shards.iter_mut().filter_map(|shard| shard.states.take(number));
        let mut first = pages.next()?;
        for mut page in pages {
            for (state, other) in first.iter_mut().zip(&mut page) {
                if other.is_seen() {
                    let too_many = state.unite(std::mem::take(other));
                    windows.folded(too_many, 0);
                }
            }
            windows.recycle(page);
        }
        Some(first)
    }

    /// Lets gauges run on, adds what is idle, and answers whose places are to be freed.
    fn settle(
        &mut self,
        number: usize,
        page: &mut Option<Page<State>>,
        keeper: &mut Keeper,
        windows: &Windows,
    ) -> Vec<u32> {
        let mut gone = Vec::new();
        let directory = read(&windows.directory);
        for at in places_of(number) {
            let Some(Standing { kind, born, twin }) = directory.standing(at) else { continue };
            let state = page.as_deref_mut().and_then(|page| page.get_mut(local(at)));
            if let Some(state) = state.filter(|state| state.is_seen()) {
                self.follow(at, state, keeper, &directory);
                keeper.idle.outlive(at, kind, &mut state.aggregate, &self.terms);
                if twin {
                    self.twins.seen(at, std::mem::take(state));
                    continue;
                }
            } else if let Some(aggregate) = keeper.idle.repeat(at, kind, &self.terms) {
                let idle = State { born, points: 0, aggregate };
                if twin {
                    self.twins.idle(at, idle);
                    continue;
                }
                let page = page.get_or_insert_with(|| windows.blank());
                let Some(state) = page.get_mut(local(at)) else { continue };
                *state = idle;
            } else {
                if !keeper.idle.has(at) && directory.is_gone(at, self.terms.window) {
                    gone.push(at);
                }
                continue;
            }
            self.spread(at, &directory);
        }
        gone
    }

    /// Goes on from what was written of the series earlier.
    fn follow(&mut self, at: u32, state: &mut State, keeper: &mut Keeper, directory: &Directory) {
        let carried = match &mut self.terms.earlier {
            Earlier::Nothing => return,
            Earlier::Here(carried) => carried,
            Earlier::Kept => &mut keeper.carried,
        };
        let Some((series, _)) = directory.at(at) else { return };
        if let Some(shift) = carried.unite(&series, &mut state.aggregate) {
            self.marks.insert(at, Mark { shift, again: true });
        }
    }

    fn spread(&mut self, at: u32, directory: &Directory) {
        let Some(spread) = &mut self.terms.spread else { return };
        if self.marks.contains_key(&at) {
            return;
        }
        if let Some((series, _)) = directory.at(at) {
            self.marks.insert(at, Mark { shift: spread.next(&series), again: false });
        }
    }

    fn mark(&self, at: u32) -> Mark {
        self.marks.get(&at).copied().unwrap_or_default()
    }
}

/// What is to become rows.
pub(in crate::lane) struct Due<'a> {
    pub(in crate::lane) series: Series<'a>,
    pub(in crate::lane) aggregate: &'a Aggregate,
    pub(in crate::lane) time: UnixNanos,
    /// Whether the rows take the place of earlier ones of the same time.
    pub(in crate::lane) again: bool,
}
