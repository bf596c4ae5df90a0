//! The books balance: at every quiet moment, after reloads and at a stop, each point that came in
//! is named once, and the sums are those of what was sent, with good and bad input of every
//! protocol and backends that are well, dead, silent and unwilling all at once.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::net::SocketAddr;

use common::{Answer, FakeHttp, Gateway, UdpSink, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

#[tokio::test]
async fn the_books_balance_under_faults_over_reloads_and_at_a_stop() {
    let peers = Peers::start().await;
    let mut gateway = Gateway::start(&peers.config("1s", true)).await;
    let mut rounds = Rounds::default();

    for relayed in [true, true, false, true] {
        rounds.all += 1;
        rounds.relayed += u64::from(relayed);
        let flush = if relayed { "1s" } else { "2s" };
        gateway.reload(&peers.config(flush, relayed)).await.expect_success();
        send_round(&gateway).await;
        let ledger = quiet(&gateway, &rounds).await;
        check_listeners(&ledger, &rounds);
        check_backends(&ledger, &rounds);
        check_what_arrived(&peers, &ledger, &rounds).await;
    }

    let ledger = gateway.ledger().await;
    let ended = gateway.terminate().await;
    assert_eq!(ended.status.code(), Some(1), "points were lost, and the exit code says so");
    check_farewell(&ended.log, &ledger);
}

#[tokio::test]
async fn a_stop_in_mid_window_delivers_what_is_held() {
    let peers = Peers::start().await;
    let config = peers.config("1h", true).replace(UNWELL, "");
    let mut gateway = Gateway::start(&config).await;
    send_round(&gateway).await;
    let rounds = Rounds { all: 1, relayed: 1 };
    eventually("all has come in", async || received(&gateway.ledger().await) == rounds.all * GOOD)
        .await;
    let ended = gateway.terminate().await;
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let rows = rows_of(&peers.well);
    assert_eq!(counted(&rows), COUNTED);
    let said = farewell(&ended.log, "well");
    assert_eq!(
        (&said["message"], said["delivered"].as_u64()),
        (&json!("drained"), Some(rows.len() as u64))
    );
    // The kernel may hold the last datagrams for a moment longer than the gateway lives.
    eventually("the relay has all", async || peers.relay.lines().len() as u64 == HANDED).await;
}

/// What stands behind the backends.
struct Peers {
    well: FakeHttp,
    silent: FakeHttp,
    unwilling: FakeHttp,
    relay: UdpSink,
    /// Nobody listens there.
    dead: SocketAddr,
}

#[derive(Default)]
struct Rounds {
    all: u64,
    /// Those in which the relay was a backend.
    relayed: u64,
}

impl Peers {
    async fn start() -> Peers {
        let gone = FakeHttp::start([]).await;
        Peers {
            well: FakeHttp::start([]).await,
            silent: FakeHttp::judging(|_| Answer::hang()).await,
            unwilling: FakeHttp::judging(|_| Answer::status(400).body("no")).await,
            relay: UdpSink::start().await,
            dead: gone.address(),
        }
    }

    fn config(&self, flush: &str, relayed: bool) -> String {
        let database = |name: &str, url: &str| {
            format!(
                "[backends.{name}]\nkind = \"influxdb\"\nurl = \"{url}\"\ndatabase = \"d\"\n\
                 flush = \"{flush}\"\nexpire = {{ gauge = \"0s\" }}\ntimeout = \"500ms\"\n\
                 retry = {{ first = \"50ms\", max = \"200ms\" }}\nspool = false\n"
            )
        };
        let backends = [
            database("well", &self.well.url()),
            database("silent", &self.silent.url()),
            database("unwilling", &self.unwilling.url()),
            database("dead", &format!("http://{}", self.dead)),
            format!(
                "[backends.relay]\nkind = \"statsd\"\naddress = \"udp://{}\"\n",
                self.relay.address()
            ),
        ];
        let relay = if relayed { ", \"relay\"" } else { "" };
        format!(
            r#"
            grace = "1s"
            [admin]
            bind = "127.0.0.1:0"
            [listeners.statsd]
            protocol = "statsd"
            bind = ["udp://127.0.0.1:0", "tcp://127.0.0.1:0"]
            [listeners.tsdb]
            protocol = "opentsdb"
            bind = ["tcp://127.0.0.1:0"]
            [listeners.api]
            protocol = "http"
            bind = ["tcp://127.0.0.1:0"]
            {}
            [[routes]]
            name = "to nobody"
            match = {{ name = "void*" }}
            to = []
            [[routes]]
            name = "to all"
            match = {{ name = "ok*" }}
            to = [{UNWELL}"well"{relay}]
            "#,
            if relayed { backends.concat() } else { backends[..4].concat() }
        )
    }
}

/// Good and bad input of every protocol; the constants below say how much of each.
async fn send_round(gateway: &Gateway) {
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for n in 0..50 {
        let packet =
            format!("ok.c:1|c\nok.t:{n}|ms|@0.5\nok.c:2|q\nok.c:abc|c\nvoid:1|c\nstray:1|c");
        udp.send_to(packet.as_bytes(), gateway.addr("statsd", "udp")).await.unwrap();
    }
    let lines = "ok.c:1|c\nok.s:a|s\nno value\nok.g:7|g\nvoid:1|g\nstray:1|c\n".repeat(50);
    let mut stream = TcpStream::connect(gateway.addr("statsd", "tcp")).await.unwrap();
    stream.write_all(lines.as_bytes()).await.unwrap();
    drop(stream);

    let puts = (0..50).map(|n| {
        format!("put ok.p 1700000000 {n} h=a\nput ok.p never 1 h=a\nput\nput void 1 1 h=a\nput stray 1 1 h=a\n")
    });
    let mut stream = TcpStream::connect(gateway.addr("tsdb", "tcp")).await.unwrap();
    stream.write_all((puts.collect::<String>() + "exit\n").as_bytes()).await.unwrap();
    // The answers are errors; the end of them is the end of the puts.
    stream.read_to_end(&mut Vec::new()).await.unwrap();

    let item = |name: &str, value: Value| json!({"metric": name, "timestamp": 1, "value": value, "tags": {"h": "a"}});
    let items = json!([
        item("ok.q", json!(1)),
        item("ok.q", json!("x")),
        item("void", json!(1)),
        item("stray", json!(1))
    ]);
    assert_eq!(gateway.http("tsdb").post("/api/put", items.to_string()).await.status, 400);
    let items = json!([
        {"name": "ok.j", "time": 1, "value": 1}, {"name": "ok.c", "type": "counter", "value": 1},
        {"value": 1}, {"name": "void", "value": 1}, {"name": "stray", "value": 1},
    ]);
    assert_eq!(gateway.http("api").post("/v1/points", items.to_string()).await.status, 400);
    assert_eq!(gateway.http("api").post("/v1/points", "{not json").await.status, 400);
    assert_eq!(gateway.http("api").get("/v1/nothing").await.status, 404);
}

/// The ledger once all has come in and nothing is on its way inside.
async fn quiet(gateway: &Gateway, rounds: &Rounds) -> Value {
    eventually("all has come in and windows are closed", async || {
        let ledger = gateway.ledger().await;
        let held = |name: &str, place: &str| ledger["backends"][name]["held"][place] != 0;
        let moving =
            |name: &str| ["inbox", "windows", "open"].iter().any(|place| held(name, place));
        let is_quiet = received(&ledger) == rounds.all * GOOD
            && NAMES.iter().all(|name| ledger["backends"][*name]["balanced"] == true)
            && !NAMES.iter().any(|name| moving(name))
            && !["well", "unwilling", "relay"].iter().any(|name| held(name, "queue"));
        is_quiet.then_some(ledger)
    })
    .await
}

fn received(ledger: &Value) -> u64 {
    let listeners = ledger["listeners"].as_object().unwrap().values();
    listeners.map(|book| book["received"].as_u64().unwrap()).sum()
}

fn check_listeners(ledger: &Value, rounds: &Rounds) {
    for (name, routed, unmatched, rejected) in LISTENERS {
        let book = &ledger["listeners"][name];
        let sums = [&book["received"], &book["routed"], &book["unmatched"], &book["denied"]];
        let expected =
            [routed + unmatched, routed, unmatched, 0].map(|sum| json!(sum * rounds.all));
        assert_eq!(sums, expected.each_ref(), "{name}: {book}");
        assert_eq!(sum(&book["rejected"]), rejected * rounds.all, "{name}: {book}");
        assert_eq!(book["balanced"], true, "{name}: {book}");
    }
    assert_eq!(ledger["routes"]["to all"], HANDED * rounds.all);
}

fn check_backends(ledger: &Value, rounds: &Rounds) {
    for name in NAMES {
        let book = &ledger["backends"][name];
        let number = |key: &str| book[key].as_u64().unwrap();
        let rounds = if name == "relay" { rounds.relayed } else { rounds.all };
        assert_eq!(number("handed"), HANDED * rounds, "{name}: {book}");
        assert_eq!(book["balanced"], true, "{name}: {book}");
        let left = number("handed") + number("folded_rows") - number("folded_points");
        let (dropped, held) = (sum(&book["dropped"]), book["held"]["total"].as_u64().unwrap());
        let fate = [number("delivered"), dropped, held];
        let expected = match name {
            "well" | "relay" => [left, 0, 0],
            "unwilling" => [0, left, 0],
            _ => [0, 0, left],
        };
        assert_eq!(fate, expected, "{name}: {book}");
    }
}

/// What the peers have agrees with the books, and with what was sent.
async fn check_what_arrived(peers: &Peers, ledger: &Value, rounds: &Rounds) {
    let rows = rows_of(&peers.well);
    assert_eq!(json!(rows.len()), ledger["backends"]["well"]["delivered"]);
    assert_eq!(counted(&rows), COUNTED * rounds.all);
    let readings = rows.iter().filter(|row| row.starts_with("ok.p,")).count();
    assert_eq!(readings as u64, 50 * rounds.all);
    eventually("the relay has all", async || {
        peers.relay.lines().len() as u64 == HANDED * rounds.relayed
    })
    .await;
}

/// The last lines of the log say what the ledger says, and what was held is lost.
fn check_farewell(log: &str, ledger: &Value) {
    for name in NAMES {
        let (said, book) = (farewell(log, name), &ledger["backends"][name]);
        assert_eq!(said["delivered"], book["delivered"], "{name}: {said}");
        match name {
            "dead" | "silent" => assert_eq!(said["lost"], book["held"]["total"], "{name}: {said}"),
            _ => assert_eq!(said["message"], "drained", "{name}: {said}"),
        }
    }
}

/// What the log says of a backend in the end.
fn farewell(log: &str, backend: &str) -> Value {
    let lines = log.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut lines = lines.take_while(|line| line["message"] != "stopping");
    lines.find(|line| line["backend"] == backend && line.get("delivered").is_some()).unwrap()
}

fn rows_of(server: &FakeHttp) -> Vec<String> {
    let requests = server.received();
    requests.iter().flat_map(|request| request.body.lines().map(str::to_owned)).collect()
}

/// The sum of a counter over its windows.
fn counted(rows: &[String]) -> u64 {
    let counts = rows.iter().filter_map(|row| row.strip_prefix("ok.c count="));
    counts.map(|rest| rest.split_once(',').unwrap().0.parse::<u64>().unwrap()).sum()
}

fn sum(reasons: &Value) -> u64 {
    reasons.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// As a route names those that take nothing.
const UNWELL: &str = r#""dead", "silent", "unwilling", "#;

const NAMES: [&str; 5] = ["well", "dead", "silent", "unwilling", "relay"];

/// What a round is: the listener, points that a route takes, points that none takes, refusals.
const LISTENERS: [(&str, u64, u64, u64); 3] = [
    // 50 datagrams and 50 times the lines of the stream.
    ("statsd", 50 * 3 + 50 * 4, 50 + 50, 50 * 2 + 50),
    // 50 times the lines, and the items of the body.
    ("tsdb", 50 * 2 + 2, 50 + 1, 50 * 2 + 1),
    // The items of the body, one that is no JSON, and a path that is not there.
    ("api", 3, 1, 1 + 1 + 1),
];

/// Points that come in.
const GOOD: u64 = 350 + 100 + 102 + 51 + 3 + 1;
/// Those of the name `ok…`: of the datagrams, the stream, the puts and the two bodies.
const HANDED: u64 = 50 * 2 + 50 * 3 + 50 + 1 + 2;
/// What the counter `ok.c` counts.
const COUNTED: u64 = 50 + 50 + 1;
