//! Points to JSON lines.

use crate::encode::LostParts;
use crate::{Encode, FieldValue, Fields, Measure, Number, Point, Skip, Tags};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::ser::Formatter;
use std::io;

/// Writes one line for each point; see the [module](super) for its shape.
#[derive(Debug, Default)]
pub struct Encoder {
    lost: LostParts,
}

impl Encoder {
    /// There is nothing to choose.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Encode for Encoder {
    fn encode(&mut self, point: &Point<'_>, out: &mut Vec<u8>) -> Result<(), Skip> {
        self.write(point, false, out)
    }

    fn encode_again(&mut self, point: &Point<'_>, out: &mut Vec<u8>) -> Result<(), Skip> {
        self.write(point, true, out)
    }

    fn lines(&self, _record: &[u8]) -> usize {
        1
    }

    fn lost_parts(&mut self) -> Vec<(Skip, u64)> {
        self.lost.take()
    }
}

impl Encoder {
    fn write(&mut self, point: &Point<'_>, again: bool, out: &mut Vec<u8>) -> Result<(), Skip> {
        let not_finite = not_finite(&point.measure)?;
        let start = out.len();
        let mut line = serde_json::Serializer::with_formatter(&mut *out, OneLine);
        if (Line { point, again }).serialize(&mut line).is_err() {
            // Cannot happen: keys are text and a vector takes every byte.
            out.truncate(start);
            return Err(Skip::Unrepresentable);
        }
        out.push(b'\n');
        self.lost.add(Skip::NotFinite, not_finite);
        Ok(())
    }
}

/// How many columns have to be left out, or that nothing would be left.
fn not_finite(measure: &Measure<'_>) -> Result<u64, Skip> {
    let finite = match *measure {
        Measure::Count { delta: value, rate }
        | Measure::Timing { ms: value, rate }
        | Measure::Histogram { value, rate }
        | Measure::Distribution { value, rate } => value.is_finite() && rate.is_finite(),
        Measure::Gauge(value) | Measure::GaugeShift(value) => value.is_finite(),
        Measure::Reading(number) => is_finite(&FieldValue::Number(number)),
        Measure::Set(_) => true,
        Measure::Fields(fields) => {
            let lost = fields.iter().filter(|(_, value)| !is_finite(value)).count();
            return if lost > 0 && lost == fields.len() {
                Err(Skip::NotFinite)
            } else {
                Ok(lost as u64)
            };
        }
    };
    if finite { Ok(0) } else { Err(Skip::NotFinite) }
}

fn is_finite(value: &FieldValue<'_>) -> bool {
    !matches!(value, FieldValue::Number(Number::F64(value)) if !value.is_finite())
}

struct Line<'a> {
    point: &'a Point<'a>,
    again: bool,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { point, again } = self;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("name", point.name)?;
        if !point.tags.is_empty() {
            line.serialize_entry("tags", &TagMap(point.tags))?;
        }
        if let Some(time) = point.time {
            line.serialize_entry("time", &time.0)?;
        }
        line.serialize_entry("kind", point.measure.kind().name())?;
        write_measure(&mut line, &point.measure)?;
        if *again {
            line.serialize_entry("again", again)?;
        }
        line.end()
    }
}

fn write_measure<M: SerializeMap>(line: &mut M, measure: &Measure<'_>) -> Result<(), M::Error> {
    match *measure {
        Measure::Count { delta: value, rate }
        | Measure::Timing { ms: value, rate }
        | Measure::Histogram { value, rate }
        | Measure::Distribution { value, rate } => {
            line.serialize_entry("value", &value)?;
            if rate != 1.0 {
                line.serialize_entry("rate", &rate)?;
            }
            Ok(())
        }
        Measure::Gauge(value) => line.serialize_entry("value", &value),
        Measure::GaugeShift(change) => line.serialize_entry("change", &change),
        Measure::Set(member) => line.serialize_entry("member", member),
        Measure::Reading(number) => line.serialize_entry("value", &Value(number.into())),
        Measure::Fields(fields) => line.serialize_entry("fields", &FieldMap(fields)),
    }
}

struct TagMap<'a>(Tags<'a>);

impl Serialize for TagMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|tag| (tag.key, tag.value)))
    }
}

struct FieldMap<'a>(Fields<'a>);

impl Serialize for FieldMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let finite = self.0.iter().filter(|(_, value)| is_finite(value));
        serializer.collect_map(finite.map(|(key, value)| (key, Value(value))))
    }
}

