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
pub(crate) mod value;

pub use body::BodyError;
pub use prefix::write_prefixed;

use crate::batch::Batch;
use crate::decimal::unsigned;
use crate::error::ParseError;
use crate::form::{Forgetful, Recall, Speech};
use crate::frame::without_byte_order_mark;
use crate::refusals::{ItemError, Refusal, Refusals};
use crate::timestamp::TimeRange;
use body::{Items, Text, each_element, each_item, each_member};
use draft::Draft;
use plain::Plain;
use serde_json::value::RawValue;
use std::borrow::Cow;
use value::Scalar;

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

/// The same, for who knows many of the points again: of those nothing is written to `out`.
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
            Ok(item) => reader.other(index, item),
            Err(refusal) => reader.outcome.refusals.add(index, None, refusal),
        }
    }
    reader.outcome
}

/// Makes a point of the series of a path and the decoded pairs of a query string.
///
/// | pair | meaning |
/// |---|---|
/// | `time=…`, `timestamp=…`, `type=…` | as the members of an object |
/// | `tag.os=linux` | the tag `os` |
/// | `name=…`, `tags=…` | refused: the name is in the path, and tags come one by one |
/// | anything else | a field: a number if it is one by JSON's grammar, `true`, `false`, else text |
///
/// An empty value and `null` are no field, so `?details` asks for details and says nothing
/// about the point. Bare words for what is no number (`NaN`, `inf`) are refused: as text they
/// would spoil the column for every number after them.
///
/// # Errors
///
/// Why the point was refused; `out` is then as it was.
pub fn parse_query<'q>(
    series: &str,
    pairs: impl Iterator<Item = (&'q str, &'q str)>,
    limits: Limits,
    out: &mut Batch,
) -> Result<(), ItemError<'static>> {
    query(series, pairs, limits, out).map_err(|Refusal { reason, text: message }| ItemError {
        index: 0,
        reason,
        message,
        item: None,
    })
}

fn query<'q>(
    series: &str,
    pairs: impl Iterator<Item = (&'q str, &'q str)>,
    limits: Limits,
    out: &mut Batch,
) -> Result<(), Refusal> {
    let mut draft = Draft::new(limits);
    draft.named(Scalar::Text(Cow::Borrowed(series)))?;
    for (key, text) in pairs {
        if let Some(tag) = key.strip_prefix("tag.") {
            draft.tag(Cow::Borrowed(tag), Scalar::Text(Cow::Borrowed(text)))?;
        } else if key == "name" || key == "tags" {
            let text = "the name is in the path, and a tag is written tag.key=value";
            return Err(Refusal::new(ParseError::InvalidField, text));
        } else {
            draft.member(Cow::Borrowed(key), bare(text)?)?;
        }
    }
    draft.write(out)
}

/// What a word without quotes means.
fn bare(text: &str) -> Result<Scalar<'_>, Refusal> {
    match text {
        "" | "null" => return Ok(Scalar::Null),
        "true" => return Ok(Scalar::Bool(true)),
        "false" => return Ok(Scalar::Bool(false)),
        _ => {}
    }
    if NOT_NUMBERS.contains(&unsigned(text)) {
        return Err(ParseError::InvalidValue.into());
    }
    let json = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    match serde_json::from_str::<&RawValue>(text) {
        Ok(number) if json && number.get() == text => Ok(Scalar::Number(text)),
        _ => Ok(Scalar::Text(Cow::Borrowed(text))),
    }
}

/// A line without what stands around its JSON: blanks, among them some that JSON itself does not
/// know, and the mark of the byte order before the first line of a body.
fn bare_line(line: &[u8], is_first: bool) -> &[u8] {
    let line = if is_first { without_byte_order_mark(line) } else { line };
    line.trim_ascii()
}

fn json_of(line: &[u8]) -> Result<&RawValue, Refusal> {
    let line = str::from_utf8(line).map_err(|_| ParseError::InvalidUtf8)?;
    serde_json::from_str(line).map_err(|error| {
        let text = format!("the JSON is broken at column {}", error.column());
        Refusal::new(ParseError::InvalidJson, text)
    })
}

/// Reads item after item of one body, and keeps the books.
struct Reader<'a, 'o> {
    /// How many of [`Limits::unfolded`] are left.
    unfolded_left: usize,
    draft: Draft<'a>,
    outcome: Outcome<'a>,
    out: &'o mut Batch,
    recall: &'o mut dyn Recall,
}

