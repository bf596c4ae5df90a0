//! Decimal numbers as the put and JSON inputs write them.
//!
//! Integers keep their 64 bits; everything else becomes the nearest double. What only some
//! languages write (`NaN`, `inf`, hexadecimal, `1_000`) is not a number here.

use crate::point::Number;

/// The number that `text` spells, or `None` when it spells none or one that is not finite.
///
/// `-0` stays a double, since an integer would lose its sign.
pub(crate) fn number(text: &str) -> Option<Number> {
    if !is_decimal(text) {
        return None;
    }
    integer(text).or_else(|| float(text))
}

/// Whether `text` is `[sign] digits [. digits] [e [sign] digits]`, with a digit before or
/// after the point. Such a text may still be too large for a double.
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

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

fn integer(text: &str) -> Option<Number> {
    match text.parse::<i64>() {
        Ok(0) if text.starts_with('-') => None,
        Ok(n) => Some(Number::I64(n)),
        Err(_) => text.parse().ok().map(Number::U64),
    }
}

fn float(text: &str) -> Option<Number> {
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(Number::F64(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let check = |text: &str, expected: Option<Number>| {
            assert_eq!(number(text), expected, "{text:?}");
        };
        for (text, n) in [
            ("0", 0),
            ("+5", 5),
            ("-7", -7),
            ("007", 7),
            ("9007199254740993", 9_007_199_254_740_993),
            ("2882429806056571124", 2_882_429_806_056_571_124),
            ("-9223372036854775808", i64::MIN),
        ] {
            check(text, Some(Number::I64(n)));
        }
        check("9223372036854775808", Some(Number::U64(1 << 63)));
        check("18446744073709551615", Some(Number::U64(u64::MAX)));
        for (text, x) in [
            ("18446744073709551616", 18_446_744_073_709_551_616.0),
            ("-9223372036854775809", -9_223_372_036_854_775_809.0),
            ("1.5", 1.5),
            ("-1.5e2", -150.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1E+3", 1000.0),
            ("1e-400", 0.0),
        ] {
            check(text, Some(Number::F64(x)));
        }
        for text in [
            "", "+", "-", ".", "e5", ".e5", "1e", "1e+", "--1", "+-1", "1.2.3", "1e5.0", "NaN",
            "nan", "inf", "Infinity", "0x10", "1_000", " 1", "1 ", "1,5", "1e400", "-1e400", "١",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_negative_zero_keeps_its_sign() {
        let Some(Number::F64(zero)) = number("-0") else { panic!("not a double") };
        assert!(zero == 0.0 && zero.is_sign_negative());
    }
}
