//! One line of line protocol to a point.
//!
//! Every line becomes [`Measure::Fields`](crate::Measure::Fields), for the protocol knows no
//! other measure: what a database sent on is the same row again. Whole numbers keep their
//! 64 bits. Where servers differ the stricter one is followed, since a client cannot know
//! which one a route leads to: a tag or a field that stands twice is refused, although 1.x
//! takes the last of equal fields.

use super::lines::{closing_quote, is_escaped};
use super::{Precision, TIME_MAX, TIME_MIN};
use crate::decimal::{are_digits, parse_finite};
use crate::name::check_length;
use crate::timestamp::TimeRange;
use crate::token::{has_control, split_once};
use crate::{Batch, FieldValue, Number, ParseError, PointWriter, UnixNanos};

/// What a listener takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// The unit of the times.
    pub precision: Precision,
    /// The longest line.
    pub line_bytes: usize,
    /// The most tags of a point.
    pub tags: usize,
    /// The most fields of a point.
    pub fields: usize,
    /// The times that points may have.
    pub times: TimeRange,
}

impl Default for ReadOptions {
    /// As every listener, and as many fields as in JSON.
    fn default() -> Self {
        let precision = Precision::Nanoseconds;
        Self { precision, line_bytes: 64 << 10, tags: 64, fields: 1024, times: TimeRange::ALL }
    }
}

/// Appends the point that `line`, without its newline, describes.
///
/// # Errors
///
/// The first thing that is wrong with the line; `out` is then unchanged.
pub fn parse_line(line: &[u8], options: &ReadOptions, out: &mut Batch) -> Result<(), ParseError> {
    Reader::new(options).line(line, out)
}

/// Reads line after line of one body, and keeps its memory between them.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    options: &'a ReadOptions,
    /// The field keys of the present line, as sent.
    keys: Vec<&'a str>,
    /// A key or a name, and a value, without their escapes. Untouched where there are none.
    key: String,
    value: String,
}

impl<'a> Reader<'a> {
    pub(super) fn new(options: &'a ReadOptions) -> Self {
        Self { options, keys: Vec::new(), key: String::new(), value: String::new() }
    }

    /// As [`parse_line`].
    pub(super) fn line(&mut self, line: &'a [u8], out: &mut Batch) -> Result<(), ParseError> {
        if line.len() > self.options.line_bytes {
            return Err(ParseError::LineTooLong);
        }
        let line = str::from_utf8(line).map_err(|_| ParseError::InvalidUtf8)?;
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (name, rest) = cut(line, NAME_ENDS);
        if name.starts_with('#') {
            return Err(ParseError::EmptyName);
        }
        let name = unescaped(name, NAME_ENDS, &mut self.key);
        check_length(name)?;
        check_control(name)?;
        let mut writer = out.begin(name);
        let rest = self.tags(rest, &mut writer)?;
        let rest = self.columns(rest.trim_start_matches(' '), &mut writer)?;
        writer.finish_fields(self.time(rest.trim_matches(BLANK))?);
        Ok(())
    }

