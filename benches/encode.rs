//! Encoding: points of a batch to the bytes of each backend.

use crate::samples::{self, LINES};
use crate::step::{Run, Step};
use anyhow::Result;
use divan::black_box;
use pointsman::lane::{Config, Settings, rows_of};
use protocols::influxdb::{self, EncoderOptions};
use protocols::statsd::{self, TagDialect};
use protocols::{Batch, Encode, UnixNanos, jsonl};

/// Every step of it.
pub const STEPS: &[Step] = &[
    Step::new("statsd_plain", LINES, || encode(samples::batch(&samples::statsd_plain()), relay())),
    Step::new("statsd_tagged", LINES, || {
        encode(samples::batch(&samples::statsd_tagged()), relay())
    }),
    Step::new("line_protocol", LINES, || encode(samples::readings(), line_protocol())),
    Step::new("line_protocol_rows", LINES, || encode(rows(), line_protocol())).each("row"),
    Step::new("json_lines", LINES, || encode(samples::readings(), jsonl::Encoder::new())),
];

/// What an InfluxDB backend is sent.
pub fn line_protocol() -> influxdb::Encoder {
    influxdb::Encoder::new(EncoderOptions::default())
}

fn relay() -> statsd::Encoder {
    statsd::Encoder::new(TagDialect::Dogstatsd, 1432)
}

/// What a window makes of counters, gauges and timers: a row each, of one to nine columns.
fn rows() -> Batch {
    let settings = Settings::new("bench", "influxdb", &Config::default());
    let end = UnixNanos::from_secs(1_700_000_010);
    let mut rows = Batch::new();
    for point in samples::batch(&samples::statsd_tagged()).iter() {
        rows_of(&point, &settings, end).iter().for_each(|row| rows.push(&row));
    }
    rows
}

fn encode(batch: Batch, mut encoder: impl Encode + 'static) -> Result<Run> {
    let mut out = Vec::new();
    Ok(Box::new(move || {
        out.clear();
        let points = black_box(&batch).iter();
        let written = points.filter(|point| encoder.encode(point, &mut out).is_ok()).count();
        black_box(&out);
        written
    }))
}
