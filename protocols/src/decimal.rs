//! Decimal numbers as text: one notion of "a number" for every protocol.
//!
//! Read: an optional sign, digits with at most one point (`.5` and `5.` are numbers), an
//! optional exponent. Not read, though some servers take them: hexadecimal and binary,
//! `inf`, `nan`, `_` between digits, blanks around, and anything that overflows a double.
//! Written: the shortest digits that read back as the same double.

use crate::Number;
use std::io::Write;

/// Reads a finite decimal number. One too small for a double is zero, as everywhere.
pub fn parse_finite(text: &str) -> Option<f64> {
    // The standard parser takes just our grammar, and the words for infinity and NaN, which
    // are not finite.
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Writes a finite number without an exponent, which many statsd servers cannot read.
pub fn write_f64(out: &mut Vec<u8>, value: f64) {
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)] // Then it is not whole.
    let whole = value as i64;
    if whole as f64 == value && value.abs() < INTEGERS_END {
        return write_integer(out, whole, value.is_sign_negative());
    }
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format(value);
    if memchr::memchr(b'e', text.as_bytes()).is_none() {
        out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
    } else {
        // The standard formatter prints the same shortest digits and pads them with zeros.
        // Writing into a vector cannot fail.
        let _ = write!(out, "{value}");
    }
}

/// Writes a number as it is: integers keep all their digits.
pub fn write_number(out: &mut Vec<u8>, number: Number) {
    match number {
        Number::I64(n) => out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes()),
        Number::U64(n) => out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes()),
        Number::F64(n) => write_f64(out, n),
    }
}

/// The sign is told apart because a double knows `-0` and an integer does not.
fn write_integer(out: &mut Vec<u8>, value: i64, negative: bool) {
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(itoa::Buffer::new().format(value.unsigned_abs()).as_bytes());
}

/// From 2^53 on a double no longer knows every integer, and its shortest digits differ.
const INTEGERS_END: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_that_are_numbers() {
        let cases = [
            ("0", 0.0),
            ("007", 7.0),
            ("+5", 5.0),
            ("-3.25", -3.25),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("1E+3", 1000.0),
            ("-1.5e-3", -0.0015),
            ("183.000000", 183.0),
            ("1e-400", 0.0),
            ("1.7976931348623157e308", f64::MAX),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_finite(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn forms_that_are_not() {
        let cases = [
            "", " ", "+", "-", ".", "e5", "1e", "1e+", "--1", "+-1", "1_0", "0x10", "0b11", "1,5",
            " 1", "1 ", "inf", "-inf", "Infinity", "nan", "NaN", "1e309", "1.2.3", "١",
        ];
        for text in cases {
            assert_eq!(parse_finite(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_written_short_and_plain() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (5.0, "5"),
            (-3.0, "-3"),
            (0.1, "0.1"),
            (0.3333333333333333, "0.3333333333333333"),
            (1e-7, "0.0000001"),
            (1e16, "10000000000000000"),
            (1.5e21, "1500000000000000000000"),
            (9_007_199_254_740_993.0, "9007199254740992"),
        ];
        for (value, expected) in cases {
            let mut out = Vec::new();
            write_f64(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn integers_keep_their_digits() {
        let mut out = Vec::new();
        for number in [Number::I64(i64::MIN), Number::U64(u64::MAX), Number::F64(0.5)] {
            write_number(&mut out, number);
            out.push(b' ');
        }
        assert_eq!(out, b"-9223372036854775808 18446744073709551615 0.5 ");
    }

    proptest! {
        /// Every finite double reads back as itself, to the bit, and has no exponent.
        #[test]
        fn round_trip(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let mut out = Vec::new();
            write_f64(&mut out, value);
            prop_assert!(!out.contains(&b'e'));
            let back = parse_finite(std::str::from_utf8(&out).unwrap()).unwrap();
            prop_assert_eq!(back.to_bits(), bits);
        }
    }
}
