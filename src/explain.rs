//! What a line would become: the point, every route tried, and the bytes each backend would get.
//!
//! Nothing is sent. The same parsers, rules, window and encoders are asked that the gateway uses,
//! so the answer cannot differ from what it does.

use crate::config::Backend;
use crate::ingest;
use crate::lane::{self, Settings, rows_of};
use crate::plan::Plan;
use crate::route::{Origin, Rule, Rules, Verdict};
use crate::store::when::show as show_time;
use protocols::{Batch, FieldValue, Measure, Number, Point, UnixNanos};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The story of a line at a listener, as text. `now` decides which window it would fall into.
///
/// # Errors
///
/// A sentence: no such listener, or why the line would be refused.
pub fn explain(plan: &Plan, listener: &str, line: &[u8], now: UnixNanos) -> Result<String, String> {
    let config = plan.listeners.get(listener).ok_or_else(|| {
        let known: Vec<_> = plan.listeners.keys().map(String::as_str).collect();
        format!("there is no listener `{listener}`; there are {}", known.join(", "))
    })?;
    let batch = ingest::parse_alone(config, line, now)?;
    let places: BTreeMap<_, _> = plan.backends.keys().cloned().zip(0..).collect();
    let rules = Rules::compile(&plan.routes, &places).map_err(|mistakes| {
        mistakes.into_iter().map(|mistake| mistake.message).collect::<String>()
    })?;
    let origin = Origin { listener: listener.into(), protocol: config.protocol };
    let mut text = String::new();
    for point in batch.iter() {
        Story { plan, rules: &rules, origin: &origin, now }.tell(&point, &mut text);
    }
    Ok(text)
}

struct Story<'a> {
    plan: &'a Plan,
    rules: &'a Rules,
    origin: &'a Origin,
    now: UnixNanos,
}

impl Story<'_> {
    fn tell(&self, point: &Point<'_>, text: &mut String) {
        // Writing to a String does not fail, here and below.
        let _ = writeln!(text, "point    {}", describe(point));
        let _ = writeln!(text, "gate     no principals are configured: anyone may write");
        let verdicts = self.rules.explain(point, self.origin);
        for (number, (rule, verdict)) in self.rules.iter().zip(&verdicts).enumerate() {
            let _ = writeln!(
                text,
                "route {:<2} {}: {}",
                number + 1,
                rule.name,
                self.verdict(rule, verdict)
            );
        }
        if !verdicts.iter().any(|verdict| matches!(verdict, Verdict::Takes { .. })) {
            let _ = writeln!(text, "         no route takes it: counted as unmatched");
        }
        for (rule, verdict) in self.rules.iter().zip(&verdicts) {
            if let Verdict::Takes { lanes, .. } = verdict {
                for (name, backend) in
                    lanes.iter().filter_map(|lane| self.plan.backends.iter().nth(lane))
                {
                    self.bytes(name, backend, rule, point, text);
                }
            }
        }
        text.push('\n');
    }

    fn verdict(&self, rule: &Rule, verdict: &Verdict) -> String {
        let names = |lanes: crate::route::LaneSet| {
            let names = lanes.iter().filter_map(|lane| self.plan.backends.keys().nth(lane));
            names.map(String::as_str).collect::<Vec<_>>().join(", ")
        };
        match verdict {
            Verdict::Passes(reason) => format!("passes, {reason}"),
            Verdict::NotTried => "not tried, an earlier route was final".to_owned(),
            Verdict::Takes { lanes, had } => {
                let mut text = match names(*lanes) {
                    to if to.is_empty() && names(*had).is_empty() => {
                        "takes, and drops on purpose".to_owned()
                    }
                    to if to.is_empty() => "takes".to_owned(),
                    to => format!("takes, to {to}"),
                };
                if !names(*had).is_empty() {
                    let _ = write!(text, " ({} has it already)", names(*had));
                }
                if rule.rewrite.is_some() {
                    text.push_str(", rewritten");
                }
                if rule.last {
                    text.push_str(", final");
                }
                text
            }
        }
    }

    /// The exact bytes for one backend, as if the point were alone in its window.
    fn bytes(
        &self,
        name: &str,
        backend: &Backend,
        rule: &Rule,
        point: &Point<'_>,
        text: &mut String,
    ) {
        let settings = Settings::new(name, backend.kind.kind(), &backend.lane);
        let mut scratch = Batch::new();
        let sent = rule.sent(*point, &mut scratch);
        let (rows, how) = self.rows(&settings, &sent);
        let _ =
            writeln!(text, "backend  {name} ({} {}), {how}", settings.kind, backend.kind.place());
        let mut encoder = backend.kind.encoder();
        let mut out = Vec::new();
        for row in rows.iter() {
            if let Err(skip) = encoder.encode(&row, &mut out) {
                let _ = writeln!(text, "         dropped, {}: {skip}", skip.label());
            }
        }
        for (skip, count) in encoder.lost_parts() {
            let _ = writeln!(text, "         left out {count}: {skip}");
        }
        for line in String::from_utf8_lossy(&out).lines() {
            let _ = writeln!(text, "         {line}");
        }
    }

    fn rows(&self, settings: &Settings, point: &Point<'_>) -> (Batch, String) {
        let stamped = Point { time: point.time.or(settings.stamp.then_some(self.now)), ..*point };
        if !settings.aggregate || !lane::folds(point.measure.kind()) {
            return (rows_of(&stamped, settings, self.now), "as received".to_owned());
        }
        if point.time.is_some() {
            return (
                rows_of(point, settings, self.now),
                "at its own time, outside of windows".to_owned(),
            );
        }
        let end = lane::window_end(self.now, settings.flush);
        let how = format!("alone in the window that ends at {}", show_time(end));
        (rows_of(point, settings, end), how)
    }
}

