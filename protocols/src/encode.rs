//! What every encoder does, and how it counts what it leaves out.

use crate::influxdb::Stencil;
use crate::statsd::Verbatim;
use crate::{Point, Skip};

/// Turns points into the bytes of one backend. Pure: the same point gives the same bytes.
pub trait Encode: Send {
    /// Appends one record, ended as the format ends records (a newline, for line formats).
    ///
    /// # Errors
    ///
    /// What this format cannot say; `out` is then as it was. A point of which only a part
    /// cannot be said is written without that part, which the encoder counts in
    /// [`lost_parts`](Self::lost_parts).
    fn encode(&mut self, point: &Point<'_>, out: &mut Vec<u8>) -> Result<(), Skip>;

    /// As [`encode`](Self::encode), for a record that takes the place of an earlier one of the
    /// same series and time. Most who read records replace in any case; formats for those who do
    /// not say it.
    ///
    /// # Errors
    ///
    /// As for [`encode`](Self::encode).
    fn encode_again(&mut self, point: &Point<'_>, out: &mut Vec<u8>) -> Result<(), Skip> {
        self.encode(point, out)
    }

    /// How many lines there are in what one call of [`encode`](Self::encode) has appended: several
    /// where a line tells one value. Formats that need one line a point need not count.
    fn lines(&self, record: &[u8]) -> usize {
        memchr::memchr_iter(b'\n', record).count()
    }

    /// Appends the name as records carry it; answers whether a character had to be replaced, so
    /// that another name may be spelled alike.
    fn name(&self, name: &str, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(name.as_bytes());
        false
    }

    /// Parts of points (a text column, a non-finite field) left out since the last call, and why.
    fn lost_parts(&mut self) -> Vec<(Skip, u64)> {
        Vec::new()
    }

    /// How readings of a series that is known are written without an encoder; `None` if they
    /// cannot be.
    fn stencil(&self) -> Option<Stencil> {
        None
    }

    /// Which lines of statsd are records of this format as they are; `None` if no line is.
    fn verbatim(&self) -> Option<Verbatim> {
        None
    }
}

/// Parts left out of points that were written nevertheless, by reason. It can be copied, so that
/// an encoder which gives a point up can forget the parts that it had counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LostParts([u64; Skip::ALL.len()]);

impl LostParts {
    /// Counts so many parts.
    pub(crate) fn add(&mut self, reason: Skip, parts: u64) {
        if let Some(count) = self.0.get_mut(reason.index()) {
            *count += parts;
        }
    }

    /// What was counted since the last call, for [`Encode::lost_parts`].
    pub(crate) fn take(&mut self) -> Vec<(Skip, u64)> {
        let Self(counts) = std::mem::take(self);
        Skip::ALL.iter().copied().zip(counts).filter(|(_, count)| *count > 0).collect()
    }
}
