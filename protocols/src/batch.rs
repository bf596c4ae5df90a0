//! Flat storage for many points: one text buffer, one list of tags, one of fields, one of rows.
//!
//! A batch is filled by a parser, read by the router, copied row by row into the batches of
//! lanes, and cleared for reuse. It never allocates once it has grown to its working size.
//!
//! **Advice for whoever changes this.** Spans are 32-bit offsets into `text`. They are only
//! made by [`PointWriter`] and [`Batch::push`], which append; [`Batch::rollback`] cuts all four
//! lists back together. Nothing else may shorten one of them.

use crate::point::{
    FieldSlot, FieldSpan, FieldValue, Fields, Measure, Number, Point, Span, Tag, TagSpan, Tags,
    UnixNanos,
};
use std::ops::Range;

/// Many points in flat storage.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    text: String,
    tags: Vec<TagSpan>,
    fields: Vec<FieldSpan>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    name: Span,
    tags: Range<u32>,
    measure: RowMeasure,
    time: Option<UnixNanos>,
    rest: Span,
}

#[derive(Clone, Debug)]
enum RowMeasure {
    Plain(Measure<'static>),
    Set(Span),
    Fields(Range<u32>),
}

/// A place in a batch to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    text: usize,
    tags: usize,
    fields: usize,
    rows: usize,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many points it holds.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The memory its points take, for limits in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
            + self.tags.len() * size_of::<TagSpan>()
            + self.fields.len() * size_of::<FieldSpan>()
            + self.rows.len() * size_of::<Row>()
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.tags.clear();
        self.fields.clear();
        self.rows.clear();
    }

    /// The present end, to go back to when what follows is refused.
    pub fn mark(&self) -> Mark {
        Mark {
            text: self.text.len(),
            tags: self.tags.len(),
            fields: self.fields.len(),
            rows: self.rows.len(),
        }
    }

    /// Forgets all that was written since `mark`.
    pub fn rollback(&mut self, mark: Mark) {
        self.text.truncate(mark.text);
        self.tags.truncate(mark.tags);
        self.fields.truncate(mark.fields);
        self.rows.truncate(mark.rows);
    }

    /// Gives this time to readings and rows that have none. Kinds that are summed up keep none: they
    /// belong to the window in which they come.
    pub fn date(&mut self, time: UnixNanos) {
        for row in &mut self.rows {
            let is_dated = matches!(
                row.measure,
                RowMeasure::Fields(_) | RowMeasure::Plain(Measure::Reading(_))
            );
            if is_dated && row.time.is_none() {
                row.time = Some(time);
            }
        }
    }

    /// Starts a point called `name`; see [`PointWriter`].
    pub fn begin(&mut self, name: &str) -> PointWriter<'_> {
        let mark = self.mark();
        let name = self.append(name);
        PointWriter { batch: self, mark, name, committed: false }
    }

    /// Copies a point, usually out of another batch.
    pub fn push(&mut self, point: &Point<'_>) {
        let mut writer = self.begin(point.name);
        writer.append_tags(point.tags);
        if let Measure::Fields(fields) = &point.measure {
            for (key, value) in fields.iter() {
                writer.append_field(key, value);
            }
        }
        writer.rest_and_measure(point.measure, point.time, point.rest);
    }

    /// The point at `index`.
    pub fn point(&self, index: usize) -> Option<Point<'_>> {
        self.rows.get(index).map(|row| self.view(row))
    }

    /// The points in the order in which they were written.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Point<'_>> + Clone {
        self.rows.iter().map(|row| self.view(row))
    }

    fn view(&self, row: &Row) -> Point<'_> {
        let measure = match &row.measure {
            RowMeasure::Plain(measure) => *measure,
            RowMeasure::Set(member) => Measure::Set(member.of(&self.text)),
            RowMeasure::Fields(range) => {
                Measure::Fields(Fields { text: &self.text, spans: slice(&self.fields, range) })
            }
        };
        Point {
            name: row.name.of(&self.text),
            tags: Tags { text: &self.text, spans: slice(&self.tags, &row.tags) },
            measure,
            time: row.time,
            rest: row.rest.of(&self.text),
        }
    }

    #[allow(clippy::cast_possible_truncation)] // Bodies are limited far below 4 GiB.
    fn append(&mut self, text: &str) -> Span {
        let start = self.text.len() as u32;
        self.text.push_str(text);
        Span { start, end: self.text.len() as u32 }
    }
}

