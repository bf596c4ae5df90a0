//! Wire formats of metrics: bytes in, points out, and back again.
//!
//! ```text
//!   bytes ──► grammar (statsd, opentsdb, json) ──► Batch ──► Point<'_> ──► encoder ──► bytes
//! ```
//!
//! Nothing here opens a socket, reads a clock, logs, counts or waits: time and
//! limits are arguments, and what went wrong is a return value. So every part can be
//! fuzzed, benchmarked and used alone.
//!
//! Modules in reading order: what a point is ([`point`]), how many are kept together
//! ([`batch`]), what can be wrong ([`error`]), how a byte stream becomes lines
//! ([`frame`]), then one module for each protocol, parser and encoder side by side.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod batch;
pub mod decimal;
pub mod error;
pub mod frame;
pub mod influxdb;
pub mod jsonl;
pub mod point;
pub mod statsd;
mod token;

pub mod json;
pub mod opentsdb;
pub mod timestamp;

pub use batch::{Batch, Mark, PointWriter};
pub use error::{ParseError, Skip};
pub use point::{FieldValue, Fields, Kind, Measure, Number, Point, Tag, Tags, UnixNanos};

mod encode;
pub use encode::Encode;
