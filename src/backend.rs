//! Backends: an encoder that is pure and a shipper that alone knows the remote peer.
//!
//! Adding one: a file `backend/<kind>.rs` with its `Config`, a variant here and its word in
//! [`KINDS`]. The compiler then asks for its arms here and in the plan; the decoder wants one for
//! its section, and [`lane::Settings`](crate::lane::Settings) to know what windows it needs.

pub mod blackhole;
pub mod influxdb;
mod pool;
pub mod statsd;
pub mod stdout;
pub mod store;

use crate::books::BackendBook;
use crate::clock::Clock;
use crate::tls::{self, Keeper, Owner};
use crate::waybill::Waybill;
use bytes::Bytes;
use protocols::{Encode, UnixNanos, jsonl};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
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
    /// Where its records came from.
    pub waybill: Waybill,
}

impl Payload {
    /// Records that tell so many points, the first of which was encoded then.
    pub fn new(body: impl Into<Bytes>, points: u32, born: UnixNanos) -> Self {
        Self { body: body.into(), points, born, waybill: Waybill::default() }
    }

    /// The same, whose records came from there.
    #[must_use]
    pub fn with(self, waybill: Waybill) -> Self {
        Self { waybill, ..self }
    }
}

/// What became of one attempt to ship a payload. Only a shipper interprets a peer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend has all of it (for datagrams: the kernel has).
    Delivered,
    /// The backend kept the payload but for some points that it will never take.
    Partial {
        /// How many it says it refused, which may be more than there were.
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
    /// The backend refused it as a whole; its halves may fare better. A single record so
    /// refused is given up.
    Divide {
        /// The metric label; [`TOO_LARGE`] tells the lane how much the backend takes.
        reason: &'static str,
        /// The backend's own words.
        detail: String,
    },
    /// Not now: the peer is tired, away, or a person has to mend something first.
    Retry {
        /// When the peer said to come back.
        after: Option<Duration>,
        /// Whether the peer has looked at this very payload and failed, so that the payload may
        /// be the trouble. Not when it is away, busy, or wants to be asked later.
        answered: bool,
        /// What happened, for the log.
        detail: String,
    },
}

impl Outcome {
    /// The peer is away, or not to be asked now.
    pub fn not_now(detail: impl Into<String>) -> Self {
        Self::Retry { after: None, answered: false, detail: detail.into() }
    }

    /// Whether the peer has taken any of so many points.
    pub const fn takes_some_of(&self, points: u32) -> bool {
        match self {
            Self::Delivered => true,
            Self::Partial { rejected, .. } => *rejected < points,
            Self::Rejected { .. } | Self::Divide { .. } | Self::Retry { .. } => false,
        }
    }
}

/// Why a payload is divided whose size is what the backend minds.
pub const TOO_LARGE: &str = "too_large";

/// A future that a shipper returns; shippers are called once a payload, so the box is cheap.
pub type Shipping<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// Delivers payloads to one peer.
pub trait Ship: Send {
    /// One attempt. Cancelling it must be safe: the payload is then shipped again.
    fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a>;

    /// Whether a point that the backend has already may be sent to it again and changes nothing.
    /// Then the parts of a payload that it took in part are sent once more, until it is known
    /// which records it refuses.
    fn is_idempotent(&self) -> bool {
        false
    }
}

/// One backend's section: the keys of its kind. The keys that all share are
/// [`crate::lane::Config`].
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

    /// What turns points into the bytes of this backend.
    pub fn encoder(&self) -> Box<dyn Encode> {
        match self {
            Self::Statsd(config) => Box::new(config.encoder()),
            Self::Influxdb(config) => Box::new(config.encoder()),
            Self::Store(_) | Self::Stdout(_) | Self::Blackhole(_) => {
                Box::new(jsonl::Encoder::new())
            }
        }
    }

    /// What takes them there, so many side by side. Must be called inside a runtime.
    ///
    /// # Errors
    ///
    /// A sentence that says which setting cannot be used.
    pub fn shippers(&self, count: u32, world: &World<'_>) -> Result<Vec<Box<dyn Ship>>, String> {
        let book = || Arc::clone(world.book);
        match self {
            Self::Statsd(config) => {
                let tls = config.tls.as_ref().map(|tls| world.client(tls)).transpose()?;
                several(count, || statsd::Shipper::new(config, book(), tls.clone()))
            }
            Self::Influxdb(config) => {
                let shipper = influxdb::Shipper::new(config, world)?;
                several(count, || Ok(shipper.clone()))
            }
            Self::Store(config) => several(count, || {
                Ok(store::Shipper::new(world.data_dir, config, world.clock, book()))
            }),
            Self::Stdout(_) => several(count, || {
                stdout::Shipper::new().map_err(|error| format!("stdout: {error}"))
            }),
            Self::Blackhole(_) => several(count, || Ok(blackhole::Shipper)),
        }
    }

    /// Where it sends to, for people; never a secret.
    pub fn place(&self) -> String {
        match self {
            Self::Statsd(config) => config.address.clone(),
            Self::Influxdb(config) => config.url.join(", "),
            Self::Store(_) => "under the data directory".to_owned(),
            Self::Stdout(_) => "standard output".to_owned(),
            Self::Blackhole(_) => "nowhere".to_owned(),
        }
    }
}

fn several<S: Ship + 'static>(
    count: u32,
    make: impl Fn() -> Result<S, String>,
) -> Result<Vec<Box<dyn Ship>>, String> {
    (0..count).map(|_| Ok(Box::new(make()?) as Box<dyn Ship>)).collect()
}

/// The values of `kind`.
pub const KINDS: [&str; 5] = ["statsd", "influxdb", "store", "stdout", "blackhole"];

/// What a shipper finds around it.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// The backend's name.
    pub name: &'a str,
    /// Where the embedded store lives.
    pub data_dir: &'a Path,
    /// The present time.
    pub clock: Clock,
    /// The backend's book.
    pub book: &'a Arc<BackendBook>,
    /// What looks after certificates.
    pub certificates: &'a Keeper,
}

impl World<'_> {
    /// What a `tls` block means, and goes on meaning when its files change.
    fn client(&self, settings: &tls::ClientSettings) -> Result<tls::Client, String> {
        let (client, _) = tls::Client::load(settings).map_err(|problem| problem.to_string())?;
        let owner = Owner::Backend(self.name.into(), Arc::clone(self.book));
        self.certificates.look_after(owner, &client.renewable());
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_to_the_last_point_is_not_taken() {
        let partial = |rejected| {
            let (reason, detail) = ("partial", String::new());
            Outcome::Partial { rejected, reason, detail }.takes_some_of(3)
        };
        assert_eq!([0, 2, 3, 4].map(partial), [true, true, false, false]);
        assert!(Outcome::Delivered.takes_some_of(3));
        assert!(!Outcome::not_now("down").takes_some_of(3));
    }
}
