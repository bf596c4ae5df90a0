//! The body of `/api/put`, and what its sender is told.

use super::put::{PutOptions, add_tag};
use crate::answer::Answer;
use crate::batch::{Batch, PointWriter};
use crate::decimal::parse_number;
use crate::error::ParseError;
use crate::form::{self, Forgetful, Recall, Speech};
use crate::json::BodyError;
use crate::json::body::{Items, Text, each_item, each_member};
use crate::json::plain::Plain;
use crate::json::value::Scalar;
use crate::name;
use crate::point::{Measure, Number, UnixNanos};
use crate::refusals::{ItemError, Refusal, Refusals, quoted};
use crate::timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Reads one point or an array of them; a bad one never costs its neighbours.
///
/// # Errors
///
/// What is wrong with the body as a whole; `out` is then as it was.
pub fn parse_body<'a>(
    body: &'a [u8],
    options: &PutOptions,
    out: &mut Batch,
) -> Result<Refusals<'a>, BodyError> {
    parse_body_with(&mut Forgetful, body, options, out)
}

/// The same, for who knows many of the points again: of those nothing is written to `out`.
///
/// # Errors
///
/// As for [`parse_body`]; what was recalled is then to be forgotten.
pub fn parse_body_with<'a>(
    recall: &mut dyn Recall,
    body: &'a [u8],
    options: &PutOptions,
    out: &mut Batch,
) -> Result<Refusals<'a>, BodyError> {
    let mark = out.mark();
    let mut reader =
        Reader { options, out, refusals: Refusals::default(), tags: Vec::new(), recall };
    let read = each_item(body, &mut reader);
    let refusals = reader.refusals;
    match read {
        Ok(0) => Err(BodyError::Empty),
        Ok(_) => Ok(refusals),
        Err(error) => {
            out.rollback(mark);
            Err(error)
        }
    }
}

/// Reads the datapoints of one body.
struct Reader<'a, 'o> {
    options: &'o PutOptions,
    out: &'o mut Batch,
    refusals: Refusals<'a>,
    /// Of the datapoint that is being read.
    tags: Vec<(&'a str, &'a str)>,
    recall: &'o mut dyn Recall,
}

impl<'a> Items<'a> for Reader<'a, '_> {
    fn plain(&mut self, item: &mut Plain<'a>) -> Option<()> {
        if form::passes(item, self.recall, self.out.len(), Speech::Datapoint) {
            return Some(());
        }
        let tags = &mut self.tags;
        tags.clear();
        let (mut metric, mut time, mut value, mut tagged) = (None, None, None, None);
        item.members(|item, key| match key {
            "metric" => once(&mut metric, item.text()?),
            "timestamp" => once(&mut time, plain_word(item.scalar()?)?),
            "value" => once(&mut value, plain_word(item.scalar()?)?),
            "tags" => {
                once(&mut tagged, ())?;
                item.members(|item, key| {
                    tags.push((key, plain_tag(item.scalar()?)?));
                    Some(())
                })
            }
            _ => None,
        })?;
        self.write(metric?, time?, value?)
    }

    fn other(&mut self, index: usize, item: &'a RawValue) {
        if let Err(refusal) = point(item, self.options, self.out) {
            self.refusals.add(index, Some(item), refusal);
        }
    }
}

impl Reader<'_, '_> {
    /// Writes a plain datapoint, if nothing is wrong with it.
    fn write(&mut self, metric: &str, time: &str, value: &str) -> Option<()> {
        let Self { options, out, tags, .. } = self;
        name::check(metric).ok()?;
        let time = timestamp::put(time).ok()?;
        options.times.check(Some(time)).ok()?;
        let value = parse_number(value)?;
        let mut writer = out.begin(metric);
        for (key, value) in tags.iter() {
            let sound = !key.is_empty() && !value.is_empty();
            sound.then(|| add_tag(&mut writer, key, value, options))?.ok()?;
        }
        (!options.strict || writer.tag_count() > 0).then_some(())?;
        writer.finish(Measure::Reading(value), Some(time), "");
        Some(())
    }
}

fn once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

