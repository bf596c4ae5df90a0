//! A listener under test and the ways to talk to it.

use crate::backend::{Outcome, Payload, Ship, Shipping};
use crate::books::ListenerBook;
use crate::clock::Clock;
use crate::ingest::keys::Keyring;
use crate::ingest::{Config, Keys, Listener, spawn};
use crate::lane::{self, Lane, Running, Settings, WhenFull};
use crate::net::Sockets;
use crate::origin::Origin;
use crate::route::{self, Router, Rules, Table, Tables};
use protocols::{Encode, Point, Skip, UnixNanos};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};

/// 2023-11-14T22:13:20Z, when every test happens.
pub(crate) const NOW: i64 = 1_700_000_000;

pub(crate) struct Rig {
    pub(crate) addresses: Vec<String>,
    pub(crate) book: Arc<ListenerBook>,
    pub(crate) listener: Option<Listener>,
    pub(crate) sockets: Sockets,
    pub(crate) router: Router,
    pub(crate) keys: Arc<Keys>,
    backend: Backend,
}

/// The section of a listener: `more` over what every listener needs.
pub(crate) fn config(protocol: &str, bind: &str, more: Value) -> Config {
    let mut section = json!({ "protocol": protocol, "bind": [bind] });
    for (key, value) in more.as_object().expect("an object") {
        section[key] = value.clone();
    }
    serde_json::from_value(section).expect("a section")
}

/// A place for keys that is made when the first one comes, and goes at the end.
pub(crate) fn keys(clock: Clock) -> Arc<Keys> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let admit = move || dir.path().is_dir().then_some(()).ok_or_else(|| "gone".to_owned());
    Keys::new(&path, Box::new(admit), clock)
}

impl Rig {
    pub(crate) fn start(protocol: &str, bind: &str, more: Value) -> Self {
        let config = config(protocol, bind, more);
        let mut sockets = Sockets::new();
        let bound = sockets.bind_all(&config.wanted("under_test").unwrap()).unwrap();
        let addresses = bound.iter().map(|bound| bound.address.clone()).collect();
        let book = Arc::<ListenerBook>::default();
        let clock = Clock::starting_at(UnixNanos::from_secs(NOW));
        let backend = Backend::new(clock);
        let origin = Origin::new("under_test", config.protocol);
        let router = Router::new(backend.tables.clone(), origin, Arc::clone(&book), clock);
        let keys = keys(clock);
        let (to, counting) = (router.clone(), Arc::clone(&book));
        let listener = spawn("under_test", &config, bound, to, counting, clock, &keys).unwrap();
        Self { addresses, book, listener: Some(listener), sockets, router, keys, backend }
    }

    /// The listener's keys, as its tasks have them.
    pub(crate) fn ring(&self) -> Keyring {
        let config = config("http", "tcp://127.0.0.1:0", json!({}));
        self.keys.of("under_test".into(), &config, Arc::clone(&self.book))
    }

    /// From now on the backend is full and wants points refused, or not.
    pub(crate) fn set_refusing(&self, refusing: bool) {
        self.backend.set_refusing(refusing);
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

    /// Lets the listener finish, and closes its sockets.
    pub(crate) async fn stop(&mut self) {
        let listener = self.listener.take().expect("a running listener");
        timeout(PATIENCE, listener.end()).await.expect("an end");
        self.sockets = Sockets::new();
    }

    /// Lets everything finish; answers what the backend was given.
    pub(crate) async fn finish(mut self) -> Vec<String> {
        if self.listener.is_some() {
            self.stop().await;
        }
        let Self { router, backend, .. } = self;
        drop(router);
        timeout(PATIENCE, backend.drained()).await.expect("an end")
    }

    pub(crate) fn rejected(&self) -> Vec<(&'static str, u64)> {
        self.book.rejected.counts()
    }
}

/// A backend that keeps what it is given, one line for each point, and one that is full.
struct Backend {
    tables: Tables,
    lanes: [Lane; 2],
    running: Vec<Running>,
    kept: Arc<Mutex<Vec<u8>>>,
}

impl Backend {
    fn new(clock: Clock) -> Self {
        let kept = Arc::<Mutex<Vec<u8>>>::default();
        let start = |when_full, memory| {
            let config = lane::Config { when_full, ..lane::Config::default() };
            let settings =
                Settings { stamp: false, memory, ..Settings::new("kept", "stdout", &config) };
            let state = lane::State::new(Arc::default(), settings.shards);
            let ship = Box::new(Keep(Arc::clone(&kept)));
            lane::spawn(settings, state, Box::new(Brief), ship, clock)
        };
        let (taking, first) = start(WhenFull::DropNewest, 1 << 30);
        let (full, second) = start(WhenFull::Refuse, 0);
        let (lanes, running) = ([taking, full], vec![first, second]);
        let backend = Self { tables: Tables::default(), lanes, running, kept };
        backend.set_refusing(false);
        backend
    }

    fn set_refusing(&self, refusing: bool) {
        let all: route::Config = serde_json::from_value(json!({ "to": ["kept"] })).unwrap();
        let rules = Rules::compile(&[all], &[("kept".to_owned(), 0)].into()).unwrap();
        let lane = self.lanes[usize::from(refusing)].clone();
        self.tables.store(Arc::new(Table { rules, lanes: vec![lane], ..Table::default() }));
    }

    async fn drained(self) -> Vec<String> {
        let Self { tables, lanes, running, kept } = self;
        tables.store(Arc::default());
        drop(lanes);
        for mut lane in running {
            lane.drained().await;
        }
        let kept = kept.lock().unwrap();
        str::from_utf8(&kept).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Keeps what it is given.
pub(crate) struct Keep(pub(crate) Arc<Mutex<Vec<u8>>>);

impl Ship for Keep {
    fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a> {
        self.0.lock().unwrap().extend_from_slice(&payload.body);
        Box::pin(std::future::ready(Outcome::Delivered))
    }
}

/// Writes a point as [`brief`] does.
pub(crate) struct Brief;

impl Encode for Brief {
    fn encode(&mut self, point: &Point<'_>, out: &mut Vec<u8>) -> Result<(), Skip> {
        out.extend_from_slice(brief(point).as_bytes());
        out.push(b'\n');
        Ok(())
    }
}

/// A point on one line: `name{tag=value}=measure@seconds`.
fn brief(point: &Point<'_>) -> String {
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
    format!("{}{tags}={measure}{time}", point.name.escape_debug())
}

/// No step of a test takes as long, on the slowest of machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