impl<'a, 'o> Reader<'a, 'o> {
    fn new(limits: Limits, out: &'o mut Batch, recall: &'o mut dyn Recall) -> Self {
        let (unfolded_left, outcome) = (limits.unfolded, Outcome::default());
        Self { unfolded_left, draft: Draft::new(limits), outcome, out, recall }
    }

    fn refuse(&mut self, index: usize, item: &'a RawValue, result: Result<(), Refusal>) {
        if let Err(refusal) = result {
            self.outcome.refusals.add(index, Some(item), refusal);
        }
    }

    fn write(&mut self) -> Result<(), Refusal> {
        self.draft.write(self.out)?;
        self.outcome.accepted += 1;
        Ok(())
    }

    /// Gathers the members of an object in the draft.
    fn gather(&mut self, item: &'a RawValue) -> Result<Shape<'a>, Refusal> {
        if !item.get().starts_with('{') {
            return Err(ParseError::NotAPoint.into());
        }
        let mut aside = Aside::default();
        let draft = &mut self.draft;
        members(item, |key, value| take(draft, &mut aside, key, value))?;
        if let Some(metric) = aside.metric {
            take_metric(draft, metric)?;
        }
        match (aside.columns, aside.rows) {
            (None, None) => Ok(Shape::Point),
            (Some(columns), Some(rows)) if draft.has_no_row() => {
                Ok(Shape::Series { columns, rows })
            }
            _ => Err(Refusal::new(
                ParseError::InvalidField,
                "columns and points belong together, with nothing beside them but name and tags",
            )),
        }
    }

    /// Writes a point for each row; a row that is refused costs only itself.
    fn series(
        &mut self,
        index: usize,
        item: &'a RawValue,
        columns: &'a RawValue,
        rows: &'a RawValue,
    ) -> Result<(), Refusal> {
        let columns = column_names(columns, self.draft.limits)?;
        let repeated = self.draft.bytes() + columns.iter().map(|name| name.len()).sum::<usize>();
        let mut place = 0;
        each_element(rows.get(), |row| {
            let result = self.unfold(repeated).and_then(|()| self.row(&columns, row));
            self.refuse(index, item, result.map_err(|refusal| refusal.in_row(place)));
            place += 1;
        })
        .map_err(|_| ParseError::InvalidJson.into())
    }

    /// Pays for what one more row repeats.
    fn unfold(&mut self, repeated: usize) -> Result<(), Refusal> {
        let left = self.unfolded_left.checked_sub(repeated);
        self.unfolded_left = left.ok_or(ParseError::BodyTooLarge)?;
        Ok(())
    }

    fn row(&mut self, columns: &[Cow<'a, str>], row: &'a RawValue) -> Result<(), Refusal> {
        self.draft.clear_row();
        if !row.get().starts_with('[') {
            return Err(ParseError::ColumnMismatch.into());
        }
        let draft = &mut self.draft;
        let mut columns = columns.iter();
        let mut fit = true;
        elements(row, |cell| match columns.next() {
            Some(column) => take_cell(draft, column.clone(), cell),
            None => {
                fit = false;
                Ok(())
            }
        })?;
        if !fit || columns.next().is_some() {
            return Err(ParseError::ColumnMismatch.into());
        }
        self.write()
    }
}

impl<'a> Items<'a> for Reader<'a, '_> {
    fn plain(&mut self, item: &mut Plain<'a>) -> Option<()> {
        // This leaves the blanks away which stand before it.
        item.ends();
        let text = item.rest().as_bytes();
        if let Some(known) = self.recall.recall(text, self.out.len(), Speech::Point) {
            item.skip(known);
            self.outcome.accepted += 1;
            return Some(());
        }
        self.draft.clear();
        let (draft, mut metric) = (&mut self.draft, None);
        item.members(|item, key| take_plain(draft, &mut metric, key, item))?;
        if let Some(metric) = metric {
            take_metric(draft, metric).ok()?;
        }
        self.write().ok()
    }

    fn other(&mut self, index: usize, item: &'a RawValue) {
        self.draft.clear();
        let result = match self.gather(item) {
            Ok(Shape::Point) => self.write(),
            Ok(Shape::Series { columns, rows }) => self.series(index, item, columns, rows),
            Err(refusal) => Err(refusal),
        };
        self.refuse(index, item, result);
    }
}

/// A member of a point, as [`take`] takes it. Series and nested fields are not plain.
fn take_plain<'a>(
    draft: &mut Draft<'a>,
    metric: &mut Option<Scalar<'a>>,
    key: &'a str,
    item: &mut Plain<'a>,
) -> Option<()> {
    if key == "tags" {
        return item.members(|item, key| draft.tag(Cow::Borrowed(key), item.scalar()?).ok());
    }
    let value = item.scalar()?;
    match key {
        "name" => draft.named(value),
        "metric" => once(metric, value, "metric"),
        _ => draft.member(Cow::Borrowed(key), value),
    }
    .ok()
}

/// Where there is no name, `metric` is one.
fn take_metric<'a>(draft: &mut Draft<'a>, metric: Scalar<'a>) -> Result<(), Refusal> {
    match draft.name {
        None => draft.named(metric),
        Some(_) => draft.column(Cow::Borrowed("metric"), metric),
    }
}

