//! One task that several servers are given, each at a rate that it bears, and what came of it at
//! the other end.
//!
//! A trial lasts until everything is at the sink, which is a part of the generator's and knows what
//! the sum of everything must be. Its CPU time is the whole server's until then.

use crate::cpu;
use crate::gateway;
use crate::kernel;
use crate::mix;
use crate::outlet::Outlet;
use crate::pace::rest;
use crate::peer::{Peer, Place};
use crate::report::Sent;
use crate::server::Server;
use crate::tally::{Format, Tally};
use crate::trial::{Bench, Load, Others, settle_bare, tail};
use crate::verdict::Verdict;
use anyhow::{Context, Result};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// statsd over UDP is summed up in windows.
    Aggregate { pack: u64 },
    /// Points of OpenTSDB's `put` over TCP are forwarded over HTTP, each of them.
    Put,
    /// Points of OpenTSDB's `/api/put` are.
    ApiPut,
    /// statsd over UDP is passed on as statsd over UDP.
    Relay { pack: u64 },
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The bare receiver, which forwards nothing.
    Bare,
    Gateway,
    Peer(Peer),
}

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
pub struct Run {
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

impl Task {
    /// Who takes part, with the lines a second that each is offered; those of TCP are flat out.
    /// The rates of peers are such as they bear without loss on a machine that is not quite idle.
    pub fn entrants(self) -> Vec<(Who, f64)> {
        let peer = Who::Peer;
        match self {
            Self::Aggregate { pack: 1 } => vec![
                (Who::Bare, 300e3),
                (Who::Gateway, 300e3),
                (peer(Peer::Collectd), 100e3),
                (peer(Peer::Statsd), 30e3),
            ],
            Self::Aggregate { .. } => vec![
                (Who::Bare, 1.5e6),
                (Who::Gateway, 1.5e6),
                (peer(Peer::Collectd), 500e3),
                (peer(Peer::Statsd), 100e3),
            ],
            Self::Put | Self::ApiPut => [Who::Bare, Who::Gateway, peer(Peer::Vmagent)]
                .map(|who| (who, f64::INFINITY))
                .to_vec(),
            Self::Relay { pack: 1 } => vec![
                (Who::Gateway, 200e3),
                (peer(Peer::Statsdproxy), 200e3),
                (peer(Peer::Repeater), 15e3),
            ],
            Self::Relay { .. } => vec![
                (Who::Gateway, 800e3),
                (peer(Peer::Statsdproxy), 500e3),
                (peer(Peer::Repeater), 100e3),
            ],
        }
    }

    const fn is_aggregation(self) -> bool {
        matches!(self, Self::Aggregate { .. })
    }

    /// Only windows need the time to close; a part of it is enough for the rest.
    fn seconds(self, seconds: f64) -> f64 {
        if self.is_aggregation() { seconds } else { seconds / 3.0 }
    }

    /// What is sent; HTTP is TCP underneath, so its floor is that of `put`.
    fn load(self, who: Who, rate: f64) -> Load {
        match self {
            Self::Aggregate { pack } | Self::Relay { pack } => Load::Datagrams { pack, rate },
            Self::ApiPut if who != Who::Bare => Load::ApiPut,
            Self::Put | Self::ApiPut => Load::Put,
        }
    }

    const fn format_of_gateway(self) -> Format {
        match self {
            Self::Relay { .. } => Format::Statsd,
            _ => Format::LineProtocol,
        }
    }

    /// Whether all that was sent is there, or the kernel tells why it is not.
    fn is_complete(self, sent: &Sent, excused: u64, out: &Tally) -> bool {
        if self.is_aggregation() {
            Some(out.counter_sum) >= sent.counter_sum
                || (out.told > 0 && out.told + excused >= sent.points)
        } else {
            out.points + excused >= sent.points
        }
    }

    /// What changes while there is something new; rows of idle series are not.
    const fn progress(self, out: &Tally) -> (u64, u64) {
        if self.is_aggregation() { (out.counter_sum, out.told) } else { (out.points, out.halves) }
    }

