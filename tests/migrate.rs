//! The product's story: one set of clients that never stops sending, and the three files of
//! `config/migrate/` put in force by a reload each. The old statsd server has all that was sent
//! until the third, the new InfluxDB all from the second on, and no point is lost on the way.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use cadence::{Counted, StatsdClient, UdpMetricSink};
use common::{Gateway, Influxd, StatsdJs, StatsdOptions, eventually};
use influxdb::{Client, ReadQuery};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_while_the_points_move_from_statsd_to_influxdb() {
    let statsd = StatsdJs::start(StatsdOptions::default()).await;
    let influxd = Influxd::start_guarded().await;
    let user = format!("CREATE USER pointsman WITH PASSWORD '{PASSWORD}' WITH ALL PRIVILEGES");
    Client::new(influxd.url(), "").query(ReadQuery::new(user)).await.unwrap();

    let step = |file: &str| shipped(file, statsd.address(), &influxd);
    let mut gateway = Gateway::start(&step("1_statsd.toml")).await;
    let clients = Clients::start(&gateway);
    taken(&gateway, "as before", &clients).await;
    gateway.reload(&step("2_both.toml")).await.expect_success();
    taken(&gateway, "old and new", &clients).await;
    gateway.reload(&step("3_influxdb.toml")).await.expect_success();
    taken(&gateway, "new", &clients).await;
    let sent = clients.stop();

    let total = sent.counts + sent.puts + sent.posts;
    let routes = eventually("all that was sent has come in", async || {
        let ledger = gateway.ledger().await;
        let count = |route: &str| ledger["routes"][route].as_u64().unwrap();
        let routes = [count("as before"), count("old and new"), count("new")];
        (routes.iter().sum::<u64>() == total).then_some(routes)
    })
    .await;
    let ended = gateway.terminate().await;
    assert!(ended.status.success(), "{}", ended.log);

    let old = Seen::by_statsd(statsd, routes[0] + routes[1]).await;
    let new = Seen::by_influxdb(&influxd).await;
    assert_eq!(old.points(), routes[0] + routes[1], "statsd has all of steps 1 and 2");
    assert_eq!(new.points(), routes[1] + routes[2], "InfluxDB has all of steps 2 and 3");
    check_moved("puts", &old.puts, &new.puts, sent.puts);
    check_moved("posts", &old.posts, &new.posts, sent.posts);
    let both = routes[1] - shared(&old.puts, &new.puts) - shared(&old.posts, &new.posts);
    assert_eq!(old.counts + new.counts - both, sent.counts);
}

/// The numbered points of one client, who sends in order: the old server has the first of them,
/// the new one the last, and each of them is somewhere.
fn check_moved(client: &str, old: &BTreeSet<u64>, new: &BTreeSet<u64>, sent: u64) {
    let union: BTreeSet<_> = old.union(new).copied().collect();
    assert_eq!(union, (0..sent).collect(), "{client}: none is lost, none is made up");
    assert!(old.iter().copied().eq(0..old.len() as u64), "{client}: the old has the first");
    assert!(
        new.iter().copied().eq(sent - new.len() as u64..sent),
        "{client}: the new has the last"
    );
    assert!(shared(old, new) > 0, "{client}: both had some");
    assert!((old.len() as u64) < sent && (new.len() as u64) < sent, "{client}: it has moved");
}

fn shared(old: &BTreeSet<u64>, new: &BTreeSet<u64>) -> u64 {
    old.intersection(new).count() as u64
}

/// Waits until a route has taken a good number of points of each client.
async fn taken(gateway: &Gateway, route: &str, clients: &Clients) {
    let before = clients.sent();
    eventually(route, async || {
        let now = clients.sent();
        let enough = now.counts >= before.counts + 100
            && now.puts >= before.puts + 100
            && now.posts >= before.posts + 5;
        enough && gateway.ledger().await["routes"][route].as_u64() > Some(200)
    })
    .await;
}

/// A file of `config/migrate/` with nothing changed but addresses, ports, and who writes to
/// InfluxDB.
fn shipped(file: &str, statsd: SocketAddr, influxd: &Influxd) -> String {
    let path = format!("{}/config/migrate/{file}", env!("CARGO_MANIFEST_DIR"));
    let mut text = std::fs::read_to_string(path).unwrap();
    let password = format!("password = \"{PASSWORD}\"");
    for (theirs, ours) in [
        ("0.0.0.0:8125", "127.0.0.1:0"),
        ("0.0.0.0:4242", "127.0.0.1:0"),
        ("0.0.0.0:8080", "127.0.0.1:0"),
        ("127.0.0.1:9102", "127.0.0.1:0"),
        ("statsd.internal:8125", &statsd.to_string()),
        ("http://influx.internal:8086", &influxd.url()),
        ("#username", "username"),
        ("#password_file = \"/etc/pointsman/influx-password\"", &password),
    ] {
        text = text.replace(theirs, ours);
    }
    assert!(!text.contains("internal") && !text.contains("0.0.0.0"), "{text}");
    text
}

