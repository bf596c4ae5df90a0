//! Decimal numbers as text: one notion of "a number" for every protocol.
//!
//! Read: an optional sign, digits with at most one point (`.5` and `5.` are numbers), an
//! optional exponent. Not read, though some servers take them: hexadecimal and binary,
//! `inf`, `nan`, `_` between digits, blanks around, and anything that overflows a double.
//! Where a protocol's numbers keep their type, integers keep their 64 bits.
//! Written: the shortest digits that read back as the same double.

use crate::Number;
use std::io::Write;

/// Reads a finite decimal number. One too small for a double is zero, as everywhere.
pub fn parse_finite(text: &str) -> Option<f64> {
    // The standard parser takes just our grammar, and the words for infinity and NaN, which
    // are not finite.
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Reads a number: an integer where one of 64 bits is spelt, everything else as
/// [`parse_finite`] does.
pub fn parse_number(text: &str) -> Option<Number> {
    integer(text).or_else(|| parse_finite(text).map(Number::F64))
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

/// `-0` is none, since an integer would lose its sign.
fn integer(text: &str) -> Option<Number> {
    match text.parse::<i64>() {
        Ok(0) if text.starts_with('-') => None,
        Ok(n) => Some(Number::I64(n)),
        Err(_) => text.parse().ok().map(Number::U64),
    }
}

/// Whether `text` is a number by its form. It may still be too large for a double.
pub(crate) fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match unsigned(text).split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, unsigned(exponent)),
        None => (unsigned(text), "0"),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    are_digits(exponent) && (are_digits(whole) || whole.is_empty()) && {
        are_digits(fraction) || (fraction.is_empty() && !whole.is_empty())
    }
}

/// Whether `text` is one ASCII digit or more, and nothing else.
pub(crate) fn are_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The text without its sign.
pub(crate) fn unsigned(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
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
            " 1", "1 ", "inf", "-inf", "Infinity", "nan", "NaN", "1e309", "-1e400", "1.2.3", ".e5",
            "1e5.0", "١",
        ];
        for text in cases {
            assert_eq!(parse_finite(text), None, "{text}");
            assert_eq!(parse_number(text), None, "{text}");
        }
    }

    #[test]
    fn integers_of_64_bits_stay_integers() {
        let signed = |text: &str, n| assert_eq!(parse_number(text), Some(Number::I64(n)), "{text}");
        signed("0", 0);
        signed("+5", 5);
        signed("-7", -7);
        signed("007", 7);
        signed("9007199254740993", 9_007_199_254_740_993);
        signed("2882429806056571124", 2_882_429_806_056_571_124);
        signed("-9223372036854775808", i64::MIN);
        assert_eq!(parse_number("9223372036854775808"), Some(Number::U64(1 << 63)));
        assert_eq!(parse_number("18446744073709551615"), Some(Number::U64(u64::MAX)));
    }

    #[test]
    fn what_is_no_integer_is_the_nearest_double() {
        for (text, x) in [
            ("18446744073709551616", 18_446_744_073_709_551_616.0),
            ("-9223372036854775809", -9_223_372_036_854_775_809.0),
            ("1.5", 1.5),
            ("-1.5e2", -150.0),
            ("5.", 5.0),
            ("1e-400", 0.0),
        ] {
            assert_eq!(parse_number(text), Some(Number::F64(x)), "{text}");
        }
        let Some(Number::F64(zero)) = parse_number("-0") else { panic!("not a double") };
        assert!(zero == 0.0 && zero.is_sign_negative());
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
        /// The form that is asked for, and the one that the standard parser reads, are one.
        #[test]
        fn the_form_is_what_is_read(text in "[+-]?[0-9.]{0,4}([eE][+-]?[0-9.]{0,3})?|[+-.eE0-9infaNIy]{0,6}") {
            let read = text.parse::<f64>();
            let is_word = unsigned(&text).starts_with(|first: char| first.is_ascii_alphabetic());
            prop_assert_eq!(is_decimal(&text), read.is_ok() && !is_word);
            prop_assert_eq!(parse_number(&text).map(Number::as_f64), parse_finite(&text));
        }

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
