//! Our own JSON points, as the HTTP listener takes them.
//!
//! ```json
//! {"name": "build/times", "tags": {"os": "linux"}, "time": 1414000000, "compile": 12.5, "ok": true}
//! ```
//!
//! | member | meaning |
//! |---|---|
//! | `name` | required text of 1 to 1024 bytes without control characters; without one, `metric` is the name |
//! | `tags` | an object; numbers and truth values are taken as text, `null` is no tag, `""` a bare one |
//! | `time` or `timestamp` | see [`timestamp::number`] and [`timestamp::text`]; none or `null` means now |
//! | `type` | `counter`, `gauge`, `timer`, `set`, `histogram`, `distribution`: a statsd kind made of `value` and, where the kind has one, `rate` |
//! | `fields` | if it is an object, its members are fields |
//! | anything else | a field: number, truth value or text; `null` is no field |
//!
//! A lone field `value` with a number and without a type is a [`Measure::Reading`], so items
//! of the OpenTSDB shape are points too. The form of InfluxDB 0.8,
//! `{"name":…,"columns":[…],"points":[[…]]}`, makes a point of each row: there `time` is the
//! only reserved column, `sequence_number` is dropped, and `tags` may stand beside `name`.
//!
//! Nothing is dropped in silence: a field or a tag that stands twice with different values, a
//! type with stray fields and a nested value refuse their item, and only that. Tags and fields may
//! hold control characters, which JSON can say on purpose; each encoder makes them harmless on its
//! way out. A name may not, as in every protocol. Limits: [`Limits`], and [`Refusals::LISTED`]
//! refusals kept one by one. What HTTP needs around it (sizes, encodings, paths) is not here.
//!
//! [`timestamp::number`]: crate::timestamp::number
//! [`timestamp::text`]: crate::timestamp::text
//! [`Measure::Reading`]: crate::Measure::Reading

mod answer;
pub(crate) mod body;
pub(crate) mod draft;
pub(crate) mod plain;
mod prefix;
mod query;
mod read;
pub(crate) mod value;

pub use body::BodyError;
pub use prefix::write_prefixed;
pub use query::parse_query;

pub(crate) use query::NOT_NUMBERS;

use crate::batch::Batch;
use crate::error::ParseError;
use crate::form::{Forgetful, Recall};
use crate::frame::without_byte_order_mark;
use crate::refusals::{Refusal, Refusals};
use crate::timestamp::TimeRange;
use body::{Items, each_item};
use read::Reader;
use serde_json::value::RawValue;

/// How much one point may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most tags of a point.
    pub tags: usize,
    /// The most fields of a point.
    pub fields: usize,
    /// The most bytes that the names and tags of a body's series come to when each row
    /// repeats them. They are written once for all rows, so that without this limit a small
    /// body could unfold to any size.
    pub unfolded: usize,
    /// The times that points may have.
    pub times: TimeRange,
}

impl Default for Limits {
    /// 64 tags as every listener; 1024 fields, since wide tables have some hundred columns;
    /// and 256 MiB, sixteen times the largest body.
    fn default() -> Self {
        Self { tags: 64, fields: 1024, unfolded: 256 << 20, times: TimeRange::ALL }
    }
}

/// What became of a body.
#[derive(Clone, Debug, Default)]
pub struct Outcome<'a> {
    /// Points that were written to the batch.
    pub accepted: usize,
    /// What was refused; for the rows of an InfluxDB 0.8 series, each row on its own.
    pub refusals: Refusals<'a>,
}

/// Reads an array of points, or one point.
///
/// # Errors
///
/// What is wrong with the body as a whole; `out` is then as it was.
pub fn parse_points<'a>(
    body: &'a [u8],
    limits: Limits,
    out: &mut Batch,
) -> Result<Outcome<'a>, BodyError> {
    parse_points_with(&mut Forgetful, body, limits, out)
}

/// The same, for a caller that recalls many of the points: nothing is written to `out` for those.
///
/// # Errors
///
/// As for [`parse_points`]; what was recalled is then to be forgotten.
pub fn parse_points_with<'a>(
    recall: &mut dyn Recall,
    body: &'a [u8],
    limits: Limits,
    out: &mut Batch,
) -> Result<Outcome<'a>, BodyError> {
    let mark = out.mark();
    let mut reader = Reader::new(limits, out, recall);
    let read = each_item(body, &mut reader);
    let outcome = reader.outcome;
    if let Err(error) = read {
        out.rollback(mark);
        return Err(error);
    }
    Ok(outcome)
}

/// Reads one object a line; blank lines are skipped, and a broken line costs only itself.
pub fn parse_json_lines<'a>(body: &'a [u8], limits: Limits, out: &mut Batch) -> Outcome<'a> {
    let mut forgetful = Forgetful;
    let mut reader = Reader::new(limits, out, &mut forgetful);
    for (index, line) in body.split(|byte| *byte == b'\n').enumerate() {
        let line = bare_line(line, index == 0);
        if line.is_empty() {
            continue;
        }
        match json_of(line) {
            Ok(item) if is_array(line) => {
                reader.outcome.refusals.add(index, Some(item), array(ParseError::NotAPoint));
            }
            Ok(item) => reader.other(index, item),
            Err(refusal) => reader.outcome.refusals.add(index, None, refusal),
        }
    }
    reader.outcome
}

/// A line without what may stand around its JSON: blanks, some of which JSON itself does not know, and a
/// byte order mark before the first line of a body.
fn bare_line(line: &[u8], is_first: bool) -> &[u8] {
    let line = if is_first { without_byte_order_mark(line) } else { line };
    line.trim_ascii()
}

fn json_of(line: &[u8]) -> Result<&RawValue, Refusal> {
    let line = str::from_utf8(line).map_err(|_| ParseError::InvalidUtf8)?;
    serde_json::from_str(line).map_err(|error| {
        if is_array(line.as_bytes()) {
            return array(ParseError::InvalidJson);
        }
        if error.is_eof() && is_opening(line) {
            return Refusal::new(ParseError::InvalidJson, GOES_ON);
        }
        Refusal::new(ParseError::InvalidJson, broken(line, error.column()))
    })
}

/// Where a line is broken; and by what, if that is a number of Python's or JavaScript's that JSON lacks.
fn broken(line: &str, column: usize) -> String {
    let rest = line.get(column.saturating_sub(1)..).unwrap_or_default();
    let number = ["NaN", "Infinity"].into_iter().find(|number| rest.starts_with(number));
    let why = number.map(|number| format!(": JSON has no {number} (say null)"));
    format!("the JSON is broken at column {column}{}", why.unwrap_or_default())
}

/// What a file begins with that is one array of points, perhaps over many lines.
fn is_array(line: &[u8]) -> bool {
    line.starts_with(b"[")
}

/// Whether an object that begins here was meant to go on with the next line, as one that was written to be
/// looked at does. One that was cut off ends elsewhere, as a rule.
fn is_opening(line: &str) -> bool {
    line.starts_with('{') && line.ends_with(['{', '[', ',', ':'])
}

const GOES_ON: &str = "an object begins here that goes on with the next line; one JSON object a line is \
                       wanted, which `jq -c .` makes of it";

fn array(reason: ParseError) -> Refusal {
    let text =
        "an array begins here; one JSON object a line is wanted, which `jq -c '.[]'` makes of it";
    Refusal::new(reason, text)
}

#[cfg(test)]
mod tests;
