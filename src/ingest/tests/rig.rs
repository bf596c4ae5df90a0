//! A listener under test and the ways to talk to it.

use crate::books::ListenerBook;
use crate::clock::Clock;
use crate::ingest::{Config, Listener, spawn};
use crate::net::Sockets;
use crate::route::Router;
use protocols::{Point, UnixNanos};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};

/// 2023-11-14T22:13:20Z, when every test happens.
pub(crate) const NOW: i64 = 1_700_000_000;

pub(crate) struct Rig {
    pub(crate) addresses: Vec<String>,
    pub(crate) book: Arc<ListenerBook>,
    pub(crate) router: Router,
    pub(crate) listener: Listener,
    pub(crate) sockets: Sockets,
}

/// The section of a listener: `more` over what every listener needs.
pub(crate) fn config(protocol: &str, bind: &str, more: Value) -> Config {
    let mut section = json!({ "protocol": protocol, "bind": [bind] });
    for (key, value) in more.as_object().expect("an object") {
        section[key] = value.clone();
    }
    serde_json::from_value(section).expect("a section")
}

impl Rig {
    pub(crate) fn start(protocol: &str, bind: &str, more: Value) -> Self {
        let config = config(protocol, bind, more);
        let mut sockets = Sockets::new();
        let bound = sockets.bind_all(&config.wanted("under_test").unwrap()).unwrap();
        let addresses = bound.iter().map(|bound| bound.address.clone()).collect();
        let book = Arc::<ListenerBook>::default();
        let router = Router::capture(Arc::clone(&book));
        let clock = Clock::starting_at(UnixNanos::from_secs(NOW));
        let listener =
            spawn("under_test", &config, bound, router.clone(), Arc::clone(&book), clock).unwrap();
        Self { addresses, book, router, listener, sockets }
    }

    /// `host:port` of the first socket.
    pub(crate) fn address(&self) -> &str {
        self.addresses[0].split_once("://").unwrap().1
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// Sends datagrams from a socket of their own.
    pub(crate) async fn datagrams(&self, datagrams: &[&[u8]]) {
        let sender = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        for datagram in datagrams {
            sender.send_to(datagram, self.address()).await.unwrap();
        }
    }

    /// Writes `bytes`, closes that half, and answers what came back.
    pub(crate) async fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an end").unwrap();
        String::from_utf8(answer).unwrap()
    }

    /// Waits until `condition` holds.
    pub(crate) async fn until(&self, condition: impl Fn(&ListenerBook) -> bool) {
        let held = timeout(PATIENCE, async {
            while !condition(&self.book) {
                sleep(Duration::from_millis(1)).await;
            }
        });
        held.await.unwrap_or_else(|_| panic!("in vain; {:?}", self.book));
    }

    /// Lets the listener finish; answers what the router was given.
    pub(crate) async fn finish(self) -> Vec<String> {
        timeout(PATIENCE, self.listener.stop()).await.expect("an end");
        self.router.seen().iter().map(|point| brief(&point)).collect()
    }

    pub(crate) fn rejected(&self) -> Vec<(&'static str, u64)> {
        self.book.rejected.counts()
    }
}

/// A point on one line: `name{tag=value}=measure@seconds`.
pub(crate) fn brief(point: &Point<'_>) -> String {
    let tags: Vec<_> =
        point.tags.iter().map(|tag| format!("{}={}", tag.key, tag.value_or_true())).collect();
    let tags = if tags.is_empty() { String::new() } else { format!("{{{}}}", tags.join(",")) };
    let time = point.time.map_or(String::new(), |time| {
        let fraction = time.0.rem_euclid(1_000_000_000);
        let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:09}") };
        format!("@{}{fraction}", time.secs())
    });
    use protocols::Measure as M;
    let measure = match point.measure {
        M::Count { delta, rate } => format!("{delta}c/{rate}"),
        M::Gauge(value) => format!("{value}g"),
        M::Timing { ms, rate } => format!("{ms}ms/{rate}"),
        M::Reading(number) => number.as_f64().to_string(),
        M::Set(member) => format!("{member}|s"),
        M::Fields(fields) => format!("{fields:?}"),
        other => format!("{other:?}"),
    };
    format!("{}{tags}={measure}{time}", point.name)
}

/// No step of a test takes as long, on the slowest of machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
