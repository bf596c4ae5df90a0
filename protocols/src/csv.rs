//! Tables of points: `statistics/….csv`, as a task leaves them behind.
//!
//! ```csv
//! name,time,tag.os,compile,ok
//! build/times,1414000000000,linux,12.5,true
//! ```
//!
//! The first record names the columns. `name` names the series of a row (else [`Options::series`]
//! does), `time` its time ([`timestamp::number`], [`timestamp::text`]; `timestamp` does so where
//! there is no `time`), `tag.KEY` a tag; `sequence_number` and columns without a name are passed
//! over; everything else is a field. So a column may be called `type` or `tags`: here that is a
//! field like any other.
//!
//! | cell | is |
//! |---|---|
//! | empty, `null`, or missing because the row is short | no field |
//! | `true`, `false`, a number by JSON's grammar | what it says |
//! | `NaN`, `inf`, `Infinity`, in whatever case languages print them | refuses its row |
//! | anything else, and whatever stands in quotes | text |
//! | more than there are columns | skipped, and counted: [`Reader::surplus`] |
//!
//! A row that has nothing but a name and a time is [`Record::Empty`]. Records end with LF or CR LF;
//! in quotes both are text, a quote is doubled, and only a comma or the end of the line may follow
//! the closing one. A row that breaks this, is too long or not UTF-8 costs itself alone; reading
//! goes on with the next line. A header that cannot be trusted costs the file: two columns of one
//! name, no column at all, no series.
//!
//! Limits: [`Options::record_bytes`] for a record, which is all that is ever held.
//!
//! [`timestamp::number`]: crate::timestamp::number
//! [`timestamp::text`]: crate::timestamp::text

mod cells;
mod header;
mod row;

pub use row::Row;

use crate::error::ParseError;
use crate::frame::without_byte_order_mark;
use crate::refusals::Refusal;
use cells::{Cells, Taken};
use header::Header;
use memchr::memchr;
use std::borrow::Cow;
use std::mem::take;
use std::path::Path;

/// What a file does not say itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The series of rows that name none.
    pub series: Option<String>,
    /// Stands before every series' name.
    pub prefix: String,
    /// The longest record, line end and quotes included.
    pub record_bytes: usize,
    /// The most columns.
    pub columns: usize,
}

impl Default for Options {
    /// 1 MiB a record; as many columns as JSON points have fields and tags, and a few that are
    /// neither.
    fn default() -> Self {
        Self { series: None, prefix: String::new(), record_bytes: 1 << 20, columns: 1024 + 64 + 8 }
    }
}

/// Chunks of a file in, rows out. Where the chunks are cut makes no difference.
#[derive(Debug)]
pub struct Reader {
    options: Options,
    header: Option<Header>,
    cells: Cells,
    /// The beginning of a line whose end has not arrived.
    tail: Vec<u8>,
    /// The present line is too long; what remains of it is dropped.
    skipping: bool,
    /// How many lines have ended.
    lines: u64,
    /// The line at which the present record began, from 1.
    begin: u64,
    /// What the present record has taken up so far.
    bytes: usize,
    surplus: u64,
    /// Why the whole file is refused.
    failed: Option<Refused>,
}

/// What a record is.
#[derive(Debug)]
pub enum Record<'r> {
    /// A point.
    Row(Row<'r>),
    /// A row without a value, which began at this line.
    Empty(u64),
    /// A row that is wrong.
    Refused(Refused),
}

/// Why a row, or the whole file, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Refused {
    /// The line at which it began, from 1.
    pub line: u64,
    /// What to count.
    pub reason: ParseError,
    /// What to tell a person; holds no control characters.
    pub message: Cow<'static, str>,
}

/// The series that a table's path names: `build/times` of `statistics/build/times.csv`, `times` of
/// any other.
pub fn series_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(".gz").unwrap_or(name);
    let stem = stem.strip_suffix(".csv").unwrap_or(stem);
    let mut folders = path.parent()?.iter().rev();
    let inside: Vec<_> = folders.by_ref().take_while(|folder| *folder != "statistics").collect();
    let rooted = path.parent()?.iter().count() > inside.len();
    let folders = inside.iter().rev().filter(|_| rooted).map(|folder| folder.to_string_lossy());
    let series: Vec<_> = folders.chain([stem.into()]).collect();
    Some(series.join("/")).filter(|series| series != "-")
}

enum Step {
    /// A blank line, the header, or part of a record.
    Nothing,
    Row,
    Empty,
    Refused(Refused),
}

impl Reader {
    /// At the beginning of a file.
    pub fn new(options: Options) -> Self {
        let cells = Cells::new(options.columns);
        Self {
            options,
            header: None,
            cells,
            tail: Vec::new(),
            skipping: false,
            lines: 0,
            begin: 0,
            bytes: 0,
            surplus: 0,
            failed: None,
        }
    }

