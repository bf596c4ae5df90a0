//! VictoriaMetrics is a second reader of our line protocol: what we write for InfluxDB, it takes
//! too, and has the same values.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use common::{Gateway, STATSD, VictoriaMetrics, api_to_influxdb, eventually, post};
use serde_json::{Value, json};
use tokio::net::UdpSocket;

#[tokio::test]
async fn values_of_every_listener_arrive() {
    let server = VictoriaMetrics::start().await;
    let gateway =
        Gateway::start(&format!("{STATSD}{}", api_to_influxdb(&server.url(), "flush = '1s'")))
            .await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let packet = "vm hits:1|c|@0.5|#os:a b,canary\nvm.wait:10|ms\nvm.wait:30|ms\nvm.users:x|s\nvm.depth:-7.5|g";
    socket.send_to(packet.as_bytes(), gateway.addr("statsd", "udp")).await.unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let name = "vm=x,\"y\\z\"";
    let points = json!([
        {"name": "vm.build", "tags": {"q": name}, "time": now, "n": 1e300, "m": -0.1, "ok": true},
        {"name": "vm.big", "time": now, "value": 9_007_199_254_740_993_u64},
    ]);
    post(&gateway, &points).await;

    let expected = [
        ("vm hits_count", json!({"os": "a b", "canary": "true"}), 2.0),
        ("vm.wait_count", json!({}), 2.0),
        ("vm.wait_sum", json!({}), 40.0),
        ("vm.wait_p90", json!({}), 30.0),
        ("vm.users_count", json!({}), 1.0),
        ("vm.depth_value", json!({}), -7.5),
        ("vm.build_n", json!({"q": name}), 1e300),
        ("vm.build_m", json!({"q": name}), -0.1),
        ("vm.build_ok", json!({"q": name}), 1.0),
        ("vm.big_value", json!({}), 9_007_199_254_740_992.0),
    ];
    for (name, tags, value) in expected {
        let quoted = json!(name);
        let series = eventually(name, async || {
            server.export(&format!("{{__name__={quoted}}}")).await.into_iter().next()
        })
        .await;
        assert_eq!(labels(&series), tags, "{name}");
        let values: Vec<_> = floats(&series["values"]);
        // A gauge is repeated in every window.
        assert!(!values.is_empty() && values.iter().all(|found| *found == value), "{series}");
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("pointsman_dropped_points_total", &[]), 0.0);
    assert_eq!(metrics.sum("pointsman_delivery_retries_total", &[]), 0.0);
}

/// The labels that were tags: VictoriaMetrics adds the database as one of its own.
fn labels(series: &Value) -> Value {
    let mut labels = series["metric"].as_object().unwrap().clone();
    labels.retain(|key, _| !matches!(key.as_str(), "__name__" | "db"));
    labels.into()
}

fn floats(values: &Value) -> Vec<f64> {
    values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}
