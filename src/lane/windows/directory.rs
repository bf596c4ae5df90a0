//! Which series a backend's windows know, and where each stands.
//!
//! All shards share one directory, so that names stand in memory once, a place means the same series
//! in each, and shards are merged by place. A series keeps its place for one window after the last in
//! which it was seen, or as long as something of it outlives the windows; so a flood of new names
//! never costs a known series its place, and when the flood is over the places come back.
//!
//! Nothing here takes long at once, however many series there are: the index is in [`SEGMENTS`] that
//! grow by themselves, rows and names are in pages, and places are freed a page at a time. What
//! a series costs is a row of 32 bytes, its name and tags, and ten bytes or so of index.

use super::pages::{PAGE, local, page_of};
use crate::lane::series::{of_any_kind, of_kind, same_tags, table_of};
use crate::lane::table::Series;
use hashbrown::HashTable;
use protocols::{Key, Keys, Kind};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The series of one backend.
#[derive(Debug)]
pub(super) struct Directory {
    index: Vec<HashTable<u32>>,
    pages: Vec<Page>,
    /// Pages with room, the first of them first, so that the last ones may empty.
    open: BinaryHeap<Reverse<usize>>,
    series: u64,
    bytes: usize,
    births: u32,
}

/// Where a series stands, for as long as it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub(super) at: u32,
    /// Tells a series from those that stood there before and will after; never 0.
    pub(super) born: u32,
}

#[cfg(test)]
impl Place {
    /// A place of the first series that stands there.
    pub const fn of_test(at: u32) -> Self {
        Self { at, born: 1 }
    }
}

#[derive(Debug, Default)]
struct Page {
    rows: Vec<Row>,
    keys: Keys,
    taken: usize,
    /// Before this row there is no free one.
    first: usize,
    /// Whether it is among the open ones.
    open: bool,
}

#[derive(Debug)]
struct Row {
    /// Of name and tags; the kinds of one name are neighbours in the index.
    hash: u64,
    key: Key,
    /// 0 where nobody stands.
    born: u32,
    /// The latest window in which it was seen, by a number that wraps.
    seen: AtomicU32,
    kind: Kind,
    /// Whether the same name and tags are, or were, another kind's series, too.
    twin: bool,
}

/// Who stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) kind: Kind,
    pub(super) born: u32,
    /// Whether there may be another kind's series of that name and those tags.
    pub(super) twin: bool,
}

impl Default for Directory {
    fn default() -> Self {
        Self {
            index: (0..SEGMENTS).map(|_| HashTable::new()).collect(),
            pages: Vec::new(),
            open: BinaryHeap::new(),
            series: 0,
            bytes: 0,
            births: 0,
        }
    }
}

impl Directory {
    /// How many series there are.
    pub(super) fn len(&self) -> u64 {
        self.series
    }

    /// The memory that names and tags take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many pages there are.
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Where a series stands. Notes that it is seen in this window.
    pub(super) fn find(&self, series: &Series<'_>, window: u32) -> Option<Place> {
        let hash = of_any_kind(series.hash, series.kind);
        let is_it = |at: &u32| is(&self.pages, *at, hash, series, Some(series.kind));
        let at = *self.index.get(table_of(hash, SEGMENTS))?.find(hash, is_it)?;
        let row = row(&self.pages, at)?;
        row.see(window);
        Some(Place { at, born: row.born })
    }

    /// The series for which the place was given, if that still stands there. Notes that it is seen
    /// in this window.
    pub(super) fn see(&self, place: Place, window: u32) -> Option<Standing> {
        let standing = self.standing(place.at).filter(|it| it.born == place.born)?;
        row(&self.pages, place.at)?.see(window);
        Some(standing)
    }

    /// Gives a place to a series that has none.
    pub(super) fn insert(&mut self, series: &Series<'_>, window: u32) -> Option<Place> {
        let hash = of_any_kind(series.hash, series.kind);
        let number = self.page_with_room()?;
        let twin = self.note_twin(hash, series);
        let page = self.pages.get_mut(number)?;
        let key = page.keys.push(series.name, series.tags)?;
        self.births = self.births.checked_add(1).unwrap_or(1);
        let (born, seen, kind) = (self.births, AtomicU32::new(window), series.kind);
        self.bytes += page.keys.cost(key);
        self.series += 1;
        let row = Row { hash, key, born, seen, kind, twin };
        let at = u32::try_from(number * PAGE + page.settle(row)).ok()?;
        let pages = &self.pages;
        self.index
            .get_mut(table_of(hash, SEGMENTS))?
            .insert_unique(hash, at, |at| hash_of(pages, *at));
        Some(Place { at, born })
    }

    /// Whether another kind's series has that name and those tags; then it learns of this one.
    fn note_twin(&mut self, hash: u64, series: &Series<'_>) -> bool {
        let Some(segment) = self.index.get(table_of(hash, SEGMENTS)) else { return false };
        let twin = segment.find(hash, |at| is(&self.pages, *at, hash, series, None)).copied();
        let twin = twin.and_then(|at| self.pages.get_mut(page_of(at))?.rows.get_mut(local(at)));
        twin.map(|twin| twin.twin = true).is_some()
    }