/// Three clients that send until they are stopped, and count.
struct Clients {
    stop: Arc<AtomicBool>,
    tallies: Arc<[AtomicU64; 3]>,
    threads: Vec<JoinHandle<()>>,
}

/// How many points each client has sent.
struct Sent {
    counts: u64,
    puts: u64,
    posts: u64,
}

impl Clients {
    fn start(gateway: &Gateway) -> Clients {
        let (stop, tallies) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let mut clients = Clients { stop, tallies, threads: Vec::new() };
        let statsd = statsd_client(gateway.addr("statsd", "udp"));
        clients.spawn(0, move |_| statsd.count("migrate.hits", 1).map(drop).unwrap());
        let mut puts = netcat(gateway.addr("tsdb", "tcp"));
        clients
            .spawn(1, move |n| writeln!(puts, "put migrate.put 1700000000 {n} client=nc").unwrap());
        let url = format!("http://{}/v1/points", gateway.addr("api", "tcp"));
        clients.spawn(2, move |n| curl(&url, n));
        clients
    }

    /// Sends one point after the other, numbered from 0.
    #[allow(clippy::disallowed_methods)] // A thread of its own keeps a pace; it hopes for nothing.
    fn spawn(&mut self, client: usize, mut send: impl FnMut(u64) + Send + 'static) {
        let (stop, tallies) = (Arc::clone(&self.stop), Arc::clone(&self.tallies));
        self.threads.push(std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                send(tallies[client].load(Relaxed));
                tallies[client].fetch_add(1, Relaxed);
                // A pace that the socket buffers of a busy machine stand.
                std::thread::sleep(Duration::from_millis(2));
            }
        }));
    }

    fn sent(&self) -> Sent {
        let [counts, puts, posts] = self.tallies.each_ref().map(|tally| tally.load(Relaxed));
        Sent { counts, puts, posts }
    }

    fn stop(mut self) -> Sent {
        self.stop.store(true, Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        self.sent()
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // A test that fails must not leave them sending.
        self.stop.store(true, Relaxed);
    }
}

fn statsd_client(to: SocketAddr) -> StatsdClient {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    StatsdClient::from_sink("", UdpMetricSink::from(to, socket).unwrap())
}

/// One connection, kept over all reloads; it ends when what is written to it does.
fn netcat(to: SocketAddr) -> ChildStdin {
    let mut command = Command::new("nc");
    command.args(["-N", &to.ip().to_string(), &to.port().to_string()]);
    command.stdin(Stdio::piped()).spawn().unwrap().stdin.unwrap()
}

/// A process and a connection for each point, as scripts do it.
fn curl(url: &str, n: u64) {
    let point = json!({"name": "migrate.post", "value": n}).to_string();
    let mut command = Command::new("curl");
    command.args(["-sS", "--fail", "--noproxy", "*", "-d", &point, url]);
    assert!(command.status().unwrap().success(), "point {n}");
}

/// What a server has of each client.
struct Seen {
    counts: u64,
    puts: BTreeSet<u64>,
    posts: BTreeSet<u64>,
}

impl Seen {
    fn points(&self) -> u64 {
        self.counts + (self.puts.len() + self.posts.len()) as u64
    }

    async fn by_statsd(statsd: StatsdJs, points: u64) -> Seen {
        let lines = || -> Vec<String> {
            let packets = statsd.packets();
            packets.iter().flat_map(|packet| packet.lines().map(str::to_owned)).collect()
        };
        eventually("statsd has read what was relayed", async || lines().len() as u64 >= points)
            .await;
        let lines = lines();
        let gauges = |name: &str| {
            let values = lines.iter().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values.map(|rest| rest.split('|').next().unwrap().parse().unwrap()).collect()
        };
        let (puts, posts) = (gauges("migrate.put"), gauges("migrate.post"));
        let flush = statsd.finish().await;
        Seen { counts: flush["counters"]["migrate.hits"].as_u64().unwrap(), puts, posts }
    }

    async fn by_influxdb(influxd: &Influxd) -> Seen {
        let client = Client::new(influxd.url(), "metrics").with_auth("pointsman", PASSWORD);
        let column = async |select: &str| -> Vec<u64> {
            let answer = client.query(ReadQuery::new(select)).await.unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            let rows = answer["results"][0]["series"][0]["values"].as_array().unwrap().clone();
            rows.iter().map(|row| row[1].as_u64().unwrap()).collect()
        };
        Seen {
            counts: column("SELECT count FROM \"migrate.hits\"").await.iter().sum(),
            puts: column("SELECT value FROM \"migrate.put\"").await.into_iter().collect(),
            posts: column("SELECT value FROM \"migrate.post\"").await.into_iter().collect(),
        }
    }
}

const PASSWORD: &str = "not for the log";
