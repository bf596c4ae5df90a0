//! Which series hold a place in a backend's windows, so that `max_series` is a bound.
//!
//! A series keeps its place for one window after the last in which it was seen, or as long as
//! the windows keep something of it (a gauge's value, an idle clock). So a flood of new names
//! never costs a known series its place, and when the flood is over the places come back.
//! Series are known here by their hashes alone.

use hashbrown::HashSet;

/// The hashes of series, each in exactly one of three sets.
#[derive(Debug, Default)]
pub(super) struct Roster {
    kept: Hashes,
    now: Hashes,
    before: Hashes,
}

type Hashes = HashSet<u64, foldhash::fast::RandomState>;

impl Roster {
    /// Gives a series a place in the present window, if it has one or one is free.
    pub(super) fn admit(&mut self, series: u64, places: u64) -> bool {
        if self.kept.contains(&series) || self.now.contains(&series) {
            return true;
        }
        if !self.before.remove(&series) && self.len() >= places {
            return false;
        }
        self.now.insert(series)
    }

    /// Begins a window. The answer is the memory of series that lost their places, to be
    /// freed where nobody waits.
    #[must_use]
    pub(super) fn turn(&mut self) -> impl Sized + use<> {
        std::mem::replace(&mut self.before, std::mem::take(&mut self.now))
    }

    /// Keeps a series' place until it is let go.
    pub(super) fn keep(&mut self, series: u64) {
        self.now.remove(&series);
        self.before.remove(&series);
        self.kept.insert(series);
    }

    /// Ends what `keep` began.
    pub(super) fn let_go(&mut self, series: u64) {
        self.kept.remove(&series);
    }

    /// How many places are taken.
    pub(super) fn len(&self) -> u64 {
        (self.kept.len() + self.now.len() + self.before.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_series_keep_their_places_in_a_flood() {
        let mut roster = Roster::default();
        assert!((0..3).all(|series| roster.admit(series, 3)));
        assert!(!roster.admit(3, 3));
        drop(roster.turn());
        assert!(!roster.admit(4, 3), "the three may still come");
        assert!(roster.admit(1, 3) && roster.admit(1, 3));
        drop(roster.turn());
        assert_eq!(roster.len(), 1);
        assert!(roster.admit(5, 3) && roster.admit(6, 3) && !roster.admit(7, 3));
    }

    #[test]
    fn a_kept_series_counts_once() {
        let mut roster = Roster::default();
        assert!(roster.admit(1, 2));
        roster.keep(1);
        drop(roster.turn());
        drop(roster.turn());
        assert!(roster.admit(1, 2) && roster.admit(2, 2) && !roster.admit(3, 2));
        roster.let_go(1);
        assert_eq!(roster.len(), 1);
    }
}
