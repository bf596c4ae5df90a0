//! Real clients, run as their users run them, against the real gateway: each sends its fixed set,
//! and the set is found in the store, by `pointsman query` and by `GET /v1/query`. Nothing is
//! refused, nothing dropped, and the books balance.
//!
//! The store's window is a year long, so that it ends when the gateway does and every series has
//! exactly one row; the gateway is then started again on what it has stored.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::net::SocketAddr;
use std::process::Output;

use cadence::prelude::*;
use cadence::{BufferedUdpMetricSink, StatsdClient};
use common::{Gateway, Http, eventually, pointsman, run_client};
use serde_json::{Map, Value, json};
use tokio::process::Command;

#[tokio::test]
async fn the_python_client_statsd() {
    let mut gateway = start().await;
    run_client("python_statsd.py", gateway.addr("statsd", "udp")).await;
    let expected = [
        json!(["pystatsd.depth", {}, { "value": 15 }]),
        json!(["pystatsd.latency", {}, { "count": 2, "sum": 332.5, "lower": 12.5, "p90": 320 }]),
        json!(["pystatsd.requests", {}, { "count": 3 }]),
        json!(["pystatsd.users", {}, { "count": 2 }]),
    ];
    check(&mut gateway, 11, "pystatsd.*", &expected).await;
}

#[tokio::test]
async fn the_python_client_datadog() {
    let mut gateway = start().await;
    run_client("python_datadog.py", gateway.addr("statsd", "udp")).await;
    check_dogstatsd(&mut gateway, "pydatadog", "datadog").await;
}

#[tokio::test]
async fn the_node_client_hot_shots() {
    let mut gateway = start().await;
    run_client("hot_shots.js", gateway.addr("statsd", "udp")).await;
    check_dogstatsd(&mut gateway, "hotshots", "hot-shots").await;
}

#[tokio::test]
async fn the_rust_client_cadence() {
    let mut gateway = start().await;
    let to = gateway.addr("statsd", "udp");
    tokio::task::spawn_blocking(move || send_by_cadence(to)).await.unwrap();
    let client = json!({ "client": "cadence" });
    let route = json!({ "client": "cadence", "route": "/home", "canary": "true" });
    let expected = [
        json!(["cadence.bytes", client, { "count": 2, "sum": 768, "median": 384 }]),
        json!(["cadence.depth", client, { "value": 17.5 }]),
        json!(["cadence.latency", client, { "count": 1, "mean": 12 }]),
        json!(["cadence.requests", route, { "count": 5 }]),
        json!(["cadence.requests", client, { "count": -1 }]),
        json!(["cadence.users", client, { "count": 2 }]),
        json!(["cadence.wait", client, { "count": 2, "sum": 0.5 }]),
    ];
    check(&mut gateway, 12, "cadence.*", &expected).await;
}

/// Its buffer packs the lines into one datagram.
fn send_by_cadence(to: SocketAddr) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let sink = BufferedUdpMetricSink::from(to, socket).unwrap();
    let client = StatsdClient::builder("cadence", sink).with_tag("client", "cadence").build();
    for delta in [1, 4] {
        let requests = client.count_with_tags("requests", delta);
        requests.with_tag("route", "/home").with_tag_value("canary").send();
    }
    client.decr("requests").unwrap();
    client.gauge("depth", 17.5).unwrap();
    client.time("latency", 12).unwrap();
    client.histogram("bytes", vec![512u64, 256]).unwrap();
    client.distribution("wait", vec![0.25, 0.25]).unwrap();
    for user in [7, 8, 7] {
        client.set("users", user).unwrap();
    }
    client.flush().unwrap();
}

