//! The lines of one file, whatever is in it, to points.

use super::MARK;
use super::positions::Position;
use crate::access::Denial;
use crate::books::Marks;
use crate::ingest::intake::{Context, Intake, Who};
use crate::ingest::{Config, FileFormat};
use memchr::{memchr_iter, memrchr};
use protocols::ParseError;
use protocols::csv::{self, Record, Refused};
use protocols::frame::{Frame, LineFramer};
use protocols::json::{Limits, parse_json_lines, write_prefixed};
use protocols::marked::{Found, Marked};
use protocols::timestamp::TimeRange;
use std::path::Path;

/// Reads one file, chunk by chunk.
pub(in crate::ingest) struct Decoder {
    form: Form,
    name: String,
    prefix: String,
    /// How much was read.
    read: u64,
    /// Up to where, but for a line that has not ended.
    whole: u64,
    lines: u64,
    told_of_surplus: bool,
    /// What was refused, for those who take the file as a whole.
    pub(super) refused: Vec<String>,
    pub(super) refusals: u64,
    /// Points that were handed over, and not denied.
    pub(super) accepted: u64,
}

enum Form {
    Json(LineFramer),
    Statsd(LineFramer),
    Log(Box<Marked>),
    Table(Box<csv::Reader>),
    /// A table that was refused: nothing that follows means anything.
    Nothing,
}

/// What lines of a file go to.
struct Sheet<'s> {
    intake: &'s mut Intake,
    prefix: &'s str,
    name: &'s str,
    times: TimeRange,
    refused: &'s mut Vec<String>,
    refusals: &'s mut u64,
    scratch: Vec<u8>,
}

impl Decoder {
    /// For a file that is read from `position` on; of a table the header has to be read again.
    pub(super) fn new(path: &Path, config: &Config, position: &Position) -> Self {
        let prefix = config.series.clone().unwrap_or_default();
        let max = config.limits.line.bytes();
        let form = match config.format.unwrap_or_else(|| format_of(path)) {
            FileFormat::Jsonl => Form::Json(LineFramer::new(max)),
            FileFormat::Statsd => Form::Statsd(LineFramer::new(max)),
            FileFormat::Log => {
                let mark = config.prefix.as_deref().unwrap_or(MARK);
                Form::Log(Box::new(Marked::new(mark.as_bytes(), max)))
            }
            FileFormat::Csv => {
                let series = csv::series_of(path);
                let options = csv::Options {
                    series,
                    prefix: prefix.clone(),
                    record_bytes: max,
                    ..csv::Options::default()
                };
                Form::Table(Box::new(csv::Reader::new(options)))
            }
        };
        Self::beginning(form, path.display().to_string(), prefix, position)
    }

    /// For one that is there as a whole, called `name` where something is wrong. What it is, `path`
    /// tells; rows of a table that name no series are of this one.
    pub(in crate::ingest) fn whole(name: &str, path: &str, series: &str, max: usize) -> Self {
        let path = path.strip_suffix(".gz").unwrap_or(path);
        let form = match format_of(Path::new(path)) {
            FileFormat::Csv => {
                let series = Some(series.to_owned());
                let options = csv::Options { series, record_bytes: max, ..csv::Options::default() };
                Form::Table(Box::new(csv::Reader::new(options)))
            }
            FileFormat::Statsd => Form::Statsd(LineFramer::new(max)),
            FileFormat::Log => Form::Log(Box::new(Marked::new(MARK.as_bytes(), max))),
            FileFormat::Jsonl => Form::Json(LineFramer::new(max)),
        };
        Self::beginning(form, name.to_owned(), String::new(), &Position::default())
    }

    fn beginning(form: Form, name: String, prefix: String, position: &Position) -> Self {
        Self {
            form,
            name,
            prefix,
            read: position.offset,
            whole: position.offset,
            lines: position.line,
            told_of_surplus: false,
            refused: Vec::new(),
            refusals: 0,
            accepted: 0,
        }
    }

    /// The names of the columns, for one who goes on in the middle; answers whether they are
    /// needed.
    pub(super) fn wants_header(&self) -> bool {
        matches!(&self.form, Form::Table(table) if self.read > 0 && !table.knows_columns())
    }

    fn knows_no_columns(&self) -> bool {
        matches!(&self.form, Form::Table(table) if !table.knows_columns())
    }

    /// A chunk, of which so many bytes end whole lines, is of lines that were read before.
    pub(super) fn pass_over(&mut self, whole: usize, chunk: &[u8]) {
        if self.knows_no_columns() {
            self.header(chunk);
        }
        if whole > 0 {
            self.whole = self.read + whole as u64;
        }
        self.read += chunk.len() as u64;
        self.lines += memchr_iter(b'\n', chunk).count() as u64;
        if let Form::Table(table) = &mut self.form {
            table.go_on_after(self.lines);
        }
    }

