//! A file, cut into the bodies of requests.
//!
//! Where a batch ends follows from where it begins and what the file says, and from nothing else:
//! not from how the file was read. So whoever begins again at the same place makes the same batches,
//! to the last byte, which is what makes a request the same for a gateway that knows its key.
//!
//! Limits: a line of [`LINE_MAX`]; of a batch [`BODY_MAX`] and a line more, [`LINES_MAX`] lines, and
//! [`SPAN_MAX`] of the file.

use super::source::Source;
use super::totals::Totals;
use memchr::memchr;
use protocols::csv::{self, Record, Refused};
use protocols::json::write_prefixed;
use std::io::{self, Read as _};

/// A place between two lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Bytes before it, decompressed.
    pub(super) offset: u64,
    /// Lines before it.
    pub(super) line: u64,
}

/// Lines for one request.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// JSON lines.
    pub(super) body: Vec<u8>,
    /// For each of them, its line in the file, from 1.
    pub(super) lines: Vec<u64>,
    /// And where in the file what makes it ends, in bytes.
    pub(super) ends: Vec<u64>,
    pub(super) start: Place,
    pub(super) end: Place,
    /// What is known before the gateway is asked.
    pub(super) totals: Totals,
}

/// What the lines of a file are.
#[derive(Debug)]
pub(super) enum Form {
    /// JSON lines.
    Lines(Lines),
    /// A table.
    Table(Box<csv::Reader>),
}

/// JSON lines, whose names get a prefix.
#[derive(Debug)]
pub(super) struct Lines {
    prefix: String,
    /// The beginning of a line whose end has not been read.
    tail: Vec<u8>,
    skipping: bool,
    count: u64,
}

/// Reads a file from a place on.
pub(super) struct Batches {
    source: Source,
    form: Form,
    offset: u64,
    buffer: Box<[u8]>,
    /// What of the buffer is still to be read.
    unread: std::ops::Range<usize>,
}

impl Form {
    pub(super) fn lines(prefix: &str) -> Self {
        let (prefix, tail) = (prefix.to_owned(), Vec::new());
        Self::Lines(Lines { prefix, tail, skipping: false, count: 0 })
    }

    pub(super) fn table(prefix: &str, series: Option<String>) -> Self {
        let prefix = prefix.to_owned();
        let options = csv::Options { series, prefix, record_bytes: LINE_MAX, ..Default::default() };
        Self::Table(Box::new(csv::Reader::new(options)))
    }

    /// Takes at most one record.
    fn take(&mut self, input: &mut &[u8], batch: &mut Batch) -> Result<(), Refused> {
        match self {
            Self::Lines(lines) => lines.take(input, batch),
            Self::Table(table) => {
                let surplus = table.surplus();
                if let Some(record) = table.read(input)? {
                    batch.record(&record);
                }
                batch.totals.surplus += table.surplus() - surplus;
            }
        }
        Ok(())
    }

    fn end(&mut self, batch: &mut Batch) -> Result<(), Refused> {
        match self {
            Self::Lines(lines) => lines.end(batch),
            Self::Table(table) => {
                let surplus = table.surplus();
                if let Some(record) = table.end()? {
                    batch.record(&record);
                }
                batch.totals.surplus += table.surplus() - surplus;
            }
        }
        Ok(())
    }

    const fn line(&self) -> u64 {
        match self {
            Self::Lines(lines) => lines.count,
            Self::Table(table) => table.lines(),
        }
    }

    fn go_on_after(&mut self, line: u64) {
        match self {
            Self::Lines(lines) => lines.count = line,
            Self::Table(table) => table.go_on_after(line),
        }
    }
}

impl Lines {
    fn take(&mut self, input: &mut &[u8], batch: &mut Batch) {
        let end = memchr(b'\n', input);
        let (line, rest) = input.split_at_checked(end.unwrap_or(input.len())).unwrap_or_default();
        *input = rest.get(1..).unwrap_or_default();
        if end.is_some() && self.tail.is_empty() && !self.skipping {
            return self.line(line, batch);
        }
        self.skipping |= self.tail.len() + line.len() > LINE_MAX;
        if self.skipping {
            self.tail = Vec::new();
        } else {
            self.tail.extend_from_slice(line);
        }
        if end.is_some() {
            let tail = std::mem::take(&mut self.tail);
            self.line(&tail, batch);
        }
    }

    fn end(&mut self, batch: &mut Batch) {
        if self.skipping || !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.line(&tail, batch);
        }
    }

    fn line(&mut self, line: &[u8], batch: &mut Batch) {
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| self.count == 0).unwrap_or(line);
        self.count += 1;
        if std::mem::take(&mut self.skipping) || line.len() > LINE_MAX {
            let text = format!("the line is longer than {} MiB", LINE_MAX >> 20);
            return batch.totals.refuse(self.count, text);
        }
        if line.trim_ascii().is_empty() {
            return;
        }
        match &*self.prefix {
            "" => batch.body.extend_from_slice(line),
            prefix => write_prefixed(line, prefix, &mut batch.body),
        }
        batch.line(self.count);
    }
}