    /// Reads `,key=value` as often as it stands there; what follows is the rest.
    fn tags(
        &mut self,
        mut rest: &'a str,
        writer: &mut PointWriter<'_>,
    ) -> Result<&'a str, ParseError> {
        while let Some(tag) = rest.strip_prefix(',') {
            let (key, after) = cut(tag, KEY_ENDS);
            let value = after.strip_prefix('=').ok_or(ParseError::InvalidTag)?;
            let (value, after) = cut(value, KEY_ENDS);
            if key.is_empty() || value.is_empty() || after.starts_with('=') {
                return Err(ParseError::InvalidTag);
            }
            self.tag(key, value, writer)?;
            rest = after;
        }
        Ok(rest)
    }

    fn tag(
        &mut self,
        key: &'a str,
        value: &'a str,
        writer: &mut PointWriter<'_>,
    ) -> Result<(), ParseError> {
        check_control(key)?;
        check_control(value)?;
        let key = unescaped(key, KEY_ENDS, &mut self.key);
        let value = unescaped(value, KEY_ENDS, &mut self.value);
        if writer.tag(key, Some(value)).is_some() {
            return Err(ParseError::DuplicateTag);
        }
        if writer.tag_count() > self.options.tags {
            return Err(ParseError::TooManyTags);
        }
        Ok(())
    }

    /// Reads `key=value` and then `,key=value` as often as it stands there; what follows is
    /// the rest.
    fn columns(
        &mut self,
        mut rest: &'a str,
        writer: &mut PointWriter<'_>,
    ) -> Result<&'a str, ParseError> {
        if rest.is_empty() {
            return Err(ParseError::NoFields);
        }
        self.keys.clear();
        loop {
            rest = self.column(rest, writer)?;
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None if stand_twice(&mut self.keys) => return Err(ParseError::DuplicateField),
                None => return Ok(rest),
            }
        }
    }

    fn column(
        &mut self,
        text: &'a str,
        writer: &mut PointWriter<'_>,
    ) -> Result<&'a str, ParseError> {
        let (key, after) = cut(text, KEY_ENDS);
        let value = after.strip_prefix('=').ok_or(ParseError::NotAField)?;
        if key.is_empty() {
            return Err(ParseError::NotAField);
        }
        check_control(key)?;
        if self.keys.len() >= self.options.fields {
            return Err(ParseError::TooManyFields);
        }
        self.keys.push(key);
        let key = unescaped(key, KEY_ENDS, &mut self.key);
        let (value, rest) = value_of(value, &mut self.value)?;
        // Whether the key is new is seen once all are there.
        writer.append_field(key, value);
        Ok(rest)
    }

    fn time(&self, text: &str) -> Result<Option<UnixNanos>, ParseError> {
        if text.is_empty() {
            return Ok(None);
        }
        if !are_digits(text.strip_prefix('-').unwrap_or(text)) {
            return Err(ParseError::InvalidTimestamp);
        }
        let ticks: Option<i64> = text.parse().ok();
        let nanos = ticks.and_then(|ticks| ticks.checked_mul(self.options.precision.nanos()));
        let nanos = nanos.filter(|nanos| (TIME_MIN..=TIME_MAX).contains(nanos));
        let time = Some(UnixNanos(nanos.ok_or(ParseError::TimestampOutOfRange)?));
        self.options.times.check(time)?;
        Ok(time)
    }
}

/// Reads one value; what follows, a comma or a blank if anything, is the rest.
fn value_of<'a: 's, 's>(
    text: &'a str,
    scratch: &'s mut String,
) -> Result<(FieldValue<'s>, &'a str), ParseError> {
    if let Some(quoted) = text.strip_prefix('"') {
        let end = closing_quote(quoted.as_bytes(), 0).ok_or(ParseError::UnbalancedQuotes)?;
        let (quoted, rest) = split(quoted, end);
        let rest = rest.strip_prefix('"').unwrap_or(rest);
        if !matches!(rest.as_bytes(), [] | [b',' | b' ', ..]) {
            return Err(ParseError::UnbalancedQuotes);
        }
        return Ok((FieldValue::Text(unescaped(quoted, TEXT_SPECIAL, scratch)), rest));
    }
    let end = memchr::memchr2(b',', b' ', text.as_bytes()).unwrap_or(text.len());
    let (value, rest) = split(text, end);
    if value.is_empty() {
        return Err(ParseError::MissingValue);
    }
    Ok((scalar(value).ok_or(ParseError::InvalidField)?, rest))
}

