//! Points to line protocol.

use super::{EncoderOptions, Integers, Stencil, TIME_MAX, TIME_MIN, escape};
use crate::decimal::write_short;
use crate::encode::LostParts;
use crate::{Encode, FieldValue, Fields, Kind, Measure, Number, Point, Skip, Tags, UnixNanos};
use std::cmp::Reverse;

/// Writes one line for each point; see the [module](super) for what is made fit.
#[derive(Debug, Default)]
pub struct Encoder {
    options: EncoderOptions,
    /// The tags or columns of the present line, escaped, before they are put in order.
    parts: Parts,
    lost: LostParts,
}

impl Encoder {
    /// An encoder that decides as `options` say.
    pub fn new(options: EncoderOptions) -> Self {
        Self { options, ..Self::default() }
    }
}

impl Encode for Encoder {
    fn encode(&mut self, point: &Point<'_>, out: &mut Vec<u8>) -> Result<(), Skip> {
        let (start, lost) = (out.len(), self.lost);
        let written = self.line(point, out);
        if written.is_err() {
            // The caller counts the whole point, so its parts are not counted beside it.
            out.truncate(start);
            self.lost = lost;
        }
        written
    }

    fn name(&self, name: &str, out: &mut Vec<u8>) -> bool {
        escape::measurement(name, out)
    }

    fn lines(&self, _record: &[u8]) -> usize {
        1
    }

    fn lost_parts(&mut self) -> Vec<(Skip, u64)> {
        self.lost.take()
    }

    fn stencil(&self) -> Option<Stencil> {
        Some(Stencil::new(self.options))
    }
}

impl Encoder {
    fn line(&mut self, point: &Point<'_>, out: &mut Vec<u8>) -> Result<(), Skip> {
        let room = self.series(point.name, point.tags, out)?;
        self.columns(&point.measure, room, out)?;
        if let Some(time) = point.time {
            out.push(b' ');
            write_time(time, out)?;
        }
        out.push(b'\n');
        Ok(())
    }

    /// What stands before the columns; answers how long a key may be.
    fn series(&mut self, name: &str, tags: Tags<'_>, out: &mut Vec<u8>) -> Result<usize, Skip> {
        if name.is_empty() {
            return Err(Skip::EmptyName);
        }
        let start = out.len();
        escape::measurement(name, out);
        self.tags(tags, out);
        let room = SERIES_BYTES_MAX.checked_sub(out.len() - start).ok_or(Skip::TooLarge)?;
        out.push(b' ');
        Ok(room)
    }

    /// All that stands before the value in the only column, if the series loses nothing; then its
    /// lines differ in what follows alone.
    pub(super) fn head(
        &mut self,
        name: &str,
        tags: Tags<'_>,
        key: &str,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let start = out.len();
        let room = self.series(name, tags, out).ok();
        out.extend_from_slice(key.as_bytes());
        out.push(b'=');
        let is_whole = self.lost_parts().is_empty() && room.is_some_and(|room| key.len() < room);
        // So a line tells its name, for whoever wants to know it.
        let is_plain = out.get(start..).is_some_and(|head| head.starts_with(name.as_bytes()));
        if is_whole && is_plain && escape::is_plain(name) {
            return Some(());
        }
        out.truncate(start);
        None
    }

    /// Sorted by the bytes of the escaped keys, which is how servers compare them.
    fn tags(&mut self, tags: Tags<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        if !plain_tags(tags, out) {
            out.truncate(start);
            self.odd_tags(tags, out);
        }
    }

    fn odd_tags(&mut self, tags: Tags<'_>, out: &mut Vec<u8>) {
        self.parts.clear();
        for tag in tags.iter().filter(|tag| !tag.value_or_true().is_empty()) {
            self.parts.begin(tag.key);
            escape::tag_value(tag.value_or_true(), &mut self.parts.bytes);
            self.parts.end();
        }
        let doubled = self.parts.sort_and_keep_last();
        self.lost.add(Skip::Unrepresentable, doubled);
        for part in self.parts.iter() {
            out.push(b',');
            out.extend_from_slice(part);
        }
    }

