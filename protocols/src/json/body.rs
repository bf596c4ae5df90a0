//! A body of JSON, taken apart item by item without looking into the items.
//!
//! Each item is kept as the text it was sent as, so that one that is wrong in itself (a
//! number too large, a lone surrogate) never costs its neighbours. Only broken syntax does,
//! since after it nobody can say where the next item starts.

use super::plain::Plain;
use crate::error::ParseError;
use crate::frame::BYTE_ORDER_MARK;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Why a whole body was refused; nothing of it was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The text is not UTF-8.
    #[error("the body is not UTF-8 from byte {0} on")]
    NotUtf8(usize),
    /// Broken syntax, counted from 1.
    #[error("the JSON is broken at line {line}, column {column}")]
    Syntax {
        /// The line.
        line: usize,
        /// The byte in the line.
        column: usize,
    },
    /// Neither an array nor an object.
    #[error("the body is neither an array nor an object")]
    NotAPoint,
    /// An array of nothing, where the protocol wants something.
    #[error("No datapoints found in content")]
    Empty,
}

impl BodyError {
    /// What to count.
    pub const fn reason(self) -> ParseError {
        match self {
            BodyError::NotUtf8(_) => ParseError::InvalidUtf8,
            BodyError::Syntax { .. } => ParseError::InvalidJson,
            BodyError::NotAPoint | BodyError::Empty => ParseError::NotAPoint,
        }
    }
}

impl From<serde_json::Error> for BodyError {
    fn from(error: serde_json::Error) -> Self {
        BodyError::Syntax { line: error.line(), column: error.column() }
    }
}

/// Who reads the items of a body.
pub(crate) trait Items<'a> {
    /// Takes an item that is plain and has nothing wrong with it; answers whether it is, and has
    /// done nothing otherwise.
    fn plain(&mut self, item: &mut Plain<'a>) -> Option<()>;

    /// Takes any other, whatever it is.
    fn other(&mut self, index: usize, item: &'a RawValue);
}

/// Shows every item of an array, or the one object, to `items`; answers how many there were.
///
/// The syntax is only known to be sound when this has answered, so the caller has to be able
/// to undo what it did.
pub(crate) fn each_item<'a>(
    body: &'a [u8],
    items: &mut impl Items<'a>,
) -> Result<usize, BodyError> {
    let text = str::from_utf8(body).map_err(|error| BodyError::NotUtf8(error.valid_up_to()))?;
    let text = without_mark(text);
    let mut left = Plain::new(text);
    let count = match text.trim_ascii_start().as_bytes().first() {
        Some(b'[') => elements(&mut left, items),
        Some(b'{') => element(&mut left, 0, items).map(|()| 1),
        _ => {
            serde_json::from_str::<&RawValue>(text)?;
            return Err(BodyError::NotAPoint);
        }
    };
    match count.filter(|_| left.ends()) {
        Some(count) => Ok(count),
        None => Err(what_is_broken(text)),
    }
}

/// The elements of an array, of which nothing was read yet.
fn elements<'a>(left: &mut Plain<'a>, items: &mut impl Items<'a>) -> Option<usize> {
    left.takes(b'[').then_some(())?;
    if left.takes(b']') {
        return Some(0);
    }
    for index in 0.. {
        element(left, index, items)?;
        if !left.takes(b',') {
            return left.takes(b']').then_some(index + 1);
        }
    }
    None
}

fn element<'a>(left: &mut Plain<'a>, index: usize, items: &mut impl Items<'a>) -> Option<()> {
    let mut item = *left;
    if items.plain(&mut item).is_some() {
        *left = item;
        return Some(());
    }
    // This leaves the blanks away which stand before it.
    left.ends();
    let mut json = serde_json::Deserializer::from_str(left.rest());
    let raw = <&RawValue>::deserialize(&mut json).ok()?;
    left.skip(raw.get().len());
    items.other(index, raw);
    Some(())
}

