//! A table from series to state, in flat storage and in the order of arrival.
//!
//! Names and tags lie in one [`Batch`], states in one list, and a small index of numbers finds
//! them by hash: a known series is found without an allocation, a new one costs none of its own
//! once the table has grown. Entries are never removed one by one; a table is cleared whole.

use super::series::same_tags;
use hashbrown::HashTable;
use protocols::{Batch, Kind, Measure, Point, Tags};

/// Series and their states.
#[derive(Debug)]
pub(super) struct Table<S> {
    index: HashTable<u32>,
    entries: Vec<Entry<S>>,
    keys: Batch,
}

/// The state of one series.
#[derive(Debug)]
pub(super) struct Entry<S> {
    /// Of name, tags and kind.
    pub(super) hash: u64,
    /// What is kept under the name; one name may be several kinds.
    pub(super) kind: Kind,
    /// Whatever the table is for.
    pub(super) state: S,
}

/// A series as the table is asked for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series<'a> {
    /// Of name, tags and kind.
    pub(super) hash: u64,
    pub(super) kind: Kind,
    pub(super) name: &'a str,
    pub(super) tags: Tags<'a>,
}

impl<S> Default for Table<S> {
    fn default() -> Self {
        Self { index: HashTable::new(), entries: Vec::new(), keys: Batch::new() }
    }
}

impl<S> Table<S> {
    /// How many series there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The memory that names and tags take.
    pub(super) fn key_bytes(&self) -> usize {
        self.keys.bytes()
    }

    /// The state of a series.
    pub(super) fn find(&mut self, series: &Series<'_>) -> Option<&mut S> {
        self.place(series).and_then(|place| self.state(place))
    }

    /// Where a series stands.
    pub(super) fn place(&self, series: &Series<'_>) -> Option<usize> {
        self.index.find(series.hash, |at| self.is(*at, series)).map(|at| *at as usize)
    }

    /// The state at a place.
    pub(super) fn state(&mut self, place: usize) -> Option<&mut S> {
        self.entries.get_mut(place).map(|entry| &mut entry.state)
    }

    /// Adds a series that is not in the table.
    pub(super) fn insert(&mut self, series: &Series<'_>, state: S) -> Option<&mut S> {
        let at = u32::try_from(self.entries.len()).ok()?;
        let Series { hash, kind, name, tags } = *series;
        self.keys.push(&Point { name, tags, measure: Measure::Gauge(0.0), time: None, rest: "" });
        self.entries.push(Entry { hash, kind, state });
        let entries = &self.entries;
        self.index.insert_unique(hash, at, |at| hash_of(entries, *at));
        self.entries.last_mut().map(|entry| &mut entry.state)
    }

    /// The series at a place, and its state.
    pub(super) fn at(&self, place: usize) -> Option<(Series<'_>, &S)> {
        let Entry { hash, kind, state } = self.entries.get(place)?;
        let Point { name, tags, .. } = self.keys.point(place)?;
        Some((Series { hash: *hash, kind: *kind, name, tags }, state))
    }

    /// Every series and its state, in the order of arrival.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Series<'_>, &S)> {
        (0..self.len()).filter_map(|place| self.at(place))
    }

    /// Moves every series out, in the order of arrival, and keeps the table's memory.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Series<'_>, S)) {
        for (entry, key) in self.entries.drain(..).zip(self.keys.iter()) {
            let Entry { hash, kind, state } = entry;
            each(Series { hash, kind, name: key.name, tags: key.tags }, state);
        }
        self.clear();
    }

    /// Empties the table. Keeps its memory, unless far less of it was needed this time.
    pub(super) fn clear(&mut self) {
        if self.index.len() < self.index.capacity() / 8 {
            *self = Self::default();
        }
        self.index.clear();
        self.entries.clear();
        self.keys.clear();
    }

    fn is(&self, at: u32, series: &Series<'_>) -> bool {
        let Some(entry) = self.entries.get(at as usize) else { return false };
        entry.hash == series.hash
            && entry.kind == series.kind
            && self
                .keys
                .point(at as usize)
                .is_some_and(|key| key.name == series.name && same_tags(key.tags, series.tags))
    }
}

fn hash_of<S>(entries: &[Entry<S>], at: u32) -> u64 {
    entries.get(at as usize).map_or(0, |entry| entry.hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn series(hash: u64, name: &str) -> Series<'_> {
        Series { hash, kind: Kind::Counter, name, tags: Tags::EMPTY }
    }

    #[test]
    fn series_of_one_hash_are_told_apart() {
        let mut table = Table::default();
        table.insert(&series(7, "a"), 1);
        table.insert(&series(7, "b"), 2);
        assert_eq!(table.find(&series(7, "a")), Some(&mut 1));
        assert_eq!(table.find(&series(7, "b")), Some(&mut 2));
        assert_eq!(table.find(&series(7, "c")), None);
        assert_eq!(table.find(&Series { kind: Kind::Gauge, ..series(7, "a") }), None);
    }

    #[test]
    fn a_drained_table_starts_anew() {
        let mut table = Table::default();
        for n in 0..100 {
            table.insert(&series(n, "n"), n);
        }
        let mut seen = Vec::new();
        table.drain(|series, state| seen.push((series.hash, state)));
        assert_eq!(seen, (0..100).map(|n| (n, n)).collect::<Vec<_>>());
        assert!(table.is_empty() && table.find(&series(5, "n")).is_none());
        table.insert(&series(5, "n"), 6);
        assert_eq!(table.at(0).map(|(_, state)| *state), Some(6));
    }
}
