//! One line of a payload, as the tables hold it.

use protocols::{Batch, Measure, Point, UnixNanos, jsonl};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// A point on its way into the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    /// A JSON object with sorted keys, so that equal tags are equal text.
    pub(super) tags: String,
    pub(super) time: UnixNanos,
    /// A JSON object.
    pub(super) fields: String,
    /// Whether it takes the place of an earlier one.
    pub(super) again: bool,
}

/// Reads a payload's line; `scratch` only lends its memory. `None` if the line is no point, which
/// can only be when the payload was changed on its way.
pub(super) fn read(line: &[u8], born: UnixNanos, scratch: &mut Batch) -> Option<Row> {
    scratch.clear();
    let again = jsonl::parse_line(std::str::from_utf8(line).ok()?, scratch).ok()?;
    let point = scratch.point(0)?;
    Some(Row {
        name: point.name.to_owned(),
        tags: serde_json::to_string(&SortedTags(&point)).ok()?,
        time: point.time.unwrap_or(born),
        fields: serde_json::to_string(&Columns(&point.measure)).ok()?,
        again,
    })
}

struct SortedTags<'a>(&'a Point<'a>);

impl Serialize for SortedTags<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tags = self.0.tags.sorted();
        serializer.collect_map(tags.iter().map(|tag| (tag.key, tag.value_or_true())))
    }
}

/// The columns of any measure. Windows turn statsd kinds into rows before they come here; where
/// a backend does not aggregate, a sample keeps its rate beside it.
struct Columns<'a>(&'a Measure<'a>);

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match *self.0 {
            Measure::Count { delta, rate } => map.serialize_entry("count", &(delta / rate))?,
            Measure::Gauge(value) => map.serialize_entry("value", &value)?,
            Measure::GaugeShift(change) => map.serialize_entry("change", &change)?,
            Measure::Timing { ms: value, rate }
            | Measure::Histogram { value, rate }
            | Measure::Distribution { value, rate } => {
                map.serialize_entry("value", &value)?;
                if rate != 1.0 {
                    map.serialize_entry("rate", &rate)?;
                }
            }
            Measure::Set(member) => map.serialize_entry("member", member)?,
            Measure::Reading(number) => {
                map.serialize_entry("value", &jsonl::Value(number.into()))?
            }
            Measure::Fields(fields) => {
                for (key, value) in fields.iter() {
                    map.serialize_entry(key, &jsonl::Value(value))?;
                }
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, tags: &str, fields: &str) {
        let row = read(line.as_bytes(), UnixNanos(5), &mut Batch::new()).unwrap();
        assert_eq!((row.tags.as_str(), row.fields.as_str()), (tags, fields), "{line}");
    }

    #[test]
    fn every_kind_has_columns() {
        for (kind, fields) in [
            (r#""counter","value":3.0,"rate":0.1"#, r#"{"count":30.0}"#),
            (r#""gauge","value":-1.5"#, r#"{"value":-1.5}"#),
            (r#""gauge","change":2.0"#, r#"{"change":2.0}"#),
            (r#""timer","value":320.0,"rate":0.5"#, r#"{"value":320.0,"rate":0.5}"#),
            (r#""histogram","value":1.0"#, r#"{"value":1.0}"#),
            (r#""set","member":"a\"b""#, r#"{"member":"a\"b"}"#),
            (r#""sample","value":18446744073709551615"#, r#"{"value":18446744073709551615}"#),
            (r#""sample","value":-9223372036854775808"#, r#"{"value":-9223372036854775808}"#),
            (r#""fields","fields":{"b":true,"a":1,"t":"x"}"#, r#"{"b":true,"a":1,"t":"x"}"#),
        ] {
            check(&format!(r#"{{"name":"m","kind":{kind}}}"#), "{}", fields);
        }
    }

    #[test]
    fn tags_are_sorted_and_a_bare_one_is_true() {
        let line = r#"{"name":"m","tags":{"os":"linux","canary":null},"kind":"gauge","value":1.0}"#;
        check(line, r#"{"canary":"true","os":"linux"}"#, r#"{"value":1.0}"#);
    }

    #[test]
    fn a_point_without_a_time_gets_its_payloads() {
        let time =
            |line: &str| read(line.as_bytes(), UnixNanos(5), &mut Batch::new()).unwrap().time;
        assert_eq!(time(r#"{"name":"m","kind":"gauge","value":1.0}"#), UnixNanos(5));
        assert_eq!(time(r#"{"name":"m","time":-7,"kind":"gauge","value":1.0}"#), UnixNanos(-7));
    }

    #[test]
    fn what_is_no_point_is_none() {
        for line in ["", "{", "[1]", r#"{"name":"m"}"#, "\u{0}"] {
            assert_eq!(read(line.as_bytes(), UnixNanos(5), &mut Batch::new()), None, "{line:?}");
        }
        assert_eq!(read(b"\xff", UnixNanos(5), &mut Batch::new()), None);
    }
}
