//! What a line would become: the point, every route tried, and the bytes each backend would get.
//!
//! Nothing is sent. The same parsers, rules, window and encoders are asked that the gateway uses,
//! so the answer cannot differ from what it does.

mod told;

use crate::access::{Access, Denial, Gate, Meters, Proof, Scopes, Shaped};
use crate::config::Backend;
use crate::ingest::{self, FORBIDDEN, UNAUTHENTICATED};
use crate::lane::{self, Settings, rows_of};
use crate::origin::{Origin, Protocol};
use crate::plan::Plan;
use crate::route::{LaneSet, Rule, Rules, Verdict};
use crate::when::show as show_time;
use protocols::{Batch, FieldValue, Measure, Number, Point, UnixNanos};
use std::fmt::{self, Write};
use told::Told;

/// The story of a line at a listener, as text. `now` decides which window it would fall into.
///
/// # Errors
///
/// A sentence: no such listener, or why the line would be refused.
pub fn explain(plan: &Plan, listener: &str, line: &[u8], now: UnixNanos) -> Result<String, String> {
    explain_as(plan, listener, None, line, now)
}

/// The same of a line that the principal of that name has sent.
///
/// # Errors
///
/// As before, or there is no such principal.
pub fn explain_as(
    plan: &Plan,
    listener: &str,
    principal: Option<&str>,
    line: &[u8],
    now: UnixNanos,
) -> Result<String, String> {
    let config = plan.listeners.get(listener).ok_or_else(|| {
        let known: Vec<_> = plan.listeners.keys().map(String::as_str).collect();
        format!("there is no listener `{listener}`; there are {}", known.join(", "))
    })?;
    let rules = plan.rules()?;
    let access = plan.access(&Meters::default());
    let gate = match principal {
        None => gate(&access, listener, config.protocol),
        Some(name) => Gate::of(access.find(name).cloned().ok_or_else(|| no_principal(plan, name))?),
    };
    let sender = gate.principal().map(|principal| principal.name.clone());
    let is_request = ingest::is_request(config.protocol, line);
    let told =
        Told { plan, rules: &rules, listener, config, principal: sender.clone(), is_request, now };
    let batch = match ingest::parse_alone(config, line, now) {
        Ok(batch) => batch,
        // Of a request whose sender is unknown nothing is read.
        Err(_) if is_request && matches!(gate, Gate::Shut) => {
            return Err(told.refused(UNAUTHENTICATED, format!("{STRANGER} {BY_NAME}")));
        }
        Err(unparsed) => return Err(told.refused(unparsed.reason, unparsed.message)),
    };
    let origin = Origin::new(listener, config.protocol).by(sender);
    let backends = plan.backends.iter().collect();
    let story = Story { rules: &rules, gate: &gate, origin: &origin, backends, now, told: &told };
    let mut text = String::new();
    for point in batch.iter() {
        // Writing to a String does not fail.
        let _ = story.tell(&point, &mut text);
    }
    Ok(text)
}

/// Of whoever comes by the listener and proves no more.
fn gate(access: &Access, listener: &str, protocol: Protocol) -> Gate {
    match protocol {
        // Which series a task may write its routes say; here they are those that it takes.
        Protocol::Pulse => access.by_series(listener, Scopes::all()),
        _ => access.by_connection(listener, &Proof::default()),
    }
}

fn no_principal(plan: &Plan, name: &str) -> String {
    let known: Vec<_> = plan.principals.keys().map(String::as_str).collect();
    match known.as_slice() {
        [] => "there are no principals: whoever reaches a listener may write".to_owned(),
        known => format!("there is no principal `{name}`; there are {}", known.join(", ")),
    }
}

struct Story<'a> {
    rules: &'a Rules,
    gate: &'a Gate,
    origin: &'a Origin,
    /// In the order of the lanes' places.
    backends: Vec<(&'a String, &'a Backend)>,
    now: UnixNanos,
    told: &'a Told<'a>,
}

