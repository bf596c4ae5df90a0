//! What a timestamp means, one rule for each way of writing one.
//!
//! All rules work on the digits of the text, never through a double, so that no nanosecond is
//! invented or lost. A time that was recognised but lies outside of what [`UnixNanos`] holds
//! (after the year 2262) is refused as out of range; it is never clamped into another year.
//! There is no clock here: "no time given" is the caller's `None`.

use crate::decimal::{digits, is_decimal};
use crate::error::ParseError;
use crate::point::UnixNanos;
use std::iter::repeat;

/// The rule of OpenTSDB's `put`, telnet and HTTP alike.
///
/// | text | meaning |
/// |---|---|
/// | 1 to 10 digits | seconds |
/// | 13 digits | milliseconds |
/// | 10 digits, a point, 1 to 3 digits | seconds and a fraction of one |
/// | anything else, zero, a sign | refused |
///
/// # Errors
///
/// [`ParseError::InvalidTimestamp`] or [`ParseError::TimestampOutOfRange`].
pub fn put(text: &str) -> Result<UnixNanos, ParseError> {
    let (count, scale) = match (text.len(), digits(text)) {
        (1..=10, Some(secs)) => (secs, 1_000_000_000),
        (13, Some(millis)) => (millis, 1_000_000),
        (12..=14, None) => put_fraction(text).ok_or(ParseError::InvalidTimestamp)?,
        _ => return Err(ParseError::InvalidTimestamp),
    };
    scaled(count, scale)
}

/// Seconds with a fraction, as milliseconds.
fn put_fraction(text: &str) -> Option<(u64, u64)> {
    let (whole, fraction) = text.split_once('.').filter(|(whole, _)| whole.len() == 10)?;
    let zeros = 3_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    let millis = digits(whole)? * 1000 + digits(fraction)? * 10_u64.pow(zeros);
    Some((millis, 1_000_000))
}

/// The rule of our own JSON: the size of a positive number tells its unit.
///
/// | digits before the point | unit |
/// |---|---|
/// | up to 11 | seconds |
/// | 12 to 14 | milliseconds |
/// | 15 to 17 | microseconds |
/// | 18 and more | nanoseconds |
///
/// A fraction is kept to the nanosecond and an exponent is taken into account, since some
/// languages print nanoseconds as `1.7e+18`.
///
/// # Errors
///
/// [`ParseError::InvalidTimestamp`] or [`ParseError::TimestampOutOfRange`].
pub fn number(text: &str) -> Result<UnixNanos, ParseError> {
    if let Some(count) = digits(text).filter(|_| text.len() <= 18 && !text.starts_with('0')) {
        let point = to_i64(text.len());
        return scaled(count, 10_u64.pow(scale_of(point)));
    }
    if !is_decimal(text) || text.starts_with('-') {
        return Err(ParseError::InvalidTimestamp);
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    // No time needs an exponent beyond 127, and zeros must not be counted out for ever.
    let exponent: i8 = exponent.parse().map_err(|_| ParseError::TimestampOutOfRange)?;
    let mantissa = mantissa.trim_start_matches('+');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = whole.bytes().chain(fraction.bytes());
    let zeros = all.clone().take_while(|digit| *digit == b'0').count();
    let point = to_i64(whole.len()) + i64::from(exponent) - to_i64(zeros);
    let length = point + i64::from(scale_of(point));
    positive(all.skip(zeros), usize::try_from(length).unwrap_or(0))
}

/// How many digits are to follow so many, until there are nanoseconds.
const fn scale_of(digits: i64) -> u32 {
    match digits {
        ..=11 => 9,
        12..=14 => 6,
        15..=17 => 3,
        _ => 0,
    }
}

/// A time written as text: a number as for [`number`], or RFC 3339 as for [`rfc3339`].
///
/// # Errors
///
/// [`ParseError::InvalidTimestamp`] or [`ParseError::TimestampOutOfRange`].
pub fn text(text: &str) -> Result<UnixNanos, ParseError> {
    if is_decimal(text) { number(text) } else { rfc3339(text) }
}

/// `2014-10-22T17:46:40.5+02:00`: date, `T` or a blank, time, fraction if any, and an offset
/// or `Z`. Digits after the ninth of the fraction are cut off. Second 60 is taken at the end
/// of a UTC day only, where leap seconds are, and is the next day's first.
///
/// # Errors
///
/// [`ParseError::InvalidTimestamp`] or [`ParseError::TimestampOutOfRange`].
pub fn rfc3339(text: &str) -> Result<UnixNanos, ParseError> {
    let (secs, nanos) = instant(text).ok_or(ParseError::InvalidTimestamp)?;
    let total = i128::from(secs) * NANOS_PER_SEC + i128::from(nanos);
    i64::try_from(total).map(UnixNanos).map_err(|_| ParseError::TimestampOutOfRange)
}

/// The first `length` digits as nanoseconds, with zeros where there are fewer.
fn positive(digits: impl Iterator<Item = u8>, length: usize) -> Result<UnixNanos, ParseError> {
    let mut total = 0_i64;
    for digit in digits.chain(repeat(b'0')).take(length) {
        total = total
            .checked_mul(10)
            .and_then(|total| total.checked_add(i64::from(digit - b'0')))
            .ok_or(ParseError::TimestampOutOfRange)?;
    }
    if total > 0 { Ok(UnixNanos(total)) } else { Err(ParseError::InvalidTimestamp) }
}

fn scaled(count: u64, scale: u64) -> Result<UnixNanos, ParseError> {
    let nanos = count.checked_mul(scale).and_then(|nanos| i64::try_from(nanos).ok());
    match nanos {
        Some(0) => Err(ParseError::InvalidTimestamp),
        Some(nanos) => Ok(UnixNanos(nanos)),
        None => Err(ParseError::TimestampOutOfRange),
    }
}

fn to_i64(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// Seconds since 1970 and the nanoseconds after them.
fn instant(text: &str) -> Option<(i64, i64)> {
    let mut rest = Rest(text.as_bytes());
    let days = rest.date()?;
    rest.one_of(b"Tt ")?;
    let hour = rest.digits(2).filter(|hour| *hour < 24)?;
    rest.one_of(b":")?;
    let minute = rest.digits(2).filter(|minute| *minute < 60)?;
    rest.one_of(b":")?;
    let second = rest.digits(2).filter(|second| *second <= 60)?;
    let nanos = rest.fraction()?;
    let offset = rest.offset()?;
    let secs = days * SECS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
    let leap_is_misplaced = second == 60 && secs.rem_euclid(SECS_PER_DAY) != 0;
    (rest.0.is_empty() && !leap_is_misplaced).then_some((secs, nanos))
}

/// What is left to read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn one_of(&mut self, allowed: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        allowed.contains(first).then_some(*first)
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits.iter().try_fold(0, |total, digit| {
            digit.is_ascii_digit().then(|| total * 10 + i64::from(digit - b'0'))
        })
    }

    fn date(&mut self) -> Option<i64> {
        let year = self.digits(4)?;
        self.one_of(b"-")?;
        let month = self.digits(2).filter(|month| (1..=12).contains(month))?;
        self.one_of(b"-")?;
        let day = self.digits(2)?;
        (1..=days_in(year, month)).contains(&day).then(|| days_before(year, month) + day - 1)
    }

    fn fraction(&mut self) -> Option<i64> {
        let Some(rest) = self.0.strip_prefix(b".") else { return Some(0) };
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        let nine = digits.iter().chain(repeat(&b'0')).take(9);
        (length > 0).then(|| nine.fold(0, |total, digit| total * 10 + i64::from(digit - b'0')))
    }

    /// Seconds east of Greenwich.
    fn offset(&mut self) -> Option<i64> {
        let sign = match self.one_of(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Some(0),
        };
        let hours = self.digits(2).filter(|hours| *hours < 24)?;
        self.one_of(b":")?;
        let minutes = self.digits(2).filter(|minutes| *minutes < 60)?;
        Some(sign * (hours * 3600 + minutes * 60))
    }
}

