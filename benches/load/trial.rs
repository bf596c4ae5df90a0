//! One trial: a fresh server, one load, and what became of it.

use crate::cpu::{self, Cpus};
use crate::gateway::{self, Arrived};
use crate::http;
use crate::mix::Form;
use crate::report::{Received, Sent};
use crate::server::Server;
use crate::sink::Sink;
use crate::statsd;
use crate::tcp;
use anyhow::{Context, Result};
use serde::Serialize;
use std::env;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Who receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The kernel's calls and nothing else.
    Bare,
    /// The gateway, with a backend that keeps nothing.
    Blackhole,
    /// The gateway, with an InfluxDB that takes everything at once.
    Influxdb,
    /// The gateway with its embedded store.
    Store,
}

/// What is offered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// statsd over UDP at a rate of lines a second.
    Datagrams { pack: u64, rate: f64 },
    /// OpenTSDB's `put` over TCP, flat out.
    Put,
    /// The same, so many a second.
    PutAt {
        /// Of all connections.
        rate: f64,
    },
    /// `/v1/points`, flat out.
    Points,
    /// `/api/put`, flat out.
    ApiPut,
}

/// What trials share.
pub struct Bench {
    /// The gateway's binary.
    pub gateway: PathBuf,
    pub cpus: Cpus,
    pub names: u64,
    pub seconds: f64,
    /// Seconds of a window before an InfluxDB.
    pub window: f64,
}

/// What came of one trial.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    pub sent: Sent,
    pub arrived: Arrived,
    /// Of the server.
    pub cpu_seconds: f64,
    /// Cores that neither the server nor the generator used, but somebody else.
    pub others: f64,
    /// Lines of a datagram.
    pub pack: u64,
}

impl Trial {
    /// CPU seconds of the server per million points that it received.
    pub fn per_million(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.arrived.received.max(1) as f64
    }

    /// The part of the points that did not arrive, or were dropped later.
    pub fn loss(&self) -> f64 {
        let kept = self.arrived.received.saturating_sub(self.arrived.dropped);
        let lost = self.sent.points.saturating_sub(kept);
        lost as f64 / self.sent.points.max(1) as f64
    }

    /// Points that the receiver's books do not explain; below zero if it tells of too many.
    pub fn unexplained(&self) -> i64 {
        self.sent.points.cast_signed() - self.arrived.told(self.pack).cast_signed()
    }
}

impl Bench {
    /// Starts the subject, offers the load, reads the books, stops the subject.
    pub fn run(&self, subject: Subject, load: Load) -> Result<Trial> {
        let directory = tempfile::tempdir()?;
        // What the sink does is the generator's.
        cpu::pin(self.cpus.generator)?;
        let sink = Sink::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let mut server = self.start(subject, load, directory.path(), sink.address())?;
        let trial = self.offer_and_settle(subject, load, &mut server);
        trial
            .with_context(|| format!("{load} to {subject}; its log ends:\n{}", tail(&server.log())))
    }

    fn start(
        &self,
        subject: Subject,
        load: Load,
        directory: &Path,
        sink: SocketAddr,
    ) -> Result<Server> {
        let section = match subject {
            Subject::Bare => return self.start_bare(load, directory),
            Subject::Blackhole | Subject::Store => gateway::of_windows(&subject.to_string()),
            Subject::Influxdb => gateway::of_influxdb(sink, self.window),
        };
        gateway::start(&self.gateway, &section, directory, self.cpus)
    }

    /// Starts the bare receiver of a load.
    pub fn start_bare(&self, load: Load, directory: &Path) -> Result<Server> {
        let mut command = Command::new(env::current_exe()?);
        let listen = format!("{}://127.0.0.1:0", load.scheme());
        command.args(["bare", "--json", "--idle", IDLE, "--listen", &listen]);
        Server::start(&mut command, directory, self.cpus)
    }

    fn offer_and_settle(&self, subject: Subject, load: Load, server: &mut Server) -> Result<Trial> {
        let others = Others::watch()?;
        let listener = if subject == Subject::Bare { "bare" } else { load.listener() };
        let sent = self.offer(load, server.address(listener, load.scheme())?, self.seconds)?;
        let (points, pack) = (sent.points, load.pack());
        let (arrived, cpu_seconds) = match subject {
            Subject::Bare => settle_bare(server)?,
            Subject::Blackhole | Subject::Store => {
                let arrived = gateway::settle(server, listener, points, pack)?;
                (arrived, server.cpu_seconds()?)
            }
            Subject::Influxdb => {
                let arrived = gateway::deliver(server, listener, points, pack, self.window)?;
                (arrived, server.cpu_seconds()?)
            }
        };
        let others = others.cores(cpu_seconds)?;
        Ok(Trial { sent, arrived, cpu_seconds, others, pack: load.pack() })
    }

