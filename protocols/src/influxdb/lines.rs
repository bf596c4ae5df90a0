//! A body of line protocol, taken apart into lines.
//!
//! A newline ends a line unless it stands inside a quoted column. Quotes elsewhere, in names
//! and tags, are characters like any other.
//!
//! A quote that was never meant to be closed must not swallow the good lines after it. So a
//! column reaches over a newline only if a comma, a blank or the end of the line follows its
//! closing quote; otherwise its line ends at the newline, and only that line will be refused.
//! (A quote in a later name, with a comma or a blank after it, can still be taken for it.)
//!
//! The cost is linear in the body, whatever is in it: the search for a closing quote ends at
//! the next quote that opens a column, at the latest, so no two searches see the same bytes.

use crate::frame::without_byte_order_mark;
use memchr::{memchr, memchr_iter};

/// The lines of `body` with the number of each, from 1, as an editor counts them. What cannot
/// be a point is passed over: blank lines and comments.
pub fn lines(body: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    Lines { rest: without_byte_order_mark(body), number: 1 }
}

struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let blank = self.rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            let text = self.rest.get(blank..).filter(|text| !text.is_empty())?;
            let number = self.number;
            let line = self.cut(text);
            if !matches!(line, [] | [b'#', ..] | [b'\r']) {
                return Some((number, line));
            }
        }
    }
}

impl<'a> Lines<'a> {
    fn cut(&mut self, text: &'a [u8]) -> &'a [u8] {
        let (end, newlines_within) = match text.first() {
            Some(b'#') => (newline(text, 0), 0),
            _ => line_end(text),
        };
        self.rest = text.get(end + 1..).unwrap_or(&[]);
        self.number += newlines_within + 1;
        text.get(..end).unwrap_or(text)
    }
}

/// The length of the line that `text` begins with, and how many newlines are within it.
fn line_end(text: &[u8]) -> (usize, usize) {
    let first = newline(text, 0);
    let mut end = first;
    let Some(mut at) = columns_start(text.get(..end).unwrap_or(text)) else { return (end, 0) };
    while let Some(open) = opening_quote(text, at, end) {
        let Some(close) = closing_quote(text, open + 1) else { break };
        if close > end {
            if !matches!(text.get(close + 1), None | Some(b',' | b' ' | b'\r' | b'\n')) {
                break;
            }
            end = newline(text, close);
        }
        at = close + 1;
    }
    let within = if end > first { text.get(..end).unwrap_or(text) } else { &[] };
    (end, memchr_iter(b'\n', within).count())
}

/// Where the next newline is, or the end.
fn newline(text: &[u8], from: usize) -> usize {
    memchr(b'\n', text.get(from..).unwrap_or(&[])).map_or(text.len(), |at| from + at)
}

/// Where name and tags end: at the first blank that no backslash escapes. `None` when it
/// does not matter, since there is no quote.
fn columns_start(line: &[u8]) -> Option<usize> {
    memchr(b'"', line)?;
    memchr_iter(b' ', line).find(|blank| !is_escaped(line, *blank))
}

/// The next quote before `end` that begins a column: one after a `=` that itself is no part
/// of the key.
fn opening_quote(text: &[u8], from: usize, end: usize) -> Option<usize> {
    let part = text.get(from..end)?;
    memchr_iter(b'"', part).map(|quote| from + quote).find(|quote| {
        let equals = quote.checked_sub(1).filter(|at| text.get(*at) == Some(&b'='));
        equals.is_some_and(|equals| !is_escaped(text, equals))
    })
}

/// The quote that closes a column which begins at `from`, after its opening quote.
pub(super) fn closing_quote(text: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let at = from + memchr::memchr2(b'"', b'\\', text.get(from..)?)?;
        if text.get(at) == Some(&b'"') {
            return Some(at);
        }
        from = at + 2;
    }
}