impl Story<'_> {
    fn tell(&self, point: &Point<'_>, text: &mut String) -> fmt::Result {
        writeln!(text, "point    {}", describe(point))?;
        let mut shaped = Shaped::default();
        match self.pass(point, &mut shaped, text)? {
            Some(point) => self.tell_routes(&point, text),
            None => text.write_char('\n'),
        }
    }

    /// What the gate says to the point, and the point as it then is, if it passes.
    fn pass<'p>(
        &self,
        point: &Point<'p>,
        shaped: &'p mut Shaped,
        text: &mut String,
    ) -> Result<Option<Point<'p>>, fmt::Error> {
        if let Err(denial) = self.gate.check(point) {
            let is_stranger = denial == Denial::NoPrincipal;
            let (label, why) = match is_stranger && self.told.is_request {
                true => (UNAUTHENTICATED, STRANGER.to_owned()),
                false => (denial.label(), denial.message(point)),
            };
            writeln!(text, "gate     denied, {label}: {why}")?;
            if is_stranger {
                writeln!(text, "         {BY_NAME}")?;
            }
            self.told.tell(label, text)?;
            // What a request may not write is refused with all of it, and both are counted.
            if self.told.is_request && !is_stranger {
                self.told.tell(FORBIDDEN, text)?;
            }
            return Ok(None);
        }
        match (self.gate.principal(), self.origin.protocol) {
            (None, Protocol::Pulse) => {}
            (None, _) => writeln!(text, "gate     none: whoever reaches the listener may write")?,
            (Some(principal), _) => {
                writeln!(text, "gate     passes, {} may write it", principal.name)?;
            }
        }
        if self.origin.protocol == Protocol::Pulse {
            writeln!(
                text,
                "gate     passes of tasks with a route for {:?}, or for a series above it",
                point.name
            )?;
        }
        let Some(shape) = self.gate.shape() else { return Ok(Some(*point)) };
        let point = shape.give(point, shaped);
        if let Some(point) = &point {
            writeln!(text, "shape    {}", describe(point))?;
        }
        Ok(point)
    }

    fn tell_routes(&self, point: &Point<'_>, text: &mut String) -> fmt::Result {
        let verdicts = self.rules.explain(point, self.origin);
        // What is for errors alone is nobody's business here.
        let own = self.rules.iter().zip(&verdicts).skip(self.told.plan.error_routes().len());
        for (place, ((rule, verdict), config)) in own.zip(&self.told.plan.routes).enumerate() {
            let verdict = self.verdict(rule, verdict, &config.to);
            writeln!(text, "route {:<2} {}: {verdict}", place + 1, rule.name)?;
        }
        if !verdicts.iter().any(|verdict| matches!(verdict, Verdict::Takes { .. })) {
            writeln!(text, "         no route takes it: counted as unmatched")?;
        }
        self.tell_bytes(&verdicts, point, text)?;
        text.write_char('\n')
    }

    /// What the backends get of it.
    fn tell_bytes(
        &self,
        verdicts: &[Verdict],
        point: &Point<'_>,
        text: &mut String,
    ) -> fmt::Result {
        let routes = self.told.plan.all_routes();
        for ((rule, verdict), config) in self.rules.iter().zip(verdicts).zip(&routes) {
            let Verdict::Takes { lanes, .. } = verdict else { continue };
            for (name, backend) in self.named(*lanes, &config.to) {
                self.bytes(name, backend, rule, point, text)?;
            }
        }
        Ok(())
    }

    /// Those lanes in the order in which a route says them, which is that of `check`.
    fn named(&self, lanes: LaneSet, to: &[String]) -> impl Iterator<Item = (&String, &Backend)> {
        let backends = lanes.iter().filter_map(|place| self.backends.get(place).copied());
        let mut backends: Vec<_> = backends.collect();
        backends.sort_by_key(|(name, _)| to.iter().position(|said| said == *name));
        backends.into_iter()
    }

    fn verdict(&self, rule: &Rule, verdict: &Verdict, to: &[String]) -> String {
        let (lanes, had) = match verdict {
            Verdict::Passes(reason) => return format!("passes, {reason}"),
            Verdict::NotTried => return "not tried, an earlier route was final".to_owned(),
            Verdict::Takes { lanes, had } => (self.names(*lanes, to), self.names(*had, to)),
        };
        let mut text = match (lanes.as_str(), had.as_str()) {
            ("", "") => "takes, and drops on purpose".to_owned(),
            ("", had) => format!("takes, already sent to {had}"),
            (to, "") => format!("takes, to {to}"),
            (to, had) => format!("takes, to {to}, already sent to {had}"),
        };
        if rule.rewrite.is_some() {
            text.push_str(", rewritten");
        }
        if rule.last {
            text.push_str(", final");
        }
        text
    }

    fn names(&self, lanes: LaneSet, to: &[String]) -> String {
        self.named(lanes, to).map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The exact bytes for one backend, as if the point were alone in its window.
    fn bytes(
        &self,
        name: &str,
        backend: &Backend,
        rule: &Rule,
        point: &Point<'_>,
        text: &mut String,
    ) -> fmt::Result {
        let settings = Settings::new(name, backend.kind.kind(), &backend.lane);
        let mut scratch = Batch::new();
        let sent = rule.sent(*point, &mut scratch);
        let (rows, how) = self.rows(&settings, &sent);
        let place = backend.kind.place();
        writeln!(text, "backend  {name} ({} {place}), {how}", settings.kind)?;
        let mut encoder = backend.kind.encoder();
        let mut out = Vec::new();
        let skipped = |row| encoder.encode(&row, &mut out).err();
        let skips: Vec<_> = rows.iter().filter_map(skipped).collect();
        for line in String::from_utf8_lossy(&out).lines() {
            writeln!(text, "         {line}")?;
        }
        for skip in skips {
            writeln!(text, "dropped  {}: {skip}", skip.label())?;
        }
        for (skip, count) in encoder.lost_parts() {
            writeln!(text, "left out {count}, {}: {skip}", skip.label())?;
        }
        Ok(())
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
    let sampled = |value: String, rate: f64| match rate {
        1.0 => value,
        _ => format!("{value} at rate {rate}"),
    };
    match *measure {
        Measure::Count { delta, rate } => sampled(delta.to_string(), rate),
        Measure::Gauge(value) => value.to_string(),
        Measure::GaugeShift(change) => format!("changed by {change:+}"),
        Measure::Timing { ms, rate } => sampled(format!("{ms} ms"), rate),
        Measure::Histogram { value, rate } | Measure::Distribution { value, rate } => {
            sampled(value.to_string(), rate)
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

/// What a request is told that shows nothing of its sender, where that has to be known.
const STRANGER: &str = "who writes here has to say who he is";
const BY_NAME: &str = "(--principal NAME tells of one that is known by more than the listener)";