/// A shell and what every system has: `echo`, `printf` and the files of bash; a script that logs
/// to one open socket; and netcat.
#[tokio::test]
async fn shell_scripts() {
    let mut gateway = start().await;
    shell(&gateway, r#"echo "sh.udp:1|c" > /dev/udp/$host/$statsd_udp"#).await;
    shell(&gateway, r#"printf 'sh.tcp:1|c\nsh.tcp:0.5|c' > /dev/tcp/$host/$statsd_tcp"#).await;
    shell(&gateway, r#"echo "sh.nc:320|ms|@0.5|#os:linux" | nc -u -w1 $host $statsd_udp"#).await;
    let script = r#"
        exec 3> /dev/udp/$host/$statsd_udp
        log() { printf '%s\n' "$1" >&3; }
        for step in fetch build test; do log "sh.steps:$step|s"; done
        log "sh.left:3|g"; log "sh.left:-1|g""#;
    shell(&gateway, script).await;
    let expected = [
        json!(["sh.left", {}, { "value": 2 }]),
        json!(["sh.nc", { "os": "linux" }, { "count": 2, "sum": 640, "mean": 320 }]),
        json!(["sh.steps", {}, { "count": 3 }]),
        json!(["sh.tcp", {}, { "count": 1.5 }]),
        json!(["sh.udp", {}, { "count": 1 }]),
    ];
    check(&mut gateway, 9, "sh.*", &expected).await;
}

#[tokio::test]
async fn put_by_netcat_and_bash() {
    let mut gateway = start().await;
    let put = r#"echo "put put.load $(date +%s) 0.7 host=a cpu=0" | nc -w1 $host $tsdb_tcp"#;
    shell(&gateway, put).await;
    let puts = r#"{ echo "put put.old 1700000000 -42 host=b"; echo "put put.old 1700000000.500 1e3 host=b"; } > /dev/tcp/$host/$tsdb_tcp"#;
    shell(&gateway, puts).await;
    let version = shell(&gateway, r#"echo version | nc -w1 $host $tsdb_tcp"#).await;
    assert!(!version.is_empty(), "`version` was not answered");
    received(&gateway, 3).await;
    let rows = queried(&mut gateway, "put.old").await;
    let rows = &rows[0]["rows"];
    let times = [&rows[0]["time"], &rows[1]["time"]];
    assert_eq!(times, ["2023-11-14T22:13:20Z", "2023-11-14T22:13:20.5Z"]);
    assert_eq!(
        (&rows[0]["fields"], &rows[1]["fields"]),
        (&json!({ "value": -42 }), &json!({ "value": 1000.0 }))
    );
    let expected = [json!(["put.load", { "host": "a", "cpu": "0" }, { "value": 0.7 }])];
    assert_series(&queried(&mut gateway, "put.load").await, &expected);
}

#[tokio::test]
async fn points_by_curl() {
    let mut gateway = start().await;
    for request in [
        r#"-d '{"name":"curl/build","tags":{"os":"linux"},"compile":12.5,"ok":true}' http://$host:$api_tcp/v1/points"#,
        r#"-T- http://$host:$api_tcp/v1/points <<< '[{"name":"curl/put","value":1},{"name":"curl/hits","type":"counter","value":3}]'"#,
        r#"-X PUT "http://$host:$api_tcp/v1/point/curl%2Fone%20%C3%A9?wall=1.5&exit=0""#,
        r#"--data-binary @- -H 'Content-Type: application/x-ndjson' http://$host:$api_tcp/v1/points <<< $'{"name":"curl/lines","n":1}\n{"name":"curl/lines2","n":2}'"#,
        r#"-H 'Content-Encoding: gzip' --data-binary @<(gzip <<< '{"metric":"curl/tsdb","timestamp":1700000000,"value":7,"tags":{"h":"a"}}') http://$host:$tsdb_tcp/api/put"#,
    ] {
        let command = format!("curl -sS --fail -o /dev/null -w '%{{http_code}}' {request}");
        assert_eq!(shell(&gateway, &command).await, "204", "{request}");
    }
    let expected = [
        json!(["curl/build", { "os": "linux" }, { "compile": 12.5, "ok": true }]),
        json!(["curl/hits", {}, { "count": 3 }]),
        json!(["curl/lines", {}, { "n": 1 }]),
        json!(["curl/lines2", {}, { "n": 2 }]),
        json!(["curl/one é", {}, { "wall": 1.5, "exit": 0 }]),
        json!(["curl/put", {}, { "value": 1 }]),
        json!(["curl/tsdb", { "h": "a" }, { "value": 7 }]),
    ];
    check(&mut gateway, 7, "curl*", &expected).await;
}

/// The set that both DogStatsD drivers send.
async fn check_dogstatsd(gateway: &mut Gateway, prefix: &str, client: &str) {
    let name = |metric: &str| format!("{prefix}.{metric}");
    let alone = json!({ "client": client });
    let route = json!({ "client": client, "route": "/home" });
    let canary = json!({ "client": client, "route": "/home", "canary": "true" });
    let expected = [
        json!([name("bytes"), alone, { "count": 1, "sum": 512, "upper": 512 }]),
        json!([name("depth"), alone, { "value": 17.5 }]),
        json!([name("latency"), route, { "count": 1, "mean": 12.5, "stddev": 0 }]),
        json!([name("requests"), canary, { "count": 5 }]),
        json!([name("users"), alone, { "count": 2 }]),
        json!([name("wait"), alone, { "count": 1, "median": 0.25 }]),
    ];
    check(gateway, 9, &format!("{prefix}.*"), &expected).await;
}

async fn start() -> Gateway {
    Gateway::start(
        r#"
        [listeners.statsd]
        protocol = "statsd"
        bind = ["udp://127.0.0.1:0", "tcp://127.0.0.1:0"]
        [listeners.tsdb]
        protocol = "opentsdb"
        bind = ["tcp://127.0.0.1:0"]
        [listeners.api]
        protocol = "http"
        bind = ["tcp://127.0.0.1:0"]
        [admin]
        bind = "127.0.0.1:0"
        [backends.local]
        kind = "store"
        flush = "365d"
        retention = "36500d"
        [[routes]]
        to = ["local"]
        "#,
    )
    .await
}

/// Waits until so many points have come in, ends the gateway, and looks for them in its store.
async fn check(gateway: &mut Gateway, points: u64, name: &str, expected: &[Value]) {
    received(gateway, points).await;
    assert_series(&queried(gateway, name).await, expected);
}

/// Waits for so many points; all of them must have been taken.
async fn received(gateway: &Gateway, points: u64) {
    let ledger = eventually("the points come in", async || {
        let ledger = gateway.ledger().await;
        (sum(&ledger, "received") >= points).then_some(ledger)
    })
    .await;
    assert_eq!(sum(&ledger, "received"), points, "{ledger:#}");
    for listener in ledger["listeners"].as_object().unwrap().values() {
        assert_eq!(listener["rejected"], json!({}), "{ledger:#}");
        assert_eq!(listener["balanced"], true, "{ledger:#}");
    }
    let store = &ledger["backends"]["local"];
    assert_eq!((&store["handed"], &store["dropped"]), (&json!(points), &json!({})));
    assert_eq!(store["balanced"], true, "{ledger:#}");
}

fn sum(ledger: &Value, count: &str) -> u64 {
    let listeners = ledger["listeners"].as_object().unwrap().values();
    listeners.map(|listener| listener[count].as_u64().unwrap()).sum()
}

/// The stored series, as both ways to ask tell them once the gateway's windows have ended.
async fn queried(gateway: &mut Gateway, name: &str) -> Vec<Value> {
    if gateway.daemon.exited().is_none() {
        let ended = gateway.terminate().await;
        assert!(ended.status.success(), "points were lost: {}", ended.log);
    }
    let data_dir = gateway.data_dir();
    let data_dir = data_dir.to_str().unwrap();
    let answer = pointsman(&["query", name, "--format", "json", "--data-dir", data_dir]);
    assert!(answer.status.success(), "{answer:?}");
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    gateway.restart().await;
    let path = Http::with_query("/v1/query", &[("name", name)]);
    assert_eq!(gateway.admin_get(&path).await.expect_success().json(), answer);
    answer["series"].as_array().unwrap().clone()
}

/// Each is `[name, tags, fields]`; the series may have more fields, but the fields must have
/// these values, and there are to be no more series and no more rows.
fn assert_series(series: &[Value], expected: &[Value]) {
    let found: Vec<_> = series.iter().map(|series| key(&series["name"], &series["tags"])).collect();
    let wanted: Vec<_> = expected.iter().map(|series| key(&series[0], &series[1])).collect();
    assert_eq!(found, wanted);
    for (series, expected) in series.iter().zip(expected) {
        let rows = series["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{series:#}");
        let fields = rows[0]["fields"].as_object().unwrap();
        let wanted = expected[2].as_object().unwrap();
        let picked: Map<_, _> =
            wanted.keys().filter_map(|k| Some((k.clone(), fields.get(k)?.clone()))).collect();
        assert_eq!(as_doubles(&picked), as_doubles(wanted), "{series:#}");
    }
}

fn key(name: &Value, tags: &Value) -> String {
    format!("{} {tags}", name.as_str().unwrap())
}

/// Whole numbers and doubles are told apart by JSON, but not by what they mean.
fn as_doubles(fields: &Map<String, Value>) -> Map<String, Value> {
    let double = |value: &Value| value.as_f64().map_or(value.clone(), Value::from);
    fields.iter().map(|(key, value)| (key.clone(), double(value))).collect()
}

/// Runs a script in bash, which finds `$host` and each listener's port in variables; answers what
/// it printed.
async fn shell(gateway: &Gateway, script: &str) -> String {
    let mut command = Command::new("bash");
    command.args(["-eu", "-o", "pipefail", "-c", script]).kill_on_drop(true);
    command.env("host", "127.0.0.1");
    for (listener, transport) in
        [("statsd", "udp"), ("statsd", "tcp"), ("tsdb", "tcp"), ("api", "tcp")]
    {
        let port = gateway.addr(listener, transport).port();
        command.env(format!("{listener}_{transport}"), port.to_string());
    }
    let Output { status, stdout, stderr } = command.output().await.unwrap();
    assert!(status.success(), "{script}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}
