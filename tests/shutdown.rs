//! A stop ends in time, keeps what it promised to clients, and says what it could not deliver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Answer, Ended, FakeHttp, Gateway, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

#[tokio::test]
async fn term_dead_backend_ends_within_its_grace_and_says_what_is_lost() {
    let silent = FakeHttp::start((0..100).map(|_| Answer::hang())).await;
    let healthy = FakeHttp::start([]).await;
    let mut gateway =
        Gateway::start(&config("2s", &[("silent", &silent.url()), ("healthy", &healthy.url())]))
            .await;
    hand_over(&gateway, 5000).await;
    eventually("the silent backend was asked", async || !silent.received().is_empty()).await;

    let began = Instant::now();
    let Ended { status, log } = gateway.terminate().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(status.code(), Some(1), "points were lost");
    let farewell = |backend: &str| {
        let of = |line: &Value| line["backend"] == backend && line["delivered"].is_u64();
        lines(&log).into_iter().rfind(of).unwrap_or_else(|| panic!("{log}"))
    };
    let silent = farewell("silent");
    assert_eq!((&silent["lost"], &silent["delivered"]), (&5000.into(), &0.into()), "{silent}");
    assert_eq!(silent["level"], "WARN");
    let healthy = farewell("healthy");
    assert_eq!((&healthy["lost"], &healthy["delivered"]), (&Value::Null, &5000.into()));
    assert_eq!(lines(&log).last().unwrap()["message"], "stopped");
}

#[tokio::test]
async fn term_dead_backend_a_second_signal_ends_it_at_once() {
    let silent = FakeHttp::start((0..100).map(|_| Answer::hang())).await;
    let mut gateway = Gateway::start(&config("10m", &[("silent", &silent.url())])).await;
    for second in [Signal::SIGTERM, Signal::SIGINT] {
        hand_over(&gateway, 5000).await;
        gateway.daemon.signal(Signal::SIGTERM);
        eventually("it is stopping", async || gateway.log().contains("\"stopping\"")).await;
        gateway.daemon.assert_alive();
        gateway.daemon.signal(second);
        let status = eventually("it ends at once", async || gateway.daemon.exited()).await;
        assert_eq!(status.code(), Some(1), "points were lost");
        let log = gateway.log();
        assert!(log.contains("told twice") && log.contains("\"lost\":5000"), "{log}");
        gateway.restart().await;
    }
}

/// The store is the disk here, which is waited for in any case.
#[tokio::test]
async fn a_stop_without_time_writes_what_the_store_is_to_have() {
    for is_told_twice in [false, true] {
        let grace = if is_told_twice { "10m" } else { "0s" };
        let store = format!("{}[backends.st]\nkind = 'store'\nflush = '1h'\n", config(grace, &[]));
        let mut gateway = Gateway::start(&store.replace("to = []", "to = ['st']")).await;
        let mut stream = TcpStream::connect(gateway.addr("statsd", "tcp")).await.unwrap();
        stream.write_all(b"c:3|c\nc:4|c\n").await.unwrap();
        hand_over(&gateway, 500).await;
        eventually("all is held", async || gateway.book("st").await["handed"] == 502).await;
        if is_told_twice {
            gateway.daemon.signal(Signal::SIGINT);
        }
        let Ended { status, log } = gateway.terminate().await;
        assert!(status.success(), "{log}");
        // The counter is one row.
        assert!(log.contains("\"delivered\":501"), "{log}");
    }
}

#[tokio::test]
async fn a_stop_with_nothing_left_is_quick_and_a_success() {
    let healthy = FakeHttp::start([]).await;
    let mut gateway = Gateway::start(&config("10m", &[("healthy", &healthy.url())])).await;
    hand_over(&gateway, 10).await;
    let Ended { status, log } = gateway.terminate().await;
    assert!(status.success(), "{log}");
    assert_eq!(numbers(&healthy, "n").len(), 10);
}