impl Batch {
    fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::Row(row) => {
                row.write_json(&mut self.body);
                self.line(row.line());
            }
            Record::Empty(_) => self.totals.empty += 1,
            Record::Refused(refused) => {
                self.totals.refuse(refused.line, refused.message.clone().into_owned());
            }
        }
    }

    /// The line that was just written stands at this one of the file.
    fn line(&mut self, line: u64) {
        self.body.push(b'\n');
        self.lines.push(line);
    }

    /// If there is a line that was just written, what makes it ends here.
    fn ends_at(&mut self, offset: u64) {
        self.ends.resize(self.lines.len(), offset);
    }

    fn is_full(&self, offset: u64) -> bool {
        self.body.len() >= BODY_MAX
            || self.lines.len() >= LINES_MAX
            || offset - self.start.offset >= SPAN_MAX
    }

    /// In two, where one is too large for the gateway; a lone line cannot be cut. The second begins
    /// where a batch would that is cut there when the file is read again.
    pub(super) fn halves(&self) -> Option<[Self; 2]> {
        let middle = self.lines.len() / 2;
        if middle == 0 {
            return None;
        }
        let cut = memchr::memchr_iter(b'\n', &self.body).nth(middle - 1)? + 1;
        let (first, second) = self.body.split_at_checked(cut)?;
        let (lines, others) = self.lines.split_at_checked(middle)?;
        let (ends, later) = self.ends.split_at_checked(middle)?;
        let middle = Place { offset: *ends.last()?, line: *lines.last()? };
        let part = |body: &[u8], lines: &[u64], ends: &[u64], start, end| Self {
            body: body.to_vec(),
            lines: lines.to_vec(),
            ends: ends.to_vec(),
            start,
            end,
            totals: Totals::default(),
        };
        Some([
            part(first, lines, ends, self.start, middle),
            part(second, others, later, middle, self.end),
        ])
    }
}

impl Batches {
    /// From `place` on, which is one where an earlier batch ended.
    ///
    /// # Errors
    ///
    /// What the system says, or why the table is refused.
    pub(super) fn new(mut source: Source, mut form: Form, place: Place) -> Result<Self, String> {
        if place.offset > 0 {
            if let Form::Table(table) = &mut form {
                read_header(&mut source, table)?;
            }
            source.go_to(place.offset).map_err(|error| error.to_string())?;
            form.go_on_after(place.line);
        }
        let buffer = vec![0; CHUNK].into_boxed_slice();
        Ok(Self { source, form, offset: place.offset, buffer, unread: 0..0 })
    }

    /// The next batch; one that was begun before ends at `cut`, as it did then.
    ///
    /// # Errors
    ///
    /// What the system says, or why the table is refused; what was read before is lost then.
    pub(super) fn next(&mut self, cut: Option<u64>) -> Result<Option<Batch>, String> {
        let mut batch = Batch { start: self.place(), ..Batch::default() };
        loop {
            if cut.is_none() && batch.is_full(self.offset) {
                break;
            }
            let room = cut.map_or(u64::MAX, |cut| cut.saturating_sub(self.offset));
            if room == 0 || self.fill().map_err(|error| error.to_string())? == 0 {
                self.form.end(&mut batch).map_err(|refused| refused.to_string())?;
                break;
            }
            let unread = self.buffer.get(self.unread.clone()).unwrap_or_default();
            let room = usize::try_from(room).unwrap_or(usize::MAX).min(unread.len());
            let mut input = unread.get(..room).unwrap_or_default();
            self.form.take(&mut input, &mut batch).map_err(|refused| refused.to_string())?;
            let taken = room - input.len();
            self.unread.start += taken;
            self.offset += taken as u64;
            batch.ends_at(self.offset);
        }
        batch.ends_at(self.offset);
        batch.end = self.place();
        Ok((batch.end.offset > batch.start.offset).then_some(batch))
    }

    fn place(&self) -> Place {
        Place { offset: self.offset, line: self.form.line() }
    }

    /// How much there is to read.
    fn fill(&mut self) -> io::Result<usize> {
        if self.unread.is_empty() {
            self.unread = 0..read(&mut self.source, &mut self.buffer)?;
        }
        Ok(self.unread.len())
    }
}

/// Reads the names of the columns, which those need who go on in the middle.
fn read_header(source: &mut Source, table: &mut csv::Reader) -> Result<(), String> {
    let mut byte = [0];
    // Byte by byte, since a row must not be taken for read; the source has a buffer.
    while !table.knows_columns() {
        if read(source, &mut byte).map_err(|error| error.to_string())? == 0 {
            return Err("the first line, which names the columns, is no longer there".to_owned());
        }
        table.read(&mut &byte[..]).map_err(|refused| refused.to_string())?;
    }
    Ok(())
}

fn read(source: &mut Source, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// UTF-8's own, as some editors write it at the start of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The longest line, or row of a table.
pub(super) const LINE_MAX: usize = 1 << 20;

/// A sixteenth of what a gateway takes, unless it is told otherwise; more makes nothing faster.
const BODY_MAX: usize = 1 << 20;
const LINES_MAX: usize = 10_000;

/// So that a file of nothing but empty rows gets on, too.
const SPAN_MAX: u64 = 8 << 20;

/// What is read at once.
const CHUNK: usize = 256 << 10;

#[cfg(test)]
mod tests;
