//! How long a point takes.
//!
//! *Alone*: a point that nothing follows waits in an unaggregated backend's batch for its `flush`;
//! it should be there soon after that. *Under load*: marks go through the same socket as a load at
//! half the rate that loses nothing, and a backend whose batches hold one point sends each back at
//! once. So a mark's time holds the wait in the socket, parsing, routing, the lane's inbox, its
//! queue, and the way out. What of it lies between parsing and the queue, the gateway tells itself.

use crate::echo::{Away, Echo, MARK, Marks, Times, jitter, mark_socket, send_mark};
use crate::ledger::{ECHO, Until};
use crate::lines::field;
use crate::mix::Datagrams;
use crate::pace::rest;
use crate::report::short;
use crate::search;
use crate::shelf::{Shelf, rows};
use crate::stand::{BACKEND, Host, Plan, Stand, influxdb};
use crate::statsd::Flow;
use crate::table::{Table, Tabular};
use crate::trial::Bench;
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Latencies {
    /// Seconds of the backends' `flush`.
    flush: f64,
    alone: Vec<Alone>,
    loaded: Vec<Loaded>,
}

/// Points sent alone to one backend.
#[derive(Debug, Serialize)]
struct Alone {
    backend: &'static str,
    away: Away,
}

/// Marks among a load.
#[derive(Debug, Serialize)]
struct Loaded {
    /// Lines a second; zero is no load.
    rate: f64,
    loss: f64,
    away: Away,
    /// The part of marks that were queued within a millisecond of being parsed.
    queued: f64,
    others: f64,
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub flush: Duration,
    /// Points that are sent alone.
    pub points: u64,
    /// Of the load.
    pub seconds: f64,
    /// Lines a second; without it, half of what a search finds.
    pub rate: Option<f64>,
}

/// Measures both.
pub fn measure(host: &Host, extent: Extent) -> Result<Latencies> {
    crate::cpu::pin(host.cpus.generator)?;
    let rate = extent.rate.map_or_else(|| half_the_lossless_rate(host), Ok)?;
    Ok(Latencies {
        flush: extent.flush.as_secs_f64(),
        alone: alone(host, extent)?,
        loaded: vec![loaded(host, extent.seconds, IDLE)?, loaded(host, extent.seconds, rate)?],
    })
}

fn half_the_lossless_rate(host: &Host) -> Result<f64> {
    let Host { gateway, cpus } = host.clone();
    let bench = Bench { gateway, cpus, names: NAMES, seconds: 1.0, window: 10.0 };
    let found = search::search(&[search::with_database(&bench, "influxdb", 1)], &[PACK])?;
    Ok(found.lossless() / 2.0)
}

fn alone(host: &Host, Extent { flush, points, .. }: Extent) -> Result<Vec<Alone>> {
    let (echo, shelf) = (Echo::start()?, Shelf::start()?);
    let points_as_they_are = format!(
        "{}aggregate = false\nflush = \"{}ms\"\n",
        influxdb(&shelf.url()),
        flush.as_millis()
    );
    let plan =
        Plan::default().to("relay", &echo.section(Some(flush))).to("database", &points_as_they_are);
    let stand = Stand::start(host, &plan)?;
    let socket = mark_socket(stand.datagrams()?)?;
    let mut left = Times::new();
    for number in 0..points {
        left.insert(number, send_mark(&socket, number)?);
        // The next is alone when this one is long gone, and comes at any phase of a timer.
        rest(flush.mul_f64(1.5) + jitter(number, flush));
    }
    rest(flush * 5);
    let back = arrivals(&shelf)?;
    Ok(vec![
        Alone { backend: "statsd, UDP", away: Away::of(&left, &echo.heard()) },
        Alone { backend: "influxdb", away: Away::of(&left, &back) },
    ])
}

/// When the shelf had each mark.
fn arrivals(shelf: &Shelf) -> Result<Times> {
    let mut times = Times::new();
    for body in shelf.take() {
        let rows = rows(&body)?;
        for row in rows.split(|byte| *byte == b'\n').filter(|row| row.starts_with(MARK.as_bytes()))
        {
            let number = field(row, b"value").map(|number| number as u64);
            times.extend(number.map(|number| (number, body.arrived)));
        }
    }
    Ok(times)
}

