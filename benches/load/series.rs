//! What many series cost: the memory of each, and the CPU time of a point.
//!
//! Memory is what is resident with many series less what is with few, in two gateways that have
//! seen the same otherwise; so what a gateway has anyway is in nobody's figure. The CPU time is
//! that of the usual mix at the same rate, flushes to a database included.

use crate::flush::mebibytes;
use crate::ledger::Until;
use crate::mix::{Datagrams, Kind, name_length};
use crate::report::short;
use crate::server::Memory;
use crate::shelf::Shelf;
use crate::stand::{BACKEND, Host, Plan, Run, Stand, influxdb};
use crate::statsd::Flow;
use crate::table::{Table, Tabular};
use anyhow::{Result, ensure};
use serde::Serialize;

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Costs {
    sizes: Vec<Size>,
    times: Vec<Time>,
}

/// The memory of one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Size {
    what: &'static str,
    /// How many more of it the second gateway has.
    more: u64,
    few: Resident,
    many: Resident,
    /// The bytes of its name.
    name: usize,
}

/// Bytes of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Resident {
    now: u64,
    peak: u64,
}

/// The CPU time of a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Time {
    series: u64,
    rate: f64,
    cpu_per_million: f64,
    resident: Resident,
    loss: f64,
    others: f64,
}

/// When memory is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// In the window that they were sent in, which does not end.
    Open,
    /// When that window is delivered, and they are kept on.
    Idle,
    /// With windows that end every ten seconds while points come in.
    Busy,
}

/// A number of series of one kind, and how often each is sent.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    kind: Kind,
    names: u64,
    times: u64,
}

/// Measures so many series against few.
pub fn measure(host: &Host, many: u64, quick: bool) -> Result<Costs> {
    let seconds = if quick { 12 } else { 22 };
    Ok(Costs {
        sizes: vec![
            size(host, "counter, open window", Kind::Counter, many, Moment::Open)?,
            size(host, "counter, idle", Kind::Counter, many, Moment::Idle)?,
            size(host, "counter, busy", Kind::Counter, many, Moment::Busy)?,
            size(host, "gauge, open window", Kind::Gauge, many, Moment::Open)?,
            size(host, "gauge, idle", Kind::Gauge, many, Moment::Idle)?,
            size(host, "timer of one sample", Kind::Timer, many, Moment::Open)?,
            sample(host, many / 10)?,
        ],
        times: vec![time(host, FEW, seconds)?, time(host, many, seconds)?],
    })
}

fn size(host: &Host, what: &'static str, kind: Kind, many: u64, moment: Moment) -> Result<Size> {
    let resident = |names| resident(host, Crowd { kind, names, times: 1 }, moment);
    let (few, many_of_it) = (resident(FEW)?, resident(many)?);
    Ok(Size { what, more: many - FEW, few, many: many_of_it, name: name_length(kind) })
}

/// One more sample of a timer that has some.
fn sample(host: &Host, timers: u64) -> Result<Size> {
    let resident =
        |times| resident(host, Crowd { kind: Kind::Timer, names: timers, times }, Moment::Open);
    let (few, many) = (resident(1)?, resident(1 + SAMPLES)?);
    Ok(Size { what: "sample of a timer", more: timers * SAMPLES, few, many, name: 0 })
}

/// Over TCP: a figure of fewer series than are meant is none.
fn resident(host: &Host, crowd: Crowd, moment: Moment) -> Result<Resident> {
    crate::cpu::pin(host.cpus.generator)?;
    let shelf = Shelf::start()?;
    let stand = Stand::start(host, &Plan::of(&section(moment, &shelf)))?;
    let datagrams = Datagrams::of_kind(crowd.kind, crowd.names, PACK);
    let lines = match moment {
        Moment::Busy => (RATE * BUSY) as u64,
        _ => crowd.names * crowd.times,
    };
    let until = match moment {
        Moment::Idle => Until::Empty(&[BACKEND]),
        _ => Until::Received,
    };
    let run = stand.pour(&datagrams, flow(lines), until)?;
    ensure!(run.loss() == 0.0, "{crowd:?} lost some: {:?}", run.ledger);
    Ok(run.memory.into())
}

/// A backend that keeps nothing, where the rows are not looked at.
fn section(moment: Moment, shelf: &Shelf) -> String {
    match moment {
        Moment::Open => "kind = \"blackhole\"\naggregate = true\nflush = \"1d\"\n".to_owned(),
        Moment::Idle => "kind = \"blackhole\"\naggregate = true\nflush = \"10s\"\n\
             expire = { counter = \"1h\" }\n"
            .to_owned(),
        Moment::Busy => influxdb(&shelf.url()),
    }
}