/// Where the ordinary reader, who counts lines and columns, comes to a halt.
fn what_is_broken(text: &str) -> BodyError {
    let read = match text.trim_ascii_start().starts_with('[') {
        true => each_element(text, |_| ()),
        false => serde_json::from_str::<&RawValue>(text).map(drop),
    };
    read.err().map_or(BodyError::Syntax { line: 1, column: 0 }, BodyError::from)
}

/// A byte order mark is no part of the text that follows it.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Shows every element of the array that `text` spells to `visit`.
pub(crate) fn each_element<'a>(
    text: &'a str,
    visit: impl FnMut(&'a RawValue),
) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_seq(Elements(visit))?;
    json.end()
}

/// Shows every member of the object that `text` spells to `visit`, repeated keys included.
pub(crate) fn each_member<'a>(
    text: &'a str,
    visit: impl FnMut(Cow<'a, str>, &'a RawValue),
) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(Members(visit))?;
    json.end()
}

struct Elements<F>(F);

impl<'a, F: FnMut(&'a RawValue)> Visitor<'a> for Elements<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut array: A) -> Result<(), A::Error> {
        while let Some(element) = array.next_element()? {
            (self.0)(element);
        }
        Ok(())
    }
}

struct Members<F>(F);

impl<'a, F: FnMut(Cow<'a, str>, &'a RawValue)> Visitor<'a> for Members<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut object: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = object.next_key()? {
            (self.0)(key, object.next_value()?);
        }
        Ok(())
    }
}

/// Text that is borrowed unless it holds escapes; serde's own `Cow` always copies.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'a> Deserialize<'a> for Text<'a> {
    fn deserialize<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'a> Visitor<'a> for TextVisitor {
    type Value = Text<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'a str) -> Result<Text<'a>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text<'a>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<Text<'a>, E> {
        Err(E::custom("text that is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::value::Scalar;

    /// Knows no plain item, or those that are a number.
    struct Found<'a>(Vec<&'a str>, bool);

    impl<'a> Items<'a> for Found<'a> {
        fn plain(&mut self, item: &mut Plain<'a>) -> Option<()> {
            let Scalar::Number(number) = item.scalar().filter(|_| self.1)? else { return None };
            self.0.push(number);
            Some(())
        }

        fn other(&mut self, index: usize, item: &'a RawValue) {
            assert_eq!(index, self.0.len());
            self.0.push(item.get());
        }
    }

    fn items(body: &str) -> Result<Vec<&str>, BodyError> {
        let read = [true, false].map(|plain| {
            let mut found = Found(Vec::new(), plain);
            let count = each_item(body.as_bytes(), &mut found)?;
            assert_eq!(count, found.0.len());
            Ok(found.0)
        });
        assert_eq!(read[0], read[1], "{body}");
        let [read, _] = read;
        read
    }

    #[test]
    fn items_are_kept_as_sent() {
        assert_eq!(items("[]").unwrap(), Vec::<&str>::new());
        assert_eq!(
            items(" [1e400 , null,[[]],\"\\ud800\"]\n").unwrap(),
            ["1e400", "null", "[[]]", "\"\\ud800\""]
        );
        assert_eq!(items("\u{feff}{ \"a\":1 } ").unwrap(), ["{ \"a\":1 }"]);
    }

    #[test]
    fn deep_nesting_costs_nothing_but_bytes() {
        let deep = format!("[{}{}]", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(items(&deep).unwrap().len(), 1);
    }

    #[test]
    fn broken_bodies() {
        let check = |body: &str, line, column| {
            assert_eq!(items(body), Err(BodyError::Syntax { line, column }), "{body:?}");
        };
        check("", 1, 0);
        check("[1,\n2", 2, 1);
        check("[1,]", 1, 4);
        check("{\"a\":NaN}", 1, 6);
        check("[1] 2", 1, 5);
        assert_eq!(items("5"), Err(BodyError::NotAPoint));
        assert_eq!(items("\"[]\""), Err(BodyError::NotAPoint));
        assert_eq!(
            each_item(b"[\"\xff\"]", &mut Found(Vec::new(), true)),
            Err(BodyError::NotUtf8(2))
        );
    }
}