fn slice<'a, T>(all: &'a [T], range: &Range<u32>) -> &'a [T] {
    all.get(range.start as usize..range.end as usize).unwrap_or(&[])
}

/// Writes one point, or several that share a name and tags, into a batch.
///
/// Add tags and fields, then call [`finish`](Self::finish) once for each measure. A writer
/// that is dropped before the first `finish` leaves the batch as it was.
#[derive(Debug)]
pub struct PointWriter<'b> {
    batch: &'b mut Batch,
    mark: Mark,
    name: Span,
    committed: bool,
}

impl PointWriter<'_> {
    /// Adds a tag, or replaces the value of the one with the same key (the last wins).
    /// Answers the value that stood there before, if there was one.
    pub fn tag(&mut self, key: &str, value: Option<&str>) -> Option<Replaced> {
        let Some(index) = self.place_of(key) else {
            self.append_tag(Tag { key, value });
            return None;
        };
        self.replace(index, value)
    }

    /// As [`tag`](Self::tag), of the tag that is written `key=value`, with the `=` at that place.
    /// It stays written like that, which encoders make use of.
    pub(crate) fn tag_pair(&mut self, pair: &str, equals: usize) -> Option<Replaced> {
        let key = pair.get(..equals).unwrap_or(pair);
        let Some(index) = self.place_of(key) else {
            self.append_pair(pair, equals);
            return None;
        };
        self.replace(index, Some(pair.get(equals + 1..).unwrap_or("")))
    }

    fn place_of(&self, key: &str) -> Option<usize> {
        let found = self.own_tags().iter().position(|tag| tag.key.of(&self.batch.text) == key);
        found.map(|index| self.mark.tags + index)
    }

    fn replace(&mut self, index: usize, value: Option<&str>) -> Option<Replaced> {
        let old = self.batch.tags.get(index)?.value;
        let same = old.map(|span| span.of(&self.batch.text)) == value;
        if !same {
            let span = value.map(|value| self.batch.append(value));
            self.batch.tags.get_mut(index)?.value = span;
        }
        Some(if same { Replaced::SameValue } else { Replaced::OtherValue })
    }

    /// How many tags the point has so far.
    pub fn tag_count(&self) -> usize {
        self.own_tags().len()
    }

    /// Adds a column, or replaces the one with the same key; answers whether it replaced one.
    pub fn field(&mut self, key: &str, value: FieldValue<'_>) -> bool {
        let own = self.batch.fields.get(self.mark.fields..).unwrap_or(&[]);
        let found = own.iter().position(|field| field.key.of(&self.batch.text) == key);
        let Some(index) = found.map(|index| self.mark.fields + index) else {
            self.append_field(key, value);
            return false;
        };
        let slot = self.slot(value);
        if let Some(field) = self.batch.fields.get_mut(index) {
            field.value = slot;
        }
        true
    }

    /// Writes the point. For [`Measure::Fields`] use [`finish_fields`](Self::finish_fields).
    pub fn finish(&mut self, measure: Measure<'_>, time: Option<UnixNanos>, rest: &str) {
        self.rest_and_measure(measure, time, rest);
    }

    /// Writes the point with the columns added so far as its measure.
    pub fn finish_fields(&mut self, time: Option<UnixNanos>) {
        let measure = RowMeasure::Fields(self.own_fields());
        self.commit(measure, time, Span::default());
    }

    /// Writes the point with the measure, time and rest of another one.
    pub fn finish_like(&mut self, point: &Point<'_>) {
        match point.measure {
            Measure::Fields(fields) => {
                for (key, value) in fields.iter() {
                    self.field(key, value);
                }
                self.finish_fields(point.time);
            }
            measure => self.finish(measure, point.time, point.rest),
        }
    }

    fn rest_and_measure(&mut self, measure: Measure<'_>, time: Option<UnixNanos>, rest: &str) {
        let rest = self.keep_rest(rest);
        let measure = match measure {
            Measure::Set(member) => RowMeasure::Set(self.batch.append(member)),
            Measure::Fields(_) => RowMeasure::Fields(self.own_fields()),
            Measure::Count { delta, rate } => RowMeasure::Plain(Measure::Count { delta, rate }),
            Measure::Gauge(value) => RowMeasure::Plain(Measure::Gauge(value)),
            Measure::GaugeShift(value) => RowMeasure::Plain(Measure::GaugeShift(value)),
            Measure::Timing { ms, rate } => RowMeasure::Plain(Measure::Timing { ms, rate }),
            Measure::Histogram { value, rate } => {
                RowMeasure::Plain(Measure::Histogram { value, rate })
            }
            Measure::Distribution { value, rate } => {
                RowMeasure::Plain(Measure::Distribution { value, rate })
            }
            Measure::Reading(number) => RowMeasure::Plain(Measure::Reading(number)),
        };
        self.commit(measure, time, rest);
    }

    /// The measures of one line usually share their rest; it is kept once, so that a line of
    /// many values cannot multiply it.
    fn keep_rest(&mut self, rest: &str) -> Span {
        let last = self.batch.rows.get(self.mark.rows..).and_then(<[Row]>::last);
        match last {
            _ if rest.is_empty() => Span::default(),
            Some(row) if row.rest.of(&self.batch.text) == rest => row.rest,
            _ => self.batch.append(rest),
        }
    }

    #[allow(clippy::cast_possible_truncation)] // As for `Batch::append`.
    fn commit(&mut self, measure: RowMeasure, time: Option<UnixNanos>, rest: Span) {
        let tags = self.mark.tags as u32..self.batch.tags.len() as u32;
        self.batch.rows.push(Row { name: self.name, tags, measure, time, rest });
        self.committed = true;
    }

    #[allow(clippy::cast_possible_truncation)] // As for `Batch::append`.
    fn own_fields(&self) -> Range<u32> {
        self.mark.fields as u32..self.batch.fields.len() as u32
    }

    fn own_tags(&self) -> &[TagSpan] {
        self.batch.tags.get(self.mark.tags..).unwrap_or(&[])
    }

    fn append_tag(&mut self, tag: Tag<'_>) {
        let key = self.batch.append(tag.key);
        let value = tag.value.map(|value| self.batch.append(value));
        self.batch.tags.push(TagSpan { key, value });
    }

    #[allow(clippy::cast_possible_truncation)] // As for `Batch::append`.
    fn append_pair(&mut self, pair: &str, equals: usize) {
        let Span { start, end } = self.batch.append(pair);
        let middle = start + equals as u32;
        let (key, value) = (Span { start, end: middle }, Span { start: middle + 1, end });
        self.batch.tags.push(TagSpan { key, value: Some(value) });
    }

    /// Copies all tags of a point, with their text in one piece if it is one.
    fn append_tags(&mut self, tags: Tags<'_>) {
        let Some(text) = tags.one_text() else {
            return tags.iter().for_each(|tag| self.append_tag(tag));
        };
        let from = tags.start();
        let to = self.batch.append(text).start;
        self.batch.tags.extend(tags.spans.iter().map(|tag| tag.moved(from, to)));
    }

    /// Adds a column whose key is known to be new, without looking through the others.
    pub(crate) fn append_field(&mut self, key: &str, value: FieldValue<'_>) {
        let key = self.batch.append(key);
        let value = self.slot(value);
        self.batch.fields.push(FieldSpan { key, value });
    }

    fn slot(&mut self, value: FieldValue<'_>) -> FieldSlot {
        match value {
            FieldValue::Number(number) => FieldSlot::Number(number),
            FieldValue::Bool(truth) => FieldSlot::Bool(truth),
            FieldValue::Text(text) => FieldSlot::Text(self.batch.append(text)),
        }
    }
}

