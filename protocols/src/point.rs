//! The one point type: what a client said, before any backend's needs.
//!
//! A [`Point`] is always a view, into a [`Batch`](crate::Batch) that owns the text; there
//! is no owned point. A new backend never changes [`Measure`], and a new protocol only
//! does so when it can say something that no other could.

use std::fmt;

/// Nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub i64);

impl UnixNanos {
    /// From whole seconds; saturates at the ends of the range (the years 1677 and 2262).
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// From milliseconds; saturates at the ends of the range.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Whole seconds, rounded towards the past.
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Whole milliseconds, rounded towards the past.
    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }
}

/// One measurement as a client sent it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point<'a> {
    /// As sent: any UTF-8 without control characters. Made fit for a backend by its encoder.
    pub name: &'a str,
    /// In the order received; a key stands at most once.
    pub tags: Tags<'a>,
    /// What was measured.
    pub measure: Measure<'a>,
    /// The client's own time; `None` means "when it arrived".
    pub time: Option<UnixNanos>,
    /// Trailing fields that were not interpreted (`c:…`, `e:…`, `card:…` and unknown ones,
    /// joined by `|`). Only the same protocol's encoder repeats them.
    pub rest: &'a str,
}

/// What a point measures. Statsd kinds stay what they are until a backend needs otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure<'a> {
    /// An increment, to be multiplied by `1 / rate`. `f64`, since `f32` makes 29.99999955
    /// of `3|c|@0.1`.
    Count {
        /// The increment as sent; may be negative.
        delta: f64,
        /// Sample rate in (0, 1].
        rate: f64,
    },
    /// An absolute reading that replaces the last one.
    Gauge(f64),
    /// A signed change of a gauge.
    GaugeShift(f64),
    /// A duration in milliseconds; the rate weighs it and never scales it.
    Timing {
        /// Milliseconds.
        ms: f64,
        /// Sample rate in (0, 1].
        rate: f64,
    },
    /// A sample of a distribution, statistics made by whoever aggregates.
    Histogram {
        /// The sample.
        value: f64,
        /// Sample rate in (0, 1].
        rate: f64,
    },
    /// As a histogram, with the wish that percentiles are made globally.
    Distribution {
        /// The sample.
        value: f64,
        /// Sample rate in (0, 1].
        rate: f64,
    },
    /// A member of a set whose distinct members are counted.
    Set(&'a str),
    /// A number with no declared meaning (OpenTSDB, JSON `value`).
    Reading(Number),
    /// Several columns of one row.
    Fields(Fields<'a>),
}

/// The kind of a [`Measure`], as routing rules and statistics name it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// [`Measure::Count`].
    Counter,
    /// [`Measure::Gauge`] and [`Measure::GaugeShift`].
    Gauge,
    /// [`Measure::Timing`].
    Timer,
    /// [`Measure::Histogram`].
    Histogram,
    /// [`Measure::Distribution`].
    Distribution,
    /// [`Measure::Set`].
    Set,
    /// [`Measure::Reading`].
    Sample,
    /// [`Measure::Fields`].
    Fields,
}

impl Kind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Kind; 8] = [
        Kind::Counter,
        Kind::Gauge,
        Kind::Timer,
        Kind::Set,
        Kind::Histogram,
        Kind::Distribution,
        Kind::Sample,
        Kind::Fields,
    ];

    /// The word used in configurations and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Timer => "timer",
            Kind::Histogram => "histogram",
            Kind::Distribution => "distribution",
            Kind::Set => "set",
            Kind::Sample => "sample",
            Kind::Fields => "fields",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Measure<'_> {
    /// Which kind this is.
    pub const fn kind(&self) -> Kind {
        match self {
            Measure::Count { .. } => Kind::Counter,
            Measure::Gauge(_) | Measure::GaugeShift(_) => Kind::Gauge,
            Measure::Timing { .. } => Kind::Timer,
            Measure::Histogram { .. } => Kind::Histogram,
            Measure::Distribution { .. } => Kind::Distribution,
            Measure::Set(_) => Kind::Set,
            Measure::Reading(_) => Kind::Sample,
            Measure::Fields(_) => Kind::Fields,
        }
    }
}

/// A number that keeps what its text said: integers stay integers of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A signed integer.
    I64(i64),
    /// An unsigned integer above `i64::MAX`.
    U64(u64),
    /// Anything else; always finite in a point that a parser made.
    F64(f64),
}

impl Number {
    /// The nearest double.
    #[allow(clippy::cast_precision_loss)] // The documented meaning of float mode.
    pub const fn as_f64(self) -> f64 {
        match self {
            Number::I64(n) => n as f64,
            Number::U64(n) => n as f64,
            Number::F64(n) => n,
        }
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Number::F64(value)
    }
}

/// The value of one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'a> {
    /// A number.
    Number(Number),
    /// A truth value.
    Bool(bool),
    /// Text; a backend without text counts it as unrepresentable.
    Text(&'a str),
}

