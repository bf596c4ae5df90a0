//! What the encoder writes, the parser reads as the same point.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use protocols::statsd::{Dialects, Encoder, Limits, TagDialect, parse_line};
use protocols::{Batch, Encode, Measure, Number, Point, UnixNanos};

/// The parts of a point, owned, so that a failing one can be made smaller and printed.
#[derive(Clone, Debug)]
struct Parts {
    name: String,
    tags: Vec<(String, Option<String>)>,
    measure: OwnMeasure,
    seconds: Option<i64>,
    rest: &'static str,
}

#[derive(Clone, Debug)]
enum OwnMeasure {
    Plain(Measure<'static>),
    Set(String),
}

impl Parts {
    fn write(&self, batch: &mut Batch) {
        let mut writer = batch.begin(&self.name);
        for (key, value) in &self.tags {
            writer.tag(key, value.as_deref());
        }
        let measure = match &self.measure {
            OwnMeasure::Plain(measure) => *measure,
            OwnMeasure::Set(member) => Measure::Set(member),
        };
        writer.finish(measure, self.seconds.map(UnixNanos::from_secs), self.rest);
    }
}

/// Text without control characters and without the characters that its place forbids.
fn text(forbidden: &'static str, max: usize) -> impl Strategy<Value = String> {
    let likely = ".-_/ aé日:@#,;[]{}".chars().collect::<Vec<_>>();
    let char = prop_oneof![proptest::sample::select(likely), any::<char>()];
    let fit = char.prop_map(
        move |char| {
            if char.is_control() || forbidden.contains(char) { 'x' } else { char }
        },
    );
    vec(fit, 1..max).prop_map(|chars| chars.into_iter().collect())
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<i32>().prop_map(f64::from),
        (-1e6..1e6f64),
        any::<f64>().prop_filter("finite", |number| number.is_finite()),
    ]
}

fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), Just(0.1), (1..=1000u32).prop_map(|n| 1.0 / f64::from(n)), 1e-9..1.0f64]
}

fn measure() -> impl Strategy<Value = OwnMeasure> {
    let plain = (0..6, number(), rate()).prop_map(|(kind, value, rate)| match kind {
        0 => Measure::Count { delta: value, rate },
        1 => Measure::Gauge(value.abs()),
        2 => Measure::GaugeShift(value),
        3 => Measure::Timing { ms: value, rate },
        4 => Measure::Histogram { value, rate },
        _ => Measure::Distribution { value, rate },
    });
    prop_oneof![6 => plain.prop_map(OwnMeasure::Plain), 1 => text("|", 20).prop_map(OwnMeasure::Set)]
}

fn parts() -> impl Strategy<Value = Parts> {
    let name = text(":|=", 40).prop_filter("is no event", |name| !name.starts_with("_e{"));
    let tags = btree_map(text(":|,#", 10), option::of(text("|,#", 20)), 0..6);
    let rest = proptest::sample::select(vec!["", "c:ci-9f|e:it-false|card:low", "zz:new"]);
    (name, tags, measure(), option::of(1..9_223_372_036i64), rest).prop_map(
        |(name, tags, measure, seconds, rest)| {
            // Only counters and gauges have a time on the wire.
            let timed = matches!(
                measure,
                OwnMeasure::Plain(
                    Measure::Count { .. } | Measure::Gauge(_) | Measure::GaugeShift(_)
                )
            );
            let seconds = seconds.filter(|_| timed);
            Parts { name, tags: tags.into_iter().collect(), measure, seconds, rest }
        },
    )
}

fn encode(point: &Point<'_>, dialect: TagDialect) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new(dialect, usize::MAX).encode(point, &mut out).unwrap();
    out
}

fn parse(block: &[u8]) -> Batch {
    let mut batch = Batch::new();
    for line in protocols::statsd::lines(block) {
        let parsed = parse_line(line, &Dialects::default(), &Limits::default(), &mut batch);
        parsed.unwrap_or_else(|refused| panic!("{}: {refused}", line.escape_ascii()));
    }
    batch
}

proptest! {
    /// Name, tags in their order, kind, value and rate to the bit, time and rest come back.
    #[test]
    fn every_kind(parts in parts()) {
        let mut batch = Batch::new();
        parts.write(&mut batch);
        let point = batch.point(0).unwrap();
        let back = parse(&encode(&point, TagDialect::Dogstatsd));
        prop_assert_eq!(back.len(), 1);
        prop_assert_eq!(back.point(0), Some(point));
    }

    /// Many points in one block come back in order, whatever stood before them.
    #[test]
    fn a_block_of_points(all in vec(parts(), 0..8)) {
        let (mut batch, mut block) = (Batch::new(), Vec::new());
        all.iter().for_each(|parts| parts.write(&mut batch));
        for point in batch.iter() {
            block.extend(encode(&point, TagDialect::Dogstatsd));
        }
        let back = parse(&block);
        prop_assert!(back.iter().eq(batch.iter()));
    }

    /// A gauge below zero comes back as a reset and a change that end at the same value; a
    /// reading ends there too.
    #[test]
    fn negative_gauges(value in number(), reading: bool) {
        let value = -value.abs();
        let mut batch = Batch::new();
        let measure = if reading { Measure::Reading(Number::F64(value)) } else { Measure::Gauge(value) };
        batch.begin("g").finish(measure, None, "");
        let block = encode(&batch.point(0).unwrap(), TagDialect::Dogstatsd);
        let end = parse(&block).iter().fold(77.0, |gauge, point| match point.measure {
            Measure::Gauge(value) => value,
            Measure::GaugeShift(change) => gauge + change,
            other => panic!("{other:?}"),
        });
        prop_assert_eq!(end, value);
    }

    /// The spellings inside the name carry tags that have values.
    #[test]
    fn tags_inside_the_name(
        name in text(":|=,;#[]", 20),
        tags in btree_map(text("=:|,;#", 10), text(":|,;#", 10), 0..5),
        graphite: bool,
    ) {
        let mut batch = Batch::new();
        let mut writer = batch.begin(&name);
        for (key, value) in &tags {
            writer.tag(key, Some(value));
        }
        writer.finish(Measure::Count { delta: 1.0, rate: 0.5 }, None, "");
        drop(writer);
        let dialect = if graphite { TagDialect::Graphite } else { TagDialect::Influxdb };
        let point = batch.point(0).unwrap();
        let back = parse(&encode(&point, dialect));
        prop_assert_eq!(back.point(0), Some(point));
    }
}
