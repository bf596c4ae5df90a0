//! InfluxDB's line protocol: an encoder for any server from 1.x on, and a strict reader of
//! what is sent to one.
//!
//! ```text
//!   measurement[,tag=value …] field=value[,field=value …] [nanoseconds]
//! ```
//!
//! What a server cannot take is made fit here, so that one point is always one line and no
//! name can smuggle in a second one (file `escape`). The rules were checked against a server of
//! version 1.6; where the versions differ, the narrower one holds.
//!
//! **Made fit**
//!
//! | where | what | becomes |
//! |---|---|---|
//! | measurement, tags, field keys | control characters and line breaks | `_` |
//! | the same | a backslash at the end, or before a comma, blank, `=`, `"` | `_` |
//! | measurement | a leading `#`, which would start a comment | `_` |
//! | tag and field keys | `time`, which the server throws away | `time_` |
//! | text columns | line breaks | a blank |
//! | tags | none, or an empty value | a bare tag says `true`; an empty one is left out |
//!
//! When two keys become equal the last one that can be said stands, and the others count as
//! lost parts. A tag and a column may share a key.
//!
//! **Limits**: a series (measurement and tags) with any of its field keys fits into 65,535
//! bytes, a text column into 64 KiB, a time between [`TIME_MIN`] and [`TIME_MAX`].
//!
//! Nothing here sums, samples or stamps: aggregation is done above, and a point without a
//! time is written without one. Timers, histograms, distributions, sets and changes of
//! gauges mean nothing to a database before they are aggregated, and are refused.
//!
//! **Read** is what 1.x reads, and a little less: names without control characters and of at
//! most 1024 bytes, no tag and no field twice. A quote in a name or a tag is a character; one
//! that opens a field's text has to be closed. One bad line costs only itself.

mod body;
mod encode;
mod escape;
mod lines;
mod precision;
mod read;
mod stencil;

pub use body::{Refused, Report, parse_body, refusal};
pub use encode::Encoder;
pub use lines::lines;
pub use precision::Precision;
pub use read::{ReadOptions, parse_line};
pub use stencil::{End, Stencil};

/// How an encoder writes what the protocol leaves open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncoderOptions {
    /// Whether integers stay integers.
    pub integers: Integers,
    /// Whether the server takes unsigned integers (2.x and later; 1.x usually does not).
    pub unsigned: bool,
}

/// What becomes of integers. A column's type is fixed by the first value that a server
/// sees, so `1` kept as an integer would have a later `1.5` refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Integers {
    /// Every number is written as the nearest double.
    #[default]
    Float,
    /// `7` is written `7i`. Above `i64::MAX` it is written with a `u` where the server takes
    /// that, and refused as unrepresentable where not.
    Keep,
}

/// The earliest time that a server takes, in nanoseconds since 1970.
pub const TIME_MIN: i64 = i64::MIN + 2;

/// The latest time that a server takes, in nanoseconds since 1970.
pub const TIME_MAX: i64 = i64::MAX - 1;
