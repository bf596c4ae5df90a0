//! A file, cut into the bodies of requests.
//!
//! Where a batch ends follows from where it begins and what the file says, and from nothing else:
//! not from how the file was read. So whoever begins again at the same place makes the same
//! batches, to the last byte, which is what makes a request the same for a gateway that knows its
//! key. A batch ends between two lines. Only what the file ends with, if no line's end follows it,
//! makes a batch of its own, which is *open*: the file may be written on.
//!
//! Limits: a line of [`LINE_MAX`]; of a batch [`BODY_MAX`] and a line more, [`LINES_MAX`] lines,
//! and [`SPAN_MAX`] of the file and a line more.

use super::source::Source;
use super::totals::Totals;
use memchr::memchr;
use protocols::csv::{self, Record, Refused};
use protocols::frame::without_byte_order_mark;
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
    /// And where in the file what makes it ends.
    pub(super) ends: Vec<Place>,
    pub(super) start: Place,
    pub(super) end: Place,
    /// No line's end stands there.
    pub(super) is_open: bool,
    /// What is known before the gateway is asked.
    pub(super) totals: Totals,
}

/// Where a batch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// When it is full.
    Full,
    /// Where it did when it was begun before.
    At(u64),
    /// With the first line, or row of a table.
    Line,
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
    /// Up to where it was read.
    offset: u64,
    /// Up to where, but for a line that has not ended.
    place: Place,
    buffer: Box<[u8]>,
    /// What of the buffer is still to be read.
    unread: std::ops::Range<usize>,
    /// Why there is no more, which is told when what was read before is on its way.
    failed: Option<String>,
    /// What the file ended with was read; what may follow it by now belongs to that.
    is_over: bool,
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

    /// Takes at most one record; answers whether one has ended.
    fn take(&mut self, input: &mut &[u8], batch: &mut Batch) -> Result<bool, Refused> {
        match self {
            Self::Lines(lines) => Ok(lines.take(input, batch)),
            Self::Table(table) => {
                let surplus = table.surplus();
                let record = table.read(input)?;
                record.iter().for_each(|record| batch.record(record));
                let ended = record.is_some();
                batch.totals.surplus += table.surplus() - surplus;
                Ok(ended)
            }
        }
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
    fn take(&mut self, input: &mut &[u8], batch: &mut Batch) -> bool {
        let end = memchr(b'\n', input);
        let (line, rest) = input.split_at_checked(end.unwrap_or(input.len())).unwrap_or_default();
        *input = rest.get(1..).unwrap_or_default();
        if end.is_some() && self.tail.is_empty() && !self.skipping {
            self.line(line, batch);
            return true;
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
        end.is_some()
    }

    fn end(&mut self, batch: &mut Batch) {
        if self.skipping || !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.line(&tail, batch);
        }
    }

    fn line(&mut self, line: &[u8], batch: &mut Batch) {
        let is_long = std::mem::take(&mut self.skipping) || line.len() > LINE_MAX;
        let line = if self.count == 0 { without_byte_order_mark(line) } else { line };
        self.count += 1;
        if is_long {
            let text = format!("the line is longer than {} MiB", LINE_MAX >> 20);
            return batch.totals.refuse(self.count, text);
        }
        // The same whatever ends it, since that may come later.
        let line = line.trim_ascii_end();
        if line.is_empty() {
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

    /// All that is in it ends here; so does what makes a line that was just written.
    fn ends_at(&mut self, place: Place) {
        self.end = place;
        self.ends.resize(self.lines.len(), place);
    }

    fn is_full(&self) -> bool {
        self.body.len() >= BODY_MAX || self.lines.len() >= LINES_MAX || self.bytes() >= SPAN_MAX
    }

    /// How much of the file it takes up.
    pub(super) const fn bytes(&self) -> u64 {
        self.end.offset - self.start.offset
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
        let middle = *ends.last()?;
        let part = |body: &[u8], lines: &[u64], ends: &[Place], start, end| Self {
            body: body.to_vec(),
            lines: lines.to_vec(),
            ends: ends.to_vec(),
            start,
            end,
            ..Self::default()
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
        let (offset, unread, failed, is_over) = (place.offset, 0..0, None, false);
        Ok(Self { source, form, offset, place, buffer, unread, failed, is_over })
    }

    /// Where the next batch begins.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// The next batch, which ends where `cut` says, or the file does.
    ///
    /// # Errors
    ///
    /// What the system says, or why the table is refused.
    pub(super) fn next(&mut self, cut: Cut) -> Result<Option<Batch>, String> {
        let mut batch = Batch { start: self.place, end: self.place, ..Batch::default() };
        while !self.is_over && !self.is_cut(&batch, cut) {
            match self.read_some(cut, &mut batch) {
                Ok(true) => {}
                // What was read before is no worse for it.
                Err(why) if batch.bytes() > 0 => {
                    self.failed = Some(why);
                    break;
                }
                Err(why) => return Err(why),
                // What the file ends with goes alone, and may be all that there is.
                Ok(false) if batch.bytes() > 0 => break,
                Ok(false) => {
                    self.end(&mut batch)?;
                    break;
                }
            }
        }
        Ok((batch.bytes() > 0).then_some(batch))
    }

    fn is_cut(&self, batch: &Batch, cut: Cut) -> bool {
        self.offset == self.place.offset
            && match cut {
                Cut::Full => batch.is_full(),
                Cut::At(end) => self.offset >= end,
                Cut::Line => batch.bytes() > 0,
            }
    }

    /// Reads at most one record; answers whether there was anything to read.
    fn read_some(&mut self, cut: Cut, batch: &mut Batch) -> Result<bool, String> {
        if let Some(why) = self.failed.take() {
            return Err(why);
        }
        let room = match cut {
            Cut::At(end) => usize::try_from(end.saturating_sub(self.offset)).unwrap_or(usize::MAX),
            Cut::Full | Cut::Line => usize::MAX,
        };
        if room == 0 || self.fill().map_err(|error| error.to_string())? == 0 {
            return Ok(false);
        }
        let unread = self.buffer.get(self.unread.clone()).unwrap_or_default();
        let room = room.min(unread.len());
        let mut input = unread.get(..room).unwrap_or_default();
        let ended = self.form.take(&mut input, batch).map_err(|refused| refused.to_string())?;
        let taken = room - input.len();
        self.unread.start += taken;
        self.offset += taken as u64;
        if ended {
            self.place = Place { offset: self.offset, line: self.form.line() };
            batch.ends_at(self.place);
        }
        Ok(true)
    }

    /// Nothing follows what was read.
    fn end(&mut self, batch: &mut Batch) -> Result<(), String> {
        batch.is_open = self.offset > self.place.offset;
        self.is_over = true;
        self.form.end(batch).map_err(|refused| refused.to_string())?;
        self.place = Place { offset: self.offset, line: self.form.line() };
        batch.ends_at(self.place);
        Ok(())
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
