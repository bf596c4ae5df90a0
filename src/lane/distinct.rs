//! No two points of one series in one nanosecond, for databases that would keep only one.
//!
//! The later point is moved on to the next free nanosecond. The memory is bounded: it covers
//! at least the last [`GENERATION`] different times, at most twice as many, and is gone with the
//! lane. As elsewhere in a lane a series is its hash; that and a time make a number of as many
//! bits, so that what is looked for with every point takes little of the processor's caches.
//!
//! Nearly all points are later than all of their series before them. Of such nothing is looked for
//! but the newest time of the series, and their places are only noted, one behind the other; they
//! are put in order when a point comes that may not be the newest.

use super::newest::Newest;
use hashbrown::{HashMap, HashSet};
use protocols::UnixNanos;

/// The times that points lately took.
#[derive(Debug, Default)]
pub(super) struct Distinct {
    newest: Newest,
    recent: Generation,
    older: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    /// Each [place](place) that is taken, but for those of the list.
    taken: HashSet<u64, foldhash::fast::RandomState>,
    /// Places that are not put in order yet.
    noted: Vec<u64>,
    /// From a place that was asked for in vain to the next time that may be free.
    onward: HashMap<u64, i64, foldhash::fast::RandomState>,
}

impl Distinct {
    /// The time that a point may have which asks for `time`.
    #[inline]
    pub(super) fn claim(&mut self, series: u64, time: UnixNanos) -> UnixNanos {
        if self.recent.len() >= GENERATION {
            self.turn_over();
        }
        if self.newest.advance(series, time.0) {
            self.recent.noted.push(place(series, time.0));
            return time;
        }
        self.find(series, time)
    }

    /// A series that will claim a time soon.
    #[inline]
    pub(super) fn announce(&self, series: u64) {
        self.newest.announce(series);
    }

    /// The first free time from this one on, which may be taken.
    #[cold]
    fn find(&mut self, series: u64, time: UnixNanos) -> UnixNanos {
        self.recent.put_in_order();
        self.older.put_in_order();
        let mut free = time.0;
        while let Some(next) = self.next(series, free) {
            free = next;
        }
        self.recent.taken.insert(place(series, free));
        if free != time.0 {
            // Whoever asks for the same time again jumps over all that were found taken.
            let asked = place(series, time.0);
            self.recent.taken.insert(asked);
            self.recent.onward.insert(asked, free.saturating_add(1));
            self.newest.advance(series, free);
        }
        UnixNanos(free)
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

    /// Forgets the older generation, now that the recent one is full, and keeps its memory.
    #[cold]
    fn turn_over(&mut self) {
        std::mem::swap(&mut self.recent, &mut self.older);
        self.recent.clear();
    }
}

impl Generation {
    fn len(&self) -> usize {
        self.taken.len() + self.noted.len()
    }

    fn put_in_order(&mut self) {
        self.taken.extend(self.noted.drain(..));
    }

    fn clear(&mut self) {
        self.taken.clear();
        self.noted.clear();
        self.onward.clear();
    }
}

/// Of two times of a series never the same.
const fn place(series: u64, time: i64) -> u64 {
    series.wrapping_add(time.cast_unsigned().wrapping_mul(SPREAD))
}

/// Any odd number with its bits well mixed will do.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// About 5 MiB for two generations, unless many points ask for times that are taken.
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

    /// What the times of a series are to be, said as simply as possible.
    fn expected(asked: &[(u64, i64)]) -> Vec<i64> {
        let mut taken = std::collections::BTreeSet::new();
        let mut free = |series: u64, time: i64| (time..).find(|at| taken.insert((series, *at)));
        asked.iter().map(|(series, time)| free(*series, *time).unwrap()).collect()
    }

    proptest::proptest! {
        /// In whatever order points come.
        #[test]
        fn times_are_those_of_the_simple_way(
            asked in proptest::collection::vec((0u64..4, 0i64..20), 0..100), turns in 0usize..4,
        ) {
            let mut distinct = Distinct::default();
            let given = asked.iter().enumerate().map(|(at, (series, time))| {
                if at > 0 && turns == at {
                    // One generation back is remembered as well.
                    distinct.turn_over();
                }
                distinct.claim(*series, UnixNanos(*time)).0
            });
            let given: Vec<_> = given.collect();
            proptest::prop_assert_eq!(given, expected(&asked));
        }
    }
}