enum Shape<'a> {
    Point,
    Series { columns: &'a RawValue, rows: &'a RawValue },
}

/// Members whose meaning depends on which others there are.
#[derive(Default)]
struct Aside<'a> {
    metric: Option<Scalar<'a>>,
    columns: Option<&'a RawValue>,
    rows: Option<&'a RawValue>,
}

fn take<'a>(
    draft: &mut Draft<'a>,
    aside: &mut Aside<'a>,
    key: Cow<'a, str>,
    value: &'a RawValue,
) -> Result<(), Refusal> {
    let first = value.get().as_bytes().first();
    match (&*key, first) {
        ("name", _) => draft.named(Scalar::of(value)?),
        ("metric", _) => once(&mut aside.metric, Scalar::of(value)?, "metric"),
        ("tags", Some(b'{')) => members(value, |key, value| draft.tag(key, Scalar::of(value)?)),
        ("tags", Some(b'n')) => Ok(()),
        ("tags", _) => Err(Refusal::new(ParseError::InvalidTag, "tags is not an object")),
        ("fields", Some(b'{')) => {
            members(value, |key, value| draft.column(key, Scalar::of(value)?))
        }
        ("columns", Some(b'[')) => once(&mut aside.columns, value, "columns"),
        ("points", Some(b'[')) => once(&mut aside.rows, value, "points"),
        _ => draft.member(key, Scalar::of(value)?),
    }
}

fn take_cell<'a>(
    draft: &mut Draft<'a>,
    column: Cow<'a, str>,
    cell: &'a RawValue,
) -> Result<(), Refusal> {
    match &*column {
        "time" => draft.timed(&Scalar::of(cell)?),
        "sequence_number" => Ok(()),
        _ => draft.column(column, Scalar::of(cell)?),
    }
}

fn once<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), Refusal> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::new(ParseError::NotAPoint, format!("{what} stands twice"))),
    }
}

fn column_names(columns: &RawValue, limits: Limits) -> Result<Vec<Cow<'_, str>>, Refusal> {
    let mut names = Vec::new();
    elements(columns, |name| {
        let Ok(Text(name)) = serde_json::from_str(name.get()) else {
            return Err(Refusal::new(ParseError::InvalidField, "a column is not text"));
        };
        names.push(name);
        if names.len() > limits.fields.saturating_add(RESERVED_COLUMNS) {
            return Err(ParseError::TooManyFields.into());
        }
        Ok(())
    })?;
    Ok(names)
}

/// The members of an object up to the first that is refused.
fn members<'a>(
    object: &'a RawValue,
    mut visit: impl FnMut(Cow<'a, str>, &'a RawValue) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut result = Ok(());
    each_member(object.get(), |key, value| {
        if result.is_ok() {
            result = visit(key, value);
        }
    })
    .map_err(|_| Refusal::new(ParseError::InvalidJson, "a key with half of a character"))?;
    result
}

/// The elements of an array up to the first that is refused.
fn elements<'a>(
    array: &'a RawValue,
    mut visit: impl FnMut(&'a RawValue) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut result = Ok(());
    each_element(array.get(), |element| {
        if result.is_ok() {
            result = visit(element);
        }
    })
    .map_err(|_| ParseError::InvalidJson)?;
    result
}

/// `time` and `sequence_number`, which are no fields.
const RESERVED_COLUMNS: usize = 2;

/// What languages print for a double that is no number.
pub(crate) const NOT_NUMBERS: [&str; 6] = ["NaN", "nan", "inf", "Inf", "Infinity", "infinity"];

#[cfg(test)]
mod tests;
