//! Statsd and DogStatsD, both ways.
//!
//! ```text
//!   k:10|ms:20|ms|@0.5:3|c          classic: several samples, each with its own kind and rate
//!   t:1:2:3|ms|@0.5|#env:a,canary   packed: several values share kind, rate and tags
//!   s:a:b|s                         a set is never packed: one member, `a:b`
//!   n,k=v:1|c   n;k=v:1|c   n[k=v]:1|c   n#k=v:1|c      tags inside the name
//! ```
//!
//! Owns: the grammar of a line ([`parse_line`]), of events and service checks
//! ([`parse_event`], [`parse_service_check`]), and the way back ([`Encoder`], [`packets`]), which
//! is no way at all for lines that would be written as they came ([`Verbatim`]).
//! Does not aggregate, restore sample rates or make names fit other backends: a point says
//! what the client said.
//!
//! Choices where servers differ: a line is taken whole or not at all; fields stand in any
//! order; a rate belongs to the sample before it, every other field to the whole line; the
//! last of several tags with one key wins; a signed gauge is a change, in packed values too;
//! a rate on a gauge or a set is not even read; unknown fields are kept and counted.
//!
//! Limits: names of 1024 bytes, [`Limits::tags`]; the length of lines is the caller's.
//! Metrics: the caller counts refusals by [`ParseError::label`], and [`Parsed::unknown_fields`].

mod encode;
mod event;
mod head;
mod packets;
mod parse;
mod plain;
mod tags;
mod verbatim;

pub use encode::{Encoder, TagDialect};
pub use event::{Event, ServiceCheck, parse_event, parse_service_check};
pub use head::{Head, Shape, Split, splits};
pub use packets::packets;
pub use verbatim::{Verbatim, is_plain_number};

use crate::{Batch, ParseError};

/// Parses one line without its LF; one CR at the end is dropped. A blank line has no points.
///
/// # Errors
///
/// Why the line is refused; `out` is then as it was.
pub fn parse_line(
    line: &[u8],
    dialects: &Dialects,
    limits: &Limits,
    out: &mut Batch,
) -> Result<Line, ParseError> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Ok(Line::Points(Parsed::default()));
    }
    if event::is_event(line) {
        return parse_event(line).map(|_| Line::Event);
    }
    if event::is_service_check(line) {
        return parse_service_check(line).map(|_| Line::ServiceCheck);
    }
    if let Some(parsed) = plain::metric(line, out) {
        return Ok(Line::Points(parsed));
    }
    let mark = out.mark();
    let parsed = parse::metric(line, dialects, limits, out);
    if parsed.is_err() {
        out.rollback(mark);
    }
    parsed.map(Line::Points)
}

/// The lines of a datagram: cut at LF, blank ones skipped, the last LF optional.
pub fn lines(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let (line, left) = match memchr::memchr(b'\n', rest) {
            Some(at) => (rest.get(..at)?, rest.get(at + 1..)?),
            None if rest.is_empty() => return None,
            None => (rest, &[][..]),
        };
        rest = left;
        Some(line)
    })
    .filter(|line| !matches!(*line, [] | [b'\r']))
}

/// What a line was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Measurements, which now stand in the batch.
    Points(Parsed),
    /// A well-formed event; the caller counts it as `unsupported_event`.
    Event,
    /// A well-formed service check; the caller counts it as `unsupported_event`.
    ServiceCheck,
}

/// What was found on a line of measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Points written.
    pub points: u32,
    /// Fields that nobody knows. They are kept in the points' `rest`, except for the tags of a
    /// dialect that is off.
    pub unknown_fields: u32,
}

/// Which spellings of tags are understood. The characters of one that is switched off
/// belong to the name; DogStatsD's field is then left out and counted as unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialects {
    /// `name:1|c|#k:v,bare`
    pub dogstatsd: bool,
    /// `name,k=v:1|c`
    pub influxdb: bool,
    /// `name;k=v;k2=v2:1|c`
    pub graphite: bool,
    /// `name[k=v,k2=v2]:1|c`, also in the middle of a name
    pub signalfx: bool,
    /// `name#k=v,k2=v2:1|c`
    pub librato: bool,
}

