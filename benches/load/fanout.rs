//! What one backend more costs on the same points, and what a dead one does to the others.
//!
//! A backend's own cost is that of a gateway with it alone, less that of one whose route leads
//! nowhere; beside another it should cost no more than that. The dead are sent every point as it
//! is, with a queue that is soon full, which is more than windows would ask of them: one's port is
//! closed, the other takes connections and answers nothing. They should cost no more than a live one
//! that is sent the same.
//!
//! Windows are as long as the load, so that each trial has the end of two of them, whenever it begins.
//! Line protocol has no words for a timer that is not summed up: where every point is sent, timers are
//! refused, and counted as such.

use crate::bare::Counted;
use crate::compare::{QUIET, median};
use crate::echo::{Away, Echo, MARK, Marks};
use crate::latency::micros;
use crate::ledger::{BackendBook, ECHO, Until};
use crate::lines::Totals;
use crate::mix::Datagrams;
use crate::pace::rest;
use crate::shelf::Shelf;
use crate::stand::{Host, Plan, Run, Stand, influxdb};
use crate::statsd::Flow;
use crate::table::{Table, Tabular};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fmt;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Fanout {
    costs: Vec<Cost>,
    cases: Vec<Case>,
}

/// Of one sort of backend, in CPU seconds per million points; each the median of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Cost {
    backend: Lane,
    /// The others.
    beside: String,
    /// Of a gateway with this one alone, less that of one with none; of a dead one, that of one which
    /// lives.
    own: f64,
    /// Of a gateway with others and this one, less that of one with the others.
    further: f64,
}

/// What became of the healthy backends, in one combination.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Case {
    backends: String,
    cpu_per_million: f64,
    rounds: Vec<f64>,
    /// The part of the load that the gateway did not receive, in the worst round.
    unreceived: f64,
    /// Points that healthy backends were not in time for, in the worst round.
    dropped: u64,
    /// Points that a dead backend's queue had no room for, in the worst round.
    dropped_for_the_dead: u64,
    /// How long marks took to a healthy backend, in the round of the worst p99.
    away: Away,
    others: f64,
}

/// A backend, and what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Lane {
    /// An InfluxDB that is sent windows.
    Windows,
    /// Another one.
    MoreWindows,
    /// A statsd server that is sent every line over UDP.
    Relay,
    /// An InfluxDB that is sent every point.
    Points,
    /// Nobody listens there.
    Refused,
    /// Nobody answers there.
    Hanging,
}

/// What stands behind the lanes.
struct Peers {
    windows: Shelf,
    more_windows: Shelf,
    points: Shelf,
    relay: Counted,
    hanging: TcpListener,
    echo: Echo,
}

/// What came of one combination in one round.
struct Trial {
    run: Run,
    dropped: u64,
    dropped_for_the_dead: u64,
    away: Away,
}

/// Runs every combination once a round.
pub fn measure(host: &Host, rounds: u32, seconds: f64) -> Result<Fanout> {
    let mut columns: Vec<(&[Lane], Vec<Trial>)> =
        COMBINATIONS.iter().map(|lanes| (*lanes, Vec::new())).collect();
    for _ in 0..rounds {
        for (lanes, trials) in &mut columns {
            let trial = trial(host, lanes, seconds);
            trials.push(trial.with_context(|| told(lanes))?);
        }
    }
    let cost =
        |(backend, own, others): &(Lane, Lane, &[Lane])| Cost::of(*backend, *own, others, &columns);
    Ok(Fanout {
        costs: COSTS.iter().map(cost).collect(),
        cases: columns.iter().map(|(lanes, trials)| Case::of(lanes, trials)).collect(),
    })
}

