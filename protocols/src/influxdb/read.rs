//! One line of line protocol back to a point.
//!
//! Strict: it takes what the grammar allows and no more, so that it can judge an encoder.
//! Every line becomes [`Measure::Fields`](crate::Measure::Fields), for the protocol knows
//! no other measure. Times are nanoseconds. Comments and blank lines are the caller's.

use super::{TIME_MAX, TIME_MIN};
use crate::{Batch, FieldValue, Number, PointWriter, UnixNanos};
use std::borrow::Cow;

/// Appends the point that `line`, without its newline, describes. A column named twice has
/// its last value, as in a server; a tag named twice is refused, as there.
///
/// # Errors
///
/// The first thing that is wrong with the line; `out` is then unchanged.
pub fn parse_line(line: &str, out: &mut Batch) -> Result<(), ReadError> {
    if line.starts_with(['#', ',']) || line.contains('\n') {
        return Err(ReadError::Measurement);
    }
    let (measurement, rest) = split_name(line, &[',', ' ']);
    if measurement.is_empty() {
        return Err(ReadError::Measurement);
    }
    let mut writer = out.begin(&unescape(measurement, &[',', ' ']));
    let rest = tags(rest, &mut writer)?;
    let rest = columns(rest.trim_start_matches(' '), &mut writer)?;
    writer.finish_fields(time(rest.trim_matches(' '))?);
    Ok(())
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is none, it is a comment, or the text is more than one line.
    #[error("no measurement")]
    Measurement,
    /// A tag without key or value.
    #[error("a tag is not key=value")]
    Tag,
    /// A tag key stands twice.
    #[error("a tag stands twice")]
    DuplicateTag,
    /// No column at all, or one without key or value.
    #[error("a column is not key=value")]
    Column,
    /// A value that is no number, truth value or quoted text.
    #[error("a value is not a number, a truth value or quoted text")]
    Value,
    /// A time that is no integer or outside the range.
    #[error("the time is not an integer of nanoseconds in range")]
    Time,
}

/// Reads `,key=value` as often as it stands there; what follows is the rest.
fn tags<'a>(mut rest: &'a str, writer: &mut PointWriter<'_>) -> Result<&'a str, ReadError> {
    while let Some(tag) = rest.strip_prefix(',') {
        let (key, after) = split_name(tag, STOPS);
        let value = after.strip_prefix('=').ok_or(ReadError::Tag)?;
        let (value, after) = split_name(value, STOPS);
        if key.is_empty() || value.is_empty() || after.starts_with('=') {
            return Err(ReadError::Tag);
        }
        if writer.tag(&unescape(key, STOPS), Some(&unescape(value, STOPS))).is_some() {
            return Err(ReadError::DuplicateTag);
        }
        rest = after;
    }
    Ok(rest)
}

/// Reads `key=value` and then `,key=value` as often as it stands there.
fn columns<'a>(mut rest: &'a str, writer: &mut PointWriter<'_>) -> Result<&'a str, ReadError> {
    loop {
        let (key, after) = split_name(rest, STOPS);
        let after = after.strip_prefix('=').ok_or(ReadError::Column)?;
        if key.is_empty() {
            return Err(ReadError::Column);
        }
        rest = column(&unescape(key, STOPS), after, writer)?;
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None if rest.is_empty() || rest.starts_with(' ') => return Ok(rest),
            None => return Err(ReadError::Value),
        }
    }
}

/// Reads one value; what follows is the rest.
fn column<'a>(
    key: &str,
    value: &'a str,
    writer: &mut PointWriter<'_>,
) -> Result<&'a str, ReadError> {
    if let Some(quoted) = value.strip_prefix('"') {
        let (text, rest) = split_text(quoted).ok_or(ReadError::Value)?;
        writer.field(key, FieldValue::Text(&unescape(text, &['"', '\\'])));
        return Ok(rest);
    }
    let end = value.find([',', ' ']).unwrap_or(value.len());
    let (value, rest) = value.split_at(end);
    writer.field(key, scalar(value).ok_or(ReadError::Value)?);
    Ok(rest)
}