    /// The series at a place, and which one of those that stand there in turn it is.
    pub(super) fn at(&self, at: u32) -> Option<(Series<'_>, u32)> {
        let page = self.pages.get(page_of(at))?;
        let row = page.rows.get(local(at)).filter(|row| row.born != 0)?;
        let (name, tags) = (page.keys.name(row.key), page.keys.tags(row.key));
        Some((Series { hash: of_kind(row.hash, row.kind), kind: row.kind, name, tags }, row.born))
    }

    /// Who stands at a place.
    pub(super) fn standing(&self, at: u32) -> Option<Standing> {
        let Row { kind, born, twin, .. } = *row(&self.pages, at)?;
        (born != 0).then_some(Standing { kind, born, twin })
    }

    /// Whether a series was last seen before this window.
    pub(super) fn is_gone(&self, at: u32, window: u32) -> bool {
        row(&self.pages, at).is_some_and(|row| row.born != 0 && row.age(window) > 0)
    }

    /// Takes a series' place away.
    pub(super) fn free(&mut self, at: u32) {
        let Some(page) = self.pages.get_mut(page_of(at)) else { return };
        let Some(row) = page.rows.get_mut(local(at)).filter(|row| row.born != 0) else { return };
        row.born = 0;
        let (hash, key) = (row.hash, row.key);
        self.bytes -= page.keys.forget(key);
        self.series -= 1;
        page.leave(local(at));
        if !std::mem::replace(&mut page.open, true) {
            self.open.push(Reverse(page_of(at)));
        }
        self.unlist(hash, at);
    }

    /// Forgets pages at the end in which nobody stands.
    pub(super) fn trim(&mut self) {
        while self.pages.pop_if(|page| page.taken == 0).is_some() {}
    }

    fn unlist(&mut self, hash: u64, at: u32) {
        let Some(segment) = self.index.get_mut(table_of(hash, SEGMENTS)) else { return };
        if let Ok(found) = segment.find_entry(hash, |listed| *listed == at) {
            found.remove();
        }
        if segment.len() < segment.capacity() / 8 {
            let pages = &self.pages;
            segment.shrink_to(segment.len() * 2, |at| hash_of(pages, *at));
        }
    }

    fn page_with_room(&mut self) -> Option<usize> {
        while let Some(Reverse(number)) = self.open.peek() {
            match self.pages.get_mut(*number) {
                Some(page) if page.taken < PAGE => return Some(*number),
                Some(page) => page.open = false,
                None => {}
            }
            self.open.pop();
        }
        self.pages.push(Page { open: true, ..Page::default() });
        self.open.push(Reverse(self.pages.len() - 1));
        Some(self.pages.len() - 1)
    }
}

impl Page {
    /// Puts a row where there is room, and answers where in the page that is.
    fn settle(&mut self, row: Row) -> usize {
        self.taken += 1;
        if self.taken == PAGE {
            self.keys.shrink();
        }
        let later = self.rows.iter().skip(self.first).position(|row| row.born == 0);
        let free = later.map_or(self.rows.len(), |later| self.first + later);
        match self.rows.get_mut(free) {
            Some(old) => *old = row,
            None => self.rows.push(row),
        }
        self.first = free + 1;
        free
    }

    /// One row less. Gives memory back that held names, when it is most of it.
    fn leave(&mut self, from: usize) {
        self.taken -= 1;
        self.first = self.first.min(from);
        if self.taken == 0 {
            *self = Self { open: self.open, ..Self::default() };
        } else if self.keys.is_stale() {
            self.tidy();
        }
    }

    fn tidy(&mut self) {
        let mut keys = Keys::default();
        for row in self.rows.iter_mut().filter(|row| row.born != 0) {
            // What fitted fits again.
            let copy = keys.push(self.keys.name(row.key), self.keys.tags(row.key));
            row.key = copy.unwrap_or_default();
        }
        keys.shrink();
        self.keys = keys;
    }
}

impl Row {
    fn see(&self, window: u32) {
        if self.age(window) > 0 {
            self.seen.store(window, Relaxed);
        }
    }

    /// How many windows before this one it was last seen; below 0 if later.
    #[allow(clippy::cast_possible_wrap)] // The numbers wrap, and all that are compared are near.
    fn age(&self, window: u32) -> i32 {
        window.wrapping_sub(self.seen.load(Relaxed)) as i32
    }
}

fn row(pages: &[Page], at: u32) -> Option<&Row> {
    pages.get(page_of(at))?.rows.get(local(at))
}

fn hash_of(pages: &[Page], at: u32) -> u64 {
    row(pages, at).map_or(0, |row| row.hash)
}