impl Drop for PointWriter<'_> {
    fn drop(&mut self) {
        if !self.committed {
            self.batch.rollback(self.mark);
        }
    }
}

/// What [`PointWriter::tag`] found under the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The same value: an identical repeat.
    SameValue,
    /// Another value, which is gone now.
    OtherValue,
}

impl From<Number> for FieldValue<'_> {
    fn from(number: Number) -> Self {
        FieldValue::Number(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_writer_leaves_no_trace() {
        let mut batch = Batch::new();
        batch.begin("kept").finish(Measure::Gauge(1.0), None, "");
        let bytes = batch.bytes();
        let mut writer = batch.begin("refused");
        writer.tag("a", Some("b"));
        drop(writer);
        assert_eq!((batch.len(), batch.bytes()), (1, bytes));
    }

    #[test]
    fn what_has_no_time_is_dated_if_it_is_a_reading() {
        let mut batch = Batch::new();
        let reading = |batch: &mut Batch, time| {
            batch.begin("r").finish(Measure::Reading(Number::I64(1)), time, "");
        };
        reading(&mut batch, None);
        reading(&mut batch, Some(UnixNanos(7)));
        batch.begin("c").finish(Measure::Count { delta: 1.0, rate: 1.0 }, None, "");
        let mut writer = batch.begin("f");
        writer.field("a", FieldValue::Bool(true));
        writer.finish_fields(None);
        drop(writer);
        batch.date(UnixNanos(9));
        let times: Vec<_> = batch.iter().map(|point| point.time.map(|time| time.0)).collect();
        assert_eq!(times, [Some(9), Some(7), None, Some(9)]);
    }

    #[test]
    fn measures_of_one_line_share_name_and_tags() {
        let mut batch = Batch::new();
        let mut writer = batch.begin("t");
        writer.tag("env", Some("a"));
        writer.finish(Measure::Timing { ms: 1.0, rate: 0.5 }, None, "");
        writer.finish(Measure::Set("m"), Some(UnixNanos(7)), "c:1");
        drop(writer);
        let points: Vec<_> = batch.iter().collect();
        assert_eq!(points.len(), 2);
        for point in &points {
            assert_eq!(point.name, "t");
            assert_eq!(point.tags.find("env").unwrap().value, Some("a"));
        }
        assert_eq!(points[1].measure, Measure::Set("m"));
        assert_eq!((points[1].time, points[1].rest), (Some(UnixNanos(7)), "c:1"));
    }

    #[test]
    fn the_last_tag_of_a_key_wins() {
        let mut batch = Batch::new();
        let mut writer = batch.begin("p");
        assert_eq!(writer.tag("env", Some("a")), None);
        assert_eq!(writer.tag("env", Some("a")), Some(Replaced::SameValue));
        assert_eq!(writer.tag("env", Some("b")), Some(Replaced::OtherValue));
        writer.finish(Measure::Gauge(1.0), None, "");
        drop(writer);
        assert_eq!(batch.point(0).unwrap().tags.sorted(), [Tag { key: "env", value: Some("b") }]);
    }

    #[test]
    fn a_copied_point_equals_its_original() {
        let mut from = Batch::new();
        let mut writer = from.begin("row");
        writer.tag("bare", None);
        writer.field("a", FieldValue::Number(Number::I64(1)));
        writer.field("b", FieldValue::Text("x"));
        writer.field("a", FieldValue::Bool(true));
        writer.finish_fields(None);
        drop(writer);
        let mut to = Batch::new();
        to.begin("first").finish(Measure::Gauge(0.0), None, "");
        to.push(&from.point(0).unwrap());
        assert_eq!(to.point(1), from.point(0));
    }
}
