//! The gateway against its peers: every task, every server, round after round.
//!
//! Ratios are taken within a round, between servers measured seconds apart, and the medians over
//! the rounds are shown. A peer that is not installed, or does not start, is said to be missing.

use crate::compare::{QUIET, median};
use crate::contest::{Arena, Run, Task, Who};
use crate::promise::{Found, PROMISES};
use crate::report::short;
use crate::verdict::Verdict;
use anyhow::Result;
use serde::Serialize;
use std::fmt;

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Contests {
    rows: Vec<Row>,
    /// Who could not take part, and why.
    missing: Vec<Missing>,
    promises: Vec<Found>,
    rounds: u32,
    /// Seconds that a load with windows was offered, and of a window.
    seconds: f64,
    window: f64,
}

/// One server at one task, in the median of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub task: String,
    pub server: String,
    /// Points a second that were offered, or taken when the load is flat out.
    pub rate: f64,
    /// The worst round's part of points that did not arrive.
    pub loss: f64,
    /// CPU seconds of the server per million points that arrived.
    pub cpu_per_million: f64,
    /// To the bare receiver of the same round.
    pub of_bare: Option<f64>,
    /// To the gateway of the same round.
    pub of_gateway: Option<f64>,
    /// Bytes of a datagram, or of a request, that came out.
    pub packet: Option<f64>,
    /// In the worst round.
    pub sums: Verdict,
    /// Cores that were busy with something else, in the worst round.
    pub others: f64,
    /// CPU seconds per million in each round.
    pub rounds: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Missing {
    server: String,
    why: String,
}

/// One server's runs of one task, a round each.
pub struct Column {
    pub task: Task,
    pub who: Who,
    pub rate: f64,
    pub runs: Vec<Run>,
}

/// Has every server that is there do every task, as often as there are rounds.
pub fn measure(arena: &Arena<'_>, tasks: &[Task], rounds: u32) -> Result<Contests> {
    let (mut columns, mut missing) = line_up(arena, tasks);
    for _ in 0..rounds {
        let mut gone = None;
        for (at, column) in columns.iter_mut().enumerate() {
            match (arena.run(column.task, column.who, column.rate), column.who) {
                (Ok(run), _) => column.runs.push(run),
                (Err(error), Who::Peer(_)) => gone = Some((at, format!("{error:#}"))),
                (Err(error), _) => return Err(error),
            }
        }
        if let Some((at, why)) = gone {
            let Column { who, .. } = columns.remove(at);
            missing.push(Missing { server: who.to_string(), why });
        }
    }
    Ok(Contests {
        rows: columns.iter().map(|column| column.row(&columns)).collect(),
        missing,
        promises: PROMISES.iter().filter_map(|promise| promise.find(&columns)).collect(),
        rounds,
        seconds: arena.bench.seconds,
        window: arena.bench.window,
    })
}

/// Who takes part, and who cannot.
fn line_up(arena: &Arena<'_>, tasks: &[Task]) -> (Vec<Column>, Vec<Missing>) {
    let mut columns = Vec::new();
    let mut missing = Vec::new();
    for &task in tasks {
        for (who, rate) in task.entrants() {
            match who {
                Who::Peer(peer) if !peer.is_installed(arena.tools) => {
                    let why = "not installed".to_owned();
                    missing.push(Missing { server: peer.to_string(), why });
                }
                _ => columns.push(Column { task, who, rate, runs: Vec::new() }),
            }
        }
    }
    missing.dedup();
    (columns, missing)
}

impl Contests {
    /// Whether whatever the gateway and the bare receiver had is explained.
    pub fn is_exact(&self) -> bool {
        let ours = [Who::Bare, Who::Gateway].map(|who| who.to_string());
        self.rows.iter().filter(|row| ours.contains(&row.server)).all(|row| row.sums.is_explained())
    }

    /// Tables for a page.
    pub const fn markdown(&self) -> Markdown<'_> {
        Markdown(self)
    }
}

impl Column {
    fn row(&self, all: &[Self]) -> Row {
        let rounds: Vec<f64> = self.runs.iter().map(Run::per_million).collect();
        let worst = |of: fn(&Run) -> f64| self.runs.iter().map(of).fold(0.0, f64::max);
        let packets = self.runs.iter().map(Run::packet).filter(|bytes| bytes.is_finite());
        let to = |who| if who == self.who { None } else { ratio(all, self.task, self.who, who) };
        Row {
            task: self.task.to_string(),
            server: self.who.to_string(),
            rate: median(self.runs.iter().map(|run| run.sent.rate()).collect()),
            loss: worst(Run::loss),
            cpu_per_million: median(rounds.clone()),
            of_bare: to(Who::Bare),
            of_gateway: to(Who::Gateway),
            packet: Some(median(packets.collect())).filter(|bytes| bytes.is_finite()),
            sums: self.runs.iter().map(|run| run.verdict).max().unwrap_or_default(),
            others: worst(|run| run.others),
            rounds,
        }
    }
}

/// How many times the CPU time of one server another one takes for a point, within each round.
pub fn ratio(all: &[Column], task: Task, of: Who, to: Who) -> Option<f64> {
    let column = |who| all.iter().find(|column| column.task == task && column.who == who);
    let pairs = column(of)?.runs.iter().zip(&column(to)?.runs);
    let ratios = pairs.map(|(of, to)| of.per_million() / to.per_million()).collect();
    Some(median(ratios)).filter(|ratio| ratio.is_finite())
}

