//! Finished tasks: a real RabbitMQ tells of them, what stands in for a Taskcluster's queue has what
//! they left behind, and a real InfluxDB gets their points and, as a series of its own, their errors.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{
    Artifact, Authority, Gateway, Influxd, Publisher, QueueApi, RabbitMq, all_to, eventually,
    eventually_within, gzip, influxdb,
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

const COMPLETED: &str = "exchange/taskcluster-queue/v1/task-completed";
const FAILED: &str = "exchange/taskcluster-queue/v1/task-failed";
const QUEUE: &str = "queue/pointsman/statistics";
const CSV: &str = "statistics/influx-points.csv";
const JSONL: &str = "statistics/points.jsonl";
/// 2014-10-22T17:46:40Z, when every task ended.
const RESOLVED: i64 = 1_414_000_000;

/// A gateway that takes finished tasks to the database `d`.
fn config(broker: &str, queue: &QueueApi, influx: &Influxd) -> String {
    let listener = format!(
        "[admin]\nbind = '127.0.0.1:0'\n\
         [listeners.tasks]\n\
         protocol = 'pulse'\n\
         limits = {{ body = '256KiB' }}\n\
         errors = {{ backend = 'influx', name = 'pointsman.errors' }}\n\
         [listeners.tasks.broker]\n{broker}\n\
         username = 'pointsman'\npassword = 'secret'\nexchanges = ['{COMPLETED}', '{FAILED}']\n\
         [listeners.tasks.tasks]\n\
         root_url = '{}'\nclient_id = 'test'\naccess_token = 'S3CR3T-TOKEN'\n\
         retry = {{ first = '10ms', max = '50ms' }}\n",
        queue.root_url()
    );
    listener + &influxdb("influx", &influx.url(), "flush = '1s'") + &all_to(&["influx"])
}

/// A name that a task could have.
fn task(number: usize) -> String {
    format!("{number:08}Q0C{number:010}A")
}

/// What is published when a run has ended.
fn message(task: &str, run: u16) -> String {
    let run_of_it = json!({
        "runId": run, "state": "completed", "reasonCreated": "scheduled",
        "scheduled": "2014-10-22T17:00:00.000Z", "resolved": "2014-10-22T17:46:40.000Z",
    });
    json!({
        "version": 1,
        "status": {
            "taskId": task, "provisionerId": "p", "workerType": "w", "taskGroupId": task,
            "deadline": "2014-10-23T17:00:00.000Z", "state": "completed", "runs": [run_of_it],
        },
        "task": { "tags": { "kind": "build" } },
        "runId": run, "workerGroup": "g", "workerId": "i",
    })
    .to_string()
}

async fn publish(publisher: &Publisher, exchange: &str, number: usize) {
    let task = task(number);
    let key = format!("primary.{task}.0.g.i.p.w.-.{task}._");
    let routes = ["route.index.x", "route.statistics.build.times"];
    publisher.publish(exchange, &key, &routes, &message(&task, 0)).await;
}

