//! Parsing: bytes to points in a batch, one line or one body at a time.
//!
//! Compare within one run: `statsd_plain` against `split`, which only finds the lines.

use crate::samples::{self, LINES, VALUES};
use crate::step::{Run, Step};
use anyhow::Result;
use divan::black_box;
use protocols::influxdb::{ReadOptions, parse_body as parse_lines};
use protocols::json::Limits as JsonLimits;
use protocols::opentsdb::{PutOptions, parse_body, parse_put};
use protocols::statsd::{Dialects, Limits, lines, parse_line};
use protocols::{Batch, json};

/// Every step of it.
pub const STEPS: &[Step] = &[
    Step::new("split", LINES, split),
    Step::new("statsd_plain", LINES, || parse(samples::statsd_plain(), statsd)),
    Step::new("statsd_tagged", LINES, || parse(samples::statsd_tagged(), statsd)),
    Step::new("statsd_many", LINES * VALUES, || parse(samples::statsd_many(), statsd)),
    Step::new("put", LINES, || parse(samples::puts(0), puts)),
    Step::new("api_put_json", LINES, || parse(samples::put_json(0), put_json)),
    Step::new("json_points", LINES, || parse(samples::json_points(0), points)),
    Step::new("line_protocol", LINES, || parse(samples::line_protocol(), line_protocol)),
    Step::new("line_protocol_escaped", LINES, || {
        parse(samples::line_protocol_escaped(), line_protocol)
    }),
];

/// Plain and tagged statsd lines.
pub fn statsd(body: &[u8], batch: &mut Batch) {
    let (dialects, limits) = (Dialects::default(), Limits::default());
    for line in lines(body) {
        parse_line(line, &dialects, &limits, batch).ok();
    }
}

/// OpenTSDB's lines.
pub fn puts(body: &[u8], batch: &mut Batch) {
    let options = PutOptions::default();
    for line in lines(body) {
        parse_put(line, &options, batch).ok();
    }
}

/// OpenTSDB's JSON.
pub fn put_json(body: &[u8], batch: &mut Batch) {
    parse_body(body, &PutOptions::default(), batch).ok();
}

/// Our own JSON.
pub fn points(body: &[u8], batch: &mut Batch) {
    json::parse_points(body, JsonLimits::default(), batch).ok();
}

fn line_protocol(body: &[u8], batch: &mut Batch) {
    parse_lines(body, &ReadOptions::default(), batch, |_| {});
}

/// The floor: finding the lines and reading nothing.
fn split() -> Result<Run> {
    let body = samples::statsd_plain();
    Ok(Box::new(move || lines(black_box(body.as_bytes())).count()))
}

fn parse(body: String, parser: fn(&[u8], &mut Batch)) -> Result<Run> {
    let mut batch = Batch::new();
    Ok(Box::new(move || {
        batch.clear();
        parser(black_box(body.as_bytes()), &mut batch);
        batch.len()
    }))
}