/// Days from 1970-01-01 to the first of a month.
fn days_before(year: i64, month: i64) -> i64 {
    let before = year - 1;
    let leap_days = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    let months: i64 = (1..month).map(|month| days_in(year, month)).sum();
    year * 365 + leap_days + months - DAYS_TO_1970
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

const NANOS_PER_SEC: i128 = 1_000_000_000;
const SECS_PER_DAY: i64 = 86_400;

/// What [`days_before`] would give for January 1970 without this term: 1970 years of 365
/// days, and the 477 leap days of the years 1 to 1969.
const DAYS_TO_1970: i64 = 1970 * 365 + 477;

/// The times that a listener takes; usually a window around now, made anew for each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The earliest.
    pub earliest: UnixNanos,
    /// The latest.
    pub latest: UnixNanos,
}

impl TimeRange {
    /// Every time.
    pub const ALL: Self = Self { earliest: UnixNanos(i64::MIN), latest: UnixNanos(i64::MAX) };

    /// Refuses a time outside the range. No time means now, and is inside.
    ///
    /// # Errors
    ///
    /// [`ParseError::TimestampOutOfRange`].
    pub fn check(&self, time: Option<UnixNanos>) -> Result<(), ParseError> {
        match time {
            Some(time) if time < self.earliest || time > self.latest => {
                Err(ParseError::TimestampOutOfRange)
            }
            _ => Ok(()),
        }
    }
}

