//! The `put` line: `put metric timestamp value [tag=value …]`.

use crate::batch::{Batch, PointWriter, Replaced};
use crate::decimal::{is_decimal, parse_number, unsigned};
use crate::error::ParseError;
use crate::name::check_length;
use crate::point::Measure;
use crate::scan;
use crate::timestamp::{self, TimeRange};
use crate::token::has_control;

/// What a listener takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOptions {
    /// Refuse puts without tags, as OpenTSDB does.
    pub strict: bool,
    /// The most tags of a point.
    pub tags: usize,
    /// The times that points may have.
    pub times: TimeRange,
}

impl Default for PutOptions {
    fn default() -> Self {
        Self { strict: false, tags: 64, times: TimeRange::ALL }
    }
}

/// Why a put was refused, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutError<'a> {
    /// What to count.
    pub reason: ParseError,
    /// The word at fault, or the whole line when no single one is. Any bytes may be in it.
    pub at: &'a [u8],
}

impl PutError<'_> {
    /// Whether a number could not be read, which OpenTSDB tells apart from a number, or
    /// anything else, that was read and is not allowed.
    pub(super) fn is_unreadable_number(&self) -> bool {
        let at = str::from_utf8(self.at).unwrap_or("");
        match self.reason {
            ParseError::InvalidValue => !is_decimal(at) && !NOT_FINITE.contains(&unsigned(at)),
            ParseError::InvalidTimestamp => !is_decimal(at),
            _ => false,
        }
    }
}

/// Reads a put line, with or without what ended it, into `out`.
///
/// # Errors
///
/// Why it was refused; `out` is then as it was.
pub fn parse_put<'a>(
    line: &'a [u8],
    options: &PutOptions,
    out: &mut Batch,
) -> Result<(), PutError<'a>> {
    let fail = |reason| move |at: &'a str| PutError { reason, at: at.as_bytes() };
    let text = str::from_utf8(line).map_err(|error| PutError {
        reason: ParseError::InvalidUtf8,
        at: word_at(line, error.valid_up_to()),
    })?;
    let text = without_end(text);
    let mut words = Words(text);
    if words.next() != Some("put") {
        return Err(fail(ParseError::UnknownCommand)(text));
    }
    let (Some(metric), Some(time), Some(value)) = (words.next(), words.next(), words.next()) else {
        return Err(fail(ParseError::TooFewWords)(text));
    };
    // One look at the line spares nearly every line a look at each of its words.
    let odd = scan::any(text.as_bytes(), |byte| ((byte < b' ') & (byte != b'\t')) | (byte >= 0x7f));
    check_metric(metric, odd).map_err(|reason| fail(reason)(metric))?;
    let time_read = timestamp::put(time).map_err(|reason| fail(reason)(time))?;
    options.times.check(Some(time_read)).map_err(|reason| fail(reason)(time))?;
    let value = parse_number(value).ok_or(value).map_err(fail(ParseError::InvalidValue))?;
    let mut writer = out.begin(metric);
    for tag in words {
        put_tag(&mut writer, tag, odd, options).map_err(|reason| fail(reason)(tag))?;
    }
    if options.strict && writer.tag_count() == 0 {
        return Err(fail(ParseError::MissingTags)(text));
    }
    writer.finish(Measure::Reading(value), Some(time_read), "");
    Ok(())
}

/// What stands between blanks and tabs.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        loop {
            let end = scan::find(self.0.as_bytes(), scan::blank).unwrap_or(self.0.len());
            let (word, rest) = self.0.split_at_checked(end)?;
            self.0 = rest.get(1..).unwrap_or("");
            if !word.is_empty() {
                return Some(word);
            }
            if rest.is_empty() {
                return None;
            }
        }
    }
}

/// `odd`: there may be control characters.
fn check_metric(metric: &str, odd: bool) -> Result<(), ParseError> {
    check_length(metric)?;
    if odd && has_control(metric) {
        return Err(ParseError::ControlCharacter);
    }
    Ok(())
}

