//! The real statsd/statsd 0.9, the daemon whose numbers the layout `statsd` must meet to the bit.
//!
//! `tests/clients/capture_backend.js` runs inside it and notes each packet and each flush. With
//! the default options it never flushes by the clock, so that a test sends, waits for
//! [`StatsdJs::packets`], and reads the one window that [`StatsdJs::finish`] flushes.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::daemon::{Daemon, with_output_in};
use super::eventually::eventually;
use super::tools;

/// A statsd daemon on UDP.
pub struct StatsdJs {
    // Declared before the directory, so that the process is dead when its files are removed.
    pub daemon: Daemon,
    address: SocketAddr,
    capture: PathBuf,
    directory: TempDir,
}

/// What a test may choose about the daemon.
pub struct StatsdOptions {
    pub flush_interval_ms: u64,
    pub percentiles: Vec<f64>,
    /// Any other key of its configuration, as a JSON object.
    pub extra: Value,
}

impl Default for StatsdOptions {
    fn default() -> StatsdOptions {
        let hour_ms = 3_600_000;
        StatsdOptions { flush_interval_ms: hour_ms, percentiles: vec![90.0], extra: json!({}) }
    }
}

impl StatsdJs {
    pub async fn start(options: StatsdOptions) -> StatsdJs {
        let directory = tempfile::tempdir().unwrap();
        let capture = directory.path().join("capture.jsonl");
        fs::write(&capture, "").unwrap();
        let mut daemon = spawn(directory.path(), &configuration(options, &capture));
        let address = daemon.address("udp").await;
        StatsdJs { daemon, address, capture, directory }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The second since 1970 at which it says it started: its windows end at this plus a multiple
    /// of its interval.
    pub async fn started(&self) -> u64 {
        let started = async || self.captured("started").first()?.as_u64();
        eventually("statsd says when it started", started).await
    }

    /// The packets it has received, as text, in order.
    pub fn packets(&self) -> Vec<String> {
        let packets = self.captured("packet").into_iter();
        packets.map(|packet| packet.as_str().unwrap().to_owned()).collect()
    }

    /// The flushes so far: `counters`, `counter_rates`, `gauges`, `timers`, `timer_data`, `sets`.
    pub fn flushes(&self) -> Vec<Value> {
        self.captured("flush")
    }

    /// Ends it, which makes it flush a last time, and returns that last flush.
    pub async fn finish(self) -> Value {
        self.finish_all().await.pop().expect("statsd flushes as it ends")
    }

    /// Ends it, and returns all its flushes, the last one included.
    pub async fn finish_all(mut self) -> Vec<Value> {
        self.daemon.terminate().await;
        self.flushes()
    }

    fn captured(&self, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.capture).unwrap();
        // A line that is being written has no end yet, and is left for the next look.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let entries = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.filter_map(|mut entry| Some(entry.get_mut(kind)?.take())).collect()
    }
}

fn spawn(directory: &Path, configuration: &Value) -> Daemon {
    let file = directory.join("config.json");
    fs::write(&file, configuration.to_string()).unwrap();
    let mut command = Command::new("node");
    command.arg(tools::installed("node_modules/statsd/stats.js")).arg(file);
    with_output_in(&mut command, &directory.join("stdout"));
    Daemon::spawn("statsd", &mut command, directory.join("log"))
}

fn configuration(options: StatsdOptions, capture: &Path) -> Value {
    let mut configuration = json!({
        "address": "127.0.0.1",
        // A number 0 would be taken for "not set"; the text "0" asks the system for a port.
        "port": "0",
        "mgmt_address": "127.0.0.1",
        "mgmt_port": "0",
        "flushInterval": options.flush_interval_ms,
        "percentThreshold": options.percentiles,
        "backends": [tools::client("capture_backend.js")],
        "capture": { "file": capture },
    });
    let Value::Object(extra) = options.extra else { panic!("extra is not a JSON object") };
    configuration.as_object_mut().unwrap().extend(extra);
    configuration
}
