//! A body of line protocol: the good lines to points, and for the bad ones what to answer.
//!
//! Servers answer in two shapes, `{"error":…}` in 1.x and `{"code":…,"message":…}` in 2.x, and
//! clients of either write to either's path. Ours has the members of both. The words that
//! clients look for in them are kept: `partial write`, `unable to parse`, `dropped=`.

use super::lines::lines;
use super::read::{ReadOptions, Reader};
use crate::answer::Answer;
use crate::{Batch, ParseError};
use serde::Serialize;
use std::fmt::Write;

/// A line that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<'a> {
    /// Its number in the body, from 1, as an editor counts.
    pub number: usize,
    /// What to count.
    pub reason: ParseError,
    /// The line as it was sent. Any bytes may be in it.
    pub line: &'a [u8],
}

/// Appends the points of all good lines to `out`, and shows the others to `refused`.
pub fn parse_body<'a>(
    body: &'a [u8],
    options: &'a ReadOptions,
    out: &mut Batch,
    mut refused: impl FnMut(Refused<'a>),
) {
    let mut reader = Reader::new(options);
    for (number, line) in lines(body) {
        if let Err(reason) = reader.line(line, out) {
            refused(Refused { number, reason, line });
        }
    }
}

impl Refused<'_> {
    /// What was wrong, for a person.
    pub fn message(&self) -> String {
        // Said by every protocol, but not in the same words.
        match self.reason {
            ParseError::DuplicateTag => "a tag key stands twice".to_owned(),
            ParseError::InvalidTimestamp => "the timestamp is not an integer".to_owned(),
            ParseError::TimestampOutOfRange => {
                "the timestamp is outside the listener's time window, or of 64 bits of \
                 nanoseconds; is the precision right?"
                    .to_owned()
            }
            reason => reason.to_string(),
        }
    }
}

/// The refused lines of one body, as its sender will read of them.
#[derive(Debug, Default)]
pub struct Report {
    refused: usize,
    text: String,
}

impl Report {
    /// How many lines are told of one by one; of the others only the number.
    pub const LISTED: usize = 100;

    /// Notes a line.
    pub fn add(&mut self, refused: &Refused<'_>) {
        self.refused += 1;
        if self.refused <= Self::LISTED {
            let (number, line, why) = (refused.number, shown(refused.line), refused.message());
            let separator = if self.text.is_empty() { "" } else { "\n" };
            // Writing to a String does not fail.
            let _ = write!(self.text, "{separator}line {number}: unable to parse '{line}': {why}");
        }
    }

    /// 204 if no line was refused, otherwise 400; `accepted` lines were taken.
    pub fn answer(mut self, accepted: usize) -> Answer {
        if self.refused == 0 {
            return Answer { status: 204, body: None };
        }
        if let Some(unlisted @ 1..) = self.refused.checked_sub(Self::LISTED) {
            let _ = write!(self.text, "\nand {unlisted} lines more");
        }
        let (refused, text) = (self.refused, self.text);
        if accepted == 0 {
            return refusal(400, &text);
        }
        refusal(400, &format!("partial write: {text} dropped={refused}"))
    }
}

/// The answer to a request that was refused.
pub fn refusal(status: u16, message: &str) -> Answer {
    #[derive(Serialize)]
    struct Body<'t> {
        error: &'t str,
        code: &'t str,
        message: &'t str,
    }
    Answer::json(status, &Body { error: message, code: code(status), message })
}

/// The words of 2.x.
fn code(status: u16) -> &'static str {
    match status {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not found",
        405 => "method not allowed",
        413 => "request too large",
        429 => "too many requests",
        503 => "unavailable",
        _ => "invalid",
    }
}

/// Enough of a line to find it by, on one line.
fn shown(line: &[u8]) -> String {
    let head = line.get(..SHOWN_BYTES).unwrap_or(line);
    let mut text = String::from_utf8_lossy(head).replace(char::is_control, " ");
    if head.len() < line.len() {
        text.push('…');
    }
    text
}

/// As much as is shown of a line: its name and some tags.
const SHOWN_BYTES: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// How many points came of it, the numbers and reasons of the lines refused, the answer.
    fn read(body: &[u8]) -> (usize, Vec<(usize, &'static str)>, Answer) {
        let (options, mut batch) = (ReadOptions::default(), Batch::new());
        let (mut reasons, mut report) = (Vec::new(), Report::default());
        parse_body(body, &options, &mut batch, |refused| {
            reasons.push((refused.number, refused.reason.label()));
            report.add(&refused);
        });
        (batch.len(), reasons, report.answer(batch.len()))
    }

    fn error(answer: &Answer) -> String {
        let body: Value = serde_json::from_str(answer.body.as_deref().unwrap()).unwrap();
        assert_eq!((&body["error"], &body["code"]), (&body["message"], &json!("invalid")));
        body["error"].as_str().unwrap().to_owned()
    }

    #[test]
    fn good_lines_are_kept_and_bad_ones_told_by_number() {
        let body = "m,foo= v=1i\n# c\nm v=1i,v=2\r\ngood,h=x v=4i\nm s=\"a\nb\" 7\nm\n";
        let (points, reasons, answer) = read(body.as_bytes());
        assert_eq!(points, 2);
        assert_eq!(reasons, [(1, "invalid_tag"), (3, "duplicate_field"), (7, "no_fields")]);
        assert_eq!(answer.status, 400);
        assert_eq!(
            error(&answer),
            "partial write: line 1: unable to parse 'm,foo= v=1i': a tag has no key, or has to be \
             key=value and is not\nline 3: unable to parse 'm v=1i,v=2 ': a field stands twice\n\
             line 7: unable to parse 'm': the point has no value and no field dropped=3"
        );
    }

    #[test]
    fn nothing_refused_is_204() {
        for body in ["", "\n# c\n", "m v=1\n", "m v=1"] {
            let (_, reasons, answer) = read(body.as_bytes());
            assert_eq!(reasons, []);
            assert_eq!(answer, Answer { status: 204, body: None }, "{body:?}");
        }
    }

    #[test]
    fn a_body_without_a_good_line_is_no_partial_write() {
        let (_, reasons, answer) = read(b"\xff v=1\nm v=1 x");
        assert_eq!(reasons, [(1, "invalid_utf8"), (2, "invalid_timestamp")]);
        assert!(error(&answer).starts_with("line 1: unable to parse '\u{fffd} v=1': the line is"));
        assert!(error(&answer).ends_with("'m v=1 x': the timestamp is not an integer"));
    }

    #[test]
    fn the_list_ends_and_the_count_does_not() {
        let (_, reasons, answer) = read("m\n".repeat(Report::LISTED + 7).as_bytes());
        assert_eq!(reasons.len(), Report::LISTED + 7);
        assert_eq!(error(&answer).matches("unable").count(), Report::LISTED);
        assert!(error(&answer).ends_with("\nand 7 lines more"));
    }

    #[test]
    fn a_line_is_shown_short_and_harmless() {
        assert_eq!(shown(b"a\x1b[2J\nb"), "a [2J b");
        assert_eq!(shown(&[b'x'; 121]), format!("{}…", "x".repeat(120)));
    }
}
