//! The lines of one file, whatever is in it, to points.

use super::MARK;
use super::form::{Form, format_of};
use super::positions::Position;
use super::sheet::{EXCERPT, Refusals, Sheet};
use crate::access::Denial;
use crate::books::Marks;
use crate::ingest::Config;
use crate::ingest::intake::{Context, Intake};
use memchr::memchr_iter;
use protocols::Point;
use protocols::csv;
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
    pub(super) refusals: Refusals,
    /// Points that were handed over, and not denied.
    pub(super) accepted: u64,
}

impl Decoder {
    /// For a file that is read from `position` on; of a table the header has to be read again.
    pub(super) fn new(path: &Path, config: &Config, position: &Position) -> Self {
        let prefix = config.series.clone().unwrap_or_default();
        let table = csv::Options {
            series: csv::series_of(path),
            prefix: prefix.clone(),
            record_bytes: config.limits.line.bytes(),
            ..csv::Options::default()
        };
        let format = config.format.unwrap_or_else(|| format_of(path));
        let mark = config.prefix.as_deref().unwrap_or(MARK);
        let form = Form::new(format, mark, table, position.line);
        Self::beginning(form, path.display().to_string(), prefix, position)
    }

    /// For one that is there as a whole, called `name` where something is wrong. What it is, `path`
    /// tells; rows of a table that name no series are of this one.
    pub(in crate::ingest) fn whole(name: &str, path: &str, series: &str, max: usize) -> Self {
        let path = path.strip_suffix(".gz").unwrap_or(path);
        let series = Some(series.to_owned());
        let table = csv::Options { series, record_bytes: max, ..csv::Options::default() };
        let form = Form::new(format_of(Path::new(path)), MARK, table, 0);
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
            refusals: Refusals::default(),
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
        self.form.go_on_after(self.lines);
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
        let mut sheet = Sheet::new(&self.name, &self.prefix, intake, &mut self.refusals);
        let whole = self.form.feed(chunk, &mut sheet);
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
    pub(in crate::ingest) fn denied(&mut self, point: &Point<'_>, denial: Denial) {
        self.accepted = self.accepted.saturating_sub(1);
        let (name, label, why) = (point.name, denial.label(), denial.message(point));
        self.note_refusal(format!("`{name}` is denied: {label} ({why})"));
    }

    /// Notes something refused, for those who take the file as a whole; it is counted elsewhere.
    pub(super) fn note_refusal(&mut self, what: String) {
        self.refusals.note(what);
    }

    /// What was read can never be read on: what is left of a line that has not ended is refused.
    pub(super) fn give_up(&mut self, context: &Context) {
        let left = self.form.left();
        if !left.is_empty() {
            let left = left.get(..EXCERPT).unwrap_or(&left);
            let marks = Marks::new(&[("file", &self.name)]);
            context.refuse_about(marks, "incomplete_line", left);
        }
    }

    /// The file has ended: its last line counts though it has no end.
    pub(in crate::ingest) fn end(&mut self, intake: &mut Intake) {
        let before = intake.batch.len();
        self.form.end(&mut Sheet::new(&self.name, &self.prefix, intake, &mut self.refusals));
        self.accepted += (intake.batch.len() - before) as u64;
        self.lines += u64::from(self.whole < self.read);
        self.whole = self.read;
    }
}
