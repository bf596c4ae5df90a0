//! Points as `put` lines, made fit for a stock OpenTSDB.
//!
//! | matter | here |
//! |---|---|
//! | characters other than letters, ASCII digits, `-`, `_`, `.`, `/` | `_`, in names and tags |
//! | bare tags | `=true` |
//! | no tags | the default tag, if there is one |
//! | more tags than the server takes, two that become one | the first are kept, the rest are lost parts |
//! | time | seconds, or 13 digits of milliseconds where there is a fraction |
//! | no time | what [`Encoder::set_now`] was told last |
//! | integers above `i64::MAX` | the nearest double |
//! | several columns | a line for each number, `name.column`, and just `name` for `value`; truth values are 1 and 0; text is a lost part |
//! | counters, timers, sets, gauge shifts | unrepresentable: they have to be aggregated first |
//! | lines of 1024 bytes and more | too large: OpenTSDB would close the connection |

use crate::encode::{Encode, LostParts};
use crate::error::Skip;
use crate::point::{FieldValue, Measure, Number, Point, Tags, UnixNanos};

/// Writes `put` lines; see the table of its module.
#[derive(Clone, Debug)]
pub struct Encoder {
    now: UnixNanos,
    default_tag: Option<(String, String)>,
    tags_max: usize,
    lost: LostParts,
    /// The tags of the present point, each with a blank before it; kept for its memory.
    tags: String,
}

impl Encoder {
    /// OpenTSDB's own limit of tags, `tsd.storage.max_tags`.
    pub const TAGS_MAX: usize = 8;

    /// For points that have tags of their own, or servers that need none.
    pub fn new() -> Self {
        Self::default()
    }

    /// A tag for points without any, which a stock server refuses.
    #[must_use]
    pub fn with_default_tag(mut self, key: &str, value: &str) -> Self {
        self.default_tag = Some((key.to_owned(), value.to_owned()));
        self
    }

    /// For servers with another limit.
    #[must_use]
    pub fn with_tags_max(mut self, tags_max: usize) -> Self {
        self.tags_max = tags_max;
        self
    }

    /// The time of points that have none of their own, until it is set anew.
    pub fn set_now(&mut self, now: UnixNanos) {
        self.now = now;
    }

    fn gather_tags(&mut self, tags: Tags<'_>) {
        self.tags.clear();
        let mut keys = Vec::with_capacity(tags.len().min(self.tags_max));
        for tag in tags.iter() {
            let key = fit(tag.key);
            if keys.len() >= self.tags_max || keys.contains(&key) {
                self.lost.add(Skip::Unrepresentable, 1);
                continue;
            }
            self.tags.extend([" ", &key, "=", &fit(tag.value_or_true())]);
            keys.push(key);
        }
        if let (true, Some((key, value))) = (keys.is_empty(), &self.default_tag) {
            self.tags.extend([" ", &fit(key), "=", &fit(value)]);
        }
    }

    fn line(
        &self,
        name: [&str; 2],
        time: UnixNanos,
        value: Number,
        out: &mut Vec<u8>,
    ) -> Result<(), Skip> {
        let start = out.len();
        let wrote = self.write_line(name, time, value, out);
        let wrote = wrote.and_then(|()| {
            if out.len() - start > LINE_BYTES_MAX { Err(Skip::TooLarge) } else { Ok(()) }
        });
        if wrote.is_err() {
            out.truncate(start);
        }
        wrote
    }

    fn write_line(
        &self,
        [name, column]: [&str; 2],
        time: UnixNanos,
        value: Number,
        out: &mut Vec<u8>,
    ) -> Result<(), Skip> {
        if name.is_empty() {
            return Err(Skip::EmptyName);
        }
        out.extend_from_slice(b"put ");
        write_fit(name, out);
        if !column.is_empty() {
            out.push(b'.');
            write_fit(column, out);
        }
        out.push(b' ');
        write_time(time, out)?;
        out.push(b' ');
        write_number(value, out)?;
        out.extend_from_slice(self.tags.as_bytes());
        out.push(b'\n');
        Ok(())
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            now: UnixNanos::default(),
            default_tag: None,
            tags_max: Self::TAGS_MAX,
            lost: LostParts::default(),
            tags: String::new(),
        }
    }
}

impl Encode for Encoder {
    fn encode(&mut self, point: &Point<'_>, out: &mut Vec<u8>) -> Result<(), Skip> {
        let time = point.time.unwrap_or(self.now);
        match point.measure {
            Measure::Reading(value) => self.single(point, time, value, out),
            Measure::Gauge(value) => self.single(point, time, Number::F64(value), out),
            Measure::Fields(_) => self.columns(point, time, out),
            _ => Err(Skip::Unrepresentable),
        }
    }

    fn name(&self, name: &str, out: &mut Vec<u8>) -> bool {
        write_fit(name, out);
        name.chars().any(|c| fit_char(c) != c)
    }

    fn lost_parts(&mut self) -> Vec<(Skip, u64)> {
        self.lost.take()
    }
}

