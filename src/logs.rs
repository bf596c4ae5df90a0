//! `… | pointsman logs`: passes a task's log through, and sends the points in it to a gateway.
//!
//! ```text
//! stdin ─► large reads ─► stdout
//!              └─► marked lines ─► bounded queue ─► thread: requests to /v1/points
//! ```
//!
//! Every byte goes through as it came, before anything looks at it. Whether the gateway is down, slow or
//! wrong, the log never waits: the queue has a limit ([`queue::BYTES_MAX`]), and what does not fit is
//! counted. At the end of the log there is `--grace` to send what is queued. The exit status is 0, unless
//! standard input could not be read, or standard output not be written.
//!
//! A task's output is not to be trusted: no more than [`LINES_MAX`] lines are taken from one run, and no
//! more than [`OBJECT_MAX`] of each.

mod once;
mod pipe;
mod queue;
mod sender;

use crate::client::Place;
use crate::plural::counted;
use crate::units::Span;
use clap::Args;
use once::{Gaps, Log};
use pipe::Pipe;
use protocols::marked::{Found, Marked};
use queue::Queue;
use sender::{Errand, Sender, Sent};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind::BrokenPipe, Write as _};
use std::sync::Arc;

/// What to look for, and where to send it.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct Arguments {
    /// The mark: a line that begins with it goes on with a point, written as a JSON object
    #[arg(long, default_value = "[taskcluster-task:stat]", value_name = "MARK")]
    pub prefix: String,
    /// Where to.
    #[command(flatten)]
    pub place: Place,
    /// Text to put before the name of every series
    #[arg(long, default_value = "", value_name = "PREFIX", hide_default_value = true)]
    pub series_prefix: String,
    /// Count each point once, even if the same log is read again; it is recognised by the task, its
    /// run, and where the point stands in the log
    #[arg(long)]
    pub once: bool,
    /// ID of the task whose log this is; turns --once on. With --once alone, $TASK_ID
    #[arg(long, value_name = "ID")]
    pub task: Option<String>,
    /// Number of the task's run; by default $RUN_ID, or 0
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Name of this log; only needed with --once, where a run has several logs
    #[arg(long, default_value = "", value_name = "NAME", hide_default_value = true)]
    pub log: String,
    /// How long to wait, at the end of the log, for points that are not sent yet
    #[arg(long, default_value = "2s", value_parser = Span::parse, value_name = "SPAN")]
    pub grace: Span,
}

/// Runs the command to the end of the log; answers the exit status.
pub fn run(arguments: &Arguments, environment: &BTreeMap<String, String>) -> u8 {
    let queue = Arc::new(Queue::default());
    let place = arguments.place.clone().within(environment);
    let log = arguments.log(environment).unwrap_or_else(|why| {
        // No reason to hold up a log.
        let _ = writeln!(io::stderr().lock(), "pointsman logs: {why}");
        None
    });
    if arguments.prefix.contains('\n') {
        let _ = writeln!(io::stderr().lock(), "pointsman logs: {NO_MARK}");
    }
    let gaps = log.is_some().then(Gaps::default);
    let errand = Errand {
        place,
        prefix: arguments.series_prefix.clone(),
        task: said(arguments.task.as_ref(), "TASK_ID", environment).unwrap_or_default(),
        run: said(arguments.run.as_ref(), "RUN_ID", environment).unwrap_or_default(),
        log,
    };
    let sender = Sender::start(errand, Arc::clone(&queue));
    let mut taking = Taking { queue: &queue, gaps, counts: Counts::default() };
    let passed = if arguments.prefix.is_empty() {
        Pipe::standard().and_then(|mut pipe| pipe.pass(|_| ()))
    } else {
        let mut marked = Marked::new(arguments.prefix.as_bytes(), OBJECT_MAX);
        let passed = Pipe::standard()
            .and_then(|mut pipe| pipe.pass(|chunk| marked.feed(chunk, |found| taking.take(found))));
        marked.finish(|found| taking.take(found));
        passed
    };
    let sent = sender.end(arguments.grace.0);
    let mut summary = taking.counts.summary(&sent);
    // Whoever closed the other end of the pipe knows.
    if let Some(error) = passed.as_ref().err().filter(|error| error.kind() != BrokenPipe) {
        summary.push_str(&format!("pointsman logs: the log is not whole: {error}\n"));
    }
    let _ = write!(io::stderr().lock(), "{summary}");
    u8::from(passed.is_err())
}

impl Arguments {
    /// Which log it is, if its points are to count once.
    fn log(&self, environment: &BTreeMap<String, String>) -> Result<Option<Log>, &'static str> {
        if !self.once && self.task.is_none() {
            return Ok(None);
        }
        let task = said(self.task.as_ref(), "TASK_ID", environment).ok_or(NO_TASK)?;
        let run = said(self.run.as_ref(), "RUN_ID", environment);
        let run = run.unwrap_or_else(|| "0".to_owned());
        Ok(Some(Log::new(&task, &run, &self.log, &self.series_prefix)))
    }
}

/// What an option says, or else the environment.
fn said(
    option: Option<&String>,
    variable: &str,
    environment: &BTreeMap<String, String>,
) -> Option<String> {
    option.or_else(|| environment.get(variable)).filter(|text| !text.is_empty()).cloned()
}

