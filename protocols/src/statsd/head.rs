//! Lines of one value, taken apart so that those that differ in their value alone are known again.
//!
//! ```text
//!   api.requests:12|c|@0.5|#env:a
//!   └── name ──┘ │ └──── tail ──┘
//!              value
//! ```
//!
//! All that the grammar says of such a line but for its value is decided by its *head*, the name
//! and the tail. Whoever has [parsed](super::parse_line) one line may keep the [`Shape`] of its
//! only point under the head, and from then on needs no more than the [value](Shape::measure) of
//! the next line with that head. A value that is not a plain number is left to the parser, which
//! knows what is wrong with it.

use crate::decimal::parse_finite_bytes;
use crate::{Kind, Measure, Point};
use std::hash::{Hash, Hasher};

/// A line, and its texts if it has one value at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// The whole of it, without its LF.
    pub line: &'a [u8],
    /// What stands before and after the value.
    pub head: Head<'a>,
    /// Between the first colon and the bar behind it.
    pub value: &'a [u8],
    /// The value, if it is spelt in few digits and nothing else.
    whole: Option<u64>,
}

impl Split<'_> {
    /// Whether the value is a number.
    #[inline]
    pub fn has_number(&self) -> bool {
        self.whole.is_some() || parse_finite_bytes(self.value).is_some()
    }
}

/// A line without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head<'a> {
    /// The text before the first colon.
    pub name: &'a [u8],
    /// The kind and all that follows it, from the bar on.
    pub tail: &'a [u8],
}

impl Head<'_> {
    /// How many bytes there are.
    pub const fn len(&self) -> usize {
        self.name.len() + self.tail.len()
    }

    /// Whether there is nothing but a value.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The lines of a datagram, as [`lines`](super::lines) has them, each taken apart at its first
/// colon and the bar behind it, or as it is where it has none. One CR at the end is no part of the
/// tail.
#[inline]
pub fn splits(datagram: &[u8]) -> impl Iterator<Item = Result<Split<'_>, &[u8]>> {
    let mut rest = datagram;
    let next = move || {
        if rest.is_empty() {
            return None;
        }
        let split = split(rest);
        let line = split.map_or_else(|| upto_lf(rest), |split| split.line);
        rest = rest.get(line.len() + 1..).unwrap_or_default();
        Some(split.ok_or(line))
    };
    std::iter::from_fn(next).filter(|line| !matches!(line, Err([] | [b'\r'])))
}

/// The first line of a text; each byte of it is looked at once.
#[inline]
pub(super) fn split(text: &[u8]) -> Option<Split<'_>> {
    let (name, rest) = text.split_at_checked(memchr::memchr2(b':', b'\n', text)?)?;
    let rest = rest.strip_prefix(b":")?;
    let (digits, whole) = leading_digits(rest);
    let (bar, whole) = match rest.get(digits) {
        Some(b'|') if (1..=DIGITS_MAX).contains(&digits) => (digits, Some(whole)),
        // Values are so short that a search would take longer to begin than this to end.
        _ => (rest.iter().position(|byte| matches!(byte, b'|' | b'\n'))?, None),
    };
    let (value, tail) = rest.split_at_checked(bar).filter(|(_, tail)| tail.starts_with(b"|"))?;
    let tail = upto_lf(tail);
    let line = text.get(..name.len() + 1 + value.len() + tail.len())?;
    let tail = tail.strip_suffix(b"\r").unwrap_or(tail);
    Some(Split { line, head: Head { name, tail }, value, whole })
}

/// How many digits there are at the beginning, and their number, as far as it has few.
#[inline]
fn leading_digits(text: &[u8]) -> (usize, u64) {
    let (mut count, mut number) = (0, 0_u64);
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        count += 1;
    }
    (count, number)
}

/// Most tails are only a kind.
#[inline]
fn upto_lf(text: &[u8]) -> &[u8] {
    let end = match text {
        [b'\n', ..] => 0,
        [_, b'\n', ..] => 1,
        [_, _, b'\n', ..] => 2,
        [_, _, _, b'\n', ..] => 3,
        _ => memchr::memchr(b'\n', text).unwrap_or(text.len()),
    };
    text.get(..end).unwrap_or(text)
}

/// A double holds all numbers of so many digits.
const DIGITS_MAX: usize = 15;

/// What a head says of the measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    kind: Kind,
    rate: f64,
}

// A rate is a number, and never zero.
impl Eq for Shape {}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind, self.rate.to_bits()).hash(state);
    }
}

impl Shape {
    /// That of a point which was the only one of its line; none where a line says more than can be
    /// known again: a member of a set, or a time, which is another one in the next line.
    pub fn of(point: &Point<'_>) -> Option<Self> {
        let (kind, rate) = match point.measure {
            Measure::Count { rate, .. } => (Kind::Counter, rate),
            Measure::Gauge(_) | Measure::GaugeShift(_) => (Kind::Gauge, 1.0),
            Measure::Timing { rate, .. } => (Kind::Timer, rate),
            Measure::Histogram { rate, .. } => (Kind::Histogram, rate),
            Measure::Distribution { rate, .. } => (Kind::Distribution, rate),
            Measure::Set(_) | Measure::Reading(_) | Measure::Fields(_) => return None,
        };
        point.time.is_none().then_some(Self { kind, rate })
    }

