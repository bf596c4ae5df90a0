//! Our own binary, run as a user runs it.
//!
//! A configuration for a test binds port 0 everywhere, `[admin]` included. What became of each is
//! learnt from the log: with `--log-format json` every bound socket gives a line
//! `{"message":"listening","listener":"statsd","address":"udp://127.0.0.1:40123",…}` (the admin
//! listener is named `admin`), and `{"message":"ready",…}` follows when all is up.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::daemon::{Daemon, Ended, with_output_in};
use super::eventually::eventually;
use super::http::{Http, Reply};
use super::metrics::Metrics;

/// A running gateway with a configuration file and a data directory of its own.
pub struct Gateway {
    // Declared before the directory, so that the process is dead when its files are removed.
    pub daemon: Daemon,
    /// Its admin listener.
    pub admin: Http,
    listeners: Vec<Listener>,
    /// Further arguments of the command `run`.
    arguments: Vec<String>,
    directory: TempDir,
}

/// A bound socket, as the log tells of it.
#[derive(Debug, Clone, PartialEq)]
struct Listener {
    name: String,
    transport: String,
    address: SocketAddr,
}

/// Runs the binary with these arguments to its end, for commands that do not serve.
pub fn pointsman(arguments: &[&str]) -> Output {
    binary().args(arguments).stdin(Stdio::null()).output().expect("the binary runs")
}

impl Gateway {
    /// Starts it and waits until it is ready.
    pub async fn start(config_toml: &str) -> Gateway {
        Gateway::start_with(config_toml, &[]).await
    }

    /// As [`Gateway::start`], with further arguments of the command `run`.
    pub async fn start_with(config_toml: &str, arguments: &[&str]) -> Gateway {
        let started = Gateway::try_start_with(config_toml, arguments).await;
        started.unwrap_or_else(|ended| panic!("ended with {}:\n{}", ended.status, ended.log))
    }

    /// As [`Gateway::start`]; a gateway that ends instead of getting ready is the error.
    pub async fn try_start(config_toml: &str) -> Result<Gateway, Ended> {
        Gateway::try_start_with(config_toml, &[]).await
    }

    async fn try_start_with(config_toml: &str, arguments: &[&str]) -> Result<Gateway, Ended> {
        let arguments: Vec<_> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(CONFIG), config_toml).unwrap();
        let (daemon, listeners) = launch(&directory, &arguments).await?;
        let admin = admin_client(&listeners);
        Ok(Gateway { daemon, admin, listeners, arguments, directory })
    }

    /// Where a listener of the configuration is bound for `"udp"` or `"tcp"`.
    pub fn addr(&self, listener: &str, transport: &str) -> SocketAddr {
        let wanted = |bound: &&Listener| bound.name == listener && bound.transport == transport;
        // The latest line counts: a reload may have bound the listener anew.
        let found = self.listeners.iter().rev().find(wanted);
        found
            .unwrap_or_else(|| panic!("no {listener} on {transport}: {:?}", self.listeners))
            .address
    }

    /// A client of a listener that speaks HTTP.
    pub fn http(&self, listener: &str) -> Http {
        Http::new(&format!("http://{}", self.addr(listener, "tcp")))
    }

    pub async fn admin_get(&self, path: &str) -> Reply {
        self.admin.get(path).await
    }

    pub async fn metrics(&self) -> Metrics {
        Metrics::parse(&self.admin_get("/metrics").await.expect_success().body)
    }

    /// The books, as `GET /v1/ledger` has them.
    ///
    /// Its numbers are read one after the other, so a book that is written to meanwhile may be
    /// off by what moved: such a ledger is asked for again for a moment, and then shown as it is.
    pub async fn ledger(&self) -> Value {
        let asked = Instant::now();
        loop {
            let ledger: Value = self.admin_get("/v1/ledger").await.expect_success().json();
            if balances(&ledger) || asked.elapsed() > LEDGER_PATIENCE {
                return ledger;
            }
        }
    }

    /// What the ledger says of one backend.
    pub async fn book(&self, backend: &str) -> Value {
        self.ledger().await["backends"][backend].take()
    }

    /// Puts a new configuration in place and asks for it over the admin listener; the answer is
    /// 200, or 422 with the reason. Listeners that are new are known afterwards.
    pub async fn reload(&mut self, config_toml: &str) -> Reply {
        self.write_config(config_toml);
        let reply = self.admin.post("/-/reload", "").await;
        self.listeners = listeners_in(&self.daemon.log());
        reply
    }

    /// Puts a new configuration in place and asks for it by SIGHUP, which answers nothing.
    pub fn hang_up(&self, config_toml: &str) {
        self.write_config(config_toml);
        self.daemon.signal(Signal::SIGHUP);
    }

    /// What it has logged since it last started, one JSON object a line.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// What it has printed on standard output since it last started.
    pub fn stdout(&self) -> String {
        fs::read_to_string(self.directory.path().join(STDOUT)).unwrap()
    }

    pub fn config_file(&self) -> PathBuf {
        self.directory.path().join(CONFIG)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.directory.path().join(DATA)
    }

    /// Asks it to end and waits until it has.
    pub async fn terminate(&mut self) -> Ended {
        self.daemon.terminate().await
    }

    /// Pulls the plug.
    pub fn kill9(&mut self) {
        self.daemon.kill9();
    }

    /// Starts it again with the same configuration and data; ports are new.
    pub async fn restart(&mut self) {
        self.daemon.kill9();
        let started = launch(&self.directory, &self.arguments).await;
        let (daemon, listeners) = started.unwrap_or_else(|ended| panic!("{ended:?}"));
        self.admin = admin_client(&listeners);
        self.daemon = daemon;
        self.listeners = listeners;
    }

    fn write_config(&self, config_toml: &str) {
        fs::write(self.config_file(), config_toml).unwrap();
    }
}

