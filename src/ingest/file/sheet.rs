//! Lines of a file as points of a batch; what is wrong with them is counted and told.

use crate::ingest::intake::{Intake, Who};
use protocols::ParseError;
use protocols::csv::{Record, Refused};
use protocols::frame::{Frame, without_byte_order_mark};
use protocols::json::{Limits, parse_json_lines, write_prefixed};
use protocols::marked::Found;
use protocols::timestamp::TimeRange;

/// Where the lines of a file go.
pub(super) struct Sheet<'s> {
    intake: &'s mut Intake,
    prefix: &'s str,
    name: &'s str,
    times: TimeRange,
    refusals: &'s mut Refusals,
    scratch: Vec<u8>,
    /// The number of the present line, where lines are counted.
    line: Option<u64>,
}

/// What was refused of a file.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// How much.
    pub(super) total: u64,
    /// The first of it.
    pub(super) listed: Vec<String>,
}

impl Refusals {
    pub(super) fn note(&mut self, what: String) {
        self.total += 1;
        if self.listed.len() < LISTED {
            self.listed.push(what);
        }
    }
}

impl<'s> Sheet<'s> {
    /// For what is in the file of that name, whose series get that prefix.
    pub(super) fn new(
        name: &'s str,
        prefix: &'s str,
        intake: &'s mut Intake,
        refusals: &'s mut Refusals,
    ) -> Self {
        let times = intake.context.times();
        Self { intake, prefix, name, times, refusals, scratch: Vec::new(), line: None }
    }

    /// Takes the line with this number, from 1.
    pub(super) fn json(&mut self, number: u64, frame: Frame<'_>) {
        self.line = Some(number);
        match frame {
            Frame::Line(line) => self.object(line),
            Frame::TooLong => self.refuse_line(ParseError::LineTooLong),
        }
    }

    /// Takes the line with this number, from 1.
    pub(super) fn statsd(&mut self, number: u64, frame: Frame<'_>) {
        self.line = Some(number);
        let Frame::Line(line) = frame else {
            return self.refuse_line(ParseError::LineTooLong);
        };
        let line = if number == 1 { without_byte_order_mark(line) } else { line };
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return;
        }
        // An event or a check does not begin with the name of a series.
        let is_named = !line.starts_with(b"_e{") && !line.starts_with(b"_sc|");
        let prefix = if is_named { self.prefix } else { "" };
        let line = [prefix.as_bytes(), line].concat();
        let before = self.intake.batch.len();
        self.intake.statsd_line(&line, &self.times, Who::File(self.name));
        if self.intake.batch.len() == before {
            self.refusals.note(self.placed(&String::from_utf8_lossy(&line)));
        }
    }

    pub(super) fn found(&mut self, found: Found<'_>) {
        match found {
            Found::Object(object) => self.object(object),
            Found::NoObject => self.refuse_line(ParseError::NotAPoint),
            Found::TooLong => self.refuse_line(ParseError::LineTooLong),
        }
    }

    fn object(&mut self, line: &[u8]) {
        let limits = self.limits();
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let text = match self.prefix {
            "" => line,
            prefix => {
                write_prefixed(line, prefix, &mut scratch);
                &scratch
            }
        };
        let outcome = parse_json_lines(text, limits, &mut self.intake.batch);
        let refusals = &outcome.refusals;
        for (reason, total) in refusals.by_reason() {
            let example = refusals.listed().iter().find(|refused| refused.reason == reason);
            let why = example.map_or("", |refused| &*refused.message);
            self.count(reason, total as u64, &self.placed(&told(why, line)));
        }
        for refused in refusals.listed() {
            self.refusals.note(self.placed(&told(&refused.message, line)));
        }
        self.refusals.total += (refusals.total() - refusals.listed().len()) as u64;
        self.scratch = scratch;
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::Row(row) => {
                if let Err(refused) = row.write(self.limits(), &mut self.intake.batch) {
                    self.refuse_row(&refused);
                }
            }
            Record::Empty(_) => self.intake.context.book.noticed.add("empty_row", 1),
            Record::Refused(refused) => self.refuse_row(refused),
        }
    }

    fn refuse_row(&mut self, refused: &Refused) {
        self.refuse(refused.reason, &refused.to_string());
    }

    pub(super) fn refuse_table(&mut self, refused: &Refused) {
        let text = refused.to_string();
        self.intake.refuse("table_refused", 1, text.as_bytes(), Who::File(self.name));
        self.refusals.note(refused.to_string());
    }

    fn refuse_line(&mut self, reason: ParseError) {
        self.refuse(reason, &reason.to_string());
    }

    fn refuse(&mut self, reason: ParseError, why: &str) {
        let text = self.placed(why);
        self.count(reason, 1, &text);
        self.refusals.note(text);
    }

    /// A text about the present line, with its number.
    fn placed(&self, text: &str) -> String {
        self.line.map_or_else(|| text.to_owned(), |line| format!("line {line}: {text}"))
    }

    fn count(&self, reason: ParseError, count: u64, example: &str) {
        self.intake.refuse(reason.label(), count, example.as_bytes(), Who::File(self.name));
    }

    fn limits(&self) -> Limits {
        self.intake.context.grammar.json_limits(self.times)
    }
}

/// What is wrong with a line, and how it begins.
fn told(why: &str, line: &[u8]) -> String {
    format!("{why} {}", String::from_utf8_lossy(line.get(..EXCERPT).unwrap_or(line)))
}

/// How many refusals are told of a file that is taken as a whole.
const LISTED: usize = 100;

/// How much of a refused line is told.
pub(super) const EXCERPT: usize = 120;
