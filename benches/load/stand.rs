//! A gateway with several backends and routes, and one load on it.

use crate::cpu::Cpus;
use crate::gateway;
use crate::http;
use crate::ledger::{Ledger, Sendings, Until};
use crate::mix::Datagrams;
use crate::report::Sent;
use crate::server::{Memory, Server};
use crate::statsd::{Flow, send_datagrams};
use crate::tcp;
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

impl Host {
    /// This machine.
    pub fn of(gateway: PathBuf) -> Result<Self> {
        Ok(Self { gateway, cpus: Cpus::allowed()? })
    }
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

    /// One more backend, which alone is sent what has this name.
    pub fn first(mut self, pattern: &str, name: &str, section: &str) -> Self {
        self.backends.push((name.to_owned(), section.to_owned()));
        let (name, to) = (pattern.to_owned(), vec![name.to_owned()]);
        self.routes.insert(0, Route { name, to, is_final: true });
        self
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
             bind = [\"udp://127.0.0.1:0\", \"tcp://127.0.0.1:0\"]\nsockets = {}\n",
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

    /// A value of the metrics page, called by its name and all of its labels.
    pub fn metric(&self, sample: &str) -> Result<f64> {
        let page = String::from_utf8(http::get(self.server.address("admin", "tcp")?, "/metrics")?)?;
        let value = page.lines().find_map(|line| line.strip_prefix(sample));
        let value = value.with_context(|| format!("there is no {sample}"))?;
        value.trim().parse().with_context(|| format!("{sample} is no number"))
    }

    /// Sends the load, waits for what was asked for, and reads the books, which must tell of
    /// every point. Once: the books are of all that a gateway has seen.
    pub fn offer(&self, datagrams: &Datagrams, flow: Flow, until: Until<'_>) -> Result<Run> {
        self.offer_among(datagrams, flow, until, || Ok(0))
    }

    /// The same lines over TCP, which loses none.
    pub fn pour(&self, datagrams: &Datagrams, flow: Flow, until: Until<'_>) -> Result<Run> {
        let others = Others::watch()?;
        let sent = tcp::send_datagrams(self.server.address("statsd", "tcp")?, datagrams, flow)?;
        let sendings = Sendings { points: sent.points, pack: flow.pack, marks: 0 };
        self.settle(sent, sendings, &others, until)
    }

    /// The same as [`offer`](Self::offer) among marks, whose sender ends when it is asked how many
    /// they were.
    pub fn offer_among(
        &self,
        datagrams: &Datagrams,
        flow: Flow,
        until: Until<'_>,
        marks: impl FnOnce() -> Result<u64>,
    ) -> Result<Run> {
        self.run(datagrams, flow, until, marks)
            .with_context(|| format!("the gateway's log ends:\n{}", tail(&self.server.log())))
    }

    fn run(
        &self,
        datagrams: &Datagrams,
        flow: Flow,
        until: Until<'_>,
        marks: impl FnOnce() -> Result<u64>,
    ) -> Result<Run> {
        let others = Others::watch()?;
        let sent = send_datagrams(self.datagrams()?, datagrams, flow)?;
        let sendings = Sendings { points: sent.points, pack: flow.pack, marks: marks()? };
        self.settle(sent, sendings, &others, until)
    }

    fn settle(
        &self,
        sent: Sent,
        sendings: Sendings,
        others: &Others,
        until: Until<'_>,
    ) -> Result<Run> {
        let ledger = Ledger::settle(&self.server, sendings, until)?;
        ledger.check(sendings)?;
        let cpu_seconds = self.server.cpu_seconds()?;
        Ok(Run {
            others: others.cores(cpu_seconds)?,
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

    /// The part of the load that did not arrive, or was given up by a backend.
    pub fn loss(&self) -> f64 {
        let lost = self.sent.points.saturating_sub(self.ledger.received()) + self.ledger.dropped();
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
        let plan = plan.first("b", "alone", "kind = \"blackhole\"\n");
        let text: toml_edit::DocumentMut = plan.configuration().parse().unwrap();
        assert_eq!(text["listeners"]["statsd"]["sockets"].as_integer(), Some(2));
        assert_eq!(text["backends"]["other"]["kind"].as_str(), Some("stdout"));
        let routes = text["routes"].as_array_of_tables().unwrap();
        let names: Vec<_> = routes.iter().map(|route| route["match"]["name"].as_str()).collect();
        assert_eq!(names, [Some("b"), Some("*"), Some("*"), Some("a.*")]);
        assert_eq!(routes.get(0).unwrap()["final"].as_bool(), Some(true));
        assert_eq!(routes.get(3).unwrap()["to"].as_array().map(toml_edit::Array::len), Some(2));
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
