//! The search for the highest rate at which nothing is lost.
//!
//! Rates double until one loses, then the gap is halved until it is narrow. A rate counts when
//! one of two short trials lost nothing; a machine that is busy with other things makes the
//! result too low, never too high. A trial may hold no flush: `flush` shows what those do. Where a
//! database is behind the gateway, each series is offered slowly before the trial: to learn a
//! million of them costs more than to know them.

use crate::compare::QUIET;
use crate::gateway::Arrived;
use crate::ledger::Until;
use crate::mix::Datagrams;
use crate::report::short;
use crate::shelf::Shelf;
use crate::stand::{Host, Plan, Run, Stand, influxdb};
use crate::statsd::Flow;
use crate::table::{Table, Tabular};
use crate::trial::{Bench, Load, Subject, Trial};
use anyhow::Result;
use serde::Serialize;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Search {
    rows: Vec<Row>,
}

/// The limit of one receiver.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    load: String,
    receiver: String,
    /// Lines a second.
    lossless: f64,
    /// The next rate was not reached by the generator, so the receiver's own limit is higher.
    sender_limited: bool,
    /// CPU seconds per million lines at that rate.
    cpu_per_million: f64,
    /// Cores of others during the trial that counted.
    others: f64,
}

/// Who is searched for the limit of.
pub struct Receiver<'a> {
    name: &'static str,
    /// Offers packs of lines at a rate for a short while.
    offer: Box<dyn Fn(u64, f64) -> Result<Trial> + 'a>,
}

/// The floor, the gateway, the same with a database behind it, and that on two sockets; of them
/// those whose name holds `only`.
pub fn receivers<'a>(bench: &'a Bench, only: &str) -> Vec<Receiver<'a>> {
    let subject = |name, subject| {
        let offer = move |pack, rate| bench.run(subject, Load::Datagrams { pack, rate });
        Receiver { name, offer: Box::new(offer) }
    };
    let all = [
        subject("bare", Subject::Bare),
        subject("blackhole", Subject::Blackhole),
        with_database(bench, "influxdb", 1),
        with_database(bench, "influxdb, 2 sockets", 2),
    ];
    all.into_iter().filter(|receiver| receiver.name.contains(only)).collect()
}

/// The gateway with windows whose rows go to a database in the generator.
pub fn with_database<'a>(bench: &'a Bench, name: &'static str, sockets: u64) -> Receiver<'a> {
    Receiver { name, offer: Box::new(move |pack, rate| bench.on_sockets(sockets, pack, rate)) }
}

/// Searches for every pack and receiver.
pub fn search(receivers: &[Receiver<'_>], packs: &[u64]) -> Result<Search> {
    let mut rows = Vec::new();
    for &pack in packs {
        for receiver in receivers {
            let (rate, found) = highest(first(pack), |rate| receiver.verdict(pack, rate))?;
            rows.push(Row {
                load: Load::Datagrams { pack, rate }.to_string(),
                receiver: receiver.name.to_owned(),
                lossless: rate,
                sender_limited: found.sender_limited,
                cpu_per_million: found.trial.as_ref().map_or(f64::NAN, |trial| trial.per_million()),
                others: found.trial.as_ref().map_or(0.0, |trial| trial.others),
            });
        }
    }
    Ok(Search { rows })
}

impl Search {
    /// Lines a second of the first row.
    pub fn lossless(&self) -> f64 {
        self.rows.first().map_or(0.0, |row| row.lossless)
    }
}

/// What came of trying one rate.
enum Verdict {
    Lossless(Box<Trial>),
    Lost,
    /// The generator did not get that far.
    SenderLimited,
}

#[derive(Default)]
struct Found {
    trial: Option<Box<Trial>>,
    sender_limited: bool,
}

impl Receiver<'_> {
    fn verdict(&self, pack: u64, rate: f64) -> Result<Verdict> {
        let mut verdict = Verdict::Lost;
        for _ in 0..2 {
            let trial = (self.offer)(pack, rate)?;
            if trial.sent.rate() < rate * REACHED {
                verdict = Verdict::SenderLimited;
            } else if trial.loss() == 0.0 {
                return Ok(Verdict::Lossless(Box::new(trial)));
            }
        }
        Ok(verdict)
    }
}

impl Bench {
    fn on_sockets(&self, sockets: u64, pack: u64, rate: f64) -> Result<Trial> {
        let cpus = if sockets > 1 { self.cpus.two_for_the_server() } else { self.cpus };
        let host = Host { gateway: self.gateway.clone(), cpus };
        crate::cpu::pin(cpus.generator)?;
        let shelf = Shelf::start()?;
        let plan = Plan { sockets, ..Plan::of(&influxdb(&shelf.url())) };
        let stand = Stand::start(&host, &plan)?;
        let datagrams = Datagrams::new(self.names, pack, false);
        let (from, rounds) = if sockets > 1 { (SENDERS, ROUNDS) } else { (1, 1) };
        let first = self.names * rounds;
        let lines = (rate * self.seconds) as u64 + first;
        let flow = Flow { pack, rate, lines, first, gso: 32, sockets: from };
        Ok(trial(stand.offer(&datagrams, flow, Until::Received)?, pack))
    }
}

