//! An upgrade under load: a million datagrams across ten restarts, on sockets that a service
//! manager keeps, and every one of them is in a sum.
//!
//! The senders go on while one process ends and the next one starts; they wait only when the kernel
//! has no more room, so that the reason for a datagram that is missing can only be the gateway. The
//! store is the judge: it holds one row for each series and window, whoever wrote it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
// How many were dropped, and how long it took, is worth a line.
#![allow(clippy::print_stdout)]

mod common;

use std::env;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{Ended, Manager, Process, eventually_within, in_kernel};
use rusqlite::Connection;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_lose_no_datagram_and_no_count() {
    let each = datagrams() / 2;
    let began = Instant::now();
    let manager = Manager::new();
    let config = manager.config_to("kind = 'store'\nflush = '2s'");
    let store = manager.file("data").join("store.db");
    let mut process = manager.start(&config).await;
    let senders = [Sender::udp(&manager, each), Sender::gram(&manager, each)];
    for restart in 1..=RESTARTS {
        let due = 2 * each * restart / (RESTARTS + 1);
        eventually_within(PATIENCE, "it is time for a restart", async || {
            senders.iter().map(Sender::sent).sum::<u64>() >= due
        })
        .await;
        stop(&mut process).await;
        process = manager.start(&config).await;
    }
    senders.into_iter().for_each(|sender| sender.thread.join().unwrap());
    // Each socket gives in order, so what was sent before these is in.
    eventually_within(PATIENCE, "the last ones have come", async || {
        ["end.udp", "end.gram"].iter().all(|name| latest(&store, name).is_some())
    })
    .await;
    stop(&mut process).await;

    let dropped = manager.dropped() as u64;
    let took = began.elapsed();
    println!("{} datagrams, {RESTARTS} restarts, {dropped} dropped, {took:?}", 2 * each);
    for (name, sent) in [("udp", each - dropped), ("gram", each)] {
        let counts = column(&store, name, "count");
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<f64>(), sent as f64, "{name}");
        assert!(counts.iter().all(|(time, _)| time % WINDOW == 0), "one row a window: {counts:?}");
        assert_eq!(latest(&store, &format!("depth.{name}")), Some(sent as f64), "{name}");
    }
}

struct Sender {
    sent: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Sender {
    /// Waits before a burst until the socket has room for it.
    // It hopes for nothing: it looks again and again.
    #[allow(clippy::disallowed_methods)]
    fn udp(manager: &Manager, count: u64) -> Sender {
        let (client, to) = (manager.client.try_clone().unwrap(), manager.udp_address());
        let has_room = move || in_kernel(to).is_some_and(|(waiting, _)| waiting < ROOM);
        Sender::start("udp", count, move |number, datagram| {
            while number % BURST == 0 && !has_room() {
                thread::sleep(PAUSE);
            }
            client.send_to(datagram, to).map(drop)
        })
    }

    /// Waits in the kernel while nobody reads.
    fn gram(manager: &Manager, count: u64) -> Sender {
        let client = UnixDatagram::unbound().unwrap();
        client.connect(manager.file("gram")).unwrap();
        Sender::start("gram", count, move |_, datagram| client.send(datagram).map(drop))
    }

    fn start(
        name: &'static str,
        count: u64,
        mut send: impl FnMut(u64, &[u8]) -> io::Result<()> + Send + 'static,
    ) -> Sender {
        let sent = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&sent);
        let thread = thread::spawn(move || {
            let datagram = format!("{name}:1|c\ndepth.{name}:+1|g");
            for number in 0..count {
                send(number, datagram.as_bytes()).unwrap();
                told.store(number + 1, Relaxed);
            }
            send(count, format!("end.{name}:1|g").as_bytes()).unwrap();
        });
        Sender { sent, thread }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }
}

async fn stop(process: &mut Process) {
    let Ended { status, log } = process.daemon.terminate().await;
    assert!(status.success(), "{log}");
}

/// The last value of a gauge.
fn latest(store: &Path, name: &str) -> Option<f64> {
    column(store, name, "value").last().map(|(_, value)| *value)
}

/// A field of all rows of a name, with their times and in their order.
fn column(store: &Path, name: &str, field: &str) -> Vec<(i64, f64)> {
    let db = Connection::open(store).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    let select = "SELECT time, fields ->> ?2 FROM points JOIN series ON series.id = series
        WHERE name = ?1 ORDER BY time";
    // The first process may be about to make the tables.
    let Ok(mut select) = db.prepare(select) else { return Vec::new() };
    let rows = select.query_map((name, format!("$.{field}")), |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

fn datagrams() -> u64 {
    env::var("POINTSMAN_UPGRADE_DATAGRAMS").map_or(DATAGRAMS, |count| count.parse().unwrap())
}

/// `POINTSMAN_UPGRADE_DATAGRAMS` says another number.
const DATAGRAMS: u64 = 1_000_000;
const RESTARTS: u64 = 10;
const WINDOW: i64 = 2_000_000_000;

/// Datagrams between two looks at the socket, and the bytes that may wait there before one. The
/// kernel counts some 800 for each, and the smallest buffer that it gives has 200 KiB.
const BURST: u64 = 50;
const ROOM: usize = 100 << 10;
const PAUSE: Duration = Duration::from_micros(200);

/// The rest of the world may keep the machine busy.
const PATIENCE: Duration = Duration::from_secs(600);
