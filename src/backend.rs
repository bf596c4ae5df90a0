//! Backends: an encoder that is pure and a shipper that alone knows the remote peer.
//!
//! Adding one: a file `backend/<kind>.rs` with its `Config`, a variant here, an arm in `build`.

pub mod blackhole;
pub mod influxdb;
pub mod statsd;
pub mod stdout;
pub mod store;

use bytes::Bytes;
use protocols::UnixNanos;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Encoded points on their way to one backend. The queue that holds it does not know what it is.
#[derive(Clone, Debug)]
pub struct Payload {
    /// Records one after the other, each ended by a line feed.
    pub body: Bytes,
    /// How many points they tell.
    pub points: u32,
    /// When the first of them was encoded.
    pub born: UnixNanos,
}

/// What became of one attempt to ship a payload. Only a shipper interprets a peer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend has all of it (for datagrams: the kernel has).
    Delivered,
    /// The backend kept the payload but for some points that it will never take.
    Partial {
        /// How many it refused.
        rejected: u32,
        /// The metric label.
        reason: &'static str,
        /// The backend's own words.
        detail: String,
    },
    /// The backend will never take it.
    Rejected {
        /// The metric label.
        reason: &'static str,
        /// The backend's own words.
        detail: String,
    },
    /// It is too large for the backend; its halves may not be.
    TooLarge {
        /// The backend's own words.
        detail: String,
    },
    /// Not now: the peer is tired, away, or a person has to mend something first.
    Retry {
        /// When the peer said to come back.
        after: Option<Duration>,
        /// What happened, for the log.
        detail: String,
    },
}

/// A future that a shipper returns; shippers are called once a payload, so the box is cheap.
pub type Shipping<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// Delivers payloads to one peer.
pub trait Ship: Send {
    /// One attempt. Cancelling it must be safe: the payload is then shipped again.
    fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a>;
}

/// One backend's section: the keys of its kind. The keys that all share are [`crate::lane::Config`].
#[derive(Clone, Debug, PartialEq)]
pub enum Config {
    /// `kind = "statsd"`.
    Statsd(statsd::Config),
    /// `kind = "influxdb"`.
    Influxdb(influxdb::Config),
    /// `kind = "store"`.
    Store(store::Config),
    /// `kind = "stdout"`.
    Stdout(stdout::Config),
    /// `kind = "blackhole"`.
    Blackhole(blackhole::Config),
}

impl Config {
    /// The value of `kind`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Statsd(_) => "statsd",
            Self::Influxdb(_) => "influxdb",
            Self::Store(_) => "store",
            Self::Stdout(_) => "stdout",
            Self::Blackhole(_) => "blackhole",
        }
    }
}
