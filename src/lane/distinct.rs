//! No two points of one series in one nanosecond, for databases that would keep only one.
//!
//! The later point is moved on to the next free nanosecond. The memory is bounded: it covers
//! at least the last [`GENERATION`] different times, at most twice as many, and is gone with
//! the lane.

use hashbrown::HashMap;
use protocols::UnixNanos;

/// The times that points lately took.
#[derive(Debug, Default)]
pub(super) struct Distinct {
    recent: Times,
    older: Times,
}

/// From (series, time) to the next time that may be free.
type Times = HashMap<(u64, i64), i64, foldhash::fast::RandomState>;

impl Distinct {
    /// The time that a point may have which asks for `time`.
    pub(super) fn claim(&mut self, series: u64, time: UnixNanos) -> UnixNanos {
        let mut free = time.0;
        while let Some(next) = self.next(series, free) {
            free = next;
        }
        // Whoever asks for the same time again jumps over all that were found taken.
        self.note(series, time.0, free.saturating_add(1));
        self.note(series, free, free.saturating_add(1));
        UnixNanos(free)
    }

    fn next(&self, series: u64, time: i64) -> Option<i64> {
        let key = (series, time);
        let next = self.recent.get(&key).or_else(|| self.older.get(&key)).copied()?;
        (next > time).then_some(next)
    }

    fn note(&mut self, series: u64, time: i64, next: i64) {
        if self.recent.len() >= GENERATION {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert((series, time), next);
    }
}

/// About 4 MiB for two generations.
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
