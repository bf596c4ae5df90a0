//! Windows: taking points in on the receiving task, and what the shaper does at the edge.
//!
//! 10,000 series with two tags, in batches of 500. Series are known but where it says otherwise.

use crate::encode::line_protocol;
use crate::lanes::Yard;
use crate::step::{Run, Step};
use anyhow::Result;
use pointsman::lane::{Config, Terms, series_hash};
use pointsman::origin::{Origin, Protocol};
use pointsman::units::Span;
use pointsman::waybill::Via;
use protocols::{Batch, Measure, UnixNanos};
use std::sync::Arc;
use std::time::Duration;

/// Every step of it.
pub const STEPS: &[Step] = &[
    Step::new("counter", SERIES, || known(COUNT)),
    Step::new("gauge", SERIES, || known(GAUGE)),
    Step::once("timer", SERIES * SAMPLES, || known(TIMING).map(|run| repeated(run, SAMPLES))),
    Step::new("set", SERIES, || known(MEMBER)),
    Step::once("new_counter", SERIES, || new(COUNT)),
    Step::once("new_timer", SERIES, || new(TIMING)),
    Step::once("close_counters", SERIES, || close(COUNT)).each("series"),
    Step::once("close_gauges", SERIES, || close(GAUGE)).each("series"),
    Step::once("close_timers", SERIES, || close(TIMING)).each("series"),
    Step::once("close_sets", SERIES, || close(MEMBER)).each("series"),
];

/// Points of series that the open window has.
fn known(measure: Measure<'static>) -> Result<Run> {
    let mut run = new(measure)?;
    run();
    Ok(run)
}

/// Points of series that nobody has seen, but for the second run and later.
fn new(measure: Measure<'static>) -> Result<Run> {
    let yard = yard()?;
    let batches = batches(measure);
    Ok(Box::new(move || batches.iter().map(|batch| take(&yard, batch)).sum()))
}

/// The end of a window that has one point of each series: swap, rows, encoding, queue.
fn close(measure: Measure<'static>) -> Result<Run> {
    let mut yard = yard()?;
    // The shaper is to wait for the edge already.
    yard.runtime.block_on(tokio::task::yield_now());
    batches(measure).iter().for_each(|batch| _ = take(&yard, batch));
    Ok(Box::new(move || {
        yard.runtime.block_on(tokio::time::advance(WINDOW));
        yard.deliver(SERIES)
    }))
}

fn repeated(mut run: Run, times: usize) -> Run {
    Box::new(move || (0..times).map(|_| run()).sum())
}

fn take(yard: &Yard, batch: &Batch) -> usize {
    let origin = Origin::new("statsd", Protocol::Statsd);
    let via = Arc::new(Via { route: "all".into(), rewrite: None });
    let mut front = yard.lane.front(0, UnixNanos(0), &origin, Terms::default());
    for point in divan::black_box(batch).iter() {
        front.take(&point, series_hash(point.name, point.tags), &via);
    }
    front.close();
    batch.len()
}

fn batches(measure: Measure<'_>) -> Vec<Batch> {
    (0..SERIES).step_by(TOGETHER).map(|from| batch(from, measure)).collect()
}

fn batch(from: usize, measure: Measure<'_>) -> Batch {
    let mut batch = Batch::new();
    for n in from..from + TOGETHER {
        let mut writer = batch.begin(&format!("service.request.{n}.duration"));
        writer.tag("env", Some("production"));
        writer.tag("host", Some("worker-17"));
        writer.finish(measure, None, "");
    }
    batch
}

fn yard() -> Result<Yard> {
    let window = Some(Span(WINDOW));
    Yard::new("influxdb", &Config { flush: window, ..Config::default() }, line_protocol(), None)
}

const SERIES: usize = 10_000;
const TOGETHER: usize = 500;
/// Samples that each timer gets, beside the first.
const SAMPLES: usize = 9;
const WINDOW: Duration = Duration::from_secs(3600);

const COUNT: Measure<'_> = Measure::Count { delta: 1.0, rate: 1.0 };
const GAUGE: Measure<'_> = Measure::Gauge(17.25);
const TIMING: Measure<'_> = Measure::Timing { ms: 17.25, rate: 1.0 };
const MEMBER: Measure<'_> = Measure::Set("user-17");