#[tokio::test]
async fn a_stop_while_a_client_hangs_still_delivers() {
    let healthy = FakeHttp::start([]).await;
    let mut gateway = Gateway::start(&config("2s", &[("healthy", &healthy.url())])).await;
    hand_over(&gateway, 10).await;
    let mut half = TcpStream::connect(gateway.addr("api", "tcp")).await.unwrap();
    half.write_all(b"POST /v1/points HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n[")
        .await
        .unwrap();
    let began = Instant::now();
    let Ended { status, log } = gateway.terminate().await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(status.success(), "{log}");
    assert_eq!(numbers(&healthy, "n").len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn term_inflight_keeps_every_promise() {
    let influx = FakeHttp::start([]).await;
    let mut gateway = Gateway::start(&config("10s", &[("b", &influx.url())])).await;
    let (api, statsd) = (gateway.addr("api", "tcp"), gateway.addr("statsd", "tcp"));
    let posting: Vec<_> = (0..20).map(|client| tokio::spawn(post_in_a_loop(api, client))).collect();
    let counts: Vec<_> = (0..5).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let telling: Vec<_> = counts
        .iter()
        .enumerate()
        .map(|(client, count)| tokio::spawn(tell_in_a_loop(statsd, client, Arc::clone(count))))
        .collect();
    // A request that is under way when the signal comes.
    let mut late = BufReader::new(TcpStream::connect(api).await.unwrap());
    let body = "{\"name\":\"late\",\"value\":1}";
    let head =
        format!("POST /v1/points HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    late.write_all(head.as_bytes()).await.unwrap();
    late.write_all(&body.as_bytes()[..9]).await.unwrap();
    eventually("all clients are at work", async || {
        let busy = counts.iter().all(|count| count.load(Ordering::SeqCst) > 100);
        busy && numbers(&influx, "h19").len() > 3
    })
    .await;

    let told: Vec<_> = counts.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    gateway.daemon.signal(Signal::SIGTERM);
    eventually("it is stopping", async || gateway.log().contains("\"stopping\"")).await;
    late.write_all(&body.as_bytes()[9..]).await.unwrap();
    let mut answer = String::new();
    late.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    let status = eventually("it has ended", async || gateway.daemon.exited()).await;
    assert!(status.success(), "{}", gateway.log());

    assert_eq!(numbers(&influx, "late"), BTreeSet::from([1]));
    for (client, posting) in posting.into_iter().enumerate() {
        let promised = posting.await.unwrap();
        let kept = numbers(&influx, &format!("h{client}"));
        let broken: Vec<_> = promised.difference(&kept).collect();
        assert!(broken.is_empty(), "client {client}: answered 2xx and not delivered: {broken:?}");
    }
    for (client, telling) in telling.into_iter().enumerate() {
        telling.await.unwrap();
        let kept = numbers(&influx, &format!("t{client}"));
        assert!(
            kept.len() as u64 >= told[client],
            "client {client}: {} < {}",
            kept.len(),
            told[client]
        );
        assert_eq!(kept, (0..kept.len() as u64).collect(), "no line is missing in between");
    }
}

/// Posts points `h<client>` with the values 0, 1, 2, …, each in a request of its own and all on
/// one connection, until the connection ends. Answers those that were answered 2xx.
async fn post_in_a_loop(api: SocketAddr, client: usize) -> BTreeSet<u64> {
    let mut stream = BufReader::new(TcpStream::connect(api).await.unwrap());
    let mut promised = BTreeSet::new();
    for number in 0.. {
        let body = format!("{{\"name\":\"h{client}\",\"value\":{number}}}");
        let length = body.len();
        let request = format!(
            "POST /v1/points HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        if stream.write_all(request.as_bytes()).await.is_err() {
            break;
        }
        let Some(status) = read_head(&mut stream).await else { break };
        assert_eq!(status, 204, "client {client}");
        promised.insert(number);
    }
    promised
}

/// The status of an answer without a body; none when the connection has ended.
async fn read_head(stream: &mut BufReader<TcpStream>) -> Option<u16> {
    let mut first = String::new();
    if stream.read_line(&mut first).await.ok()? == 0 {
        return None;
    }
    let mut line = String::from("…");
    while !line.trim_end().is_empty() {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
    }
    first.split(' ').nth(1)?.parse().ok()
}

/// Sends lines `t<client>` with the values 0, 1, 2, … until the connection ends; `count` is how
/// many are out.
async fn tell_in_a_loop(statsd: SocketAddr, client: usize, count: Arc<AtomicU64>) {
    let mut stream = TcpStream::connect(statsd).await.unwrap();
    let mut pace = tokio::time::interval(Duration::from_millis(1));
    for number in 0_u64.. {
        pace.tick().await;
        let line = format!("t{client}:{number}|g\n");
        if stream.write_all(line.as_bytes()).await.is_err() {
            break;
        }
        count.fetch_add(1, Ordering::SeqCst);
    }
}

/// Posts so many points; with the answer, every backend has been handed them.
async fn hand_over(gateway: &Gateway, count: u64) {
    let point = |n: u64| format!("{{\"name\":\"n\",\"value\":{n}}}");
    let body = format!("[{}]", (0..count).map(point).collect::<Vec<_>>().join(","));
    gateway.http("api").post("/v1/points", body).await.expect_success();
}

/// The values of all points of this name that the server has been sent.
fn numbers(server: &FakeHttp, name: &str) -> BTreeSet<u64> {
    let requests = server.received();
    let lines = requests.iter().flat_map(|request| request.body.lines());
    let value = |line: &str| {
        let value = line.strip_prefix(name)?.strip_prefix(" value=")?.split_once(' ')?.0;
        Some(value.parse::<f64>().unwrap() as u64)
    };
    lines.filter_map(value).collect()
}

fn lines(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn config(grace: &str, backends: &[(&str, &str)]) -> String {
    let section = |(name, url): &(&str, &str)| {
        format!(
            "[backends.{name}]\nkind = 'influxdb'\nurl = '{url}'\ndatabase = 'd'\n\
             aggregate = false\nflush = '20ms'\nspool = false\n"
        )
    };
    let sections: String = backends.iter().map(section).collect();
    let names: Vec<_> = backends.iter().map(|(name, _)| *name).collect();
    format!(
        "grace = '{grace}'\n[admin]\nbind = '127.0.0.1:0'\n\
         [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n\
         [listeners.statsd]\nprotocol = 'statsd'\nbind = ['tcp://127.0.0.1:0']\n\
         {sections}[[routes]]\nto = {names:?}\n"
    )
}