fn trial(host: &Host, lanes: &[Lane], seconds: f64) -> Result<Trial> {
    crate::cpu::pin(host.cpus.generator)?;
    let peers = Peers::start()?;
    let plan = lanes.iter().try_fold(Plan::default().route("*", &[]), |plan, lane| {
        anyhow::Ok(plan.to(lane.name(), &lane.section(&peers, seconds)?))
    })?;
    let plan = plan.first(MARK, ECHO, &peers.echo.section(None));
    let stand = Stand::start(host, &plan)?;
    let datagrams = Datagrams::new(NAMES, PACK, false);
    let lines = (RATE * seconds) as u64;
    let flow = Flow { pack: PACK, rate: RATE, lines, first: 0, gso: 32, sockets: 1 };
    let marks = Marks::start(stand.datagrams()?, APART);
    let mut left = Default::default();
    // The dead hold what they hold.
    let healthy: Vec<_> =
        lanes.iter().filter(|lane| !lane.is_dead()).map(|lane| lane.name()).collect();
    let run = stand.offer_among(&datagrams, flow, Until::Empty(&healthy), || {
        left = marks.end()?;
        Ok(left.len() as u64)
    })?;
    rest(LATE);
    check(&run, lanes, &peers)?;
    let dropped = |dead: bool| {
        let lanes = lanes.iter().filter(|lane| lane.is_dead() == dead);
        lanes.filter_map(|lane| run.ledger.backends.get(lane.name())).map(in_want_of_room).sum()
    };
    Ok(Trial {
        dropped: dropped(false),
        dropped_for_the_dead: dropped(true),
        away: Away::of(&left, &peers.echo.heard()),
        run,
    })
}

/// An error, unless every healthy backend was handed all that was received, and has what the books
/// say. What its counters sum up to is known where nothing was lost.
fn check(run: &Run, lanes: &[Lane], peers: &Peers) -> Result<()> {
    let received = run.ledger.received();
    for lane in lanes.iter().filter(|lane| !lane.is_dead()) {
        let book = run.ledger.backend(lane.name())?;
        ensure!(book.handed == received, "{lane}: not all of {received}: {book:?}");
        if let Some(shelf) = lane.shelf(peers) {
            let Totals { rows, counter_sum, .. } = shelf.totals()?;
            ensure!(rows == book.delivered, "{lane}: {rows} rows came: {book:?}");
            let is_whole = received == run.sent.points;
            let timers = if *lane == Lane::Points { timers(run.sent.points) } else { 0 };
            ensure!(!is_whole || unsayable(book) == timers, "{lane}: {timers} timers: {book:?}");
            let sum = run.sent.counter_sum.filter(|_| is_whole && in_want_of_room(book) == 0);
            let is_right = sum.is_none_or(|sum| counter_sum == sum as f64);
            ensure!(is_right, "{lane}: {counter_sum} came instead of {sum:?}");
        } else if peers.relay.dropped()? == 0 {
            wait_for_lines(&peers.relay, book.delivered)?;
        }
    }
    Ok(())
}

/// Of so many points.
const fn timers(points: u64) -> u64 {
    // Datagrams hold whole rounds of the mix, in which a fifth are timers.
    points / 5
}

/// Points that the backend has no words for.
fn unsayable(book: &BackendBook) -> u64 {
    book.dropped.get("unrepresentable").copied().unwrap_or(0)
}

/// Points that were dropped though the backend could have been told them.
fn in_want_of_room(book: &BackendBook) -> u64 {
    book.dropped() - unsayable(book)
}

/// The last datagrams may still be in the socket's buffer.
fn wait_for_lines(relay: &Counted, delivered: u64) -> Result<()> {
    let began = Instant::now();
    while relay.lines() < delivered && began.elapsed() < PATIENCE {
        rest(GLANCE);
    }
    ensure!(relay.lines() == delivered, "{} lines came of {delivered}", relay.lines());
    Ok(())
}

impl Peers {
    fn start() -> Result<Self> {
        Ok(Self {
            windows: Shelf::start()?,
            more_windows: Shelf::start()?,
            points: Shelf::start()?,
            relay: Counted::start()?,
            // Connections wait to be accepted for ever.
            hanging: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
            echo: Echo::start()?,
        })
    }
}