fn plain_word(scalar: Scalar<'_>) -> Option<&str> {
    match scalar {
        Scalar::Number(word) | Scalar::Text(Cow::Borrowed(word)) => Some(word),
        _ => None,
    }
}

fn plain_tag(scalar: Scalar<'_>) -> Option<&str> {
    match scalar {
        Scalar::Bool(truth) => Some(if truth { "true" } else { "false" }),
        word => plain_word(word),
    }
}

/// How much the sender wants to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerMode {
    /// Nothing, if all went well.
    #[default]
    Quiet,
    /// `?summary`: how many.
    Summary,
    /// `?details`: how many, and which were refused; it says more than `?summary`, and wins.
    Details,
}

/// The answer to a body of which `success` points were taken.
pub fn answer(success: usize, refusals: &Refusals<'_>, mode: AnswerMode) -> Answer {
    let failed = refusals.total();
    let status = match (failed, mode) {
        (0, AnswerMode::Quiet) => return Answer { status: 204, body: None },
        (0, _) => 200,
        (_, AnswerMode::Quiet) => return one_error(success, refusals),
        _ => 400,
    };
    let errors = (mode == AnswerMode::Details)
        .then(|| refusals.listed().iter().map(DetailedError::from).collect());
    Answer::json(status, &Counts { success, failed, errors })
}

/// The answer to a body that was refused as a whole.
pub fn body_error(error: BodyError) -> Answer {
    let text = error.to_string();
    match error {
        BodyError::Empty => Answer::error(400, &text, None),
        _ => Answer::error(400, "Unable to parse the given JSON", Some(&text)),
    }
}

/// A datapoint as sent, members unread. What else it has is ignored.
#[derive(Deserialize)]
struct Datapoint<'a> {
    #[serde(borrow)]
    metric: Option<&'a RawValue>,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    tags: Option<&'a RawValue>,
}

fn point(item: &RawValue, options: &PutOptions, out: &mut Batch) -> Result<(), Refusal> {
    if !item.get().starts_with('{') {
        return Err(ParseError::NotAPoint.into());
    }
    let point: Datapoint<'_> = serde_json::from_str(item.get()).map_err(unreadable)?;
    let metric = metric(point.metric)?;
    let time = time(point.timestamp)?;
    options.times.check(Some(time))?;
    let value = value(point.value)?;
    let mut writer = out.begin(&metric);
    if let Some(tags) = point.tags {
        add_tags(&mut writer, tags, options)?;
    }
    if options.strict && writer.tag_count() == 0 {
        return Err(Refusal::new(ParseError::MissingTags, "Missing tags"));
    }
    writer.finish(Measure::Reading(value), Some(time), "");
    Ok(())
}

/// The only things left to be wrong with an object are a member that stands twice, and text
/// with half of a character.
fn unreadable(error: serde_json::Error) -> Refusal {
    let text = error.to_string();
    let what = text.split(" at line").next().unwrap_or(&text);
    Refusal::new(ParseError::InvalidJson, what.to_owned())
}

fn metric(json: Option<&RawValue>) -> Result<Cow<'_, str>, Refusal> {
    let empty = || Refusal::new(ParseError::EmptyName, "Metric name was empty");
    let name = text(json.ok_or_else(empty)?)
        .ok_or_else(|| Refusal::new(ParseError::NotAPoint, "The metric name is not text"))?;
    match name::check(&name) {
        Ok(()) => Ok(name),
        Err(ParseError::EmptyName) => Err(empty()),
        Err(reason) => Err(reason.into()),
    }
}

fn time(json: Option<&RawValue>) -> Result<UnixNanos, Refusal> {
    let read = json.and_then(word).ok_or(ParseError::InvalidTimestamp);
    read.and_then(|word| timestamp::put(&word)).map_err(|reason| match reason {
        ParseError::InvalidTimestamp => Refusal::new(reason, "Invalid timestamp"),
        _ => reason.into(),
    })
}

