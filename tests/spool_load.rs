//! The spool at work: killed while it erases, bereft of its files, and at a rate at which a disk
//! that is asked for each point would fall behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::time::Duration;

use common::{Fault, Gateway, Influxd, Proxy, eventually, numbers_at, post_numbers};
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Killed again and again while what was stored is delivered and erased, up to the removal of the
/// file. All was on disk, so nothing may be missing; some may come twice, which a database does
/// not show.
#[tokio::test]
async fn buf_missing_file_after_a_kill_at_any_moment() {
    let mut story = Story::start("").await;
    // With much to do, so that it is killed as it erases; with little, as it removes the file.
    for (points, longest) in [(2000, 150), (600, 75)] {
        for round in 0..KILLS {
            story.store(points).await;
            story.way.switch(Fault::Pass).await;
            // It waits for nothing: this is when the kill comes, at another moment each time.
            sleep(Duration::from_millis(round * 37 % longest)).await;
            story.gateway.kill9();
            story.way.switch(UNAVAILABLE).await;
            story.gateway.restart().await;
            assert!(!story.gateway.log().contains("damaged"), "{}", story.gateway.log());
        }
        story.way.switch(Fault::Pass).await;
        let book = story.drained().await;
        assert_eq!(book["dropped"], json!({}), "{book}");
        assert_eq!(numbers_at(&story.server).await, (0..story.sent).collect());
        eventually("the file is gone", async || !story.file("").exists()).await;
    }
}

/// Any of its files is deleted, or cut off, between a kill and the next start. What is whole is
/// delivered, what is not is counted or not there, and new points are taken as ever.
#[tokio::test]
async fn buf_missing_file_whichever_it_is() {
    let mut story = Story::start("").await;
    let gone: [(&[&str], Harm); 10] = [
        (&["-shm"], Harm::Deleted),
        (&["-wal"], Harm::Deleted),
        (&[""], Harm::Deleted),
        (&["-wal", "-shm"], Harm::Deleted),
        (&["", "-wal"], Harm::Deleted),
        (&["", "-shm"], Harm::Deleted),
        (&["", "-wal", "-shm"], Harm::Deleted),
        (&[""], Harm::CutInHalf),
        (&["-wal"], Harm::CutInHalf),
        (&[""], Harm::CutInHalfAfterAStop),
    ];
    for (parts, harm) in gone {
        let first = story.sent;
        story.store(2000).await;
        match harm {
            Harm::CutInHalfAfterAStop => drop(story.gateway.terminate().await),
            Harm::Deleted | Harm::CutInHalf => story.gateway.kill9(),
        }
        parts.iter().for_each(|part| harm.befall(&story.file(part)));
        story.gateway.restart().await;
        story.way.switch(Fault::Pass).await;
        let second = story.sent;
        story.post(100).await;
        let book = story.drained().await;

        let at_server = numbers_at(&story.server).await;
        let count = |numbers| at_server.range(numbers).count() as u64;
        let lost = book["dropped"]["spool_damaged"].as_u64().unwrap_or(0);
        let recovered = book["recovered"].as_u64().unwrap();
        let what = format!("{parts:?} {harm:?}: {book}");
        assert_eq!(count(first..second), recovered - lost, "{what}");
        assert_eq!(count(second..story.sent), 100, "{what}");
        if parts == ["-shm"] {
            assert_eq!(recovered, 2000, "SQLite makes that file anew: {what}");
        }
        if parts.contains(&"") && matches!(harm, Harm::Deleted) {
            assert_eq!(recovered, 0, "{what}");
        }
        // Of a log of changes from before, half would be an earlier state.
        eventually("the file is gone", async || !story.file("").exists()).await;
    }
}

