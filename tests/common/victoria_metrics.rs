//! A real VictoriaMetrics, which takes InfluxDB's writes and answers in PromQL.

use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::daemon::{Daemon, with_output_in};
use super::eventually::eventually;
use super::http::{Http, Reply};
use super::tools;

/// A single-node server of its own directory and port.
pub struct VictoriaMetrics {
    // Declared before the directory, so that the process is dead when its files are removed.
    pub daemon: Daemon,
    pub http: Http,
    port: u16,
    directory: TempDir,
}

impl VictoriaMetrics {
    pub async fn start() -> VictoriaMetrics {
        let directory = tempfile::tempdir().unwrap();
        let mut daemon = spawn(&directory);
        let port = daemon.address("tcp").await.port();
        let http = Http::new(&format!("http://127.0.0.1:{port}"));
        eventually("VictoriaMetrics is healthy", async || {
            let health = http.send(reqwest::Method::GET, "/health", &[], Vec::new()).await;
            health.is_ok_and(|reply| reply.status == 200)
        })
        .await;
        VictoriaMetrics { daemon, http, port, directory }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Writes line protocol, as to InfluxDB: field `f` of measurement `m` becomes series `m_f`.
    pub async fn write(&self, lines: &str) -> Reply {
        self.http.post("/write", lines).await
    }

    /// The raw samples of the series that match: `{"metric": {…}, "values": […],
    /// "timestamps": […]}` for each, times in milliseconds.
    pub async fn export(&self, selector: &str) -> Vec<Value> {
        // What was just written lies in a buffer that no query sees until this is asked.
        self.http.get("/internal/force_flush").await.expect_success();
        let path = Http::with_query("/api/v1/export", &[("match[]", selector)]);
        let reply = self.http.get(&path).await.expect_success();
        reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn spawn(directory: &TempDir) -> Daemon {
    let mut command = Command::new(tools::server("victoria-metrics"));
    command.arg("-httpListenAddr=127.0.0.1:0").arg("-retentionPeriod=100y");
    command.arg(format!("-storageDataPath={}", directory.path().join("data").display()));
    // The default of 60 % of the machine's memory is too much for one server among several.
    command.arg("-memory.allowedBytes=128MiB");
    with_output_in(&mut command, &directory.path().join("stdout"));
    Daemon::spawn("victoria-metrics", &mut command, directory.path().join("log"))
}
