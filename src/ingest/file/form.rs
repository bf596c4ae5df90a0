//! What the lines of a file are, and how each kind of them is cut out of the chunks that are read.

use super::sheet::Sheet;
use crate::ingest::FileFormat;
use memchr::memrchr;
use protocols::csv::{self, Record};
use protocols::frame::{Frame, LineFramer};
use protocols::marked::{Found, Marked};
use std::path::Path;

/// A file's format, with what is left over of the last chunk.
pub(super) enum Form {
    Json(Lines),
    Statsd(Lines),
    Log(Box<Marked>),
    Table(Box<csv::Reader>),
    /// A table that was refused: nothing that follows means anything.
    Nothing,
}

/// Lines, with their numbers in the file.
pub(super) struct Lines {
    framer: LineFramer,
    /// How many were handed on. One that is too long is as soon as that is clear, before it has ended.
    count: u64,
}

impl Lines {
    const fn new(framer: LineFramer, count: u64) -> Self {
        Self { framer, count }
    }

    fn feed(&mut self, chunk: &[u8], mut on_line: impl FnMut(u64, Frame<'_>)) {
        let count = &mut self.count;
        self.framer.feed(chunk, |frame| {
            *count += 1;
            on_line(*count, frame);
        });
    }

    fn finish(&mut self, mut on_line: impl FnMut(u64, Frame<'_>)) {
        let count = &mut self.count;
        self.framer.finish(|frame| {
            *count += 1;
            on_line(*count, frame);
        });
    }
}

impl Form {
    /// Of that format, for what follows so many lines. Lines of a log that count begin with `mark`; no
    /// line is longer than a record of a table may be.
    pub(super) fn new(format: FileFormat, mark: &str, table: csv::Options, lines: u64) -> Self {
        let max = table.record_bytes;
        match format {
            FileFormat::Jsonl => Self::Json(Lines::new(LineFramer::new(max), lines)),
            FileFormat::Statsd => Self::Statsd(Lines::new(LineFramer::new(max), lines)),
            FileFormat::Log => Self::Log(Box::new(Marked::new(mark.as_bytes(), max))),
            FileFormat::Csv => Self::Table(Box::new(csv::Reader::new(table))),
        }
    }

    /// Takes the lines that end in a chunk; answers how much of it whole lines take up, if any line
    /// ends in it.
    pub(super) fn feed(&mut self, chunk: &[u8], sheet: &mut Sheet<'_>) -> Option<usize> {
        let last = memrchr(b'\n', chunk).map(|end| end + 1);
        match self {
            Self::Json(lines) => lines.feed(chunk, |number, frame| sheet.json(number, frame)),
            Self::Statsd(lines) => lines.feed(chunk, |number, frame| sheet.statsd(number, frame)),
            Self::Log(marked) => marked.feed(chunk, |found| sheet.found(found)),
            Self::Table(table) => match feed_table(table, chunk, sheet) {
                Ok(whole) => return whole,
                Err(refused) => {
                    sheet.refuse_table(&refused);
                    *self = Self::Nothing;
                }
            },
            Self::Nothing => {}
        }
        last
    }

    /// Counts on from so many lines, which were read before.
    pub(super) fn go_on_after(&mut self, lines: u64) {
        match self {
            Self::Json(counted) | Self::Statsd(counted) => counted.count = lines,
            Self::Table(table) => table.go_on_after(lines),
            Self::Log(_) | Self::Nothing => {}
        }
    }

    /// Takes a last line though it has no end.
    pub(super) fn end(&mut self, sheet: &mut Sheet<'_>) {
        match self {
            Self::Json(lines) => lines.finish(|number, frame| sheet.json(number, frame)),
            Self::Statsd(lines) => lines.finish(|number, frame| sheet.statsd(number, frame)),
            Self::Log(marked) => marked.finish(|found| sheet.found(found)),
            Self::Table(table) => match table.end() {
                Ok(record) => drop(record.map(|record| sheet.record(&record))),
                Err(refused) => sheet.refuse_table(&refused),
            },
            Self::Nothing => {}
        }
    }

    /// What is there of a line that has not ended, as it is shown; it is given up.
    pub(super) fn left(&mut self) -> Vec<u8> {
        let mut left = Vec::new();
        match self {
            Self::Json(lines) | Self::Statsd(lines) => lines.finish(|_, frame| {
                left.extend(match frame {
                    Frame::Line(line) => line.trim_ascii(),
                    Frame::TooLong => b"",
                });
            }),
            // What is not marked was never meant for us.
            Self::Log(marked) => marked.finish(|found| {
                left.extend(match found {
                    Found::Object(line) => line,
                    Found::NoObject | Found::TooLong => b"",
                });
            }),
            Self::Table(table) => match table.end() {
                Ok(None | Some(Record::Empty(_))) => {}
                Ok(Some(Record::Row(row))) => left.extend(format!("line {}", row.line()).bytes()),
                Ok(Some(Record::Refused(refused))) | Err(refused) => {
                    left.extend(refused.to_string().bytes());
                }
            },
            Self::Nothing => {}
        }
        left
    }
}

/// Takes the rows that end in a chunk, which may have line feeds inside them.
fn feed_table(
    table: &mut csv::Reader,
    chunk: &[u8],
    sheet: &mut Sheet<'_>,
) -> Result<Option<usize>, csv::Refused> {
    let (mut input, mut whole) = (chunk, None);
    while let Some(record) = table.read(&mut input)? {
        sheet.record(&record);
        whole = Some(chunk.len() - input.len());
    }
    Ok(whole)
}

/// The format of a file, by its name.
pub(super) fn format_of(path: &Path) -> FileFormat {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    match plain.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "csv" => FileFormat::Csv,
        "statsd" => FileFormat::Statsd,
        "log" => FileFormat::Log,
        _ => FileFormat::Jsonl,
    }
}