impl Lane {
    const fn name(self) -> &'static str {
        match self {
            Self::Windows => "windows",
            Self::MoreWindows => "more_windows",
            Self::Relay => "relay",
            Self::Points => "points",
            Self::Refused => "refused",
            Self::Hanging => "hanging",
        }
    }

    const fn is_dead(self) -> bool {
        matches!(self, Self::Refused | Self::Hanging)
    }

    fn section(self, peers: &Peers, seconds: f64) -> Result<String> {
        let windows = |shelf: &Shelf| {
            format!(
                "{}flush = \"{}ms\"\n",
                influxdb(&shelf.url()),
                (seconds.min(LONGEST) * 1e3) as u64
            )
        };
        let points = |url: &str| {
            format!("{}aggregate = false\nspool = false\nmemory = \"{MEMORY}\"\n", influxdb(url))
        };
        Ok(match self {
            Self::Windows => windows(&peers.windows),
            Self::MoreWindows => windows(&peers.more_windows),
            Self::Relay => {
                format!("kind = \"statsd\"\naddress = \"udp://{}\"\n", peers.relay.address)
            }
            Self::Points => points(&peers.points.url()),
            Self::Refused => points(&closed_port()?),
            Self::Hanging => points(&format!("http://{}", peers.hanging.local_addr()?)),
        })
    }

    const fn shelf(self, peers: &Peers) -> Option<&Shelf> {
        match self {
            Self::Windows => Some(&peers.windows),
            Self::MoreWindows => Some(&peers.more_windows),
            Self::Points => Some(&peers.points),
            Self::Relay | Self::Refused | Self::Hanging => None,
        }
    }
}

/// A port that was free a moment ago.
fn closed_port() -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(format!("http://{}", listener.local_addr()?))
}

impl Cost {
    /// Of one that costs as much as `alike` when it is alone, beside others.
    fn of(backend: Lane, alike: Lane, others: &[Lane], columns: &[(&[Lane], Vec<Trial>)]) -> Self {
        let rounds = |lanes: &[Lane]| -> Vec<f64> {
            let column = columns.iter().find(|(of, _)| *of == lanes);
            let trials = column.map(|(_, trials)| trials.as_slice()).unwrap_or_default();
            trials.iter().map(|trial| trial.run.per_million()).collect()
        };
        let own = differences(&rounds(&[alike]), &rounds(&[]));
        let further = differences(&rounds(&[others, &[backend]].concat()), &rounds(others));
        Self { backend, beside: told(others), own: median(own), further: median(further) }
    }
}

/// Of the same rounds.
fn differences(more: &[f64], less: &[f64]) -> Vec<f64> {
    more.iter().zip(less).map(|(more, less)| more - less).collect()
}

impl Trial {
    fn unreceived(&self) -> f64 {
        let sent = self.run.sent.points.max(1) as f64;
        1.0 - self.run.ledger.received() as f64 / sent
    }
}

impl Case {
    fn of(lanes: &[Lane], trials: &[Trial]) -> Self {
        let rounds: Vec<f64> = trials.iter().map(|trial| trial.run.per_million()).collect();
        let worst = |of: fn(&Trial) -> u64| trials.iter().map(of).max().unwrap_or(0);
        let away = trials.iter().map(|trial| trial.away);
        Self {
            backends: told(lanes),
            cpu_per_million: median(rounds.clone()),
            rounds,
            unreceived: trials.iter().map(Trial::unreceived).fold(0.0, f64::max),
            dropped: worst(|trial| trial.dropped),
            dropped_for_the_dead: worst(|trial| trial.dropped_for_the_dead),
            away: away.max_by(|a, b| a.p99.total_cmp(&b.p99)).unwrap_or_default(),
            others: trials.iter().map(|trial| trial.run.others).fold(0.0, f64::max),
        }
    }
}

fn told(lanes: &[Lane]) -> String {
    let names: Vec<_> = lanes.iter().map(ToString::to_string).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" + ") }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Windows => "windows",
            Self::MoreWindows => "more windows",
            Self::Relay => "relay",
            Self::Points => "points",
            Self::Refused => "refused",
            Self::Hanging => "hanging",
        })
    }
}

impl Tabular for Fanout {
    fn tables(&self) -> Vec<Table> {
        let mut notes = vec![
            "Healthy backends had all that was received, but what is dropped, and timers where every \
             point is sent; marks went to one more."
                .to_owned(),
        ];
        if self.cases.iter().any(|case| case.others > QUIET) {
            notes.push(format!("Others used more than {QUIET} core: times may be theirs."));
        }
        vec![
            Table {
                head: vec!["backend", "beside", "own CPU-s/M", "as a further one", "x own"],
                rows: self.costs.iter().map(Cost::cells).collect(),
                notes: Vec::new(),
            },
            Table {
                head: vec![
                    "backends",
                    "CPU-s/M",
                    "lost",
                    "dropped",
                    "by the dead",
                    "marks",
                    "missing",
                    "p50 us",
                    "p99 us",
                    "others",
                ],
                rows: self.cases.iter().map(Case::cells).collect(),
                notes,
            },
        ]
    }
}

