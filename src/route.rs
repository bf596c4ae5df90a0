//! The routing table: rules in order, compiled once, replaced whole.
//!
//! Rules are tried in order; every one that matches adds its backends, and one marked `final`
//! ends the walk. A backend named by two rules gets the point once, as the first of them
//! rewrote it. What no rule matched is counted as unmatched.

pub mod again;
pub mod crossing;
mod forms;
pub mod memo;
mod print;
mod readings;
pub mod rewrite;
pub mod router;
pub mod rules;
mod script;
pub mod test;
pub mod way;

pub use crate::lane::{Fate, Full, Level, Loss, Receipt, Slip};
pub use crossing::{Crossing, Submitted};
pub use memo::{Found, Memo};
pub use print::Print;
pub use readings::{Readings, Recollection};
pub use router::{Router, Table, Tables, Turned, wait_while};
pub use rules::{LaneSet, Rule, Rules, Verdict};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One `[[routes]]` section.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How metrics and `explain` call it; by default `route 1`, `route 2`, …
    pub name: Option<String>,
    /// Which points it takes; empty takes all.
    #[serde(default, rename = "match")]
    pub matching: Match,
    /// The backends that receive them; none drops them on purpose.
    pub to: Vec<String>,
    /// Whether later routes are spared the points that matched.
    #[serde(default, rename = "final")]
    pub last: bool,
    /// How the points are changed on the way.
    pub rewrite: Option<Rewrite>,
}

impl Config {
    /// What the route at this place of the list is called: its name, else its number.
    pub fn name_at(&self, index: usize) -> String {
        self.name.clone().unwrap_or_else(|| format!("route {}", index + 1))
    }
}

/// Which points a route takes: all keys must hold, a list means any of.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Globs, or `/regex/`.
    pub name: Option<OneOrMany>,
    /// For each key: globs or `/regex/` of its value.
    pub tags: BTreeMap<String, OneOrMany>,
    /// counter, gauge, timer, set, histogram, distribution, sample, fields.
    pub kind: Option<OneOrMany>,
    /// statsd, opentsdb, http, influxdb.
    pub protocol: Option<OneOrMany>,
    /// Names of listeners.
    pub listener: Option<OneOrMany>,
    /// Names of principals.
    pub principal: Option<OneOrMany>,
}

/// A text or a list of texts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Any of these.
    Many(Vec<String>),
}

impl OneOrMany {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let many = match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many.as_slice(),
        };
        many.iter().map(String::as_str)
    }
}

/// How points are changed on the way to a route's backends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rewrite {
    /// The new name; `${name}` stands for the old one.
    pub name: Option<String>,
    /// Changes of tags.
    pub tags: RewriteTags,
}

/// Changes of tags: first drop, then rename, then add.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RewriteTags {
    /// Tags to add or to replace.
    pub add: BTreeMap<String, String>,
    /// Keys to drop.
    pub drop: Vec<String>,
    /// Old key to new key.
    pub rename: BTreeMap<String, String>,
}
