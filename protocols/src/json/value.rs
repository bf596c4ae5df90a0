//! One JSON value that may stand in a column.

use super::body::Text;
use crate::decimal::parse_number;
use crate::error::ParseError;
use crate::point::{FieldValue, Number};
use crate::refusals::{Refusal, quoted};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A JSON value, told apart by its first byte and otherwise as sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    /// The digits, not yet judged: `1e400` is sound JSON.
    Number(&'a str),
    Text(Cow<'a, str>),
    /// An array or an object, which is no scalar.
    Nested,
}

impl<'a> Scalar<'a> {
    /// Only text can be refused: for a surrogate that stands alone.
    pub(crate) fn of(json: &'a RawValue) -> Result<Self, Refusal> {
        let text = json.get();
        Ok(match text.as_bytes().first() {
            Some(b'n') => Scalar::Null,
            Some(b't') => Scalar::Bool(true),
            Some(b'f') => Scalar::Bool(false),
            Some(b'[' | b'{') => Scalar::Nested,
            Some(b'"') => Scalar::Text(unescaped(text)?),
            _ => Scalar::Number(text),
        })
    }

    /// As the value of a column called `key`.
    pub(crate) fn as_field(&self, key: &str) -> Result<FieldValue<'_>, Refusal> {
        match self {
            Scalar::Bool(truth) => Ok(FieldValue::Bool(*truth)),
            Scalar::Text(text) => Ok(FieldValue::Text(text)),
            Scalar::Number(digits) => Ok(FieldValue::Number(finite(digits, key)?)),
            Scalar::Null | Scalar::Nested => Err(Refusal::new(
                ParseError::InvalidField,
                format!("the field {} is neither a number, a truth value nor text", quoted(key)),
            )),
        }
    }

    /// As the value of a tag: whatever is written without brackets is text.
    pub(crate) fn into_tag(self) -> Option<Cow<'a, str>> {
        match self {
            Scalar::Text(text) => Some(text),
            Scalar::Number(digits) => Some(Cow::Borrowed(digits)),
            Scalar::Bool(truth) => Some(Cow::Borrowed(if truth { "true" } else { "false" })),
            Scalar::Null | Scalar::Nested => None,
        }
    }
}

fn unescaped(text: &str) -> Result<Cow<'_, str>, Refusal> {
    let Text(text) = serde_json::from_str(text)
        .map_err(|_| Refusal::new(ParseError::InvalidJson, "text with half of a character"))?;
    Ok(text)
}

/// The number that `digits` spell, for the column `key`.
pub(crate) fn finite(digits: &str, key: &str) -> Result<Number, Refusal> {
    parse_number(digits).ok_or_else(|| {
        let text = format!("the field {} is not a finite number", quoted(key));
        Refusal::new(ParseError::InvalidValue, text)
    })
}
