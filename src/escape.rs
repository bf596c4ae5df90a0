//! Somebody else's words, made fit to be shown: in a terminal, on one line of a log, as the value of a tag.
//!
//! A control character could command the terminal, or begin a line of its own; it is shown as Rust writes
//! it (`\n`, `\u{1b}`), so that what was said can still be told from what was not. Where words are
//! bounded, no such sequence is cut in two.

/// All of it.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// No more than so many characters, of its beginning.
pub fn beginning(text: &str, most: usize) -> String {
    let end = bytes_that_fit(text.chars(), most);
    escaped(text.get(..end).unwrap_or(text))
}

/// No more than so many characters, of its end.
pub fn end(text: &str, most: usize) -> String {
    let start = text.len() - bytes_that_fit(text.chars().rev(), most);
    escaped(text.get(start..).unwrap_or(text))
}

/// How many bytes those of the first characters have that are shown as no more than so many.
fn bytes_that_fit(characters: impl Iterator<Item = char>, most: usize) -> usize {
    let mut left = most;
    let fits = |character: &char| {
        let shown = if character.is_control() { character.escape_default().len() } else { 1 };
        let rest = left.checked_sub(shown);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    characters.take_while(fits).map(char::len_utf8).sum()
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
