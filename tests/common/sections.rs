//! Configurations that many tests share, in pieces that can be put together, and points for them.

use serde::Serialize;

use super::gateway::Gateway;

/// The admin listener, and the listener `api` for points in JSON.
pub const API: &str = "[admin]\nbind = '127.0.0.1:0'\n\
                       [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n";

/// The listener `statsd`, beside these.
pub const STATSD: &str = "[listeners.statsd]\nprotocol = 'statsd'\nbind = ['udp://127.0.0.1:0']\n";

/// What tells InfluxDB where to write: its first API and, in the place of that, the second.
pub const V1: &str = "database = 'd'";
pub const V2: &str = "api = 'v2'\norg = 'o'\nbucket = 'b'\ntoken = 't'";

/// A backend that writes to the database `d` of the server at this address, and has these keys.
pub fn influxdb(name: &str, url: &str, keys: &str) -> String {
    format!("[backends.{name}]\nkind = 'influxdb'\nurl = '{url}'\n{V1}\n{keys}\n")
}

/// The route `all`, to each of these backends.
pub fn all_to(backends: &[&str]) -> String {
    format!("[[routes]]\nname = 'all'\nto = {backends:?}\n")
}

/// A gateway whose listener `api` feeds the backend `influx`, which has these keys.
pub fn api_to_influxdb(url: &str, keys: &str) -> String {
    [API, &influxdb("influx", url, keys), &all_to(&["influx"])].concat()
}

/// Posts a list of points to the gateway's listener `api`.
pub async fn post(gateway: &Gateway, points: impl Serialize) {
    let body = serde_json::to_string(&points).unwrap();
    gateway.http("api").post("/v1/points", body).await.expect_success();
}
