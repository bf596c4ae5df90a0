//! Ingesters: sockets in, batches of points out to the router.
//!
//! ```text
//! datagrams ─► lines ─┐
//! streams ───► lines ─┼─► Intake: parse, count, batch ─► Router::submit
//! HTTP ──────► body ──┤
//! files ─────► lines ─┤
//! artifacts ─► lines ─┘
//! ```
//!
//! One task for each socket and one for each connection; each has its own router and batch,
//! and none ever waits for a backend. [`spawn`] starts them by one `match`; none knows a lane
//! or a backend. What is refused is counted in the listener's book under its reason, and a
//! line is logged now and then.

mod bodies;
mod busy;
mod config;
mod datagram;
mod door;
mod file;
mod grammar;
mod http;
mod intake;
mod keys;
mod lines;
mod opentsdb;
mod pulse;
mod statsd;
mod stream;

pub use config::{Ack, Config, Dialect, FileFormat, Idempotency, Limits, TimeWindow};
pub use file::Glob;
pub use grammar::{Unparsed, is_request, parse_alone};
pub use http::{FORBIDDEN, UNAUTHENTICATED};
pub use keys::{Admit, Keys, keys_file};
pub use pulse::{Broker, Retry, Tasks, check_address};

use crate::books::ListenerBook;
use crate::clock::Clock;
use crate::net::{Acceptor, Bound, Socket};
use crate::origin::Protocol;
use crate::route::Router;
use crate::tls::{Keeper, Server};
use busy::Busy;
use intake::Context;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

/// A running listener.
///
/// Dropping it ends its tasks at once; [`stop`](Self::stop) and [`end`](Self::end) let them finish.
#[derive(Debug, Default)]
pub struct Listener {
    stop: CancellationToken,
    hurry: CancellationToken,
    end: CancellationToken,
    busy: Busy,
    tasks: TaskTracker,
}

/// Where clients come in, and what they are shown where they have to speak TLS.
#[derive(Debug)]
pub struct Doors {
    /// The sockets.
    pub sockets: Vec<Bound>,
    /// For those that take connections from the network.
    pub tls: Option<Server>,
}

impl From<Vec<Bound>> for Doors {
    fn from(sockets: Vec<Bound>) -> Self {
        Self { sockets, tls: None }
    }
}

/// Starts a listener on its sockets.
///
/// # Errors
///
/// What the runtime says to a socket, or that a protocol does not go with it.
pub fn spawn(
    name: &str,
    config: &Config,
    doors: impl Into<Doors>,
    router: Router,
    book: Arc<ListenerBook>,
    clock: Clock,
    keys: &Arc<Keys>,
) -> io::Result<Listener> {
    let Doors { sockets, tls } = doors.into();
    let listener = Listener::default();
    let mut context = Context::new(name, config, router, book, clock, keys, &listener);
    context.tls = tls;
    for (worker, bound) in sockets.into_iter().enumerate() {
        let address = bound.address.clone();
        start(&context.for_worker(worker).by(transport(&bound.socket)), bound)?;
        info!(listener = name, address, "listening");
    }
    Ok(listener)
}

/// Starts a listener that reads files; what it has read is remembered under `data_dir`.
pub fn spawn_files(
    name: &str,
    config: &Config,
    data_dir: &Path,
    router: Router,
    book: Arc<ListenerBook>,
    clock: Clock,
    keys: &Arc<Keys>,
) -> Listener {
    let listener = Listener::default();
    let context = Context::new(name, config, router, book, clock, keys, &listener);
    context.run(file::run(context.by("file"), data_dir.to_owned()));
    info!(listener = name, "reading files");
    listener
}

/// Starts a listener that takes in what finished tasks leave behind.
///
/// # Errors
///
/// What is wrong with its certificates.
pub fn spawn_pulse(
    name: &str,
    config: &Config,
    certificates: &Keeper,
    router: Router,
    book: Arc<ListenerBook>,
    clock: Clock,
    keys: &Arc<Keys>,
) -> Result<Listener, String> {
    let listener = Listener::default();
    let context = Context::new(name, config, router, book, clock, keys, &listener).by("amqp");
    let parts = pulse::Parts::of(&context, certificates)?;
    context.run(pulse::run(context.clone(), parts));
    info!(listener = name, "waiting for finished tasks");
    Ok(listener)
}

impl Listener {
    /// Takes no more connections, processes what has been received, ends what is open but for
    /// requests that only wait for what becomes of their points. The caller sets the deadline.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.busy.over().await;
    }

    /// Waits for these requests as well, until they are answered and their connections closed.
    pub async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// As [`end`](Self::end), and requests that still wait are told at once how things stand.
    pub async fn hurry(&self) {
        self.hurry.cancel();
        self.end().await;
    }

    /// Whether all of its tasks have ended.
    pub fn has_ended(&self) -> bool {
        self.tasks.is_empty()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.cancel();
        self.end.cancel();
    }
}

/// As addresses are written.
const fn transport(socket: &Socket) -> &'static str {
    match socket {
        Socket::Udp(..) => "udp",
        Socket::Unixgram(_) => "unixgram",
        Socket::Tcp(_) => "tcp",
        Socket::Unix(_) => "unix",
    }
}

fn start(context: &Context, bound: Bound) -> io::Result<()> {
    match (bound.socket, context.config.protocol) {
        (Socket::Udp(socket, lost), Protocol::Statsd) => {
            let sock = datagram::Datagrams::udp(socket, lost)?;
            context.run(datagram::run(sock, context.clone()));
        }
        (Socket::Unixgram(socket), Protocol::Statsd) => {
            let sock = datagram::Datagrams::unix(socket)?;
            context.run(datagram::run(sock, context.clone()));
        }
        (socket @ (Socket::Tcp(_) | Socket::Unix(_)), _) => {
            if let Some(acceptor) = Acceptor::new(socket)? {
                context.run(door::run(acceptor, bound.handed_in, context.clone()));
            }
        }
        (Socket::Udp(..) | Socket::Unixgram(_), protocol) => {
            let text = format!("{} is not spoken in datagrams", protocol.name());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