    /// That of lines with this tail, if it is just a kind.
    pub(super) fn plain(tail: &[u8]) -> Option<Self> {
        let kind = match tail {
            b"|c" => Kind::Counter,
            b"|g" => Kind::Gauge,
            b"|ms" => Kind::Timer,
            b"|h" => Kind::Histogram,
            b"|d" => Kind::Distribution,
            _ => return None,
        };
        Some(Self { kind, rate: 1.0 })
    }

    /// What a line of this shape measures.
    #[inline]
    pub fn measure(&self, line: &Split<'_>) -> Option<Measure<'static>> {
        #[allow(clippy::cast_precision_loss)] // There is none.
        if let Some(whole) = line.whole {
            return Some(self.measure_of(whole as f64, false));
        }
        let is_signed = matches!(line.value, [b'+' | b'-', ..]);
        Some(self.measure_of(parse_finite_bytes(line.value)?, is_signed))
    }

    #[inline]
    const fn measure_of(&self, value: f64, is_signed: bool) -> Measure<'static> {
        let Self { kind, rate } = *self;
        match kind {
            Kind::Gauge if is_signed => Measure::GaugeShift(value),
            Kind::Gauge => Measure::Gauge(value),
            Kind::Timer => Measure::Timing { ms: value, rate },
            Kind::Histogram => Measure::Histogram { value, rate },
            Kind::Distribution => Measure::Distribution { value, rate },
            _ => Measure::Count { delta: value, rate },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Dialects, Limits, parse_line};
    use super::*;
    use crate::Batch;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_cut_at_its_first_value() {
        let texts = |line: &'static str| {
            let Split { head, value, .. } = splits(line.as_bytes()).next()?.ok()?;
            Some([head.name, value, head.tail].map(|text| std::str::from_utf8(text).unwrap()))
        };
        assert_eq!(texts("a.b:1|c"), Some(["a.b", "1", "|c"]));
        assert_eq!(texts("a:1|c|@0.5|#k:v\r"), Some(["a", "1", "|c|@0.5|#k:v"]));
        assert_eq!(texts("a:1:2|c"), Some(["a", "1:2", "|c"]), "which is no number");
        for none in ["", "a", "a|c", "a:1", "a:", "a\n:1|c", "a:1\n|c"] {
            assert_eq!(texts(none), None, "{none:?}");
        }
    }

    /// The points of a line, each as text.
    fn parsed(line: &[u8]) -> Option<Batch> {
        let mut batch = Batch::new();
        parse_line(line, &Dialects::default(), &Limits::default(), &mut batch).ok()?;
        Some(batch)
    }

    fn piece() -> impl Strategy<Value = String> {
        let texts = vec![
            "a", "b.c", ",k=v", "#t:1", "|", ":", "c", "|c", "|g", "|ms", "|h", "|d", "|s",
            "|@0.5", "|@2", "|#x:y,z", "|T17", "|c:id", "|u", ":2|c", ":-1|ms", "œ", "\n", "\r",
            "\r\n", "\u{1}", ";", "[q=w]",
        ];
        prop::sample::select(texts).prop_map(str::to_owned)
    }

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            "[+-]?[0-9]{0,3}(\\.[0-9]{0,3})?(e[0-9])?",
            prop::sample::select(vec!["", "x", "nan", "inf", "1:2", "1e999", " 1"])
                .prop_map(str::to_owned),
        ]
    }

    proptest! {
        /// The lines are those of everybody else, and taken apart without loss.
        #[test]
        fn lines_are_what_they_are(texts in prop::collection::vec(piece(), 0..20)) {
            let datagram = texts.concat();
            let found = splits(datagram.as_bytes()).map(|split| match split {
                Ok(Split { line, head: Head { name, tail }, value, .. }) => {
                    let cr: &[u8] = if line.ends_with(b"\r") { b"\r" } else { b"" };
                    assert_eq!([name, b":", value, tail, cr].concat(), line);
                    line
                }
                Err(line) => line,
            });
            let expected = super::super::lines(datagram.as_bytes());
            prop_assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }

        /// What was learnt from one line says of another what the parser says.
        #[test]
        fn a_known_head_says_what_the_parser_says(
            name in prop::collection::vec(piece(), 0..3),
            tail in prop::collection::vec(piece(), 1..5),
            (first, second) in (value(), value()),
        ) {
            let line = |value: &str| format!("{}:{value}{}", name.concat(), tail.concat());
            let (one, other) = (line(&first), line(&second));
            let known = parsed(one.as_bytes()).filter(|batch| batch.len() == 1);
            let shape = known.as_ref().and_then(|batch| Shape::of(&batch.point(0).unwrap()));
            let (Some(shape), Some(known)) = (shape, known) else { return Ok(()) };
            let [one, split] = [&one, &other].map(|line| splits(line.as_bytes()).next());
            let (Some(Ok(one)), Some(Ok(split))) = (one, split) else { return Ok(()) };
            prop_assume!(one.head == split.head);
            let Some(measure) = shape.measure(&split) else { return Ok(()) };
            let again = parsed(other.as_bytes()).expect("what is known is not refused");
            prop_assert_eq!(again.len(), 1);
            let expected = Point { measure, ..known.point(0).unwrap() };
            prop_assert_eq!(again.point(0).unwrap(), expected);
        }
    }
}
