//! The search for the highest rate at which nothing is lost.
//!
//! Rates double until one loses, then the gap is halved until it is narrow. A rate counts when
//! one of two short trials lost nothing; a machine that is busy with other things makes the
//! result too low, never too high.

use crate::compare::QUIET;
use crate::report::short;
use crate::trial::{Bench, Load, Subject, Trial};
use anyhow::Result;
use serde::Serialize;
use std::fmt;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Search {
    rows: Vec<Row>,
}

/// The limit of one receiver.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    load: String,
    receiver: Subject,
    /// Lines a second.
    lossless: f64,
    /// The next rate was not reached by the generator, so the receiver's own limit is higher.
    sender_limited: bool,
    /// CPU seconds per million lines at that rate.
    cpu_per_million: f64,
    /// Cores of others during the trial that counted.
    others: f64,
}

/// Searches for every pack and subject, from `first` lines a second.
pub fn search(bench: &Bench, packs: &[(u64, f64)], subjects: &[Subject]) -> Result<Search> {
    let mut rows = Vec::new();
    for &(pack, first) in packs {
        for &subject in subjects {
            let try_rate = |rate| bench.try_rate(subject, Load::Datagrams { pack, rate });
            let (rate, found) = highest(first, try_rate)?;
            rows.push(Row {
                load: Load::Datagrams { pack, rate }.to_string(),
                receiver: subject,
                lossless: rate,
                sender_limited: found.sender_limited,
                cpu_per_million: found.trial.as_ref().map_or(f64::NAN, |trial| trial.per_million()),
                others: found.trial.as_ref().map_or(0.0, |trial| trial.others),
            });
        }
    }
    Ok(Search { rows })
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

impl Bench {
    fn try_rate(&self, subject: Subject, load: Load) -> Result<Verdict> {
        let mut verdict = Verdict::Lost;
        for _ in 0..2 {
            let trial = self.run(subject, load)?;
            let Load::Datagrams { rate, .. } = load else { return Ok(Verdict::Lost) };
            if trial.sent.rate() < rate * REACHED {
                verdict = Verdict::SenderLimited;
            } else if trial.loss() == 0.0 {
                return Ok(Verdict::Lossless(Box::new(trial)));
            }
        }
        Ok(verdict)
    }
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

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:<10} {:>10} {:>8} {:>7}",
            "load", "receiver", "lossless", "CPU-s/M", "others"
        )?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        write!(
            f,
            "Compare ratios, never rates; more than {QUIET} core of others makes a limit too low."
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load, receiver, lossless, cpu_per_million, others, .. } = self;
        let rate = short(*lossless);
        write!(f, "{load:<16} {receiver:<10} {rate:>8}/s {cpu_per_million:>8.3} {others:>7.2}")?;
        if self.sender_limited { write!(f, "  the generator's limit") } else { Ok(()) }
    }
}

/// Below this part of a rate the generator has not offered it.
const REACHED: f64 = 0.95;

/// The gap at which a search ends: the noise of the machine is wider.
const NARROW: f64 = 1.07;

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