/// One tag; `value` is `None` for a bare tag (`#canary`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag<'a> {
    /// Never empty.
    pub key: &'a str,
    /// `None` for a bare tag; never empty otherwise.
    pub value: Option<&'a str>,
}

impl<'a> Tag<'a> {
    /// The value for backends that need one: a bare tag says `true`.
    pub fn value_or_true(&self) -> &'a str {
        self.value.unwrap_or("true")
    }
}

/// Where a piece of text lies in a batch's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    /// Spans are only made by the batch that owns `text`, so the range always holds;
    /// an empty answer instead of a panic keeps the promise that parsing never panics.
    pub(crate) fn of(self, text: &str) -> &str {
        text.get(self.start as usize..self.end as usize).unwrap_or("")
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TagSpan {
    pub(crate) key: Span,
    pub(crate) value: Option<Span>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSpan {
    pub(crate) key: Span,
    pub(crate) value: FieldSlot,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldSlot {
    Number(Number),
    Bool(bool),
    Text(Span),
}

/// The tags of one point, in the order received.
#[derive(Clone, Copy)]
pub struct Tags<'a> {
    pub(crate) text: &'a str,
    pub(crate) spans: &'a [TagSpan],
}

impl<'a> Tags<'a> {
    /// No tags.
    pub const EMPTY: Tags<'static> = Tags { text: "", spans: &[] };

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// One after the other, in the order received.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Tag<'a>> + Clone + use<'a> {
        let text = self.text;
        self.spans.iter().map(move |tag| Tag {
            key: tag.key.of(text),
            value: tag.value.map(|value| value.of(text)),
        })
    }

    /// The tag with this key.
    pub fn find(&self, key: &str) -> Option<Tag<'a>> {
        self.iter().find(|tag| tag.key == key)
    }

    /// In byte order of the keys, as databases want them.
    pub fn sorted(&self) -> Vec<Tag<'a>> {
        let mut tags: Vec<_> = self.iter().collect();
        tags.sort_unstable();
        tags
    }
}

impl<'a> Tags<'a> {
    /// Where the text of the first begins.
    pub(crate) fn start(&self) -> u32 {
        self.spans.first().map_or(0, |tag| tag.key.start)
    }

    /// Of each tag, in order, its text as `key=value` where it was kept so.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = Option<&'a str>> + use<'a> {
        let text = self.text;
        self.spans.iter().map(move |tag| {
            let value = tag.value?;
            let joined = text.as_bytes().get(tag.key.end as usize) == Some(&b'=');
            let pair = Span { start: tag.key.start, end: value.end };
            (joined && value.start == tag.key.end + 1).then(|| pair.of(text))
        })
    }

    /// The text of all of them, with no more between them than the marks of their protocol;
    /// `None` of those that do not stand one after the other.
    pub(crate) fn one_text(&self) -> Option<&'a str> {
        let start = self.start();
        let end = self.spans.iter().try_fold(start, |end, tag| tag.behind(end))?;
        self.text.get(start as usize..end as usize)
    }
}

impl TagSpan {
    /// Its end, if it begins at `end` and is of one piece.
    fn behind(&self, end: u32) -> Option<u32> {
        let Self { key, value } = *self;
        let joined = value.is_none_or(|value| value.start.wrapping_sub(key.end) <= 1);
        (key.start == end && joined).then(|| value.map_or(key.end, |value| value.end))
    }

    /// The same of a text that was copied.
    pub(crate) const fn moved(self, from: u32, to: u32) -> Self {
        let Self { key, value } = self;
        let value = match value {
            Some(value) => Some(value.moved(from, to)),
            None => None,
        };
        Self { key: key.moved(from, to), value }
    }
}

impl Span {
    const fn moved(self, from: u32, to: u32) -> Self {
        Self { start: self.start - from + to, end: self.end - from + to }
    }
}

impl PartialEq for Tags<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Tags<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The columns of one point, in the order received; a key stands at most once.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    pub(crate) text: &'a str,
    pub(crate) spans: &'a [FieldSpan],
}

impl<'a> Fields<'a> {
    /// How many there are.
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// One after the other, in the order received.
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = (&'a str, FieldValue<'a>)> + Clone + use<'a> {
        let text = self.text;
        self.spans.iter().map(move |field| {
            let value = match field.value {
                FieldSlot::Number(number) => FieldValue::Number(number),
                FieldSlot::Bool(truth) => FieldValue::Bool(truth),
                FieldSlot::Text(span) => FieldValue::Text(span.of(text)),
            };
            (field.key.of(text), value)
        })
    }

    /// The column with this name.
    pub fn find(&self, key: &str) -> Option<FieldValue<'a>> {
        self.iter().find_map(|(name, value)| (name == key).then_some(value))
    }
}

impl PartialEq for Fields<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