    /// Takes the beginning of the file, as far as the names of the columns.
    pub(super) fn header(&mut self, beginning: &[u8]) {
        let Form::Table(table) = &mut self.form else { return };
        for byte in beginning.chunks(1) {
            let mut byte = byte;
            if table.knows_columns() || table.read(&mut byte).is_err() {
                break;
            }
        }
        table.go_on_after(self.lines);
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Up to which byte and line all is dealt with.
    pub(super) const fn place(&self) -> (u64, u64) {
        (self.whole, self.lines)
    }

    /// How much was read.
    pub(super) const fn read(&self) -> u64 {
        self.read
    }

    pub(in crate::ingest) fn feed(&mut self, chunk: &[u8], intake: &mut Intake) {
        let before = intake.batch.len();
        let whole = self.take(chunk, intake);
        self.accepted += (intake.batch.len() - before) as u64;
        if let Some(whole) = whole {
            self.whole = self.read + whole as u64;
        }
        self.read += chunk.len() as u64;
        if let Form::Table(table) = &self.form {
            self.lines = table.lines();
            if table.surplus() > 0 && !self.told_of_surplus {
                self.told_of_surplus = true;
                intake.context.book.noticed.add("surplus_cells", 1);
            }
        } else {
            self.lines += memchr_iter(b'\n', chunk).count() as u64;
        }
    }

    /// A point that was handed over may not be written; it is counted where it was denied.
    pub(in crate::ingest) fn denied(&mut self, point: &str, denial: Denial) {
        self.accepted = self.accepted.saturating_sub(1);
        self.refused_whole(format!("`{point}` is denied: {}", denial.label()));
    }

    /// What is not counted here was refused.
    pub(super) fn refused_whole(&mut self, what: String) {
        remember(what, &mut self.refused, &mut self.refusals);
    }

    /// What was read can never be read on: what is left of a line that has not ended is refused.
    pub(super) fn give_up(&mut self, context: &Context) {
        let mut left = Vec::new();
        match &mut self.form {
            Form::Json(framer) | Form::Statsd(framer) => framer.finish(|frame| {
                left.extend(match frame {
                    Frame::Line(line) => line.trim_ascii(),
                    Frame::TooLong => b"",
                });
            }),
            // What is not marked was never meant for us.
            Form::Log(marked) => marked.finish(|found| {
                left.extend(match found {
                    Found::Object(line) => line,
                    Found::NoObject | Found::TooLong => b"",
                });
            }),
            Form::Table(table) => match table.end() {
                Ok(None | Some(Record::Empty(_))) => {}
                Ok(Some(Record::Row(row))) => left.extend(format!("line {}", row.line()).bytes()),
                Ok(Some(Record::Refused(refused))) | Err(refused) => {
                    left.extend(refused.to_string().bytes());
                }
            },
            Form::Nothing => {}
        }
        if !left.is_empty() {
            let left = left.get(..EXCERPT).unwrap_or(&left);
            let text = format!("{}: {}", self.name, String::from_utf8_lossy(left));
            let marks = Marks::new(&[("file", &self.name)]);
            context.refuse_about(marks, "incomplete_line", text.as_bytes());
        }
    }

    /// The file has ended: its last line counts though it has no end.
    pub(in crate::ingest) fn end(&mut self, intake: &mut Intake) {
        let before = intake.batch.len();
        let context = intake.context.clone();
        let mut sheet =
            sheet(&self.name, &self.prefix, intake, &mut self.refused, &mut self.refusals);
        match &mut self.form {
            Form::Json(framer) => framer.finish(|frame| sheet.json(frame)),
            Form::Statsd(framer) => framer.finish(|frame| sheet.statsd(frame)),
            Form::Log(marked) => marked.finish(|found| sheet.found(found)),
            Form::Table(table) => match table.end() {
                Ok(record) => drop(record.map(|record| sheet.record(&record, &context))),
                Err(refused) => sheet.refuse_table(&refused),
            },
            Form::Nothing => {}
        }
        self.accepted += (intake.batch.len() - before) as u64;
        self.lines += u64::from(self.whole < self.read);
        self.whole = self.read;
    }

    /// Answers how much of the chunk ends whole lines, if any of it does.
    fn take(&mut self, chunk: &[u8], intake: &mut Intake) -> Option<usize> {
        let context = intake.context.clone();
        let mut sheet =
            sheet(&self.name, &self.prefix, intake, &mut self.refused, &mut self.refusals);
        let last = memrchr(b'\n', chunk).map(|end| end + 1);
        match &mut self.form {
            Form::Json(framer) => framer.feed(chunk, |frame| sheet.json(frame)),
            Form::Statsd(framer) => framer.feed(chunk, |frame| sheet.statsd(frame)),
            Form::Log(marked) => marked.feed(chunk, |found| sheet.found(found)),
            Form::Table(table) => {
                let (mut input, mut whole) = (chunk, None);
                loop {
                    match table.read(&mut input) {
                        Ok(Some(record)) => sheet.record(&record, &context),
                        Ok(None) => return whole,
                        Err(refused) => {
                            sheet.refuse_table(&refused);
                            self.form = Form::Nothing;
                            return last;
                        }
                    }
                    whole = Some(chunk.len() - input.len());
                }
            }
            Form::Nothing => {}
        }
        last
    }
}

fn sheet<'s>(
    name: &'s str,
    prefix: &'s str,
    intake: &'s mut Intake,
    refused: &'s mut Vec<String>,
    refusals: &'s mut u64,
) -> Sheet<'s> {
    let times = intake.context.times();
    Sheet { intake, prefix, name, times, refused, refusals, scratch: Vec::new() }
}

