//! What makes two points one series: the name, the tags in any order, and the kind.
//!
//! The hash is taken once per point by the router and used by every lane. It is keyed with a
//! random number drawn when the process starts, so that nobody outside can choose names that
//! collide. It means nothing outside this process and is never written down.

use protocols::{Kind, Tags};
use std::hash::BuildHasher;
use std::sync::LazyLock;

/// The hash of a name and its tags. The order of the tags does not matter.
pub fn series_hash(name: &str, tags: Tags<'_>) -> u64 {
    let seed = &*SEED;
    let tags = tags.iter().map(|tag| seed.hash_one((tag.key, tag.value)));
    // A sum forgets the order; the rotation keeps a name from looking like a tag.
    tags.fold(seed.hash_one(name), |sum, tag| sum.wrapping_add(tag.rotate_left(17)))
}

/// The hash of one kind's series of that name and those tags.
pub(super) fn of_kind(hash: u64, kind: Kind) -> u64 {
    hash.wrapping_add((kind as u64 + 1).wrapping_mul(SPREAD))
}

/// The hash of the name and tags alone, from that of one kind's series.
pub(super) fn of_any_kind(hash: u64, kind: Kind) -> u64 {
    hash.wrapping_sub((kind as u64 + 1).wrapping_mul(SPREAD))
}

/// Which of so many tables has what has this hash, by bits that the tables themselves look at last.
#[allow(clippy::cast_possible_truncation)] // Sixteen of them are enough.
pub const fn table_of(hash: u64, tables: usize) -> usize {
    let bits = (hash >> 40) as u16 as usize;
    (bits * tables) >> u16::BITS
}

/// Whether two lists hold the same tags, in whatever order.
pub(super) fn same_tags(left: Tags<'_>, right: Tags<'_>) -> bool {
    left.len() == right.len()
        && (left == right || left.iter().all(|tag| right.find(tag.key) == Some(tag)))
}

static SEED: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

/// Any odd number with its bits well mixed will do; this is 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::{Batch, Measure};

    type Named<'a> = (&'a str, &'a [(&'a str, Option<&'a str>)]);

    fn batch(points: &[Named<'_>]) -> Batch {
        let mut batch = Batch::new();
        for (name, tags) in points {
            let mut writer = batch.begin(name);
            for (key, value) in *tags {
                writer.tag(key, *value);
            }
            writer.finish(Measure::Gauge(0.0), None, "");
        }
        batch
    }

    #[test]
    fn the_order_of_tags_never_splits_a_series() {
        let batch = batch(&[
            ("h", &[("a", Some("1")), ("b", Some("2"))]),
            ("h", &[("b", Some("2")), ("a", Some("1"))]),
        ]);
        let (one, other) = (batch.point(0).unwrap(), batch.point(1).unwrap());
        assert_eq!(series_hash(one.name, one.tags), series_hash(other.name, other.tags));
        assert!(same_tags(one.tags, other.tags));
    }

    #[test]
    fn different_series_differ() {
        let batch = batch(&[
            ("h", &[]),
            ("h", &[("a", None)]),
            ("h", &[("a", Some("a"))]),
            ("h", &[("a", Some("1")), ("b", Some("2"))]),
            ("h", &[("a", Some("2")), ("b", Some("1"))]),
            ("ha", &[]),
        ]);
        for (i, left) in batch.iter().enumerate() {
            for right in batch.iter().skip(i + 1) {
                let hashes =
                    series_hash(left.name, left.tags) == series_hash(right.name, right.tags);
                let same = left.name == right.name && same_tags(left.tags, right.tags);
                assert!(!hashes && !same, "{left:?} {right:?}");
            }
        }
        assert_ne!(of_kind(7, Kind::Counter), of_kind(7, Kind::Gauge));
        assert_eq!(of_any_kind(of_kind(7, Kind::Gauge), Kind::Gauge), 7);
    }
}
