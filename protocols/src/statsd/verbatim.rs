//! Which lines go out as they came in.
//!
//! A relay reads a line to know where it goes. When what it would write is the line again, the
//! line's own bytes do, and nothing is encoded. Only the spelling of the value may differ, and is
//! kept as the client wrote it: `1.50` stays `1.50`.

use super::head::split;
use super::{Encoder, TagDialect};
use crate::{Encode, Measure, Point};

/// Tells which lines an [`Encoder`] would write as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verbatim {
    dialect: TagDialect,
    max_line: usize,
}

impl Verbatim {
    pub(super) const fn new(dialect: TagDialect, max_line: usize) -> Self {
        Self { dialect, max_line }
    }

    /// Whether a line, without its LF, may go out as it is for `point`, the only one that it has.
    /// It may not if it has a time, which a receiver has looked at.
    ///
    /// What is so for one line is so for every other one with the same [head](super::Head), if its
    /// value [is plain](is_plain_number) or it is a set, and it is [short enough](Self::fits).
    pub fn relays(&self, point: &Point<'_>, line: &[u8]) -> bool {
        let line = without_cr(line);
        if point.time.is_some() || !self.fits(line) {
            return false;
        }
        let mut written = Vec::with_capacity(2 * line.len());
        // A value that is longer once it is written out says nothing about the line.
        let mut encoder = Encoder::new(self.dialect, usize::MAX);
        encoder.encode(point, &mut written).is_ok()
            && written.strip_suffix(b"\n").is_some_and(|written| {
                let is_set = matches!(point.measure, Measure::Set(_));
                is_alike(line, written, is_set)
            })
    }

    /// Whether a line is short enough; a CR at its end does not count.
    pub fn fits(&self, line: &[u8]) -> bool {
        without_cr(line).len() <= self.max_line
    }
}

/// Whether a value is spelled with digits, a point and a sign alone, as every server reads it, and
/// certainly is a finite number.
pub fn is_plain_number(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").or(value.strip_prefix(b"+")).unwrap_or(value);
    let mut points = 0;
    let plain = digits.iter().all(|byte| {
        points += usize::from(*byte == b'.');
        byte.is_ascii_digit() || *byte == b'.'
    });
    plain && points <= 1 && (points + 1..=DIGITS_MAX).contains(&digits.len())
}

/// Whether two lines differ at the most in how they spell a value.
fn is_alike(line: &[u8], written: &[u8], is_set: bool) -> bool {
    let (Some(line), Some(written)) = (split(line), split(written)) else { return false };
    line.head == written.head && (is_set || is_plain_number(line.value))
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Far below what overflows a double.
const DIGITS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Batch;
    use crate::decimal::parse_finite;
    use crate::statsd::{Dialects, Limits, parse_line};
    use proptest::prelude::*;

    fn relays(dialect: TagDialect, line: &str) -> bool {
        let mut batch = Batch::new();
        parse_line(line.as_bytes(), &Dialects::default(), &Limits::default(), &mut batch).unwrap();
        let verbatim = Encoder::new(dialect, 40).verbatim();
        batch.point(0).is_some_and(|point| verbatim.relays(&point, line.as_bytes()))
    }

    #[test]
    fn lines_that_would_be_written_again_are_relayed() {
        for line in [
            "a.b:1|c",
            "a:-1|c",
            "a:+1|c",
            "a:1.50|ms",
            "a:007|h",
            "a:5.|d",
            "a:.5|d",
            "a:+5|g",
            "a:-5|g",
            "a:5|g",
            "a:1|c|@0.1",
            "a:x:y|s",
            "a:1|c|#k:v,bare",
            "a:1|c|@0.5|#k:v|c:ci",
            "my a/b:1|c",
            "œ:1|c|#é:à",
            "a:1|c\r",
        ] {
            assert!(relays(TagDialect::Dogstatsd, line), "{line:?}");
        }
        assert!(relays(TagDialect::Influxdb, "a,k=v:1|c"));
        assert!(relays(TagDialect::Graphite, "a;k=v:1|c"));
        assert!(relays(TagDialect::None, "a:1|c"));
    }

    #[test]
    fn lines_that_would_change_are_not() {
        for line in [
            // Several points, or a spelling that not every server reads.
            "a:1:2|c",
            "a:1|c:2|c",
            "a:1|c|@0.5:2|ms",
            "a:1e3|c",
            // Rates and tags that are written otherwise.
            "a:1|c|@1",
            "a:1|c|@0.10",
            "a:5|g|@0.5",
            "a:1|c|#k:v|@0.5",
            "a:1|c|#k:1,k:2",
            "a:1|c|#",
            "a:1|c|",
            // Tags and names in another dialect.
            "a,k=v:1|c",
            "a;k=v:1|c",
            "a=b:1|c",
            // A time, and too many bytes.
            "a:1|c|T1656581400",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1|c",
        ] {
            assert!(!relays(TagDialect::Dogstatsd, line), "{line:?}");
        }
        assert!(!relays(TagDialect::Graphite, "a:1|c|#k:v"));
        assert!(!relays(TagDialect::None, "a:1|c|#k:v"));
    }

    #[test]
    fn plain_numbers_have_digits() {
        for (value, expected) in [
            ("1", true),
            ("-1.5", true),
            ("+0", true),
            (".5", true),
            ("5.", true),
            ("", false),
            (".", false),
            ("-", false),
            ("--1", false),
            ("1.2.3", false),
            ("1e3", false),
            ("inf", false),
            ("1 ", false),
            ("0x1", false),
        ] {
            assert_eq!(is_plain_number(value.as_bytes()), expected, "{value:?}");
        }
    }

    proptest! {
        /// A plain number is one that a parser takes.
        #[test]
        fn plain_numbers_are_finite(value in "[-+.0-9]{0,70}") {
            prop_assert!(!is_plain_number(value.as_bytes()) || parse_finite(&value).is_some());
        }

        /// A relayed line says what the encoder would have said, to the last bit of its value.
        #[test]
        fn relayed_lines_say_the_same(
            name in "[a-c:|=,;#_é. ]{1,6}", value in "[-+.0-9e]{1,5}",
            tail in "(\\|c|\\|g|\\|ms|\\|s)(\\|@0\\.[0-9]{1,2})?(\\|#[a-c:,é]{0,6})?(\\|[c-e]:x)?",
        ) {
            let line = format!("{name}:{value}{tail}");
            let (dialects, limits) = (Dialects::default(), Limits::default());
            let (mut batch, mut again) = (Batch::new(), Batch::new());
            let parsed = parse_line(line.as_bytes(), &dialects, &limits, &mut batch);
            let mut encoder = Encoder::new(TagDialect::Dogstatsd, 1432);
            if parsed.is_ok() && batch.len() == 1 {
                let point = batch.point(0).unwrap();
                if encoder.verbatim().relays(&point, line.as_bytes()) {
                    let mut written = Vec::new();
                    encoder.encode(&point, &mut written).unwrap();
                    let written = written.strip_suffix(b"\n").unwrap();
                    parse_line(written, &dialects, &limits, &mut again).unwrap();
                    prop_assert_eq!(point, again.point(0).unwrap());
                }
            }
        }
    }
}
