//! Somebody else's words, made fit to be shown: in a terminal, on one line of a log, as the value of a tag.
//!
//! A control character could command the terminal, or begin a line of its own; it is shown as Rust writes
//! it (`\n`, `\u{1b}`), so that what was said can still be told from what was not. Where words are
//! bounded, no such sequence is cut in two.

/// All of it.
pub fn escaped(text: &str) -> String {
    beginning(text, usize::MAX)
}

/// No more than so many characters, of its beginning.
pub fn beginning(text: &str, most: usize) -> String {
    let mut left = most;
    text.chars().map(shown).take_while(|piece| fits(piece, &mut left)).collect()
}

/// No more than so many characters, of its end.
pub fn end(text: &str, most: usize) -> String {
    let mut left = most;
    let pieces = text.chars().rev().map(shown).take_while(|piece| fits(piece, &mut left));
    let mut pieces: Vec<_> = pieces.collect();
    pieces.reverse();
    pieces.concat()
}

fn shown(character: char) -> String {
    match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    }
}

fn fits(piece: &str, left: &mut usize) -> bool {
    let rest = left.checked_sub(piece.chars().count());
    *left = rest.unwrap_or(0);
    rest.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_elses_words_command_anything() {
        for (text, expected) in [
            ("", ""),
            ("a plain word, é and 日本", "a plain word, é and 日本"),
            ("two\nlines\r\n", "two\\nlines\\r\\n"),
            ("a\ttab\0", "a\\ttab\\u{0}"),
            ("\x1b[2J\x7f", "\\u{1b}[2J\\u{7f}"),
            ("c1: \u{9b}2J", "c1: \\u{9b}2J"),
            ("a \\n that was written", "a \\n that was written"),
        ] {
            assert_eq!(escaped(text), expected);
            assert_eq!(end(text, usize::MAX), expected);
            assert!(!escaped(text).contains(char::is_control));
        }
    }

    #[test]
    fn what_is_long_is_cut_between_characters() {
        for (text, most, first, last) in [
            ("abcdef", 4, "abcd", "cdef"),
            ("abcd", 4, "abcd", "abcd"),
            ("éééé", 3, "ééé", "ééé"),
            ("a\nb\nc", 4, "a\\nb", "b\\nc"),
            ("a\nb\nc", 3, "a\\n", "\\nc"),
            ("\x1b\x1b", 8, "\\u{1b}", "\\u{1b}"),
            ("ab", 0, "", ""),
        ] {
            assert_eq!(
                (&*beginning(text, most), &*end(text, most)),
                (first, last),
                "{text:?} {most}"
            );
        }
    }
}
