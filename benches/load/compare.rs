//! The comparison: the gateway against the bare kernel, in the same run, round after round.
//!
//! Machines of different days, or hours, do not compare; a gateway and the floor measured a
//! few seconds apart do. So every round offers every load to every receiver, ratios are taken
//! within a round, and the table shows the medians over the rounds.

use crate::report::short;
use crate::trial::{Bench, Load, Subject, Trial};
use anyhow::Result;
use serde::Serialize;
use std::fmt;

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Comparison {
    rows: Vec<Row>,
}

/// One load on one receiver.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    load: String,
    receiver: Subject,
    /// Points a second that were offered, or taken when the load is flat out.
    rate: f64,
    /// The worst round's part of points that did not arrive, or were dropped later.
    loss: f64,
    /// Points that the gateway dropped for its backend's sake, in the worst round.
    dropped: u64,
    /// Points that the books do not explain, in the worst round.
    unexplained: i64,
    /// Lines or requests that were answered with a refusal, in the worst round.
    refused: u64,
    /// CPU seconds of the receiver per million points.
    cpu_per_million: f64,
    /// The same in each round.
    rounds: Vec<f64>,
    /// How many times the floor that is.
    ratio: f64,
    /// Cores that were busy with something else, in the worst round.
    others: f64,
}

/// Offers every load to every subject, as often as there are rounds.
pub fn compare(
    bench: &Bench,
    loads: &[Load],
    gateways: &[Subject],
    rounds: u32,
) -> Result<Comparison> {
    let mut columns: Vec<Column> = Vec::new();
    for &load in loads {
        let floor = [Subject::Bare].into_iter().filter(|_| floor_of(load) == load);
        let subjects = floor.chain(gateways.iter().copied());
        columns.extend(subjects.map(|subject| Column { load, subject, trials: Vec::new() }));
    }
    for _ in 0..rounds {
        for column in &mut columns {
            column.trials.push(bench.run(column.subject, column.load)?);
        }
    }
    Ok(Comparison { rows: columns.iter().map(|column| column.row(&columns)).collect() })
}

impl Comparison {
    /// Whether every point that was sent is told of by the books.
    pub fn is_exact(&self) -> bool {
        self.rows.iter().all(Row::is_exact)
    }
}

/// The trials of one load on one receiver, a round each.
struct Column {
    load: Load,
    subject: Subject,
    trials: Vec<Trial>,
}

impl Column {
    fn row(&self, all: &[Self]) -> Row {
        let rounds: Vec<f64> = self.trials.iter().map(Trial::per_million).collect();
        let worst = |of: fn(&Trial) -> f64| self.trials.iter().map(of).fold(0.0, f64::max);
        let unexplained = self.trials.iter().map(Trial::unexplained);
        Row {
            load: self.load.to_string(),
            receiver: self.subject,
            rate: median(self.trials.iter().map(|trial| trial.sent.rate()).collect()),
            loss: worst(Trial::loss),
            dropped: self.trials.iter().map(|trial| trial.arrived.dropped).max().unwrap_or(0),
            unexplained: unexplained.max_by_key(|points| points.unsigned_abs()).unwrap_or(0),
            refused: self.trials.iter().map(|trial| trial.sent.refused).max().unwrap_or(0),
            cpu_per_million: median(rounds.clone()),
            ratio: median(self.ratios(all)),
            rounds,
            others: worst(|trial| trial.others),
        }
    }

    /// To the floor of the same round.
    fn ratios(&self, all: &[Self]) -> Vec<f64> {
        let is_floor =
            |column: &&Self| column.subject == Subject::Bare && column.load == floor_of(self.load);
        let floor = all.iter().filter(is_floor).flat_map(|column| &column.trials);
        self.trials
            .iter()
            .zip(floor)
            .map(|(trial, floor)| trial.per_million() / floor.per_million())
            .collect()
    }
}

impl Row {
    const fn is_exact(&self) -> bool {
        self.unexplained == 0 && self.refused == 0
    }

    fn books(&self) -> String {
        match self {
            Self { unexplained: points @ (1.. | ..=-1), .. } => format!("OFF BY {points}"),
            Self { refused: refused @ 1.., .. } => format!("{refused} refused"),
            Self { dropped: dropped @ 1.., .. } => format!("{} dropped", short(*dropped as f64)),
            _ => "exact".to_owned(),
        }
    }

    fn rounds(&self) -> String {
        self.rounds.iter().map(|round| format!("{round:.3}")).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:<10} {:>8} {:>8} {:>8} {:>9}  {:<13} {:>6}  CPU-s/M of each round",
            "load", "receiver", "points/s", "lost", "CPU-s/M", "x bare", "books", "others"
        )?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        if self.rows.iter().any(|row| row.others > QUIET) {
            writeln!(f, "Others used more than {QUIET} core meanwhile: losses may be theirs.")?;
        }
        write!(f, "Compare ratios, never rates: see benches/README.md.")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load, receiver, rate, loss, cpu_per_million, ratio, others, .. } = self;
        write!(
            f,
            "{load:<16} {receiver:<10} {:>8} {:>7.3}% {cpu_per_million:>8.3} {ratio:>8.1}x  {:<13} {others:>6.2}  {}",
            short(*rate),
            loss * 100.0,
            self.books(),
            self.rounds()
        )
    }
}

/// The load whose bare receiver is the floor: HTTP is TCP underneath, and its points are the
/// same, so it is held against the bare count of `put` lines.
const fn floor_of(load: Load) -> Load {
    match load {
        Load::Points | Load::ApiPut => Load::Put,
        own => own,
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let at = |index: usize| numbers.get(index).copied().unwrap_or(f64::NAN);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 {
        at(middle)
    } else {
        f64::midpoint(at(middle.wrapping_sub(1)), at(middle))
    }
}

/// Cores of other processes up to which a loss is taken as the receiver's own.
pub const QUIET: f64 = 0.12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Arrived;

    #[test]
    fn medians_are_in_the_middle() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median(Vec::new()).is_nan());
    }

    /// A slow round slows both alike: only ratios of the same round are meant.
    #[test]
    fn ratios_are_taken_within_a_round() {
        let column = |subject, load, seconds: [f64; 2]| Column {
            subject,
            load,
            trials: seconds.into_iter().map(trial).collect(),
        };
        let columns = [
            column(Subject::Bare, Load::Put, [1.0, 10.0]),
            column(Subject::Blackhole, Load::Put, [3.0, 30.0]),
            column(Subject::Blackhole, Load::ApiPut, [5.0, 60.0]),
        ];
        let [bare, put, api] = columns.each_ref().map(|column| column.row(&columns));
        assert!((bare.ratio - 1.0).abs() < 1e-9, "{bare:?}");
        assert!((put.ratio - 3.0).abs() < 1e-9, "{put:?}");
        assert!((api.ratio - 5.5).abs() < 1e-9, "{api:?}");
        assert!(put.is_exact());
    }

    fn trial(cpu_seconds: f64) -> Trial {
        let arrived = Arrived { received: 1_000_000, ..Arrived::default() };
        let sent = crate::report::Sent { points: 1_000_000, ..Default::default() };
        Trial { sent, arrived, cpu_seconds, ..Trial::default() }
    }
}
