//! How the cost of a point grows with the number of series, of routes and of backends.
//!
//! Backends keep nothing here, so that the curves are the gateway's own; what real ones cost is
//! for `fanout` to show. Routes have name patterns, in two sorts: prefixes of which none but the
//! last is anybody's, and suffixes of which each matches its part of the series, so that every
//! table sends every point to the one backend exactly once.

use crate::compare::{QUIET, median};
use crate::ledger::Until;
use crate::mix::Datagrams;
use crate::plots::{self, Plot};
use crate::report::short;
use crate::stand::{BACKEND, Host, Plan, Run, Stand};
use crate::statsd::Flow;
use crate::table::{Table, Tabular};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// All that was found.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    curves: Vec<Curve>,
}

/// The cost over the number of one thing.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Curve {
    of: Axis,
    points: Vec<Point>,
}

/// What there is more and more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Axis {
    Series,
    /// Routes of which only the last matches.
    RoutesMissed,
    /// Routes that share the points out.
    RoutesShared,
    /// Backends whose windows sum points up.
    BackendsOfWindows,
    /// Backends that are sent each point.
    BackendsOfPoints,
}

/// So many of it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    count: u64,
    /// CPU seconds per million points received, in the median of the rounds.
    cpu_per_million: f64,
    rounds: Vec<f64>,
    /// In the worst round.
    loss: f64,
    others: f64,
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub rounds: u32,
    pub seconds: f64,
    /// Beyond this many series there are no points of the curve.
    pub series_max: u64,
}

/// Takes every point of every curve once a round.
pub fn measure(host: &Host, extent: Extent) -> Result<Scale> {
    let mut columns: Vec<(Axis, u64, Vec<Run>)> = Vec::new();
    for axis in AXES {
        let counts = axis.counts().iter().filter(|&&count| count <= extent.series_max);
        columns.extend(counts.map(|&count| (axis, count, Vec::new())));
    }
    for _ in 0..extent.rounds {
        for (axis, count, runs) in &mut columns {
            let run = axis.run(host, *count, extent.seconds);
            runs.push(run.with_context(|| format!("{count} {}", axis.noun()))?);
        }
    }
    let curve = |of| {
        let columns = columns.iter().filter(|(axis, ..)| *axis == of);
        Curve { of, points: columns.map(|(_, count, runs)| Point::of(*count, runs)).collect() }
    };
    Ok(Scale { curves: AXES.map(curve).into() })
}

impl Scale {
    /// What was found and printed as JSON earlier.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    }

    /// Writes a plot for each thing that there is more and more of.
    pub fn plot(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory)?;
        for (file, noun, axes) in PLOTS {
            let curves = self.curves.iter().filter(|curve| axes.contains(&curve.of));
            let plot = Plot {
                title: format!("CPU time of a point by the number of {noun}"),
                x: noun.to_owned(),
                y: "times that of the first".to_owned(),
                curves: curves.map(Curve::plotted).collect(),
            };
            let path = directory.join(file);
            fs::write(&path, plot.svg()?).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

impl Axis {
    const fn counts(self) -> &'static [u64] {
        match self {
            Self::Series => &[100, 1000, 10_000, 100_000, 1_000_000],
            Self::RoutesMissed | Self::RoutesShared => &[1, 2, 5, 10, 20, 50],
            Self::BackendsOfWindows | Self::BackendsOfPoints => &[1, 2, 4, 8],
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Series => "series",
            Self::RoutesMissed => "routes, the last matches",
            Self::RoutesShared => "routes, each a part",
            Self::BackendsOfWindows => "backends of windows",
            Self::BackendsOfPoints => "backends of points",
        }
    }

    fn run(self, host: &Host, count: u64, seconds: f64) -> Result<Run> {
        let names = if self == Self::Series { count } else { NAMES };
        // Many series need the time to be seen, and a flush.
        let seconds = if self == Self::Series { seconds.max(WINDOW) } else { seconds };
        let rate = if self == Self::BackendsOfPoints { RATE_OF_POINTS } else { RATE };
        let lines = (rate * seconds) as u64;
        let flow = Flow { pack: PACK, rate, lines, first: 0, gso: 32, sockets: 1 };
        let stand = Stand::start(host, &self.plan(count))?;
        stand.offer(&Datagrams::new(names, PACK, false), flow, Until::Received)
    }

    fn plan(self, count: u64) -> Plan {
        let sink = Plan { backends: vec![(BACKEND.to_owned(), of_windows())], ..Plan::default() };
        match self {
            Self::Series => Plan::of(&of_windows()),
            Self::RoutesMissed => {
                let missed = (1..count).fold(sink, |plan, number| {
                    plan.route(&format!("service-{number}.*"), &[BACKEND])
                });
                missed.route("web.*", &[BACKEND])
            }
            Self::RoutesShared => {
                (0..count).fold(sink, |plan, part| plan.route(&pattern(part, count), &[BACKEND]))
            }
            Self::BackendsOfWindows => backends(count, &of_windows()),
            Self::BackendsOfPoints => backends(count, "kind = \"blackhole\"\n"),
        }
    }
}

fn of_windows() -> String {
    crate::gateway::of_windows("blackhole")
}

fn backends(count: u64, section: &str) -> Plan {
    (0..count).fold(Plan::default(), |plan, number| plan.to(&format!("{BACKEND}{number}"), section))
}

/// The names of one part of so many, by their last two digits.
fn pattern(part: u64, parts: u64) -> String {
    let (tens, ones) = if parts > 10 { (parts / 10, 10) } else { (1, parts) };
    let any_of = |part: u64, parts: u64| {
        let digits: Vec<_> =
            (part * 10 / parts..(part + 1) * 10 / parts).map(|digit| digit.to_string()).collect();
        match digits.as_slice() {
            [one] => one.clone(),
            many if many.len() == 10 => "?".to_owned(),
            many => format!("{{{}}}", many.join(",")),
        }
    };
    format!("web.*{}{}", any_of(part / ones, tens), any_of(part % ones, ones))
}

impl Point {
    fn of(count: u64, runs: &[Run]) -> Self {
        let rounds: Vec<f64> = runs.iter().map(Run::per_million).collect();
        let worst = |of: fn(&Run) -> f64| runs.iter().map(of).fold(0.0, f64::max);
        Self {
            count,
            cpu_per_million: median(rounds.clone()),
            rounds,
            loss: worst(Run::loss),
            others: worst(|run| run.others),
        }
    }
}

impl Curve {
    /// To its first point, in the median of the rounds' own ratios.
    fn ratio(&self, point: &Point) -> f64 {
        let first = self.points.first().map(|first| first.rounds.as_slice()).unwrap_or_default();
        median(point.rounds.iter().zip(first).map(|(cost, first)| cost / first).collect())
    }

