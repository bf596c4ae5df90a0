//! A disk that is full, or takes no writes at all, is a full queue: what it cannot hold is counted
//! to the last point, the other backends have everything, and when there is room again, or the
//! backend is back, all goes on by itself.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::net::SocketAddr;
use std::ops::Range;

use common::{FakeHttp, Gateway, Tmpfs, eventually, in_own_network, pointsman};
use serde_json::Value;

/// 40 MiB into a limit of 64 MiB on a disk of 16 MiB, half of which somebody else takes and gives
/// back.
#[test]
fn buf_enospc_is_a_full_queue() {
    in_own_network(|| async {
        let mut trial = Trial::start(LARGE).await;
        let Some(_disk) = trial.mount("", "16m").await else { return };
        assert!(trial.gateway.log().contains("beyond the free space"), "{}", trial.gateway.log());
        let ballast = trial.gateway.data_dir().join("ballast");
        fs::write(&ballast, vec![1; 8 << 20]).unwrap();

        for part in 0..5 {
            trial.send(part * PART..(part + 1) * PART).await;
            let book = trial.quiet().await;
            assert!(part < 1 || lost(&book) > 0, "{book}");
        }
        assert!(trial.gateway.log().contains("the disk does not do"), "{}", trial.gateway.log());
        let (before, on_disk) = (trial.quiet().await, trial.spooled().await);

        fs::remove_file(&ballast).unwrap();
        eventually("the disk takes what waits", async || trial.spooled().await > on_disk).await;
        trial.send(5 * PART..5 * PART + PART / 4).await;
        let book = trial.quiet().await;
        assert_eq!(lost(&book), lost(&before), "there is room again");
        assert!(trial.gateway.log().contains("the disk works again"), "{}", trial.gateway.log());

        trial.recover().await;
    });
}

/// The same, and the stop comes while the disk is full: what it holds is there afterwards.
#[test]
fn buf_enospc_survives_a_restart() {
    in_own_network(|| async {
        let mut trial = Trial::start(SMALL).await;
        let Some(_disk) = trial.mount("", "8m").await else { return };
        trial.send(0..PART).await;
        let before = trial.quiet().await;
        assert!(lost(&before) > 0, "{before}");
        let ended = trial.gateway.terminate().await;
        trial.gateway.restart().await;
        let book = trial.book("b").await;
        let recovered = book["recovered"].as_u64().unwrap();
        let held = before["held"]["total"].as_u64().unwrap();
        let told = ended.log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let told: u64 = told.filter_map(|line| line["lost"].as_u64()).sum();
        assert_eq!(recovered + told, held, "what did not fit is told at the stop: {}", ended.log);
        assert!(recovered > 0 && book["balanced"] == true, "{book}");

        let b = FakeHttp::start_at(trial.b, []).await;
        eventually("it is delivered", async || trial.held().await == 0).await;
        let numbers = numbers(&b);
        assert_eq!(numbers.len() as u64, recovered);
        assert!(numbers.is_sorted_by(|a, b| a < b), "in order, none twice");
    });
}

/// As when the kernel has found an error on the disk.
#[test]
fn a_disk_that_may_not_be_written_is_a_full_queue() {
    in_own_network(|| async {
        let mut trial = Trial::start(SMALL).await;
        let Some(disk) = trial.mount("spool", "16m").await else { return };
        disk.forbid_writing();
        trial.send(0..10_000).await;
        let book = trial.quiet().await;
        assert!(lost(&book) > 0, "{book}");
        assert_eq!(book["held"]["spool"], 0, "{book}");
        assert!(trial.gateway.log().contains("the disk does not do"), "{}", trial.gateway.log());

        disk.allow_writing();
        eventually("the disk takes what waits", async || trial.spooled().await > 0).await;
        trial.send(10_000..20_000).await;
        assert_eq!(lost(&trial.quiet().await), lost(&book), "there is room");
        trial.recover().await;
    });
}

/// A gateway that could keep nothing, or not empty what it kept, says so and does not start.
#[test]
fn a_data_directory_that_may_not_be_written_is_named() {
    in_own_network(|| async {
        let mut trial = Trial::start(SMALL).await;
        let Some(disk) = trial.mount("", "16m").await else { return };
        trial.send(0..10_000).await;
        let held = trial.quiet().await["held"]["total"].clone();
        trial.gateway.terminate().await;
        disk.forbid_writing();
        let (file, data) = (trial.gateway.config_file(), trial.gateway.data_dir());
        let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
        let refused = pointsman(&["run", "--config", file, "--data-dir", data]);
        assert_eq!(refused.status.code(), Some(1));
        let log = String::from_utf8_lossy(&refused.stderr).into_owned();
        let said = format!("the data directory {data} cannot be used: Read-only file system");
        assert!(log.contains(&said), "{log}");

        disk.allow_writing();
        trial.gateway.restart().await;
        assert_eq!(trial.book("b").await["recovered"], held, "nothing was harmed");
    });
}

/// A gateway with B, which is down, and another backend, which is well.
struct Trial {
    gateway: Gateway,
    b: SocketAddr,
    well: FakeHttp,
    /// Points sent so far.
    sent: u64,
}

