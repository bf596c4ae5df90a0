//! What a telnet client is told. A good put gets no answer; every other answer is made of
//! lines that end in LF, in the words that clients of OpenTSDB look for.
//!
//! What a client sent is only repeated through [`escape`], so that an answer never carries
//! raw control bytes to a terminal or a log.

use super::put::PutError;
use crate::error::ParseError;
use crate::point::UnixNanos;
use std::io::Write;

/// The one line for a put that was refused, in OpenTSDB's two prefixes.
pub fn reply_put_error(error: &PutError<'_>, out: &mut Vec<u8>) {
    let unreadable = error.is_unreadable_number();
    let prefix = if unreadable { "put: invalid value: " } else { "put: illegal argument: " };
    out.extend_from_slice(prefix.as_bytes());
    match error.reason {
        ParseError::TooFewWords => {
            let words = error.at.split(|byte| matches!(byte, b' ' | b'\t'));
            let got = words.filter(|word| !word.is_empty()).count().saturating_sub(1);
            say(out, format_args!("not enough arguments (need at least 3, got {got})"));
        }
        ParseError::MissingTags => say(out, format_args!("Missing tags")),
        reason => {
            say(out, format_args!("{reason}: "));
            escape(error.at, out);
        }
    }
    out.push(b'\n');
}

/// For a first word that is no command.
pub fn reply_unknown(word: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"unknown command: ");
    escape(word, out);
    out.extend_from_slice(b".  Try `help'.\n");
}

/// For a command that OpenTSDB has and this gateway does not take (`rollup`, `histogram`,
/// `diediedie`), or a line that is longer than the listener's limit: why, in one line.
pub fn reply_refused(command: &str, reason: &str, out: &mut Vec<u8>) {
    say(out, format_args!("{command}: illegal argument: {reason}\n"));
}

/// Two lines, as collectors expect, who only look whether there is an answer.
pub fn reply_version(version: &str, out: &mut Vec<u8>) {
    say(out, format_args!("pointsman {version}, takes what OpenTSDB 2.4 takes by put\n"));
    say(out, format_args!("Built as pointsman {version}\n"));
}

/// The list of commands.
pub fn reply_help(out: &mut Vec<u8>) {
    out.extend_from_slice(b"available commands: dropcaches exit help put stats status version \n");
}

/// One word: `ok`, `startup`, `shutting-down` and so on.
pub fn reply_status(status: &str, out: &mut Vec<u8>) {
    say(out, format_args!("{status}\n"));
}

/// There are no caches that a client could want dropped.
pub fn reply_dropcaches(out: &mut Vec<u8>) {
    out.extend_from_slice(b"Caches dropped.\n");
}

/// Lines of `metric timestamp value key=value`, ready to be put elsewhere.
pub fn reply_stats<'s>(
    stats: impl IntoIterator<Item = (&'s str, u64)>,
    (key, value): (&str, &str),
    now: UnixNanos,
    out: &mut Vec<u8>,
) {
    for (name, count) in stats {
        say(out, format_args!("{name} {} {count} {key}={value}\n", now.secs()));
    }
}

/// Appends text of a client so that it can be read and does no harm: bytes that are not UTF-8
/// and characters that do not print become escapes, and long text is cut.
pub fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    let most = out.len() + ESCAPED_BYTES_MAX;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            escape_char(c, out);
            if out.len() > most {
                return out.extend_from_slice("…".as_bytes());
            }
        }
        for byte in chunk.invalid() {
            say(out, format_args!("\\x{byte:02x}"));
        }
        if out.len() > most {
            return out.extend_from_slice("…".as_bytes());
        }
    }
}

fn escape_char(c: char, out: &mut Vec<u8>) {
    match c {
        '"' | '\'' => say(out, format_args!("{c}")),
        _ => say(out, format_args!("{}", c.escape_debug())),
    }
}

fn say(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector cannot fail.
    let _ = out.write_fmt(text);
}