impl Default for Dialects {
    fn default() -> Self {
        Self { dogstatsd: true, influxdb: true, graphite: true, signalfx: true, librato: true }
    }
}

/// What one line may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Distinct tag keys of one line.
    pub tags: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tags: 64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Measure, Point};
    use ParseError as E;
    use proptest::prelude::*;
    use std::fmt::Write;

    /// One point in our own short hand: `name{k=v,bare} kind value @rate Tsecs rest`.
    fn show(point: &Point<'_>) -> String {
        let mut text = point.name.to_owned();
        let tags: Vec<_> = point.tags.iter().collect();
        if !tags.is_empty() {
            let pair = |tag: &crate::Tag<'_>| match tag.value {
                Some(value) => format!("{}={value}", tag.key),
                None => tag.key.to_owned(),
            };
            write!(text, "{{{}}}", tags.iter().map(pair).collect::<Vec<_>>().join(",")).unwrap();
        }
        let (kind, value, rate) = match point.measure {
            Measure::Count { delta, rate } => ("c", delta.to_string(), rate),
            Measure::Gauge(value) => ("g", value.to_string(), 1.0),
            Measure::GaugeShift(change) => ("g", format!("{change:+}"), 1.0),
            Measure::Timing { ms, rate } => ("ms", ms.to_string(), rate),
            Measure::Histogram { value, rate } => ("h", value.to_string(), rate),
            Measure::Distribution { value, rate } => ("d", value.to_string(), rate),
            Measure::Set(member) => ("s", member.to_owned(), 1.0),
            ref other => panic!("not of statsd: {other:?}"),
        };
        write!(text, " {kind} {value}").unwrap();
        if rate < 1.0 {
            write!(text, " @{rate}").unwrap();
        }
        if let Some(time) = point.time {
            write!(text, " T{}", time.secs()).unwrap();
        }
        if !point.rest.is_empty() {
            write!(text, " {}", point.rest).unwrap();
        }
        text
    }

    fn parse(line: &[u8], dialects: &Dialects, out: &mut Batch) -> Result<Line, ParseError> {
        parse_line(line, dialects, &Limits::default(), out)
    }

    /// Parses into a fresh batch and into the same one again; both must say `expected`.
    fn check_with(dialects: &Dialects, line: &str, expected: &[&str]) {
        let mut batch = Batch::new();
        for round in 1..=2 {
            let parsed = parse(line.as_bytes(), dialects, &mut batch).unwrap_or_else(|refused| {
                panic!("{line:?} was refused: {refused}");
            });
            let Line::Points(parsed) = parsed else { panic!("{line:?} was {parsed:?}") };
            assert_eq!(parsed.points as usize, expected.len(), "{line:?}");
            let shown: Vec<_> = batch.iter().map(|point| show(&point)).collect();
            assert_eq!(shown, expected.repeat(round), "{line:?}, round {round}");
        }
    }

    fn check(line: &str, expected: &[&str]) {
        check_with(&Dialects::default(), line, expected);
    }

    /// Refused twice, and each time the batch is as it was.
    fn check_refused(line: impl AsRef<[u8]>, expected: ParseError) {
        let line = line.as_ref();
        let mut batch = Batch::new();
        parse(b"kept:1|c|#a:b|c:1", &Dialects::default(), &mut batch).unwrap();
        let before = format!("{batch:?}");
        for _ in 0..2 {
            let refused = parse(line, &Dialects::default(), &mut batch);
            assert_eq!(refused, Err(expected), "{}", line.escape_ascii());
            assert_eq!(format!("{batch:?}"), before, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn kinds_and_values() {
        check("ok:1|c", &["ok c 1"]);
        check("ok:1|c\r", &["ok c 1"]);
        check("", &[]);
        check("\r", &[]);
        check("resp.size:-1.000000|h", &["resp.size h -1"]);
        check("lat:-5|ms", &["lat ms -5"]);
        check("c1:-2|c", &["c1 c -2"]);
        check("cost:0.4|c", &["cost c 0.4"]);
        check("sent:183.000000|c", &["sent c 183"]);
        check("x:.5|d", &["x d 0.5"]);
        check("x:5.|d", &["x d 5"]);
        check("x:1e3|d", &["x d 1000"]);
        check("d:u1|s", &["d s u1"]);
        check("d:-|s", &["d s -"]);
        check("my service/ok:1|c", &["my service/ok c 1"]);
        check("œuf:1|c", &["œuf c 1"]);
    }

    #[test]
    fn a_signed_gauge_is_a_change() {
        check("t:10|g", &["t g 10"]);
        check("t:-3|g", &["t g -3"]);
        check("t:+5|g", &["t g +5"]);
        check("t:0|g", &["t g 0"]);
        let mut batch = Batch::new();
        parse(b"t:1:-1:+1:-0|g", &Dialects::default(), &mut batch).unwrap();
        let measures: Vec<_> = batch.iter().map(|point| point.measure).collect();
        assert_eq!(
            measures,
            [
                Measure::Gauge(1.0),
                Measure::GaugeShift(-1.0),
                Measure::GaugeShift(1.0),
                Measure::GaugeShift(0.0),
            ]
        );
    }

    #[test]
    fn sample_rates() {
        check("lat:1|ms|@0.001", &["lat ms 1 @0.001"]);
        check("n:1|c|@0.3333333333333333", &["n c 1 @0.3333333333333333"]);
        check("n:1|c|@1e-1", &["n c 1 @0.1"]);
        check("n:5|c|@1.0", &["n c 5"]);
        check("n:5|c|@1", &["n c 5"]);
        check("h:1|c|@0.5|#m:GET", &["h{m=GET} c 1 @0.5"]);
        check("h:1|c|#m:GET|@0.5", &["h{m=GET} c 1 @0.5"]);
        check("h:1|c|@1.0|#m:GET,handler:a_b", &["h{m=GET,handler=a_b} c 1"]);
        for rate in ["", "0", "0.0", "-0.5", "1.1", "nan", "inf", "1e-400", "x", " 1", "0,5"] {
            check_refused(format!("n:1|c|@{rate}"), E::InvalidRate);
            check(&format!("g:50|g|@{rate}"), &["g g 50"]);
            check(&format!("g:+5|g|@{rate}"), &["g g +5"]);
            check(&format!("s:a|s|@{rate}"), &["s s a"]);
        }
    }

    #[test]
    fn packed_and_classic_lines() {
        check(
            "t:1:2:3|ms|@0.5|#env:a",
            &["t{env=a} ms 1 @0.5", "t{env=a} ms 2 @0.5", "t{env=a} ms 3 @0.5"],
        );
        check("c:1:2:3|c", &["c c 1", "c c 2", "c c 3"]);
        check("g:1:2:3|g", &["g g 1", "g g 2", "g g 3"]);
        check("s:a:b|s", &["s s a:b"]);
        check("k:10|ms:20|ms|@0.5:3|c", &["k ms 10", "k ms 20 @0.5", "k c 3"]);
        check("k:1:2|ms:3:4|c|@0.5", &["k ms 1", "k ms 2", "k c 3 @0.5", "k c 4 @0.5"]);
        check(
            "k:1|c:2|ms|#addr:10.0.0.1:443|c:ci-9",
            &["k{addr=10.0.0.1:443} c 1 c:ci-9", "k{addr=10.0.0.1:443} ms 2 c:ci-9"],
        );
        check("k:a:b|s:c|s:1|c", &["k s a:b", "k s c", "k c 1"]);
        check_refused("c:1::3|c", E::MissingValue);
        check_refused("c:1:2:|c", E::MissingValue);
        check_refused("k:1|c:2|q", E::UnknownKind);
        check_refused("k:1|c:2", E::MissingKind);
        check_refused("k:1|c:", E::MissingValue);
        check_refused("k:1|c:2|c|@0.5:", E::MissingValue);
        check_refused("k:1|c|@2:3|c", E::InvalidRate);
    }

    #[test]
    fn fields_for_others_are_kept_and_unknown_ones_counted() {
        check("f.lock:9|c|c:0123abcd-77", &["f.lock c 9 c:0123abcd-77"]);
        check(
            "f.lock:1|c|#q:x|c:ci-9f|e:it-false|card:low",
            &["f.lock{q=x} c 1 c:ci-9f|e:it-false|card:low"],
        );
        check("f:1|c|c:1|@0.5|zz|card:low", &["f c 1 @0.5 c:1|zz|card:low"]);
        check("f.dead:0|g|zz:new", &["f.dead g 0 zz:new"]);
        check("a:1|c|Team:b", &["a c 1 Team:b"]);
        for (line, unknown_fields) in [
            ("f:9|c|c:1|e:2|card:low", 0),
            ("f:0|g|zz:new", 1),
            ("f:0|g|zz|#a:b|y||", 2),
            ("f:0|g|", 0),
        ] {
            let parsed = parse(line.as_bytes(), &Dialects::default(), &mut Batch::new());
            assert_eq!(parsed, Ok(Line::Points(Parsed { points: 1, unknown_fields })), "{line}");
        }
    }

    #[test]
    fn times() {
        check("a:1|c|T1656581400", &["a c 1 T1656581400"]);
        check(
            "a:1:2|g|#x:y|T1656581400|c:1",
            &["a{x=y} g 1 T1656581400 c:1", "a{x=y} g 2 T1656581400 c:1"],
        );
        for time in ["0", "-5", "+5", "1.5", "1x", "9223372037", "99999999999999999999"] {
            check_refused(format!("a:1|c|T{time}"), E::InvalidTimestamp);
        }
    }

    #[test]
    fn dogstatsd_tags() {
        check(
            "c:42|c|#addr:10.0.0.1:443,url:http://h/x",
            &["c{addr=10.0.0.1:443,url=http://h/x} c 42"],
        );
        check("p:2|ms|#env:a,env:a,q:x", &["p{env=a,q=x} ms 2"]);
        check("r:1|c|#env:a,env:b", &["r{env=b} c 1"]);
        check("r:1|c|#env:a,env", &["r{env} c 1"]);
        check("r:1|c|#canary,k:", &["r{canary,k} c 1"]);
        check("r:1|c|#", &["r c 1"]);
        check("r:1|c|#,a:b,,c:d,", &["r{a=b,c=d} c 1"]);
        check("r:1|c|#a:b|#c:d,a:e", &["r{a=e,c=d} c 1"]);
        check("r:1|c|#k:c#,x=y", &["r{k=c#,x=y} c 1"]);
        check_refused("r:1|c|#:v", E::InvalidTag);
        check_refused("r:1|c|#a:b,:", E::InvalidTag);
    }

    #[test]
    fn tags_inside_the_name() {
        check("n,k=v,k2=v2:1|c", &["n{k=v,k2=v2} c 1"]);
        check("n;k=v;k2=v2:1|c", &["n{k=v,k2=v2} c 1"]);
        check("n[k=v,k2=v2]:1|c", &["n{k=v,k2=v2} c 1"]);
        check("a.[k=v]b:1|c", &["a.b{k=v} c 1"]);
        check("[k=v]b:1|c", &["b{k=v} c 1"]);
        check("n#k=v,k2=v2:1|c", &["n{k=v,k2=v2} c 1"]);
        check("n,k=v=w,e=:1|c", &["n{k=v=w,e} c 1"]);
        check("n,k=v,k=w:1|c|#k:x,b", &["n{k=x,b} c 1"]);
        check("lang.c#:1|c", &["lang.c# c 1"]);
        check("list[0],k=v:1|c", &["list[0]{k=v} c 1"]);
        check("a=b,c;d[e:1|c", &["a=b,c;d[e c 1"]);
        check_refused("n,k=v,bare:1|c", E::InvalidTag);
        check_refused("n,=v:1|c", E::InvalidTag);
        check_refused(",k=v:1|c", E::EmptyName);
        check_refused("[k=v]:1|c", E::EmptyName);
    }

    #[test]
    fn a_dialect_that_is_off_leaves_the_name_alone() {
        let all = Dialects::default();
        for (off, line) in [
            (Dialects { influxdb: false, ..all }, "n,k=v:1|c"),
            (Dialects { graphite: false, ..all }, "n;k=v:1|c"),
            (Dialects { signalfx: false, ..all }, "n[k=v]:1|c"),
            (Dialects { librato: false, ..all }, "n#k=v:1|c"),
        ] {
            let name = line.strip_suffix(":1|c").unwrap();
            check_with(&off, line, &[&format!("{name} c 1")]);
        }
        let off = Dialects { dogstatsd: false, ..all };
        check_with(&off, "n:1|c|#k:v|@0.5|zz", &["n c 1 @0.5 zz"]);
        let parsed = parse(b"n:1|c|#k:v", &off, &mut Batch::new());
        assert_eq!(parsed, Ok(Line::Points(Parsed { points: 1, unknown_fields: 1 })));
    }

    #[test]
    fn malformed_lines_say_why() {
        check_refused("abc:", E::MissingValue);
        check_refused("abc:|", E::MissingValue);
        check_refused("abc:1|", E::MissingKind);
        check_refused("abc:1", E::MissingKind);
        check_refused("|c", E::EmptyName);
        check_refused(":1|c", E::EmptyName);
        check_refused("abc", E::MissingValue);
        check_refused("abc:1||c", E::MissingKind);
        check_refused("abc:1|q", E::UnknownKind);
        check_refused("abc:1|C", E::UnknownKind);
        check_refused("abc:1|m", E::UnknownKind);
        check_refused("cpu:  0.11  -0.05|h|#a:b", E::InvalidValue);
        check_refused("a|b:1|c", E::MissingValue);
        check_refused("a:|s", E::MissingValue);
        for value in ["nan", "inf", "-inf", "0x10", "1_0", "1e999", "1 ", "--1"] {
            check_refused(format!("a:{value}|g"), E::InvalidValue);
        }
        check("abc:1|c|", &["abc c 1"]);
        check("abc:1|c||", &["abc c 1"]);
    }

    #[test]
    fn text_must_be_clean_utf8() {
        check_refused(b"a\xff:1|c", E::InvalidUtf8);
        check_refused(b"a:1|c|#k:\xc5", E::InvalidUtf8);
        check_refused(b"_e{1,1}:\xff|a", E::InvalidUtf8);
        for line in ["a\0:1|c", "a\tb:1|c", "a:1|c|#k:\x1b[2J", "a:1|c\nb:1|c", "a\u{85}:1|c"] {
            check_refused(line, E::ControlCharacter);
        }
        check_refused("a:1|c\r\r", E::ControlCharacter);
    }

    #[test]
    fn limits_hold() {
        let name = "n".repeat(1024);
        check(&format!("{name}:1|c"), &[&format!("{name} c 1")]);
        check(&format!("{name},a=b:1|c"), &[&format!("{name}{{a=b}} c 1")]);
        check_refused(format!("{name}n:1|c"), E::NameTooLong);
        let tags = |count: u32| (0..count).map(|n| format!("k{n}:v")).collect::<Vec<_>>().join(",");
        check_refused(format!("n:1|c|#{}", tags(65)), E::TooManyTags);
        check_refused(format!("n,a=b:1|c|#{}", tags(64)), E::TooManyTags);
        let mut batch = Batch::new();
        let line = format!("n:1|c|#{},{}", tags(64), tags(64));
        assert!(parse(line.as_bytes(), &Dialects::default(), &mut batch).is_ok());
        assert_eq!(batch.point(0).unwrap().tags.len(), 64);
    }

    #[test]
    fn a_line_cannot_multiply_what_its_values_share() {
        let values = ":1".repeat(16_000);
        let long = "x".repeat(30_000);
        check_refused(format!("n{values}|c|#k:{long}"), E::LineTooLong);
        check_refused(format!("n{values}|c|c:{long}"), E::LineTooLong);
        let mut batch = Batch::new();
        let line = format!("n{values}|c|#env:prod|c:{}", "x".repeat(200));
        assert!(parse(line.as_bytes(), &Dialects::default(), &mut batch).is_ok());
        assert_eq!(batch.len(), 16_000);
        assert!(batch.bytes() < 16_000 * 200, "the rest is kept once");
    }

    #[test]
    fn events_and_checks_are_never_measurements() {
        for (line, expected) in [
            ("_e{5,4}:Disk!|full|t:warning|#host:a", Ok(Line::Event)),
            ("_e{3,3}:a|b|x|y\r", Ok(Line::Event)),
            ("_e{4,2}:Œuf|ok", Ok(Line::Event)),
            ("_e{99,2}:short|ok", Err(E::InvalidEvent)),
            ("_e{5,4}:1|c", Err(E::InvalidEvent)),
            ("_sc|db|0|m:fine", Ok(Line::ServiceCheck)),
            ("_sc|db|9", Err(E::InvalidEvent)),
        ] {
            let mut batch = Batch::new();
            assert_eq!(
                parse(line.as_bytes(), &Dialects::default(), &mut batch),
                expected,
                "{line}"
            );
            assert!(batch.is_empty());
        }
        check("_sc:1|c", &["_sc c 1"]);
        check("_e:1|c", &["_e c 1"]);
    }

    #[test]
    fn datagrams_are_cut_into_lines() {
        let cases: [(&[u8], &[&[u8]]); 8] = [
            (b"a:1|c", &[b"a:1|c"]),
            (b"a:1|c\n", &[b"a:1|c"]),
            (b"a:1|c\r\n", &[b"a:1|c\r"]),
            (b"a:1|c\n\nb:2|c\n", &[b"a:1|c", b"b:2|c"]),
            (b"\n\n", &[]),
            (b"", &[]),
            (b"\r\n\r\n", &[]),
            (b"\nt:320|ms\r", &[b"t:320|ms\r"]),
        ];
        for (datagram, expected) in cases {
            assert_eq!(
                lines(datagram).collect::<Vec<_>>(),
                expected,
                "{}",
                datagram.escape_ascii()
            );
        }
    }

    /// Bytes that look like a line more often than random ones do.
    fn line_like() -> impl Strategy<Value = Vec<u8>> {
        let token = prop_oneof![
            proptest::sample::select(vec![
                ":", "|", "|", "#", "@", ",", ";", "=", "[", "]", "c", "g", "ms", "s", "h", "d",
                "1", "-2.5", "+3", "0.5", "T17", "c:", "card:", "_e{1,1}:", "_sc|", "a", "œ", "\r",
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
            any::<u8>().prop_map(|byte| vec![byte]),
        ];
        proptest::collection::vec(token, 0..30).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        /// Nothing panics; what is refused leaves no trace, and what is taken is counted
        /// and holds nothing that its protocol does not allow.
        #[test]
        fn any_bytes(line in line_like(), tags in 0usize..4) {
            let mut batch = Batch::new();
            parse(b"kept:1|c|#a:b", &Dialects::default(), &mut batch).unwrap();
            let before = format!("{batch:?}");
            match parse_line(&line, &Dialects::default(), &Limits { tags }, &mut batch) {
                Ok(Line::Points(parsed)) => prop_assert_eq!(batch.len() as u32, 1 + parsed.points),
                Ok(_) | Err(_) => prop_assert_eq!(format!("{:?}", batch), before),
            }
            for point in batch.iter().skip(1) {
                prop_assert!(!point.name.is_empty() && point.name.len() <= 1024);
                prop_assert!(!point.name.contains(char::is_control));
                prop_assert!(point.tags.len() <= tags);
                for tag in point.tags.iter() {
                    prop_assert!(!tag.key.is_empty() && tag.value != Some(""));
                }
            }
        }
    }
}
