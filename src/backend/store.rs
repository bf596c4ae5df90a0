//! The embedded store, SQLite under the data directory.

use crate::units::{Size, Span};
use serde::Deserialize;

/// What is particular to this kind of backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long points are kept.
    pub retention: Option<Span>,
    /// How large the file may grow; the oldest points make room.
    pub max_size: Option<Size>,
}