impl Encoder {
    fn single(
        &mut self,
        point: &Point<'_>,
        time: UnixNanos,
        value: Number,
        out: &mut Vec<u8>,
    ) -> Result<(), Skip> {
        let lost = self.lost;
        self.gather_tags(point.tags);
        // A point that is skipped as a whole has no lost parts.
        self.line([point.name, ""], time, value, out).inspect_err(|_| self.lost = lost)
    }

    /// Writes what can be written; without any line the point is skipped as a whole.
    fn columns(
        &mut self,
        point: &Point<'_>,
        time: UnixNanos,
        out: &mut Vec<u8>,
    ) -> Result<(), Skip> {
        let Measure::Fields(fields) = point.measure else { return Err(Skip::Unrepresentable) };
        let before = self.lost;
        let start = out.len();
        let mut first_skip = None;
        self.gather_tags(point.tags);
        for (key, value) in fields.iter() {
            let column = if key == "value" { "" } else { key };
            let written = match value {
                FieldValue::Number(number) => self.line([point.name, column], time, number, out),
                FieldValue::Bool(truth) => {
                    self.line([point.name, column], time, Number::I64(i64::from(truth)), out)
                }
                FieldValue::Text(_) => Err(Skip::Unrepresentable),
            };
            if let Err(skip) = written {
                self.lost.add(skip, 1);
                first_skip.get_or_insert(skip);
            }
        }
        if out.len() > start {
            return Ok(());
        }
        self.lost = before;
        Err(first_skip.unwrap_or(Skip::Unrepresentable))
    }
}

fn fit(text: &str) -> String {
    text.chars().map(fit_char).collect()
}