fn describe(point: &Point<'_>) -> String {
    let mut text = format!("{:?} {} {}", point.name, point.measure.kind(), value(&point.measure));
    if !point.tags.is_empty() {
        let tags = point.tags.iter().map(|tag| match tag.value {
            Some(value) => format!("{:?}={value:?}", tag.key),
            None => format!("{:?}", tag.key),
        });
        let _ = write!(text, ", tags {}", tags.collect::<Vec<_>>().join(" "));
    }
    if let Some(time) = point.time {
        let _ = write!(text, ", at {}", show_time(time));
    }
    if !point.rest.is_empty() {
        let _ = write!(text, ", not interpreted {:?}", point.rest);
    }
    text
}

fn value(measure: &Measure<'_>) -> String {
    let sampled = |value: f64, rate: f64| match rate {
        1.0 => value.to_string(),
        _ => format!("{value} at rate {rate}"),
    };
    match *measure {
        Measure::Count { delta, rate } => sampled(delta, rate),
        Measure::Gauge(value) => value.to_string(),
        Measure::GaugeShift(change) => format!("changed by {change:+}"),
        Measure::Timing { ms, rate } => format!("{} ms", sampled(ms, rate)),
        Measure::Histogram { value, rate } | Measure::Distribution { value, rate } => {
            sampled(value, rate)
        }
        Measure::Set(member) => format!("member {member:?}"),
        Measure::Reading(number) => show_number(number),
        Measure::Fields(fields) => {
            let fields = fields.iter().map(|(key, value)| match value {
                FieldValue::Number(number) => format!("{key:?}={}", show_number(number)),
                FieldValue::Bool(truth) => format!("{key:?}={truth}"),
                FieldValue::Text(text) => format!("{key:?}={text:?}"),
            });
            fields.collect::<Vec<_>>().join(" ")
        }
    }
}

fn show_number(number: Number) -> String {
    match number {
        Number::I64(n) => n.to_string(),
        Number::U64(n) => n.to_string(),
        Number::F64(n) => n.to_string(),
    }
}
