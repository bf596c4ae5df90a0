//! The keys that every backend has, whatever its kind, as a configuration writes them.
//!
//! What is left out is resolved by [`Settings`](super::Settings).

use crate::units::{Size, Span};
use serde::{Deserialize, Serialize};

/// The keys that every backend shares, whatever its kind.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Whether windows aggregate statsd kinds; by default as the kind of backend needs.
    pub aggregate: Option<bool>,
    /// The aggregation window; without aggregation, the longest a point waits for its batch.
    pub flush: Option<Span>,
    /// The percentiles of timers, in percent.
    pub percentiles: Option<Vec<f64>>,
    /// What a window's rows look like.
    pub layout: Layout,
    /// When idle series are forgotten.
    pub expire: Expire,
    /// How many series the windows hold at the most.
    pub max_series: Option<u64>,
    /// Of how many samples a timer's statistics of one window are exact.
    pub timer_samples: Option<u32>,
    /// When a payload is full.
    pub batch: Batch,
    /// How many bytes the queue holds in memory.
    pub memory: Option<Size>,
    /// How much of it is kept on disk when memory is full, and at a stop.
    pub spool: Option<OnDisk>,
    /// How much of what the backend refused for good is kept.
    pub dead_letters: Option<OnDisk>,
    /// What the disk part survives.
    pub durability: Durability,
    /// What a full queue does.
    pub when_full: WhenFull,
    /// How long one attempt may take.
    pub timeout: Option<Span>,
    /// How attempts are spaced.
    pub retry: Retry,
    /// How many attempts run side by side; 1 keeps order.
    pub concurrency: Option<u32>,
}

/// What a window's rows look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One row a series, statistics as its fields, samples weighed by their rate.
    #[default]
    Fields,
    /// The names and values of statsd/statsd 0.9, its unweighted timers included.
    Statsd,
}

/// When idle series are forgotten; zero sends a series only in windows in which it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expire {
    /// Idle counters are sent as 0 until then.
    pub counter: ExpireAfter,
    /// Idle timers are sent with count 0 until then.
    pub timer: ExpireAfter,
    /// Idle sets are sent as 0 until then.
    pub set: ExpireAfter,
    /// Idle gauges repeat their value until then.
    pub gauge: ExpireAfter,
}

/// A time, or `"never"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireAfter {
    /// After this long without a point.
    After(Span),
    /// Not at all.
    Never,
}

/// When a payload is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// At this many points.
    pub points: Option<u32>,
    /// At this many bytes.
    pub bytes: Option<Size>,
}

/// What a full queue does with the next payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// The oldest that is not in flight makes room.
    #[default]
    DropOldest,
    /// The new one is dropped.
    DropNewest,
    /// HTTP answers 503 with `Retry-After` before it takes anything.
    Refuse,
}

/// What is kept on disk, of a queue or as dead letters: `false`, or a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisk {
    /// Nothing.
    Off,
    /// This much.
    On(SpoolConfig),
}

/// How much is kept on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpoolConfig {
    /// At most so many bytes.
    pub max_size: Option<Size>,
}

/// What the disk part of a queue survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The death of the process.
    #[default]
    Process,
    /// That of the machine, too: every commit waits until the disk has it.
    Power,
}

impl Durability {
    pub(super) const fn pragma(self) -> &'static str {
        match self {
            Self::Process => "NORMAL",
            Self::Power => "FULL",
        }
    }
}

/// How attempts are spaced: full jitter between zero and a delay that doubles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// The first delay.
    pub first: Option<Span>,
    /// The longest delay; caps `Retry-After` too.
    pub max: Option<Span>,
    /// How long a backend may fail at a payload before it is seen whether it takes others.
    pub suspect_after: Option<Span>,
}

impl Default for Expire {
    fn default() -> Self {
        let at_once = ExpireAfter::After(Span::secs(0));
        Self { counter: at_once, timer: at_once, set: at_once, gauge: ExpireAfter::Never }
    }
}

impl<'de> Deserialize<'de> for ExpireAfter {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "never" {
            return Ok(Self::Never);
        }
        Span::parse(&text).map(Self::After).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for OnDisk {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = OnDisk;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("`false`, or a table such as { max_size = \"1GiB\" }")
            }

            fn visit_bool<E: serde::de::Error>(self, on: bool) -> Result<OnDisk, E> {
                Ok(if on { OnDisk::On(SpoolConfig::default()) } else { OnDisk::Off })
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<OnDisk, A::Error> {
                let table = serde::de::value::MapAccessDeserializer::new(map);
                SpoolConfig::deserialize(table).map(OnDisk::On)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