fn write_fit(text: &str, out: &mut Vec<u8>) {
    for c in text.chars() {
        out.extend_from_slice(fit_char(c).encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// The standard library's letters are Java's, and some combining marks.
fn fit_char(c: char) -> char {
    let fits = c.is_alphabetic() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.' | '/');
    if fits { c } else { '_' }
}

/// OpenTSDB takes a timestamp for milliseconds if it does not fit in 32 bits, so the fraction
/// of a second is only written where the milliseconds do not. Leading zeros make it 13 digits
/// for readers that count them.
fn write_time(time: UnixNanos, out: &mut Vec<u8>) -> Result<(), Skip> {
    let millis = time.millis();
    if millis < 1000 {
        return Err(Skip::Unrepresentable);
    }
    if millis % 1000 == 0 || millis <= i64::from(u32::MAX) {
        out.extend_from_slice(itoa::Buffer::new().format(time.secs()).as_bytes());
        return Ok(());
    }
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(millis).as_bytes();
    out.extend(std::iter::repeat_n(b'0', MILLIS_DIGITS.saturating_sub(digits.len())));
    out.extend_from_slice(digits);
    Ok(())
}

fn write_number(value: Number, out: &mut Vec<u8>) -> Result<(), Skip> {
    match value {
        Number::I64(n) => out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes()),
        _ => {
            let value = value.as_f64();
            if !value.is_finite() {
                return Err(Skip::NotFinite);
            }
            out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes());
        }
    }
    Ok(())
}

/// The longest line with its LF: OpenTSDB closes the connection when more than 1024 bytes wait
/// for one, and collectors drop lines that have 1024.
const LINE_BYTES_MAX: usize = 1023;

const MILLIS_DIGITS: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;

    const T: UnixNanos = UnixNanos(1_700_000_000_000_000_000);

    fn batch(name: &str, tags: &[(&str, Option<&str>)], time: Option<UnixNanos>) -> Batch {
        let mut batch = Batch::new();
        let mut writer = batch.begin(name);
        for (key, value) in tags {
            writer.tag(key, *value);
        }
        writer.finish(Measure::Reading(Number::I64(1)), time, "");
        drop(writer);
        batch
    }

    fn encoded(encoder: &mut Encoder, batch: &Batch) -> Result<String, Skip> {
        let mut out = b"before\n".to_vec();
        let result = encoder.encode(&batch.point(0).unwrap(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let text = text.strip_prefix("before\n").unwrap().to_owned();
        if result.is_err() {
            assert_eq!(text, "");
        }
        result.map(|()| text)
    }

    #[test]
    fn names_and_tags_are_made_fit() {
        let tags = [("k 1", Some("v\nput evil 1 1")), ("bare", None), ("ü", Some("a=b"))];
        let batch = batch("my service/ok\r\n", &tags, Some(T));
        let line = "put my_service/ok__ 1700000000 1 k_1=v_put_evil_1_1 bare=true ü=a_b\n";
        assert_eq!(encoded(&mut Encoder::new(), &batch), Ok(line.to_owned()));
    }

    #[test]
    fn tags_fit_the_server() {
        let plain = batch("m", &[], Some(T));
        let line = |tags: &str| Ok(format!("put m 1700000000 1{tags}\n"));
        assert_eq!(encoded(&mut Encoder::new(), &plain), line(""));
        let mut encoder = Encoder::new().with_default_tag("host", "a b").with_tags_max(2);
        assert_eq!(encoded(&mut encoder, &plain), line(" host=a_b"));
        assert_eq!(encoder.lost_parts(), []);
        let many = batch("m", &[("a ", Some("1")), ("a!", Some("2")), ("b", Some("3"))], Some(T));
        assert_eq!(encoded(&mut encoder, &many), line(" a_=1 b=3"));
        let many = batch("m", &[("a", None), ("b", None), ("c", None)], Some(T));
        assert_eq!(encoded(&mut encoder, &many), line(" a=true b=true"));
        assert_eq!(encoder.lost_parts(), [(Skip::Unrepresentable, 2)]);
        assert_eq!(encoder.lost_parts(), []);
    }

    #[test]
    fn times() {
        let check = |nanos: i64, expected: Result<&str, Skip>| {
            let batch = batch("m", &[], Some(UnixNanos(nanos)));
            let expected = expected.map(|time| format!("put m {time} 1\n"));
            assert_eq!(encoded(&mut Encoder::new(), &batch), expected, "{nanos}");
        };
        check(1_559_746_555_000_999_999, Ok("1559746555"));
        check(1_559_746_555_444_000_001, Ok("1559746555444"));
        check(999_999_999_500_000_000, Ok("0999999999500"));
        check(4_000_000_500_000_000, Ok("4000000"));
        check(i64::MAX, Ok("9223372036854"));
        check(1_000_000_000, Ok("1"));
        check(999_999_999, Err(Skip::Unrepresentable));
        check(-1, Err(Skip::Unrepresentable));
        let mut encoder = Encoder::new();
        encoder.set_now(T);
        let line = "put m 1700000000 1\n".to_owned();
        assert_eq!(encoded(&mut encoder, &batch("m", &[], None)), Ok(line));
    }

    #[test]
    fn measures() {
        let check = |measure: Measure<'_>, expected: Result<&str, Skip>| {
            let mut batch = Batch::new();
            batch.begin("m").finish(measure, Some(T), "");
            let expected = expected.map(|value| format!("put m 1700000000 {value}\n"));
            assert_eq!(encoded(&mut Encoder::new(), &batch), expected, "{measure:?}");
        };
        check(Measure::Reading(Number::I64(i64::MIN)), Ok("-9223372036854775808"));
        check(Measure::Reading(Number::U64(u64::MAX)), Ok("1.8446744073709552e19"));
        check(Measure::Reading(Number::F64(1.0)), Ok("1.0"));
        check(Measure::Reading(Number::F64(-0.0)), Ok("-0.0"));
        check(Measure::Gauge(0.1), Ok("0.1"));
        check(Measure::Reading(Number::F64(f64::NAN)), Err(Skip::NotFinite));
        check(Measure::Gauge(f64::INFINITY), Err(Skip::NotFinite));
        check(Measure::GaugeShift(1.0), Err(Skip::Unrepresentable));
        check(Measure::Count { delta: 1.0, rate: 1.0 }, Err(Skip::Unrepresentable));
        check(Measure::Set("x"), Err(Skip::Unrepresentable));
    }

    #[test]
    fn columns_become_lines() {
        let mut batch = Batch::new();
        let mut writer = batch.begin("row");
        writer.tag("h", Some("x"));
        writer.field("value", FieldValue::Number(Number::F64(0.5)));
        writer.field("a b", FieldValue::Number(Number::I64(7)));
        writer.field("ok", FieldValue::Bool(true));
        writer.field("text", FieldValue::Text("lost"));
        writer.field("nan", FieldValue::Number(Number::F64(f64::NAN)));
        writer.finish_fields(Some(T));
        drop(writer);
        let mut encoder = Encoder::new();
        let lines = "put row 1700000000 0.5 h=x\nput row.a_b 1700000000 7 h=x\n\
                     put row.ok 1700000000 1 h=x\n";
        assert_eq!(encoded(&mut encoder, &batch), Ok(lines.to_owned()));
        assert_eq!(encoder.lost_parts(), [(Skip::NotFinite, 1), (Skip::Unrepresentable, 1)]);
    }

    #[test]
    fn a_point_that_is_skipped_has_no_lost_parts() {
        let mut batch = Batch::new();
        let mut writer = batch.begin("row");
        writer.tag("a ", Some("1"));
        writer.tag("a!", Some("1"));
        writer.field("text", FieldValue::Text("lost"));
        writer.finish_fields(Some(T));
        drop(writer);
        let mut encoder = Encoder::new();
        assert_eq!(encoded(&mut encoder, &batch), Err(Skip::Unrepresentable));
        assert_eq!(encoder.lost_parts(), []);
    }

    #[test]
    fn lines_that_would_close_the_connection_are_not_sent() {
        let fixed = "put  1700000000 1\n".len();
        let fits = "n".repeat(LINE_BYTES_MAX - fixed);
        assert!(encoded(&mut Encoder::new(), &batch(&fits, &[], Some(T))).is_ok());
        let long = batch(&format!("{fits}n"), &[], Some(T));
        assert_eq!(encoded(&mut Encoder::new(), &long), Err(Skip::TooLarge));
        assert_eq!(encoded(&mut Encoder::new(), &batch("", &[], Some(T))), Err(Skip::EmptyName));
    }
}
