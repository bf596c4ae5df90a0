//! What spooling costs: the gateway with and without its disk, before a backend that is well and
//! before one that is away, and what it takes to catch up.
//!
//! Each round runs every case on a fresh gateway, and ratios are taken within a round. The load is
//! `put` over TCP, flat out, of points that no window folds, so that each of them reaches the
//! queue; bodies are not compressed, since that would hide what is looked for.

use crate::compare::median;
use crate::gateway::{self, Arrived};
use crate::mix::Form;
use crate::pace::rest;
use crate::report::{Sent, short};
use crate::server::Server;
use crate::sink::Sink;
use crate::tcp;
use crate::trial::{Bench, Others, tail};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Costs {
    rows: Vec<Row>,
}

/// Whether there is a spool, and a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    /// As the configuration has it.
    durability: Option<&'static str>,
    away: bool,
}

/// What came of one case in one round.
#[derive(Clone, Debug, Default)]
struct Trial {
    sent: Sent,
    arrived: Arrived,
    /// Of the gateway, until all was where it should be.
    cpu_seconds: f64,
    /// Bytes that it has handed to the disk by then.
    written: u64,
    /// How long the queue took to empty when the backend came back, and the CPU seconds of it.
    back: Option<(f64, f64)>,
    others: f64,
}

/// A case, in the median of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    backend: &'static str,
    spool: &'static str,
    rate: f64,
    cpu_per_million: f64,
    /// To the gateway without a spool whose backend is well.
    ratio: f64,
    megabytes_per_million: f64,
    /// Points a second, and CPU seconds per million, while catching up.
    back: Option<(f64, f64)>,
    /// In the worst round.
    dropped: u64,
    others: f64,
    /// The ratio in each round.
    rounds: Vec<f64>,
}

/// Runs every case as often as there are rounds.
pub fn measure(bench: &Bench, rounds: u32) -> Result<Costs> {
    let mut columns = CASES.map(|case| (case, Vec::new()));
    for _ in 0..rounds {
        for (case, trials) in &mut columns {
            trials.push(bench.run_case(*case)?);
        }
    }
    let [(_, floor), ..] = &columns;
    Ok(Costs { rows: columns.iter().map(|(case, trials)| case.row(trials, floor)).collect() })
}

impl Bench {
    fn run_case(&self, case: Case) -> Result<Trial> {
        let directory = tempfile::tempdir()?;
        // What the sink does is the generator's.
        crate::cpu::pin(self.cpus.generator)?;
        let sink = Sink::start(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = sink.address();
        let sink = Some(sink).filter(|_| !case.away);
        let section = case.section(address);
        let server = gateway::start(&self.gateway, &section, directory.path(), self.cpus)?;
        let trial = self.offer_case(case, &server, address);
        drop(sink);
        trial.with_context(|| format!("{case}; its log ends:\n{}", tail(&server.log())))
    }

    fn offer_case(&self, case: Case, server: &Server, backend: SocketAddr) -> Result<Trial> {
        let others = Others::watch()?;
        let Self { names, seconds, .. } = *self;
        let offer = tcp::Offer { form: Form::Put, names, connections: 4, rate: None, seconds };
        let sent = tcp::send(server.address(LISTENER, "tcp")?, offer)?;
        let arrived = gateway::settle(server, LISTENER, sent.points, 0)?;
        let cpu_seconds = server.cpu_seconds()?;
        let mut trial = Trial {
            others: others.cores(cpu_seconds)?,
            written: server.written()?,
            sent,
            arrived,
            cpu_seconds,
            back: None,
        };
        if case.away {
            let _sink = Sink::start(backend)?;
            let seconds = wait_until_empty(server)?;
            trial.back = Some((seconds, server.cpu_seconds()? - cpu_seconds));
        }
        trial.check(&gateway::backend_book(server)?)?;
        Ok(trial)
    }
}

impl Case {
    fn section(self, backend: SocketAddr) -> String {
        let (spool, durability) = match self.durability {
            Some(durability) => ("{ max_size = \"4GiB\" }", durability),
            None => ("false", "process"),
        };
        // The default holds all of a trial; a part of it makes an outage.
        let memory = if self.away { "8MiB" } else { "1GiB" };
        format!(
            "kind = \"influxdb\"\nurl = \"http://{backend}\"\ndatabase = \"d\"\ngzip = false\n\
             memory = \"{memory}\"\nspool = {spool}\ndurability = \"{durability}\"\n\
             flush = \"100ms\"\nretry = {{ max = \"100ms\" }}\n"
        )
    }

