//! Runs the real statsd clients. What each sends is written at the top of its driver.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::process::Command;

use super::tools;

/// Runs a driver of `tests/clients` against an address and waits until it has sent all:
/// `python_statsd.py`, `python_datadog.py` or `hot_shots.js`.
pub async fn run_client(driver: &str, to: SocketAddr) {
    let mut command = Command::new(interpreter(driver));
    command.arg(tools::client(driver)).arg(to.ip().to_string()).arg(to.port().to_string());
    let output = command.kill_on_drop(true).output().await.unwrap();
    assert!(output.status.success(), "{driver}: {}", String::from_utf8_lossy(&output.stderr));
}

fn interpreter(driver: &str) -> PathBuf {
    if driver.ends_with(".py") { tools::installed("venv/bin/python") } else { "node".into() }
}
