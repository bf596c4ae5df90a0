//! Points of known series as lines, without an encoder.
//!
//! What stands before the value is the same in every line of a series and kind, so it is spelled once,
//! by the encoder, and copied from then on. The lines are those that the encoder writes.

use super::encode::{Encoder, column, write_value};
use super::{EncoderOptions, Integers};
use crate::form::Figure;
use crate::{FieldValue, Kind, Measure, Number, Tags, UnixNanos};

/// How one encoder writes points of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stencil {
    options: EncoderOptions,
}

impl Stencil {
    pub(super) const fn new(options: EncoderOptions) -> Self {
        Self { options }
    }

    /// Whether there are lines for such measures; others mean nothing to a database before they are
    /// summed up.
    pub const fn says(&self, measure: &Measure<'_>) -> bool {
        match measure {
            Measure::Count { .. }
            | Measure::Gauge(_)
            | Measure::Reading(_)
            | Measure::Fields(_) => true,
            Measure::GaugeShift(_)
            | Measure::Timing { .. }
            | Measure::Histogram { .. }
            | Measure::Distribution { .. }
            | Measure::Set(_) => false,
        }
    }

    /// Appends what every line of a series and kind begins with, if it can be said without a loss and
    /// the name stands in it as it is.
    pub fn head(&self, name: &str, tags: Tags<'_>, kind: Kind, out: &mut Vec<u8>) -> Option<()> {
        Encoder::new(self.options).head(name, tags, column(kind)?, out)
    }

    /// The value in the line of a point of statsd; none where there is no line for it.
    #[inline]
    pub const fn value(&self, measure: &Measure<'_>) -> Option<f64> {
        match *measure {
            Measure::Count { delta, rate } => Some(delta / rate),
            Measure::Gauge(value) => Some(value),
            _ => None,
        }
    }

    /// Appends a line with a finite [value](Self::value).
    #[inline]
    pub fn line_of(&self, head: &[u8], value: f64, end: &End, out: &mut Vec<u8>) {
        out.extend_from_slice(head);
        // It cannot fail: it is finite.
        let _ = write_value(FieldValue::Number(Number::F64(value)), self.options, out);
        end.append(out);
    }

    /// Appends the line of a reading.
    #[inline]
    pub fn line(&self, head: &[u8], figure: &Figure, end: &End, out: &mut Vec<u8>) {
        out.reserve(head.len() + LINE_MIN);
        out.extend_from_slice(head);
        if let Some((length, words)) = figure.text() {
            let start = out.len();
            // From registers: what was just written in halves is not read at once as a whole.
            words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
            out.truncate(start + length);
            if self.options.integers == Integers::Keep
                && !out.get(start..).unwrap_or_default().contains(&b'.')
            {
                out.push(b'i');
            }
        } else {
            // It cannot fail: it is finite, and not unsigned.
            let _ = write_value(FieldValue::Number(figure.number()), self.options, out);
        }
        end.append(out);
    }
}

/// The time of a line, and its end. It is kept, since most have the time of the one before.
#[derive(Clone, Debug, Default)]
pub struct End {
    time: UnixNanos,
    text: [u8; END_MAX],
    length: usize,
}

impl End {
    /// That of a line with this time.
    #[inline]
    pub fn of(&mut self, time: UnixNanos) -> &Self {
        if self.time != time || self.length == 0 {
            self.set(time);
        }
        self
    }

    /// To append a number of bytes that is always the same costs less.
    #[inline]
    fn append(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.text);
        out.truncate(start + self.length);
    }

    /// As it is written.
    pub fn text(&self) -> &[u8] {
        self.text.get(..self.length).unwrap_or_default()
    }

    fn set(&mut self, time: UnixNanos) {
        let mut digits = itoa::Buffer::new();
        let whole = [b" ", digits.format(time.0).as_bytes(), b"\n"];
        self.time = time;
        self.length = 0;
        for (place, byte) in self.text.iter_mut().zip(whole.into_iter().flatten()) {
            *place = *byte;
            self.length += 1;
        }
    }
}

/// A blank, a sign, nineteen digits and an LF, rounded up.
const END_MAX: usize = 24;
/// What a line takes beside its head, and what is written over on the way.
const LINE_MIN: usize = 16 + 1 + END_MAX;
