//! What was refused of a body, and why: every refusal is counted, the first ones are listed.

use crate::error::ParseError;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Why one item was refused, for a counter and for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: ParseError,
    pub(crate) text: Cow<'static, str>,
}

impl Refusal {
    pub(crate) fn new(reason: ParseError, text: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, text: text.into() }
    }

    /// Says which row of a series it was, from 0 as all places in a body.
    pub(crate) fn in_row(self, place: usize) -> Self {
        Self { text: format!("row {place}: {}", self.text).into(), ..self }
    }
}

impl From<ParseError> for Refusal {
    fn from(reason: ParseError) -> Self {
        Self::new(reason, reason.to_string())
    }
}

/// One refused item of a body.
#[derive(Clone, Debug)]
pub struct ItemError<'a> {
    /// Its place in the array, from 0; for JSON lines its line, from 0, blank ones included.
    pub index: usize,
    /// What to count.
    pub reason: ParseError,
    /// What to tell a person; holds no control characters.
    pub message: Cow<'static, str>,
    /// The item as it was sent, where it was JSON at all.
    pub item: Option<&'a RawValue>,
}

/// All refusals of one body.
///
/// A body of nothing but `null,null,…` makes millions of them, so only the first
/// [`LISTED`](Self::LISTED) are kept; the counts are always complete.
#[derive(Clone, Debug)]
pub struct Refusals<'a> {
    listed: Vec<ItemError<'a>>,
    counts: [usize; ParseError::ALL.len()],
}

impl<'a> Refusals<'a> {
    /// How many are kept one by one.
    pub const LISTED: usize = 1000;

    /// The first of them, in the order of the body.
    pub fn listed(&self) -> &[ItemError<'a>] {
        &self.listed
    }

    /// How many items were refused.
    pub fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Whether nothing was refused.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// How many were refused for each reason that occurred.
    pub fn by_reason(&self) -> impl Iterator<Item = (ParseError, usize)> {
        ParseError::ALL.iter().copied().zip(self.counts).filter(|(_, count)| *count > 0)
    }

    pub(crate) fn add(&mut self, index: usize, item: Option<&'a RawValue>, refusal: Refusal) {
        if let Some(count) = self.counts.get_mut(refusal.reason.index()) {
            *count += 1;
        }
        if self.listed.len() < Self::LISTED {
            let Refusal { reason, text: message } = refusal;
            self.listed.push(ItemError { index, reason, message, item });
        }
    }
}

impl Default for Refusals<'_> {
    fn default() -> Self {
        Self { listed: Vec::new(), counts: [0; ParseError::ALL.len()] }
    }
}

/// A client's text for a message: quoted, escaped, and cut where it gets long.
pub(crate) fn quoted(text: &str) -> String {
    let head: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    let dots = if head.len() < text.len() { "…" } else { "" };
    format!("{head:?}{dots}")
}

/// Enough to recognise a name, and too little to fill a log.
const QUOTED_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_ends_and_the_counts_do_not() {
        let mut refusals = Refusals::default();
        for index in 0..Refusals::LISTED + 5 {
            refusals.add(index, None, ParseError::NotAPoint.into());
        }
        refusals.add(7, None, ParseError::EmptyName.into());
        assert_eq!(refusals.listed().len(), Refusals::LISTED);
        assert_eq!(refusals.total(), Refusals::LISTED + 6);
        let counts: Vec<_> = refusals.by_reason().collect();
        let expected = [(ParseError::EmptyName, 1), (ParseError::NotAPoint, Refusals::LISTED + 5)];
        assert_eq!(counts, expected);
    }

    #[test]
    fn quoted_text_is_short_and_harmless() {
        assert_eq!(quoted("a\n\u{1b}b"), r#""a\n\u{1b}b""#);
        assert_eq!(quoted(&"x".repeat(70)), format!("\"{}\"…", "x".repeat(64)));
    }
}
