//! Encoding: points of a batch to the bytes of each backend.

use divan::counter::ItemsCount;
use protocols::influxdb::{self, EncoderOptions};
use protocols::statsd::{self, TagDialect};
use protocols::{Batch, Encode, jsonl, opentsdb};

mod samples;

fn main() {
    divan::main();
}

#[divan::bench]
fn statsd_relay(bencher: divan::Bencher<'_, '_>) {
    encode(
        bencher,
        &samples::batch(&samples::statsd_tagged()),
        statsd::Encoder::new(TagDialect::Dogstatsd, 1432),
    );
}

#[divan::bench]
fn line_protocol(bencher: divan::Bencher<'_, '_>) {
    encode(bencher, &readings(), influxdb::Encoder::new(EncoderOptions::default()));
}

#[divan::bench]
fn json_lines(bencher: divan::Bencher<'_, '_>) {
    encode(bencher, &readings(), jsonl::Encoder::new());
}

/// Readings with two tags and a time: what a database is sent.
fn readings() -> Batch {
    let mut batch = Batch::new();
    for line in statsd::lines(samples::puts().as_bytes()) {
        opentsdb::parse_put(line, &opentsdb::PutOptions::default(), &mut batch).ok();
    }
    batch
}

fn encode(bencher: divan::Bencher<'_, '_>, batch: &Batch, mut encoder: impl Encode) {
    let mut out = Vec::new();
    bencher.counter(ItemsCount::new(batch.len())).bench_local(|| {
        out.clear();
        for point in divan::black_box(batch).iter() {
            encoder.encode(&point, &mut out).ok();
        }
        out.len()
    });
}
