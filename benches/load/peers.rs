//! The gateway against its peers: every task, every server, round after round.
//!
//! Ratios are taken within a round, between servers measured seconds apart, and the medians over
//! the rounds are shown. A peer that is not installed, or does not start, is said to be missing.

use crate::arena::{Arena, Trial};
use crate::compare::{QUIET, median};
use crate::promise::{Found, PROMISES};
use crate::report::short;
use crate::table::{Table, Tabular};
use crate::task::{Task, Who};
use crate::verdict::Verdict;
use anyhow::Result;
use serde::Serialize;

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

/// One server's trials of one task, a round each.
pub struct Column {
    pub task: Task,
    pub who: Who,
    pub trials: Vec<Trial>,
    rate: f64,
    /// Why it is not asked any more, if it is not.
    gone: Option<String>,
}

/// Has every server that is there do every task, as often as there are rounds.
pub fn measure(arena: &Arena<'_>, tasks: &[Task], rounds: u32) -> Result<Contests> {
    let (mut columns, mut missing) = line_up(arena, tasks);
    for _ in 0..rounds {
        for column in &mut columns {
            column.go_on(arena)?;
        }
    }
    let (columns, gone): (Vec<_>, Vec<_>) =
        columns.into_iter().partition(|column| column.gone.is_none());
    missing.extend(gone.into_iter().filter_map(Column::into_missing));
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
    let entrants = tasks.iter().flat_map(|task| {
        task.entrants().into_iter().map(|(who, rate)| Column::new(*task, who, rate))
    });
    let (there, not_there): (Vec<_>, Vec<_>) = entrants.partition(|column| match column.who {
        Who::Peer(peer) => peer.is_installed(arena.tools),
        Who::Bare | Who::Gateway => true,
    });
    let mut missing: Vec<_> = not_there
        .iter()
        .map(|column| Missing { server: column.who.to_string(), why: "not installed".to_owned() })
        .collect();
    missing.dedup();
    (there, missing)
}

impl Contests {
    /// Whether whatever the gateway and the bare receiver had is explained.
    pub fn is_exact(&self) -> bool {
        let ours = [Who::Bare, Who::Gateway].map(|who| who.to_string());
        self.rows.iter().filter(|row| ours.contains(&row.server)).all(|row| row.sums.is_explained())
    }
}

impl Column {
    pub const fn new(task: Task, who: Who, rate: f64) -> Self {
        Self { task, who, rate, trials: Vec::new(), gone: None }
    }

    /// The next trial. A peer that fails is left out from then on; what we bring must not fail.
    fn go_on(&mut self, arena: &Arena<'_>) -> Result<()> {
        if self.gone.is_some() {
            return Ok(());
        }
        match (arena.run(self.task, self.who, self.rate), self.who) {
            (Ok(trial), _) => self.trials.push(trial),
            (Err(error), Who::Peer(_)) => self.gone = Some(format!("{error:#}")),
            (Err(error), _) => return Err(error),
        }
        Ok(())
    }

    fn into_missing(self) -> Option<Missing> {
        Some(Missing { server: self.who.to_string(), why: self.gone? })
    }

    fn row(&self, all: &[Self]) -> Row {
        let rounds: Vec<f64> = self.trials.iter().map(Trial::per_million).collect();
        let worst = |of: fn(&Trial) -> f64| self.trials.iter().map(of).fold(0.0, f64::max);
        let packets = self.trials.iter().map(Trial::packet).filter(|bytes| bytes.is_finite());
        let to = |who| if who == self.who { None } else { ratio(all, self.task, self.who, who) };
        Row {
            task: self.task.to_string(),
            server: self.who.to_string(),
            rate: median(self.trials.iter().map(|trial| trial.sent.rate()).collect()),
            loss: worst(Trial::loss),
            cpu_per_million: median(rounds.clone()),
            of_bare: to(Who::Bare),
            of_gateway: to(Who::Gateway),
            packet: Some(median(packets.collect())).filter(|bytes| bytes.is_finite()),
            sums: self.trials.iter().map(|trial| trial.verdict).max().unwrap_or_default(),
            others: worst(|trial| trial.others),
            rounds,
        }
    }
}

/// How many times the CPU time of one server another one takes for a point, within each round.
pub fn ratio(all: &[Column], task: Task, of: Who, to: Who) -> Option<f64> {
    let column = |who| all.iter().find(|column| column.task == task && column.who == who);
    let pairs = column(of)?.trials.iter().zip(&column(to)?.trials);
    let ratios = pairs.map(|(of, to)| of.per_million() / to.per_million()).collect();
    Some(median(ratios)).filter(|ratio| ratio.is_finite())
}

impl Tabular for Contests {
    fn tables(&self) -> Vec<Table> {
        let rows = self.rows.iter().map(Row::cells).collect();
        let promises = self.promises.iter().map(Found::cells).collect();
        vec![
            Table { head: Row::head(), rows, notes: self.notes() },
            Table { head: Found::head(), rows: promises, notes: vec![] },
        ]
    }
}

impl Contests {
    fn notes(&self) -> Vec<String> {
        let Self { rounds, seconds, window, .. } = self;
        let mut notes = vec![format!(
            "Medians of {rounds} rounds; {seconds} s of load where there are windows, of {window} s, \
             and a third of it where there are none."
        )];
        let missing = self.missing.iter();
        notes
            .extend(missing.map(|Missing { server, why }| format!("{server} is left out: {why}.")));
        if self.rows.iter().any(|row| row.others > QUIET) {
            let noise = "core meanwhile: losses may be theirs.";
            notes.push(format!("Others used more than {QUIET} {noise}"));
        }
        notes
    }
}

impl Row {
    fn head() -> Vec<&'static str> {
        vec![
            "task",
            "server",
            "points/s",
            "lost",
            "CPU-s/M",
            "x bare",
            "x gateway",
            "B/packet",
            "sums",
            "others",
            "CPU-s/M of each round",
        ]
    }

    fn cells(&self) -> Vec<String> {
        let perhaps = |number: Option<f64>, digits: usize| {
            number.map_or_else(String::new, |number| format!("{number:.digits$}"))
        };
        let rounds: Vec<_> = self.rounds.iter().map(|round| format!("{round:.3}")).collect();
        vec![
            self.task.clone(),
            self.server.clone(),
            short(self.rate),
            format!("{:.3}%", self.loss * 100.0),
            format!("{:.3}", self.cpu_per_million),
            perhaps(self.of_bare, 2),
            perhaps(self.of_gateway, 2),
            perhaps(self.packet, 0),
            self.sums.to_string(),
            format!("{:.2}", self.others),
            rounds.join(", "),
        ]
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::peer::Peer;

    /// A column whose rounds took so many CPU seconds a million points.
    pub fn column(task: Task, who: Who, rounds: &[f64]) -> Column {
        let trial = |cpu_seconds: &f64| Trial {
            arrived: 1_000_000,
            cpu_seconds: *cpu_seconds,
            ..Trial::default()
        };
        Column { trials: rounds.iter().map(trial).collect(), ..Column::new(task, who, 1.0) }
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
        let [table, promises] = &contests.tables()[..] else { unreachable!("two tables") };
        assert_eq!(table.rows[0][..2], ["statsd relayed, pack 1", "gateway"]);
        assert_eq!(table.notes[1], "statsdproxy is left out: not installed.");
        assert!(promises.rows.is_empty());
        for table in [table, promises] {
            assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
        }
    }
}
