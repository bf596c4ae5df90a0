//! A point while its parts are gathered from JSON members, cells or query pairs.
//!
//! The members of an object come in any order, so nothing can be written before all were
//! seen. What a column means is decided at the end: see [`Draft::measure`].

use super::Limits;
use super::value::{Scalar, finite};
use crate::batch::{Batch, PointWriter, Replaced};
use crate::error::ParseError;
use crate::name;
use crate::point::{Kind, Measure, UnixNanos};
use crate::refusals::{Refusal, quoted};
use crate::timestamp;
use std::borrow::Cow;

/// A point while its parts are gathered.
#[derive(Debug, Default)]
pub(crate) struct Draft<'a> {
    pub(crate) name: Option<Cow<'a, str>>,
    /// An empty value is a bare tag.
    tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    time: Option<UnixNanos>,
    kind: Option<Kind>,
    columns: Vec<(Cow<'a, str>, Scalar<'a>)>,
    pub(crate) limits: Limits,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Forgets everything, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.name = None;
        self.tags.clear();
        self.kind = None;
        self.clear_row();
    }

    /// Forgets what differs between the rows of one series.
    pub(crate) fn clear_row(&mut self) {
        self.time = None;
        self.columns.clear();
    }

    /// Whether there is nothing but a name and tags.
    pub(crate) fn has_no_row(&self) -> bool {
        self.time.is_none() && self.kind.is_none() && self.columns.is_empty()
    }

    /// The bytes of the name and the tags, which every row of a series repeats.
    pub(crate) fn bytes(&self) -> usize {
        let tags = self.tags.iter().map(|(key, value)| key.len() + value.len());
        self.name.as_ref().map_or(0, |name| name.len()) + tags.sum::<usize>()
    }

    pub(crate) fn named(&mut self, value: Scalar<'a>) -> Result<(), Refusal> {
        match value {
            Scalar::Null => return Ok(()),
            Scalar::Text(_) if self.name.is_some() => {
                return Err(Refusal::new(ParseError::NotAPoint, "the name stands twice"));
            }
            Scalar::Text(name) => self.name = Some(name),
            _ => return Err(Refusal::new(ParseError::NotAPoint, "the name is not text")),
        }
        Ok(())
    }

    pub(crate) fn tag(&mut self, key: Cow<'a, str>, value: Scalar<'a>) -> Result<(), Refusal> {
        if key.is_empty() {
            return Err(Refusal::new(ParseError::InvalidTag, "a tag has no key"));
        }
        if value == Scalar::Null {
            return Ok(());
        }
        // Repeats make it a little longer than the points that come of it, never without end.
        if self.tags.len() >= self.limits.tags.saturating_mul(2).saturating_add(1) {
            return Err(ParseError::TooManyTags.into());
        }
        let Some(value) = value.into_tag() else {
            let text = format!("the value of the tag {} is not text", quoted(&key));
            return Err(Refusal::new(ParseError::InvalidTag, text));
        };
        self.tags.push((key, value));
        Ok(())
    }

    /// Takes a member that is neither the name nor the tags.
    pub(crate) fn member(&mut self, key: Cow<'a, str>, value: Scalar<'a>) -> Result<(), Refusal> {
        match &*key {
            "time" | "timestamp" => self.timed(&value),
            "type" => self.typed(&value),
            _ => self.column(key, value),
        }
    }

    pub(crate) fn timed(&mut self, value: &Scalar<'_>) -> Result<(), Refusal> {
        let time = match value {
            Scalar::Null => return Ok(()),
            Scalar::Number(digits) => timestamp::number(digits),
            Scalar::Text(text) => timestamp::text(text),
            Scalar::Bool(_) | Scalar::Nested => Err(ParseError::InvalidTimestamp),
        };
        if self.time.is_some() {
            return Err(Refusal::new(ParseError::InvalidTimestamp, "there are two times"));
        }
        self.time = Some(time.map_err(bad_time)?);
        Ok(())
    }

    fn typed(&mut self, value: &Scalar<'_>) -> Result<(), Refusal> {
        let name = match value {
            Scalar::Null => return Ok(()),
            Scalar::Text(name) => name,
            _ => return Err(ParseError::UnknownType.into()),
        };
        if self.kind.is_some() {
            return Err(Refusal::new(ParseError::UnknownType, "the type stands twice"));
        }
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name && is_statsd(*kind));
        self.kind = Some(kind.ok_or(ParseError::UnknownType)?);
        Ok(())
    }

    pub(crate) fn column(&mut self, key: Cow<'a, str>, value: Scalar<'a>) -> Result<(), Refusal> {
        match value {
            Scalar::Null => return Ok(()),
            _ if key.is_empty() => {
                return Err(Refusal::new(ParseError::InvalidField, "a field has no name"));
            }
            Scalar::Nested => drop(value.as_field(&key)?),
            _ if self.columns.len() >= self.limits.fields => {
                return Err(ParseError::TooManyFields.into());
            }
            _ => self.columns.push((key, value)),
        }
        Ok(())
    }

    /// Writes the point; what is refused leaves no trace in `out`.
    pub(crate) fn write(&self, out: &mut Batch) -> Result<(), Refusal> {
        let missing = || Refusal::new(ParseError::EmptyName, "there is no `name`");
        let name = self.name.as_deref().ok_or_else(missing)?;
        name::check(name)?;
        self.limits.times.check(self.time)?;
        let measure = self.measure()?;
        let mut writer = out.begin(name);
        self.write_tags(&mut writer)?;
        match measure {
            Some(measure) => writer.finish(measure, self.time, ""),
            None => {
                self.write_columns(&mut writer)?;
                writer.finish_fields(self.time);
            }
        }
        Ok(())
    }

    /// A declared type with `value` is a statsd kind, a lone numeric `value` is a reading, and
    /// everything else (`None`) is a row of columns.
    fn measure(&self) -> Result<Option<Measure<'_>>, Refusal> {
        match (self.kind, self.columns.as_slice()) {
            (Some(kind), columns) => typed_measure(kind, columns).map(Some),
            (None, []) => Err(ParseError::NoFields.into()),
            (None, [(key, Scalar::Number(digits))]) if key == "value" => {
                Ok(Some(Measure::Reading(finite(digits, key)?)))
            }
            (None, _) => Ok(None),
        }
    }

    fn write_tags(&self, writer: &mut PointWriter<'_>) -> Result<(), Refusal> {
        for (key, value) in &self.tags {
            let value = Some(&**value).filter(|value| !value.is_empty());
            if writer.tag(key, value) == Some(Replaced::OtherValue) {
                let text = format!("the tag {} stands twice with different values", quoted(key));
                return Err(Refusal::new(ParseError::DuplicateTag, text));
            }
            if writer.tag_count() > self.limits.tags {
                return Err(ParseError::TooManyTags.into());
            }
        }
        Ok(())
    }

    fn write_columns(&self, writer: &mut PointWriter<'_>) -> Result<(), Refusal> {
        if let Some(key) = repeated(&self.columns) {
            let text = format!("the field {} stands twice", quoted(key));
            return Err(Refusal::new(ParseError::InvalidField, text));
        }
        for (key, value) in &self.columns {
            writer.append_field(key, value.as_field(key)?);
        }
        Ok(())
    }
}