    fn columns(
        &mut self,
        measure: &Measure<'_>,
        room: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Skip> {
        let key = column(measure.kind()).unwrap_or_default();
        match *measure {
            Measure::Count { delta, rate } => self.one(key, float(delta / rate), room, out),
            Measure::Gauge(value) => self.one(key, float(value), room, out),
            Measure::Reading(number) => self.one(key, number.into(), room, out),
            Measure::Fields(fields) => self.row(fields, room, out),
            Measure::GaugeShift(_)
            | Measure::Timing { .. }
            | Measure::Histogram { .. }
            | Measure::Distribution { .. }
            | Measure::Set(_) => Err(Skip::Unrepresentable),
        }
    }

    /// The only column there is, whose key is plain.
    fn one(
        &self,
        key: &str,
        value: FieldValue<'_>,
        room: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Skip> {
        if key.len() > room {
            return Err(Skip::TooLarge);
        }
        out.extend_from_slice(key.as_bytes());
        out.push(b'=');
        write_value(value, self.options, out)
    }

    fn row(&mut self, fields: Fields<'_>, room: usize, out: &mut Vec<u8>) -> Result<(), Skip> {
        self.parts.clear();
        self.columns_that_fit(fields.iter(), room)?;
        let doubled = self.parts.keep_last();
        self.lost.add(Skip::Unrepresentable, doubled);
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(part);
        }
        Ok(())
    }

    /// Columns that cannot be said are left out; when none is left, the first reason is
    /// that of the point.
    fn columns_that_fit<'a>(
        &mut self,
        fields: impl Iterator<Item = (&'a str, FieldValue<'a>)>,
        room: usize,
    ) -> Result<(), Skip> {
        let mut first_reason = Skip::Unrepresentable;
        let mut refused = 0;
        for (key, value) in fields {
            if let Err(reason) = self.column(key, value, room) {
                if refused == 0 {
                    first_reason = reason;
                }
                refused += 1;
                self.lost.add(reason, 1);
            }
        }
        if self.parts.is_empty() { Err(first_reason) } else { Ok(()) }
    }

    fn column(&mut self, key: &str, value: FieldValue<'_>, room: usize) -> Result<(), Skip> {
        self.parts.begin(key);
        let too_long = self.parts.open_bytes() > room;
        let written = if too_long {
            Err(Skip::TooLarge)
        } else {
            write_value(value, self.options, &mut self.parts.bytes)
        };
        match written {
            Ok(()) => self.parts.end(),
            Err(_) => self.parts.forget(),
        }
        written
    }
}

/// The only column of a point of that kind, if it has one that can be said; its key is plain.
pub(super) const fn column(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Counter => Some("count"),
        Kind::Gauge | Kind::Sample => Some("value"),
        Kind::Fields | Kind::Timer | Kind::Histogram | Kind::Distribution | Kind::Set => None,
    }
}

/// Writes tags that need neither an escape nor another order, as nearly all do; answers whether all
/// of them are such.
fn plain_tags(tags: Tags<'_>, out: &mut Vec<u8>) -> bool {
    let mut before = "";
    for (tag, pair) in tags.iter().zip(tags.pairs()) {
        let (key, value) = (tag.key, tag.value_or_true());
        let in_order = before < key && key != "time" && !value.is_empty();
        if !in_order || !escape::is_plain(key) || !escape::is_plain(value) {
            return false;
        }
        out.push(b',');
        match pair {
            Some(pair) => out.extend_from_slice(pair.as_bytes()),
            None => [key, "=", value].iter().for_each(|piece| out.extend(piece.as_bytes())),
        }
        before = key;
    }
    true
}

/// Pieces `key=value` in one buffer that is reused for every point.
#[derive(Debug, Default)]
struct Parts {
    bytes: Vec<u8>,
    /// The whole pieces.
    spans: Vec<PartSpan>,
    /// The key of the piece that is being written.
    open: PartSpan,
    /// Whether a key was changed, so that two may have become one.
    changed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct PartSpan {
    start: usize,
    key_end: usize,
    end: usize,
}

impl Parts {
    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.changed = false;
    }

    fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Starts a piece; its value follows in `bytes`, then `end` or `forget`.
    fn begin(&mut self, key: &str) {
        let start = self.bytes.len();
        self.changed |= escape::key(key, &mut self.bytes);
        self.open = PartSpan { start, key_end: self.bytes.len(), end: 0 };
        self.bytes.push(b'=');
    }

    /// The length of the key that was begun.
    fn open_bytes(&self) -> usize {
        self.open.key_end - self.open.start
    }

    fn end(&mut self) {
        self.spans.push(PartSpan { end: self.bytes.len(), ..self.open });
    }

    fn forget(&mut self) {
        self.bytes.truncate(self.open.start);
    }

    /// Orders the pieces by key and keeps the last of equal ones; answers how many are gone.
    fn sort_and_keep_last(&mut self) -> u64 {
        let Self { bytes, spans, .. } = self;
        let before = spans.len();
        spans.sort_unstable_by_key(|span| (span.key(bytes), Reverse(span.start)));
        spans.dedup_by_key(|span| span.key(bytes));
        (before - spans.len()) as u64
    }

    /// Keeps the last of pieces with equal keys, in the order in which they were written.
    fn keep_last(&mut self) -> u64 {
        if !self.changed {
            return 0;
        }
        let gone = self.sort_and_keep_last();
        self.spans.sort_unstable_by_key(|span| span.start);
        gone
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|span| self.bytes.get(span.start..span.end).unwrap_or(&[]))
    }
}

impl PartSpan {
    fn key(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start..self.key_end).unwrap_or(&[])
    }
}

pub(super) fn write_value(
    value: FieldValue<'_>,
    options: EncoderOptions,
    out: &mut Vec<u8>,
) -> Result<(), Skip> {
    match value {
        FieldValue::Number(number) if options.integers == Integers::Float => {
            write_float(number.as_f64(), out)
        }
        FieldValue::Number(Number::F64(value)) => write_float(value, out),
        FieldValue::Number(Number::I64(value)) => write_integer(value, out),
        FieldValue::Number(Number::U64(value)) => write_unsigned(value, options.unsigned, out),
        FieldValue::Bool(truth) => {
            out.extend_from_slice(if truth { b"true" } else { b"false" });
            Ok(())
        }
        FieldValue::Text(text) if text.len() > TEXT_BYTES_MAX => Err(Skip::TooLarge),
        FieldValue::Text(text) => {
            escape::text(text, out);
            Ok(())
        }
    }
}

/// The shortest digits that give the same double again; `1`, not `1.0`.
fn write_float(value: f64, out: &mut Vec<u8>) -> Result<(), Skip> {
    if !value.is_finite() {
        return Err(Skip::NotFinite);
    }
    if !write_short(out, value) {
        let mut buffer = ryu::Buffer::new();
        let digits = buffer.format_finite(value);
        out.extend_from_slice(digits.strip_suffix(".0").unwrap_or(digits).as_bytes());
    }
    Ok(())
}

#[allow(clippy::unnecessary_wraps)] // One of three arms that answer alike.
fn write_integer(value: i64, out: &mut Vec<u8>) -> Result<(), Skip> {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.push(b'i');
    Ok(())
}

/// As a signed integer wherever it fits, so that a column keeps one type as long as it can.
fn write_unsigned(value: u64, allowed: bool, out: &mut Vec<u8>) -> Result<(), Skip> {
    if let Ok(value) = i64::try_from(value) {
        return write_integer(value, out);
    }
    if !allowed {
        return Err(Skip::Unrepresentable);
    }
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.push(b'u');
    Ok(())
}

fn write_time(time: UnixNanos, out: &mut Vec<u8>) -> Result<(), Skip> {
    if !(TIME_MIN..=TIME_MAX).contains(&time.0) {
        return Err(Skip::Unrepresentable);
    }
    out.extend_from_slice(itoa::Buffer::new().format(time.0).as_bytes());
    Ok(())
}

fn float(value: f64) -> FieldValue<'static> {
    FieldValue::Number(Number::F64(value))
}