    /// Takes the next record off `input`, or all of it if none ends there.
    ///
    /// # Errors
    ///
    /// Why the whole file is refused.
    pub fn read<'r>(&'r mut self, input: &mut &[u8]) -> Result<Option<Record<'r>>, Refused> {
        loop {
            self.check()?;
            match self.line(input) {
                None => return Ok(None),
                Some(Step::Nothing) => {}
                Some(step) => return self.record(step).map(Some),
            }
        }
    }

    /// The file has ended: a last line without a line end counts as one.
    ///
    /// # Errors
    ///
    /// Why the whole file is refused.
    pub fn end(&mut self) -> Result<Option<Record<'_>>, Refused> {
        self.check()?;
        let tail = take(&mut self.tail);
        let mut step = Step::Nothing;
        if self.skipping || !tail.is_empty() {
            step = self.take_line(&tail);
        }
        if self.cells.is_open() {
            self.cells.clear();
            step = self.refuse(Refusal::new(ParseError::UnbalancedQuotes, NOT_CLOSED));
        }
        self.check()?;
        match step {
            Step::Nothing => Ok(None),
            step => self.record(step).map(Some),
        }
    }

    /// Whether the columns are known.
    pub const fn knows_columns(&self) -> bool {
        self.header.is_some()
    }

    /// Goes on with the line after so many, as one who has read them before; only the header has
    /// to be read again.
    pub fn go_on_after(&mut self, lines: u64) {
        self.tail.clear();
        self.lines = lines;
    }

    /// How many lines have ended so far.
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// How many cells stood where there was no column.
    pub const fn surplus(&self) -> u64 {
        self.surplus
    }

    /// What has come of a whole line.
    fn record(&self, step: Step) -> Result<Record<'_>, Refused> {
        self.check()?;
        Ok(match (step, &self.header) {
            (Step::Refused(refused), _) => Record::Refused(refused),
            (Step::Row, Some(header)) => {
                Record::Row(Row::new(self.begin, &self.cells, header, &self.options))
            }
            _ => Record::Empty(self.begin),
        })
    }

    fn check(&self) -> Result<(), Refused> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Takes one line off `input`, if one ends there.
    fn line(&mut self, input: &mut &[u8]) -> Option<Step> {
        let end = memchr(b'\n', input).map(|end| end + 1);
        let (line, rest) = input.split_at_checked(end.unwrap_or(input.len()))?;
        *input = rest;
        if end.is_some() && self.tail.is_empty() {
            return Some(self.take_line(line));
        }
        self.keep(line);
        end?;
        let mut tail = take(&mut self.tail);
        let step = self.take_line(&tail);
        tail.clear();
        tail.shrink_to(KEPT_CAPACITY);
        self.tail = tail;
        Some(step)
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.skipping || self.tail.len() + piece.len() > self.options.record_bytes {
            self.skipping = true;
            self.tail = Vec::new();
        } else {
            self.tail.extend_from_slice(piece);
        }
    }

    /// Takes a line with its end, of which nothing is left where it was too long.
    fn take_line(&mut self, line: &[u8]) -> Step {
        let len = line.len();
        let line = if self.lines == 0 { without_byte_order_mark(line) } else { line };
        self.lines += 1;
        if !self.cells.is_open() {
            self.begin = self.lines;
            self.bytes = 0;
            self.cells.clear();
        }
        self.bytes += len;
        if take(&mut self.skipping) || self.bytes > self.options.record_bytes {
            self.cells.clear();
            let text = format!("a row takes more than {} bytes", self.options.record_bytes);
            return self.refuse(Refusal::new(ParseError::LineTooLong, text));
        }
        match self.cells.take(line) {
            Taken::Part => Step::Nothing,
            Taken::Broken => {
                self.cells.clear();
                self.refuse(Refusal::new(ParseError::UnbalancedQuotes, AFTER_QUOTE))
            }
            Taken::Whole if self.cells.are_blank() => Step::Nothing,
            Taken::Whole => self.judge().unwrap_or_else(|refusal| self.refuse(refusal)),
        }
    }

    fn judge(&mut self) -> Result<Step, Refusal> {
        self.cells.check_text()?;
        let Some(header) = &self.header else {
            let header = Header::new(&self.cells, &self.options)?;
            self.cells.limit(header.len());
            self.header = Some(header);
            return Ok(Step::Nothing);
        };
        self.surplus += self.cells.surplus();
        let has_value = header.judge(&mut self.cells, &self.options)?;
        Ok(if has_value { Step::Row } else { Step::Empty })
    }

    /// Without a header nothing that follows means anything.
    fn refuse(&mut self, Refusal { reason, text: message }: Refusal) -> Step {
        let refused = Refused { line: self.begin.max(1), reason, message };
        if self.header.is_none() {
            self.failed = Some(refused.clone());
        }
        Step::Refused(refused)
    }
}

const NOT_CLOSED: &str = "a quote is not closed before the end of the file";
const AFTER_QUOTE: &str = "a cell goes on after its closing quote; a quote inside of quotes is \
    doubled";

/// A usual line, so that one that was long does not keep its memory.
const KEPT_CAPACITY: usize = 4096;

#[cfg(test)]
mod tests;
