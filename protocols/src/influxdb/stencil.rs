//! Readings of known series as lines, without an encoder.
//!
//! What stands before the value is the same in every line of a series, so it is spelled once, by
//! the encoder, and copied from then on. The lines are those that the encoder writes.

use super::encode::{Encoder, write_value};
use super::{EncoderOptions, Integers};
use crate::form::Figure;
use crate::{FieldValue, Tags, UnixNanos};

/// How one encoder writes readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stencil {
    options: EncoderOptions,
}

impl Stencil {
    pub(super) const fn new(options: EncoderOptions) -> Self {
        Self { options }
    }

    /// Appends what every line of a series begins with, if it can be said without a loss and the
    /// name stands in it as it is.
    pub fn head(&self, name: &str, tags: Tags<'_>, out: &mut Vec<u8>) -> Option<()> {
        Encoder::new(self.options).head(name, tags, out)
    }

    /// Appends a line.
    #[inline]
    pub fn line(&self, head: &[u8], figure: &Figure, time: UnixNanos, out: &mut Vec<u8>) {
        out.extend_from_slice(head);
        match figure {
            Figure::Text { length, bytes } => {
                let text = bytes.get(..usize::from(*length)).unwrap_or_default();
                out.extend_from_slice(text);
                if self.options.integers == Integers::Keep && !text.contains(&b'.') {
                    out.push(b'i');
                }
            }
            // It cannot fail: it is finite, and not unsigned.
            Figure::Number(number) => {
                let _ = write_value(FieldValue::Number(*number), self.options, out);
            }
        }
        Self::end(time, out);
    }

    /// Appends the time of a line, and its end.
    pub fn end(time: UnixNanos, out: &mut Vec<u8>) {
        out.push(b' ');
        out.extend_from_slice(itoa::Buffer::new().format(time.0).as_bytes());
        out.push(b'\n');
    }
}