fn sha256(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Three points of a task: of its series, and of two under it.
fn table(number: usize) -> String {
    format!(
        "name,time,tag.task,value\nbuild.times,{RESOLVED},t{number},1\n\
         build.times.link,{RESOLVED},t{number},2\nbuild.times/pack,{RESOLVED},t{number},3\n"
    )
}

/// Leaves behind what a task of that number does.
fn prepare(queue: &QueueApi, number: usize) {
    let task = task(number);
    let ok = || Artifact::status(200);
    let point = |name: &str| {
        format!("{{\"name\":\"{name}\",\"tags\":{{\"t\":\"{number}\"}},\"value\":1}}\n")
    };
    match number % 20 {
        even @ 0..10 if even % 2 == 0 => {
            let kept = ok().header("content-encoding", "gzip").body(gzip(table(number)));
            queue.put(&task, 0, CSV, kept);
        }
        0..10 => {
            let told = ok()
                .header("x-taskcluster-location-content-sha256", &sha256(&table(number)))
                .body(table(number));
            queue.say(&task, 0, CSV, [told]);
        }
        10 | 11 => queue.put(&task, 0, JSONL, ok().body(point("build.times").repeat(2))),
        12 => {}
        13 => {
            let text =
                format!("{}no JSON\n{{\"name\":\"build.times\",\"\":1}}\n", point("build.times"));
            queue.put(&task, 0, JSONL, ok().body(text));
        }
        14 => {
            let text = point("build.times") + &point("other.series") + &point("build.times.x");
            queue.put(&task, 0, JSONL, ok().body(text));
        }
        15 => {
            let told = ok()
                .header("x-taskcluster-location-content-sha256", &sha256("something else"))
                .body(table(number));
            queue.say(&task, 0, CSV, [told]);
        }
        16 => {
            let body = r#"{"reason":"file-missing-on-worker","message":"it was not there"}"#;
            queue.say(&task, 0, CSV, [Artifact::status(424).body(body)]);
        }
        17 => queue.say(&task, 0, CSV, [Artifact::status(403)]),
        18 => {
            let text = format!("tag.task,value\nt{number},7\n");
            let answers = [Artifact::status(503), Artifact::status(500), ok().body(text)];
            queue.say(&task, 0, CSV, answers);
        }
        _ if number % 40 == 19 => queue.put(&task, 0, CSV, ok().body("x".repeat(300 << 10))),
        _ => queue.say(&task, 0, CSV, [Artifact::status(502)]),
    }
}

async fn book(gateway: &Gateway) -> Value {
    gateway.ledger().await["listeners"]["tasks"].clone()
}

/// Waits until so many runs were dealt with, once each.
async fn remembered(gateway: &Gateway, count: u64) {
    eventually_within(Duration::from_secs(60), &format!("{count} runs are known"), async || {
        let keys = book(gateway).await["keys"].as_u64().unwrap();
        assert!(keys <= count, "{keys} of {count}");
        keys == count
    })
    .await;
}

async fn listens(gateway: &Gateway) {
    eventually("it listens to the broker", async || book(gateway).await["connections"] == 1).await;
}

/// How many points each series has, of those that have any.
async fn counts(influx: &Influxd) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for series in SERIES {
        let rows = influx.rows("d", &format!("SELECT count(\"value\") FROM \"{series}\"")).await;
        let count = rows.first().map_or(0, |row| row["count"].as_u64().unwrap());
        counts.insert(series, count);
    }
    counts.retain(|_, count| *count > 0);
    counts
}

/// What was refused, by reason, as the error series has it.
async fn errors(influx: &Influxd) -> BTreeMap<String, u64> {
    let rows =
        influx.rows("d", "SELECT sum(\"count\") FROM \"pointsman.errors\" GROUP BY reason").await;
    let of = |row: &serde_json::Map<String, Value>| {
        (row["reason"].as_str().unwrap().to_owned(), row["sum"].as_f64().unwrap() as u64)
    };
    rows.iter().map(of).collect()
}

const SERIES: [&str; 5] =
    ["build.times", "build.times.link", "build.times/pack", "build.times.x", "other.series"];

/// However often messages come, and whoever is away for a while: each run counts once, and each
/// error once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_and_a_broker_that_breaks_down() {
    let authority = Authority::new("test");
    let (queue, influx) = (QueueApi::start().await, Influxd::start().await);
    influx.create_database("d").await;
    (0..TASKS).for_each(|number| prepare(&queue, number));
    let mut broker = RabbitMq::start(&authority).await;
    let publisher = broker.publisher(&[COMPLETED, FAILED]).await;
    let address = format!("url = '{}'\nprefetch = 40", broker.url());
    let gateway = Gateway::start(&config(&address, &queue, &influx)).await;
    listens(&gateway).await;

    for number in 0..TASKS / 2 {
        publish(&publisher, COMPLETED, number).await;
        if number % 7 == 0 {
            publish(&publisher, COMPLETED, number).await;
        }
    }
    eventually("some are dealt with", async || book(&gateway).await["keys"].as_u64() > Some(100))
        .await;
    broker.restart().await;
    let publisher = broker.publisher(&[]).await;
    listens(&gateway).await;
    for number in TASKS / 2..TASKS {
        publish(&publisher, COMPLETED, number).await;
        if number % 10 == 0 {
            publish(&publisher, COMPLETED, number - TASKS / 2).await;
        }
        if number % 25 == 0 {
            let routes = ["route.statistics.build.times"];
            publisher.publish(COMPLETED, "primary.x", &routes, "garbage").await;
        }
    }

    remembered(&gateway, TASKS as u64).await;
    eventually("the queue is empty", async || publisher.queue(QUEUE).await == (0, 1)).await;
    let groups = TASKS as u64 / 20;
    let expected = BTreeMap::from([
        // Rows of ten tables, two readings of each of two, one each of three others.
        ("build.times", groups * (10 + 4 + 3)),
        ("build.times.link", groups * 10),
        ("build.times/pack", groups * 10),
        ("build.times.x", groups),
    ]);
    let refused = BTreeMap::from(
        [
            ("artifact_missing", groups),
            ("artifact_hash", groups),
            ("artifact_error", groups),
            ("artifact_forbidden", groups),
            ("artifact_too_large", groups / 2),
            ("artifact_unavailable", groups / 2),
            ("invalid_json", groups),
            ("malformed_message", TASKS as u64 / 50),
            ("invalid_field", groups),
            ("scope", groups),
        ]
        .map(|(reason, count)| (reason.to_owned(), count)),
    );
    eventually("all are told", async || errors(&influx).await == refused).await;
    eventually("all points are there", async || counts(&influx).await == expected).await;

    let book = book(&gateway).await;
    assert_eq!(book["denied"], groups, "{book}");
    assert_eq!(book["received"], groups * (30 + 4 + 1 + 3 + 1), "{book}");
    assert!(book["noticed"]["repeated_message"].as_u64() > Some(100), "{book}");
    assert!(book["noticed"]["broker_lost"].as_u64() >= Some(1), "{book}");
    let of_tasks =
        "SELECT count(\"count\") FROM \"pointsman.errors\" WHERE run = '0' GROUP BY task";
    let tasks = influx.rows("d", of_tasks).await;
    assert_eq!(tasks.len() as u64, groups * 7, "the tasks that left something wrong behind");
}

