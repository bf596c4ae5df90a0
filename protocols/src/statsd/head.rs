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

use crate::decimal::parse_finite;
use crate::{Kind, Measure, Point};

/// A line that has one value at the most, in three texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// What stands before and after the value.
    pub head: Head<'a>,
    /// Between the first colon and the bar behind it.
    pub value: &'a [u8],
}

/// A line without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head<'a> {
    /// The text before the first colon.
    pub name: &'a [u8],
    /// The kind and all that follows it, from the bar on.
    pub tail: &'a [u8],
}

/// Takes a line apart at its first colon and the bar behind it; one CR at the end is dropped.
pub fn split(line: &[u8]) -> Option<Split<'_>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (name, rest) = cut(line, b':')?;
    let bar = memchr::memchr(b'|', rest)?;
    let (value, tail) = rest.split_at_checked(bar)?;
    Some(Split { head: Head { name, tail }, value })
}

fn cut(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(mark, text)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// What a head says of the measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    kind: Kind,
    rate: f64,
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

    /// What a line of this shape measures.
    pub fn measure(&self, value: &[u8]) -> Option<Measure<'static>> {
        let Self { kind, rate } = *self;
        let is_signed = matches!(value, [b'+' | b'-', ..]);
        let value = parse_finite(std::str::from_utf8(value).ok()?)?;
        Some(match kind {
            Kind::Gauge if is_signed => Measure::GaugeShift(value),
            Kind::Gauge => Measure::Gauge(value),
            Kind::Timer => Measure::Timing { ms: value, rate },
            Kind::Histogram => Measure::Histogram { value, rate },
            Kind::Distribution => Measure::Distribution { value, rate },
            _ => Measure::Count { delta: value, rate },
        })
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
            let Split { head, value } = split(line.as_bytes())?;
            Some([head.name, value, head.tail].map(|text| std::str::from_utf8(text).unwrap()))
        };
        assert_eq!(texts("a.b:1|c"), Some(["a.b", "1", "|c"]));
        assert_eq!(texts("a:1|c|@0.5|#k:v\r"), Some(["a", "1", "|c|@0.5|#k:v"]));
        assert_eq!(texts("a:1:2|c"), Some(["a", "1:2", "|c"]), "which is no number");
        for none in ["", "a", "a|c", "a:1", "a:"] {
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
            "|@0.5", "|@2", "|#x:y,z", "|T17", "|c:id", "|u", ":2|c", ":-1|ms", "œ", "\u{1}", ";",
            "[q=w]",
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
            let (one, other_split) = (split(one.as_bytes()), split(other.as_bytes()));
            let (Some(one), Some(split)) = (one, other_split) else { return Ok(()) };
            prop_assume!(one.head == split.head);
            let Some(measure) = shape.measure(split.value) else { return Ok(()) };
            let again = parsed(other.as_bytes()).expect("what is known is not refused");
            prop_assert_eq!(again.len(), 1);
            let expected = Point { measure, ..known.point(0).unwrap() };
            prop_assert_eq!(again.point(0).unwrap(), expected);
        }
    }
}