fn scalar(text: &str) -> Option<FieldValue<'static>> {
    match text {
        "t" | "T" | "true" | "True" | "TRUE" => Some(FieldValue::Bool(true)),
        "f" | "F" | "false" | "False" | "FALSE" => Some(FieldValue::Bool(false)),
        _ => number(text).map(FieldValue::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    if text.starts_with('+') {
        return None;
    }
    if let Some(digits) = text.strip_suffix('i') {
        return digits.parse().ok().map(Number::I64);
    }
    if let Some(digits) = text.strip_suffix('u') {
        let value: u64 = digits.parse().ok()?;
        return Some(i64::try_from(value).map_or(Number::U64(value), Number::I64));
    }
    parse_finite(text).map(Number::F64)
}

/// Whether two keys are equal. Senders like to sort them, and then one look is enough;
/// otherwise they are sorted here, since a search for each would cost their square.
fn stand_twice(keys: &mut [&str]) -> bool {
    if keys.is_sorted_by(|one, next| one < next) {
        return false;
    }
    keys.sort_unstable();
    !keys.is_sorted_by(|one, next| one < next)
}

fn check_control(text: &str) -> Result<(), ParseError> {
    if has_control(text) { Err(ParseError::ControlCharacter) } else { Ok(()) }
}

/// Cuts before the first of `ends` that no backslash escapes.
fn cut(text: &str, ends: [u8; 3]) -> (&str, &str) {
    let [one, two, three] = ends;
    let bytes = text.as_bytes();
    let mut found = memchr::memchr3_iter(one, two, three, bytes);
    split(text, found.find(|at| !is_escaped(bytes, *at)).unwrap_or(text.len()))
}

/// Cuts before an ASCII mark.
fn split(text: &str, at: usize) -> (&str, &str) {
    text.split_at_checked(at).unwrap_or((text, ""))
}

/// The text without each backslash that stands before one of `special`.
///
/// Everything special in a name had its backslash, or the name would have ended there; so two
/// names are equal just when they were sent as the same bytes.
fn unescaped<'t>(text: &'t str, special: [u8; 3], scratch: &'t mut String) -> &'t str {
    let Some((mut before, mut after)) = split_once(text, b'\\') else { return text };
    scratch.clear();
    loop {
        scratch.push_str(before);
        let is_escape = after.bytes().next().is_some_and(|next| special.contains(&next));
        let kept = if is_escape {
            // The special character is kept, and is no backslash that escapes another.
            let (special, rest) = split(after, 1);
            after = rest;
            special
        } else {
            "\\"
        };
        scratch.push_str(kept);
        let Some(next) = split_once(after, b'\\') else { break };
        (before, after) = next;
    }
    scratch.push_str(after);
    scratch
}

/// What ends a measurement, and is escaped in it. (Three of them, as for the others.)
const NAME_ENDS: [u8; 3] = [b',', b' ', b' '];

/// What ends a tag key, a tag value and a field key, and is escaped in them.
const KEY_ENDS: [u8; 3] = [b',', b' ', b'='];

/// What is escaped in quoted text.
const TEXT_SPECIAL: [u8; 3] = [b'"', b'\\', b'\\'];

/// What may stand around a time.
const BLANK: [char; 2] = [' ', '\t'];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Batch, ParseError> {
        read_as(line, &ReadOptions::default())
    }

    /// Parses twice into one batch, which must give the same point both times.
    fn read_as(line: &str, options: &ReadOptions) -> Result<Batch, ParseError> {
        let mut batch = Batch::new();
        let mark = batch.bytes();
        let mut reader = Reader::new(options);
        let result = reader.line(line.as_bytes(), &mut batch);
        assert_eq!(reader.line(line.as_bytes(), &mut batch), result);
        match result {
            Ok(()) => assert_eq!(batch.point(0), batch.point(1)),
            Err(_) => assert_eq!(batch.bytes(), mark, "{line:?} leaves a trace"),
        }
        result.map(|()| batch)
    }

    fn value(text: &str) -> Option<FieldValue<'static>> {
        let batch = read(&format!("m v={text}")).ok()?;
        let crate::Measure::Fields(fields) = batch.point(0)?.measure else { panic!() };
        match fields.find("v")? {
            FieldValue::Number(number) => Some(FieldValue::Number(number)),
            FieldValue::Bool(truth) => Some(FieldValue::Bool(truth)),
            FieldValue::Text(_) => panic!("{text:?} is no text"),
        }
    }

    #[test]
    fn a_line_with_everything() {
        let batch = read(r#"a\ b\,c=d\e,k\ 1\,\==v\ "1"\,\=,z=1 f="he \"x\\y\" \n",g=1  7 "#);
        let batch = batch.unwrap();
        let point = batch.point(0).unwrap();
        assert_eq!((point.name, point.time), (r"a b,c=d\e", Some(UnixNanos(7))));
        assert_eq!(point.tags.find("k 1,=").unwrap().value, Some(r#"v "1",="#));
        assert_eq!(point.tags.find("z").unwrap().value, Some("1"));
        let crate::Measure::Fields(fields) = point.measure else { panic!() };
        assert_eq!(fields.find("f"), Some(FieldValue::Text(r#"he "x\y" \n"#)));
        assert_eq!(fields.find("g"), Some(FieldValue::Number(Number::F64(1.0))));
    }

    #[test]
    fn values() {
        let float = |value| Some(FieldValue::Number(Number::F64(value)));
        let integer = |value| Some(FieldValue::Number(Number::I64(value)));
        let cases = [
            ("1", float(1.0)),
            ("-0", float(-0.0)),
            ("5.", float(5.0)),
            ("-.5", float(-0.5)),
            ("1e+16", float(1e16)),
            ("1.5E-7", float(1.5e-7)),
            ("7i", integer(7)),
            ("-9223372036854775808i", integer(i64::MIN)),
            ("7u", integer(7)),
            ("18446744073709551615u", Some(FieldValue::Number(Number::U64(u64::MAX)))),
            ("t", Some(FieldValue::Bool(true))),
            ("FALSE", Some(FieldValue::Bool(false))),
            ("tRUE", None),
            ("+1", None),
            ("+1i", None),
            ("-1u", None),
            ("1.5i", None),
            ("i", None),
            ("-", None),
            (".", None),
            ("e", None),
            ("1e400", None),
            ("NaN", None),
            ("inf", None),
            ("-Infinity", None),
            ("9223372036854775808i", None),
            ("18446744073709551616u", None),
            ("0x10", None),
            ("1_000", None),
            ("word", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(value(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        let long_name = format!("{} f=1", "n".repeat(1025));
        let cases = [
            ("", ParseError::EmptyName),
            (" f=1", ParseError::EmptyName),
            (",t=v f=1", ParseError::EmptyName),
            ("# f=1", ParseError::EmptyName),
            (&long_name, ParseError::NameTooLong),
            ("m\tn f=1", ParseError::ControlCharacter),
            ("m\nn f=1", ParseError::ControlCharacter),
            ("m,t=\x07 f=1", ParseError::ControlCharacter),
            ("m,\x7f=v f=1", ParseError::ControlCharacter),
            ("m f\u{85}=1", ParseError::ControlCharacter),
            ("m, f=1", ParseError::InvalidTag),
            ("m,t f=1", ParseError::InvalidTag),
            ("m,t= f=1", ParseError::InvalidTag),
            ("m,t=,u=v f=1", ParseError::InvalidTag),
            ("m,=v f=1", ParseError::InvalidTag),
            ("m,t=v=w f=1", ParseError::InvalidTag),
            ("m,t=v\\ f=1", ParseError::InvalidTag),
            ("m,t=v,t=v f=1", ParseError::DuplicateTag),
            ("m,t=v,u=v,t=w f=1", ParseError::DuplicateTag),
            ("m", ParseError::NoFields),
            ("m ", ParseError::NoFields),
            ("m,t=v", ParseError::NoFields),
            ("m,t=v  ", ParseError::NoFields),
            ("m f", ParseError::NotAField),
            ("m 1700000000", ParseError::NotAField),
            ("m =1", ParseError::NotAField),
            ("m f=1,", ParseError::NotAField),
            ("m f=1,,g=1", ParseError::NotAField),
            ("m f=1, g=1", ParseError::NotAField),
            ("m f=", ParseError::MissingValue),
            ("m f=,g=1", ParseError::MissingValue),
            ("m f=word", ParseError::InvalidField),
            ("m f=1\nn f=1", ParseError::InvalidField),
            ("m f=\"open", ParseError::UnbalancedQuotes),
            ("m f=\"open\\\"", ParseError::UnbalancedQuotes),
            ("m f=\"a\"b", ParseError::UnbalancedQuotes),
            ("m f=\"a \"b\" c\"", ParseError::UnbalancedQuotes),
            ("m f=1,f=1", ParseError::DuplicateField),
            ("m b=1,c=2,a=3,b=4", ParseError::DuplicateField),
            ("m a\\ b=1,a\\ b=2", ParseError::DuplicateField),
            ("m f=1 x", ParseError::InvalidTimestamp),
            ("m f=1 1 1", ParseError::InvalidTimestamp),
            ("m f=1 1.5", ParseError::InvalidTimestamp),
            ("m f=1 +1", ParseError::InvalidTimestamp),
            ("m f=1 -", ParseError::InvalidTimestamp),
            ("m f=1 9223372036854775807", ParseError::TimestampOutOfRange),
            ("m f=1 99999999999999999999", ParseError::TimestampOutOfRange),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line).err(), Some(expected), "{line:?}");
        }
        let mut batch = Batch::new();
        let bytes = parse_line(b"m,t=\xff f=1", &ReadOptions::default(), &mut batch);
        assert_eq!((bytes, batch.bytes()), (Err(ParseError::InvalidUtf8), 0));
    }

    #[test]
    fn limits() {
        let options = ReadOptions { line_bytes: 20, tags: 2, fields: 2, ..ReadOptions::default() };
        for (line, expected) in [
            ("m,a=1,b=2 f=1,g=2", None),
            ("m,a=1,b=2,c=3 f=1", Some(ParseError::TooManyTags)),
            ("m f=1,g=2,h=3", Some(ParseError::TooManyFields)),
            ("m f=12345678901234567", Some(ParseError::LineTooLong)),
        ] {
            assert_eq!(read_as(line, &options).err(), expected, "{line:?}");
        }
    }

    #[test]
    fn times_are_scaled_and_never_wrapped() {
        let check = |precision, ticks: &str, expected| {
            let options = ReadOptions { precision, ..ReadOptions::default() };
            let batch = read_as(&format!("m f=1 {ticks}"), &options);
            let time = batch.map(|batch| batch.point(0).unwrap().time.unwrap().0);
            assert_eq!(time, expected, "{precision:?} {ticks}");
        };
        let far = Err(ParseError::TimestampOutOfRange);
        check(Precision::Milliseconds, "1491601527552", Ok(1_491_601_527_552_000_000));
        check(Precision::Minutes, "24860025", Ok(1_491_601_500_000_000_000));
        check(Precision::Hours, "-1", Ok(-3_600_000_000_000));
        check(Precision::Seconds, "9223372036", Ok(9_223_372_036_000_000_000));
        check(Precision::Seconds, "9223372037", far);
        check(Precision::Seconds, "1491601527552", far);
        check(Precision::Nanoseconds, "9223372036854775806", Ok(TIME_MAX));
        check(Precision::Nanoseconds, "-9223372036854775807", far);
        check(Precision::Nanoseconds, "1491601527552", Ok(1_491_601_527_552));
    }

    #[test]
    fn a_time_window_is_kept() {
        let times = TimeRange { earliest: UnixNanos(5), latest: UnixNanos(9) };
        let options = ReadOptions { times, ..ReadOptions::default() };
        assert!(read_as("m f=1 5", &options).is_ok());
        assert!(read_as("m f=1", &options).is_ok());
        assert_eq!(read_as("m f=1 4", &options).err(), Some(ParseError::TimestampOutOfRange));
    }

    #[test]
    fn quotes_in_tags_are_characters() {
        for (line, value) in [
            ("t,label=hey\\ \"ya a=1i", "hey \"ya"),
            ("t,label=\"q\" a=2i 7", "\"q\""),
            ("t,label=\" a=\"x\"", "\""),
        ] {
            let batch = read(line).unwrap();
            let point = batch.point(0).unwrap();
            assert_eq!(point.tags.find("label").unwrap().value, Some(value), "{line}");
        }
    }

    #[test]
    fn text_may_hold_what_names_may_not() {
        let batch = read("m f=\"a\nb\t, =c\",g=\"\",h=t\t\r").unwrap_err();
        assert_eq!(batch, ParseError::InvalidField, "a tab is no blank between columns");
        let batch = read("m f=\"a\nb\t, =c\",g=\"\" \t7\t\r").unwrap();
        let crate::Measure::Fields(fields) = batch.point(0).unwrap().measure else { panic!() };
        assert_eq!(fields.find("f"), Some(FieldValue::Text("a\nb\t, =c")));
        assert_eq!(fields.find("g"), Some(FieldValue::Text("")));
        assert_eq!(batch.point(0).unwrap().time, Some(UnixNanos(7)));
    }

    #[test]
    fn the_order_of_columns_is_kept() {
        let batch = read("m b=1,a=2,c=3").unwrap();
        let crate::Measure::Fields(fields) = batch.point(0).unwrap().measure else { panic!() };
        assert_eq!(fields.iter().map(|(key, _)| key).collect::<String>(), "bac");
    }
}