impl Cost {
    fn cells(&self) -> Vec<String> {
        vec![
            self.backend.to_string(),
            self.beside.clone(),
            format!("{:.3}", self.own),
            format!("{:.3}", self.further),
            format!("{:.2}x", self.further / self.own),
        ]
    }
}

impl Case {
    fn cells(&self) -> Vec<String> {
        vec![
            self.backends.clone(),
            format!("{:.3}", self.cpu_per_million),
            format!("{:.3}%", self.unreceived * 100.0),
            self.dropped.to_string(),
            self.dropped_for_the_dead.to_string(),
            self.away.marks.to_string(),
            self.away.missing.to_string(),
            micros(self.away.p50),
            micros(self.away.p99),
            format!("{:.2}", self.others),
        ]
    }
}

/// A backend, one that is like it and alone, and the others that it is set beside.
const COSTS: [(Lane, Lane, &[Lane]); 6] = [
    (Lane::MoreWindows, Lane::Windows, &[Lane::Windows]),
    (Lane::Relay, Lane::Relay, &[Lane::Windows]),
    (Lane::Points, Lane::Points, &[Lane::Windows]),
    (Lane::Points, Lane::Points, &[Lane::Windows, Lane::Relay]),
    (Lane::Refused, Lane::Points, &[Lane::Windows, Lane::Relay]),
    (Lane::Hanging, Lane::Points, &[Lane::Windows, Lane::Relay]),
];

const COMBINATIONS: [&[Lane]; 10] = [
    &[],
    &[Lane::Windows],
    &[Lane::Relay],
    &[Lane::Points],
    &[Lane::Windows, Lane::MoreWindows],
    &[Lane::Windows, Lane::Relay],
    &[Lane::Windows, Lane::Points],
    &[Lane::Windows, Lane::Relay, Lane::Points],
    &[Lane::Windows, Lane::Relay, Lane::Refused],
    &[Lane::Windows, Lane::Relay, Lane::Hanging],
];

const NAMES: u64 = 10_000;

/// Seconds of a window, which is as long as the load, but has to be waited for.
const LONGEST: f64 = 10.0;

/// Of the queue of one that is sent every point: a second's worth.
const MEMORY: &str = "16MiB";

/// Lines of a datagram.
const PACK: u64 = 25;

/// Lines a second, each of which some backends are sent.
const RATE: f64 = 200e3;

/// At least this long between marks.
const APART: Duration = Duration::from_millis(4);

/// How long a mark that is late is waited for.
const LATE: Duration = Duration::from_millis(300);

/// How long datagrams may take on loopback.
const PATIENCE: Duration = Duration::from_secs(2);

const GLANCE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ListenerBook;

    fn trial(cpu_seconds: f64) -> Trial {
        let mut run = Run { cpu_seconds, ..Run::default() };
        let book = ListenerBook { received: 1_000_000, ..ListenerBook::default() };
        run.ledger.listeners.insert("statsd".to_owned(), book);
        Trial { run, dropped: 0, dropped_for_the_dead: 0, away: Away::default() }
    }

    #[test]
    fn costs_are_differences_within_a_round() {
        let column = |lanes: &'static [Lane], rounds: [f64; 3]| {
            (lanes, rounds.into_iter().map(trial).collect())
        };
        let columns: Vec<(&[Lane], Vec<Trial>)> = vec![
            column(&[], [1.0, 10.0, 1.0]),
            column(&[Lane::Relay], [3.0, 12.0, 9.0]),
            column(&[Lane::Windows], [2.0, 11.0, 2.0]),
            column(&[Lane::Windows, Lane::Relay], [3.5, 12.5, 2.0]),
            column(&[Lane::Windows, Lane::Refused], [5.0, 15.0, 5.0]),
        ];
        let cost = Cost::of(Lane::Relay, Lane::Relay, &[Lane::Windows], &columns);
        assert!((cost.own - 2.0).abs() < 1e-9, "{cost:?}");
        assert!((cost.further - 1.5).abs() < 1e-9, "{cost:?}");
        assert_eq!(cost.cells()[4], "0.75x");
        let dead = Cost::of(Lane::Refused, Lane::Relay, &[Lane::Windows], &columns);
        assert_eq!((dead.own, dead.further), (cost.own, 3.0));
    }
}
