//! Names made fit for the line protocol, and escaped.
//!
//! A backslash escapes only what needs it and is itself elsewhere. So it must never come to
//! stand before something special. What a server of 1.6 makes of `a\\,b`, where the first
//! backslash belongs to the name: in a measurement it loses it and finds the series no more,
//! in a field key it refuses the line, in a tag it keeps it; and it does the same with a
//! blank, with `=`, and in part with `"`. Such a backslash is replaced, in every place alike,
//! so that one name is one name wherever it stands.

use crate::scan;

/// What stands for a character that cannot be sent.
const REPLACEMENT: char = '_';

/// Appends a measurement; answers whether it had to be changed.
pub(super) fn measurement(name: &str, out: &mut Vec<u8>) -> bool {
    // At the start of a body, readers take U+FEFF for a byte order mark and drop it.
    match name.strip_prefix(['#', '\u{feff}']) {
        Some(rest) => {
            push(REPLACEMENT, out);
            fit(rest, false, out);
            true
        }
        None => fit(name, false, out),
    }
}

/// Appends a tag key or a field key; answers whether it had to be changed.
pub(super) fn key(key: &str, out: &mut Vec<u8>) -> bool {
    if key == "time" {
        out.extend_from_slice(b"time_");
        return true;
    }
    fit(key, true, out)
}

/// Appends a tag value.
pub(super) fn tag_value(value: &str, out: &mut Vec<u8>) {
    fit(value, true, out);
}

/// Appends a text column with its quotes. Only the quote and the backslash are escaped.
pub(super) fn text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
            c if breaks_line(c) => out.push(b' '),
            c => push(c, out),
        }
    }
    out.push(b'"');
}

/// Appends `name`, with `=` escaped in keys and tag values but not in measurements.
/// Answers whether a character had to be replaced.
fn fit(name: &str, escape_equals: bool, out: &mut Vec<u8>) -> bool {
    if is_plain(name) || name.bytes().all(is_plain_byte) {
        out.extend_from_slice(name.as_bytes());
        return false;
    }
    let mut replaced = false;
    let mut rest = name.chars();
    while let Some(c) = rest.next() {
        let next = rest.as_str().chars().next();
        if is_unfit(c, next) {
            replaced = true;
            push(REPLACEMENT, out);
            continue;
        }
        if matches!(c, ',' | ' ') || (c == '=' && escape_equals) {
            out.push(b'\\');
        }
        push(c, out);
    }
    replaced
}

/// Whether `c`, standing before `next`, cannot be sent.
fn is_unfit(c: char, next: Option<char>) -> bool {
    match c {
        '\\' => matches!(next, None | Some(',' | ' ' | '=' | '"')),
        _ => c.is_control() || breaks_line(c),
    }
}

/// What some reader of lines takes for the end of one, be it a server, a log or a terminal.
fn breaks_line(c: char) -> bool {
    matches!(c, '\n' | '\x0b' | '\x0c' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether nothing of it needs a second look: ASCII without blanks, commas, `=` and backslashes,
/// which is what nearly all names are. It may stand in any place, but for `time` as a key.
pub(super) fn is_plain(text: &str) -> bool {
    // Without a branch, so that many bytes are compared at once.
    let mark = |byte| (byte == b',') | (byte == b'=') | (byte == b'\\');
    let odd = |byte| (byte <= b' ') | (byte >= 0x7f) | mark(byte);
    !scan::any(text.as_bytes(), odd)
}

/// Bytes that need no second look. C2 and E2 begin the control characters and line breaks
/// beyond ASCII.
fn is_plain_byte(byte: u8) -> bool {
    match byte {
        b',' | b'=' | b'\\' | 0xc2 | 0xe2 => false,
        _ => byte.is_ascii_graphic() || !byte.is_ascii(),
    }
}

fn push(c: char, out: &mut Vec<u8>) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(write: impl Fn(&str, &mut Vec<u8>), cases: &[(&str, &str)]) {
        for (input, expected) in cases {
            let mut out = Vec::new();
            write(input, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), *expected, "{input:?}");
        }
    }

    /// What is the same in all four places.
    const EVERYWHERE: &[(&str, &str)] = &[
        ("plain.name/1-a:b;c", "plain.name/1-a:b;c"),
        ("a b,c", r"a\ b\,c"),
        (" ", r"\ "),
        (",", r"\,"),
        ("say \"hi\"", "say\\ \"hi\""),
        ("\"quoted\"", "\"quoted\""),
        (r"C:\dir\file", r"C:\dir\file"),
        (r"\\host\share", r"\\host\share"),
        (r"ends\", "ends_"),
        (r"ends\\", r"ends\_"),
        (r"a\,b", r"a_\,b"),
        (r"a\ b", r"a_\ b"),
        (r"a\\ b", r"a\_\ b"),
        ("a\\\"b", "a_\"b"),
        ("a\nb", "a_b"),
        ("a\r\nevil value=666 1\n", r"a__evil\ value=666\ 1_"),
        ("nul\0esc\x1b[2Jdel\x7ftab\t", "nul_esc_[2Jdel_tab_"),
        ("next\u{85}line\u{2028}para\u{2029}c1\u{9b}", "next_line_para_c1_"),
        ("größe-é-€-\u{1f600}-\u{a0}", "größe-é-€-\u{1f600}-\u{a0}"),
    ];

    #[test]
    fn measurements_escape_comma_and_blank() {
        let cases: Vec<_> = EVERYWHERE
            .iter()
            .copied()
            .chain([("a=b", "a=b"), (r"a\=b", "a_=b"), ("#a#b", "_a#b"), ("time", "time")])
            .chain([("\u{feff}", "_"), ("a\u{feff}", "a\u{feff}")])
            .collect();
        check(|text, out| _ = measurement(text, out), &cases);
    }

    #[test]
    fn keys_and_tag_values_escape_equals_too() {
        let both = EVERYWHERE
            .iter()
            .map(|(input, expected)| (*input, expected.replace("value=666", r"value\=666")))
            .chain([
                ("k 1,=", r"k\ 1\,\=".to_owned()),
                (r"a\=b", r"a_\=b".to_owned()),
                ("#a", "#a".to_owned()),
            ])
            .collect::<Vec<_>>();
        let both: Vec<_> = both.iter().map(|(input, expected)| (*input, &**expected)).collect();
        check(|text, out| _ = key(text, out), &both);
        check(tag_value, &both);
        check(|text, out| _ = key(text, out), &[("time", "time_"), ("Time", "Time")]);
        check(tag_value, &[("time", "time")]);
    }

    #[test]
    fn text_escapes_quote_and_backslash_only() {
        check(
            text,
            &[
                ("", r#""""#),
                (r#"he said "x\y""#, r#""he said \"x\\y\"""#),
                ("a,b=c d", r#""a,b=c d""#),
                ("one\ntwo\r\nthree\u{2028}four", r#""one two  three four""#),
                ("tab\tnul\0", "\"tab\tnul\0\""),
                (r"ends\", r#""ends\\""#),
            ],
        );
    }

    #[test]
    fn a_key_tells_whether_it_was_changed() {
        for (text, changed) in [("a b", false), ("a\nb", true), ("time", true), (r"a\", true)] {
            assert_eq!(key(text, &mut Vec::new()), changed, "{text:?}");
        }
    }
}
