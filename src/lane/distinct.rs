//! No two points of one series in one nanosecond, for databases that would keep only one.
//!
//! The later point is moved on to the next free nanosecond. The memory is bounded: it covers
//! at least the last [`GENERATION`] different times, at most twice as many, and is gone with the
//! lane. As elsewhere in a lane a series is its hash; that and a time make a number of as many bits,
//! so that what is looked for with every point takes little of the processor's caches.

use hashbrown::hash_set::Entry;
use hashbrown::{HashMap, HashSet};
use protocols::UnixNanos;

/// The times that points lately took.
#[derive(Debug, Default)]
pub(super) struct Distinct {
    recent: Generation,
    older: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    /// Each [place](place) that is taken.
    taken: HashSet<u64, foldhash::fast::RandomState>,
    /// From a place that was asked for in vain to the next time that may be free.
    onward: HashMap<u64, i64, foldhash::fast::RandomState>,
}

impl Distinct {
    /// The time that a point may have which asks for `time`.
    pub(super) fn claim(&mut self, series: u64, time: UnixNanos) -> UnixNanos {
        if self.take(place(series, time.0)) {
            return time;
        }
        let mut free = time.0;
        while let Some(next) = self.next(series, free) {
            free = next;
        }
        // Whoever asks for the same time again jumps over all that were found taken.
        let asked = place(series, time.0);
        self.recent.taken.extend([asked, place(series, free)]);
        self.recent.onward.insert(asked, free.saturating_add(1));
        UnixNanos(free)
    }

    /// Takes a place that nobody had, as nearly all are, with one search in each generation.
    fn take(&mut self, place: u64) -> bool {
        self.turn_over();
        match self.recent.taken.entry(place) {
            Entry::Vacant(free) if !self.older.taken.contains(&place) => {
                free.insert();
                true
            }
            _ => false,
        }
    }

    /// What may be free after this time, if that is taken and not the last there is.
    fn next(&self, series: u64, time: i64) -> Option<i64> {
        let place = place(series, time);
        let generations = [&self.recent, &self.older];
        if !generations.iter().any(|times| times.taken.contains(&place)) {
            return None;
        }
        let next = generations.iter().find_map(|times| times.onward.get(&place).copied());
        next.or(time.checked_add(1)).filter(|next| *next > time)
    }

    /// Forgets the older generation when the recent one is full, and keeps its memory.
    fn turn_over(&mut self) {
        if self.recent.taken.len() >= GENERATION {
            std::mem::swap(&mut self.recent, &mut self.older);
            self.recent.taken.clear();
            self.recent.onward.clear();
        }
    }
}

/// Of two times of a series never the same.
const fn place(series: u64, time: i64) -> u64 {
    series.wrapping_add(time.cast_unsigned().wrapping_mul(SPREAD))
}

/// Any odd number with its bits well mixed will do.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// About 2 MiB for two generations, unless many points ask for times that are taken.
const GENERATION: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(asked: &[(u64, i64)], expected: &[i64]) {
        let mut distinct = Distinct::default();
        let given = asked.iter().map(|(series, time)| distinct.claim(*series, UnixNanos(*time)).0);
        assert_eq!(given.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_later_moves_on() {
        check(&[(1, 5), (1, 5), (1, 5)], &[5, 6, 7]);
        check(&[(1, 5), (2, 5), (1, 6)], &[5, 5, 6]);
        check(&[(1, 5), (1, 5), (1, 6), (1, 5), (1, 4), (1, 4)], &[5, 6, 7, 8, 4, 9]);
        check(&[(1, i64::MAX), (1, i64::MAX)], &[i64::MAX, i64::MAX]);
    }

    #[test]
    fn many_at_once_are_all_told_apart() {
        let mut distinct = Distinct::default();
        let given: std::collections::BTreeSet<_> =
            (0..200_000).map(|_| distinct.claim(1, UnixNanos(0))).collect();
        assert_eq!(given.len(), 200_000);
    }
}
