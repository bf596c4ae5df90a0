//! What flushing windows does to receiving: a fixed rate of datagrams through many windows, with
//! the rows sent to an InfluxDB that keeps them, whose sums must be exact.
//!
//! The bare receiver is offered the same load for a few seconds before, so that a ratio can be
//! told; it has no windows, so a longer trial would tell the same.

use crate::compare::QUIET;
use crate::ledger::Until;
use crate::lines::Totals;
use crate::mix::Datagrams;
use crate::pace;
use crate::report::short;
use crate::shelf::Shelf;
use crate::stand::{BACKEND, Host, Plan, Run, Stand, influxdb};
use crate::statsd::Flow;
use crate::table::{Table, Tabular};
use crate::trial::{Bench, Load, Subject};
use anyhow::Result;
use serde::Serialize;
use std::str::FromStr;

/// So many lines a second of so many series; written `3M/s:10000`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    pub rate: f64,
    pub names: u64,
}

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Flushes {
    rows: Vec<Row>,
}

/// One load.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    names: u64,
    /// Lines a second that were sent; the generator may be slower than what was asked of it.
    rate: f64,
    asked: f64,
    seconds: f64,
    /// Datagrams that the kernel dropped.
    kernel_dropped: u64,
    /// Points that the gateway dropped.
    dropped: u64,
    loss: f64,
    /// What the counters at the backend sum up to, less what was sent.
    sum_off_by: f64,
    /// Rows that the backend has, less those that the books say were delivered.
    rows_off_by: i64,
    rows: u64,
    cpu_per_million: f64,
    bare_per_million: f64,
    resident: u64,
    peak: u64,
    others: f64,
}

/// Offers each load through so many windows of ten seconds.
pub fn measure(host: &Host, offers: &[Offer], windows: u64) -> Result<Flushes> {
    let rows = offers.iter().map(|&offer| through_windows(host, offer, windows));
    Ok(Flushes { rows: rows.collect::<Result<_>>()? })
}

fn through_windows(host: &Host, offer: Offer, windows: u64) -> Result<Row> {
    let bare = bare_per_million(host, offer)?;
    // What the shelf does is the generator's.
    crate::cpu::pin(host.cpus.generator)?;
    let shelf = Shelf::start()?;
    let stand = Stand::start(host, &Plan::of(&influxdb(&shelf.url())))?;
    let datagrams = Datagrams::new(offer.names, PACK, false);
    let seconds = windows * WINDOW;
    let lines = (offer.rate * seconds as f64) as u64;
    let flow = Flow { pack: PACK, rate: offer.rate, lines, first: 0, gso: 32, sockets: 1 };
    let run = stand.offer(&datagrams, flow, Until::Empty(&[BACKEND]))?;
    row(offer, &run, shelf.totals()?, bare)
}

fn bare_per_million(host: &Host, Offer { rate, names }: Offer) -> Result<f64> {
    let Host { gateway, cpus } = host.clone();
    let bench = Bench { gateway, cpus, names, seconds: BARE, window: 10.0 };
    Ok(bench.run(Subject::Bare, Load::Datagrams { pack: PACK, rate })?.per_million())
}

fn row(offer: Offer, run: &Run, arrived: Totals, bare: f64) -> Result<Row> {
    let book = run.ledger.backend(BACKEND)?;
    Ok(Row {
        names: offer.names,
        rate: run.sent.rate(),
        asked: offer.rate,
        seconds: run.sent.seconds,
        kernel_dropped: run.ledger.datagrams().kernel_dropped,
        dropped: run.ledger.dropped(),
        loss: run.loss(),
        sum_off_by: arrived.counter_sum - run.sent.counter_sum.unwrap_or(0) as f64,
        rows_off_by: arrived.rows.cast_signed() - book.delivered.cast_signed(),
        rows: arrived.rows,
        cpu_per_million: run.per_million(),
        bare_per_million: bare,
        resident: run.memory.resident,
        peak: run.memory.peak,
        others: run.others,
    })
}

impl Flushes {
    /// Whether the backend has what was sent, where nothing was lost on the way.
    pub fn is_exact(&self) -> bool {
        self.rows.iter().all(Row::is_exact)
    }
}