/// Whether a series of this name and these tags stands there, of that kind or of any.
fn is(pages: &[Page], at: u32, hash: u64, series: &Series<'_>, kind: Option<Kind>) -> bool {
    let Some(page) = pages.get(page_of(at)) else { return false };
    let Some(row) = page.rows.get(local(at)) else { return false };
    row.hash == hash
        && kind.is_none_or(|kind| row.kind == kind)
        && page.keys.name(row.key) == series.name
        && same_tags(page.keys.tags(row.key), series.tags)
}

/// In so many parts grows the index, each in a tenth of a millisecond when there are a million
/// series. These, which are the usual `max_series`, leave a quarter of it free and not half, as they
/// would with a power of two.
const SEGMENTS: usize = 320;

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::Tags;

    const fn series(hash: u64, name: &str) -> Series<'_> {
        Series { hash, kind: Kind::Counter, name, tags: Tags::EMPTY }
    }

    fn named(directory: &Directory, place: Place) -> Option<&str> {
        let (series, born) = directory.at(place.at)?;
        (born == place.born).then_some(series.name)
    }

    #[test]
    fn series_of_one_hash_are_told_apart() {
        let mut directory = Directory::default();
        let a = directory.insert(&series(7, "a"), 1).unwrap();
        let b = directory.insert(&series(7, "b"), 1).unwrap();
        assert_eq!(directory.find(&series(7, "a"), 1), Some(a));
        assert_eq!(directory.find(&series(7, "b"), 1), Some(b));
        assert_eq!(directory.find(&series(7, "c"), 1), None);
        assert_eq!(directory.find(&Series { kind: Kind::Gauge, ..series(7, "a") }, 1), None);
    }

    #[test]
    fn kinds_of_one_name_know_of_each_other() {
        let mut directory = Directory::default();
        let of = |kind| Series { hash: of_kind(7, kind), kind, ..series(0, "k") };
        let counter = directory.insert(&of(Kind::Counter), 1).unwrap();
        let other = directory.insert(&Series { name: "other", ..of(Kind::Set) }, 1).unwrap();
        assert!(!directory.standing(counter.at).unwrap().twin);
        let gauge = directory.insert(&of(Kind::Gauge), 1).unwrap();
        let twins = [counter, gauge, other].map(|place| directory.standing(place.at).unwrap().twin);
        assert_eq!(twins, [true, true, false]);
        assert_eq!(directory.find(&of(Kind::Gauge), 1), Some(gauge));
        assert_eq!(directory.at(gauge.at).unwrap().0.hash, of(Kind::Gauge).hash);
    }

    #[test]
    fn a_place_that_was_given_anew_is_stale_for_who_had_it() {
        let mut directory = Directory::default();
        let first = directory.insert(&series(1, "first"), 1).unwrap();
        assert_eq!(directory.see(first, 2).map(|it| it.kind), Some(Kind::Counter));
        directory.free(first.at);
        assert_eq!((directory.see(first, 2), directory.find(&series(1, "first"), 2)), (None, None));
        let second = directory.insert(&series(2, "second"), 3).unwrap();
        assert_eq!(second.at, first.at);
        assert_eq!((directory.see(first, 3), named(&directory, first)), (None, None));
        assert_eq!(named(&directory, second), Some("second"));
        assert_eq!(directory.see(Place::default(), 3), None);
    }

    #[test]
    fn a_series_is_gone_after_a_whole_window_without_it() {
        let mut directory = Directory::default();
        let place = directory.insert(&series(1, "a"), u32::MAX).unwrap();
        assert!(!directory.is_gone(place.at, u32::MAX));
        assert!(directory.is_gone(place.at, 0), "numbers wrap");
        directory.see(place, 1);
        directory.see(place, 0);
        assert!(!directory.is_gone(place.at, 1), "an older window changes nothing");
    }

    #[test]
    fn a_flood_leaves_no_memory_behind() {
        let mut directory = Directory::default();
        let name = |n: u64| format!("series.{n}");
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let insert = |directory: &mut Directory, n| {
            directory.insert(&series(hash(n), &name(n)), 1).unwrap().at
        };
        let all: Vec<_> = (0..10_000).map(|n| insert(&mut directory, n)).collect();
        assert_eq!((directory.len(), all[9_999]), (10_000, 9_999), "in the order of arrival");
        for at in all.iter().filter(|at| *at % 2_000 != 7) {
            directory.free(*at);
        }
        directory.trim();
        assert_eq!((directory.len(), directory.pages()), (5, 16));
        let text: usize = (0..5).map(|n| name(n * 2_000 + 7).len()).sum();
        assert_eq!(directory.bytes(), text);
        let kept: usize = directory.pages.iter().map(|page| page.rows.len()).sum();
        assert_eq!(kept, 5 * PAGE);
        let spare: usize = directory.index.iter().map(HashTable::capacity).sum();
        assert!(spare < 2_000, "{spare}");
        for n in 0..5 {
            let place = directory.find(&series(hash(n * 2_000 + 7), &name(n * 2_000 + 7)), 1);
            assert_eq!(place.map(|place| u64::from(place.at)), Some(n * 2_000 + 7));
        }
        assert_eq!(insert(&mut directory, 20_000), 0, "the first free place");
    }
}
