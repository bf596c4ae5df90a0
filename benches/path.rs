//! The way of a point from parser to backend: parsed, routed, and taken into a window, or copied,
//! shaped into line protocol, queued and shipped to a backend that takes all. Sockets and what
//! ingesters do beside are not in it.
//!
//! Bodies have later times each, as clients send them: times that come again are told apart.

use crate::encode::line_protocol;
use crate::lanes::Yard;
use crate::parse;
use crate::samples::{self, LINES};
use crate::step::{Run, Step};
use anyhow::Result;
use pointsman::lane::{self, Config};
use pointsman::origin::{Origin, Protocol};
use pointsman::route::{Router, Table};
use pointsman::units::Span;
use protocols::Batch;
use serde_json::json;
use std::sync::Arc;

/// Every step of it.
pub const STEPS: &[Step] = &[
    Step::once("statsd_plain", POINTS, || absorbed(&samples::statsd_plain())),
    Step::once("statsd_tagged", POINTS, || absorbed(&samples::statsd_tagged())),
    Step::once("put", POINTS, || passed(Protocol::Opentsdb, samples::puts, parse::puts)),
    Step::once("api_put_json", POINTS, || {
        passed(Protocol::Opentsdb, samples::put_json, parse::put_json)
    }),
    Step::once("json_points", POINTS, || {
        passed(Protocol::Http, samples::json_points, parse::points)
    }),
];

/// Counters, gauges and timers of known series: they go no further until the window ends.
fn absorbed(body: &str) -> Result<Run> {
    let yard = yard()?;
    let mut router = router(&yard, Protocol::Statsd)?;
    let mut batch = Batch::new();
    let body = body.to_owned();
    let mut send = move || {
        let _kept = &yard;
        parse::statsd(divan::black_box(body.as_bytes()), &mut batch);
        router.submit(&mut batch).routed as usize
    };
    send();
    Ok(Box::new(move || (0..BODIES).map(|_| send()).sum()))
}

/// Points with times of their own. The first body is not measured.
fn passed(
    protocol: Protocol,
    body: fn(usize) -> String,
    parser: fn(&[u8], &mut Batch),
) -> Result<Run> {
    let mut yard = yard()?;
    let mut router = router(&yard, protocol)?;
    let mut batch = Batch::new();
    let mut sent = 0;
    let mut send = move |body: &String| {
        parser(divan::black_box(body.as_bytes()), &mut batch);
        sent += router.submit(&mut batch).routed as usize;
        yard.deliver(sent)
    };
    send(&body(0));
    let later: Vec<_> = (1..=BODIES).map(body).collect();
    Ok(Box::new(move || later.iter().map(&mut send).last().map_or(0, |all| all - LINES)))
}

fn router(yard: &Yard, protocol: Protocol) -> Result<Router> {
    let rules = crate::route::rules(json!([{ "to": ["a"] }]))?;
    let table = Table {
        rules,
        lanes: vec![yard.lane.clone()],
        taken: vec![Arc::default()],
        ..Table::default()
    };
    let tables = Arc::new(arc_swap::ArcSwap::from_pointee(table));
    let origin = Origin::new("in", protocol);
    Ok(Router::new(tables, origin, Arc::default(), yard.clock))
}

/// A body is a payload.
fn yard() -> Result<Yard> {
    let config = Config {
        flush: Some(Span::secs(3600)),
        batch: lane::Batch { points: Some(LINES as u32), bytes: None },
        ..Config::default()
    };
    Yard::new("influxdb", &config, line_protocol(), None)
}

const BODIES: usize = 8;
const POINTS: usize = BODIES * LINES;
