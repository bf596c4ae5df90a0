//! Moments as people and scripts write them, and as answers show them.

use crate::clock::nanos;
use crate::units::Span;
use protocols::UnixNanos;

/// Reads `10m` (that long ago), `2026-01-31T12:00:00Z`, or a number since 1970 whose size tells
/// seconds, milliseconds, microseconds or nanoseconds.
///
/// # Errors
///
/// A sentence that says how to write one.
pub fn parse(text: &str, now: UnixNanos) -> Result<UnixNanos, String> {
    if text == "now" {
        return Ok(now);
    }
    if let Some(moment) = number(text).or_else(|| iso(text)) {
        return Ok(moment);
    }
    let ago = Span::parse(text).map_err(|_| {
        format!(
            "`{text}` is not a time; write for example \"10m\" (ago), \"2026-01-31T12:00:00Z\", \"1769860800\""
        )
    })?;
    Ok(UnixNanos(now.0.saturating_sub(nanos(ago.0))))
}

/// RFC 3339 in UTC with as many digits as the time has.
pub fn show(time: UnixNanos) -> String {
    // Every 64-bit nanosecond is a moment that the calendar knows.
    jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map_or_else(|_| time.0.to_string(), |time| time.to_string())
}

fn iso(text: &str) -> Option<UnixNanos> {
    let moment: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(moment.as_nanosecond()).ok().map(UnixNanos)
}

/// The borders lie in the year 5138 for seconds, and in March 1973 for the finer units.
#[allow(clippy::cast_possible_truncation)] // A float only ever means seconds here, and saturates.
fn number(text: &str) -> Option<UnixNanos> {
    if let Ok(whole) = text.parse::<i64>() {
        let scale = match whole.unsigned_abs() {
            0..100_000_000_000 => 1_000_000_000,
            100_000_000_000..100_000_000_000_000 => 1_000_000,
            100_000_000_000_000..100_000_000_000_000_000 => 1_000,
            _ => 1,
        };
        return Some(UnixNanos(whole.saturating_mul(scale)));
    }
    let secs: f64 = text.parse().ok().filter(|secs: &f64| secs.abs() < 1e11)?;
    Some(UnixNanos((secs * 1e9) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_many_ways_to_write_a_time() {
        let now = UnixNanos::from_secs(1_700_000_000);
        let check =
            |text, expected: i64| assert_eq!(parse(text, now), Ok(UnixNanos(expected)), "{text}");
        check("now", now.0);
        check("10m", now.0 - 600_000_000_000);
        check("1414000000", 1_414_000_000_000_000_000);
        check("1414000000.5", 1_414_000_000_500_000_000);
        check("1414000000123", 1_414_000_000_123_000_000);
        check("1414000000123456", 1_414_000_000_123_456_000);
        check("1414000000123456789", 1_414_000_000_123_456_789);
        check("-1", -1_000_000_000);
        check("2014-10-22T17:46:40Z", 1_414_000_000_000_000_000);
        check("2014-10-22T19:46:40.5+02:00", 1_414_000_000_500_000_000);
        for text in ["", "yesterday", "1e300", "2014-10-22", "NaN", "-10m", "10 parsecs"] {
            assert!(parse(text, now).is_err(), "{text}");
        }
    }

    #[test]
    fn a_shown_time_reads_back() {
        for time in [0, 1, -1, 1_414_000_000_500_000_000, i64::MAX, i64::MIN] {
            let shown = show(UnixNanos(time));
            assert_eq!(parse(&shown, UnixNanos(0)), Ok(UnixNanos(time)), "{shown}");
        }
        assert_eq!(show(UnixNanos(1_414_000_000_500_000_000)), "2014-10-22T17:46:40.5Z");
    }
}