/// Starts the process and waits until it is ready, or has ended.
async fn launch(
    directory: &TempDir,
    arguments: &[String],
) -> Result<(Daemon, Vec<Listener>), Ended> {
    let mut daemon = spawn(directory, arguments);
    let status = eventually("the gateway is ready", async || match daemon.exited() {
        Some(status) => Some(Some(status)),
        None => is_ready(&daemon.log()).then_some(None),
    })
    .await;
    let log = daemon.log();
    match status {
        Some(status) => Err(Ended { status, log }),
        None => Ok((daemon, listeners_in(&log))),
    }
}

fn spawn(directory: &TempDir, arguments: &[String]) -> Daemon {
    let directory = directory.path();
    let mut command = binary();
    command.args(["run", "--log-format", "json"]).args(arguments);
    command.arg("--config").arg(directory.join(CONFIG));
    command.arg("--data-dir").arg(directory.join(DATA));
    with_output_in(&mut command, &directory.join(STDOUT));
    Daemon::spawn("pointsman", &mut command, directory.join("log"))
}

/// The binary, deaf to what the tester's own environment says to us.
fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.to_string_lossy().starts_with("POINTSMAN_")) {
        command.env_remove(name);
    }
    command.env_remove("STATE_DIRECTORY");
    command
}

fn admin_client(listeners: &[Listener]) -> Http {
    let admin = listeners.iter().find(|bound| bound.name == "admin");
    Http::new(&format!("http://{}", admin.expect("the admin listener is logged").address))
}

fn is_ready(log: &str) -> bool {
    messages(log).any(|line| line["message"] == "ready")
}

fn listeners_in(log: &str) -> Vec<Listener> {
    messages(log).filter(|line| line["message"] == "listening").filter_map(listener).collect()
}

/// Reads a line about a bound socket; Unix sockets have no address that a test could use.
fn listener(line: Value) -> Option<Listener> {
    let (transport, address) = line["address"].as_str()?.split_once("://")?;
    Some(Listener {
        name: line["listener"].as_str()?.to_owned(),
        transport: transport.to_owned(),
        address: address.parse().ok()?,
    })
}

/// The lines of the log that are JSON; a banner, or a line half written, is passed over.
fn messages(log: &str) -> impl Iterator<Item = Value> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok())
}

const CONFIG: &str = "pointsman.toml";
const DATA: &str = "data";
const STDOUT: &str = "stdout";

/// Whether every listener's and every backend's book does.
fn balances(ledger: &Value) -> bool {
    let sections = ["listeners", "backends"].map(|section| ledger[section].as_object());
    let mut books = sections.into_iter().flatten().flat_map(|section| section.values());
    books.all(|book| book["balanced"] == true)
}

/// Far longer than a book is off for, and no test waits for it but one that fails.
const LEDGER_PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"Pointsman 0.1.0
{"level":"INFO","message":"listening","listener":"statsd","address":"udp://127.0.0.1:40123"}
{"level":"INFO","message":"listening","listener":"statsd","address":"unixgram:///run/statsd.sock"}
{"level":"INFO","message":"listening","listener":"admin","address":"tcp://127.0.0.1:9102"}
{"level":"INFO","message":"rea"#;

    #[test]
    fn bound_sockets_are_read_from_the_log() {
        let bound = |name: &str, transport: &str, address: &str| Listener {
            name: name.to_owned(),
            transport: transport.to_owned(),
            address: address.parse().unwrap(),
        };
        let expected =
            [bound("statsd", "udp", "127.0.0.1:40123"), bound("admin", "tcp", "127.0.0.1:9102")];
        assert_eq!(listeners_in(LOG), expected);
    }

    #[test]
    fn ready_is_believed_once_the_whole_line_is_there() {
        assert!(!is_ready(LOG));
        assert!(is_ready(&format!("{LOG}dy\"}}\n")));
    }
}