/// A column's value in JSON: integers stay integers, doubles keep their point.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(pub FieldValue<'a>);

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            FieldValue::Number(Number::I64(value)) => serializer.serialize_i64(value),
            FieldValue::Number(Number::U64(value)) => serializer.serialize_u64(value),
            FieldValue::Number(Number::F64(value)) => serializer.serialize_f64(value),
            FieldValue::Bool(truth) => serializer.serialize_bool(truth),
            FieldValue::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// The compact format, with more characters escaped than JSON asks for.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(is_unfit) {
            let (plain, unfit) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut chars = unfit.chars();
            if let Some(c) = chars.next() {
                write!(writer, "\\u{:04x}", u32::from(c))?;
            }
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// DEL, the control characters of C1 (one of them begins a terminal's commands), and the
/// line and paragraph separators. Those below the blank are escaped by JSON itself.
fn is_unfit(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, UnixNanos};

    fn line(write: impl Fn(&mut Batch)) -> (Result<String, Skip>, Vec<(Skip, u64)>) {
        let mut batch = Batch::new();
        write(&mut batch);
        let mut encoder = Encoder::new();
        let mut out = b"before".to_vec();
        let result = encoder.encode(&batch.point(0).unwrap(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let text = text.strip_prefix("before").unwrap();
        let written = result.map(|()| text.strip_suffix('\n').unwrap().to_owned());
        assert_eq!(written.is_err(), text.is_empty());
        let lines = if written.is_ok() { encoder.lines(text.as_bytes()) } else { 0 };
        assert_eq!(lines, text.matches('\n').count(), "{text}");
        (written, encoder.lost_parts())
    }

    fn measure(measure: Measure<'_>) -> Result<String, Skip> {
        line(|batch| batch.begin("m").finish(measure, None, "")).0
    }

    #[test]
    fn each_measure_has_its_keys() {
        let cases = [
            (Measure::Count { delta: 3.0, rate: 0.1 }, r#""counter","value":3.0,"rate":0.1"#),
            (Measure::Count { delta: -2.0, rate: 1.0 }, r#""counter","value":-2.0"#),
            (Measure::Gauge(-0.0), r#""gauge","value":-0.0"#),
            (Measure::GaugeShift(-1.5), r#""gauge","change":-1.5"#),
            (Measure::Timing { ms: 320.0, rate: 0.5 }, r#""timer","value":320.0,"rate":0.5"#),
            (Measure::Histogram { value: 1e16, rate: 1.0 }, r#""histogram","value":1e+16"#),
            (Measure::Distribution { value: 1.0, rate: 1.0 }, r#""distribution","value":1.0"#),
            (Measure::Set("a\"b"), r#""set","member":"a\"b""#),
            (Measure::Reading(Number::I64(i64::MIN)), r#""sample","value":-9223372036854775808"#),
            (Measure::Reading(Number::U64(u64::MAX)), r#""sample","value":18446744073709551615"#),
            (Measure::Reading(Number::F64(1.0)), r#""sample","value":1.0"#),
        ];
        for (input, expected) in cases {
            let expected = format!(r#"{{"name":"m","kind":{expected}}}"#);
            assert_eq!(measure(input), Ok(expected), "{input:?}");
        }
    }

    #[test]
    fn tags_time_and_columns() {
        let (written, lost) = line(|batch| {
            let mut writer = batch.begin("build/times");
            writer.tag("os", Some("linux"));
            writer.tag("canary", None);
            writer.field("n", FieldValue::Number(Number::I64(9_007_199_254_740_993)));
            writer.field("bad", FieldValue::Number(Number::F64(f64::NAN)));
            writer.field("ok", FieldValue::Bool(true));
            writer.field("t", FieldValue::Text("x"));
            writer.finish_fields(Some(UnixNanos(-7)));
        });
        let expected = r#"{"name":"build/times","tags":{"os":"linux","canary":null},"time":-7,"kind":"fields","fields":{"n":9007199254740993,"ok":true,"t":"x"}}"#;
        assert_eq!(written.unwrap(), expected);
        assert_eq!(lost, [(Skip::NotFinite, 1)]);
    }

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        let (written, _) = line(|batch| {
            let mut writer = batch.begin("a\n\r\0\x1b[2J\x7f\u{85}\u{9b}\u{2028}\u{2029}é\u{a0}/");
            writer.tag("k\u{9b}", Some("v\u{2028}"));
            writer.finish(Measure::Gauge(1.0), None, "");
        });
        let expected = r#"{"name":"a\n\r\u0000\u001b[2J\u007f\u0085\u009b\u2028\u2029é /","tags":{"k\u009b":"v\u2028"},"kind":"gauge","value":1.0}"#
            .replace("é /", "é\u{a0}/");
        assert_eq!(written.unwrap(), expected);
    }

    #[test]
    fn what_is_not_finite_is_skipped() {
        let not_finite = [
            Measure::Gauge(f64::NAN),
            Measure::GaugeShift(f64::INFINITY),
            Measure::Count { delta: f64::NEG_INFINITY, rate: 1.0 },
            Measure::Count { delta: 1.0, rate: f64::NAN },
            Measure::Timing { ms: f64::NAN, rate: 1.0 },
            Measure::Reading(Number::F64(f64::NAN)),
        ];
        for input in not_finite {
            assert_eq!(measure(input), Err(Skip::NotFinite), "{input:?}");
        }
        let (written, lost) = line(|batch| {
            let mut writer = batch.begin("m");
            writer.field("a", FieldValue::Number(Number::F64(f64::NAN)));
            writer.finish_fields(None);
        });
        assert_eq!((written, lost), (Err(Skip::NotFinite), vec![]));
    }
}