fn loaded(host: &Host, seconds: f64, rate: f64) -> Result<Loaded> {
    let (echo, shelf) = (Echo::start()?, Shelf::start()?);
    let plan = Plan::default().first(MARK, ECHO, &echo.section(None));
    let plan = plan.to(BACKEND, &influxdb(&shelf.url()));
    let stand = Stand::start(host, &plan)?;
    let datagrams = Datagrams::new(NAMES, PACK, false);
    let flow =
        Flow { pack: PACK, rate, lines: (rate * seconds) as u64, first: 0, gso: 32, sockets: 1 };
    let marks = Marks::start(stand.datagrams()?, APART);
    let mut left = Times::new();
    let run = stand.offer_among(&datagrams, flow, Until::Received, || {
        left = marks.end()?;
        Ok(left.len() as u64)
    })?;
    rest(LATE);
    let queued =
        |bound: &str| stand.metric(&format!("{WAITS}{{backend=\"{ECHO}\",le=\"{bound}\"}}"));
    Ok(Loaded {
        queued: queued("0.001")? / queued("+Inf")?,
        rate: run.sent.rate(),
        loss: run.loss(),
        away: Away::of(&left, &echo.heard()),
        others: run.others,
    })
}

impl Tabular for Latencies {
    fn tables(&self) -> Vec<Table> {
        let alone = vec!["sent alone", "points", "missing", "p50", "p99", "longest"];
        let loaded = vec![
            "lines/s",
            "lost",
            "marks",
            "missing",
            "queued in 1 ms",
            "p50 us",
            "p99 us",
            "longest",
            "others",
        ];
        let flush = format!("Times of points sent alone are multiples of flush, {} s.", self.flush);
        vec![
            Table {
                head: alone,
                rows: self.alone.iter().map(|alone| alone.cells(self.flush)).collect(),
                notes: vec![flush],
            },
            Table {
                head: loaded,
                rows: self.loaded.iter().map(Loaded::cells).collect(),
                notes: vec!["A mark's time holds the way out, too.".to_owned()],
            },
        ]
    }
}

impl Alone {
    fn cells(&self, flush: f64) -> Vec<String> {
        let times = |seconds: f64| format!("{:.3}x", seconds / flush);
        let Away { marks, missing, p50, p99, longest } = self.away;
        vec![
            self.backend.to_owned(),
            marks.to_string(),
            missing.to_string(),
            times(p50),
            times(p99),
            times(longest),
        ]
    }
}

impl Loaded {
    fn cells(&self) -> Vec<String> {
        let Away { marks, missing, .. } = self.away;
        vec![
            short(self.rate),
            format!("{:.4}%", self.loss * 100.0),
            marks.to_string(),
            missing.to_string(),
            format!("{:.2}%", self.queued * 100.0),
            micros(self.away.p50),
            micros(self.away.p99),
            micros(self.away.longest),
            format!("{:.2}", self.others),
        ]
    }
}

/// As text.
pub fn micros(seconds: f64) -> String {
    format!("{:.0}", seconds * 1e6)
}

/// How long points took from being parsed and routed to being encoded, and so, in a batch of one, queued.
const WAITS: &str = "pointsman_inbox_wait_seconds_bucket";

const NAMES: u64 = 10_000;

/// Lines of a datagram.
const PACK: u64 = 25;

/// Lines a second of a gateway that has nothing to do.
const IDLE: f64 = 1000.0;

/// At least this long between marks: a few hundred a second are no load.
const APART: Duration = Duration::from_millis(2);

/// How long a mark that is late is waited for.
const LATE: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_multiples_of_flush() {
        let away = Away { marks: 3, missing: 0, p50: 0.1, p99: 0.11, longest: 0.2 };
        let alone = Alone { backend: "statsd, UDP", away };
        assert_eq!(alone.cells(0.1)[3..], ["1.000x", "1.100x", "2.000x"]);
        let loaded = Loaded { rate: 1e6, loss: 0.0, away, queued: 0.995, others: 0.0 };
        assert_eq!(loaded.cells()[4..6], ["99.50%", "100000"]);
    }
}
