//! Notices names that the backend can tell apart no more, once they are made fit for it.
//!
//! Only names that had to be changed are remembered, so that usual traffic costs one look at
//! each name and no memory. A collision with a name that needed no change is therefore seen
//! from the second point on, and nothing is noticed beyond [`NAMES_MAX`] changed names.

use hashbrown::HashMap;
use protocols::Encode;
use std::hash::BuildHasher;

/// The changed names of one lane.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// From what is sent to the name that it was first sent for.
    sent: HashMap<u64, u64, foldhash::fast::RandomState>,
    spelled: Vec<u8>,
}

impl Names {
    /// Whether the backend takes this name for another one that was sent before.
    pub(super) fn collides(&mut self, name: &str, encode: &dyn Encode) -> bool {
        self.spelled.clear();
        let changed = encode.name(name, &mut self.spelled);
        if !changed && self.sent.is_empty() {
            return false;
        }
        let hasher = self.sent.hasher();
        let (spelled, own) = (hasher.hash_one(&*self.spelled), hasher.hash_one(name));
        let first = self.sent.get(&spelled).copied();
        if first.is_none() && changed && self.sent.len() < NAMES_MAX {
            self.sent.insert(spelled, own);
        }
        first.is_some_and(|first| first != own)
    }

    /// Whether one that needed no change may collide, too.
    pub(super) fn are_watched(&self) -> bool {
        !self.sent.is_empty()
    }

    /// How the name last asked for is sent.
    pub(super) fn spelled(&self) -> &[u8] {
        &self.spelled
    }
}

/// Below 1 MiB, and more names with odd characters than anybody looks after.
const NAMES_MAX: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::statsd::{Encoder, TagDialect};

    #[test]
    fn names_collide_when_they_are_spelled_alike() {
        let encode = Encoder::new(TagDialect::Dogstatsd, 1432);
        for (names, expected) in [
            (&["a", "b", "a"][..], &[false, false, false][..]),
            (&["a|b", "a|b"], &[false, false]),
            (&["a|b", "a:b", "a|b"], &[false, true, false]),
            (&["a|b", "a_b", "a_b"], &[false, true, true]),
            (&["a_b", "a|b", "a_b"], &[false, false, true]),
        ] {
            let mut seen = Names::default();
            let collisions: Vec<_> =
                names.iter().map(|name| seen.collides(name, &encode)).collect();
            assert_eq!(collisions, expected, "{names:?}");
        }
    }

    #[test]
    fn no_crowd_of_names_takes_more_than_its_room() {
        let encode = Encoder::new(TagDialect::Dogstatsd, 1432);
        let mut seen = Names::default();
        for nth in 0..2 * NAMES_MAX {
            assert!(!seen.collides(&format!("a|{nth}"), &encode));
        }
        assert_eq!(seen.sent.len(), NAMES_MAX);
    }
}
