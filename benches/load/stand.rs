//! A gateway with several backends and routes, and one load on it.

use crate::cpu::Cpus;
use crate::gateway;
use crate::ledger::{Ledger, Until};
use crate::mix::Datagrams;
use crate::report::Sent;
use crate::server::{Memory, Server};
use crate::statsd::{Flow, send_datagrams};
use crate::trial::{Others, tail};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use tempfile::TempDir;

/// Where gateways run.
#[derive(Clone, Debug)]
pub struct Host {
    /// The gateway's binary.
    pub gateway: PathBuf,
    pub cpus: Cpus,
}

/// What a gateway is to be like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// That receive datagrams; none is one.
    pub sockets: u64,
    /// The name and the section of each.
    pub backends: Vec<(String, String)>,
    pub routes: Vec<Route>,
}

/// One entry of the routing table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The pattern of the names that are meant.
    pub name: String,
    pub to: Vec<String>,
    pub is_final: bool,
}

/// A running gateway.
pub struct Stand {
    server: Server,
    /// Its files, which go when it has gone.
    _directory: TempDir,
}

/// What came of a load.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub sent: Sent,
    pub ledger: Ledger,
    /// Of the gateway, since it was ready.
    pub cpu_seconds: f64,
    pub memory: Memory,
    /// Cores that were busy with something else.
    pub others: f64,
}

impl Plan {
    /// One backend of this section, which is sent everything.
    pub fn of(section: &str) -> Self {
        Self::default().to(BACKEND, section)
    }

    /// One more backend that is sent everything.
    pub fn to(mut self, name: &str, section: &str) -> Self {
        self.backends.push((name.to_owned(), section.to_owned()));
        self.route("*", &[name])
    }

    /// One more route, behind the others.
    pub fn route(mut self, name: &str, to: &[&str]) -> Self {
        let to = to.iter().map(|&to| to.to_owned()).collect();
        self.routes.push(Route { name: name.to_owned(), to, is_final: false });
        self
    }

    fn configuration(&self) -> String {
        let mut text = format!(
            "[admin]\nbind = \"127.0.0.1:0\"\n\n[listeners.statsd]\nprotocol = \"statsd\"\n\
             bind = [\"udp://127.0.0.1:0\"]\nsockets = {}\n",
            self.sockets.max(1)
        );
        // Writing to a String does not fail.
        for (name, section) in &self.backends {
            let _ = write!(text, "\n[backends.{name}]\n{section}");
        }
        for (number, Route { name, to, is_final }) in self.routes.iter().enumerate() {
            let _ = write!(
                text,
                "\n[[routes]]\nname = \"route {number}\"\nmatch = {{ name = {name:?} }}\n\
                 to = {to:?}\nfinal = {is_final}\n"
            );
        }
        text
    }
}

impl Stand {
    /// Starts a gateway and waits until it is ready.
    pub fn start(host: &Host, plan: &Plan) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let text = plan.configuration();
        let server = gateway::start_with(&host.gateway, &text, directory.path(), host.cpus)?;
        Ok(Self { server, _directory: directory })
    }

    /// Where it takes datagrams.
    pub fn datagrams(&self) -> Result<SocketAddr> {
        self.server.address("statsd", "udp")
    }

    /// Sends the load, waits for what was asked for, and reads the books, which must tell of
    /// every point.
    pub fn offer(&self, datagrams: &Datagrams, flow: Flow, until: Until) -> Result<Run> {
        self.run(datagrams, flow, until)
            .with_context(|| format!("the gateway's log ends:\n{}", tail(&self.server.log())))
    }

    fn run(&self, datagrams: &Datagrams, flow: Flow, until: Until) -> Result<Run> {
        let others = Others::watch()?;
        let before = self.server.cpu_seconds()?;
        let told_before = Ledger::read(&self.server)?.datagrams().told(flow.pack);
        let sent = send_datagrams(self.datagrams()?, datagrams, flow)?;
        let told = told_before + sent.points;
        let ledger = Ledger::settle(&self.server, told, flow.pack, until)?;
        ledger.check(told, flow.pack)?;
        let cpu_seconds = self.server.cpu_seconds()?;
        Ok(Run {
            others: others.cores(cpu_seconds - before)?,
            memory: self.server.memory()?,
            cpu_seconds,
            ledger,
            sent,
        })
    }
}

impl Run {
    /// CPU seconds per million points received.
    pub fn per_million(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.ledger.datagrams().received.max(1) as f64
    }

    /// The part of the points that did not arrive, or were given up by a backend.
    pub fn loss(&self) -> f64 {
        let book = self.ledger.datagrams();
        let lost = self.sent.points.saturating_sub(book.received) + self.ledger.dropped();
        lost as f64 / self.sent.points.max(1) as f64
    }
}

/// The section of a backend of windows as they are by default, at this URL.
pub fn influxdb(url: &str) -> String {
    format!("kind = \"influxdb\"\nurl = \"{url}\"\ndatabase = \"load\"\n")
}

/// What a backend is called that is alone.
pub const BACKEND: &str = "sink";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_written_as_the_gateway_reads_it() {
        let plan = Plan { sockets: 2, ..Plan::of("kind = \"blackhole\"\n") };
        let plan = plan.to("other", "kind = \"stdout\"\n").route("a.*", &[BACKEND, "other"]);
        let text: toml_edit::DocumentMut = plan.configuration().parse().unwrap();
        assert_eq!(text["listeners"]["statsd"]["sockets"].as_integer(), Some(2));
        assert_eq!(text["backends"]["other"]["kind"].as_str(), Some("stdout"));
        let routes = text["routes"].as_array_of_tables().unwrap();
        let names: Vec<_> = routes.iter().map(|route| route["match"]["name"].as_str()).collect();
        assert_eq!(names, [Some("*"), Some("*"), Some("a.*")]);
        assert_eq!(routes.get(2).unwrap()["to"].as_array().map(toml_edit::Array::len), Some(2));
    }

    #[test]
    fn losses_are_those_of_the_kernel_and_of_backends() {
        let mut run = Run { sent: Sent { points: 100, ..Sent::default() }, ..Run::default() };
        let statsd = crate::ledger::ListenerBook { received: 75, ..Default::default() };
        run.ledger.listeners.insert("statsd".to_owned(), statsd);
        let dropped = [("inbox_full".to_owned(), 5)].into();
        let sink = crate::ledger::BackendBook { dropped, ..Default::default() };
        run.ledger.backends.insert(BACKEND.to_owned(), sink);
        assert!((run.loss() - 0.3).abs() < 1e-12);
    }
}