impl Default for TimeRange {
    fn default() -> Self {
        Self::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ParseError::{InvalidTimestamp, TimestampOutOfRange};

    type Rule = fn(&str) -> Result<UnixNanos, ParseError>;

    fn accepts(rule: Rule, cases: &[(&str, i64)]) {
        for (text, nanos) in cases {
            assert_eq!(rule(text), Ok(UnixNanos(*nanos)), "{text:?}");
        }
    }

    fn refuses(rule: Rule, reason: ParseError, cases: &[&str]) {
        for text in cases {
            assert_eq!(rule(text), Err(reason), "{text:?}");
        }
    }

    #[test]
    fn put_takes_ten_digits_as_seconds_and_thirteen_as_milliseconds() {
        accepts(
            put,
            &[
                ("1", 1_000_000_000),
                ("4294967296", 4_294_967_296_000_000_000),
                ("9223372036", 9_223_372_036_000_000_000),
                ("1559746555", 1_559_746_555_000_000_000),
                ("1559746555444", 1_559_746_555_444_000_000),
                ("1559746555.444", 1_559_746_555_444_000_000),
                ("1559746555.4", 1_559_746_555_400_000_000),
                ("0999999999500", 999_999_999_500_000_000),
            ],
        );
    }

    #[test]
    fn put_refuses_whatever_could_mean_two_things() {
        let invalid = [
            "",
            "0",
            "-5",
            "+5",
            "abc",
            "1e9",
            "10000000000",
            "100000000000",
            "99999999999999",
            "1700000000..5",
            "1700000000.",
            ".5",
            "1700000000.5555",
            "170000000.5",
            "0000000000000",
            "1700000000.5.5",
            "0x10",
            "1 2",
            "١",
        ];
        refuses(put, InvalidTimestamp, &invalid);
        refuses(put, TimestampOutOfRange, &["9999999999", "9223372037", "9999999999999"]);
    }

    #[test]
    fn the_size_of_a_number_tells_its_unit() {
        accepts(
            number,
            &[
                ("1414000000", 1_414_000_000_000_000_000),
                ("1414000000123", 1_414_000_000_123_000_000),
                ("1414000000123456", 1_414_000_000_123_456_000),
                ("1414000000123456789", 1_414_000_000_123_456_789),
                ("1414000000.25", 1_414_000_000_250_000_000),
                ("1414000000.1234567899", 1_414_000_000_123_456_789),
                ("1414000000123.5", 1_414_000_000_123_500_000),
                ("1.414e9", 1_414_000_000_000_000_000),
                ("1.4140000001234568e+18", 1_414_000_000_123_456_800),
                ("0.5", 500_000_000),
                ("0.002", 2_000_000),
                ("5e-3", 5_000_000),
                ("1", 1_000_000_000),
            ],
        );
    }

    #[test]
    fn numbers_that_are_no_time_are_refused() {
        refuses(number, InvalidTimestamp, &["0", "-1", "0.0", "1e-10", "", "x", "0e100", "1e-99"]);
        let far =
            ["10000000000", "9223372036854775808", "18446744073709551615", "1e400", "1e99999"];
        refuses(number, TimestampOutOfRange, &far);
    }

    #[test]
    fn rfc3339_is_read_to_the_nanosecond() {
        accepts(
            text,
            &[
                ("1970-01-01T00:00:00Z", 0),
                ("1969-12-31T23:59:59.5Z", -500_000_000),
                ("2014-10-22T17:46:40Z", 1_414_000_000_000_000_000),
                ("2014-10-22t19:46:40.123456789+02:00", 1_414_000_000_123_456_789),
                ("2014-10-22 12:16:40.1239999999-05:30", 1_414_000_000_123_999_999),
                ("2000-02-29T00:00:00Z", 951_782_400_000_000_000),
                ("2016-12-31T23:59:60Z", 1_483_228_800_000_000_000),
                ("2017-01-01T00:59:60+01:00", 1_483_228_800_000_000_000),
                ("1414000000", 1_414_000_000_000_000_000),
            ],
        );
    }

    #[test]
    fn malformed_rfc3339_is_refused() {
        let invalid = [
            "now",
            "2014-10-22",
            "2014-10-22T17:46:40",
            "2014-10-22T17:46Z",
            "2014-13-01T00:00:00Z",
            "2014-00-01T00:00:00Z",
            "2014-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2014-04-31T00:00:00Z",
            "2014-04-00T00:00:00Z",
            "2014-10-22T24:00:00Z",
            "2014-10-22T17:60:00Z",
            "2014-10-22T17:46:60Z",
            "2014-10-22T17:46:40.Z",
            "2014-10-22T17:46:40+2:00",
            "2014-10-22T17:46:40+0200",
            "2014-10-22T17:46:40ZZ",
            "2014-10-22T17:46:40+24:00",
            "+014-10-22T17:46:40Z",
            "2014-10-22T17:46:40é",
        ];
        refuses(text, InvalidTimestamp, &invalid);
        refuses(text, TimestampOutOfRange, &["2263-01-01T00:00:00Z", "0001-01-01T00:00:00Z"]);
    }

    #[test]
    fn a_range_holds_its_ends_and_now() {
        let range = TimeRange { earliest: UnixNanos(10), latest: UnixNanos(20) };
        for (time, inside) in [
            (None, true),
            (Some(10), true),
            (Some(20), true),
            (Some(9), false),
            (Some(21), false),
            (Some(i64::MIN), false),
        ] {
            let time = time.map(UnixNanos);
            assert_eq!(range.check(time).is_ok(), inside, "{time:?}");
            assert_eq!(TimeRange::ALL.check(time), Ok(()));
        }
    }
}
