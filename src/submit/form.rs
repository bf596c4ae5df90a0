//! The records of a file, as lines of a request: lines of JSON as they are, rows of a table as JSON.
//!
//! Limit: a line, or a row, of [`LINE_MAX`].

use super::batch::Batch;
use memchr::memchr;
use protocols::csv::{self, Refused};
use protocols::frame::without_byte_order_mark;
use protocols::json::write_prefixed;

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
    pub(super) fn take(&mut self, input: &mut &[u8], batch: &mut Batch) -> Result<bool, Refused> {
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

    /// Takes what is left: the input has ended.
    pub(super) fn end(&mut self, batch: &mut Batch) -> Result<(), Refused> {
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

    /// How many lines were read.
    pub(super) const fn line(&self) -> u64 {
        match self {
            Self::Lines(lines) => lines.count,
            Self::Table(table) => table.lines(),
        }
    }

    /// Counts on from so many lines.
    pub(super) fn go_on_after(&mut self, line: u64) {
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

/// The longest line, or row of a table.
pub(super) const LINE_MAX: usize = 1 << 20;