    /// Sends the load there for so long.
    pub fn offer(&self, load: Load, to: SocketAddr, seconds: f64) -> Result<Sent> {
        let Self { names, .. } = *self;
        let points = http::Offer { names, connections: 2, batch: 5000, rate: None, seconds };
        match load {
            Load::Datagrams { pack, rate } => {
                let offer = statsd::Offer { names, pack, tags: false, rate, seconds, gso: 32 };
                statsd::send(to, offer)
            }
            Load::Put => {
                let form = Form::Put;
                tcp::send(to, tcp::Offer { form, names, connections: 4, rate: None, seconds })
            }
            Load::PutAt { rate } => {
                let (form, rate) = (Form::Put, Some(rate));
                tcp::send(to, tcp::Offer { form, names, connections: 4, rate, seconds })
            }
            Load::Points => http::send(to, "/v1/points", points),
            Load::ApiPut => http::send(to, "/api/put", points),
        }
    }
}

impl Load {
    /// The listener of the gateway that understands it.
    pub const fn listener(self) -> &'static str {
        match self {
            Self::Datagrams { .. } => "statsd",
            Self::Put | Self::PutAt { .. } => "tsdb",
            Self::Points | Self::ApiPut => "api",
        }
    }

    /// What it is sent over.
    pub const fn scheme(self) -> &'static str {
        if matches!(self, Self::Datagrams { .. }) { "udp" } else { "tcp" }
    }

    /// Points that are lost with a datagram.
    pub const fn pack(self) -> u64 {
        if let Self::Datagrams { pack, .. } = self { pack } else { 0 }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Datagrams { pack, .. } => f.pad(&format!("statsd, pack {pack}")),
            Self::Put | Self::PutAt { .. } => f.pad("put, TCP"),
            Self::Points => f.pad("/v1/points"),
            Self::ApiPut => f.pad("/api/put"),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bare => "bare",
            Self::Blackhole => "blackhole",
            Self::Influxdb => "influxdb",
            Self::Store => "store",
        })
    }
}

/// Waits for the bare receiver, which ends soon after the load and then tells all it knows.
pub fn settle_bare(server: &mut Server) -> Result<(Arrived, f64)> {
    let told = server.finish()?;
    let Received { lines, kernel_dropped, cpu_seconds, .. } = serde_json::from_str(&told)?;
    Ok((Arrived { received: lines, kernel_dropped, ..Arrived::default() }, cpu_seconds))
}

/// Watches how busy the machine is with other things: noise that a reader should know of.
pub struct Others {
    began: Instant,
    /// The machine's time less our own.
    before: f64,
}

impl Others {
    /// From now on.
    pub fn watch() -> Result<Self> {
        Ok(Self { began: Instant::now(), before: Self::but_us()? })
    }

    /// Cores that they used since, when the server used so many seconds.
    pub fn cores(&self, server: f64) -> Result<f64> {
        let used = Self::but_us()? - self.before - server;
        // The machine's books are coarser than a process's, so the difference may be negative.
        Ok((used / self.began.elapsed().as_secs_f64()).max(0.0))
    }

    fn but_us() -> Result<f64> {
        Ok(cpu::of_machine()? - cpu::of_this_process()?)
    }
}

/// The last lines of a log.
pub fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Seconds without anything after which the bare receiver takes the load for over; a sender on a
/// busy machine may be kept waiting for a part of that.
const IDLE: &str = "1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_explained_by_the_kernel_or_not_at_all() {
        let trial = |kernel_dropped| Trial {
            sent: Sent { points: 1000, ..Sent::default() },
            arrived: Arrived { received: 900, kernel_dropped, ..Arrived::default() },
            cpu_seconds: 0.0018,
            others: 0.0,
            pack: 25,
        };
        assert_eq!(trial(4).unexplained(), 0);
        assert_eq!(trial(3).unexplained(), 25);
        assert_eq!(trial(5).unexplained(), -25);
        assert!((trial(4).loss() - 0.1).abs() < 1e-12);
        assert!((trial(4).per_million() - 2.0).abs() < 1e-12);
    }
}
