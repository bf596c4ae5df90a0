//! A server under test: a child on a CPU of its own, which logs where it listens.
//!
//! The gateway and the bare receiver speak alike on standard error: a line of JSON for each
//! bound socket, `{"message":"listening","listener":"statsd","address":"udp://127.0.0.1:40123"}`,
//! then `{"message":"ready"}`. Others are told where to listen, and are ready when they do. The log
//! goes to a file, so that nobody has to drain a pipe.

use crate::address::Address;
use crate::cpu::{self, Cpus};
use crate::kernel;
use crate::pace::rest;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server. Dropping it kills it.
pub struct Server {
    child: Child,
    /// Where its files are; they outlive it.
    directory: PathBuf,
    listeners: Vec<(String, Address)>,
    /// What it had used when it was ready.
    cpu_before: f64,
}

impl Server {
    /// Starts it and waits until it is ready.
    pub fn start(command: &mut Command, directory: &Path, cpus: Cpus) -> Result<Self> {
        let mut server = Self::spawn(command, directory, cpus)?;
        server.wait_until(|server| Ok(is_ready(&server.log())))?;
        server.listeners = listeners_in(&server.log());
        server.cpu_before = cpu::of_process(server.child.id())?;
        Ok(server)
    }

    /// Starts one that does not say where it listens, but was told, and waits until it does.
    pub fn start_silent(
        command: &mut Command,
        directory: &Path,
        cpus: Cpus,
        listeners: Vec<(String, Address)>,
    ) -> Result<Self> {
        let mut server = Self::spawn(command, directory, cpus)?;
        server.listeners = listeners;
        server.wait_until(|server| {
            let bound = server.listeners.iter().map(|(_, address)| kernel::is_bound(address));
            Ok(bound.collect::<Result<Vec<_>>>()?.into_iter().all(|bound| bound))
        })?;
        server.cpu_before = cpu::of_process(server.child.id())?;
        Ok(server)
    }

    fn spawn(command: &mut Command, directory: &Path, cpus: Cpus) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(File::create(directory.join(OUTPUT))?)
            .stderr(File::create(directory.join(LOG))?);
        let child = cpus.on_server(|| command.spawn())?;
        let child = child.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let directory = directory.to_owned();
        Ok(Self { child, directory, listeners: Vec::new(), cpu_before: 0.0 })
    }

    /// Where one of its listeners is bound.
    pub fn address(&self, listener: &str, scheme: &str) -> Result<SocketAddr> {
        let found = self.listeners.iter().find(|(name, address)| {
            name == listener && address.to_string().starts_with(&format!("{scheme}://"))
        });
        let (_, address) =
            found.with_context(|| format!("no line tells where {listener} listens on {scheme}"))?;
        Ok(address.socket())
    }

    /// CPU seconds since it was ready.
    pub fn cpu_seconds(&self) -> Result<f64> {
        Ok(cpu::of_process(self.child.id())? - self.cpu_before)
    }

    /// Bytes of memory that are its own now, and the most that ever were.
    pub fn memory(&self) -> Result<Memory> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        Memory::of(&status).context("the kernel does not tell how much memory it has")
    }

    /// Bytes that it has handed to the disk.
    pub fn written(&self) -> Result<u64> {
        let io = fs::read_to_string(format!("/proc/{}/io", self.child.id()))?;
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        Ok(written.context("the kernel does not tell what was written")?.parse()?)
    }

    /// Waits until it has ended by itself; returns what it printed.
    pub fn finish(&mut self) -> Result<String> {
        self.child.wait()?;
        Ok(fs::read_to_string(self.directory.join(OUTPUT))?)
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join(LOG)).unwrap_or_default()
    }

    fn wait_until(&mut self, is_ready: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        while !is_ready(self)? {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}:\n{}", self.log());
            }
            if began.elapsed() > PATIENCE {
                bail!("the server is not ready after {PATIENCE:?}:\n{}", self.log());
            }
            rest(GLANCE);
        }
        Ok(())
    }
}

/// What of a process is in memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub resident: u64,
    pub peak: u64,
}

impl Memory {
    fn of(status: &str) -> Option<Self> {
        let bytes = |key: &str| {
            let kibibytes = status.lines().find_map(|line| line.strip_prefix(key))?;
            Some(kibibytes.strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
        };
        Some(Self { resident: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left running.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn is_ready(log: &str) -> bool {
    messages(log).any(|line| said(&line, "message") == Some("ready"))
}

fn listeners_in(log: &str) -> Vec<(String, Address)> {
    messages(log)
        .filter(|line| said(line, "message") == Some("listening"))
        .filter_map(|line| {
            Some((said(&line, "listener")?.to_owned(), said(&line, "address")?.parse().ok()?))
        })
        .collect()
}

/// The lines that are JSON; a banner, or a line half written, is passed over.
fn messages(log: &str) -> impl Iterator<Item = Value> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok())
}

fn said<'a>(line: &'a Value, field: &str) -> Option<&'a str> {
    line.get(field)?.as_str()
}

const OUTPUT: &str = "output";
const LOG: &str = "log";

/// How long a start may take; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(20);

const GLANCE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tpointsman\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t4\n";
        assert_eq!(Memory::of(status), Some(Memory { resident: 1 << 20, peak: 2 << 20 }));
        assert_eq!(Memory::of("Name:\tgone\n"), None);
    }

    #[test]
    fn listeners_are_learnt_from_the_log() {
        let log = r#"Pointsman 0.1.0
{"message":"listening","listener":"statsd","address":"udp://127.0.0.1:40123"}
{"message":"listening","listener":"admin","address":"tcp://127.0.0.1:9102"}
{"message":"rea"#;
        let expected = [("statsd", "udp://127.0.0.1:40123"), ("admin", "tcp://127.0.0.1:9102")]
            .map(|(name, address)| (name.to_owned(), address.parse().unwrap()));
        assert_eq!(listeners_in(log), expected);
        assert!(!is_ready(log));
        assert!(is_ready(&format!("{log}dy\"}}\n")));
    }
}