impl Sheet<'_> {
    fn json(&mut self, frame: Frame<'_>) {
        match frame {
            Frame::Line(line) => self.object(line),
            Frame::TooLong => self.refuse(ParseError::LineTooLong, "", b""),
        }
    }

    fn statsd(&mut self, frame: Frame<'_>) {
        let Frame::Line(line) = frame else {
            return self.refuse(ParseError::LineTooLong, "", b"");
        };
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return;
        }
        let line = [self.prefix.as_bytes(), line].concat();
        let before = self.intake.batch.len();
        self.intake.statsd_line(&line, &self.times, Who(None));
        if self.intake.batch.len() == before {
            self.remember(String::from_utf8_lossy(&line).into_owned());
        }
    }

    fn found(&mut self, found: Found<'_>) {
        match found {
            Found::Object(object) => self.object(object),
            Found::NoObject => self.refuse(ParseError::NotAPoint, "", b""),
            Found::TooLong => self.refuse(ParseError::LineTooLong, "", b""),
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
            self.count(reason, total as u64, &told(why, line));
        }
        for refused in refusals.listed() {
            self.remember(told(&refused.message, line));
        }
        *self.refusals += (refusals.total() - refusals.listed().len()) as u64;
        self.scratch = scratch;
    }

    fn record(&mut self, record: &Record<'_>, context: &Context) {
        match record {
            Record::Row(row) => {
                if let Err(refused) = row.write(self.limits(), &mut self.intake.batch) {
                    self.refuse_row(&refused);
                }
            }
            Record::Empty(_) => context.book.noticed.add("empty_row", 1),
            Record::Refused(refused) => self.refuse_row(refused),
        }
    }

    fn refuse_row(&mut self, refused: &Refused) {
        self.refuse(refused.reason, &refused.to_string(), b"");
    }

    fn refuse_table(&mut self, refused: &Refused) {
        let text = format!("{}: {refused}", self.name);
        self.intake.refuse("table_refused", 1, text.as_bytes(), Who(None));
        self.remember(refused.to_string());
    }

    fn refuse(&mut self, reason: ParseError, why: &str, line: &[u8]) {
        let text = if why.is_empty() { reason.to_string() } else { told(why, line) };
        self.count(reason, 1, &text);
        self.remember(text);
    }

    fn count(&self, reason: ParseError, count: u64, example: &str) {
        let text = format!("{}: {example}", self.name);
        self.intake.refuse(reason.label(), count, text.as_bytes(), Who(None));
    }

    fn remember(&mut self, what: String) {
        remember(what, self.refused, self.refusals);
    }

    fn limits(&self) -> Limits {
        self.intake.context.grammar.json_limits(self.times)
    }
}

/// What is wrong with a line, and how it begins.
fn told(why: &str, line: &[u8]) -> String {
    format!("{why} {}", String::from_utf8_lossy(line.get(..EXCERPT).unwrap_or(line)))
}

fn remember(what: String, refused: &mut Vec<String>, refusals: &mut u64) {
    *refusals += 1;
    if refused.len() < REMEMBERED {
        refused.push(what);
    }
}

/// What a file is, by its name.
fn format_of(path: &Path) -> FileFormat {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    match plain.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "csv" => FileFormat::Csv,
        "statsd" => FileFormat::Statsd,
        "log" => FileFormat::Log,
        _ => FileFormat::Jsonl,
    }
}

/// As many refusals are told of a file that was taken as a whole.
const REMEMBERED: usize = 100;

/// How much of a refused line is told.
const EXCERPT: usize = 120;
