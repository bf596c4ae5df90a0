//! What a Taskcluster's queue publishes over Pulse when a run of a task has ended.
//!
//! ```text
//! CC:      route.statistics.build.times                      (AMQP routing keys, in a header)
//! payload: {"version":1,"status":{"taskId":…,"runs":[{"runId":0,"resolved":…}]},"runId":0,…}
//! ```
//!
//! Of the payload only what names the run is read ([`parse`]); everything else may be there, or be
//! missing. A task id becomes part of a path, so it has to be one: 22 characters of base64url that
//! spell a UUID of version 4. A route that was added to a task proves that whoever created it holds
//! `queue:route:<route>`, so the series that it names ([`series_of`]) is one that the task may write.

use crate::point::UnixNanos;
use crate::timestamp;
use serde::Deserialize;
use std::borrow::Cow;
use std::fmt;

/// A run of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whose.
    pub task: TaskId,
    /// Which one, from 0; none if the task ended without any.
    pub run: Option<u16>,
    /// When it ended, if the message says so.
    pub resolved: Option<UnixNanos>,
}

/// The name of a task: a slug id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskId([u8; ID_BYTES]);

/// Why a message is no message; each has a label that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is no JSON, or not of the shape that is read here.
    #[error("it is not the JSON that tells of a task's end")]
    Malformed,
    /// It is of a later version of the format.
    #[error("its version is not 1")]
    Version,
    /// What stands for the task's name is none.
    #[error("`status.taskId` is not the name of a task")]
    Task,
    /// There is no run of that number.
    #[error("`runId` is more than 1000")]
    Run,
}

impl Refused {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Malformed, Self::Version, Self::Task, Self::Run];

    /// As metrics call it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed_message",
            Self::Version => "message_version",
            Self::Task => "invalid_task",
            Self::Run => "invalid_run",
        }
    }
}

/// Reads a payload.
///
/// # Errors
///
/// It is not one.
pub fn parse(payload: &[u8]) -> Result<Run, Refused> {
    // The version is looked at alone, since everything else may be another in a later one.
    let Version { version } = serde_json::from_slice(payload).map_err(|_| Refused::Malformed)?;
    if version != 1 {
        return Err(Refused::Version);
    }
    let Message { status, run_id } =
        serde_json::from_slice(payload).map_err(|_| Refused::Malformed)?;
    let task = TaskId::parse(&status.task_id).ok_or(Refused::Task)?;
    let of_this_run = |state: &&State<'_>| Some(state.run_id) == run_id;
    let resolved = status.runs.iter().find(of_this_run).and_then(|state| state.resolved.as_ref());
    // One that nobody can read is as good as none.
    let resolved = resolved.and_then(|text| timestamp::rfc3339(text).ok());
    let run = run_id.map(|run| u16::try_from(run).ok().filter(|run| *run <= RUN_MAX));
    match run {
        Some(None) => Err(Refused::Run),
        run => Ok(Run { task, run: run.flatten(), resolved }),
    }
}

/// The series in a routing key such as `route.statistics.build.times`, where `route` is
/// `statistics`. None if it is another route, and an empty text if it names no series.
pub fn series_of<'k>(key: &'k str, route: &str) -> Option<&'k str> {
    let rest = key.strip_prefix("route.")?.strip_prefix(route)?;
    match rest.strip_prefix('.') {
        Some(series) => Some(series),
        None => rest.is_empty().then_some(""),
    }
}