impl Row {
    /// The books are judged before there is a row; here it is what the backend has.
    fn is_exact(&self) -> bool {
        self.rows_off_by == 0 && (self.loss > 0.0 || self.sum_off_by == 0.0)
    }

    fn sums(&self) -> String {
        match self {
            Self { rows_off_by: rows @ (1.. | ..=-1), .. } => format!("{rows} ROWS"),
            Self { sum_off_by, .. } if *sum_off_by == 0.0 => "exact".to_owned(),
            Self { loss, .. } if *loss > 0.0 => "lost some".to_owned(),
            Self { sum_off_by, .. } => format!("OFF BY {sum_off_by}"),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.names.to_string(),
            format!("{}/s", short(self.rate)),
            format!("{:.0}", self.seconds),
            format!("{:.4}%", self.loss * 100.0),
            self.kernel_dropped.to_string(),
            self.dropped.to_string(),
            self.sums(),
            format!("{:.3}", self.cpu_per_million),
            format!("{:.1}x", self.cpu_per_million / self.bare_per_million),
            mebibytes(self.resident),
            mebibytes(self.peak),
            format!("{:.2}", self.others),
        ]
    }
}

impl Tabular for Flushes {
    fn tables(&self) -> Vec<Table> {
        let mut notes = vec!["Compare ratios, never rates: see benches/README.md.".to_owned()];
        if self.rows.iter().any(|row| row.others > QUIET) {
            notes.push(format!("Others used more than {QUIET} core: losses may be theirs."));
        }
        if self.rows.iter().any(|row| row.rate < row.asked * REACHED) {
            notes.push("The generator did not reach the rate that was asked of it.".to_owned());
        }
        let head = vec![
            "series", "lines/s", "seconds", "lost", "kernel", "dropped", "sums", "CPU-s/M",
            "x bare", "MiB", "peak", "others",
        ];
        vec![Table { head, rows: self.rows.iter().map(Row::cells).collect(), notes }]
    }
}

impl FromStr for Offer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rate, names) = text.split_once(':').ok_or("wanted RATE:SERIES, as in 3M/s:10000")?;
        let names = names.parse().ok().filter(|names| (1..=10_000_000).contains(names));
        let names = names.ok_or("wanted a number of series up to ten million")?;
        Ok(Self { rate: pace::parse_rate(rate)?, names })
    }
}

/// As text; memory is seldom known better.
pub fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// Lines of a datagram.
const PACK: u64 = 25;

/// Seconds of a window, as it is by default.
const WINDOW: u64 = 10;

/// Seconds of the bare receiver.
const BARE: f64 = 4.0;

/// Below this part of a rate the generator has not offered it.
const REACHED: f64 = 0.97;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_read_as_typed() {
        let check = |text: &str, expected| assert_eq!(text.parse().ok(), expected, "{text}");
        check("3M/s:10000", Some(Offer { rate: 3e6, names: 10_000 }));
        check("500k:1", Some(Offer { rate: 5e5, names: 1 }));
        check("500k", None);
        check("500k:0", None);
        check("fast:10", None);
    }

    #[test]
    fn sums_must_be_exact_where_nothing_was_lost() {
        let row = |loss, sum_off_by, rows_off_by| Row {
            names: 1,
            rate: 1.0,
            asked: 1.0,
            seconds: 1.0,
            kernel_dropped: 0,
            dropped: 0,
            loss,
            sum_off_by,
            rows_off_by,
            rows: 1,
            cpu_per_million: 1.0,
            bare_per_million: 1.0,
            resident: 0,
            peak: 0,
            others: 0.0,
        };
        let check =
            |row: Row, exact, said| assert_eq!((row.is_exact(), &*row.sums()), (exact, said));
        check(row(0.0, 0.0, 0), true, "exact");
        check(row(0.0, -5.0, 0), false, "OFF BY -5");
        check(row(0.1, -5.0, 0), true, "lost some");
        check(row(0.1, -5.0, -2), false, "-2 ROWS");
    }
}
