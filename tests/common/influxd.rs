//! A real InfluxDB 1.x, from Debian's package.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value};
use tempfile::TempDir;

use super::daemon::{Daemon, with_output_in};
use super::eventually::eventually;
use super::http::{Http, Reply};
use super::tools;

/// An InfluxDB server of its own directory and port.
pub struct Influxd {
    // Declared before the directory, so that the process is dead when its files are removed.
    pub daemon: Daemon,
    pub http: Http,
    port: u16,
    /// Further lines of its section `[http]`.
    settings: &'static str,
    directory: TempDir,
}

impl Influxd {
    pub async fn start() -> Influxd {
        Influxd::start_with("").await
    }

    /// One that asks for user and password, and has no user yet.
    pub async fn start_guarded() -> Influxd {
        Influxd::start_with("auth-enabled = true").await
    }

    /// One that speaks HTTPS, of which these lines of `[http]` tell; asked by this client.
    pub async fn start_secure(settings: &str, client: reqwest::Client) -> Influxd {
        let directory = tempfile::tempdir().unwrap();
        let settings: &'static str = Box::leak(settings.to_owned().into_boxed_str());
        let mut daemon = spawn(directory.path(), 0, settings);
        let port = daemon.address("tcp").await.port();
        let http = Http::by(client, &format!("https://127.0.0.1:{port}"));
        let mut server = Influxd { daemon, http, port, settings, directory };
        server.wait_until_ready().await;
        server
    }

    async fn start_with(settings: &'static str) -> Influxd {
        let directory = tempfile::tempdir().unwrap();
        let mut daemon = spawn(directory.path(), 0, settings);
        let port = daemon.address("tcp").await.port();
        let http = Http::new(&format!("http://127.0.0.1:{port}"));
        let mut server = Influxd { daemon, http, port, settings, directory };
        server.wait_until_ready().await;
        server
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub async fn create_database(&self, name: &str) {
        self.query("", &format!("CREATE DATABASE \"{name}\"")).await;
    }

    /// Runs an InfluxQL statement and returns the whole answer; times are nanoseconds.
    pub async fn query(&self, database: &str, statement: &str) -> Value {
        let parameters = [("db", database), ("epoch", "ns"), ("q", statement)];
        let reply = self.http.post(&Http::with_query("/query", &parameters), "").await;
        let answer = reply.expect_success().json();
        assert!(answer["results"][0].get("error").is_none(), "{statement}: {answer}");
        answer
    }

    /// The rows of a `SELECT` as maps from column to value, all series one after another; a
    /// series's tags (by `GROUP BY *`) are columns too.
    pub async fn rows(&self, database: &str, select: &str) -> Vec<Map<String, Value>> {
        let answer = self.query(database, select).await;
        let series = answer["results"][0]["series"].as_array().cloned().unwrap_or_default();
        series.iter().flat_map(rows_of_series).collect()
    }

    /// Writes line protocol.
    pub async fn write(&self, database: &str, lines: &str) -> Reply {
        self.http.post(&Http::with_query("/write", &[("db", database)]), lines).await
    }

    /// Pulls the plug. The data stays for [`Influxd::restart`].
    pub fn kill9(&mut self) {
        self.daemon.kill9();
    }

    /// Starts it again on the same port and data.
    pub async fn restart(&mut self) {
        self.daemon.kill9();
        self.daemon = spawn(self.directory.path(), self.port, self.settings);
        self.wait_until_ready().await;
    }

    async fn wait_until_ready(&mut self) {
        eventually("influxd answers a ping", async || {
            self.daemon.assert_alive();
            let ping = self.http.send(reqwest::Method::GET, "/ping", &[], Vec::new()).await;
            ping.is_ok_and(|reply| reply.status == 204)
        })
        .await;
    }
}

fn spawn(directory: &Path, port: u16, settings: &str) -> Daemon {
    let config = directory.join("influxdb.toml");
    fs::write(&config, configuration(directory, port, settings)).unwrap();
    let mut command = Command::new(tools::server("influxd"));
    command.arg("-config").arg(config);
    with_output_in(&mut command, &directory.join("stdout"));
    Daemon::spawn("influxd", &mut command, directory.join("log"))
}

fn configuration(directory: &Path, port: u16, settings: &str) -> String {
    let directory = directory.display();
    format!(
        r#"
        reporting-disabled = true
        # The backup service cannot be switched off; elsewhere on loopback nobody takes it for HTTP.
        bind-address = "127.0.0.2:0"
        [meta]
        dir = "{directory}/meta"
        [data]
        dir = "{directory}/data"
        wal-dir = "{directory}/wal"
        [monitor]
        store-enabled = false
        [http]
        bind-address = "127.0.0.1:{port}"
        log-enabled = false
        {settings}
        [logging]
        suppress-logo = true
        "#
    )
}

fn rows_of_series(series: &Value) -> Vec<Map<String, Value>> {
    let tags = series["tags"].as_object().cloned().unwrap_or_default();
    let columns: Vec<_> = series["columns"].as_array().unwrap().iter().map(text).collect();
    let row = |values: &Value| {
        let cells = columns.iter().cloned().zip(values.as_array().unwrap().iter().cloned());
        tags.clone().into_iter().chain(cells).collect()
    };
    series["values"].as_array().unwrap().iter().map(row).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
