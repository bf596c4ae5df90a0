//! Lines of a file that go in one request.
//!
//! Limits: [`BODY_MAX`] and a line more, [`LINES_MAX`] lines, and [`SPAN_MAX`] of the file and a line
//! more.

use super::totals::Totals;
use protocols::csv::Record;

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
    /// For each of them, the number of its line in the file, from 1.
    pub(super) lines: Vec<u64>,
    /// For each of them, where in the file its record ends.
    pub(super) ends: Vec<Place>,
    pub(super) start: Place,
    pub(super) end: Place,
    /// Whether no line feed stands at its end.
    pub(super) is_open: bool,
    /// What is known before the gateway is asked.
    pub(super) totals: Totals,
}

impl Batch {
    /// Takes in what a table has for its next record.
    pub(super) fn record(&mut self, record: &Record<'_>) {
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

    /// Ends the line that was just written, and notes which line of the file it is.
    pub(super) fn line(&mut self, line: u64) {
        self.body.push(b'\n');
        self.lines.push(line);
    }

    /// The batch now ends here, and so does the record that was just written, if one was.
    pub(super) fn ends_at(&mut self, place: Place) {
        self.end = place;
        self.ends.resize(self.lines.len(), place);
    }

    pub(super) fn is_full(&self) -> bool {
        self.body.len() >= BODY_MAX || self.lines.len() >= LINES_MAX || self.bytes() >= SPAN_MAX
    }

    /// How much of the file it takes up.
    pub(super) const fn bytes(&self) -> u64 {
        self.end.offset - self.start.offset
    }

    /// Cuts it in two, for a gateway that finds it too large; a lone line cannot be cut. The second half
    /// begins where the first ends in the file, so that whoever reads the file again can cut there, too.
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

/// A sixteenth of what a gateway takes, unless it is told otherwise; more makes nothing faster.
pub(super) const BODY_MAX: usize = 1 << 20;
const LINES_MAX: usize = 10_000;

/// So that a file of nothing but empty rows gets on, too.
pub(super) const SPAN_MAX: u64 = 8 << 20;