/// Whether a backslash stands before; in names, one that is itself escaped does not exist.
pub(super) fn is_escaped(text: &[u8], at: usize) -> bool {
    at.checked_sub(1).and_then(|before| text.get(before)) == Some(&b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &[(usize, &str)]) {
        let found: Vec<_> =
            lines(body.as_bytes()).map(|(n, line)| (n, str::from_utf8(line).unwrap())).collect();
        assert_eq!(found, expected, "{body:?}");
    }

    #[test]
    fn lines_are_numbered_and_what_is_no_point_is_passed_over() {
        check("", &[]);
        check("\n\n", &[]);
        check("a f=1", &[(1, "a f=1")]);
        check("a f=1\n\n \t\nb f=1\n", &[(1, "a f=1"), (4, "b f=1")]);
        check("# it's f=\"\n \t# b\n  a f=1\n#", &[(3, "a f=1")]);
        check("a f=1\r\n\r\nb f=1 \r\n", &[(1, "a f=1\r"), (3, "b f=1 \r")]);
        check("\u{feff}a f=1", &[(1, "a f=1")]);
    }

    #[test]
    fn a_quoted_column_reaches_over_newlines() {
        check("a f=\"1\n2\n3\",g=1 7\nb f=1", &[(1, "a f=\"1\n2\n3\",g=1 7"), (4, "b f=1")]);
        check("a f=\"1\n2\",g=\"3\n4\"\nb f=1", &[(1, "a f=\"1\n2\",g=\"3\n4\""), (4, "b f=1")]);
        check("a f=\"\n\"\nb f=1", &[(1, "a f=\"\n\""), (3, "b f=1")]);
        check("a f=\"\\\"\n\\\\\"\r\nb f=1", &[(1, "a f=\"\\\"\n\\\\\"\r"), (3, "b f=1")]);
        check("a f=\"\n\"", &[(1, "a f=\"\n\"")]);
    }

    #[test]
    fn quotes_elsewhere_are_ordinary() {
        check("a,t=\"x f=1\nb,t=\" f=2", &[(1, "a,t=\"x f=1"), (2, "b,t=\" f=2")]);
        check("a,t=x\\ \" f=1\nb f=2", &[(1, "a,t=x\\ \" f=1"), (2, "b f=2")]);
        check("a\" f=1\nb\" f=2", &[(1, "a\" f=1"), (2, "b\" f=2")]);
        check("a k\\=\"=1\nb f=2", &[(1, "a k\\=\"=1"), (2, "b f=2")]);
        check("a k\"=1\nb f=2", &[(1, "a k\"=1"), (2, "b f=2")]);
        check("a f=1\"\nb f=\"\"", &[(1, "a f=1\""), (2, "b f=\"\"")]);
    }

    #[test]
    fn an_open_quote_costs_its_own_line_only() {
        check("a f=\"x\nb f=2\n", &[(1, "a f=\"x"), (2, "b f=2")]);
        check("a f=\"x\nb f=\"y\"\n", &[(1, "a f=\"x"), (2, "b f=\"y\"")]);
        check("a f=\"x\nb f=\"\"\n", &[(1, "a f=\"x"), (2, "b f=\"\"")]);
        check("a f=\"x\\\"\nb f=2", &[(1, "a f=\"x\\\""), (2, "b f=2")]);
        check("a f=\"x\\", &[(1, "a f=\"x\\")]);
        check("a f=\"x\ny\",g=\"z\nb f=1", &[(1, "a f=\"x\ny\",g=\"z"), (3, "b f=1")]);
    }

    /// Two MiB that would take hours if every line looked for its quote to the end.
    #[test]
    fn open_quotes_cost_no_more_than_their_bytes() {
        let body = "m s=\"x\n".repeat(350_000);
        assert_eq!(lines(body.as_bytes()).count(), 350_000);
        let body = format!("m s=\"{}", "\nm s=\\\"\\".repeat(250_000));
        assert_eq!(lines(body.as_bytes()).count(), 250_001);
    }
}