fn scalar(text: &str) -> Option<FieldValue<'static>> {
    match text {
        "t" | "T" | "true" | "True" | "TRUE" => Some(FieldValue::Bool(true)),
        "f" | "F" | "false" | "False" | "FALSE" => Some(FieldValue::Bool(false)),
        _ => number(text).map(FieldValue::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    if let Some(digits) = text.strip_suffix('i') {
        return integer(digits).map(Number::I64);
    }
    if let Some(digits) = text.strip_suffix('u') {
        let value: u64 = all_digits(digits).then(|| digits.parse().ok())??;
        return Some(i64::try_from(value).map_or(Number::U64(value), Number::I64));
    }
    // The standard library also takes a leading plus and words for what is not finite.
    let spelt =
        text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    let value: f64 = (spelt && !text.starts_with('+')).then(|| text.parse().ok())??;
    value.is_finite().then_some(Number::F64(value))
}

fn integer(text: &str) -> Option<i64> {
    all_digits(text.strip_prefix('-').unwrap_or(text)).then(|| text.parse().ok())?
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn time(text: &str) -> Result<Option<UnixNanos>, ReadError> {
    if text.is_empty() {
        return Ok(None);
    }
    let nanos = integer(text).filter(|nanos| (TIME_MIN..=TIME_MAX).contains(nanos));
    nanos.map(|nanos| Some(UnixNanos(nanos))).ok_or(ReadError::Time)
}

/// Cuts before the first of `stops` that no backslash escapes.
fn split_name<'a>(text: &'a str, stops: &[char]) -> (&'a str, &'a str) {
    let mut escaped = false;
    let end = text.find(|c| {
        let stop = stops.contains(&c) && !escaped;
        escaped = c == '\\';
        stop
    });
    text.split_at(end.unwrap_or(text.len()))
}

/// Cuts at the closing quote, which is left out.
fn split_text(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.find(|c| {
        let stop = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        stop
    })?;
    let (text, rest) = text.split_at(end);
    Some((text, rest.strip_prefix('"')?))
}

/// Removes each backslash that stands before one of `special`.
fn unescape<'a>(text: &'a str, special: &[char]) -> Cow<'a, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let next = rest.as_str().chars().next().filter(|next| special.contains(next));
        match next {
            Some(next) if c == '\\' => {
                plain.push(next);
                rest.next();
            }
            _ => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

/// What ends a tag key, a tag value and a field key, and is escaped in them.
const STOPS: &[char] = &[',', ' ', '='];

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses twice into one batch, which must give the same point both times.
    fn read(line: &str) -> Result<Batch, ReadError> {
        let mut batch = Batch::new();
        let mark = batch.bytes();
        let result = parse_line(line, &mut batch);
        assert_eq!(parse_line(line, &mut batch), result);
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
        let cases = [
            ("", ReadError::Measurement),
            (" f=1", ReadError::Measurement),
            (",t=v f=1", ReadError::Measurement),
            ("# f=1", ReadError::Measurement),
            ("m f=1\nn f=1", ReadError::Measurement),
            ("m, f=1", ReadError::Tag),
            ("m,t f=1", ReadError::Tag),
            ("m,t= f=1", ReadError::Tag),
            ("m,=v f=1", ReadError::Tag),
            ("m,t=v=w f=1", ReadError::Tag),
            ("m,t=v\\ f=1", ReadError::Tag),
            ("m,t=v,t=v f=1", ReadError::DuplicateTag),
            ("m", ReadError::Column),
            ("m ", ReadError::Column),
            ("m,t=v", ReadError::Column),
            ("m f", ReadError::Column),
            ("m =1", ReadError::Column),
            ("m f=1,", ReadError::Column),
            ("m f=1,,g=1", ReadError::Column),
            ("m f=", ReadError::Value),
            ("m f=\"open", ReadError::Value),
            ("m f=\"open\\\"", ReadError::Value),
            ("m f=\"a\"b", ReadError::Value),
            ("m f=1 x", ReadError::Time),
            ("m f=1 1 1", ReadError::Time),
            ("m f=1 1.5", ReadError::Time),
            ("m f=1 +1", ReadError::Time),
            ("m f=1 9223372036854775807", ReadError::Time),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line).err(), Some(expected), "{line:?}");
        }
    }

    #[test]
    fn the_last_of_equal_columns_stands() {
        let batch = read("m a=1,b=2,a=3").unwrap();
        let crate::Measure::Fields(fields) = batch.point(0).unwrap().measure else { panic!() };
        assert_eq!(fields.len(), 2);
        assert_eq!(fields.find("a"), Some(FieldValue::Number(Number::F64(3.0))));
    }
}
