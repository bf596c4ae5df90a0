//! Items of a body: points, and series of InfluxDB 0.8, which make a point of each row.

use super::body::{Items, Text, each_element, each_member};
use super::draft::Draft;
use super::plain::Plain;
use super::value::Scalar;
use super::{Limits, Outcome};
use crate::batch::Batch;
use crate::error::ParseError;
use crate::form::{self, Recall, Speech};
use crate::refusals::Refusal;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Reads the items of one body, one after the other, and counts them.
pub(super) struct Reader<'a, 'o> {
    /// How many of [`Limits::unfolded`] are left.
    unfolded_left: usize,
    draft: Draft<'a>,
    pub(super) outcome: Outcome<'a>,
    out: &'o mut Batch,
    recall: &'o mut dyn Recall,
}

impl<'a, 'o> Reader<'a, 'o> {
    pub(super) fn new(limits: Limits, out: &'o mut Batch, recall: &'o mut dyn Recall) -> Self {
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
        if form::passes(item, self.recall, self.out.len(), Speech::Point) {
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