    fn row(self, trials: &[Trial], floor: &[Trial]) -> Row {
        let middle = |of: &dyn Fn(&Trial) -> f64| median(trials.iter().map(of).collect());
        let rounds: Vec<f64> = trials
            .iter()
            .zip(floor)
            .map(|(trial, floor)| {
                trial.per_million(trial.cpu_seconds) / floor.per_million(floor.cpu_seconds)
            })
            .collect();
        let back = |of: &dyn Fn(&Trial, (f64, f64)) -> f64| {
            median(trials.iter().filter_map(|trial| Some(of(trial, trial.back?))).collect())
        };
        let catching_up = (back(&|trial, (seconds, _)| trial.kept() / seconds), {
            back(&|trial, (_, cpu)| cpu * 1e6 / trial.kept())
        });
        Row {
            backend: if self.away { "away" } else { "well" },
            spool: self.durability.unwrap_or("off"),
            rate: middle(&|trial| trial.sent.rate()),
            cpu_per_million: middle(&|trial| trial.per_million(trial.cpu_seconds)),
            ratio: median(rounds.clone()),
            megabytes_per_million: middle(&|trial| trial.per_million(trial.written as f64 / 1e6)),
            back: (self.away && self.durability.is_some()).then_some(catching_up),
            dropped: trials.iter().map(|trial| trial.arrived.dropped).max().unwrap_or(0),
            others: trials.iter().map(|trial| trial.others).fold(0.0, f64::max),
            rounds,
        }
    }
}

impl Trial {
    fn per_million(&self, amount: f64) -> f64 {
        amount * 1e6 / self.arrived.received.max(1) as f64
    }

    /// Points that were there when the backend came back.
    fn kept(&self) -> f64 {
        (self.arrived.received - self.arrived.dropped).max(1) as f64
    }

    /// A figure of a gateway that has lost something is none.
    fn check(&self, book: &serde_json::Value) -> Result<()> {
        let is = |key: &str, points: u64| {
            book.get(key).and_then(serde_json::Value::as_u64) == Some(points)
        };
        let Arrived { received, dropped, .. } = self.arrived;
        if received == self.sent.points
            && is("handed", received)
            && is("delivered", received - dropped)
        {
            return Ok(());
        }
        bail!("{} points were sent, and the books tell of others: {book}", self.sent.points)
    }
}

fn wait_until_empty(server: &Server) -> Result<f64> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let book = gateway::backend_book(server)?;
        let held = book.get("held").and_then(|held| held.get("total"));
        if held.and_then(serde_json::Value::as_u64) == Some(0) {
            return Ok(began.elapsed().as_secs_f64());
        }
        rest(GLANCE);
    }
    bail!("the queue is not empty after {PATIENCE:?}")
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = if self.away { "away" } else { "well" };
        write!(f, "backend {backend}, spool {}", self.durability.unwrap_or("off"))
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<8} {:<8} {:>8} {:>8} {:>7} {:>10} {:>9} {:>9} {:>8} {:>7}  x of each round",
            "backend",
            "spool",
            "points/s",
            "CPU-s/M",
            "x off",
            "MB disk/M",
            "back at",
            "CPU-s/M",
            "dropped",
            "others"
        )?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        write!(f, "Compare ratios, never rates: see benches/README.md.")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, spool, cpu_per_million, ratio, megabytes_per_million, others, .. } =
            self;
        let (back, back_cpu) = self.back.map_or_else(Default::default, |(rate, cpu)| {
            (format!("{}/s", short(rate)), format!("{cpu:.3}"))
        });
        let rounds: Vec<_> = self.rounds.iter().map(|round| format!("{round:.2}")).collect();
        write!(
            f,
            "{backend:<8} {spool:<8} {:>8} {cpu_per_million:>8.3} {ratio:>6.2}x {megabytes_per_million:>10.1} \
             {back:>9} {back_cpu:>9} {:>8} {others:>7.2}  {}",
            short(self.rate),
            short(self.dropped as f64),
            rounds.join(", ")
        )
    }
}

const CASES: [Case; 6] = [
    Case { durability: None, away: false },
    Case { durability: Some("process"), away: false },
    Case { durability: Some("power"), away: false },
    Case { durability: None, away: true },
    Case { durability: Some("process"), away: true },
    Case { durability: Some("power"), away: true },
];

const LISTENER: &str = "tsdb";

/// How long catching up may take.
const PATIENCE: Duration = Duration::from_secs(60);

const GLANCE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let trial = |cpu_seconds| Trial {
            arrived: Arrived { received: 2_000_000, ..Arrived::default() },
            cpu_seconds,
            ..Trial::default()
        };
        let case = Case { durability: Some("power"), away: false };
        let row = case.row(&[trial(2.2), trial(9.0)], &[trial(2.0), trial(9.0)]);
        assert!((row.ratio - 1.05).abs() < 1e-9, "{row:?}");
        assert_eq!((row.backend, row.spool, row.back), ("well", "power", None));
    }

    #[test]
    fn a_point_that_the_books_miss_is_an_error() {
        let trial = Trial {
            sent: Sent { points: 10, ..Sent::default() },
            arrived: Arrived { received: 10, dropped: 1, ..Arrived::default() },
            ..Trial::default()
        };
        let book = |delivered: u64| serde_json::json!({ "handed": 10, "delivered": delivered });
        assert!(trial.check(&book(9)).is_ok());
        assert!(trial.check(&book(8)).is_err());
    }
}
