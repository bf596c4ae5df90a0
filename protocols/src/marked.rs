//! Points in a log: lines that begin with a mark, and are otherwise a JSON object.
//!
//! ```text
//! [taskcluster-task:stat] {"name": "build/times", "compile": 12.5}
//! ```
//!
//! The mark stands at the very start of its line, but for escape sequences of a terminal (ECMA-48),
//! which are taken out of the whole line; a CR before the LF is, too, and so is what some editors and
//! shells write before a text (the byte order mark). Blanks follow it, or the
//! object does at once; a line that goes on otherwise (`STATUS` where the mark is `STAT`) is a line
//! like all others. What the object says is for the parser of points.
//!
//! Only the mark is looked for, not every line's end, so that a log that has little to say is
//! searched at the speed of memory.
//!
//! Limits: `max` bytes for an object; of an unfinished line no more than that is held.

use crate::frame::BYTE_ORDER_MARK;
use memchr::{memchr, memmem, memrchr};

/// What a marked line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// What begins as an object does, without the escape sequences and blanks around it.
    Object(&'a [u8]),
    /// Something else, or nothing.
    NoObject,
    /// More than the limit.
    TooLong,
}

/// Chunks of a log in, marked objects out. Where the chunks are cut makes no difference.
#[derive(Debug)]
pub struct Marked {
    finder: memmem::Finder<'static>,
    max: usize,
    line: Line,
    /// The beginning of a line that is marked, or may turn out to be.
    held: Vec<u8>,
    /// An object without the escape sequences that were in it.
    clean: Vec<u8>,
}

/// What is known of the unfinished line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Its beginning is held, which may be nothing.
    Held,
    /// It is not marked.
    Other,
    /// It is marked, and was reported as too long.
    TooLong,
}

/// How a line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// With the mark, which ends here.
    Marked(usize),
    /// With what may become one.
    Open,
    Other,
}

impl Marked {
    /// For objects of at most `max` bytes.
    pub fn new(mark: &[u8], max: usize) -> Self {
        let finder = memmem::Finder::new(mark).into_owned();
        Self { finder, max, line: Line::Held, held: Vec::new(), clean: Vec::new() }
    }

