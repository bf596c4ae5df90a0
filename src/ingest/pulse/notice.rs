//! A message that a task has ended: which run, for which series, and the key that identifies it.

use super::reason::Reason;
use crate::access::is_fit;
use crate::books::Marks;
use lapin::message::Delivery;
use lapin::types::AMQPValue;
use protocols::pulse::{self, Run, TaskId};
use std::fmt;

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// Where it was published.
    pub(super) exchange: String,
    /// Which task.
    pub(super) task: TaskId,
    /// Which of its runs.
    pub(super) run: u16,
    /// All that was said of it.
    pub(super) ended: Run,
    /// The series that the task's routes name, in their order; at least one.
    pub(super) series: Vec<String>,
}

/// Why there is nothing to be done about a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Void {
    /// It is not a proper message, for this reason.
    Refused(&'static str, Marks, String),
    /// It is of no interest; the kind that is noticed.
    Passed(&'static str),
}

/// The parts of a delivery that matter here.
pub(super) struct Envelope<'d> {
    pub(super) exchange: &'d str,
    /// The routing key, and those in the header `CC`.
    pub(super) keys: Vec<&'d str>,
    pub(super) payload: &'d [u8],
}

impl<'d> Envelope<'d> {
    pub(super) fn of(delivery: &'d Delivery) -> Self {
        let headers = delivery.properties.headers().as_ref();
        let copies = headers.and_then(|headers| headers.inner().get("CC"));
        let copies = match copies {
            Some(AMQPValue::FieldArray(keys)) => keys.as_slice(),
            _ => &[],
        };
        let text = |value: &'d AMQPValue| match value {
            AMQPValue::LongString(text) => str::from_utf8(text.as_bytes()).ok(),
            AMQPValue::ShortString(text) => Some(text.as_str()),
            _ => None,
        };
        let keys = std::iter::once(delivery.routing_key.as_str());
        let keys = keys.chain(copies.iter().filter_map(text)).collect();
        Self { exchange: delivery.exchange.as_str(), keys, payload: &delivery.data }
    }

    /// Reads it, for tasks with that route, published at one of these exchanges.
    pub(super) fn open(&self, route: &str, exchanges: &[String]) -> Result<Notice, Void> {
        // A binding of an earlier configuration lasts, and its messages keep coming.
        if !exchanges.iter().any(|known| known == self.exchange) {
            return Err(Void::Passed("other_exchange"));
        }
        let named = self.keys.iter().filter_map(|key| pulse::series_of(key, route));
        let named: Vec<_> = named.collect();
        if named.is_empty() {
            return Err(Void::Passed("other_route"));
        }
        if self.payload.len() > PAYLOAD_MAX {
            let text = format!("it has {} bytes", self.payload.len());
            return Err(Void::Refused("message_too_large", Marks::default(), text));
        }
        let ended = pulse::parse(self.payload)
            .map_err(|why| Void::Refused(why.label(), Marks::default(), why.to_string()))?;
        let mut series = Vec::new();
        for name in named.iter().filter(|name| !name.is_empty() && is_fit(name)) {
            if !series.iter().any(|known| known == name) {
                series.push((*name).to_owned());
            }
        }
        let Run { task, run, .. } = ended;
        let Some(run) = run else { return Err(Void::Passed("no_run")) };
        if series.is_empty() {
            let text = format!("task {task}: its routes {named:?} name no series");
            let marks = marks(&task, run);
            return Err(Void::Refused(Reason::Series.label(), marks, text));
        }
        Ok(Notice { exchange: self.exchange.to_owned(), task, run, ended, series })
    }
}

impl Notice {
    /// The same for every message about this end of this run, and for no other message.
    pub(super) fn key(&self) -> String {
        let Self { exchange, task, run, .. } = self;
        format!("{exchange} {task} {run}")
    }

    /// What its errors are reported with.
    pub(super) fn marks(&self) -> Marks {
        marks(&self.task, self.run)
    }
}

fn marks(task: &TaskId, run: u16) -> Marks {
    Marks::new(&[("task", task.as_str()), ("run", &run.to_string())])
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}, run {}", self.task, self.run)
    }
}

/// Enough for a task with hundreds of runs.
const PAYLOAD_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "fN1SbArXTPSVFNUvaOlinQ";

    fn payload(run: &str) -> String {
        format!(r#"{{"version":1,"status":{{"taskId":"{TASK}","runs":[]}}{run}}}"#)
    }

    fn open(exchange: &str, keys: &[&str], payload: &str) -> Result<Notice, Void> {
        let envelope = Envelope { exchange, keys: keys.to_vec(), payload: payload.as_bytes() };
        envelope.open("statistics", &["completed".to_owned(), "failed".to_owned()])
    }

    #[test]
    fn a_message_names_the_series_of_its_routes() {
        let primary = "primary.fN1SbArXTPSVFNUvaOlinQ.0.g.w.p.t.-.g._";
        let series = |keys: &[&str]| {
            let keys = [&[primary], keys].concat();
            open("completed", &keys, &payload(r#","runId":0"#)).map(|notice| notice.series)
        };
        assert_eq!(series(&["route.statistics.a"]), Ok(vec!["a".to_owned()]));
        let many =
            ["route.index.x", "route.statistics.b.c", "route.statistics.a", "route.statistics.a"];
        assert_eq!(series(&many), Ok(vec!["b.c".to_owned(), "a".to_owned()]));
        assert_eq!(
            series(&["route.statistics.a*", "route.statistics.b"]),
            Ok(vec!["b".to_owned()])
        );
        assert_eq!(series(&["route.index.x"]), Err(Void::Passed("other_route")));
        for key in ["route.statistics", "route.statistics.", "route.statistics.a*"] {
            let refused = matches!(series(&[key]), Err(Void::Refused("invalid_series", ..)));
            assert!(refused, "{key}");
        }
        let own = open("failed", &["route.statistics.a"], &payload(r#","runId":3"#)).unwrap();
        assert_eq!(own.key(), format!("failed {TASK} 3"));
        assert_eq!(own.to_string(), format!("task {TASK}, run 3"));
    }

    #[test]
    fn what_is_no_message_or_none_for_us() {
        let keys = ["route.statistics.a"];
        let label = |exchange: &str, payload: &str| match open(exchange, &keys, payload) {
            Err(Void::Refused(label, ..) | Void::Passed(label)) => label,
            Ok(_) => "",
        };
        assert_eq!(label("completed", &payload("")), "no_run");
        assert_eq!(label("other", &payload(r#","runId":0"#)), "other_exchange");
        assert_eq!(label("completed", "garbage"), "malformed_message");
        assert_eq!(label("completed", &" ".repeat(PAYLOAD_MAX + 1)), "message_too_large");
        assert_eq!(label("completed", r#"{"version":2}"#), "message_version");
    }
}
