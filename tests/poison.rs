//! What a real InfluxDB 1.6 refuses for good, among thousands of good points: each bad one is found
//! and counted, and its neighbours are kept.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use common::{Gateway, Influxd, api_to_influxdb, eventually, post};
use serde_json::{Value, json};

#[tokio::test]
async fn each_bad_point_is_refused_and_every_good_one_is_kept() {
    let (server, gateway) = start().await;
    let now = seconds_now();
    let point = |n: u64| match n {
        _ if n % 150 == 7 => json!({"name": "m", "time": 1_000_000_000 + n, "n": n}),
        _ if n % 600 == 11 => json!({"name": "m", "time": now - n, "n": "text"}),
        1234 | 2468 => {
            json!({"name": "m", "time": now - n, "n": n, "tags": {"long": "x".repeat(66_000)}})
        }
        _ => json!({"name": "m", "time": now - n, "n": n}),
    };
    let points: Vec<_> = (0..3000).map(point).collect();
    let good: Vec<_> = points.iter().filter(|point| is_good(point, now)).collect();
    assert_eq!(good.len(), 3000 - 20 - 5 - 2);
    post(&gateway, &points).await;

    // The first point of the series has made `n` a float. A key of more than 65535 bytes, which the
    // server refuses, is not even sent.
    let book = settled(&gateway, 3001).await;
    assert_eq!(book["refused"], json!({"partial_write": 25}), "{book}");
    assert_eq!(book["held"]["dead_letters"], 25);
    assert_eq!(book["dropped"], json!({"too_large": 2}));
    assert_eq!(book["delivered"], good.len() + 1);
    let rows = server.rows("d", "SELECT n FROM \"one day\".m").await;
    let mut kept: Vec<_> = rows.iter().map(|row| row["n"].as_u64().unwrap()).collect();
    kept.sort_unstable();
    let good = good.iter().map(|point| point["n"].as_u64().unwrap());
    assert_eq!(kept, good.chain([1_000_000]).collect::<Vec<_>>());
    assert_eq!(book["retries"], 0);
}

#[tokio::test]
async fn a_payload_of_bad_points_alone_is_refused_whole() {
    let (server, gateway) = start().await;
    let old = |n: u64| json!({"name": "m", "time": 1_000_000_000 + n, "n": n});
    post(&gateway, &(0..500).map(old).collect::<Vec<_>>()).await;

    let book = settled(&gateway, 501).await;
    assert_eq!((&book["refused"], &book["delivered"]), (&json!({"partial_write": 500}), &json!(1)));
    assert_eq!((&book["held"]["dead_letters"], &book["dropped"]), (&json!(500), &json!({})));
    assert_eq!(server.rows("d", "SELECT n FROM \"one day\".m").await.len(), 1);
}

/// A server whose policy keeps points for a day, a gateway that writes to it, and one point there.
async fn start() -> (Influxd, Gateway) {
    let server = Influxd::start().await;
    server.create_database("d").await;
    let policy = "CREATE RETENTION POLICY \"one day\" ON d DURATION 1d REPLICATION 1";
    server.query("", policy).await;
    let policy = "retention_policy = 'one day'";
    let gateway = Gateway::start(&api_to_influxdb(&server.url(), policy)).await;
    post(&gateway, &[json!({"name": "m", "time": seconds_now() - 5000, "n": 1_000_000})]).await;
    settled(&gateway, 1).await;
    (server, gateway)
}

fn is_good(point: &Value, now: u64) -> bool {
    let is_fresh = point["time"].as_u64().unwrap() > now - 86_000;
    is_fresh && point["n"].is_u64() && point["tags"].is_null()
}

/// The backend's book once so many points have come to their end; it must balance.
async fn settled(gateway: &Gateway, points: u64) -> Value {
    eventually("all has found its end", async || {
        let book = gateway.book("influx").await;
        let is_over =
            book["handed"] == points && book["held"]["total"] == book["held"]["dead_letters"];
        (is_over && book["balanced"] == true).then_some(book)
    })
    .await
}

fn seconds_now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}