/// Puts what is found into the queue.
struct Taking<'q> {
    queue: &'q Queue,
    /// Where points are to count once.
    gaps: Option<Gaps>,
    counts: Counts,
}

/// What became of marked lines before they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    queued: u64,
    /// They are no object.
    no_object: u64,
    /// They are longer than [`OBJECT_MAX`].
    too_long: u64,
    /// There were [`LINES_MAX`] before.
    too_many: u64,
    /// The gateway was away for too long.
    queue_full: u64,
}

impl Taking<'_> {
    fn take(&mut self, found: Found<'_>) {
        let place = self.counts.queued + self.counts.queue_full;
        let is_admitted = self.gaps.as_ref().is_none_or(|gaps| gaps.admit(place));
        let counts = &mut self.counts;
        let count = match found {
            Found::NoObject => &mut counts.no_object,
            Found::TooLong => &mut counts.too_long,
            Found::Object(_) if place >= LINES_MAX => &mut counts.too_many,
            Found::Object(object) if is_admitted && self.queue.push(place, object) => {
                &mut counts.queued
            }
            Found::Object(_) => {
                if let Some(gaps) = &mut self.gaps {
                    gaps.open(place);
                }
                &mut counts.queue_full
            }
        };
        *count += 1;
    }
}

impl Counts {
    /// A line for people, if there is anything to say.
    fn summary(&self, sent: &Sent) -> String {
        let untaken = self.no_object + self.too_long + self.too_many + self.queue_full;
        if self.queued + untaken == 0 {
            return String::new();
        }
        let told = [
            (sent.refused, "refused"),
            (sent.unsettled, "unsettled"),
            (self.queued.saturating_sub(sent.lines), "not sent"),
            (self.queue_full, "dropped, the queue was full"),
            (self.no_object, "without an object"),
            (self.too_long, "too long"),
            (self.too_many, "too many"),
        ];
        let mut text = format!("pointsman logs: {} accepted", counted(sent.accepted, "point"));
        if sent.repeated > 0 {
            text.push_str(&format!(" ({} of them when they were sent before)", sent.repeated));
        }
        for (count, what) in told.into_iter().filter(|(count, _)| *count > 0) {
            text.push_str(&format!(", {count} {what}"));
        }
        for (why, line) in &sent.words {
            let line = line.as_ref().map(|line| format!(": {line}"));
            text.push_str(&format!("\npointsman logs: {why}{}", line.unwrap_or_default()));
        }
        if let Some(why) = &sent.away {
            text.push_str(&format!("\npointsman logs: {why}"));
        }
        text + "\n"
    }
}

/// What the help ends with.
const EXAMPLE: &str = "\
Example: a task prints a line such as
  [taskcluster-task:stat] {\"name\": \"build/times\", \"compile\": 12.5}
and whoever runs it writes
  ./task.sh | pointsman logs --to http://gateway:8080
The log comes out as it went in, whether or not the gateway can be reached.";

const NO_TASK: &str = "--once counts points by the task whose log it is, and there is neither --task \
                       nor $TASK_ID: if this log is read again, they count again";

const NO_MARK: &str =
    "no line can begin with this --prefix, which holds the end of one, so no point is found";

/// Of one run.
const LINES_MAX: u64 = 10_000;

/// Far larger than a row of a hundred columns.
const OBJECT_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn the_help_shows_a_line_that_is_taken() {
        let help = <Alone as clap::CommandFactory>::command().render_long_help().to_string();
        assert!(help.contains(EXAMPLE), "{help}");
        let Alone { arguments } = clap::Parser::parse_from(["logs"]);
        let line = EXAMPLE.lines().find(|line| line.contains(&arguments.prefix)).unwrap();
        let mut marked = Marked::new(arguments.prefix.as_bytes(), OBJECT_MAX);
        let mut objects = 0;
        marked.feed(format!("{}\n", line.trim()).as_bytes(), |found| {
            objects += usize::from(matches!(found, Found::Object(_)));
        });
        assert_eq!(objects, 1);
    }

    #[test]
    fn there_is_an_end_to_what_is_taken() {
        let queue = Queue::default();
        let mut taking = Taking { queue: &queue, gaps: None, counts: Counts::default() };
        for _ in 0..LINES_MAX + 5 {
            taking.take(Found::Object(b"{}"));
        }
        taking.take(Found::NoObject);
        taking.take(Found::TooLong);
        let expected =
            Counts { queued: LINES_MAX, too_many: 5, no_object: 1, too_long: 1, queue_full: 0 };
        assert_eq!(taking.counts, expected);
    }

    #[test]
    fn a_summary_says_what_became_of_the_lines() {
        let mut counts = Counts::default();
        assert_eq!(counts.summary(&Sent::default()), "", "a log without points is just a log");
        counts.queued = 5;
        counts.queue_full = 2;
        let away = Some("the gateway is away".to_owned());
        let sent = Sent { accepted: 2, refused: 1, lines: 3, away, ..Sent::default() };
        let expected = "pointsman logs: 2 points accepted, 1 refused, 2 not sent, 2 dropped, the \
                        queue was full\npointsman logs: the gateway is away\n";
        assert_eq!(counts.summary(&sent), expected);
    }
}
