//! Decimal numbers as text: one notion of "a number" for every protocol.
//!
//! Read: an optional sign, digits with at most one point (`.5` and `5.` are numbers), an
//! optional exponent. Not read, though some servers take them: hexadecimal and binary,
//! `inf`, `nan`, `_` between digits, blanks around, and anything that overflows a double.
//! Where a protocol's numbers keep their type, integers keep their 64 bits.
//! Written: the shortest digits that read back as the same double.

use crate::Number;
use crate::scan::each;
use std::io::Write;

/// Reads a finite decimal number. One too small for a double is zero, as everywhere.
pub fn parse_finite(text: &str) -> Option<f64> {
    // The standard parser takes just our grammar, and the words for infinity and NaN, which
    // are not finite.
    match short(text.as_bytes()) {
        Some(number) => Some(number.as_f64()),
        None => text.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

/// The same of bytes that may be no text at all.
pub(crate) fn parse_finite_bytes(bytes: &[u8]) -> Option<f64> {
    match short(bytes) {
        Some(number) => Some(number.as_f64()),
        None => parse_finite(std::str::from_utf8(bytes).ok()?),
    }
}

/// Reads a number: an integer where one of 64 bits is spelt, everything else as
/// [`parse_finite`] does.
pub fn parse_number(text: &str) -> Option<Number> {
    short(text.as_bytes()).or_else(|| integer(text)).or_else(|| parse_finite(text).map(Number::F64))
}

/// What most numbers are: few digits, and no exponent. Up to fifteen digits are a whole number
/// that a double holds exactly, and so is the power of ten; so their quotient is rounded once,
/// and is the double that is nearest to the text.
fn short(text: &[u8]) -> Option<Number> {
    let (negative, bytes) = match text {
        [b'-', bytes @ ..] => (true, bytes),
        [b'+', bytes @ ..] => (false, bytes),
        bytes => (false, bytes),
    };
    if bytes.len() > SHORT_MAX {
        return None;
    }
    let (mut digits, mut count, mut point) = (0_i64, 0, None);
    for (at, byte) in bytes.iter().enumerate() {
        match byte.wrapping_sub(b'0') {
            digit @ 0..=9 => (digits, count) = (digits * 10 + i64::from(digit), count + 1),
            _ if *byte == b'.' && point.is_none() => point = Some(at + 1),
            _ => return None,
        }
    }
    if count == 0 {
        return None;
    }
    match point {
        None if negative && digits == 0 => Some(Number::F64(-0.0)),
        None => Some(Number::I64(if negative { -digits } else { digits })),
        Some(point) => {
            #[allow(clippy::cast_precision_loss)] // There is none below 2^53.
            let value = digits as f64 / POWERS.get(bytes.len() - point)?;
            Some(Number::F64(if negative { -value } else { value }))
        }
    }
}

/// Writes a finite number without an exponent, which many statsd servers cannot read.
pub fn write_f64(out: &mut Vec<u8>, value: f64) {
    if write_short(out, value) {
        return;
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

/// Writes a number that is whole, or has few decimals, as its shortest digits; answers whether it
/// is such a one. No two decimal numbers of up to fifteen digits are the same double, so digits
/// that give back the double are the only ones so short.
pub(crate) fn write_short(out: &mut Vec<u8>, value: f64) -> bool {
    let Some((digits, decimals)) = short_digits(value.abs()) else { return false };
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(digits).as_bytes();
    let whole = digits.len().saturating_sub(decimals);
    let (before, behind) = digits.split_at_checked(whole).unwrap_or((digits, &[]));
    out.extend_from_slice(if before.is_empty() { b"0" } else { before });
    if decimals > 0 {
        out.push(b'.');
        out.extend((behind.len()..decimals).map(|_| b'0'));
        out.extend_from_slice(behind);
    }
    true
}

/// The digits of a positive number, and how many of them are decimals.
fn short_digits(value: f64) -> Option<(u64, usize)> {
    for (power, decimals) in POWERS.iter().zip(0..=SHORT_DECIMALS) {
        let shifted = value * power;
        if shifted >= SHORT_END {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Then it is not whole.
        let digits = shifted as u64;
        #[allow(clippy::cast_precision_loss)] // There is none below 2^53.
        let whole = digits as f64;
        if whole == shifted && whole / power == value {
            return Some(without_zeros(digits, decimals));
        }
    }
    None
}

/// The product may have been rounded just where the last digit was whole, so one more was taken.
const fn without_zeros(mut digits: u64, mut decimals: usize) -> (u64, usize) {
    while decimals > 0 && digits.is_multiple_of(10) {
        (digits, decimals) = (digits / 10, decimals - 1);
    }
    (digits, decimals)
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

/// The whole number of which `text` is the digits, and nothing but its one to nineteen digits.
pub(crate) fn digits(text: &str) -> Option<u64> {
    digits_of(text.as_bytes())
}

/// The same of bytes.
pub(crate) fn digits_of(text: &[u8]) -> Option<u64> {
    let (eights, rest) = text.as_chunks::<8>();
    if !(1..=19).contains(&text.len()) {
        return None;
    }
    let whole = eights
        .iter()
        .try_fold(0, |total, eight| Some(total * 100_000_000 + eight_digits(*eight)?))?;
    rest.iter().try_fold(whole, |total, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| total * 10 + u64::from(digit))
    })
}

/// The number that the first so many of these bytes are, if they are digits.
#[inline]
pub(crate) fn first_digits(bytes: &[u8; 16], length: usize) -> Option<u64> {
    let blank = 8 * 16_usize.checked_sub(length).filter(|blank| *blank < 16)?;
    let zeros = u128::from_le_bytes([b'0'; 16]) & ((1 << blank) - 1);
    let padded = u128::from_le_bytes(*bytes) << blank | zeros;
    let [first, second] = halves(padded).map(u64::to_le_bytes);
    eight_digits(first)?.checked_mul(100_000_000)?.checked_add(eight_digits(second)?)
}

/// Marks the bytes that are no digits, by their top bits.
#[inline]
pub(crate) fn other_than_digits(bytes: u128) -> u128 {
    let [low, high] = halves(bytes).map(|half| {
        let eight = half ^ each(b'0');
        ((eight & each(0x7f)).wrapping_add(each(0x80 - 10)) | eight) & each(0x80)
    });
    u128::from(low) | u128::from(high) << 64
}

/// The low eight bytes, and the high ones.
#[allow(clippy::cast_possible_truncation)] // That is what is meant.
pub(crate) const fn halves(bytes: u128) -> [u64; 2] {
    [bytes as u64, (bytes >> 64) as u64]
}

/// Eight digits at once: neighbours become pairs, pairs become fours, and these the number.
fn eight_digits(eight: [u8; 8]) -> Option<u64> {
    let eight = u64::from_le_bytes(eight) ^ each(b'0');
    let beyond = (eight.wrapping_add(each(0x80 - 10)) | eight) & each(0x80);
    let pairs = eight.wrapping_mul(10).wrapping_add(eight >> 8);
    let (even, odd) = (pairs & PAIRS, (pairs >> 16) & PAIRS);
    let high = even.wrapping_mul(100 + (1_000_000 << 32));
    let low = odd.wrapping_mul(1 + (10_000 << 32));
    (beyond == 0).then_some(high.wrapping_add(low) >> 32)
}

/// Whether `text` is one ASCII digit or more, and nothing else.
pub(crate) fn are_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The text without its sign.
pub(crate) fn unsigned(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

/// Fifteen digits and a point, or one digit more.
const SHORT_MAX: usize = 16;

/// Exact, as all of them up to 10^22 are.
const POWERS: [f64; SHORT_MAX] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Where sixteen digits begin.
const SHORT_END: f64 = 1e15;

/// Milliseconds have so many, and each costs a trial.
const SHORT_DECIMALS: usize = 3;

/// Every second pair of digits.
const PAIRS: u64 = 0x0000_00ff_0000_00ff;

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
            (668_590_663.69, "668590663.69"),
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
        /// The short way and the long one come to the same, to the bit.
        #[test]
        fn short_numbers_are_exact(text in "[+-]?[0-9]{0,17}[.]?[0-9]{0,17}") {
            if let Some(number) = short(text.as_bytes()) {
                let (integer, double) = (integer(&text), text.parse::<f64>().unwrap());
                prop_assert_eq!(number, integer.unwrap_or(Number::F64(double)));
                prop_assert_eq!(number.as_f64().to_bits(), double.to_bits());
            }
        }

        /// Short digits are the shortest.
        #[test]
        fn short_digits_are_the_shortest(digits in 0..10_u64.pow(16), decimals in 0..6, bits: u64) {
            for value in [digits as f64 / 10_f64.powi(decimals), f64::from_bits(bits)] {
                let mut out = Vec::new();
                if value.is_finite() && write_short(&mut out, value) {
                    let mut buffer = ryu::Buffer::new();
                    let text = buffer.format_finite(value);
                    let text = text.strip_suffix(".0").unwrap_or(text);
                    prop_assert_eq!(std::str::from_utf8(&out).unwrap(), text);
                }
            }
        }

        /// So many digits are the number that they spell.
        #[test]
        fn digits_are_a_number(text in "[0-9]{0,21}|[0-9/:é]{1,19}") {
            let expected = text.parse::<u64>().ok().filter(|_| text.len() < 20);
            prop_assert_eq!(digits(&text), expected);
        }

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