/// A key that stands twice. Sorted, since a search for each key would cost their square.
fn repeated<'d>(columns: &'d [(Cow<'_, str>, Scalar<'_>)]) -> Option<&'d str> {
    let mut keys: Vec<&str> = columns.iter().map(|(key, _)| &**key).collect();
    keys.sort_unstable();
    keys.windows(2).find_map(|pair| match *pair {
        [key, next] if key == next => Some(key),
        _ => None,
    })
}

fn bad_time(reason: ParseError) -> Refusal {
    match reason {
        ParseError::InvalidTimestamp => {
            Refusal::new(reason, "the time is neither a positive number nor RFC 3339 text")
        }
        _ => Refusal::new(reason, "the time is outside of the years 1677 to 2262"),
    }
}

fn is_statsd(kind: Kind) -> bool {
    !matches!(kind, Kind::Sample | Kind::Fields)
}

fn typed_measure<'d>(
    kind: Kind,
    columns: &'d [(Cow<'_, str>, Scalar<'_>)],
) -> Result<Measure<'d>, Refusal> {
    let mut value = None;
    let mut rate = None;
    for (key, scalar) in columns {
        let slot = match &**key {
            "value" => &mut value,
            "rate" => &mut rate,
            _ => return Err(stray(kind, key)),
        };
        if slot.replace(scalar).is_some() {
            return Err(stray(kind, key));
        }
    }
    let value = value.ok_or(ParseError::MissingValue)?;
    if kind == Kind::Set {
        return member(value);
    }
    let Scalar::Number(digits) = value else { return Err(ParseError::InvalidValue.into()) };
    let value = finite(digits, "value")?.as_f64();
    if kind == Kind::Gauge {
        return Ok(Measure::Gauge(value));
    }
    let rate = sample_rate(rate)?;
    Ok(match kind {
        Kind::Counter => Measure::Count { delta: value, rate },
        Kind::Timer => Measure::Timing { ms: value, rate },
        Kind::Distribution => Measure::Distribution { value, rate },
        _ => Measure::Histogram { value, rate },
    })
}

fn stray(kind: Kind, key: &str) -> Refusal {
    let text = format!("a {kind} has one value and at most a rate, not {}", quoted(key));
    Refusal::new(ParseError::InvalidField, text)
}

/// Numbers are members too, as they are for statsd.
fn member<'d>(value: &'d Scalar<'_>) -> Result<Measure<'d>, Refusal> {
    match value {
        Scalar::Text(text) if text.is_empty() => Err(ParseError::MissingValue.into()),
        Scalar::Text(text) => Ok(Measure::Set(text)),
        Scalar::Number(digits) => Ok(Measure::Set(digits)),
        _ => Err(Refusal::new(ParseError::InvalidValue, "a member of a set is text or a number")),
    }
}

fn sample_rate(rate: Option<&Scalar<'_>>) -> Result<f64, Refusal> {
    let Some(rate) = rate else { return Ok(1.0) };
    let number = match rate {
        Scalar::Number(digits) => finite(digits, "rate").ok(),
        _ => None,
    };
    let rate = number.map(crate::point::Number::as_f64).filter(|rate| *rate > 0.0 && *rate <= 1.0);
    rate.ok_or(ParseError::InvalidRate.into())
}
