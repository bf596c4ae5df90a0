//! Events and service checks of DogStatsD: recognised and checked, but no backend takes them.
//!
//! Their lengths are bytes, and they may hold `|`, so they must never reach the grammar of
//! measurements. Metadata behind the text is not interpreted.

use crate::ParseError;
use crate::token::split_once;

/// `_e{5,4}:title|text|metadata`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Never empty.
    pub title: &'a str,
    /// As sent: a newline is the two characters `\n`.
    pub text: &'a str,
    /// The fields behind the text, joined by `|`.
    pub rest: &'a str,
}

/// `_sc|name|status|metadata`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceCheck<'a> {
    /// Never empty.
    pub name: &'a str,
    /// 0 ok, 1 warning, 2 critical, 3 unknown.
    pub status: u8,
    /// The fields behind the status, joined by `|`, the message `m:…` among them.
    pub rest: &'a str,
}

impl<'a> ServiceCheck<'a> {
    /// The text of the check, if there is one.
    pub fn message(&self) -> Option<&'a str> {
        self.rest.split('|').find_map(|field| field.strip_prefix("m:"))
    }
}

/// Parses an event.
///
/// # Errors
///
/// [`ParseError::InvalidUtf8`], or [`ParseError::InvalidEvent`] for anything else.
pub fn parse_event(line: &[u8]) -> Result<Event<'_>, ParseError> {
    event(text(line)?).ok_or(ParseError::InvalidEvent)
}

/// Parses a service check.
///
/// # Errors
///
/// [`ParseError::InvalidUtf8`], or [`ParseError::InvalidEvent`] for anything else.
pub fn parse_service_check(line: &[u8]) -> Result<ServiceCheck<'_>, ParseError> {
    service_check(text(line)?).ok_or(ParseError::InvalidEvent)
}

pub(super) fn is_event(line: &[u8]) -> bool {
    line.starts_with(EVENT.as_bytes())
}

pub(super) fn is_service_check(line: &[u8]) -> bool {
    line.starts_with(CHECK.as_bytes())
}

fn text(line: &[u8]) -> Result<&str, ParseError> {
    std::str::from_utf8(line).map_err(|_| ParseError::InvalidUtf8)
}

fn event(line: &str) -> Option<Event<'_>> {
    let (lengths, body) = line.strip_prefix(EVENT)?.split_once("}:")?;
    let (title_bytes, text_bytes) = lengths.split_once(',')?;
    let (title, body) = body.split_at_checked(length(title_bytes)?)?;
    let (text, rest) = body.strip_prefix('|')?.split_at_checked(length(text_bytes)?)?;
    let rest = metadata(rest)?;
    (!title.is_empty()).then_some(Event { title, text, rest })
}

fn service_check(line: &str) -> Option<ServiceCheck<'_>> {
    let (name, body) = split_once(line.strip_prefix(CHECK)?, b'|')?;
    let (status, rest) = body.split_at_checked(1)?;
    let status = status.parse().ok().filter(|status| *status <= 3)?;
    let rest = metadata(rest)?;
    (!name.is_empty()).then_some(ServiceCheck { name, status, rest })
}

fn length(digits: &str) -> Option<usize> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Nothing, or fields that a `|` sets off.
fn metadata(text: &str) -> Option<&str> {
    if text.is_empty() { Some("") } else { text.strip_prefix('|') }
}

const EVENT: &str = "_e{";
const CHECK: &str = "_sc|";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_by_bytes() {
        let cases = [
            ("_e{5,4}:Disk!|full|t:warning|#host:a", ("Disk!", "full", "t:warning|#host:a")),
            ("_e{3,3}:a|b|x|y", ("a|b", "x|y", "")),
            ("_e{4,2}:Œuf|ok", ("Œuf", "ok", "")),
            ("_e{1,6}:a|b\\nc}:", ("a", "b\\nc}:", "")),
            ("_e{1,0}:a|", ("a", "", "")),
        ];
        for (line, (title, text, rest)) in cases {
            assert_eq!(parse_event(line.as_bytes()), Ok(Event { title, text, rest }), "{line}");
        }
    }

    #[test]
    fn broken_events() {
        let cases = [
            "_e{99,2}:short|ok",
            "_e{2,2}:ab|o",
            "_e{2,2}:ab|okay",
            "_e{1,2}:Œ|ok",
            "_e{0,2}:|ok",
            "_e{+2,2}:ab|ok",
            "_e{2}:ab|ok",
            "_e{2,2}ab|ok",
            "_e{,}:|",
            "_e{99999999999999999999999,2}:a|ok",
            "_e{",
        ];
        for line in cases {
            assert_eq!(parse_event(line.as_bytes()), Err(ParseError::InvalidEvent), "{line}");
        }
        assert_eq!(parse_event(b"_e{1,1}:\xff|a"), Err(ParseError::InvalidUtf8));
    }

    #[test]
    fn service_checks() {
        let check = parse_service_check(b"_sc|db.up|2|d:1|#a:b|m:no route|c:1").unwrap();
        assert_eq!((check.name, check.status, check.message()), ("db.up", 2, Some("no route")));
        assert_eq!(parse_service_check(b"_sc|db.up|0").unwrap().message(), None);
        for line in
            ["_sc|", "_sc|a", "_sc|a|", "_sc|a|4", "_sc|a|+1", "_sc|a|00", "_sc||0", "_sc|a|œ"]
        {
            let refused = parse_service_check(line.as_bytes());
            assert_eq!(refused, Err(ParseError::InvalidEvent), "{line}");
        }
    }
}
