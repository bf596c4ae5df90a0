//! Where a point came in: what listeners tell the routing table, and all that routes may ask.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where a point came in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The listener's name.
    pub listener: Arc<str>,
    /// What it speaks.
    pub protocol: Protocol,
    /// Who has sent it, where somebody has to be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Arc<str>>,
}

impl Origin {
    /// A listener of that name, which speaks `protocol`.
    pub fn new(listener: &str, protocol: Protocol) -> Self {
        Self { listener: listener.into(), protocol, principal: None }
    }

    /// The same of points that the principal has sent.
    #[must_use]
    pub fn by(self, principal: Option<Arc<str>>) -> Self {
        Self { principal, ..self }
    }
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// statsd and DogStatsD lines.
    Statsd,
    /// OpenTSDB's telnet commands and its HTTP API, on one port.
    Opentsdb,
    /// JSON points over HTTP.
    Http,
    /// InfluxDB's line protocol over HTTP.
    Influxdb,
    /// Files that are read as they grow, or taken from a folder.
    File,
    /// Artifacts of tasks, of whose end a broker tells.
    Pulse,
}

impl Protocol {
    /// Every protocol, in the order of the documentation.
    pub const ALL: [Self; 6] =
        [Self::Statsd, Self::Opentsdb, Self::Http, Self::Influxdb, Self::File, Self::Pulse];

    /// Whether HTTP is spoken, and so requests come that can be answered and repeated.
    pub const fn is_http(self) -> bool {
        match self {
            Self::Statsd | Self::File | Self::Pulse => false,
            Self::Opentsdb | Self::Http | Self::Influxdb => true,
        }
    }

    /// Whether it is remembered what came, since it may come again.
    pub const fn remembers(self) -> bool {
        self.is_http() || matches!(self, Self::Pulse)
    }

    /// Whether clients come to sockets, or we go and look.
    pub const fn is_bound(self) -> bool {
        !matches!(self, Self::File | Self::Pulse)
    }

    /// The word used in configurations and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Statsd => "statsd",
            Self::Opentsdb => "opentsdb",
            Self::Http => "http",
            Self::Influxdb => "influxdb",
            Self::File => "file",
            Self::Pulse => "pulse",
        }
    }
}