    fn plotted(&self) -> plots::Curve {
        let points = self.points.iter().map(|point| (point.count as f64, self.ratio(point)));
        plots::Curve { name: self.of.noun().to_owned(), points: points.collect() }
    }

    fn cells(&self) -> impl Iterator<Item = Vec<String>> {
        self.points.iter().map(|point| {
            vec![
                self.of.noun().to_owned(),
                short(point.count as f64),
                format!("{:.3}", point.cpu_per_million),
                format!("{:.2}x", self.ratio(point)),
                format!("{:.3}%", point.loss * 100.0),
                format!("{:.2}", point.others),
            ]
        })
    }
}

impl Tabular for Scale {
    fn tables(&self) -> Vec<Table> {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let mut notes = vec!["Compare ratios, never rates: see benches/README.md.".to_owned()];
        if points().any(|point| point.others > QUIET) {
            notes.push(format!("Others used more than {QUIET} core: losses may be theirs."));
        }
        let head = vec!["of", "how many", "CPU-s/M", "x first", "lost", "others"];
        vec![Table { head, rows: self.curves.iter().flat_map(Curve::cells).collect(), notes }]
    }
}

const AXES: [Axis; 5] = [
    Axis::Series,
    Axis::RoutesMissed,
    Axis::RoutesShared,
    Axis::BackendsOfWindows,
    Axis::BackendsOfPoints,
];

const PLOTS: [(&str, &str, &[Axis]); 3] = [
    ("series.svg", "series", &[Axis::Series]),
    ("routes.svg", "routes", &[Axis::RoutesMissed, Axis::RoutesShared]),
    ("backends.svg", "backends", &[Axis::BackendsOfWindows, Axis::BackendsOfPoints]),
];

const NAMES: u64 = 10_000;

/// Lines of a datagram.
const PACK: u64 = 25;

/// Lines a second.
const RATE: f64 = 400e3;

/// The same where each line is encoded for up to eight backends.
const RATE_OF_POINTS: f64 = 100e3;

/// Seconds that hold a flush for certain.
const WINDOW: f64 = 11.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// The patterns of every table divide all names among them.
    #[test]
    fn each_name_is_of_one_part() {
        for parts in [1, 2, 5, 10, 20, 50] {
            let patterns: Vec<String> = (0..parts).map(|part| pattern(part, parts)).collect();
            for last in 0..100_u64 {
                let of_it = patterns.iter().filter(|pattern| matches(pattern, last)).count();
                assert_eq!(of_it, 1, "{last:02} in {patterns:?}");
            }
        }
        assert_eq!(pattern(0, 1), "web.*??");
        assert_eq!(pattern(1, 2), "web.*?{5,6,7,8,9}");
        assert_eq!(pattern(49, 50), "web.*{8,9}9");
    }

    /// What a glob would say of these two digits, for the patterns that there are.
    fn matches(pattern: &str, last: u64) -> bool {
        let sets = pattern.strip_prefix("web.*").unwrap();
        let cut = sets.find('}').map_or(1, |end| if sets.starts_with('{') { end + 1 } else { 1 });
        let has = |set: &str, digit: u64| set == "?" || set.contains(&digit.to_string());
        has(&sets[..cut], last / 10) && has(&sets[cut..], last % 10)
    }

    #[test]
    fn a_plan_has_as_many_as_were_asked_for() {
        for count in [1, 2, 50] {
            assert_eq!(Axis::RoutesMissed.plan(count).routes.len() as u64, count);
            assert_eq!(Axis::RoutesShared.plan(count).routes.len() as u64, count);
            assert_eq!(Axis::BackendsOfPoints.plan(count).backends.len() as u64, count);
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let point = |count, rounds: &[f64]| Point {
            count,
            cpu_per_million: median(rounds.to_vec()),
            rounds: rounds.to_vec(),
            loss: 0.0,
            others: 0.0,
        };
        let points = vec![point(1, &[1.0, 10.0, 1.0]), point(2, &[2.0, 20.0, 3.0])];
        let scale = Scale { curves: vec![Curve { of: Axis::Series, points }] };
        let curve = &scale.curves[0];
        assert!((curve.ratio(&curve.points[1]) - 2.0).abs() < 1e-12);
        let told = serde_json::to_string(&scale).unwrap();
        assert_eq!(serde_json::from_str::<Scale>(&told).unwrap(), scale);
    }
}
