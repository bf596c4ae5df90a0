//! The five spellings of tags.
//!
//! All of those inside a name need `key=value`. A name without a `=` after its separator has
//! no tags: `lang.c#` and `list[0]` are names. One with a `=` is meant as a list of tags, and
//! a piece of it that is not `key=value` refuses the line.

use super::{Dialects, Limits};
use crate::token::split_once;
use crate::{ParseError, PointWriter};
use std::borrow::Cow;

/// How a list of tags is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spelling {
    between: u8,
    assign: u8,
    bare: bool,
}

impl Spelling {
    /// `k:v,bare`
    pub(super) const DOGSTATSD: Self = Self { between: b',', assign: b':', bare: true };
    /// `k=v,k2=v2`
    const COMMAS: Self = Self { between: b',', assign: b'=', bare: false };
    /// `k=v;k2=v2`
    const SEMICOLONS: Self = Self { between: b';', assign: b'=', bare: false };
}

/// A name, and the list of tags that was found inside it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subject<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) tags: Option<(&'a str, Spelling)>,
}

/// Takes the tags out of a name.
pub(super) fn split_name<'a>(text: &'a str, dialects: &Dialects) -> Subject<'a> {
    let untagged = Subject { name: Cow::Borrowed(text), tags: None };
    if memchr::memchr(b'=', text.as_bytes()).is_none() {
        return untagged;
    }
    let openers = text.bytes().enumerate().filter(|(_, byte)| opens(*byte, dialects));
    openers.filter_map(|(at, _)| split_at(text, at)).next().unwrap_or(untagged)
}

/// Adds a list of tags. The last of a key wins, an empty value is none, empty pieces are
/// skipped.
pub(super) fn add(
    list: &str,
    spelling: Spelling,
    limits: &Limits,
    writer: &mut PointWriter<'_>,
) -> Result<(), ParseError> {
    let mut list = list;
    while !list.is_empty() {
        let (piece, more) = split_once(list, spelling.between).unwrap_or((list, ""));
        list = more;
        if piece.is_empty() {
            continue;
        }
        let (key, value) = pair(piece, spelling)?;
        writer.tag(key, value);
        if writer.tag_count() > limits.tags {
            return Err(ParseError::TooManyTags);
        }
    }
    Ok(())
}

fn pair(piece: &str, spelling: Spelling) -> Result<(&str, Option<&str>), ParseError> {
    match split_once(piece, spelling.assign) {
        Some(("", _)) => Err(ParseError::InvalidTag),
        Some((key, "")) => Ok((key, None)),
        Some((key, value)) => Ok((key, Some(value))),
        None if spelling.bare => Ok((piece, None)),
        None => Err(ParseError::InvalidTag),
    }
}

fn opens(byte: u8, dialects: &Dialects) -> bool {
    match byte {
        b',' => dialects.influxdb,
        b';' => dialects.graphite,
        b'[' => dialects.signalfx,
        b'#' => dialects.librato,
        _ => false,
    }
}

/// Splits at a separator, if a list of tags follows it.
fn split_at(text: &str, at: usize) -> Option<Subject<'_>> {
    let (head, tail) = text.split_at_checked(at)?;
    let list = tail.get(1..)?;
    let (list, spelling, name) = match tail.as_bytes().first()? {
        b'[' => {
            let (list, end) = split_once(list, b']')?;
            (list, Spelling::COMMAS, join(head, end))
        }
        b';' => (list, Spelling::SEMICOLONS, Cow::Borrowed(head)),
        _ => (list, Spelling::COMMAS, Cow::Borrowed(head)),
    };
    list.contains('=').then_some(Subject { name, tags: Some((list, spelling)) })
}

/// What stands on both sides of the brackets; only copied if both sides do.
fn join<'a>(head: &'a str, end: &'a str) -> Cow<'a, str> {
    match (head, end) {
        (one, "") | ("", one) => Cow::Borrowed(one),
        _ => Cow::Owned([head, end].concat()),
    }
}
