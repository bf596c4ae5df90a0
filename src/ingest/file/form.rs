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
    Json(LineFramer),
    Statsd(LineFramer),
    Log(Box<Marked>),
    Table(Box<csv::Reader>),
    /// A table that was refused: nothing that follows means anything.
    Nothing,
}

impl Form {
    /// Of that format. Lines of a log that count begin with `mark`; no line is longer than a record
    /// of a table may be.
    pub(super) fn new(format: FileFormat, mark: &str, table: csv::Options) -> Self {
        let max = table.record_bytes;
        match format {
            FileFormat::Jsonl => Self::Json(LineFramer::new(max)),
            FileFormat::Statsd => Self::Statsd(LineFramer::new(max)),
            FileFormat::Log => Self::Log(Box::new(Marked::new(mark.as_bytes(), max))),
            FileFormat::Csv => Self::Table(Box::new(csv::Reader::new(table))),
        }
    }

    /// Takes the lines that end in a chunk; answers how much of it whole lines take up, if any line
    /// ends in it.
    pub(super) fn feed(&mut self, chunk: &[u8], sheet: &mut Sheet<'_>) -> Option<usize> {
        let last = memrchr(b'\n', chunk).map(|end| end + 1);
        match self {
            Self::Json(framer) => framer.feed(chunk, |frame| sheet.json(frame)),
            Self::Statsd(framer) => framer.feed(chunk, |frame| sheet.statsd(frame)),
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

    /// Takes a last line though it has no end.
    pub(super) fn end(&mut self, sheet: &mut Sheet<'_>) {
        match self {
            Self::Json(framer) => framer.finish(|frame| sheet.json(frame)),
            Self::Statsd(framer) => framer.finish(|frame| sheet.statsd(frame)),
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
            Self::Json(framer) | Self::Statsd(framer) => framer.finish(|frame| {
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