fn value(json: Option<&RawValue>) -> Result<Number, Refusal> {
    let word = json.map(word);
    if word.as_ref().is_none_or(|word| word.as_deref() == Some("")) {
        return Err(Refusal::new(ParseError::MissingValue, "Empty value"));
    }
    word.flatten()
        .and_then(|word| parse_number(&word))
        .ok_or_else(|| Refusal::new(ParseError::InvalidValue, "Unable to parse value to a number"))
}

fn add_tags(
    writer: &mut PointWriter<'_>,
    tags: &RawValue,
    options: &PutOptions,
) -> Result<(), Refusal> {
    if !tags.get().starts_with('{') {
        return Err(Refusal::new(ParseError::InvalidTag, "The tags are not an object"));
    }
    let mut result = Ok(());
    each_member(tags.get(), |key, value| {
        if result.is_ok() {
            result = json_tag(writer, &key, value, options);
        }
    })
    .map_err(unreadable)?;
    result
}

fn json_tag(
    writer: &mut PointWriter<'_>,
    key: &str,
    value: &RawValue,
    options: &PutOptions,
) -> Result<(), Refusal> {
    let about = |reason: ParseError| Refusal::new(reason, format!("{reason}: {}", quoted(key)));
    let value = match value.get() {
        truth @ ("true" | "false") => Some(Cow::Borrowed(truth)),
        _ => word(value),
    };
    match value {
        Some(value) if !key.is_empty() && !value.is_empty() => {
            add_tag(writer, key, &value, options).map_err(about)
        }
        _ => Err(about(ParseError::InvalidTag)),
    }
}

/// Text without its quotes.
fn text(json: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str(json.get()).ok().map(|Text(text)| text)
}

/// A number as it was written, or text without its quotes: senders mix the two.
fn word(json: &RawValue) -> Option<Cow<'_, str>> {
    match json.get().as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => Some(Cow::Borrowed(json.get())),
        _ => text(json),
    }
}

#[derive(Serialize)]
struct Counts<'t> {
    success: usize,
    failed: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<DetailedError<'t>>>,
}

#[derive(Serialize)]
struct DetailedError<'t> {
    error: &'t str,
    datapoint: Option<&'t RawValue>,
}

impl<'t> From<&'t ItemError<'_>> for DetailedError<'t> {
    fn from(error: &'t ItemError<'_>) -> Self {
        Self { error: &error.message, datapoint: error.item }
    }
}