/// Enough to recognise a word; a client that sends 64 KiB does not get them back.
const ESCAPED_BYTES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::super::{PutOptions, parse_put};
    use super::*;
    use crate::batch::Batch;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn refused_puts_are_told_why() {
        let strict = PutOptions { strict: true, tags: 1, ..PutOptions::default() };
        let check = |line: &[u8], expected: &str| {
            let error = parse_put(line, &strict, &mut Batch::new()).unwrap_err();
            let reply = written(|out| reply_put_error(&error, out));
            assert_eq!(reply, format!("put: {expected}\n"), "{line:?}");
        };
        check(b"put", "illegal argument: not enough arguments (need at least 3, got 0)");
        check(b"put  m 1", "illegal argument: not enough arguments (need at least 3, got 2)");
        check(b"put m 1 1", "illegal argument: Missing tags");
        check(b"put m 1 abc h=x", "invalid value: the value is not a finite decimal number: abc");
        check(
            b"put m 1 NaN h=x",
            "illegal argument: the value is not a finite decimal number: NaN",
        );
        check(
            b"put m 1 -1e400 h=x",
            "illegal argument: the value is not a finite decimal number: -1e400",
        );
        let bad_time = "the timestamp is not a positive number of seconds or milliseconds";
        check(b"put m abc 1 h=x", &format!("invalid value: {bad_time}: abc"));
        check(b"put m 0 1 h=x", &format!("illegal argument: {bad_time}: 0"));
        check(b"put m 10000000000 1", &format!("illegal argument: {bad_time}: 10000000000"));
        let bad_tag = "illegal argument: a tag has no key, or has to be key=value and is not";
        check(b"put m 1 1 foo=", &format!("{bad_tag}: foo="));
        check(b"put m 1 1 =v", &format!("{bad_tag}: =v"));
        check(b"put m 1 1 foo", &format!("{bad_tag}: foo"));
        check(
            b"put m 1 1 foo=bar foo=qux",
            "illegal argument: a tag key stands twice with different values: foo=qux",
        );
        check(
            b"put m\x1b[2J 1 1 h=x",
            "illegal argument: a control character in a name or tag: m\\u{1b}[2J",
        );
        check(b"put m\xff 1 1 h=x", "illegal argument: the line is not UTF-8: m\\xff");
    }

    #[test]
    fn commands_are_answered_in_opentsdbs_words() {
        let reply = written(|out| reply_unknown(b"get\x07", out));
        assert_eq!(reply, "unknown command: get\\u{7}.  Try `help'.\n");
        assert!(written(reply_help).starts_with("available commands: "));
        let version = written(|out| reply_version("0.1.0", out));
        assert!(version.ends_with('\n') && version.lines().count() == 2);
        let reply = written(|out| reply_refused("rollup", "rollups are not taken", out));
        assert_eq!(reply, "rollup: illegal argument: rollups are not taken\n");
        assert_eq!(written(|out| reply_status("ok", out)), "ok\n");
        assert_eq!(written(reply_dropcaches), "Caches dropped.\n");
    }

    #[test]
    fn statistics_can_be_put() {
        let now = UnixNanos::from_secs(1_700_000_000);
        let stats = [("received", 5), ("rejected", 0)];
        let lines = written(|out| reply_stats(stats, ("listener", "tsdb"), now, out));
        let expected = "received 1700000000 5 listener=tsdb\nrejected 1700000000 0 listener=tsdb\n";
        assert_eq!(lines, expected);
        for line in lines.lines() {
            let put = format!("put {line}");
            parse_put(put.as_bytes(), &PutOptions::default(), &mut Batch::new()).unwrap();
        }
    }

    #[test]
    fn escaped_text_is_short_and_prints() {
        let check = |bytes: &[u8], expected: &str| {
            assert_eq!(written(|out| escape(bytes, out)), expected);
        };
        check("it's \"é\" 日本".as_bytes(), "it's \"é\" 日本");
        check(b"\0\x1b\r\n\\", "\\0\\u{1b}\\r\\n\\\\");
        check(b"a\xc3(\xff", "a\\xc3(\\xff");
        check("\u{202e}\u{85}".as_bytes(), "\\u{202e}\\u{85}");
        assert!(written(|out| escape(&[b'x'; 9000], out)).len() < 120);
        assert!(written(|out| escape(&[0xff; 9000], out)).len() < 120);
    }
}