    /// Takes what was read and hands on what it completes.
    pub fn feed(&mut self, chunk: &[u8], mut on_found: impl FnMut(Found<'_>)) {
        let Some(mut rest) = self.end_line(chunk, &mut on_found) else { return };
        while let Some(at) = self.finder.find(rest) {
            let (before, from) = rest.split_at_checked(at).unwrap_or((rest, &[]));
            let start = memrchr(b'\n', before).map_or(0, |end| end + 1);
            let Some(end) = memchr(b'\n', from).map(|end| at + end) else {
                return self.hold(rest.get(start..).unwrap_or(&[]), &mut on_found);
            };
            let line = rest.get(start..end).unwrap_or(&[]);
            if let Head::Marked(mark) = self.head(line) {
                self.judge(line.get(mark..).unwrap_or(&[]), &mut on_found);
            }
            rest = rest.get(end + 1..).unwrap_or(&[]);
        }
        let start = memrchr(b'\n', rest).map_or(0, |end| end + 1);
        self.hold(rest.get(start..).unwrap_or(&[]), &mut on_found);
    }

    /// The log has ended: a last line without LF counts as one. All is as new.
    pub fn finish(&mut self, mut on_found: impl FnMut(Found<'_>)) {
        self.end_line(b"\n", &mut on_found);
    }

    /// Ends the unfinished line, if its end is here; answers what follows it.
    fn end_line<'c>(
        &mut self,
        chunk: &'c [u8],
        on_found: &mut impl FnMut(Found<'_>),
    ) -> Option<&'c [u8]> {
        if self.line == Line::Held && self.held.is_empty() {
            return Some(chunk);
        }
        let end = memchr(b'\n', chunk);
        let (piece, rest) = chunk.split_at_checked(end.unwrap_or(chunk.len()))?;
        if self.line == Line::Held {
            self.keep(piece, on_found);
        }
        end?;
        if let (Line::Held, Head::Marked(mark)) = (self.line, self.head(&self.held)) {
            let held = std::mem::take(&mut self.held);
            self.judge(held.get(mark..).unwrap_or(&[]), on_found);
        }
        self.line = Line::Held;
        self.held = Vec::new();
        rest.get(1..)
    }

    /// Holds the beginning of a line that has no end yet.
    fn hold(&mut self, line: &[u8], on_found: &mut impl FnMut(Found<'_>)) {
        self.line = Line::Held;
        self.keep(line, on_found);
    }

    /// Adds to what is held, as long as it may be of use.
    fn keep(&mut self, piece: &[u8], on_found: &mut impl FnMut(Found<'_>)) {
        let room = (self.max + HEAD_MAX).saturating_sub(self.held.len());
        let fits = piece.len() <= room;
        self.held.extend_from_slice(piece.get(..room).unwrap_or(piece));
        self.line = match self.head(&self.held) {
            Head::Marked(_) if !fits => {
                on_found(Found::TooLong);
                Line::TooLong
            }
            Head::Marked(_) => Line::Held,
            Head::Open if self.held.len() <= HEAD_MAX => Line::Held,
            Head::Open | Head::Other => Line::Other,
        };
        if self.line != Line::Held {
            self.held = Vec::new();
        }
    }

    /// How a line begins that may not be there to its end.
    fn head(&self, line: &[u8]) -> Head {
        let mark = self.finder.needle();
        let mut at = 0;
        loop {
            let rest = line.get(at..).unwrap_or(&[]);
            if at > HEAD_MAX - mark.len().min(HEAD_MAX) {
                return Head::Other;
            }
            if let Some(after) = rest.strip_prefix(mark) {
                return match after.first() {
                    None | Some(&(b' ' | b'\t' | b'{' | b'\r' | ESCAPE)) => {
                        Head::Marked(at + mark.len())
                    }
                    Some(_) => Head::Other,
                };
            }
            match escape(rest) {
                Some(0) if mark.starts_with(rest) => return Head::Open,
                Some(0) => return Head::Other,
                Some(len) => at += len,
                None => return Head::Open,
            }
        }
    }

    /// Reports what stands behind a mark.
    fn judge(&mut self, text: &[u8], on_found: &mut impl FnMut(Found<'_>)) {
        let object = match memchr(ESCAPE, text) {
            None => text,
            Some(_) => {
                without_escapes(text, &mut self.clean);
                &self.clean
            }
        };
        let object = object.trim_ascii();
        on_found(match object.first() {
            _ if object.len() > self.max => Found::TooLong,
            Some(b'{') => Found::Object(object),
            _ => Found::NoObject,
        });
    }
}

/// How long the escape sequence is that a text begins with: 0 if it does not begin with one, none
/// if it does not end in it.
fn escape(text: &[u8]) -> Option<usize> {
    let mark = BYTE_ORDER_MARK.as_bytes();
    if text.starts_with(mark) {
        return Some(mark.len());
    }
    if !text.is_empty() && mark.starts_with(text) {
        return None;
    }
    let [ESCAPE, rest @ ..] = text else { return Some(0) };
    match rest {
        [] => None,
        // A control sequence: parameters, intermediates, and a final byte.
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| !matches!(byte, b' '..=b'?'))?;
            Some(end + 3)
        }
        // A command of the operating system's, up to BEL or ESC \.
        [b']', rest @ ..] => {
            let end = rest.iter().position(|byte| matches!(*byte, BELL | ESCAPE))?;
            match rest.get(end..) {
                Some([ESCAPE, b'\\', ..]) => Some(end + 4),
                Some([ESCAPE]) => None,
                _ => Some(end + 3),
            }
        }
        // Intermediates and a final byte, as `ESC ( B`.
        rest => Some(rest.iter().position(|byte| !matches!(byte, b' '..=b'/'))? + 2),
    }
}

fn without_escapes(text: &[u8], clean: &mut Vec<u8>) {
    clean.clear();
    let mut rest = text;
    while let Some(at) = memchr(ESCAPE, rest) {
        let (plain, from) = rest.split_at_checked(at).unwrap_or((rest, &[]));
        clean.extend_from_slice(plain);
        rest = escape(from).and_then(|len| from.get(len..)).unwrap_or(&[]);
    }
    clean.extend_from_slice(rest);
}

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// What may stand on a line up to the end of its mark.
const HEAD_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 40;

    fn found<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let (mut marked, mut seen) = (Marked::new(b"[t:stat]", MAX), Vec::new());
        let mut note = |found: Found<'_>| {
            seen.push(match found {
                Found::Object(object) => String::from_utf8_lossy(object).into_owned(),
                other => format!("{other:?}"),
            });
        };
        for chunk in chunks {
            marked.feed(chunk, &mut note);
            assert!(marked.held.len() <= MAX + HEAD_MAX);
        }
        marked.finish(&mut note);
        seen
    }

    #[test]
    fn objects_behind_the_mark() {
        let check = |log: &str, expected: &[&str]| {
            assert_eq!(found([log.as_bytes()]), expected, "{log:?}");
        };
        check("", &[]);
        check("make all\ndone\n", &[]);
        check("[t:stat] {\"a\":1}\n", &["{\"a\":1}"]);
        check("x\n[t:stat]   {\"a\":1}  \r\ny\n[t:stat]{}", &["{\"a\":1}", "{}"]);
        check("see [t:stat] {}\n [t:stat] {}\n", &[]);
        check("\x1b[32m[t:stat] {\"a\":\x1b[1m1}\x1b[0m\r\n", &["{\"a\":1}"]);
        check("\x1b]0;title\x07\x1b]8;;x\x1b\\\x1b(B[t:stat] {}\n", &["{}"]);
        check("[t:stat] a=1\n[t:stat]\n[t:stat] \r\n", &["NoObject", "NoObject", "NoObject"]);
        check("\u{feff}[t:stat] {\"a\":\"\u{feff}\"}\n", &["{\"a\":\"\u{feff}\"}"]);
        check("[t:stat]us {}\n", &[]);
        check("[t:stat] see [t:stat] {}\n[t:stat] {}\n", &["NoObject", "{}"]);
        let fits = format!("{{{}}}", "x".repeat(MAX - 2));
        check(&format!("[t:stat] {fits}\n"), &[&fits]);
        let long = format!("{{{}}}", "x".repeat(MAX - 1));
        check(&format!("[t:stat] {long}\n[t:stat] {{}}\n"), &["TooLong", "{}"]);
        let endless = format!("[t:stat] {{{}", "x".repeat(MAX + HEAD_MAX + 9));
        check(&format!("{endless}\n[t:stat] {{}}\n"), &["TooLong", "{}"]);
    }

    #[test]
    fn a_line_that_never_ends_is_not_held() {
        let long = "x".repeat(100_000);
        let escapes = "\x1b[0m".repeat(10_000);
        assert!(found([long.as_bytes(), b" [t:stat] {}", long.as_bytes()]).is_empty());
        assert!(found([escapes.as_bytes(), b"[t:stat] {}\n"]).is_empty());
        assert!(found([&b"\x1b["[..], "1".repeat(100_000).as_bytes()]).is_empty());
    }

    /// The same, said as simply as possible.
    fn expected(log: &[u8]) -> Vec<String> {
        let mut lines: Vec<_> = log.split(|byte| *byte == b'\n').collect();
        lines.pop_if(|last| last.is_empty());
        let mut seen = Vec::new();
        for line in lines {
            let mut line = line;
            while let Some(len @ 1..) = escape(line) {
                line = &line[len..];
            }
            let Some(object) = line.strip_prefix(b"[t:stat]") else { continue };
            if !matches!(object.first(), None | Some(&(b' ' | b'{' | b'\r' | ESCAPE))) {
                continue;
            }
            let mut clean = Vec::new();
            without_escapes(object, &mut clean);
            let clean = clean.trim_ascii();
            seen.push(match clean.first() {
                _ if clean.len() > MAX => "TooLong".to_owned(),
                Some(b'{') => String::from_utf8_lossy(clean).into_owned(),
                _ => "NoObject".to_owned(),
            });
        }
        seen
    }

    proptest! {
        /// However a log is cut into chunks, what is found is what its lines say one by one.
        #[test]
        fn chunks_make_no_difference(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just("\n"), Just("\r\n"), Just("[t:stat]"), Just("[t:stat] {"), Just("[t:"),
                    Just("\x1b[1m"), Just("\x1b"), Just("\u{feff}"), Just(" "), Just("}"),
                    Just("make all, then more of it "),
                ],
                0..40,
            ),
            sizes in proptest::collection::vec(1_usize..12, 1..9),
        ) {
            let log = pieces.concat();
            let mut sizes = sizes.iter().cycle();
            let mut rest = log.as_bytes();
            let chunks = std::iter::from_fn(|| {
                let size = *sizes.next().unwrap();
                let (chunk, left) = rest.split_at(size.min(rest.len()));
                rest = left;
                (!chunk.is_empty()).then_some(chunk)
            });
            prop_assert_eq!(found(chunks), expected(log.as_bytes()));
            prop_assert_eq!(found([log.as_bytes()]), expected(log.as_bytes()));
        }
    }
}
