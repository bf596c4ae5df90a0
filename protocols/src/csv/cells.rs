//! The cells of one record, without their quotes.

use crate::decimal::unsigned;
use crate::error::ParseError;
use crate::json::NOT_NUMBERS;
use crate::json::plain::number_end;
use crate::json::value::Scalar;
use memchr::memchr;
use std::borrow::Cow;
use std::mem::take;

/// A record while its lines come in, and when it is whole.
#[derive(Debug)]
pub(super) struct Cells {
    /// Cell after cell, as they come in.
    bytes: Vec<u8>,
    /// The same, known to be text.
    text: String,
    cells: Vec<Cell>,
    /// As many are kept.
    max: usize,
    surplus: u64,
    /// A quote is open.
    open: bool,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    end: usize,
    quoted: bool,
    means: Means,
}

/// What is in a cell, once that was judged.
#[derive(Clone, Copy, Debug)]
enum Means {
    Nothing,
    Truth(bool),
    Number,
    Text,
}

/// What has come of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The record is whole.
    Whole,
    /// It goes on in the next line.
    Part,
    /// A quote is not where one may be.
    Broken,
}

impl Cells {
    pub(super) fn new(max: usize) -> Self {
        let (bytes, cells) = (Vec::new(), Vec::new());
        Self { bytes, text: String::new(), cells, max, surplus: 0, open: false }
    }

    /// From now on so many are kept of a record.
    pub(super) fn limit(&mut self, max: usize) {
        self.max = max;
    }

    pub(super) fn clear(&mut self) {
        if self.bytes.capacity() == 0 {
            self.bytes = take(&mut self.text).into_bytes();
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_CAPACITY);
        self.cells.clear();
        (self.surplus, self.open) = (0, false);
    }

    /// Whether the record goes on, inside of quotes.
    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// Whether there was nothing on its line.
    pub(super) fn are_blank(&self) -> bool {
        self.bytes.is_empty() && matches!(*self.cells, [Cell { quoted: false, .. }])
    }

    /// How many were too many.
    pub(super) const fn surplus(&self) -> u64 {
        self.surplus
    }

    /// Takes a line with its end.
    pub(super) fn take(&mut self, line: &[u8]) -> Taken {
        let mut rest = line;
        // Most lines have no quote, and then only commas need to be looked for.
        let quotes = self.open || memchr(b'"', line).is_some();
        loop {
            if !self.open {
                match rest.strip_prefix(b"\"").filter(|_| quotes) {
                    Some(inside) => (self.open, rest) = (true, inside),
                    None => match self.unquoted(rest) {
                        Some(next) => rest = next,
                        None => return Taken::Whole,
                    },
                }
                continue;
            }
            let Some((inside, after)) = split_at(b'"', rest) else {
                self.bytes.extend_from_slice(rest);
                return Taken::Part;
            };
            self.bytes.extend_from_slice(inside);
            match after {
                [b'"', next @ ..] => {
                    self.bytes.push(b'"');
                    rest = next;
                }
                [b',', next @ ..] => {
                    self.end(true);
                    rest = next;
                }
                [] | b"\n" | b"\r\n" | b"\r" => {
                    self.end(true);
                    return Taken::Whole;
                }
                _ => return Taken::Broken,
            }
        }
    }

    /// Takes a cell without quotes; answers what follows its comma.
    fn unquoted<'l>(&mut self, rest: &'l [u8]) -> Option<&'l [u8]> {
        let split = split_at(b',', rest);
        let cell = split.map_or_else(|| without_end(rest), |(cell, _)| cell);
        self.bytes.extend_from_slice(cell);
        self.end(false);
        split.map(|(_, next)| next)
    }

    fn end(&mut self, quoted: bool) {
        self.open = false;
        if self.cells.len() < self.max {
            self.cells.push(Cell { end: self.bytes.len(), quoted, means: Means::Text });
            return;
        }
        self.surplus += 1;
        self.bytes.truncate(self.cells.last().map_or(0, |cell| cell.end));
    }

    /// Sees whether the record is text.
    pub(super) fn check_text(&mut self) -> Result<(), ParseError> {
        match String::from_utf8(take(&mut self.bytes)) {
            Ok(text) => self.text = text,
            Err(error) => {
                self.bytes = error.into_bytes();
                return Err(ParseError::InvalidUtf8);
            }
        }
        Ok(())
    }

    /// The text of a cell; of one that the row is too short for, none.
    pub(super) fn text(&self, index: usize) -> Option<&str> {
        let start = match index.checked_sub(1) {
            Some(before) => self.cells.get(before)?.end,
            None => 0,
        };
        self.text.get(start..self.cells.get(index)?.end)
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.cells.len()
    }

    /// Sees what a cell means, and whether it means anything.
    pub(super) fn judge(&mut self, index: usize) -> Result<bool, ParseError> {
        let quoted = self.cells.get(index).is_none_or(|cell| cell.quoted);
        let means = match self.text(index) {
            None => return Ok(false),
            Some(_) if quoted => Means::Text,
            Some(text) => meaning(text)?,
        };
        if let Some(cell) = self.cells.get_mut(index) {
            cell.means = means;
        }
        Ok(!matches!(means, Means::Nothing))
    }

    /// A cell that was judged.
    pub(super) fn scalar(&self, index: usize) -> Scalar<'_> {
        let Some((cell, text)) = self.cells.get(index).zip(self.text(index)) else {
            return Scalar::Null;
        };
        match cell.means {
            Means::Nothing => Scalar::Null,
            Means::Truth(truth) => Scalar::Bool(truth),
            Means::Number => Scalar::Number(text),
            Means::Text => Scalar::Text(Cow::Borrowed(text)),
        }
    }
}

/// What stands in a cell without quotes.
fn meaning(text: &str) -> Result<Means, ParseError> {
    Ok(match text {
        "" | "null" => Means::Nothing,
        "true" => Means::Truth(true),
        "false" => Means::Truth(false),
        _ if is_number(text) => Means::Number,
        // As text it would spoil the column for every number after it.
        _ if NOT_NUMBERS.contains(&unsigned(text)) => return Err(ParseError::InvalidValue),
        _ => Means::Text,
    })
}

/// Whether this is a number by JSON's grammar.
pub(super) fn is_number(text: &str) -> bool {
    number_end(text.as_bytes()) == Some(text.len())
}

fn split_at(mark: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (before, from) = bytes.split_at_checked(memchr(mark, bytes)?)?;
    Some((before, from.get(1..)?))
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Far more than a usual row, so that one that was long does not keep its memory.
const KEPT_CAPACITY: usize = 64 << 10;
