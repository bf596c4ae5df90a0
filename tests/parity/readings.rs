//! What each side sent for a window, under the names of statsd/statsd.

use std::collections::BTreeMap;

use serde_json::Value;

/// Each reading's value by its full name.
pub type Readings = BTreeMap<String, f64>;

/// What a backend of statsd/statsd makes of a flush, without what that server says about itself.
pub fn of_flush(flush: &Value) -> Readings {
    let mut readings = Readings::new();
    for (kind, stat) in [("counters", "count"), ("counter_rates", "rate")] {
        for (name, value) in series(flush, kind) {
            readings.insert(format!("stats.counters.{name}.{stat}"), number(value).unwrap());
        }
    }
    for (name, value) in series(flush, "gauges") {
        readings.insert(format!("stats.gauges.{name}"), number(value).unwrap());
    }
    for (name, members) in series(flush, "sets") {
        let count = members.as_array().unwrap().len();
        readings.insert(format!("stats.sets.{name}.count"), count as f64);
    }
    for (name, statistics) in series(flush, "timer_data") {
        for (stat, value) in statistics.as_object().unwrap() {
            let value = number(value).map(|value| (format!("stats.timers.{name}.{stat}"), value));
            readings.extend(value);
        }
    }
    readings
}

/// The windows in the lines of a `stdout` backend, by the time of their end in nanoseconds.
pub fn of_lines(lines: &str) -> BTreeMap<i64, Readings> {
    let mut windows = BTreeMap::<i64, Readings>::new();
    for line in lines.lines() {
        let point: Value = serde_json::from_str(line).unwrap();
        let window = windows.entry(point["time"].as_i64().unwrap()).or_default();
        let name = point["name"].as_str().unwrap().to_owned();
        let before = window.insert(name, number(&point["value"]).unwrap());
        assert_eq!(before, None, "two readings of one name in a window: {line}");
    }
    windows
}

/// Names whose values differ in any bit, or which only one side has; at most ten are told.
pub fn differences(statsd: &Readings, ours: &Readings) -> Vec<String> {
    let bits = |value: Option<&f64>| value.map(|value| value.to_bits());
    let mut names: Vec<_> = statsd.keys().chain(ours.keys()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| bits(statsd.get(*name)) != bits(ours.get(*name)));
    let tell = |name: &&String| {
        format!("{name}: statsd {:?}, ours {:?}", statsd.get(*name), ours.get(*name))
    };
    names.iter().take(10).map(tell).collect()
}

fn series<'a>(flush: &'a Value, kind: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let all = flush[kind].as_object().into_iter().flatten();
    all.filter(|(name, _)| !name.starts_with("statsd."))
}

/// A top percentile that covers every sample has statistics that are no numbers; none of ours.
fn number(value: &Value) -> Option<f64> {
    if value == "NaN" { None } else { Some(value.as_f64().unwrap()) }
}
