//! One point, of the series of a path and the decoded pairs of a query string.

use super::Limits;
use super::draft::Draft;
use super::value::Scalar;
use crate::batch::Batch;
use crate::decimal::unsigned;
use crate::error::ParseError;
use crate::refusals::{ItemError, Refusal};
use serde_json::value::RawValue;
use std::borrow::Cow;

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

/// What languages print for a double that is no number.
pub(crate) const NOT_NUMBERS: [&str; 6] = ["NaN", "nan", "inf", "Inf", "Infinity", "infinity"];