/// Without a flag there is no list, but nobody should have to guess what was wrong.
fn one_error(success: usize, refusals: &Refusals<'_>) -> Answer {
    let failed = refusals.total();
    let all = success + failed;
    let first = refusals.listed().first().map(|first| {
        format!(
            "{failed} of {all} were refused, the first at index {}: {}. \
             Append \"details\" to the request for all of them",
            first.index, first.message
        )
    });
    Answer::error(400, "One or more data points had errors", first.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Batch {
        let mut batch = Batch::new();
        batch.begin("first").finish(Measure::Gauge(1.0), None, "");
        batch
    }

    fn accepts(body: &str, expected: &[&str]) {
        let mut batch = filled();
        for _ in 0..2 {
            let from = batch.len();
            let refusals = parse_body(body.as_bytes(), &PutOptions::default(), &mut batch).unwrap();
            assert!(refusals.is_empty(), "{body}: {:?}", refusals.listed());
            let shown: Vec<_> = batch
                .iter()
                .skip(from)
                .map(|point| {
                    let tags: String = point
                        .tags
                        .iter()
                        .map(|tag| format!(" {}={}", tag.key, tag.value.unwrap()))
                        .collect();
                    let Measure::Reading(value) = point.measure else { panic!("{body}") };
                    format!("{} {} {value:?}{tags}", point.name, point.time.unwrap().millis())
                })
                .collect();
            assert_eq!(shown, expected, "{body}");
        }
    }

    fn refuses(item: &str, options: PutOptions, reason: ParseError, message: &str) {
        let mut batch = filled();
        let bytes = batch.bytes();
        let body = format!("[{item}]");
        let refusals = parse_body(body.as_bytes(), &options, &mut batch).unwrap();
        let [error] = refusals.listed() else { panic!("{item}: {:?}", refusals.listed()) };
        assert_eq!((error.index, error.reason, &*error.message), (0, reason, message), "{item}");
        assert_eq!(error.item.unwrap().get(), item);
        assert_eq!((batch.len(), batch.bytes()), (1, bytes), "{item}");
    }

    #[test]
    fn datapoints() {
        accepts(
            r#"{"metric":"a","timestamp":1700000000,"value":1,"tags":{"h":"x"}}"#,
            &["a 1700000000000 I64(1) h=x"],
        );
        accepts(
            r#" [{"value":"42.5","tags":{},"timestamp":"1559746555444","metric":"a"},
                 {"metric":"b\/","timestamp":1559746555.444,"value":1e3,"tags":{"a":1.0,"b":true,"c":"\u0000"},"extra":[1e400]}]"#,
            &["a 1559746555444 F64(42.5)", "b/ 1559746555444 F64(1000.0) a=1.0 b=true c=\0"],
        );
        accepts(
            r#"{"metric":"a","timestamp":1,"value":18446744073709551615,"tags":null}"#,
            &["a 1000 U64(18446744073709551615)"],
        );
        accepts(
            r#"{"metric":"a","timestamp":1,"value":"9007199254740993","tags":{"a":"b","a":"b"}}"#,
            &["a 1000 I64(9007199254740993) a=b"],
        );
    }

    #[test]
    fn refused_datapoints() {
        let any = PutOptions::default();
        refuses("null", any, ParseError::NotAPoint, &ParseError::NotAPoint.to_string());
        refuses("[\"a\",1,1,{}]", any, ParseError::NotAPoint, &ParseError::NotAPoint.to_string());
        for (members, reason, message) in [
            (r#""timestamp":1,"value":1"#, ParseError::EmptyName, "Metric name was empty"),
            (
                r#""metric":"","timestamp":1,"value":1"#,
                ParseError::EmptyName,
                "Metric name was empty",
            ),
            (r#""metric":null,"timestamp":1"#, ParseError::EmptyName, "Metric name was empty"),
            (r#""metric":5,"timestamp":1"#, ParseError::NotAPoint, "The metric name is not text"),
            (
                r#""metric":"a\nb","timestamp":1,"value":1"#,
                ParseError::ControlCharacter,
                "a control character in a name or tag",
            ),
            (r#""metric":"a","value":1"#, ParseError::InvalidTimestamp, "Invalid timestamp"),
            (r#""metric":"a","timestamp":1"#, ParseError::MissingValue, "Empty value"),
            (r#""metric":"a","timestamp":1,"value":null"#, ParseError::MissingValue, "Empty value"),
            (r#""metric":"a","timestamp":1,"value":"""#, ParseError::MissingValue, "Empty value"),
            (r#""metric":"a","metric":"b""#, ParseError::InvalidJson, "duplicate field `metric`"),
        ] {
            refuses(&format!("{{{members}}}"), any, reason, message);
        }
        for value in ["1e400", "\"zz\"", "\"NaN\"", "true", "[1]", "{}", "\" 1\"", "\"\\ud800\""] {
            let item = format!(r#"{{"metric":"a","timestamp":1,"value":{value}}}"#);
            let message = "Unable to parse value to a number";
            refuses(&item, any, ParseError::InvalidValue, message);
        }
        for time in ["0", "-5", "1e9", "10000000000", "\"abc\"", "true", "null", "1700000000.1234"]
        {
            let item = format!(r#"{{"metric":"a","timestamp":{time},"value":1}}"#);
            refuses(&item, any, ParseError::InvalidTimestamp, "Invalid timestamp");
        }
    }

    #[test]
    fn refused_tags() {
        let strict = PutOptions { strict: true, tags: 1, ..PutOptions::default() };
        let check = |tags: &str, reason: ParseError, message: &str| {
            let item = format!(r#"{{"metric":"a","timestamp":1,"value":1,"tags":{tags}}}"#);
            refuses(&item, strict, reason, message);
        };
        let about = |reason: ParseError, key: &str| format!("{reason}: {key:?}");
        check("{}", ParseError::MissingTags, "Missing tags");
        check("null", ParseError::MissingTags, "Missing tags");
        check("[]", ParseError::InvalidTag, "The tags are not an object");
        for tags in [r#"{"k":""}"#, r#"{"k":null}"#, r#"{"k":[]}"#, r#"{"k":{}}"#] {
            check(tags, ParseError::InvalidTag, &about(ParseError::InvalidTag, "k"));
        }
        check(r#"{"":"v"}"#, ParseError::InvalidTag, &about(ParseError::InvalidTag, ""));
        let message = about(ParseError::DuplicateTag, "a");
        check(r#"{"a":"x","a":"y"}"#, ParseError::DuplicateTag, &message);
        let message = about(ParseError::TooManyTags, "b");
        check(r#"{"a":"x","b":"y"}"#, ParseError::TooManyTags, &message);
    }

    #[test]
    fn bodies_that_are_refused_as_a_whole() {
        let check = |body: &[u8], error: BodyError, details: &str| {
            let mut batch = filled();
            let bytes = batch.bytes();
            let got = parse_body(body, &PutOptions::default(), &mut batch).unwrap_err();
            assert_eq!(got, error);
            assert_eq!((batch.len(), batch.bytes()), (1, bytes));
            let answer = body_error(error);
            assert_eq!(answer.status, 400);
            assert_eq!(answer.body.unwrap(), format!(r#"{{"error":{{"code":400,{details}}}}}"#));
        };
        check(b"[]", BodyError::Empty, r#""message":"No datapoints found in content""#);
        check(
            br#"{"metric":"a","timestamp":1,"value":1}x"#,
            BodyError::Syntax { line: 1, column: 39 },
            r#""message":"Unable to parse the given JSON","details":"the JSON is broken at line 1, column 39""#,
        );
        check(
            b"[{\"metric\":\"a\",\"timestamp\":1,\"value\":1},\n",
            BodyError::Syntax { line: 2, column: 0 },
            r#""message":"Unable to parse the given JSON","details":"the JSON is broken at line 2, column 0""#,
        );
        check(
            b"42",
            BodyError::NotAPoint,
            r#""message":"Unable to parse the given JSON","details":"the body is neither an array nor an object""#,
        );
    }

    #[test]
    fn answers() {
        let body = br#"[{"metric":"a","timestamp":1700000000,"value":1,"tags":{"h":"x"}},
            {"metric":"b", "timestamp":1700000000,"value":"zz","tags":{"h":"x"}},
            {"metric":"c","timestamp":1700000000,"value":3,"tags":{"h":"x"}}]"#;
        let mut batch = Batch::new();
        let bad = parse_body(body, &PutOptions::default(), &mut batch).unwrap();
        assert_eq!(batch.iter().map(|point| point.name).collect::<Vec<_>>(), ["a", "c"]);
        let check = |success, refusals: &Refusals<'_>, mode, status, body: Option<&str>| {
            let got = answer(success, refusals, mode);
            assert_eq!((got.status, got.body.as_deref()), (status, body));
        };
        let none = Refusals::default();
        check(3, &none, AnswerMode::Quiet, 204, None);
        check(3, &none, AnswerMode::Summary, 200, Some(r#"{"success":3,"failed":0}"#));
        let all_good = r#"{"success":3,"failed":0,"errors":[]}"#;
        check(3, &none, AnswerMode::Details, 200, Some(all_good));
        check(2, &bad, AnswerMode::Summary, 400, Some(r#"{"success":2,"failed":1}"#));
        check(
            2,
            &bad,
            AnswerMode::Details,
            400,
            Some(
                r#"{"success":2,"failed":1,"errors":[{"error":"Unable to parse value to a number","datapoint":{"metric":"b", "timestamp":1700000000,"value":"zz","tags":{"h":"x"}}}]}"#,
            ),
        );
        check(
            2,
            &bad,
            AnswerMode::Quiet,
            400,
            Some(
                r#"{"error":{"code":400,"message":"One or more data points had errors","details":"1 of 3 were refused, the first at index 1: Unable to parse value to a number. Append \"details\" to the request for all of them"}}"#,
            ),
        );
    }
}
