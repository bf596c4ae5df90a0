//! How much is spent on finding the records that a backend refuses in what was one payload.
//!
//! Each division costs two attempts. One bad record is found by as many divisions as its payload
//! can be halved, so who says how many are bad is given that for each of them; for who does not
//! say, [`LEAST`] are enough for five that are spread over a payload of the usual size, or dozens
//! that stand together. [`MOST`] bounds what a payload full of them can cost.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Shared by all the parts of what was once one payload.
#[derive(Debug)]
pub(in crate::lane) struct Effort {
    spent: AtomicU32,
    granted: AtomicU32,
    explored: AtomicU32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { spent: 0.into(), granted: LEAST.into(), explored: 0.into() }
    }
}

impl Effort {
    /// Allows for so many bad ones among these records to be found.
    pub(in crate::lane) fn grant(&self, bad: u32, records: u32) {
        let halvings = u32::BITS - records.saturating_sub(1).leading_zeros();
        let more = bad.saturating_mul(halvings);
        self.granted.fetch_max(self.spent().saturating_add(more).min(MOST), Relaxed);
    }

    /// Whether one more division is allowed.
    pub(in crate::lane) fn is_left(&self) -> bool {
        self.spent() < self.granted.load(Relaxed)
    }

    /// Counts a division.
    pub(in crate::lane) fn spend(&self) {
        self.spent.fetch_add(1, Relaxed);
    }

    /// Whether it may be divided to find out whether the backend takes anything at all.
    pub(in crate::lane) fn may_explore(&self) -> bool {
        self.explored.load(Relaxed) < EXPLORED_MOST
    }

    /// Counts such a division, which is not charged to the others.
    pub(in crate::lane) fn explore(&self) {
        self.explored.fetch_add(1, Relaxed);
        self.granted.fetch_add(1, Relaxed);
    }

    fn spent(&self) -> u32 {
        self.spent.load(Relaxed)
    }
}

/// What every payload is granted.
const LEAST: u32 = 64;
/// And what none is granted more than: a second or two of a server that is near.
const MOST: u32 = 512;
/// Down to a single record of a payload of the usual size.
const EXPLORED_MOST: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(grants: &[(u32, u32)], expected: u32) {
        let effort = Effort::default();
        grants.iter().for_each(|(bad, records)| effort.grant(*bad, *records));
        let mut divisions = 0;
        while effort.is_left() {
            effort.spend();
            divisions += 1;
        }
        assert_eq!(divisions, expected, "{grants:?}");
    }

    #[test]
    fn it_is_in_proportion_to_what_is_bad() {
        check(&[], LEAST);
        check(&[(3, 5000)], LEAST);
        check(&[(20, 5000)], 20 * 13);
        check(&[(20, 5000), (1, 2)], 20 * 13);
        check(&[(4000, 5000)], MOST);
        check(&[(u32::MAX, 0), (u32::MAX, u32::MAX)], MOST);
    }

    #[test]
    fn what_parts_reveal_comes_on_top() {
        let effort = Effort::default();
        (0..60).for_each(|_| effort.spend());
        effort.grant(1, 1000);
        (0..10).for_each(|_| effort.spend());
        assert!(!effort.is_left());
    }
}
