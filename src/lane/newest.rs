//! The newest time of each series.
//!
//! Asked of every record, and each time of another series, so what it costs is the wait for
//! memory. Whoever knows which series come next can [announce](Newest::announce) them: a series
//! stands where its hash says, or a little further on, and that place is fetched meanwhile.

use super::prefetch;

/// The newest times of at least the last [`GENERATION`] different series.
#[derive(Debug, Default)]
pub(super) struct Newest {
    recent: Times,
    older: Times,
}

/// Open addressing with linear probing: hashes are mixed well, and by a seed that nobody knows.
#[derive(Debug, Default)]
struct Times {
    /// A power of two of them, or none; at most three of four are taken.
    slots: Vec<Slot>,
    taken: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Its hash; [`FREE`] of nobody.
    series: u64,
    time: i64,
}

impl Newest {
    /// A series that will be asked for soon.
    #[inline]
    pub(super) fn announce(&self, series: u64) {
        prefetch::at(&self.recent.slots, self.recent.home(series));
    }

    /// Notes a time of a series. Answers whether the series has had none from this one on.
    #[inline]
    pub(super) fn advance(&mut self, series: u64, time: i64) -> bool {
        let series = key(series);
        let Some(newest) = self.recent.find(series) else { return self.begin(series, time) };
        let later = time > *newest;
        *newest = time.max(*newest);
        later
    }

    /// The same of a series that was not seen lately.
    #[cold]
    fn begin(&mut self, series: u64, time: i64) -> bool {
        if self.recent.taken >= GENERATION {
            std::mem::swap(&mut self.recent, &mut self.older);
            self.recent.clear();
        }
        let before = self.older.find(series).copied();
        self.recent.insert(Slot { series, time: before.map_or(time, |before| before.max(time)) });
        before.is_none_or(|before| time > before)
    }
}

impl Times {
    /// Where a series would stand, were it alone.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // The low bits are as good as all.
    const fn home(&self, series: u64) -> usize {
        series as usize & self.slots.len().wrapping_sub(1)
    }

    #[inline]
    fn find(&mut self, series: u64) -> Option<&mut i64> {
        let place = self.place(series)?;
        self.slots.get_mut(place).filter(|slot| slot.series == series).map(|slot| &mut slot.time)
    }

    /// Where a series stands, or the free place that it would take.
    #[inline]
    fn place(&self, series: u64) -> Option<usize> {
        let mut place = self.home(series);
        loop {
            let slot = self.slots.get(place)?;
            if slot.series == series || slot.series == FREE {
                return Some(place);
            }
            place = self.home(place as u64 + 1);
        }
    }

    /// Adds a series that is not there.
    fn insert(&mut self, new: Slot) {
        if self.taken >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        self.put(new);
        self.taken += 1;
    }

    fn put(&mut self, new: Slot) {
        if let Some(slot) = self.place(new.series).and_then(|place| self.slots.get_mut(place)) {
            *slot = new;
        }
    }

    fn grow(&mut self) {
        let slots = vec![Slot { series: FREE, time: 0 }; (self.slots.len() * 2).max(SLOTS_MIN)];
        let old = std::mem::replace(&mut self.slots, slots);
        old.into_iter().filter(|slot| slot.series != FREE).for_each(|slot| self.put(slot));
    }

    fn clear(&mut self) {
        self.slots.fill(Slot { series: FREE, time: 0 });
        self.taken = 0;
    }
}

/// As a series is its hash, it does no more harm than any other collision that 0 is taken for 1.
const fn key(series: u64) -> u64 {
    if series == FREE { 1 } else { series }
}

const FREE: u64 = 0;
const SLOTS_MIN: usize = 64;
/// Up to 2 MiB each.
const GENERATION: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    proptest::proptest! {
        /// As a map knows it, however the places collide, and while the table grows.
        #[test]
        fn later_is_what_is_later_than_all_before(
            asked in proptest::collection::vec((0u64..40, 0u32..3, 0i64..20), 0..400),
        ) {
            let (mut newest, mut expected) = (Newest::default(), HashMap::new());
            for (low, high, time) in asked {
                // Many of one home.
                let series = low << 2 | u64::from(high) << 40;
                newest.announce(series);
                let before = expected.entry(key(series)).or_insert(i64::MIN);
                proptest::prop_assert_eq!(newest.advance(series, time), time > *before);
                *before = time.max(*before);
            }
        }
    }

    #[test]
    fn one_generation_back_is_remembered_and_no_more() {
        let mut newest = Newest::default();
        let generation = GENERATION as u64;
        assert!(newest.advance(u64::MAX, 5));
        (1..=generation).for_each(|series| assert!(newest.advance(series << 3, 1)));
        assert!(!newest.advance(u64::MAX, 5), "it stands in the older one");
        assert!(newest.advance(u64::MAX, 6));
        (1..=generation * 2).for_each(|series| assert!(newest.advance(series << 3 | 1, 1)));
        assert!(newest.advance(u64::MAX, 5), "it was forgotten");
    }
}
