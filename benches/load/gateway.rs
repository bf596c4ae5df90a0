//! The gateway as a server under test: its configuration, and what its ledger says.

use crate::cpu::Cpus;
use crate::http;
use crate::pace::rest;
use crate::server::Server;
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What became of the points that were sent to one listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    pub received: u64,
    /// Lines and items that were refused.
    pub rejected: u64,
    /// Datagrams that the kernel dropped for want of room, as the receiver counted them.
    pub kernel_dropped: u64,
    /// Points that were received, and then given up before the backend had them.
    pub dropped: u64,
    /// Points on their way to the backend; those in windows and open payloads wait for a clock,
    /// and are not meant.
    pub waiting: u64,
    /// Points that are neither delivered nor dropped, wherever they are.
    pub held: u64,
}

impl Arrived {
    /// Points that are told of on the way in, when a datagram holds `pack` of them.
    pub const fn told(&self, pack: u64) -> u64 {
        self.received + self.rejected + self.kernel_dropped * pack
    }
}

/// Starts it with all its listeners on free ports and one backend of this section.
pub fn start(binary: &Path, section: &str, directory: &Path, cpus: Cpus) -> Result<Server> {
    start_with(binary, &configuration(section), directory, cpus)
}

/// Starts it with this configuration.
pub fn start_with(
    binary: &Path,
    configuration: &str,
    directory: &Path,
    cpus: Cpus,
) -> Result<Server> {
    let config = directory.join("pointsman.toml");
    fs::write(&config, configuration)?;
    let mut command = Command::new(binary);
    command.args(["run", "--log-format", "json", "--config"]).arg(config);
    command.arg("--data-dir").arg(directory.join("data"));
    command.env_remove("POINTSMAN_DATA").env_remove("STATE_DIRECTORY");
    Server::start(&mut command, directory, cpus)
}

/// The section of a backend of this kind that sums up windows.
pub fn of_windows(kind: &str) -> String {
    format!("kind = \"{kind}\"\naggregate = true\nflush = \"10s\"\n")
}

/// The section of an InfluxDB there, with every default but the window's length.
pub fn of_influxdb(address: SocketAddr, window: f64) -> String {
    let flush = (window * 1000.0) as u64;
    format!(
        "kind = \"influxdb\"\nurl = \"http://{address}\"\ndatabase = \"d\"\nflush = \"{flush}ms\"\n"
    )
}

/// The section of a statsd server there, with every default.
pub fn of_statsd(address: SocketAddr) -> String {
    format!("kind = \"statsd\"\naddress = \"udp://{address}\"\n")
}

/// What the ledger says of the backend.
pub fn backend_book(server: &Server) -> Result<Value> {
    let ledger = http::get_json(server.address("admin", "tcp")?, "/v1/ledger")?;
    let book = ledger.get("backends").and_then(|backends| backends.get(BACKEND));
    Ok(book.context("the ledger does not know the backend")?.clone())
}

/// Reads the ledger until it tells of every point sent and none is on its way any more, or
/// until it tells of nothing new.
pub fn settle(server: &Server, listener: &str, sent: u64, pack: u64) -> Result<Arrived> {
    let is_settled = |arrived: &Arrived| arrived.told(pack) >= sent && arrived.waiting == 0;
    read_until(server, listener, PATIENCE, is_settled)
}

/// Reads the ledger until every point sent is delivered or dropped, those of the last window
/// included, or until it tells of nothing new for longer than a window.
pub fn deliver(
    server: &Server,
    listener: &str,
    sent: u64,
    pack: u64,
    window: f64,
) -> Result<Arrived> {
    let patience = PATIENCE + Duration::from_secs_f64(window);
    let is_settled = |arrived: &Arrived| arrived.told(pack) >= sent && arrived.held == 0;
    read_until(server, listener, patience, is_settled)
}

fn read_until(
    server: &Server,
    listener: &str,
    patience: Duration,
    is_settled: impl Fn(&Arrived) -> bool,
) -> Result<Arrived> {
    let admin = server.address("admin", "tcp")?;
    let mut arrived = Arrived::default();
    let mut changed = Instant::now();
    while !is_settled(&arrived) && changed.elapsed() < patience {
        let ledger = http::get_json(admin, "/v1/ledger")?;
        let now = arrived_at(&ledger, listener)
            .with_context(|| format!("the ledger does not know {listener}: {ledger}"))?;
        if now != arrived {
            arrived = now;
            changed = Instant::now();
        }
        rest(GLANCE);
    }
    Ok(arrived)
}

fn arrived_at(ledger: &Value, listener: &str) -> Option<Arrived> {
    let book = ledger.get("listeners")?.get(listener)?;
    let backend = ledger.get("backends")?.get(BACKEND)?;
    let held = backend.get("held")?;
    Some(Arrived {
        received: book.get("received")?.as_u64()?,
        rejected: total(book.get("rejected")?)?,
        kernel_dropped: book.get("kernel_dropped")?.as_u64()?,
        dropped: total(backend.get("dropped")?)?,
        waiting: held.get("inbox")?.as_u64()? + held.get("queue")?.as_u64()?,
        held: held.get("total")?.as_u64()?,
    })
}

/// Of all reasons.
fn total(reasons: &Value) -> Option<u64> {
    Some(reasons.as_object()?.values().filter_map(Value::as_u64).sum())
}

fn configuration(section: &str) -> String {
    format!(
        r#"
[admin]
bind = "127.0.0.1:0"

[listeners.statsd]
protocol = "statsd"
bind = ["udp://127.0.0.1:0"]

[listeners.tsdb]
protocol = "opentsdb"
bind = ["tcp://127.0.0.1:0"]

[listeners.api]
protocol = "http"
bind = ["tcp://127.0.0.1:0"]

[backends.{BACKEND}]
{section}
[[routes]]
name = "all"
to = ["{BACKEND}"]
"#
    )
}

const BACKEND: &str = "sink";

/// How long the books may stand still before they are taken as final.
const PATIENCE: Duration = Duration::from_secs(1);

/// Seldom enough not to show in the CPU time.
const GLANCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_ledger_tells_what_arrived() {
        let ledger = json!({
            "listeners": { "statsd": {
                "received": 90,
                "rejected": { "unknown_kind": 2, "bad_value": 3 },
                "kernel_dropped": 1,
            } },
            "backends": { "sink": {
                "dropped": { "queue_full": 4, "inbox_full": 3 },
                "held": { "inbox": 1, "windows": 50, "open": 9, "queue": 8, "total": 68 },
            } },
        });
        let arrived = arrived_at(&ledger, "statsd").unwrap();
        let expected = Arrived {
            received: 90,
            rejected: 5,
            kernel_dropped: 1,
            dropped: 7,
            waiting: 9,
            held: 68,
        };
        assert_eq!(arrived, expected);
        assert_eq!(arrived.told(5), 100);
        assert_eq!(arrived_at(&ledger, "tsdb"), None);
    }
}