fn trial(run: Run, pack: u64) -> Trial {
    let book = run.ledger.datagrams();
    let arrived = Arrived {
        received: book.received,
        rejected: book.rejected.values().sum(),
        kernel_dropped: book.kernel_dropped,
        dropped: run.ledger.dropped(),
        waiting: 0,
        held: 0,
    };
    Trial { sent: run.sent, arrived, cpu_seconds: run.cpu_seconds, others: run.others, pack }
}

/// Lines a second to begin with: any receiver takes so many small datagrams, and more lines come
/// in fewer large ones.
fn first(pack: u64) -> f64 {
    if pack < 10 { 100e3 } else { 500e3 }
}

/// Doubles, then halves the gap. If even `first` is too much, the search goes down from it.
fn highest(first: f64, mut verdict: impl FnMut(f64) -> Result<Verdict>) -> Result<(f64, Found)> {
    let mut found = Found::default();
    let (mut good, mut bad) = (0.0, f64::INFINITY);
    let mut next = first;
    while bad / good > NARROW && next >= first / GIVE_UP {
        match verdict(next)? {
            Verdict::Lossless(trial) => {
                good = next;
                found.trial = Some(trial);
            }
            Verdict::Lost => (bad, found.sender_limited) = (next, false),
            Verdict::SenderLimited => (bad, found.sender_limited) = (next, true),
        }
        next = if bad.is_infinite() { good * 2.0 } else { f64::midpoint(good, bad) };
    }
    Ok((good, found))
}

impl Tabular for Search {
    fn tables(&self) -> Vec<Table> {
        let head = vec!["load", "receiver", "lossless", "CPU-s/M", "others", "limit"];
        let notes = vec![format!(
            "Compare ratios, never rates; more than {QUIET} core of others makes a limit too low."
        )];
        vec![Table { head, rows: self.rows.iter().map(Row::cells).collect(), notes }]
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let Self { load, receiver, lossless, cpu_per_million, others, .. } = self;
        vec![
            load.clone(),
            receiver.clone(),
            format!("{}/s", short(*lossless)),
            format!("{cpu_per_million:.3}"),
            format!("{others:.2}"),
            if self.sender_limited { "the generator's" } else { "its own" }.to_owned(),
        ]
    }
}

/// Below this part of a rate the generator has not offered it.
const REACHED: f64 = 0.95;

/// The gap at which a search ends: the noise of the machine is wider.
const NARROW: f64 = 1.07;

/// Sockets that datagrams come from, so that the kernel spreads them over several receivers.
const SENDERS: u64 = 16;

/// So often has each datagram to come before nearly every one was seen by either of two receivers.
const ROUNDS: u64 = 8;

/// A search goes down to this part of where it began.
const GIVE_UP: f64 = 64.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_found_from_below_and_from_above() {
        let check = |first: f64, limit: f64| {
            let (found, _) = highest(first, |rate| {
                Ok(if rate <= limit { Verdict::Lossless(Box::default()) } else { Verdict::Lost })
            })
            .unwrap();
            assert!(found <= limit && found * NARROW >= limit, "{found} for {limit}");
        };
        check(100.0, 1234.0);
        check(100.0, 100.0);
        check(100.0, 30.0);
    }

    #[test]
    fn what_a_gateway_dropped_is_lost() {
        let mut run = Run::default();
        run.sent.points = 100;
        let statsd = crate::ledger::ListenerBook { received: 100, ..Default::default() };
        run.ledger.listeners.insert("statsd".to_owned(), statsd);
        assert!(trial(run.clone(), 25).loss() == 0.0);
        let dropped = [("queue_full".to_owned(), 7)].into();
        let sink = crate::ledger::BackendBook { dropped, ..Default::default() };
        run.ledger.backends.insert("sink".to_owned(), sink);
        assert!((trial(run, 25).loss() - 0.07).abs() < 1e-12);
    }

    #[test]
    fn a_search_for_nothing_ends() {
        let (found, _) = highest(100.0, |_| Ok(Verdict::Lost)).unwrap();
        assert!(found.abs() < f64::EPSILON);
    }

    #[test]
    fn the_generators_limit_is_told() {
        let (rate, found) = highest(100.0, |rate| {
            Ok(if rate <= 150.0 {
                Verdict::Lossless(Box::default())
            } else {
                Verdict::SenderLimited
            })
        })
        .unwrap();
        assert!(found.sender_limited && rate <= 150.0 && rate * NARROW >= 150.0, "{rate}");
    }
}