fn time(host: &Host, series: u64, seconds: u64) -> Result<Time> {
    crate::cpu::pin(host.cpus.generator)?;
    let shelf = Shelf::start()?;
    let stand = Stand::start(host, &Plan::of(&influxdb(&shelf.url())))?;
    let datagrams = Datagrams::new(series, PACK, false);
    let lines = (RATE * seconds as f64) as u64;
    let run = stand.offer(&datagrams, flow(lines), Until::Empty(&[BACKEND]))?;
    let arrived = shelf.totals()?.counter_sum;
    let sent = run.sent.counter_sum.unwrap_or(0) as f64;
    ensure!(run.loss() > 0.0 || arrived == sent, "counters sum up to {arrived}, not to {sent}");
    Ok(Time::of(series, &run))
}

fn flow(lines: u64) -> Flow {
    Flow { pack: PACK, rate: RATE, lines, first: 0, gso: 32, sockets: 1 }
}

impl Time {
    fn of(series: u64, run: &Run) -> Self {
        Self {
            series,
            rate: run.sent.rate(),
            cpu_per_million: run.per_million(),
            resident: run.memory.into(),
            loss: run.loss(),
            others: run.others,
        }
    }
}

impl From<Memory> for Resident {
    fn from(memory: Memory) -> Self {
        Self { now: memory.resident, peak: memory.peak }
    }
}

impl Size {
    /// Bytes of one, by what is resident now or was at the most.
    fn each(&self, of: fn(&Resident) -> u64) -> f64 {
        (of(&self.many) as f64 - of(&self.few) as f64) / self.more as f64
    }

    fn cells(&self) -> Vec<String> {
        let beyond = |of| format!("{:.0}", self.each(of) - self.name as f64);
        vec![
            self.what.to_owned(),
            short(self.more as f64),
            mebibytes(self.few.now),
            mebibytes(self.many.now),
            format!("{:.0}", self.each(|of| of.now)),
            beyond(|of| of.now),
            beyond(|of| of.peak),
        ]
    }
}

impl Tabular for Costs {
    fn tables(&self) -> Vec<Table> {
        let sizes =
            vec!["memory", "more", "MiB few", "MiB many", "bytes each", "beyond name", "at peak"];
        let times = vec!["series", "lines/s", "lost", "CPU-s/M", "x few", "MiB", "peak", "others"];
        vec![
            Table {
                head: sizes,
                rows: self.sizes.iter().map(Size::cells).collect(),
                notes: Vec::new(),
            },
            Table { head: times, rows: self.time_cells(), notes: Vec::new() },
        ]
    }
}

impl Costs {
    fn time_cells(&self) -> Vec<Vec<String>> {
        let few = self.times.first().map_or(f64::NAN, |time| time.cpu_per_million);
        let cells = |time: &Time| {
            vec![
                time.series.to_string(),
                format!("{}/s", short(time.rate)),
                format!("{:.4}%", time.loss * 100.0),
                format!("{:.3}", time.cpu_per_million),
                format!("{:.2}x", time.cpu_per_million / few),
                mebibytes(time.resident.now),
                mebibytes(time.resident.peak),
                format!("{:.2}", time.others),
            ]
        };
        self.times.iter().map(cells).collect()
    }
}

/// Series of the gateway that others are held against.
const FEW: u64 = 10_000;

/// More samples of each timer: no power of two, which would fit a vector that doubles.
const SAMPLES: u64 = 50;

/// Lines of a datagram.
const PACK: u64 = 25;

/// Lines a second.
const RATE: f64 = 500e3;

/// Seconds of a busy gateway, which hold a flush or two.
const BUSY: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_one_are_what_more_of_them_take() {
        let size = Size {
            what: "counter",
            more: 1000,
            few: Resident { now: 1 << 20, peak: 2 << 20 },
            many: Resident { now: (1 << 20) + 100_000, peak: (2 << 20) + 300_000 },
            name: 39,
        };
        assert!((size.each(|of| of.now) - 100.0).abs() < 1e-9);
        assert_eq!(size.cells()[4..], ["100", "61", "261"]);
    }

    #[test]
    fn times_are_held_against_the_first() {
        let time = |series, cpu_per_million| Time {
            series,
            rate: 1.0,
            cpu_per_million,
            resident: Resident::default(),
            loss: 0.0,
            others: 0.0,
        };
        let costs = Costs { sizes: Vec::new(), times: vec![time(10, 0.2), time(1000, 0.5)] };
        assert_eq!(costs.time_cells()[1][4], "2.50x");
    }
}