fn put_tag(
    writer: &mut PointWriter<'_>,
    tag: &str,
    odd: bool,
    options: &PutOptions,
) -> Result<(), ParseError> {
    let equals = |text: &str| scan::find(text.as_bytes(), |eight| scan::equal(eight, b'='));
    let at = equals(tag).ok_or(ParseError::InvalidTag)?;
    let value = tag.get(at + 1..).unwrap_or("");
    if at == 0 || value.is_empty() || equals(value).is_some() {
        return Err(ParseError::InvalidTag);
    }
    if odd && has_control(tag) {
        return Err(ParseError::ControlCharacter);
    }
    judge(writer.tag_pair(tag, at), writer, options)
}

/// Adds a tag whose two sides are known to be sound.
pub(super) fn add_tag(
    writer: &mut PointWriter<'_>,
    key: &str,
    value: &str,
    options: &PutOptions,
) -> Result<(), ParseError> {
    judge(writer.tag(key, Some(value)), writer, options)
}

/// What is wrong with the tag that has just been added.
fn judge(
    replaced: Option<Replaced>,
    writer: &PointWriter<'_>,
    options: &PutOptions,
) -> Result<(), ParseError> {
    match replaced {
        Some(Replaced::OtherValue) => Err(ParseError::DuplicateTag),
        _ if writer.tag_count() > options.tags => Err(ParseError::TooManyTags),
        _ => Ok(()),
    }
}

fn without_end(line: &str) -> &str {
    let is_end = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let ends = line.as_bytes().iter().rev().take_while(|byte| is_end(byte)).count();
    line.get(..line.len() - ends).unwrap_or(line)
}

/// The word around a place in a line.
fn word_at(line: &[u8], place: usize) -> &[u8] {
    let (before, after) = line.split_at_checked(place).unwrap_or((line, &[]));
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = before.iter().rposition(is_blank).map_or(0, |blank| blank + 1);
    let end = after.iter().position(is_blank).map_or(line.len(), |blank| place + blank);
    line.get(start..end).unwrap_or(line)
}

