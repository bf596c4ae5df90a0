//! Bytes looked at several at a time, without leaving safe Rust.
//!
//! Words of a line are too short for a search that has to be set up: eight bytes in a register,
//! or a block of sixteen that the compiler compares at once, are done before such a search begins.

/// Whether any byte is of that kind. The last block may overlap the one before, since to look
/// twice costs less than to look at each byte alone.
pub(crate) fn any(bytes: &[u8], kind: impl Fn(u8) -> bool + Copy) -> bool {
    let (blocks, _) = bytes.as_chunks::<16>();
    if let Some(last) = bytes.last_chunk::<16>() {
        return blocks.iter().fold(any_of(last, kind), |found, block| found | any_of(block, kind));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        return any_of(first, kind) | any_of(last, kind);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        return any_of(first, kind) | any_of(last, kind);
    }
    bytes.iter().any(|byte| kind(*byte))
}

/// Without an exit, so that all of them are compared at once.
fn any_of<const N: usize>(block: &[u8; N], kind: impl Fn(u8) -> bool) -> bool {
    block.iter().fold(false, |found, byte| found | kind(*byte))
}

/// Where the first byte is that `kind` marks: it is shown eight bytes at a time, the first of them
/// lowest, and sets the top bit of each that it means.
pub(crate) fn find(bytes: &[u8], kind: impl Fn(u64) -> u64) -> Option<usize> {
    let (eights, rest) = bytes.as_chunks::<8>();
    let mut at = 0;
    for eight in eights {
        let found = kind(u64::from_le_bytes(*eight));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let last = rest.iter().rev().fold(0, |last, byte| (last << 8) | u64::from(*byte));
    let place = kind(last).trailing_zeros() as usize / 8;
    (place < rest.len()).then_some(at + place)
}

/// Marks blanks and tabs.
pub(crate) const fn blank(eight: u64) -> u64 {
    equal(eight, b' ') | equal(eight, b'\t')
}

/// Marks the bytes that are `byte`.
pub(crate) const fn equal(eight: u64, byte: u8) -> u64 {
    let other = eight ^ each(byte);
    !(((other & each(0x7f)) + each(0x7f)) | other) & each(0x80)
}

/// Eight times this byte.
pub(crate) const fn each(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

#[cfg(test)]
mod tests {
    use super::{blank, equal, find};
    use proptest::prelude::*;

    proptest! {
        /// Whatever the length, each byte is looked at.
        #[test]
        fn any_is_any(bytes in proptest::collection::vec(any::<u8>(), 0..70), kind: u8) {
            prop_assert_eq!(super::any(&bytes, |byte| byte == kind), bytes.contains(&kind));
            prop_assert_eq!(super::any(&bytes, |byte| byte < kind), bytes.iter().any(|byte| *byte < kind));
        }

        /// The first is found, and no byte is taken for another.
        #[test]
        fn the_first_is_found(bytes in proptest::collection::vec(prop_oneof![Just(b'='), any::<u8>()], 0..70), mark: u8) {
            let expected = bytes.iter().position(|byte| *byte == mark);
            prop_assert_eq!(find(&bytes, |eight| equal(eight, mark)), expected);
            let expected = bytes.iter().position(|byte| matches!(byte, b' ' | b'\t'));
            prop_assert_eq!(find(&bytes, blank), expected);
        }
    }
}
