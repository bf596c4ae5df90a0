//! Parsing: bytes to points in a batch, one line or one body at a time.
//!
//! Compare within one run: `statsd` against `split`, which only finds the lines.

use divan::counter::ItemsCount;
use protocols::influxdb::{ReadOptions, parse_body as parse_lines};
use protocols::json::Limits as JsonLimits;
use protocols::opentsdb::{PutOptions, parse_body, parse_put};
use protocols::statsd::{Dialects, Limits, lines, parse_line};
use protocols::{Batch, json};

mod samples;

fn main() {
    divan::main();
}

/// The floor: finding the lines and reading nothing.
#[divan::bench]
fn split(bencher: divan::Bencher<'_, '_>) {
    let body = samples::statsd_plain();
    let count = lines(body.as_bytes()).count();
    bencher
        .counter(ItemsCount::new(count))
        .bench(|| lines(divan::black_box(body.as_bytes())).count());
}

#[divan::bench]
fn statsd_plain(bencher: divan::Bencher<'_, '_>) {
    statsd(bencher, &samples::statsd_plain());
}

#[divan::bench]
fn statsd_tagged(bencher: divan::Bencher<'_, '_>) {
    statsd(bencher, &samples::statsd_tagged());
}

#[divan::bench]
fn opentsdb_put(bencher: divan::Bencher<'_, '_>) {
    let body = samples::puts();
    let options = PutOptions::default();
    let mut batch = Batch::new();
    bencher.counter(ItemsCount::new(samples::LINES)).bench_local(|| {
        batch.clear();
        for line in lines(divan::black_box(body.as_bytes())) {
            parse_put(line, &options, &mut batch).ok();
        }
        batch.len()
    });
}

#[divan::bench]
fn opentsdb_json(bencher: divan::Bencher<'_, '_>) {
    let body = samples::put_json();
    let options = PutOptions::default();
    let mut batch = Batch::new();
    bencher.counter(ItemsCount::new(samples::LINES)).bench_local(|| {
        batch.clear();
        parse_body(divan::black_box(body.as_bytes()), &options, &mut batch).is_ok()
    });
}

#[divan::bench]
fn json_points(bencher: divan::Bencher<'_, '_>) {
    let body = samples::json_points();
    let mut batch = Batch::new();
    bencher.counter(ItemsCount::new(samples::LINES)).bench_local(|| {
        batch.clear();
        json::parse_points(divan::black_box(body.as_bytes()), JsonLimits::default(), &mut batch)
            .is_ok()
    });
}

#[divan::bench]
fn line_protocol(bencher: divan::Bencher<'_, '_>) {
    influxdb(bencher, &samples::line_protocol());
}

#[divan::bench]
fn line_protocol_escaped(bencher: divan::Bencher<'_, '_>) {
    influxdb(bencher, &samples::line_protocol_escaped());
}

fn influxdb(bencher: divan::Bencher<'_, '_>, body: &str) {
    let options = ReadOptions::default();
    let mut batch = Batch::new();
    bencher.counter(ItemsCount::new(samples::LINES)).bench_local(|| {
        batch.clear();
        parse_lines(divan::black_box(body.as_bytes()), &options, &mut batch, |_| {});
        batch.len()
    });
}

fn statsd(bencher: divan::Bencher<'_, '_>, body: &str) {
    let (dialects, limits) = (Dialects::default(), Limits::default());
    let mut batch = Batch::new();
    bencher.counter(ItemsCount::new(samples::LINES)).bench_local(|| {
        batch.clear();
        for line in lines(divan::black_box(body.as_bytes())) {
            parse_line(line, &dialects, &limits, &mut batch).ok();
        }
        batch.len()
    });
}