/// A server counts measurement, tags, four bytes of its own and a field key, and takes
/// 65,535 of them; one byte more refuses the whole line.
const SERIES_BYTES_MAX: usize = 65_535 - 4;

/// Servers of 2.x document 64 KB; those of 1.x take a MiB.
const TEXT_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, PointWriter};

    /// Encodes what `write` makes; the bytes without the newline, or the reason.
    fn line(options: EncoderOptions, write: impl Fn(&mut Batch)) -> (Result<String, Skip>, u64) {
        let mut batch = Batch::new();
        write(&mut batch);
        let mut encoder = Encoder::new(options);
        let mut out = b"before".to_vec();
        let result = encoder.encode(&batch.point(0).unwrap(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let text = text.strip_prefix("before").unwrap().to_owned();
        let lost = encoder.lost_parts().iter().map(|(_, count)| count).sum();
        match result {
            Ok(()) => {
                assert_eq!(encoder.lines(text.as_bytes()), text.matches('\n').count(), "{text}");
                (Ok(text.strip_suffix('\n').unwrap().to_owned()), lost)
            }
            Err(reason) => {
                assert_eq!(text, "", "a refused point leaves nothing");
                (Err(reason), lost)
            }
        }
    }

    fn measure(measure: Measure<'_>) -> Result<String, Skip> {
        line(EncoderOptions::default(), |batch| {
            batch.begin("m").finish(measure, Some(UnixNanos(10)), "");
        })
        .0
    }

    fn row(fields: &[(&str, FieldValue<'_>)]) -> (Result<String, Skip>, u64) {
        line(EncoderOptions::default(), |batch| fill(batch.begin("m"), fields))
    }

    fn fill(mut writer: PointWriter<'_>, fields: &[(&str, FieldValue<'_>)]) {
        for (key, value) in fields {
            writer.field(key, *value);
        }
        writer.finish_fields(Some(UnixNanos(10)));
    }

    fn tags(tags: &[(&str, Option<&str>)]) -> (Result<String, Skip>, u64) {
        line(EncoderOptions::default(), |batch| {
            let mut writer = batch.begin("m");
            for (key, value) in tags {
                writer.tag(key, *value);
            }
            writer.finish(Measure::Gauge(1.0), None, "");
        })
    }

    fn number(options: EncoderOptions, number: Number) -> Result<String, Skip> {
        line(options, |batch| batch.begin("m").finish(Measure::Reading(number), None, "")).0
    }

    #[test]
    fn each_measure_has_its_column_or_is_refused() {
        let cases = [
            (Measure::Reading(Number::I64(7)), Ok("m value=7 10")),
            (Measure::Reading(Number::F64(1.5)), Ok("m value=1.5 10")),
            (Measure::Gauge(-0.0), Ok("m value=-0 10")),
            (Measure::Count { delta: 3.0, rate: 0.1 }, Ok("m count=30 10")),
            (Measure::Count { delta: -2.0, rate: 1.0 }, Ok("m count=-2 10")),
            (Measure::Count { delta: 1e308, rate: 1e-9 }, Err(Skip::NotFinite)),
            (Measure::Gauge(f64::NAN), Err(Skip::NotFinite)),
            (Measure::Reading(Number::F64(f64::INFINITY)), Err(Skip::NotFinite)),
            (Measure::GaugeShift(1.0), Err(Skip::Unrepresentable)),
            (Measure::Timing { ms: 1.0, rate: 1.0 }, Err(Skip::Unrepresentable)),
            (Measure::Histogram { value: 1.0, rate: 1.0 }, Err(Skip::Unrepresentable)),
            (Measure::Distribution { value: 1.0, rate: 1.0 }, Err(Skip::Unrepresentable)),
            (Measure::Set("x"), Err(Skip::Unrepresentable)),
        ];
        for (input, expected) in cases {
            assert_eq!(measure(input), expected.map(str::to_owned), "{input:?}");
        }
    }

    #[test]
    fn every_escape_in_one_line() {
        let (written, lost) = line(EncoderOptions::default(), |batch| {
            let mut writer = batch.begin("a b,c=d");
            writer.tag("k 1,=", Some("v \"1\",="));
            writer.field("f", FieldValue::Text(r#"he said "x\y""#));
            writer.finish_fields(Some(UnixNanos(1_700_000_000_000_000_000)));
        });
        let expected = r#"a\ b\,c=d,k\ 1\,\==v\ "1"\,\= f="he said \"x\\y\"" 1700000000000000000"#;
        assert_eq!((written.unwrap().as_str(), lost), (expected, 0));
    }

    #[test]
    fn tags_are_sorted_and_never_empty() {
        let cases: &[(&[_], &str, u64)] = &[
            (&[], "m value=1", 0),
            (&[("b", Some("2")), ("a", Some("1")), ("B", Some("3"))], "m,B=3,a=1,b=2 value=1", 0),
            (&[("canary", None), ("empty", Some(""))], "m,canary=true value=1", 0),
            (&[("bZ", Some("1")), ("b x", Some("2"))], r"m,bZ=1,b\ x=2 value=1", 0),
            (&[("a\n", Some("1")), ("a_", Some("2"))], "m,a_=2 value=1", 1),
            (&[("a_", Some("1")), ("a\n", Some("2")), ("a\t", None)], "m,a_=true value=1", 2),
            (&[("time", Some("1")), ("_field", Some("2"))], "m,_field=2,time_=1 value=1", 0),
        ];
        for (input, expected, lost) in cases {
            assert_eq!(tags(input), (Ok((*expected).to_owned()), *lost), "{input:?}");
        }
    }

    #[test]
    fn columns_keep_their_order_and_the_last_of_equal_ones() {
        let one = |key| (key, FieldValue::Number(Number::I64(1)));
        let yes = |key| (key, FieldValue::Bool(true));
        let no = |key| (key, FieldValue::Bool(false));
        let cases: &[(&[_], &str, u64)] = &[
            (&[one("b"), yes("a")], "m b=1,a=true 10", 0),
            (&[one("a\n"), no("x"), yes("a\r")], "m x=false,a_=true 10", 1),
            (&[one("time_"), yes("time")], "m time_=true 10", 1),
            (&[("t", FieldValue::Text("a\nb"))], "m t=\"a b\" 10", 0),
        ];
        for (input, expected, lost) in cases {
            assert_eq!(row(input), (Ok((*expected).to_owned()), *lost), "{input:?}");
        }
    }

    #[test]
    fn a_column_that_cannot_be_said_is_left_out() {
        let float = |key, value| (key, float(value));
        let (nan, inf) = (float("b", f64::NAN), float("c", f64::INFINITY));
        assert_eq!(row(&[float("a", 1.5), nan, inf]), (Ok("m a=1.5 10".to_owned()), 2));
        assert_eq!(row(&[nan]), (Err(Skip::NotFinite), 0));
        assert_eq!(row(&[]), (Err(Skip::Unrepresentable), 0));

        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let text = |text| ("t", FieldValue::Text(text));
        assert_eq!(row(&[text(&long), nan]), (Err(Skip::TooLarge), 0));
        assert_eq!(row(&[text(&long), float("a", 1.0)]), (Ok("m a=1 10".to_owned()), 1));
        assert!(row(&[text(&long[1..])]).0.is_ok());
    }

    #[test]
    fn numbers_keep_their_type_only_when_asked() {
        let float = EncoderOptions::default();
        let keep = EncoderOptions { integers: Integers::Keep, unsigned: false };
        let unsigned = EncoderOptions { unsigned: true, ..keep };
        let big = Number::U64(u64::MAX);
        let cases = [
            (float, Number::I64(2_882_429_806_056_571_124), Ok("2.882429806056571e18")),
            (float, big, Ok("1.8446744073709552e19")),
            (float, Number::F64(1e16), Ok("1e16")),
            (float, Number::F64(5e-324), Ok("5e-324")),
            (float, Number::F64(f64::MAX), Ok("1.7976931348623157e308")),
            (float, Number::F64(0.1 + 0.2), Ok("0.30000000000000004")),
            (keep, Number::I64(2_882_429_806_056_571_124), Ok("2882429806056571124i")),
            (keep, Number::I64(9_007_199_254_740_993), Ok("9007199254740993i")),
            (keep, Number::I64(i64::MIN), Ok("-9223372036854775808i")),
            (keep, Number::F64(1.0), Ok("1")),
            (keep, Number::U64(7), Ok("7i")),
            (keep, big, Err(Skip::Unrepresentable)),
            (unsigned, big, Ok("18446744073709551615u")),
            (unsigned, Number::U64(7), Ok("7i")),
        ];
        for (options, input, expected) in cases {
            let expected = expected.map(|digits| format!("m value={digits}"));
            assert_eq!(number(options, input), expected, "{input:?}");
        }
    }

    #[test]
    fn a_series_is_refused_one_byte_beyond_the_limit() {
        // With the four bytes of the server's own and the key `value`.
        let name = "n".repeat(65_535 - 4 - "value".len() - ",a=b".len());
        let at = |name: &str| {
            line(EncoderOptions::default(), |batch| {
                let mut writer = batch.begin(name);
                writer.tag("a", Some("b"));
                writer.finish(Measure::Gauge(1.0), None, "");
            })
            .0
            .map(|line| line.len())
        };
        assert_eq!(at(&name), Ok(name.len() + ",a=b value=1".len()));
        assert_eq!(at(&format!("{name}n")), Err(Skip::TooLarge));
        assert_eq!(at(&"n".repeat(100_000)), Err(Skip::TooLarge));
        let key = "k".repeat(65_535);
        let one = FieldValue::Bool(true);
        assert_eq!(row(&[(&key, one), ("a", one)]), (Ok("m a=true 10".to_owned()), 1));
        assert_eq!(row(&[(&key, one)]), (Err(Skip::TooLarge), 0));
    }

    #[test]
    fn times_at_the_ends_of_the_range() {
        let cases = [
            (None, Ok("m value=1")),
            (Some(0), Ok("m value=1 0")),
            (Some(-1), Ok("m value=1 -1")),
            (Some(TIME_MAX), Ok("m value=1 9223372036854775806")),
            (Some(TIME_MIN), Ok("m value=1 -9223372036854775806")),
            (Some(i64::MAX), Err(Skip::Unrepresentable)),
            (Some(i64::MIN + 1), Err(Skip::Unrepresentable)),
        ];
        for (time, expected) in cases {
            let (written, _) = line(EncoderOptions::default(), |batch| {
                batch.begin("m").finish(Measure::Gauge(1.0), time.map(UnixNanos), "");
            });
            assert_eq!(written, expected.map(str::to_owned), "{time:?}");
        }
    }

    #[test]
    fn an_empty_name_is_refused() {
        let (written, _) = line(EncoderOptions::default(), |batch| {
            batch.begin("").finish(Measure::Gauge(1.0), None, "");
        });
        assert_eq!(written, Err(Skip::EmptyName));
    }

    /// An encoder that has seen bad points writes the next ones as a fresh one does.
    #[test]
    fn nothing_of_one_point_reaches_the_next() {
        let mut batch = Batch::new();
        fill(batch.begin("bad"), &[("a\n", float(1.0)), ("b", float(f64::NAN))]);
        fill(batch.begin("bad"), &[("b", float(f64::NAN))]);
        fill(batch.begin("good"), &[("x", float(1.0)), ("y", float(2.0))]);
        let mut encoder = Encoder::new(EncoderOptions::default());
        let mut out = Vec::new();
        let written: Vec<_> = batch.iter().map(|point| encoder.encode(&point, &mut out)).collect();
        assert_eq!(written, [Ok(()), Err(Skip::NotFinite), Ok(())]);
        assert_eq!(String::from_utf8(out).unwrap(), "bad a_=1 10\ngood x=1,y=2 10\n");
        assert_eq!(encoder.lost_parts(), [(Skip::NotFinite, 1)]);
        assert_eq!(encoder.lost_parts(), []);
    }
}