impl Trial {
    async fn start(limits: &str) -> Trial {
        let (b, well) = (FakeHttp::start([]).await, FakeHttp::start([]).await);
        let sections =
            [influxdb("b", &b.url(), limits), influxdb("well", &well.url(), "spool = false")];
        let gateway = Gateway::start(&format!("{LISTENERS}{}", sections.concat())).await;
        Trial { gateway, b: b.address(), well, sent: 0 }
    }

    /// Puts the data directory, or a part of it, on a disk of this size.
    async fn mount(&mut self, part: &str, size: &str) -> Option<Tmpfs> {
        self.gateway.terminate().await;
        let disk = Tmpfs::mount(&self.gateway.data_dir().join(part), size);
        self.gateway.restart().await;
        disk
    }

    /// Sends the points that carry these numbers as values and as times, 200 bytes each.
    async fn send(&mut self, numbers: Range<u64>) {
        let api = self.gateway.http("api");
        self.sent += numbers.end - numbers.start;
        let end = numbers.end;
        for first in numbers.step_by(STEP as usize) {
            let points = (first..(first + STEP).min(end)).map(point).collect::<Vec<_>>();
            api.post("/v1/points", format!("[{}]", points.join(","))).await.expect_success();
        }
    }

    /// The book of B when nothing moves: each point sent is held, or counted as dropped.
    async fn quiet(&self) -> Value {
        let sent = self.sent;
        eventually("the other backend has everything", async || {
            self.book("well").await["delivered"] == sent
        })
        .await;
        let book = eventually("nothing is on its way to the queue", async || {
            let book = self.book("b").await;
            let held = &book["held"];
            (book["handed"] == sent && held["inbox"] == 0 && held["open"] == 0).then_some(book)
        })
        .await;
        assert_eq!(lost(&book) + book["held"]["total"].as_u64().unwrap(), sent, "{book}");
        assert_eq!(book["delivered"], 0, "{book}");
        book
    }

    /// B comes back and gets all that was kept: whole, in order, once, and the newest.
    async fn recover(&mut self) {
        let kept = self.held().await;
        let b = FakeHttp::start_at(self.b, []).await;
        eventually("all that was kept is delivered", async || self.held().await == 0).await;
        let (book, at_b) = (self.book("b").await, numbers(&b));
        assert_eq!(book["delivered"], kept, "{book}");
        assert_eq!(kept + lost(&book), self.sent, "{book}");
        assert_eq!(at_b.len() as u64, kept, "none twice");
        assert!(at_b.is_sorted_by(|a, b| a < b), "in order");
        assert_eq!(at_b.last(), Some(&(self.sent - 1)), "the newest were kept");
        assert!(numbers(&self.well).into_iter().eq(0..self.sent), "the other backend has all");
        self.gateway.daemon.assert_alive();
    }

    async fn book(&self, backend: &str) -> Value {
        self.gateway.ledger().await["backends"][backend].take()
    }

    async fn held(&self) -> u64 {
        self.book("b").await["held"]["total"].as_u64().unwrap()
    }

    async fn spooled(&self) -> u64 {
        self.book("b").await["held"]["spool"].as_u64().unwrap()
    }
}

/// Points that B's queue had no room for; nothing else was dropped.
fn lost(book: &Value) -> u64 {
    let lost = book["dropped"].as_object().unwrap();
    assert!(lost.keys().all(|reason| reason == "queue_full"), "{book}");
    lost.get("queue_full").map_or(0, |count| count.as_u64().unwrap())
}

fn point(n: u64) -> String {
    let time = 1_700_000_000 + n;
    format!(r#"{{"name":"n","tags":{{"fill":"{FILL}"}},"time":{time},"value":{n}}}"#)
}

/// The numbers of all the lines that have come, each of which must be whole.
fn numbers(server: &FakeHttp) -> Vec<u64> {
    let number = |line: &str| {
        let rest = line.strip_prefix(&format!("n,fill={FILL} value=")).unwrap();
        let (value, time) = rest.split_once(' ').unwrap();
        let number = value.parse::<f64>().unwrap() as u64;
        assert_eq!(time, format!("{}", (1_700_000_000 + number) * 1_000_000_000));
        number
    };
    let requests = server.received();
    requests.iter().flat_map(|request| request.body.lines().map(number)).collect()
}

fn influxdb(name: &str, url: &str, keys: &str) -> String {
    format!(
        "[backends.{name}]\nkind = 'influxdb'\nurl = '{url}'\ndatabase = 'd'\n\
         aggregate = false\nflush = '100ms'\nretry = {{ first = '20ms', max = '200ms' }}\n{keys}\n"
    )
}

const LARGE: &str = "memory = '1MiB'\nbatch = { bytes = '64KiB' }\nspool = { max_size = '64MiB' }";
const SMALL: &str = "memory = '64KiB'\nbatch = { points = 100, bytes = '16KiB' }";

const LISTENERS: &str = "grace = '1s'\n[admin]\nbind = '127.0.0.1:0'\n\
                         [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n\
                         [[routes]]\nto = ['b', 'well']\n";

/// Makes a line of line protocol 200 bytes long.
const FILL: &str = concat!(
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
);
/// 8 MiB of such lines.
const PART: u64 = 42_000;
/// Points sent at a time.
const STEP: u64 = 2000;
