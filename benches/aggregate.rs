//! What it costs to take a point of a known series in, on the receiving task.

use pointsman::backend::{Outcome, Payload, Ship, Shipping};
use pointsman::clock::Clock;
use pointsman::lane::{Config, Lane, Settings, State, Terms, series_hash, spawn};
use pointsman::origin::{Origin, Protocol};
use pointsman::waybill::Via;
use protocols::{Batch, Encode, Measure, Point, Skip, UnixNanos};
use std::sync::Arc;

fn main() {
    divan::main();
}

/// Batches of 512 counters, 10,000 names in all, two tags each; the first round is not measured.
#[divan::bench(args = [1_000, 10_000, 100_000])]
fn known_counters(bencher: divan::Bencher<'_, '_>, names: usize) {
    absorb(bencher, names, Measure::Count { delta: 1.0, rate: 1.0 });
}

/// The same with gauges, which keep no more than the last reading.
#[divan::bench(args = [10_000])]
fn known_gauges(bencher: divan::Bencher<'_, '_>, names: usize) {
    absorb(bencher, names, Measure::Gauge(1.0));
}

fn absorb(bencher: divan::Bencher<'_, '_>, names: usize, measure: Measure<'_>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
    let Ok(runtime) = runtime else { return };
    let _entered = runtime.enter();
    let lane = lane();
    let batches: Vec<_> = (0..names).step_by(512).map(|from| batch(from, names, measure)).collect();
    batches.iter().for_each(|batch| take(&lane, batch));
    let mut next = batches.iter().cycle();
    bencher
        .counter(divan::counter::ItemsCount::new(512_usize))
        .bench_local(|| next.next().into_iter().for_each(|batch| take(&lane, batch)));
}

fn take(lane: &Lane, batch: &Batch) {
    let origin = Origin { listener: "statsd".into(), protocol: Protocol::Statsd };
    let via = Arc::new(Via { route: "all".into(), rewrite: None });
    let mut front = lane.front(0, UnixNanos(0), &origin, Terms::default());
    for point in batch.iter() {
        front.take(&point, series_hash(point.name, point.tags), &via);
    }
    front.close();
}

fn batch(from: usize, names: usize, measure: Measure<'_>) -> Batch {
    let mut batch = Batch::new();
    for n in 0..512 {
        let mut writer = batch.begin(&format!("service.request.{}.duration", (from + n) % names));
        writer.tag("env", Some("production"));
        writer.tag("host", Some("worker-17"));
        writer.finish(measure, None, "");
    }
    batch
}

fn lane() -> Lane {
    let hour = pointsman::units::Span::secs(3600);
    let config = Config { flush: Some(hour), ..Config::default() };
    let settings = Settings::new("bench", "influxdb", &config);
    let state = State::new(Arc::default(), settings.shards);
    spawn(settings, state, Box::new(Nothing), Box::new(Nothing), Clock::System).0
}

struct Nothing;

impl Encode for Nothing {
    fn encode(&mut self, _: &Point<'_>, _: &mut Vec<u8>) -> Result<(), Skip> {
        Ok(())
    }
}

impl Ship for Nothing {
    fn ship<'a>(&'a mut self, _: &'a Payload) -> Shipping<'a> {
        Box::pin(async { Outcome::Delivered })
    }
}
