//! Wire formats of metrics: bytes in, points out, and back again.
//!
//! ```text
//!   bytes ──► grammar (statsd, opentsdb, json, csv, influxdb) ──► Batch ──► Point<'_> ──► encoder ──► bytes
//! ```
//!
//! Nothing here opens a socket, reads a clock, logs, counts or waits: time and
//! limits are arguments, and what went wrong is a return value. So every part can be
//! fuzzed, benchmarked and used alone.
//!
//! Modules in reading order: what a point is ([`point`]), how many are kept together
//! ([`batch`]) or remembered for longer ([`keys`]), what can be wrong ([`error`]) and how clients
//! hear of it ([`Refusals`], [`Answer`]), what all protocols share ([`decimal`], [`timestamp`],
//! [`frame`]: how a byte stream becomes lines, [`form`]: how readings are known again, and
//! [`marked`]: which lines of a log hold points), then one module for each protocol, parser and
//! encoder side by side.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod point;

pub mod batch;
pub mod keys;

mod answer;
pub mod error;
mod refusals;

pub mod decimal;
pub mod form;
pub mod frame;
pub mod marked;
mod name;
mod scan;
pub mod timestamp;
mod token;

pub mod csv;
pub mod influxdb;
pub mod json;
pub mod jsonl;
pub mod opentsdb;
pub mod pulse;
pub mod statsd;

mod encode;

pub use answer::Answer;
pub use batch::{Batch, Mark, PointWriter};
pub use encode::Encode;
pub use error::{ParseError, Skip};
pub use keys::{Key, Keys};
pub use point::{FieldValue, Fields, Kind, Measure, Number, Point, Tag, Tags, UnixNanos};
pub use refusals::{ItemError, Refusals};
