//! Statsd and DogStatsD, both ways.
//!
//! ```text
//!   k:10|ms:20|ms|@0.5:3|c          classic: several samples, each with its own kind and rate
//!   t:1:2:3|ms|@0.5|#env:a,canary   packed: several values share kind, rate and tags
//!   s:a:b|s                         a set is never packed: one member, `a:b`
//!   n,k=v:1|c   n;k=v:1|c   n[k=v]:1|c   n#k=v:1|c      tags inside the name
//! ```
//!
//! Owns: the grammar of a line ([`parse_line`]), of events and service checks
//! ([`parse_event`], [`parse_service_check`]), and the way back ([`Encoder`], [`packets`]).
//! Does not aggregate, restore sample rates or make names fit other backends: a point says
//! what the client said.
//!
//! Choices where servers differ: a line is taken whole or not at all; fields stand in any
//! order; a rate belongs to the sample before it, every other field to the whole line; the
//! last of several tags with one key wins; a signed gauge is a change, in packed values too;
//! a rate on a gauge or a set is not even read; unknown fields are kept and counted.
//!
//! Limits: names of 1024 bytes, [`Limits::tags`]; the length of lines is the caller's.
//! Metrics: the caller counts refusals by [`ParseError::label`], and [`Parsed::unknown_fields`].

mod encode;
mod event;
mod parse;
mod tags;

pub use encode::{Encoder, TagDialect, packets};
pub use event::{Event, ServiceCheck, parse_event, parse_service_check};

use crate::{Batch, ParseError};

/// Parses one line without its LF; one CR at the end is dropped. A blank line has no points.
///
/// # Errors
///
/// Why the line is refused; `out` is then as it was.
pub fn parse_line(
    line: &[u8],
    dialects: &Dialects,
    limits: &Limits,
    out: &mut Batch,
) -> Result<Line, ParseError> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Ok(Line::Points(Parsed::default()));
    }
    if event::is_event(line) {
        return parse_event(line).map(|_| Line::Event);
    }
    if event::is_service_check(line) {
        return parse_service_check(line).map(|_| Line::ServiceCheck);
    }
    let mark = out.mark();
    let parsed = parse::metric(line, dialects, limits, out);
    if parsed.is_err() {
        out.rollback(mark);
    }
    parsed.map(Line::Points)
}

/// The lines of a datagram: cut at LF, blank ones skipped, the last LF optional.
pub fn lines(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let (line, left) = match memchr::memchr(b'\n', rest) {
            Some(at) => (rest.get(..at)?, rest.get(at + 1..)?),
            None if rest.is_empty() => return None,
            None => (rest, &[][..]),
        };
        rest = left;
        Some(line)
    })
    .filter(|line| !matches!(*line, [] | [b'\r']))
}

/// What a line was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Measurements, which now stand in the batch.
    Points(Parsed),
    /// A well-formed event; the caller counts it as `unsupported_event`.
    Event,
    /// A well-formed service check; the caller counts it as `unsupported_event`.
    ServiceCheck,
}

/// What was found on a line of measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Points written.
    pub points: u32,
    /// Fields that nobody knows; they are kept in the points' `rest`.
    pub unknown_fields: u32,
}

/// Which spellings of tags are understood. The characters of one that is switched off
/// belong to the name or, for DogStatsD, to an unknown field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialects {
    /// `name:1|c|#k:v,bare`
    pub dogstatsd: bool,
    /// `name,k=v:1|c`
    pub influxdb: bool,
    /// `name;k=v;k2=v2:1|c`
    pub graphite: bool,
    /// `name[k=v,k2=v2]:1|c`, also in the middle of a name
    pub signalfx: bool,
    /// `name#k=v,k2=v2:1|c`
    pub librato: bool,
}

impl Default for Dialects {
    fn default() -> Self {
        Self { dogstatsd: true, influxdb: true, graphite: true, signalfx: true, librato: true }
    }
}

/// What one line may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Distinct tag keys of one line.
    pub tags: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tags: 64 }
    }
}