    /// How long nothing new may come before what is there is all.
    fn patience(self, window: f64) -> Duration {
        PATIENCE + Duration::from_secs_f64(if self.is_aggregation() { window } else { 0.0 })
    }

    fn judge(self, sent: &Sent, excused: u64, out: &Tally) -> Verdict {
        if self.is_aggregation() {
            Verdict::of_sums(sent, excused, out)
        } else {
            Verdict::of_points(sent, out)
        }
    }
}

impl Arena<'_> {
    /// Starts a server, has it do the task, and stops it.
    pub fn run(&self, task: Task, who: Who, rate: f64) -> Result<Run> {
        let directory = tempfile::tempdir()?;
        // What the sink does is the generator's.
        cpu::pin(self.bench.cpus.generator)?;
        let outlet = Outlet::start(match who {
            Who::Peer(peer) => peer.format(),
            Who::Bare | Who::Gateway => task.format_of_gateway(),
        })?;
        let load = task.load(who, rate * self.share);
        let mut server = self.start(task, who, load, directory.path(), outlet.address())?;
        let run = self.offer(task, who, load, &mut server, &outlet);
        run.with_context(|| format!("{task}, {who}; its log ends:\n{}", tail(&server.log())))
    }

    fn start(
        &self,
        task: Task,
        who: Who,
        load: Load,
        directory: &Path,
        outlet: SocketAddr,
    ) -> Result<Server> {
        let Bench { gateway, cpus, window, .. } = self.bench;
        let (cpus, window) = (*cpus, *window);
        match who {
            Who::Bare => self.bench.start_bare(load, directory),
            Who::Gateway => {
                let section = match task.format_of_gateway() {
                    Format::Statsd => gateway::of_statsd(outlet),
                    _ => gateway::of_influxdb(outlet, window),
                };
                gateway::start(gateway, &section, directory, cpus)
            }
            Who::Peer(peer) => {
                peer.start(&Place { tools: self.tools, directory, cpus, window }, outlet)
            }
        }
    }

    fn offer(
        &self,
        task: Task,
        who: Who,
        load: Load,
        server: &mut Server,
        outlet: &Outlet,
    ) -> Result<Run> {
        let others = Others::watch()?;
        let listener = if who == Who::Bare { "bare" } else { load.listener() };
        let inlet = server.address(listener, load.scheme())?;
        let mut sent = self.bench.offer(load, inlet, task.seconds(self.bench.seconds))?;
        if let Some(datagrams) = sent.datagrams {
            sent.halves = mix::halves_of_datagrams(self.bench.names, load.pack(), datagrams);
        }
        let mut run = match who {
            Who::Bare => received(sent, load, server)?,
            Who::Gateway => {
                let Bench { window, .. } = *self.bench;
                let (points, pack) = (sent.points, load.pack());
                let books = gateway::deliver(server, listener, points, pack, window)?;
                let mut run = self.settle(task, load, sent, inlet, server, outlet)?;
                if books.told(pack) != points || books.dropped > 0 {
                    let off = points.cast_signed() - books.told(pack).cast_signed();
                    run.verdict = run.verdict.max(Verdict::Books { off, dropped: books.dropped });
                }
                run
            }
            Who::Peer(_) => self.settle(task, load, sent, inlet, server, outlet)?,
        };
        run.others = others.cores(run.cpu_seconds)?;
        Ok(run)
    }

    /// Waits until the sink has all of it, or for long enough in vain.
    fn settle(
        &self,
        task: Task,
        load: Load,
        sent: Sent,
        inlet: SocketAddr,
        server: &Server,
        outlet: &Outlet,
    ) -> Result<Run> {
        let patience = task.patience(self.bench.window);
        let mut changed = Instant::now();
        let mut out = outlet.tally();
        loop {
            let kernel_dropped = if load.pack() > 0 { kernel::dropped(inlet)? } else { 0 };
            let excused = kernel_dropped * load.pack();
            if task.is_complete(&sent, excused, &out) || changed.elapsed() > patience {
                let cpu_seconds = server.cpu_seconds()?;
                let arrived =
                    if task.is_aggregation() { sent.points - excused } else { out.points };
                let verdict = task
                    .judge(&sent, excused, &out)
                    .max(Verdict::of_sink(outlet.kernel_dropped()?))
                    .max(Verdict::of_answers(&sent));
                let others = 0.0;
                return Ok(Run { sent, arrived, out, cpu_seconds, others, verdict });
            }
            rest(GLANCE);
            let now = outlet.tally();
            if task.progress(&now) != task.progress(&out) {
                changed = Instant::now();
            }
            out = now;
        }
    }
}

