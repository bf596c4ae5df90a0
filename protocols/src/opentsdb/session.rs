//! What a telnet line asks for.

/// The first word of a line. It is case-sensitive, as it is for OpenTSDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// A blank line, which wants nothing and gets no answer.
    Blank,
    /// A point: see [`parse_put`](super::parse_put).
    Put,
    /// A point made from many, which is not taken here.
    Rollup,
    /// A distribution as opaque bytes, which is not taken here.
    Histogram,
    /// Who answers? Collectors ask this to see whether the server lives.
    Version,
    /// The server's own statistics.
    Stats,
    /// The list of commands.
    Help,
    /// One word on the state of the server.
    Status,
    /// Close the connection.
    Exit,
    /// Forget what is cached; there is nothing to forget.
    Dropcaches,
    /// Shut the server down, which no client may.
    Diediedie,
    /// Anything else, as sent; may hold any byte, so [`escape`](super::escape) it.
    Unknown(&'a [u8]),
}

/// Says what a line wants. A line is what stood before a LF; a CR at its end is ignored.
pub fn command(line: &[u8]) -> Command<'_> {
    let line = line.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let word = end.and_then(|end| line.get(..end)).unwrap_or(line);
    match word {
        b"" => Command::Blank,
        b"put" => Command::Put,
        b"rollup" => Command::Rollup,
        b"histogram" => Command::Histogram,
        b"version" => Command::Version,
        b"stats" => Command::Stats,
        b"help" => Command::Help,
        b"status" => Command::Status,
        b"exit" => Command::Exit,
        b"dropcaches" => Command::Dropcaches,
        b"diediedie" => Command::Diediedie,
        _ => Command::Unknown(word),
    }
}

/// What follows the option negotiation (RFC 854) at the start of `bytes`.
///
/// Interactive telnet clients open with it, and no put ever starts with byte 255, so it may be
/// applied to any line. A sequence that is cut off at the end is removed too; an escaped 255
/// is data and stays.
pub fn strip_negotiation(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = after_negotiation(bytes) {
        bytes = rest;
    }
    bytes
}

fn after_negotiation(bytes: &[u8]) -> Option<&[u8]> {
    match *bytes {
        [IAC, IAC, ..] => None,
        [IAC, SUBNEGOTIATION, ref rest @ ..] => {
            let end = rest.windows(2).position(|pair| pair == [IAC, SUBNEGOTIATION_END]);
            Some(end.and_then(|end| rest.get(end + 2..)).unwrap_or(&[]))
        }
        [IAC, WILL..=DONT, ref rest @ ..] => Some(rest.get(1..).unwrap_or(&[])),
        [IAC, _, ref rest @ ..] => Some(rest),
        [IAC] => Some(&[]),
        _ => None,
    }
}

/// "Interpret as command".
const IAC: u8 = 255;
const SUBNEGOTIATION: u8 = 250;
const SUBNEGOTIATION_END: u8 = 240;
/// WILL, WON'T, DO and DON'T have one byte more, the option.
const WILL: u8 = 251;
const DONT: u8 = 254;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        let check = |line: &[u8], expected| assert_eq!(command(line), expected, "{line:?}");
        check(b"put m 1 1", Command::Put);
        check(b" \tput\tm 1 1\r", Command::Put);
        check(b"version\r", Command::Version);
        check(b"stats", Command::Stats);
        check(b"help me", Command::Help);
        check(b"status", Command::Status);
        check(b"exit", Command::Exit);
        check(b"dropcaches", Command::Dropcaches);
        check(b"diediedie", Command::Diediedie);
        check(b"rollup 1h-SUM m 1 1", Command::Rollup);
        check(b"histogram m 1 1 x", Command::Histogram);
        check(b"", Command::Blank);
        check(b" \t\r", Command::Blank);
        check(b"PUT m 1 1", Command::Unknown(b"PUT"));
        check(b"puts", Command::Unknown(b"puts"));
        check(b"\xff\x1b[2J x", Command::Unknown(b"\xff\x1b[2J"));
    }

    #[test]
    fn negotiation_is_no_data() {
        let check = |bytes: &[u8], expected: &[u8]| {
            assert_eq!(strip_negotiation(bytes), expected, "{bytes:?}");
        };
        check(b"\xff\xfb\x18\xff\xfd\x03put a", b"put a");
        check(b"\xff\xfa\x18\x00xterm\xff\xf0\xff\xf1put", b"put");
        check(b"put \xff\xfb\x18", b"put \xff\xfb\x18");
        check(b"\xff\xffput", b"\xff\xffput");
        for cut in [&b"\xff"[..], b"\xff\xfb", b"\xff\xfb\x18", b"\xff\xfa\x18", b"\xff\xfa", b""] {
            check(cut, b"");
        }
    }
}
