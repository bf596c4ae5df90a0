//! The one thing every encoder does.

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
}
