//! What was acknowledged as queued is there after a kill: with a disk that is waited for, with one
//! that is full, and out of windows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{Answer, FakeHttp, Gateway, Http, Tmpfs, assert_balanced, eventually, in_own_network};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn with_durability_power_queued_is_on_disk() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let mut gateway = Gateway::start(&config(&dead, "durability = 'power'\n", "1h")).await;
    let mut posts = JoinSet::new();
    for number in 0..20 {
        let api = gateway.http("api");
        posts.spawn(async move { api.post("/v1/points?ack=queued", reading(number)).await.status });
    }
    assert_eq!(posts.join_all().await, [204; 20]);
    gateway.kill9();
    gateway.restart().await;
    assert_eq!(gateway.ledger().await["backends"]["b"]["recovered"], 20);
}

/// Whatever the disk takes or refuses, a 204 is a point that outlives a kill, and a 503 one that is
/// counted as lost.
#[test]
fn with_a_full_file_system_no_answer_says_too_much() {
    in_own_network(|| async {
        let dead = FakeHttp::judging(|_| Answer::status(503)).await;
        let keys = "memory = '64KiB'\nwhen_full = 'drop_newest'\n";
        let mut gateway = Gateway::start(&config(&dead, keys, "1h")).await;
        gateway.terminate().await;
        let Some(_disk) = Tmpfs::mount(&gateway.data_dir(), "6m") else { return };
        gateway.restart().await;
        let api = gateway.http("api");
        let (mut kept, mut lost) = (BTreeSet::new(), 0);
        for request in 0..300 {
            let numbers = request * 100..(request + 1) * 100;
            let points: Vec<_> = numbers.clone().map(reading).collect();
            let reply = api
                .post("/v1/points?ack=queued&timeout=500ms", format!("[{}]", points.join(",")))
                .await;
            match reply.status {
                204 => kept.extend(numbers),
                503 => lost += 100,
                // It may come to disk yet, or not.
                504 => assert!(reply.body.contains("open"), "{reply:?}"),
                _ => panic!("{reply:?}"),
            }
            if lost > 500 {
                break;
            }
        }
        assert!(!kept.is_empty() && lost > 500, "{} kept, {lost} lost", kept.len());
        let ledger = gateway.ledger().await;
        assert_balanced(&ledger);
        let dropped = ledger["backends"]["b"]["dropped"]["queue_full"].as_u64().unwrap();
        assert!(dropped > 0 && dropped <= lost, "{dropped} of {lost}");
        gateway.kill9();
        gateway.restart().await;
        let address = dead.address();
        drop(dead);
        let well = FakeHttp::start_at(address, []).await;
        eventually("all that is on disk has come", async || {
            gateway.ledger().await["backends"]["b"]["held"]["total"] == 0
        })
        .await;
        let there: BTreeSet<u64> = lines(&well).iter().map(|(_, value)| *value as u64).collect();
        let missing: Vec<_> = kept.difference(&there).collect();
        assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
    });
}

/// An increment is acknowledged when the row of its window is on disk, or delivered. So, over all
/// kills, the rows come to no less than was acknowledged and no more than was sent. A row may come
/// twice, but with the same time and the same sum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_cost_no_increment_that_was_acknowledged() {
    let dead = FakeHttp::judging(|_| Answer::status(503)).await;
    let mut gateway = Gateway::start(&config(&dead, "aggregate = true\n", "1s")).await;
    let (mut acknowledged, mut sent) = (0, 0);
    for round in 0..4 {
        let mut posts = JoinSet::new();
        let end = Instant::now() + Duration::from_millis(1700 + round * 130);
        for _ in 0..4 {
            posts.spawn(count_until(end, gateway.http("api")));
        }
        sleep(end - Instant::now()).await;
        gateway.kill9();
        for (kept, tried) in posts.join_all().await {
            acknowledged += kept;
            sent += tried;
        }
        gateway.restart().await;
    }
    assert!(acknowledged >= 16, "{acknowledged} of {sent}");
    let address = dead.address();
    drop(dead);
    let well = FakeHttp::start_at(address, []).await;
    eventually("all rows have come", async || {
        gateway.ledger().await["backends"]["b"]["held"]["total"] == 0
    })
    .await;
    let mut rows = BTreeMap::new();
    for (time, count) in lines(&well) {
        assert_eq!(*rows.entry(time).or_insert(count as u64), count as u64, "{time}");
    }
    let sum: u64 = rows.values().sum();
    assert!((acknowledged..=sent).contains(&sum), "{acknowledged} ≤ {sum} ≤ {sent}");
}

/// Counts until the gateway is gone; answers how many times with success, and how many in all.
async fn count_until(end: Instant, api: Http) -> (u64, u64) {
    let (mut kept, mut tried) = (0, 0);
    while Instant::now() < end {
        tried += 1;
        let counter = br#"{"name":"c","type":"counter","value":1}"#.to_vec();
        let reply = api.send(reqwest::Method::POST, "/v1/points?ack=queued", &[], counter).await;
        match reply {
            Ok(reply) if reply.status == 204 => kept += 1,
            _ => break,
        }
    }
    (kept, tried)
}

fn reading(number: u64) -> String {
    format!(r#"{{"name":"n","time":{},"value":{number}}}"#, 1_700_000_000 + number)
}

/// Time and value, or count, of every line that has come.
fn lines(server: &FakeHttp) -> Vec<(u64, f64)> {
    let line = |line: &str| {
        let time = line.rsplit(' ').next().unwrap().parse().unwrap();
        let field = line.split_once("count=").or_else(|| line.split_once("value=")).unwrap().1;
        let value = field.split([',', ' ']).next().unwrap().trim_end_matches('i');
        (time, value.parse().unwrap())
    };
    let requests = server.received();
    requests.iter().flat_map(|request| request.body.lines().map(line)).collect()
}

fn config(server: &FakeHttp, keys: &str, flush: &str) -> String {
    let aggregate = if keys.contains("aggregate") { "" } else { "aggregate = false\n" };
    format!(
        "grace = '1s'\n[admin]\nbind = '127.0.0.1:0'\n\
         [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n\
         [backends.b]\nkind = 'influxdb'\nurl = '{}'\ndatabase = 'd'\nflush = '{flush}'\n{aggregate}\
         retry = {{ first = '20ms', max = '200ms' }}\n{keys}[[routes]]\nto = ['b']\n",
        server.url()
    )
}
