//! Where servers do their tasks, and what came of it at the other end.
//!
//! A trial lasts until everything is at the sink, which is a part of the generator's and knows what
//! the sum of everything must be. Its CPU time is the whole server's until then.

use crate::cpu;
use crate::gateway;
use crate::kernel;
use crate::mix;
use crate::outlet::Outlet;
use crate::pace::rest;
use crate::peer::Place;
use crate::report::Sent;
use crate::server::Server;
use crate::tally::{Format, Tally};
use crate::task::{Task, Who};
use crate::trial::{Bench, Load, Others, settle_bare, tail};
use crate::verdict::Verdict;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Where tasks are done.
pub struct Arena<'a> {
    pub bench: &'a Bench,
    /// The folder that the peers are installed in.
    pub tools: &'a Path,
    /// The part of everybody's rate that is offered.
    pub share: f64,
}

/// What came of one trial.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    pub sent: Sent,
    /// Points that reached the server, or with it the sink where each of them has to.
    pub arrived: u64,
    /// What the sink has.
    pub out: Tally,
    /// Of the whole server.
    pub cpu_seconds: f64,
    /// Cores that neither the server nor the generator used.
    pub others: f64,
    pub verdict: Verdict,
}

impl Arena<'_> {
    /// Starts a server, has it do the task, and stops it.
    pub fn run(&self, task: Task, who: Who, rate: f64) -> Result<Trial> {
        let directory = tempfile::tempdir()?;
        // What the sink does is the generator's.
        cpu::pin(self.bench.cpus.generator)?;
        let outlet = Outlet::start(task.format(who))?;
        let load = task.load(who, rate * self.share);
        let mut server = self.start(task, who, load, directory.path(), outlet.address())?;
        let trial = self.offer(task, who, load, &mut server, &outlet);
        trial.with_context(|| format!("{task}, {who}; its log ends:\n{}", tail(&server.log())))
    }

    fn start(
        &self,
        task: Task,
        who: Who,
        load: Load,
        directory: &Path,
        outlet: SocketAddr,
    ) -> Result<Server> {
        let &Bench { ref gateway, cpus, window, .. } = self.bench;
        let section = match (who, task.format(who)) {
            (Who::Bare, _) => return self.bench.start_bare(load, directory),
            (Who::Peer(peer), _) => {
                return peer.start(&Place { tools: self.tools, directory, cpus, window }, outlet);
            }
            (Who::Gateway, Format::Statsd) => gateway::of_statsd(outlet),
            (Who::Gateway, _) => gateway::of_influxdb(outlet, window),
        };
        gateway::start(gateway, &section, directory, cpus)
    }

    fn offer(
        &self,
        task: Task,
        who: Who,
        load: Load,
        server: &mut Server,
        outlet: &Outlet,
    ) -> Result<Trial> {
        let others = Others::watch()?;
        let listener = if who == Who::Bare { "bare" } else { load.listener() };
        let inlet = server.address(listener, load.scheme())?;
        let mut sent = self.bench.offer(load, inlet, task.seconds(self.bench.seconds))?;
        if let Some(datagrams) = sent.datagrams {
            sent.halves = mix::halves_of_datagrams(self.bench.names, load.pack(), datagrams);
        }
        let mut trial = match who {
            Who::Bare => settle_floor(sent, load, server)?,
            Who::Gateway => self.settle_gateway(task, load, sent, server, outlet)?,
            Who::Peer(_) => self.settle(task, load, sent, server, outlet)?,
        };
        trial.others = others.cores(trial.cpu_seconds)?;
        Ok(trial)
    }

    /// What the gateway says of itself has to be so, too.
    fn settle_gateway(
        &self,
        task: Task,
        load: Load,
        sent: Sent,
        server: &Server,
        outlet: &Outlet,
    ) -> Result<Trial> {
        let (points, pack, window) = (sent.points, load.pack(), self.bench.window);
        let books = gateway::deliver(server, load.listener(), points, pack, window)?;
        let mut trial = self.settle(task, load, sent, server, outlet)?;
        trial.verdict =
            trial.verdict.max(Verdict::of_books(points, books.told(pack), books.dropped));
        Ok(trial)
    }

    /// Waits until the sink has all of it, or for long enough in vain.
    fn settle(
        &self,
        task: Task,
        load: Load,
        sent: Sent,
        server: &Server,
        outlet: &Outlet,
    ) -> Result<Trial> {
        let patience = task.patience(self.bench.window);
        let mut changed = Instant::now();
        let mut out = outlet.tally();
        let mut excused = excused(server, load)?;
        while !task.is_done(&sent, excused, &out) && changed.elapsed() < patience {
            rest(GLANCE);
            let now = outlet.tally();
            if task.progress(&now) != task.progress(&out) {
                changed = Instant::now();
            }
            out = now;
            excused = self::excused(server, load)?;
        }
        Ok(Trial {
            cpu_seconds: server.cpu_seconds()?,
            arrived: task.arrived(&sent, excused, &out),
            verdict: task
                .judge(&sent, excused, &out)
                .max(Verdict::of_sink(outlet.kernel_dropped()?))
                .max(Verdict::of_answers(&sent)),
            others: 0.0,
            out,
            sent,
        })
    }
}

/// Points that the kernel dropped in front of the server.
fn excused(server: &Server, load: Load) -> Result<u64> {
    if load.scheme() != "udp" {
        return Ok(0);
    }
    Ok(kernel::dropped(server.address(load.listener(), load.scheme())?)? * load.pack())
}

/// Of the bare receiver, which ends by itself.
fn settle_floor(sent: Sent, load: Load, server: &mut Server) -> Result<Trial> {
    let (books, cpu_seconds) = settle_bare(server)?;
    let lost = Verdict::of_loss(sent.points.saturating_sub(books.received));
    let verdict = lost.max(Verdict::of_books(sent.points, books.told(load.pack()), 0));
    Ok(Trial { sent, arrived: books.received, cpu_seconds, verdict, ..Trial::default() })
}

impl Trial {
    /// CPU seconds of the server per million points that arrived.
    pub fn per_million(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.arrived.max(1) as f64
    }

    /// The part of the points that did not arrive.
    pub fn loss(&self) -> f64 {
        let lost = self.sent.points.saturating_sub(self.arrived);
        lost as f64 / self.sent.points.max(1) as f64
    }

    /// Bytes of a datagram, or of a request's body, that came out.
    pub fn packet(&self) -> f64 {
        self.out.bytes as f64 / self.out.packets as f64
    }
}

const GLANCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_what_arrived() {
        let trial = Trial {
            sent: Sent { points: 2_000_000, ..Sent::default() },
            arrived: 1_000_000,
            out: Tally { bytes: 2864, packets: 2, ..Tally::default() },
            cpu_seconds: 0.5,
            ..Trial::default()
        };
        assert!((trial.per_million() - 0.5).abs() < 1e-9);
        assert!((trial.loss() - 0.5).abs() < 1e-9);
        assert!((trial.packet() - 1432.0).abs() < 1e-9);
    }
}
