//! What a head is known by where its text would take too much room: 128 bits, keyed by chance.
//!
//! Both halves are *NH*, the sum of products that UMAC (RFC 4418) is built on: of any two texts of a
//! length, whoever has chosen them without knowing the keys, only one key in 2^64 makes the sums of one
//! half equal. Of a million heads, no two are ever met that share a print.

use protocols::statsd::Head;
use std::hash::BuildHasher;

/// What a head is known by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Print {
    /// To look it up by.
    pub(super) hash: u64,
    /// Sums of the same under other keys.
    check: u64,
}

#[cfg(test)]
impl Print {
    /// One of many.
    pub(super) const fn of_test(n: u64) -> Self {
        Self { hash: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), check: n }
    }
}

/// The keys.
#[derive(Debug)]
pub(super) struct Keys([u64; WORDS]);

impl Default for Keys {
    fn default() -> Self {
        let chance = foldhash::quality::RandomState::default();
        Self(std::array::from_fn(|place| chance.hash_one(place)))
    }
}

impl Keys {
    /// That of a head; none of one that is too long.
    #[inline]
    pub(super) fn print(&self, Head { name, tail }: &Head<'_>) -> Option<Print> {
        let mut sums = Sums { keys: &self.0, first: 0, second: 0 };
        sums.add_text(name)?;
        // Most tails are a bar and a kind, which go into one word.
        let word = match **tail {
            [bar, kind] => u64::from_le_bytes([bar, kind, 0, 0, 0, 0, 0, 0]),
            [bar, one, two] => u64::from_le_bytes([bar, one, two, 0, 0, 0, 0, 0]),
            _ => {
                sums.add_text(tail)?;
                0
            }
        };
        // Texts of other lengths may be read as the same words.
        sums.add(word, ((name.len() as u64) << 32) ^ tail.len() as u64)?;
        Some(Print { hash: fold(sums.first), check: fold(sums.second) })
    }
}

/// Of the words so far.
struct Sums<'k> {
    /// Those that are left.
    keys: &'k [u64],
    first: u128,
    second: u128,
}

impl Sums<'_> {
    #[inline]
    fn add(&mut self, a: u64, b: u64) -> Option<()> {
        let [one, two, three, four] = *self.keys.first_chunk()?;
        let product = |one, two| u128::from(a.wrapping_add(one)) * u128::from(b.wrapping_add(two));
        self.first = self.first.wrapping_add(product(one, two));
        self.second = self.second.wrapping_add(product(three, four));
        self.keys = self.keys.get(2..)?;
        Some(())
    }

    #[inline]
    fn add_text(&mut self, text: &[u8]) -> Option<()> {
        let Some(last) = text.last_chunk() else {
            let (a, b) = short(text);
            return self.add(a, b);
        };
        let (blocks, rest) = text.as_chunks();
        for block in blocks {
            self.add_block(block)?;
        }
        if rest.is_empty() { Some(()) } else { self.add_block(last) }
    }

    #[inline]
    fn add_block(&mut self, block: &[u8; 16]) -> Option<()> {
        let both = u128::from_le_bytes(*block);
        self.add(low(both), low(both >> 64))
    }
}

/// The words of less than sixteen bytes; some of these may be in both.
#[inline]
fn short(text: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into());
    }
    (text.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte)), 0)
}

/// All of the bits in half of the room.
#[inline]
fn fold(sum: u128) -> u64 {
    // Products are even more often than odd, so that the lowest bits alone would not do.
    let mixed = u128::from(low(sum) ^ MIX) * u128::from(low(sum >> 64) ^ MIX.rotate_left(32));
    low(mixed) ^ low(mixed >> 64)
}

#[allow(clippy::cast_possible_truncation)] // The lower half is what is meant.
const fn low(both: u128) -> u64 {
    both as u64
}

/// Any number of well mixed bits; this is pi's fraction.
const MIX: u64 = 0x243f_6a88_85a3_08d3;

/// Two for each sixteen bytes of a head, and two more; enough for what is usual and more.
const WORDS: usize = 132;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn print(name: &str, tail: &str) -> Option<Print> {
        KEYS.with(|keys| keys.print(&Head { name: name.as_bytes(), tail: tail.as_bytes() }))
    }

    thread_local! {
        static KEYS: Keys = Keys::default();
    }

    proptest! {
        #[test]
        fn prints_are_equal_where_heads_are(
            left in ("[a|\0]{0,20}", "\\|[a|\0]{0,4}"),
            right in ("[a|\0]{0,3}", "\\|[a|\0]{0,4}"),
        ) {
            let of = |(name, tail): &(String, String)| print(name, tail).unwrap();
            prop_assert_eq!(left == right, of(&left) == of(&right));
            prop_assert_eq!(left == right, of(&left).hash == of(&right).hash);
            prop_assert_eq!(left == right, of(&left).check == of(&right).check);
        }
    }

    #[test]
    fn one_byte_makes_another_print() {
        let mut seen = HashSet::new();
        for length in 0..70 {
            for at in 0..length {
                for byte in ['b', 'c', '\0'] {
                    let name: String =
                        (0..length).map(|place| if place == at { byte } else { 'a' }).collect();
                    let Print { hash, check } = print(&name, "|c").unwrap();
                    assert!(seen.insert(hash) && seen.insert(check), "{name:?}");
                }
            }
        }
    }

    #[test]
    fn hashes_fill_a_table_evenly() {
        let mut buckets = [0_u32; 256];
        for n in 0..25_600 {
            let hash = print(&format!("service.requests.{n}"), "|c").unwrap().hash;
            for bits in [hash, hash >> 40, hash >> 57] {
                buckets[usize::try_from(bits & 0xff).unwrap()] += 1;
            }
        }
        // Of the last there are seven bits, which half of the buckets get.
        let (more, less) = buckets.split_at(128);
        assert!(less.iter().all(|count| (120..280).contains(count)), "{less:?}");
        assert!(more.iter().all(|count| (300..500).contains(count)), "{more:?}");
    }

    #[test]
    fn what_is_too_long_has_none() {
        assert!(print(&"n".repeat(900), "|c|#a:b").is_some());
        assert_eq!(print(&"n".repeat(2000), "|c"), None);
        assert_eq!(print("n", &"|".repeat(2000)), None);
    }
}
