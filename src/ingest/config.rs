//! The keys of a listener, as a configuration writes them.

use super::pulse::{Broker, Tasks};
use crate::errors;
use crate::net::Wanted;
use crate::origin::Protocol;
use crate::tls::ServerSettings;
use crate::units::{Size, Span};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// One listener's section.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What is spoken on the sockets.
    pub protocol: Protocol,
    /// `udp://host:port`, `tcp://host:port`, `unixgram:///path`, `unix:///path`.
    #[serde(default)]
    pub bind: Vec<String>,
    /// What one client may ask for.
    #[serde(default)]
    pub limits: Limits,
    /// statsd: the tag spellings that are understood in names and after them.
    pub dialects: Option<Vec<Dialect>>,
    /// statsd over UDP: how many sockets share the port (`SO_REUSEPORT`).
    pub sockets: Option<u32>,
    /// UDP: the receive buffer asked of the kernel.
    pub receive_buffer: Option<Size>,
    /// OpenTSDB: refuse puts without a tag, as OpenTSDB does.
    #[serde(default)]
    pub strict: bool,
    /// Refuse points whose time is too far from now.
    pub time_window: Option<TimeWindow>,
    /// HTTP: how long the keys of requests are remembered, and how many.
    pub idempotency: Option<Idempotency>,
    /// When HTTP requests are answered.
    #[serde(default)]
    pub ack: Ack,
    /// Who sends what carries no credentials.
    pub principal: Option<String>,
    /// Streams from the network speak TLS.
    pub tls: Option<ServerSettings>,
    /// Files: those that are followed; `*`, `?` and `{a,b}` stand for names.
    pub paths: Option<Vec<String>>,
    /// Files: a folder that whole files are taken from.
    pub drop: Option<PathBuf>,
    /// Files: what is in them, if their names do not say so.
    pub format: Option<FileFormat>,
    /// Files of format `log`: what a line begins with that holds a point.
    pub prefix: Option<String>,
    /// Files: what stands before the name of every series.
    pub series: Option<String>,
    /// Files: how much a compressed one may hold.
    pub unpacked: Option<Size>,
    /// Files: one of the same name is the same one read again, and each line of it counts once.
    #[serde(default)]
    pub once: bool,
    /// Pulse: who tells which tasks have ended.
    pub broker: Option<Broker>,
    /// Pulse: where what they leave behind is fetched.
    pub tasks: Option<Tasks>,
    /// Where what is refused here is told.
    pub errors: Option<errors::Config>,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFormat {
    /// One JSON object a line.
    Jsonl,
    /// A table whose first line names the columns.
    Csv,
    /// Lines of statsd.
    Statsd,
    /// A log, of which marked lines are JSON objects.
    Log,
}

/// A spelling of tags in statsd lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// `name:1|c|#k:v`.
    Dogstatsd,
    /// `name,k=v:1|c`.
    Influxdb,
    /// `name;k=v:1|c`.
    Graphite,
    /// `name[k=v]:1|c`.
    Signalfx,
    /// `name#k=v:1|c`.
    Librato,
}

/// What one client may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The longest line.
    pub line: Size,
    /// The largest body, decompressed.
    pub body: Size,
    /// Connections at a time.
    pub connections: u32,
    /// How long a connection may be silent; without it see [`Config::idle`].
    pub idle: Option<Span>,
    /// How long request headers may take.
    pub header: Span,
    /// How long a request's body may take, and an answer that waits for its points.
    pub request: Span,
    /// Tags on one point.
    pub tags: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line: Size::kib(64),
            body: Size::mib(16),
            connections: 4096,
            idle: None,
            header: Span::secs(5),
            request: Span::secs(30),
            tags: 64,
        }
    }
}

/// How far a point's own time may be from now.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeWindow {
    /// Older points are refused.
    pub past: Option<Span>,
    /// Points further ahead are refused.
    pub future: Option<Span>,
}

/// For how long, and of how many requests, the header `Idempotency-Key` is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Idempotency {
    /// A request that comes again within it is not counted again.
    pub window: Span,
    /// The oldest make room; an answer of several KiB counts as so many more.
    pub max_keys: u64,
}

impl Default for Idempotency {
    fn default() -> Self {
        Self { window: Span::secs(86_400), max_keys: 1_000_000 }
    }
}

/// When a request is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    /// Once its points are in memory.
    #[default]
    Accepted,
    /// Once they are on disk or delivered, for every backend that keeps points there; else in its
    /// queue.
    Queued,
    /// Once every backend has them.
    Delivered,
}

impl Ack {
    /// The level of this name.
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "accepted" => Some(Self::Accepted),
            "queued" => Some(Self::Queued),
            "delivered" => Some(Self::Delivered),
            _ => None,
        }
    }
}

impl Config {
    /// How long keys of requests are remembered, and how many.
    pub fn idempotency(&self) -> Idempotency {
        self.idempotency.unwrap_or_default()
    }

    /// How long a connection may be silent. Collectors of OpenTSDB keep one open for good and,
    /// with nothing to tell, say a word only once a minute, so theirs may be silent for longer.
    pub fn idle(&self) -> Duration {
        let usual = match self.protocol {
            Protocol::Opentsdb => Span::secs(300),
            Protocol::Statsd
            | Protocol::Http
            | Protocol::Influxdb
            | Protocol::File
            | Protocol::Pulse => Span::secs(60),
        };
        self.limits.idle.unwrap_or(usual).0
    }

    /// How much a compressed file may hold.
    pub fn unpacked(&self) -> u64 {
        self.unpacked.unwrap_or(UNPACKED).0
    }

    /// Where files are looked for, or messages come from, as it is shown.
    pub fn places(&self) -> Vec<String> {
        let paths = self.paths.iter().flatten().cloned();
        let paths = paths.chain(self.drop.iter().map(|drop| drop.display().to_string()));
        paths.chain(self.broker.iter().map(Broker::place)).collect()
    }

    /// The addresses of the listener called `name`, as the pool of sockets wants them.
    ///
    /// # Errors
    ///
    /// The first entry of `bind` that is no address, and why.
    pub fn wanted(&self, name: &str) -> Result<Vec<Wanted>, String> {
        let one = |text: &String| {
            Ok(Wanted {
                listener: name.into(),
                key: format!("listeners.{name}.bind"),
                address: text.parse()?,
                receive_buffer: self.receive_buffer,
                sockets: self.sockets.unwrap_or(1),
            })
        };
        self.bind.iter().map(one).collect()
    }
}

/// Far more than a task's log, and unpacked within seconds.
const UNPACKED: Size = Size::mib(1024);
