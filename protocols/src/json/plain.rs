//! The objects that senders usually write, read in one pass and without a copy.
//!
//! Plain is text without escapes. What is read here is sound JSON and means what it means to
//! `serde_json`; whatever else is met is answered with `None`, and left to the ordinary reader,
//! which knows what it is, or what is wrong with it.

use super::value::Scalar;
use crate::scan::{self, each, equal};
use std::borrow::Cow;

/// What is left of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain<'a>(&'a str);

impl<'a> Plain<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// The text that is still to be read.
    pub(crate) const fn rest(&self) -> &'a str {
        self.0
    }

    /// Passes over so many bytes.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.0 = self.0.get(bytes..).unwrap_or("");
    }

    /// Passes over blanks; answers whether nothing follows them.
    pub(crate) fn ends(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Takes this byte, which blanks may stand before.
    pub(crate) fn takes(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.skip(1);
        }
        found
    }

    /// The members of an object, up to the first of which `visit` will know nothing.
    pub(crate) fn members(
        &mut self,
        mut visit: impl FnMut(&mut Self, &'a str) -> Option<()>,
    ) -> Option<()> {
        self.takes(b'{').then_some(())?;
        if self.takes(b'}') {
            return Some(());
        }
        loop {
            let key = self.text()?;
            self.takes(b':').then_some(())?;
            visit(self, key)?;
            if !self.takes(b',') {
                return self.takes(b'}').then_some(());
            }
        }
    }

    /// A text without escapes.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        self.takes(b'"').then_some(())?;
        let end = scan::find(self.0.as_bytes(), ends_text)?;
        let (text, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.strip_prefix('"')?;
        Some(text)
    }

    /// A value that is neither an object nor an array.
    pub(crate) fn scalar(&mut self) -> Option<Scalar<'a>> {
        match self.peek()? {
            b'"' => self.text().map(|text| Scalar::Text(Cow::Borrowed(text))),
            b'-' | b'0'..=b'9' => self.number().map(Scalar::Number),
            b't' => self.word("true", Scalar::Bool(true)),
            b'f' => self.word("false", Scalar::Bool(false)),
            b'n' => self.word("null", Scalar::Null),
            _ => None,
        }
    }

    fn word(&mut self, word: &str, meaning: Scalar<'a>) -> Option<Scalar<'a>> {
        self.0 = self.0.strip_prefix(word)?;
        Some(meaning)
    }

    fn number(&mut self) -> Option<&'a str> {
        let bytes = self.0.as_bytes();
        let end = number_end(bytes)?;
        let (number, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        Some(number)
    }

    /// The next byte that is no blank, to which this goes on.
    fn peek(&mut self) -> Option<u8> {
        let blanks = self.0.bytes().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t'));
        let blanks = blanks.count();
        if blanks > 0 {
            self.skip(blanks);
        }
        self.0.as_bytes().first().copied()
    }
}

/// Where a number ends that keeps to JSON's grammar.
pub(crate) fn number_end(bytes: &[u8]) -> Option<usize> {
    let digits = |from: usize| {
        let rest = bytes.get(from..).unwrap_or(&[]);
        from + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let start = usize::from(bytes.first() == Some(&b'-'));
    let mut end = digits(start);
    let leads_with_zero = bytes.get(start) == Some(&b'0') && end > start + 1;
    if end == start || leads_with_zero {
        return None;
    }
    if bytes.get(end) == Some(&b'.') {
        let start = end + 1;
        end = digits(start);
        (end > start).then_some(())?;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let start = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end = digits(start);
        (end > start).then_some(())?;
    }
    Some(end)
}

/// Marks what a plain text ends with, and what must not be in it.
const fn ends_text(eight: u64) -> u64 {
    let control = !(((eight & each(0x7f)) + each(0x80 - b' ')) | eight) & each(0x80);
    control | equal(eight, b'"') | equal(eight, b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    #[test]
    fn what_is_odd_is_left_to_others() {
        for text in
            [r#""a\n""#, "\"a\nb\"", "\"a", "01", "-", "1.", ".5", "1e", "+1", "[1]", "{}", "nul"]
        {
            let read = Plain::new(text).scalar();
            assert!(read.is_none(), "{text}: {read:?}");
        }
    }

    proptest! {
        /// What is read is what the ordinary reader reads, and ends where that ends.
        #[test]
        fn scalars_are_those_of_the_ordinary_reader(
            text in "[ \n]{0,2}(-?[0-9.eE+-]{0,8}|\"[a-zé\\\\\u{1}\u{7f}]{0,20}\"?|true|false|null|nul|\\{\\}|\\[\\])[ ,]{0,2}",
        ) {
            let mut plain = Plain::new(&text);
            let Some(scalar) = plain.scalar() else { return Ok(()) };
            let mut json = serde_json::Deserializer::from_str(&text);
            let raw = <&RawValue as serde::Deserialize>::deserialize(&mut json).unwrap();
            prop_assert_eq!(scalar, Scalar::of(raw).unwrap());
            let end = raw.get().as_ptr() as usize + raw.get().len() - text.as_ptr() as usize;
            prop_assert_eq!(plain.rest(), &text[end..]);
        }
    }
}