/// The server itself says that there is no such database, and then that the user is unknown: what
/// is on disk stays there until a person has mended it.
#[tokio::test]
async fn be_missing_db_does_not_empty_the_spool() {
    let mut story = Story::start("").await;
    story.server.query("", "DROP DATABASE d").await;
    let denied = Fault::Answer { status: 401, body: r#"{"error":"authorization failed"}"# };
    for fault in [Fault::Pass, denied] {
        story.way.switch(fault).await;
        story.post(2000).await;
        let asked = story.way.requests();
        eventually("it is asked again", async || story.way.requests() > asked + 3).await;
        assert_eq!(story.stored().await["held"]["spool"], story.sent);
    }
    story.server.create_database("d").await;
    story.way.switch(Fault::Pass).await;
    let book = story.drained().await;
    assert_eq!(book["dropped"], json!({}), "{book}");
    assert_eq!(numbers_at(&story.server).await, (0..story.sent).collect());
    let log = story.gateway.log();
    let complaints: Vec<_> = log.lines().filter(|line| line.contains("takes no points")).collect();
    assert_eq!(complaints.len(), 1, "{log}");
    assert!(complaints[0].contains("404 database not found"), "{log}");
}

#[tokio::test]
async fn buf_throughput_while_the_backend_is_well() {
    let story = Story::start("").await;
    story.way.switch(Fault::Pass).await;
    let received = story.flood().await;
    let book = story.drained().await;
    assert_eq!((&book["delivered"], &book["dropped"]), (&received.into(), &json!({})), "{book}");
}

#[tokio::test]
async fn buf_throughput_while_the_backend_is_away() {
    let story = Story::start("durability = 'power'").await;
    let received = story.flood().await;
    let book = story.stored().await;
    assert_eq!(
        (&book["held"]["spool"], &book["dropped"]),
        (&received.into(), &json!({})),
        "{book}"
    );
    story.way.switch(Fault::Pass).await;
    let book = story.drained().await;
    assert_eq!((&book["delivered"], &book["dropped"]), (&received.into(), &json!({})), "{book}");
}

/// A gateway whose backend `b` is away, with a real server behind it.
struct Story {
    server: Influxd,
    way: Proxy,
    gateway: Gateway,
    sent: u64,
}

impl Story {
    async fn start(keys: &str) -> Story {
        let server = Influxd::start().await;
        server.create_database("d").await;
        let way = Proxy::start(&server.url()).await;
        way.switch(UNAVAILABLE).await;
        let gateway = Gateway::start(&format!("{CONFIG}url = '{}'\n{keys}\n", way.url())).await;
        Story { server, way, gateway, sent: 0 }
    }

    async fn post(&mut self, count: u64) {
        post_numbers(&self.gateway, self.sent..self.sent + count).await;
        self.sent += count;
    }

    /// Posts so many while the backend is away, and waits until they are on disk.
    async fn store(&mut self, count: u64) {
        self.way.switch(UNAVAILABLE).await;
        self.post(count).await;
        self.stored().await;
    }

    /// Waits until all that is held is on disk.
    async fn stored(&self) -> Value {
        eventually("it is on disk", async || {
            let book = self.book().await;
            (book["held"]["total"] != 0 && book["held"]["spool"] == book["held"]["total"])
                .then_some(book)
        })
        .await
    }

    async fn drained(&self) -> Value {
        let book = eventually("all is delivered", async || {
            let book = self.book().await;
            (book["held"]["total"] == 0).then_some(book)
        })
        .await;
        assert_eq!(book["balanced"], true, "{book}");
        book
    }

    async fn book(&self) -> Value {
        self.gateway.ledger().await["backends"]["b"].take()
    }

    /// A file of the spool.
    fn file(&self, part: &str) -> PathBuf {
        self.gateway.data_dir().join(format!("spool/b.db{part}"))
    }

    /// Sends 20000 points a second over UDP; answers how many were received. Each that was not
    /// must be one that the kernel says it dropped, and they must be few: the sender waits for
    /// nobody, and the machine may be busy.
    async fn flood(&self) -> u64 {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let datagram = "load.of.one:0.25|g\n".repeat(IN_A_DATAGRAM as usize);
        let mut pace = interval(Duration::from_millis(1));
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for _ in 0..DATAGRAMS {
            pace.tick().await;
            let to = self.gateway.addr("statsd", "udp");
            socket.send_to(datagram.as_bytes(), to).await.unwrap();
        }
        let (received, dropped) = eventually("every datagram has a fate", async || {
            let ledger = self.gateway.ledger().await;
            let (book, handed) =
                (&ledger["listeners"]["statsd"], &ledger["backends"]["b"]["handed"]);
            let count = |key: &str| book[key].as_u64().unwrap();
            let (received, dropped) = (count("received"), count("kernel_dropped") * IN_A_DATAGRAM);
            let all = received + dropped == DATAGRAMS * IN_A_DATAGRAM && *handed == received;
            all.then_some((received, dropped))
        })
        .await;
        assert!(dropped < received, "{dropped} of {} were dropped", DATAGRAMS * IN_A_DATAGRAM);
        received
    }
}

/// What happens to a file.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Deleted,
    CutInHalf,
    /// A stop moves what is in the log into the file itself.
    CutInHalfAfterAStop,
}

impl Harm {
    fn befall(self, file: &PathBuf) {
        match self {
            Harm::Deleted => fs::remove_file(file).unwrap(),
            Harm::CutInHalf | Harm::CutInHalfAfterAStop => {
                let file = OpenOptions::new().write(true).open(file).unwrap();
                file.set_len(file.metadata().unwrap().len() / 2).unwrap();
            }
        }
    }
}

const UNAVAILABLE: Fault = Fault::Answer { status: 503, body: "not now" };

/// Spread over the time that delivery takes, and beyond.
const KILLS: u64 = 20;

const IN_A_DATAGRAM: u64 = 20;

/// Three seconds of them.
const DATAGRAMS: u64 = 3000;

/// Little memory, so that there is something on disk soon; the section of `b` is still open.
const CONFIG: &str = "grace = '1s'\n[admin]\nbind = '127.0.0.1:0'\n\
                      [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n\
                      [listeners.statsd]\nprotocol = 'statsd'\nbind = ['udp://127.0.0.1:0']\n\
                      [[routes]]\nto = ['b']\n\
                      [backends.b]\nkind = 'influxdb'\ndatabase = 'd'\naggregate = false\n\
                      flush = '100ms'\nretry = { first = '20ms', max = '200ms' }\n\
                      memory = '16KiB'\nbatch = { points = 100, bytes = '4KiB' }\n";