/// A stop hands back what is in hand, and the next process goes on; over TLS, and with credentials
/// that nobody but the queue gets to see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_leaves_to_the_broker_what_was_not_taken() {
    let authority = Authority::new("test");
    let (queue, influx) = (QueueApi::start().await, Influxd::start().await);
    influx.create_database("d").await;
    let broker = RabbitMq::start(&authority).await;
    let publisher = broker.publisher(&[COMPLETED, FAILED]).await;
    let address = format!("url = '{}'\ntls = {{ ca = '{}' }}", broker.secure_url(), authority.ca());
    let config = config(&address, &queue, &influx);
    let mut gateway = Gateway::start_with(&config, &["--log-level", "trace"]).await;
    listens(&gateway).await;

    prepare(&queue, 0);
    for number in [2, 4] {
        queue.say(&task(number), 0, CSV, [Artifact::hang()]);
    }
    for number in [0, 2, 4] {
        publish(&publisher, if number == 4 { FAILED } else { COMPLETED }, number).await;
    }
    remembered(&gateway, 1).await;
    eventually("the others are being fetched", async || {
        queue.received(&task(2)).len() == 1 && queue.received(&task(4)).len() == 1
    })
    .await;
    let ended = gateway.terminate().await;
    assert!(ended.status.success());
    for secret in ["S3CR3T-TOKEN", "password = ", "mac=", "signature=x"] {
        assert!(!ended.log.contains(secret), "{secret}: {}", ended.log);
    }
    eventually("they are handed back", async || publisher.queue(QUEUE).await == (2, 0)).await;

    // Both say where they are only to whom they know, and that is not where they are kept.
    for (path, headers) in queue.received("/") {
        let authorization = headers.get("authorization").map(|value| value.to_str().unwrap());
        let is_signed = authorization.is_some_and(|text| text.starts_with("Hawk id=\"test\", ts="));
        assert_eq!(is_signed, path.starts_with("/api/queue/"), "{path}");
        assert!(is_signed || authorization.is_none(), "{path}");
    }

    [2, 4].iter().for_each(|number| prepare(&queue, *number));
    gateway.restart().await;
    remembered(&gateway, 3).await;
    gateway.kill9();
    gateway.restart().await;
    listens(&gateway).await;
    for _ in 0..3 {
        publish(&publisher, COMPLETED, 0).await;
        publish(&publisher, FAILED, 4).await;
    }
    prepare(&queue, 6);
    publish(&publisher, FAILED, 6).await;
    remembered(&gateway, 4).await;
    eventually("what came again is known", async || {
        book(&gateway).await["noticed"]["repeated_message"] == 6
    })
    .await;
    let each = |count| {
        BTreeMap::from(
            ["build.times", "build.times.link", "build.times/pack"].map(|name| (name, count)),
        )
    };
    eventually("each run counts once", async || counts(&influx).await == each(4)).await;
    assert!(errors(&influx).await.is_empty());
}

const TASKS: usize = 1000;