/// Of the bare receiver, which ends by itself.
fn received(sent: Sent, load: Load, server: &mut Server) -> Result<Run> {
    let (books, cpu_seconds) = settle_bare(server)?;
    let excused = books.kernel_dropped * load.pack();
    let verdict = match books.received {
        all if all == sent.points => Verdict::Exact,
        some if some + excused == sent.points => Verdict::Lost { points: excused },
        some => {
            let off = sent.points.cast_signed() - (some + excused).cast_signed();
            Verdict::Books { off, dropped: 0 }
        }
    };
    Ok(Run { sent, arrived: books.received, cpu_seconds, verdict, ..Run::default() })
}

impl Run {
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

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Self::Aggregate { pack } => format!("statsd summed up, pack {pack}"),
            Self::Put => "put over TCP, forwarded".to_owned(),
            Self::ApiPut => "/api/put, forwarded".to_owned(),
            Self::Relay { pack } => format!("statsd relayed, pack {pack}"),
        })
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bare => f.pad("bare"),
            Self::Gateway => f.pad("gateway"),
            Self::Peer(peer) => peer.fmt(f),
        }
    }
}

/// All tasks, in the order of the table.
pub const TASKS: [Task; 6] = [
    Task::Aggregate { pack: 25 },
    Task::Aggregate { pack: 1 },
    Task::Put,
    Task::ApiPut,
    Task::Relay { pack: 25 },
    Task::Relay { pack: 1 },
];

/// Servers send what is left in a buffer after a second or two.
const PATIENCE: Duration = Duration::from_secs(4);

const GLANCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_done_when_the_sum_is_there() {
        let sent = Sent { points: 100, counter_sum: Some(40), ..Sent::default() };
        let task = Task::Aggregate { pack: 25 };
        let check = |counter_sum, told, excused, expected| {
            let out = Tally { counter_sum, told, ..Tally::default() };
            assert_eq!(task.is_complete(&sent, excused, &out), expected, "{out:?} {excused}");
        };
        check(40, 0, 0, true);
        check(39, 0, 0, false);
        check(39, 0, 25, false); // Who does not tell may have more to come.
        check(39, 75, 25, true);
        check(39, 75, 0, false);
    }

    #[test]
    fn a_relay_is_done_when_every_line_is_there() {
        let sent = Sent { points: 100, ..Sent::default() };
        let check = |points, excused, expected| {
            let out = Tally { points, ..Tally::default() };
            let done = Task::Relay { pack: 1 }.is_complete(&sent, excused, &out);
            assert_eq!(done, expected, "{points} {excused}");
        };
        check(100, 0, true);
        check(99, 0, false);
        check(99, 1, true);
    }

    #[test]
    fn everybody_is_held_against_the_gateway() {
        for task in TASKS {
            assert!(task.entrants().iter().any(|(who, _)| *who == Who::Gateway), "{task}");
        }
    }

    #[test]
    fn figures_are_of_what_arrived() {
        let run = Run {
            sent: Sent { points: 2_000_000, ..Sent::default() },
            arrived: 1_000_000,
            out: Tally { bytes: 2864, packets: 2, ..Tally::default() },
            cpu_seconds: 0.5,
            ..Run::default()
        };
        assert!((run.per_million() - 0.5).abs() < 1e-9);
        assert!((run.loss() - 0.5).abs() < 1e-9);
        assert!((run.packet() - 1432.0).abs() < 1e-9);
    }
}
