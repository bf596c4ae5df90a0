//! Leaf parsers for the line grammars: the smallest pieces, found with `memchr`.
//!
//! The grammars are written with nom's combinators on top of these. Nom's own `is_not` looks
//! at one character after the other; these look for one byte in a whole line, which was
//! measured to be more than twice as fast. All marks are ASCII, so a cut never falls inside
//! a character.

use crate::ParseError;
use nom::error::ErrorKind;

/// The remaining text and what was read, or the reason why the line is refused.
pub(crate) type Parse<'a, T> = nom::IResult<&'a str, T, ParseError>;

/// Everything before `mark`, or all there is. The mark itself stays.
pub(crate) fn until<'a>(mark: u8) -> impl Fn(&'a str) -> Parse<'a, &'a str> {
    move |text| Ok(cut(text, memchr::memchr(mark, text.as_bytes())))
}

/// Everything before the first of two marks, or all there is. The mark itself stays.
pub(crate) fn until_either<'a>(one: u8, other: u8) -> impl Fn(&'a str) -> Parse<'a, &'a str> {
    move |text| Ok(cut(text, memchr::memchr2(one, other, text.as_bytes())))
}

/// Just this one byte.
pub(crate) fn mark<'a>(mark: char) -> impl Fn(&'a str) -> Parse<'a, ()> {
    move |text| match text.strip_prefix(mark) {
        Some(rest) => Ok((rest, ())),
        None => Err(nom::Err::Error(NOTHING_FITS)),
    }
}

/// Ends the parse: no other branch of the grammar is tried.
pub(crate) fn refuse<T>(reason: ParseError) -> Result<T, nom::Err<ParseError>> {
    Err(nom::Err::Failure(reason))
}

/// Why nom gave up. Our grammars work on whole lines, so it never waits for more.
pub(crate) fn reason(error: nom::Err<ParseError>) -> ParseError {
    match error {
        nom::Err::Error(reason) | nom::Err::Failure(reason) => reason,
        nom::Err::Incomplete(_) => NOTHING_FITS,
    }
}

/// The text before the first `mark` and the text after it, if it is there.
pub(crate) fn split_once(text: &str, mark: u8) -> Option<(&str, &str)> {
    let at = memchr::memchr(mark, text.as_bytes())?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// Whether there is a control character: C0, DEL or C1.
///
/// The first loop has no exit, so that the compiler can look at many bytes at once.
pub(crate) fn has_control(text: &str) -> bool {
    let (mut control, mut high) = (false, false);
    for byte in text.bytes() {
        control |= byte < b' ' || byte == 0x7f;
        high |= byte >= 0x80;
    }
    control || (high && text.chars().any(char::is_control))
}

/// What remains always lies in `text`, even when it is empty: nom measures by addresses.
fn cut(text: &str, at: Option<usize>) -> (&str, &str) {
    let (before, rest) = text.split_at_checked(at.unwrap_or(text.len())).unwrap_or((text, ""));
    (rest, before)
}

/// Lets nom's combinators carry our reasons. They only make one themselves when no branch
/// fits, and our grammars end in a branch that always does.
impl<I> nom::error::ParseError<I> for ParseError {
    fn from_error_kind(_: I, _: ErrorKind) -> Self {
        NOTHING_FITS
    }

    fn append(_: I, _: ErrorKind, other: Self) -> Self {
        other
    }
}

const NOTHING_FITS: ParseError = ParseError::MissingValue;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_leaves_the_mark() {
        assert_eq!(until(b'|')("a:b|c|d"), Ok(("|c|d", "a:b")));
        assert_eq!(until(b'|')("œ|"), Ok(("|", "œ")));
        assert_eq!(until(b'|')("abc"), Ok(("", "abc")));
        assert_eq!(until_either(b'|', b':')("ms:20|ms"), Ok((":20|ms", "ms")));
        assert_eq!(until_either(b'|', b':')(""), Ok(("", "")));
    }

    #[test]
    fn a_mark_is_taken_or_another_branch_is_tried() {
        assert_eq!(mark('@')("@0.5"), Ok(("0.5", ())));
        assert!(matches!(mark('@')("0.5"), Err(nom::Err::Error(_))));
    }

    #[test]
    fn control_characters_are_found_in_any_plane() {
        for text in ["\0", "a\tb", "a\u{7f}", "œ\u{85}", "\u{9f}"] {
            assert!(has_control(text), "{text:?}");
        }
        for text in ["", " a/b", "œuf", "\u{a0}", "日本"] {
            assert!(!has_control(text), "{text:?}");
        }
    }
}
