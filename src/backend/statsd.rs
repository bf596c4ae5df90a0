//! A statsd server: kinds, units, rates and tags are relayed as received.

use crate::units::Size;
use serde::Deserialize;

/// What is particular to this kind of backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `udp://host:8125`, `tcp://host:8125`, `unixgram:///path` or `unix:///path`.
    pub address: String,
    /// How tags are written.
    #[serde(default)]
    pub tags: TagDialect,
    /// The largest datagram, cut at line borders.
    pub max_payload: Option<Size>,
    /// How long a resolved address is trusted before the name is looked up again.
    pub resolve_every: Option<crate::units::Span>,
}

/// How tags are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TagDialect {
    /// `name:1|c|#k:v`.
    #[default]
    Dogstatsd,
    /// `name,k=v:1|c`.
    Influxdb,
    /// `name;k=v:1|c`.
    Graphite,
    /// Tags are left out.
    None,
}
