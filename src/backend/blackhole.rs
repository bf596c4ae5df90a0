//! Takes everything and keeps nothing.

use serde::Deserialize;

/// What is particular to this kind of backend: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {}