/// Java's words for the doubles that OpenTSDB reads and then refuses.
const NOT_FINITE: [&str; 2] = ["NaN", "Infinity"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::{Number, Point, Tag, UnixNanos};

    fn filled() -> Batch {
        let mut batch = Batch::new();
        batch.begin("first").finish(Measure::Gauge(1.0), None, "");
        batch
    }

    /// Reads the line twice, the second time behind its own point.
    fn accepts(line: &str, name: &str, nanos: i64, value: Number, tags: &[(&str, &str)]) {
        let mut batch = filled();
        for _ in 0..2 {
            parse_put(line.as_bytes(), &PutOptions::default(), &mut batch).unwrap();
            let Point { name: got, tags: got_tags, measure, time, rest } =
                batch.point(batch.len() - 1).unwrap();
            assert_eq!((got, time, rest), (name, Some(UnixNanos(nanos)), ""), "{line:?}");
            assert_eq!(measure, Measure::Reading(value), "{line:?}");
            let tags = tags.iter().map(|(key, value)| Tag { key, value: Some(value) });
            assert!(got_tags.iter().eq(tags), "{line:?}: {got_tags:?}");
        }
    }

    fn refuses(line: impl AsRef<[u8]>, options: PutOptions, reason: ParseError, at: &str) {
        let line = line.as_ref();
        let mut batch = filled();
        let bytes = batch.bytes();
        let error = parse_put(line, &options, &mut batch).unwrap_err();
        let got = String::from_utf8_lossy(error.at);
        assert_eq!((error.reason, &*got), (reason, at), "{:?}", String::from_utf8_lossy(line));
        assert_eq!((batch.len(), batch.bytes()), (1, bytes), "{line:?}");
    }

    #[test]
    fn puts() {
        const T: i64 = 1_700_000_000_000_000_000;
        accepts("put a.b 1700000000 1", "a.b", T, Number::I64(1), &[]);
        accepts("put a.b 1700000000 1 ", "a.b", T, Number::I64(1), &[]);
        let tags = [("h", "x"), ("r", "eu")];
        let line = "put  c.d\t1700000000   -1.5e2   h=x   r=eu \r\n";
        accepts(line, "c.d", T, Number::F64(-150.0), &tags);
        let line = "put tc.lines 1700000000 5  host=x\n";
        accepts(line, "tc.lines", T, Number::I64(5), &[("host", "x")]);
        accepts("put m 1700000000 42 foo=bar foo=bar", "m", T, Number::I64(42), &[("foo", "bar")]);
        accepts(
            "\t put é/ü:x 1700000000 +1.0 ß=日本",
            "é/ü:x",
            T,
            Number::F64(1.0),
            &[("ß", "日本")],
        );
        let line = "put id 1700000000 18446744073709551615 a=b";
        accepts(line, "id", T, Number::U64(u64::MAX), &[("a", "b")]);
        let line = "put id 1700000000 9007199254740993 a=b";
        accepts(line, "id", T, Number::I64(9_007_199_254_740_993), &[("a", "b")]);
    }

    #[test]
    fn seconds_and_milliseconds() {
        for (time, nanos) in [
            ("1559746555444", 1_559_746_555_444_000_000),
            ("1559746555", 1_559_746_555_000_000_000),
            ("1559746555.444", 1_559_746_555_444_000_000),
        ] {
            let line = format!("put t {time} 7 s=t");
            accepts(&line, "t", nanos, Number::I64(7), &[("s", "t")]);
        }
        for time in [
            "0",
            "-5",
            "10000000000",
            "99999999999999",
            "1700000000..5",
            "1700000000.",
            "abc",
            "1e9",
        ] {
            let line = format!("put t {time} 7 s=t");
            refuses(&line, PutOptions::default(), ParseError::InvalidTimestamp, time);
        }
        let line = "put t 9999999999 7 s=t";
        refuses(line, PutOptions::default(), ParseError::TimestampOutOfRange, "9999999999");
    }

    #[test]
    fn refused_puts() {
        let any = PutOptions::default();
        refuses("put", any, ParseError::TooFewWords, "put");
        refuses("put m 1700000000\r\n", any, ParseError::TooFewWords, "put m 1700000000");
        refuses("get m 1700000000 1", any, ParseError::UnknownCommand, "get m 1700000000 1");
        for (tags, reason, at) in [
            ("foo=bar foo=qux", ParseError::DuplicateTag, "foo=qux"),
            ("foo=", ParseError::InvalidTag, "foo="),
            ("=v", ParseError::InvalidTag, "=v"),
            ("=", ParseError::InvalidTag, "="),
            ("foo", ParseError::InvalidTag, "foo"),
            ("a=b=c", ParseError::InvalidTag, "a=b=c"),
            ("a=b\u{1}", ParseError::ControlCharacter, "a=b\u{1}"),
            ("a=b\rc", ParseError::ControlCharacter, "a=b\rc"),
        ] {
            refuses(format!("put m 1700000000 43 {tags}\n"), any, reason, at);
        }
        for value in ["zz", "NaN", "Infinity", "-inf", "0x10", "1_000", "1e400", "1,5", "١"] {
            let line = format!("put m 1700000000 {value} h=x");
            refuses(line, any, ParseError::InvalidValue, value);
        }
        refuses("put a\u{7f}b 1 1 h=x", any, ParseError::ControlCharacter, "a\u{7f}b");
        refuses(b"put m\xffn 1 1 h=x", any, ParseError::InvalidUtf8, "m\u{fffd}n");
        let long = "n".repeat(1025);
        refuses(format!("put {long} 1 1"), any, ParseError::NameTooLong, &long);
    }

    #[test]
    fn limits_of_the_listener() {
        let strict = PutOptions { strict: true, tags: 2, ..PutOptions::default() };
        refuses("put m 1 1 \n", strict, ParseError::MissingTags, "put m 1 1");
        refuses("put m 1 1 a=1 b=2 c=3", strict, ParseError::TooManyTags, "c=3");
        parse_put(b"put m 1 1 a=1 b=2 a=1", &strict, &mut Batch::new()).unwrap();
    }
}