impl TaskId {
    /// Reads a name.
    pub fn parse(text: &str) -> Option<Self> {
        let id: [u8; ID_BYTES] = text.as_bytes().try_into().ok()?;
        let coded = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let [.., version, _, variant, _, _, _, _, _, _, _, _, _, _, last] = id;
        let is_uuid =
            (b'Q'..=b'T').contains(&version) && VARIANTS.contains(&variant) && LAST.contains(&last);
        (id.iter().all(|byte| coded(*byte)) && is_uuid).then_some(Self(id))
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        // It was made of a text.
        str::from_utf8(&self.0).unwrap_or("")
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message<'m> {
    #[serde(borrow)]
    status: Status<'m>,
    run_id: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'m> {
    #[serde(borrow)]
    task_id: Cow<'m, str>,
    #[serde(borrow, default)]
    runs: Vec<State<'m>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State<'m> {
    run_id: u64,
    #[serde(borrow)]
    resolved: Option<Cow<'m, str>>,
}

const ID_BYTES: usize = 22;
/// The two bits of a UUID's variant, and four that are free.
const VARIANTS: &[u8] = b"CGKOSWaeimquy26-";
/// The last two bits of a UUID, and four zeros.
const LAST: &[u8] = b"AQgw";
/// As many as a queue gives a task.
const RUN_MAX: u16 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TASK: &str = "fN1SbArXTPSVFNUvaOlinQ";

    fn run(payload: &str) -> Result<(Option<u16>, Option<i64>), Refused> {
        let run = parse(payload.as_bytes())?;
        assert_eq!(run.task.as_str(), TASK);
        Ok((run.run, run.resolved.map(UnixNanos::secs)))
    }

    #[test]
    fn payloads_name_a_run() {
        let runs = r#"[{"runId":0,"state":"exception","resolved":"2014-10-22T17:00:00Z"},
                       {"runId":1,"state":"completed","resolved":"2014-10-22T17:46:40.123Z"}]"#;
        let status = format!(r#""status":{{"taskId":"{TASK}","runs":{runs},"state":"completed"}}"#);
        let message = |rest: &str| format!(r#"{{"version":1,{status}{rest}}}"#);
        let tagged = r#","runId":1,"task":{"tags":{"a":"b"}},"workerGroup":"g","workerId":"w""#;
        assert_eq!(run(&message(tagged)), Ok((Some(1), Some(1_414_000_000))));
        assert_eq!(run(&message(r#","runId":0"#)), Ok((Some(0), Some(1_413_997_200))));
        assert_eq!(run(&message(r#","runId":7"#)), Ok((Some(7), None)), "it is not told when");
        assert_eq!(run(&message("")), Ok((None, None)), "an exception before the first run");
        assert_eq!(run(&message(r#","runId":null"#)), Ok((None, None)));
        assert_eq!(run(&message(r#","runId":1000"#)), Ok((Some(1000), None)));
        assert_eq!(run(&message(r#","runId":1001"#)), Err(Refused::Run));
        assert_eq!(run(&message(r#","runId":18446744073709551615"#)), Err(Refused::Run));
        assert_eq!(run(&message(r#","runId":-1"#)), Err(Refused::Malformed));
        let odd = message(r#","runId":1"#).replace("2014-10-22T17:46:40.123Z", "yesterday");
        assert_eq!(run(&odd), Ok((Some(1), None)));
    }

    #[test]
    fn what_is_no_payload_is_refused() {
        let no_task = r#"{"version":1,"status":{"taskId":"../../secrets","runs":[]},"runId":0}"#;
        for (payload, why) in [
            ("", Refused::Malformed),
            ("no json", Refused::Malformed),
            ("[]", Refused::Malformed),
            ("{}", Refused::Malformed),
            (r#"{"version":1}"#, Refused::Malformed),
            (r#"{"version":1,"status":{}}"#, Refused::Malformed),
            (r#"{"version":1,"status":{"taskId":7}}"#, Refused::Malformed),
            (r#"{"version":2,"news":true}"#, Refused::Version),
            (no_task, Refused::Task),
        ] {
            assert_eq!(parse(payload.as_bytes()), Err(why), "{payload}");
        }
        assert_eq!(parse(&[0xff; 10]), Err(Refused::Malformed));
        assert_eq!(parse("[".repeat(100_000).as_bytes()), Err(Refused::Malformed));
    }

    #[test]
    fn names_of_tasks() {
        for (text, expected) in [
            (TASK, true),
            ("AAAAAAAAQAGAAAAAAAAAAA", true),
            ("", false),
            ("fN1SbArXTPSVFNUvaOlin", false),
            ("fN1SbArXTPSVFNUvaOlinQQ", false),
            ("fN1SbArX/PSVFNUvaOlinQ", false),
            ("fN1SbArXTPSVFNUvaOlin%", false),
            ("fN1SbArXAPSVFNUvaOlinQ", false),
            ("fN1SbArXTPTVFNUvaOlinQ", false),
            ("fN1SbArXTPSVFNUvaOlinB", false),
            ("fN1SbArXTPSVFNUvaOli\u{e9}", false),
        ] {
            assert_eq!(TaskId::parse(text).is_some(), expected, "{text}");
        }
    }

    #[test]
    fn routes_name_a_series() {
        for (key, expected) in [
            ("route.statistics.build.times", Some("build.times")),
            ("route.statistics.a", Some("a")),
            ("route.statistics.project/x", Some("project/x")),
            ("route.statistics..", Some(".")),
            ("route.statistics.", Some("")),
            ("route.statistics", Some("")),
            ("route.statisticsx.a", None),
            ("route.index.statistics.a", None),
            ("statistics.a", None),
            ("primary.fN1SbArXTPSVFNUvaOlinQ.0.g.w.p.t.-.g._", None),
            ("", None),
        ] {
            assert_eq!(series_of(key, "statistics"), expected, "{key}");
        }
        assert_eq!(series_of("route.a.b.c", "a.b"), Some("c"));
    }

    #[test]
    fn labels_differ() {
        let labels: std::collections::BTreeSet<_> =
            Refused::ALL.iter().map(|refused| refused.label()).collect();
        assert_eq!(labels.len(), Refused::ALL.len());
    }

    proptest! {
        /// A name that is taken is safe in a path as it stands, and is what the pattern of a slug
        /// id matches.
        #[test]
        fn a_name_is_a_slug_id(text in "[A-Za-z0-9_-]{8}[A-Z][A-Za-z0-9_-][A-Za-z0-9-][A-Za-z0-9_-]{10}[A-Za-z]") {
            let byte = |at: usize| text.as_bytes()[at];
            let expected = (b'Q'..=b'T').contains(&byte(8))
                && "CGKOSWaeimquy26-".contains(char::from(byte(10)))
                && "AQgw".contains(char::from(byte(21)));
            prop_assert_eq!(TaskId::parse(&text).is_some(), expected);
        }

        /// Whatever comes, it is read or refused, and what is read names a task.
        #[test]
        fn nothing_upsets_the_reader(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(run) = parse(&payload) {
                prop_assert!(TaskId::parse(run.task.as_str()).is_some());
            }
        }

        /// Whatever a broken payload is made of.
        #[test]
        fn parts_of_payloads_upset_nobody(
            parts in prop::collection::vec(
                r#"\{|\}|\[|\]|,|:|"version"|"status"|"taskId"|"runs"|"runId"|"resolved"|1|0|null|"fN1SbArXTPSVFNUvaOlinQ"|"x""#,
                0..40,
            ),
        ) {
            let _ = parse(parts.concat().as_bytes());
        }
    }
}
