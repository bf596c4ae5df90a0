//! JSON lines back to points.
//!
//! Only our own encoder writes this format, so unknown keys are refused rather than skipped.

use crate::{Batch, FieldValue, Measure, Number, PointWriter, UnixNanos};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// Appends the point that `line` describes; answers whether it takes the place of an earlier one.
///
/// # Errors
///
/// What is wrong with the line; `out` is then unchanged.
pub fn parse_line(line: &str, out: &mut Batch) -> Result<bool, ReadError> {
    let row: Row<'_> = serde_json::from_str(line).map_err(|_| ReadError::Json)?;
    let mut writer = out.begin(&row.name.0);
    for (key, value) in &row.tags.0 {
        let value = value.as_ref().map(|value| &*value.0);
        if writer.tag(&key.0, value).is_some() {
            return Err(ReadError::Duplicate);
        }
    }
    let time = row.time.map(UnixNanos);
    if let RowKind::Fields = row.kind {
        row.columns(&mut writer)?;
        writer.finish_fields(time);
    } else {
        writer.finish(row.measure().ok_or(ReadError::Kind)?, time, "");
    }
    Ok(row.again)
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is no JSON, or not of the shape that the encoder writes.
    #[error("the line is not a point in JSON")]
    Json,
    /// What the kind needs is missing, or of another type.
    #[error("the line lacks what its kind needs")]
    Kind,
    /// A tag or a column stands twice.
    #[error("a tag or a column stands twice")]
    Duplicate,
}

/// A line as it stands there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    tags: Pairs<Text<'a>, Option<Text<'a>>>,
    time: Option<i64>,
    kind: RowKind,
    #[serde(borrow)]
    value: Option<Scalar<'a>>,
    change: Option<f64>,
    #[serde(borrow)]
    member: Option<Text<'a>>,
    #[serde(borrow)]
    fields: Option<Pairs<Text<'a>, Scalar<'a>>>,
    rate: Option<f64>,
    #[serde(default)]
    again: bool,
}

/// The names of [`Kind`](crate::Kind).
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RowKind {
    Counter,
    Gauge,
    Timer,
    Histogram,
    Distribution,
    Set,
    Sample,
    Fields,
}

impl Row<'_> {
    /// The measure of any kind but a row of columns.
    fn measure(&self) -> Option<Measure<'_>> {
        let rate = self.rate.unwrap_or(1.0);
        let value = self.number().map(Number::as_f64);
        Some(match (self.kind, self.change) {
            (RowKind::Counter, _) => Measure::Count { delta: value?, rate },
            (RowKind::Gauge, Some(change)) => Measure::GaugeShift(change),
            (RowKind::Gauge, None) => Measure::Gauge(value?),
            (RowKind::Timer, _) => Measure::Timing { ms: value?, rate },
            (RowKind::Histogram, _) => Measure::Histogram { value: value?, rate },
            (RowKind::Distribution, _) => Measure::Distribution { value: value?, rate },
            (RowKind::Set, _) => Measure::Set(&self.member.as_ref()?.0),
            (RowKind::Sample, _) => Measure::Reading(self.number()?),
            (RowKind::Fields, _) => return None,
        })
    }

    fn number(&self) -> Option<Number> {
        match self.value {
            Some(Scalar::Number(number)) => Some(number),
            _ => None,
        }
    }

    fn columns(&self, writer: &mut PointWriter<'_>) -> Result<(), ReadError> {
        for (key, value) in &self.fields.as_ref().ok_or(ReadError::Kind)?.0 {
            if writer.field(&key.0, value.view()) {
                return Err(ReadError::Duplicate);
            }
        }
        Ok(())
    }
}

/// Text that is only copied when an escape in it asks for that.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A number with its type, a truth value or text.
enum Scalar<'a> {
    Number(Number),
    Bool(bool),
    Text(Cow<'a, str>),
}

impl Scalar<'_> {
    fn view(&self) -> FieldValue<'_> {
        match self {
            Scalar::Number(number) => FieldValue::Number(*number),
            Scalar::Bool(truth) => FieldValue::Bool(*truth),
            Scalar::Text(text) => FieldValue::Text(text),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a truth value or text")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Scalar::Number(Number::I64(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Scalar::Number(i64::try_from(value).map_or(Number::U64(value), Number::I64)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Scalar::Number(Number::F64(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Borrowed(value)))
    }
}

/// The entries of an object in the order in which they stand there.
struct Pairs<K, V>(Vec<(K, V)>);

impl<K, V> Default for Pairs<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Pairs<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor(PhantomData))
    }
}

struct PairsVisitor<K, V>(PhantomData<(K, V)>);

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<K, V> {
    type Value = Pairs<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_and_why() {
        let cases = [
            ("", ReadError::Json),
            ("[]", ReadError::Json),
            (r#"{"kind":"gauge","value":1}"#, ReadError::Json),
            (r#"{"name":"m","value":1}"#, ReadError::Json),
            (r#"{"name":"m","kind":"meter","value":1}"#, ReadError::Json),
            (r#"{"name":"m","kind":"gauge","value":1,"x":1}"#, ReadError::Json),
            (r#"{"name":"m","kind":"gauge","value":1e400}"#, ReadError::Json),
            (r#"{"name":"m","kind":"gauge","value":1,"time":1.5}"#, ReadError::Json),
            (r#"{"name":"m","kind":"gauge","value":1,"tags":{"a":1}}"#, ReadError::Json),
            (r#"{"name":"m","kind":"gauge","value":1}{}"#, ReadError::Json),
            (r#"{"name":"m","kind":"gauge"}"#, ReadError::Kind),
            (r#"{"name":"m","kind":"gauge","value":"1"}"#, ReadError::Kind),
            (r#"{"name":"m","kind":"set","value":1}"#, ReadError::Kind),
            (r#"{"name":"m","kind":"fields","value":1}"#, ReadError::Kind),
            (r#"{"name":"m","kind":"fields","fields":{"a":1,"a":1}}"#, ReadError::Duplicate),
            (
                r#"{"name":"m","kind":"gauge","value":1,"tags":{"a":"b","a":null}}"#,
                ReadError::Duplicate,
            ),
        ];
        for (line, expected) in cases {
            let mut batch = Batch::new();
            assert_eq!(parse_line(line, &mut batch), Err(expected), "{line}");
            assert_eq!(batch.bytes(), 0, "{line} leaves a trace");
        }
    }

    #[test]
    fn keys_may_stand_in_any_order_with_blanks_between() {
        let mut batch = Batch::new();
        let line = r#" { "value" : 3, "kind":"counter", "rate":0.1, "name":"a\u0062" } "#;
        parse_line(line, &mut batch).unwrap();
        let point = batch.point(0).unwrap();
        assert_eq!(point.name, "ab");
        assert_eq!(point.measure, Measure::Count { delta: 3.0, rate: 0.1 });
    }
}