impl fmt::Display for Contests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<26} {:<15} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}  {:<14} {:>6}  CPU-s/M of each round",
            "task",
            "server",
            "points/s",
            "lost",
            "CPU-s/M",
            "x bare",
            "x gateway",
            "B/packet",
            "sums",
            "others"
        )?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        for Missing { server, why } in &self.missing {
            writeln!(f, "{server}: left out, {why}")?;
        }
        self.promises.iter().try_for_each(|found| writeln!(f, "{found}"))?;
        if self.rows.iter().any(|row| row.others > QUIET) {
            writeln!(f, "Others used more than {QUIET} core meanwhile: losses may be theirs.")?;
        }
        write!(f, "Compare ratios, never rates: see benches/README.md.")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, server, cpu_per_million, sums, others, .. } = self;
        let times = |ratio: Option<f64>| ratio.map_or_else(String::new, |x| format!("{x:.2}x"));
        let rounds: Vec<_> = self.rounds.iter().map(|round| format!("{round:.3}")).collect();
        write!(
            f,
            "{task:<26} {server:<15} {:>8} {:>7.3}% {cpu_per_million:>8.3} {:>8} {:>9} {:>8}  \
             {sums:<14} {others:>6.2}  {}",
            short(self.rate),
            self.loss * 100.0,
            times(self.of_bare),
            times(self.of_gateway),
            self.packet.map_or_else(String::new, |bytes| format!("{bytes:.0}")),
            rounds.join(", ")
        )
    }
}

/// The same as tables for a page.
pub struct Markdown<'a>(&'a Contests);

impl fmt::Display for Markdown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Contests { rows, missing, promises, rounds, seconds, window } = self.0;
        writeln!(
            f,
            "Medians of {rounds} rounds; {seconds} s of load with windows of {window} s, a third of \
             it without.\n"
        )?;
        writeln!(
            f,
            "| task | server | points/s | lost | CPU-s/M | × bare | × gateway | rounds | bytes a packet | sums |\n\
             |---|---|---|---|---|---|---|---|---|---|"
        )?;
        rows.iter().try_for_each(|row| row.markdown(f))?;
        for Missing { server, why } in missing {
            writeln!(f, "\n{server} was left out: {}.", why.lines().next().unwrap_or_default())?;
        }
        writeln!(f, "\n| task | wanted | found | |\n|---|---|---|---|")?;
        promises.iter().try_for_each(|found| found.markdown(f))
    }
}

impl Row {
    fn markdown(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, server, cpu_per_million, sums, .. } = self;
        let number = |ratio: Option<f64>| ratio.map_or_else(String::new, |x| format!("{x:.2}"));
        let least = self.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.rounds.iter().copied().fold(0.0, f64::max);
        writeln!(
            f,
            "| {task} | {server} | {} | {:.3} % | {cpu_per_million:.3} | {} | {} | {least:.3} – {most:.3} | {} | {sums} |",
            short(self.rate),
            self.loss * 100.0,
            number(self.of_bare),
            number(self.of_gateway),
            self.packet.map_or_else(String::new, |bytes| format!("{bytes:.0}"))
        )
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::peer::Peer;

    /// A column whose rounds took so many CPU seconds a million points.
    pub fn column(task: Task, who: Who, rounds: &[f64]) -> Column {
        let run = |cpu_seconds: &f64| Run {
            arrived: 1_000_000,
            cpu_seconds: *cpu_seconds,
            ..Run::default()
        };
        Column { task, who, rate: 1.0, runs: rounds.iter().map(run).collect() }
    }

    const RELAY: Task = Task::Relay { pack: 1 };
    const PROXY: Who = Who::Peer(Peer::Statsdproxy);

    /// A slow round slows all alike: only ratios of the same round are meant.
    #[test]
    fn ratios_are_taken_within_a_round() {
        let columns = [
            column(RELAY, Who::Gateway, &[1.0, 10.0, 2.0]),
            column(RELAY, PROXY, &[3.0, 30.0, 8.0]),
            column(Task::Put, Who::Gateway, &[7.0, 7.0, 7.0]),
        ];
        assert!((ratio(&columns, RELAY, PROXY, Who::Gateway).unwrap() - 3.0).abs() < 1e-9);
        assert_eq!(ratio(&columns, RELAY, PROXY, Who::Bare), None);
        assert_eq!(ratio(&columns, Task::Put, PROXY, Who::Gateway), None);
    }

    #[test]
    fn peers_that_are_not_there_are_named() {
        let row = column(RELAY, Who::Gateway, &[0.5]).row(&[]);
        let contests = Contests {
            rows: vec![row],
            missing: vec![Missing { server: "statsdproxy".into(), why: "not installed".into() }],
            promises: Vec::new(),
            rounds: 1,
            seconds: 12.0,
            window: 10.0,
        };
        assert!(contests.to_string().contains("statsdproxy: left out, not installed"));
        let page = contests.markdown().to_string();
        assert!(page.contains("| statsd relayed, pack 1 | gateway | "), "{page}");
        assert!(page.contains("statsdproxy was left out: not installed."), "{page}");
    }
}
