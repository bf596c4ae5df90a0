//! Points as statsd lines.
//!
//! ```text
//!   name[,k=v|;k=v]:value|kind[|@rate][|#k:v,bare][|Tsecs][|rest]\n
//! ```
//!
//! A record is one line, except that a negative absolute gauge takes two (`n:0|g`, `n:-5|g`,
//! as a sign means a change) and a row of columns takes one or two for each.
//!
//! Text from other protocols may hold anything, so whatever could end a field, a tag or a
//! line is replaced by `_`. A `=` in a name always is: without it no receiver can find a tag
//! inside a name that the sender was not allowed to set.
//!
//! Limits: the lines of one gauge are at most `max_line` bytes together, so that they fit
//! into one datagram. What is left out of a row is counted in [`Encode::lost_parts`].

use super::Verbatim;
use crate::decimal::{write_f64, write_number};
use crate::encode::LostParts;
use crate::{Encode, FieldValue, Fields, Measure, Number, Point, Skip, Tag, UnixNanos};

/// How tags are spelled on the way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagDialect {
    /// `name:1|c|#k:v,bare`; the only one with times and with the fields in `rest`.
    #[default]
    Dogstatsd,
    /// `name,k=v:1|c`, as Telegraf reads it; a bare tag says `true`.
    Influxdb,
    /// `name;k=v:1|c`, which statsd/statsd hands on to Graphite; a bare tag says `true`.
    Graphite,
    /// Tags are left out.
    None,
}

/// Writes points as statsd lines.
#[derive(Debug)]
pub struct Encoder {
    dialect: TagDialect,
    max_line: usize,
    timestamps: bool,
    lost: LostParts,
}

impl Encoder {
    /// For lines of at most `max_line` bytes without their LF.
    pub fn new(dialect: TagDialect, max_line: usize) -> Self {
        Self { dialect, max_line, timestamps: false, lost: LostParts::default() }
    }

    /// Whether readings and columns keep their own time (`|T…`, DogStatsD only). Off by
    /// default: a receiver does not aggregate what has a time. Counters and gauges that came
    /// with a time always keep it.
    #[must_use]
    pub const fn with_timestamps(self, timestamps: bool) -> Self {
        Self { timestamps, ..self }
    }

    /// Which lines it would write as they came; none that have a time.
    pub const fn verbatim(&self) -> Verbatim {
        Verbatim::new(self.dialect, self.max_line)
    }

    fn record(&mut self, subject: &Subject<'_>, out: &mut Vec<u8>) -> Result<(), Skip> {
        match subject.point.measure {
            Measure::Count { delta, rate } => self.sampled(subject, delta, "|c", rate, out),
            Measure::Timing { ms, rate } => self.sampled(subject, ms, "|ms", rate, out),
            Measure::Histogram { value, rate } => self.sampled(subject, value, "|h", rate, out),
            Measure::Distribution { value, rate } => self.sampled(subject, value, "|d", rate, out),
            Measure::Gauge(value) => self.gauge(subject, Number::F64(value), out),
            Measure::Reading(number) => self.gauge(subject, number, out),
            Measure::GaugeShift(change) => self.shift(subject, change, out),
            Measure::Set(member) => self.member(subject, member, out),
            Measure::Fields(fields) => self.columns(subject, fields, out),
        }
    }

    fn sampled(
        &self,
        subject: &Subject<'_>,
        value: f64,
        kind: &str,
        rate: f64,
        out: &mut Vec<u8>,
    ) -> Result<(), Skip> {
        finite(value)?;
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(Skip::Unrepresentable);
        }
        let start = out.len();
        subject.head(out);
        write_f64(out, value);
        out.extend_from_slice(kind.as_bytes());
        if rate < 1.0 {
            out.extend_from_slice(b"|@");
            write_f64(out, rate);
        }
        subject.tail(out);
        self.fits(start, out)
    }

    fn gauge(&self, subject: &Subject<'_>, value: Number, out: &mut Vec<u8>) -> Result<(), Skip> {
        finite(value.as_f64())?;
        let start = out.len();
        if value.as_f64() < 0.0 {
            subject.gauge(out, |out| out.push(b'0'));
        }
        // Negative zero is a zero here: its sign would make it a change.
        let value = if value.as_f64() == 0.0 { Number::I64(0) } else { value };
        subject.gauge(out, |out| write_number(out, value));
        self.fits(start, out)
    }

    fn shift(&self, subject: &Subject<'_>, change: f64, out: &mut Vec<u8>) -> Result<(), Skip> {
        finite(change)?;
        let start = out.len();
        subject.gauge(out, |out| {
            if change.is_sign_positive() {
                out.push(b'+');
            }
            write_f64(out, change);
        });
        self.fits(start, out)
    }

    fn member(&self, subject: &Subject<'_>, member: &str, out: &mut Vec<u8>) -> Result<(), Skip> {
        if member.is_empty() {
            return Err(Skip::Unrepresentable);
        }
        let start = out.len();
        subject.head(out);
        MEMBER.clean(out, member);
        out.extend_from_slice(b"|s");
        subject.tail(out);
        self.fits(start, out)
    }

    /// One gauge for each column that is a number or a truth value.
    fn columns(
        &mut self,
        subject: &Subject<'_>,
        fields: Fields<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Skip> {
        let (row, counted) = (out.len(), self.lost);
        let mut reason = Skip::Unrepresentable;
        for (key, value) in fields.iter() {
            let start = out.len();
            let subject = Subject { column: Some(key), ..*subject };
            let written = match value {
                FieldValue::Number(number) => self.gauge(&subject, number, out),
                FieldValue::Bool(truth) => self.gauge(&subject, Number::I64(i64::from(truth)), out),
                FieldValue::Text(_) => Err(Skip::Unrepresentable),
            };
            if let Err(skip) = written {
                out.truncate(start);
                self.lost.add(skip, 1);
                reason = skip;
            }
        }
        if out.len() == row {
            // The whole point is refused, so its parts are not counted beside it.
            self.lost = counted;
            return Err(reason);
        }
        Ok(())
    }

    /// Whether what was written since `start`, its last LF aside, is short enough.
    fn fits(&self, start: usize, out: &[u8]) -> Result<(), Skip> {
        if out.len() - start > self.max_line.saturating_add(1) {
            return Err(Skip::TooLarge);
        }
        Ok(())
    }

    fn subject<'a>(&self, point: &'a Point<'a>) -> Subject<'a> {
        let timed = match point.measure {
            Measure::Count { .. } | Measure::Gauge(_) | Measure::GaugeShift(_) => true,
            Measure::Reading(_) | Measure::Fields(_) => self.timestamps,
            _ => false,
        };
        let time = point.time.filter(|_| timed).map(UnixNanos::secs).filter(|secs| *secs > 0);
        let style = style(self.dialect);
        let unclean = |style: &Style| point.tags.iter().any(|tag| !style.key.suits(tag.key));
        let unclean_keys = style.is_some_and(unclean);
        Subject { point, dialect: self.dialect, style, column: None, time, unclean_keys }
    }
}

impl Encode for Encoder {
    fn encode(&mut self, point: &Point<'_>, out: &mut Vec<u8>) -> Result<(), Skip> {
        if point.name.is_empty() {
            return Err(Skip::EmptyName);
        }
        let start = out.len();
        let subject = self.subject(point);
        let result = self.record(&subject, out);
        match result {
            Ok(()) => self.lost.add(Skip::Unrepresentable, subject.shadowed_tags()),
            Err(_) => out.truncate(start),
        }
        result
    }

    fn name(&self, name: &str, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let fits = name_fit(self.dialect).clean(out, name);
        !fits || defuse_event(out, start)
    }

    fn lost_parts(&mut self) -> Vec<(Skip, u64)> {
        self.lost.take()
    }

    fn verbatim(&self) -> Option<Verbatim> {
        Some(self.verbatim())
    }
}

/// What all lines of a record share.
#[derive(Clone, Copy)]
struct Subject<'a> {
    point: &'a Point<'a>,
    dialect: TagDialect,
    /// `None` if tags are left out.
    style: Option<&'static Style>,
    /// The column of a row, which becomes the last part of the name.
    column: Option<&'a str>,
    /// Seconds, if they are to be written.
    time: Option<i64>,
    /// Some tag key has to be made fit, and so may become equal to another.
    unclean_keys: bool,
}

impl Subject<'_> {
    fn gauge(&self, out: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
        self.head(out);
        value(out);
        out.extend_from_slice(b"|g");
        self.tail(out);
    }

    /// Everything before the value.
    fn head(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let fit = name_fit(self.dialect);
        fit.clean(out, self.point.name);
        if let Some(column) = self.column {
            out.push(b'.');
            fit.clean(out, column);
        }
        defuse_event(out, start);
        if in_name(self.dialect) {
            self.tags(out);
        }
        out.push(b':');
    }

    /// Everything after the kind and the rate, and the end of the line.
    fn tail(&self, out: &mut Vec<u8>) {
        if self.dialect == TagDialect::Dogstatsd {
            self.tags(out);
            if let Some(seconds) = self.time {
                out.extend_from_slice(b"|T");
                write_number(out, Number::I64(seconds));
            }
            if !self.point.rest.is_empty() {
                out.push(b'|');
                REST.clean(out, self.point.rest);
            }
        }
        out.push(b'\n');
    }

    fn tags(&self, out: &mut Vec<u8>) {
        let Some(style) = self.style else { return };
        let mut mark = style.first;
        for (at, tag) in self.point.tags.iter().enumerate() {
            if self.is_shadowed(style, at) {
                continue;
            }
            out.extend_from_slice(mark.as_bytes());
            mark = style.next;
            style.tag(out, tag);
        }
    }

    /// Whether a later tag has the same key once both are clean: as everywhere, the last wins.
    fn is_shadowed(&self, style: &Style, at: usize) -> bool {
        if !self.unclean_keys {
            return false;
        }
        let mut tags = self.point.tags.iter().skip(at);
        let Some(own) = tags.next() else { return false };
        tags.any(|later| style.key.cleaned(own.key).eq(style.key.cleaned(later.key)))
    }

    fn shadowed_tags(&self) -> u64 {
        let Some(style) = self.style else { return 0 };
        (0..self.point.tags.len()).map(|at| u64::from(self.is_shadowed(style, at))).sum()
    }
}

/// How one dialect writes its tags.
struct Style {
    first: &'static str,
    next: &'static str,
    assign: u8,
    bare: bool,
    key: &'static Fit,
    value: &'static Fit,
}

impl Style {
    fn tag(&self, out: &mut Vec<u8>, tag: Tag<'_>) {
        self.key.clean(out, tag.key);
        let value = if self.bare { tag.value } else { Some(tag.value_or_true()) };
        if let Some(value) = value {
            out.push(self.assign);
            self.value.clean(out, value);
        }
    }
}

fn name_fit(dialect: TagDialect) -> &'static Fit {
    if in_name(dialect) { &NAME_WITH_TAGS } else { &NAME }
}

const fn in_name(dialect: TagDialect) -> bool {
    matches!(dialect, TagDialect::Influxdb | TagDialect::Graphite)
}

fn style(dialect: TagDialect) -> Option<&'static Style> {
    match dialect {
        TagDialect::Dogstatsd => Some(&DOGSTATSD),
        TagDialect::Influxdb => Some(&INFLUXDB),
        TagDialect::Graphite => Some(&GRAPHITE),
        TagDialect::None => None,
    }
}

/// A name that begins like an event would not be taken for a measurement; answers whether one
/// did.
fn defuse_event(out: &mut [u8], start: usize) -> bool {
    let Some([b'_', b'e', brace @ b'{', ..]) = out.get_mut(start..) else { return false };
    *brace = b'_';
    true
}

fn finite(value: f64) -> Result<(), Skip> {
    if value.is_finite() { Ok(()) } else { Err(Skip::NotFinite) }
}

/// The characters that may not stand in one place: some ASCII marks, and always the control
/// characters. For each byte, whether it is [`UNFIT`] or [`HIGH`].
struct Fit([u8; 256]);

impl Fit {
    #[allow(clippy::indexing_slicing)] // Only run by the compiler.
    const fn without(marks: &[u8]) -> Self {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            table[byte] = match byte {
                0..0x20 | 0x7f => UNFIT,
                0x80.. => HIGH,
                _ => 0,
            };
            byte += 1;
        }
        let mut rest = marks;
        while let [mark, more @ ..] = rest {
            table[*mark as usize] = UNFIT;
            rest = more;
        }
        Self(table)
    }

    /// Appends the text made fit; answers whether it was already.
    fn clean(&self, out: &mut Vec<u8>, text: &str) -> bool {
        let suits = self.suits(text);
        if suits {
            out.extend_from_slice(text.as_bytes());
        } else {
            for fit in self.cleaned(text) {
                out.extend_from_slice(fit.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        suits
    }

    /// Every byte is looked at, without a branch; characters only beyond ASCII.
    fn suits(&self, text: &str) -> bool {
        let seen = text.bytes().fold(0, |seen, byte| seen | self.class(byte));
        seen == 0 || (seen == HIGH && !text.chars().any(char::is_control))
    }

    fn cleaned(&self, text: &str) -> impl Iterator<Item = char> {
        text.chars().map(|char| {
            let unfit = u8::try_from(char).is_ok_and(|byte| self.class(byte) == UNFIT);
            if unfit || char.is_control() { '_' } else { char }
        })
    }

    fn class(&self, byte: u8) -> u8 {
        self.0.get(usize::from(byte)).copied().unwrap_or(UNFIT)
    }
}

const UNFIT: u8 = 1;
/// Part of a character beyond ASCII, which may be a C1 control character.
const HIGH: u8 = 2;

/// A colon ends a name, a bar could end a field of a careless reader.
static NAME: Fit = Fit::without(b":|=");
/// With tags inside the name, nothing else there may look like the beginning of a list.
static NAME_WITH_TAGS: Fit = Fit::without(b":|=,;#[]");
static MEMBER: Fit = Fit::without(b"|");
static KEY: Fit = Fit::without(b":|,#");
/// A value keeps its colons: a tag is split at the first.
static VALUE: Fit = Fit::without(b"|,#");
/// The separators of both dialects, as a receiver may know the other one too.
static KEY_IN_NAME: Fit = Fit::without(b":|=,;#");
static VALUE_IN_NAME: Fit = Fit::without(b":|,;#");
/// Came from a line, so it is made of fields already.
static REST: Fit = Fit::without(b"");

static DOGSTATSD: Style =
    Style { first: "|#", next: ",", assign: b':', bare: true, key: &KEY, value: &VALUE };

static INFLUXDB: Style = Style {
    first: ",",
    next: ",",
    assign: b'=',
    bare: false,
    key: &KEY_IN_NAME,
    value: &VALUE_IN_NAME,
};

static GRAPHITE: Style = Style {
    first: ";",
    next: ";",
    assign: b'=',
    bare: false,
    key: &KEY_IN_NAME,
    value: &VALUE_IN_NAME,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Batch;
    use crate::statsd::{Dialects, Limits, Line, parse_line};
    use proptest::prelude::*;

    fn encode(encoder: &mut Encoder, batch: &Batch) -> Result<String, Skip> {
        let mut out = b"before\n".to_vec();
        for point in batch.iter() {
            if let Err(skip) = encoder.encode(&point, &mut out) {
                assert_eq!(out, b"before\n", "nothing may be left of a refused point");
                return Err(skip);
            }
        }
        Ok(String::from_utf8(out).unwrap().strip_prefix("before\n").unwrap().to_owned())
    }

    fn parsed(line: &str) -> Batch {
        let mut batch = Batch::new();
        parse_line(line.as_bytes(), &Dialects::default(), &Limits::default(), &mut batch).unwrap();
        batch
    }

    /// What a line becomes when it is sent on in a dialect.
    fn check(dialect: TagDialect, line: &str, expected: &str) {
        let mut encoder = Encoder::new(dialect, 1432);
        let encoded = encode(&mut encoder, &parsed(line)).unwrap();
        assert_eq!(encoded, expected, "{line:?} in {dialect:?}");
        assert_eq!(encoder.lost_parts(), []);
    }

    fn one(name: &str, tags: &[(&str, Option<&str>)], measure: Measure<'_>) -> Batch {
        let mut batch = Batch::new();
        let mut writer = batch.begin(name);
        for (key, value) in tags {
            writer.tag(key, *value);
        }
        writer.finish(measure, Some(UnixNanos::from_secs(1_700_000_000)), "");
        drop(writer);
        batch
    }

    #[test]
    fn kinds_values_and_rates_survive() {
        for line in [
            "a:320|ms|@0.5",
            "b:3|h",
            "c:2|c|@0.1|#k:v",
            "d:u1|s",
            "d:a:b|s",
            "e:1|d",
            "g:10|g",
            "g:+5|g",
            "g:-3|g",
            "g:-0|g",
            "m:1|c|@0.01",
            "n:1|c|@0.3333333333333333",
            "n:1|c|@0.0000001",
            "my service/ok:1|c",
            "œ:1|c|#é:à,bare,url:http://h/x=y;z",
            "f:9|c|@0.5|#q:x|T1656581400|c:ci-9f|e:it|card:low|zz:new",
        ] {
            check(TagDialect::Dogstatsd, line, &format!("{line}\n"));
        }
        check(TagDialect::Dogstatsd, "x:1e3:1.50|d|@1.0", "x:1000|d\nx:1.5|d\n");
        check(TagDialect::Dogstatsd, "x:1|ms|T1656581400", "x:1|ms\n");
    }

    #[test]
    fn tags_in_each_dialect() {
        let line = "n:1|c|@0.5|#k:v,bare,a:1:2|T1656581400|c:1";
        check(TagDialect::Influxdb, line, "n,k=v,bare=true,a=1_2:1|c|@0.5\n");
        check(TagDialect::Graphite, line, "n;k=v;bare=true;a=1_2:1|c|@0.5\n");
        check(TagDialect::None, line, "n:1|c|@0.5\n");
    }

    #[test]
    fn a_negative_gauge_is_reset_first() {
        let mut encoder = Encoder::new(TagDialect::Dogstatsd, 1432);
        let gauge = |value| one("g", &[("k", Some("v"))], Measure::Gauge(value));
        let tail = "|g|#k:v|T1700000000\n";
        let expected = format!("g:0{tail}g:-10.5{tail}");
        assert_eq!(encode(&mut encoder, &gauge(-10.5)), Ok(expected));
        assert_eq!(encode(&mut encoder, &gauge(-0.0)), Ok(format!("g:0{tail}")));
        let reading = one("r", &[], Measure::Reading(Number::I64(i64::MIN)));
        let expected = "r:0|g\nr:-9223372036854775808|g\n";
        assert_eq!(encode(&mut encoder, &reading), Ok(expected.to_owned()));
        let mut timed = Encoder::new(TagDialect::Dogstatsd, 1432).with_timestamps(true);
        let reading = one("r", &[], Measure::Reading(Number::U64(u64::MAX)));
        let expected = "r:18446744073709551615|g|T1700000000\n";
        assert_eq!(encode(&mut timed, &reading), Ok(expected.to_owned()));
        let mut timed = Encoder::new(TagDialect::Graphite, 1432).with_timestamps(true);
        assert_eq!(encode(&mut timed, &reading), Ok("r:18446744073709551615|g\n".to_owned()));
    }

    #[test]
    fn a_row_becomes_gauges_and_its_text_is_counted() {
        let mut batch = Batch::new();
        let mut writer = batch.begin("row");
        writer.field("a", FieldValue::Number(Number::F64(1.5)));
        writer.field("b|x", FieldValue::Number(Number::I64(-2)));
        writer.field("ok", FieldValue::Bool(true));
        writer.field("host", FieldValue::Text("h"));
        writer.field("nan", FieldValue::Number(Number::F64(f64::NAN)));
        writer.finish_fields(None);
        drop(writer);
        let mut encoder = Encoder::new(TagDialect::Dogstatsd, 1432);
        let expected = "row.a:1.5|g\nrow.b_x:0|g\nrow.b_x:-2|g\nrow.ok:1|g\n";
        assert_eq!(encode(&mut encoder, &batch), Ok(expected.to_owned()));
        assert_eq!(encoder.lost_parts(), [(Skip::NotFinite, 1), (Skip::Unrepresentable, 1)]);
        assert_eq!(encoder.lost_parts(), []);
    }

    #[test]
    fn a_row_of_text_is_refused_whole() {
        let mut batch = Batch::new();
        let mut writer = batch.begin("row");
        writer.field("host", FieldValue::Text("h"));
        writer.finish_fields(None);
        drop(writer);
        let mut encoder = Encoder::new(TagDialect::Dogstatsd, 1432);
        assert_eq!(encode(&mut encoder, &batch), Err(Skip::Unrepresentable));
        assert_eq!(encoder.lost_parts(), []);
    }

    #[test]
    fn what_cannot_be_said() {
        let refused = |name: &str, measure| {
            encode(&mut Encoder::new(TagDialect::Dogstatsd, 9), &one(name, &[], measure))
        };
        let count = |delta, rate| Measure::Count { delta, rate };
        assert_eq!(refused("", Measure::Set("a")), Err(Skip::EmptyName));
        assert_eq!(refused("n", Measure::Set("")), Err(Skip::Unrepresentable));
        assert_eq!(refused("n", count(f64::INFINITY, 1.0)), Err(Skip::NotFinite));
        assert_eq!(refused("n", Measure::Gauge(f64::NAN)), Err(Skip::NotFinite));
        assert_eq!(refused("n", count(1.0, 0.0)), Err(Skip::Unrepresentable));
        assert_eq!(refused("n", count(1.0, f64::NAN)), Err(Skip::Unrepresentable));
        assert_eq!(refused("n", Measure::Set("12345")), Ok("n:12345|s\n".to_owned()));
        assert_eq!(refused("n", Measure::Set("123456")), Err(Skip::TooLarge));
        // The two lines of a negative gauge count together.
        let pair = Measure::Reading(Number::I64(-1));
        assert_eq!(refused("n", pair), Err(Skip::TooLarge));
    }

    #[test]
    fn nothing_crosses_the_border_of_a_field() {
        let batch = one(
            "m|c\nadmin:1,x=y",
            &[
                ("h", Some("x|c\nadmin:1|c")),
                ("g", Some("a\r\nput evil 1 1 a=b")),
                ("z", Some("\0\u{1b}[2J\u{85}#,")),
                ("k:1", Some("v")),
            ],
            Measure::Set("a|s\nb:1|c"),
        );
        let mut encoder = Encoder::new(TagDialect::Dogstatsd, 1432);
        let expected = "m_c_admin_1,x_y:a_s_b:1_c|s|#h:x_c_admin:1_c,g:a__put evil 1 1 a=b,\
                        z:__[2J___,k_1:v\n";
        assert_eq!(encode(&mut encoder, &batch), Ok(expected.to_owned()));
        let mut encoder = Encoder::new(TagDialect::Influxdb, 1432);
        let expected = "m_c_admin_1_x_y,h=x_c_admin_1_c,g=a__put evil 1 1 a=b,\
                        z=__[2J___,k_1=v:a_s_b:1_c|s\n";
        assert_eq!(encode(&mut encoder, &batch), Ok(expected.to_owned()));
        let batch = one("_e{5,4}", &[], Measure::Timing { ms: 1.0, rate: 1.0 });
        let mut encoder = Encoder::new(TagDialect::Dogstatsd, 1432);
        assert_eq!(encode(&mut encoder, &batch), Ok("_e_5,4}:1|ms\n".to_owned()));
    }

    #[test]
    fn keys_that_become_equal_are_written_once() {
        let tags = [("a:b", Some("1")), ("c", None), ("a|b", Some("2"))];
        let batch = one("n", &tags, Measure::Histogram { value: 1.0, rate: 1.0 });
        let mut encoder = Encoder::new(TagDialect::Dogstatsd, 1432);
        assert_eq!(encode(&mut encoder, &batch), Ok("n:1|h|#c,a_b:2\n".to_owned()));
        assert_eq!(encoder.lost_parts(), [(Skip::Unrepresentable, 1)]);
    }

    /// Text with the marks of all dialects and some control characters in it.
    fn hostile() -> impl Strategy<Value = String> {
        let mark = proptest::sample::select(
            ":|@#,;=[]{}\n\r\0\t\u{7f}\u{85} /é日_e".chars().collect::<Vec<_>>(),
        );
        proptest::collection::vec(prop_oneof![mark, any::<char>()], 1..12)
            .prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        /// Whatever the texts hold, a record is one line that a receiver which knows every
        /// dialect reads as one point of the same kind, value and number of tags.
        #[test]
        fn hostile_text_is_one_point(
            name in hostile(), keys in proptest::collection::btree_set(hostile(), 0..4),
            value in hostile(), graphite: bool, influxdb: bool,
        ) {
            let dialect = match (graphite, influxdb) {
                (true, _) => TagDialect::Graphite,
                (_, true) => TagDialect::Influxdb,
                _ => TagDialect::Dogstatsd,
            };
            let tags: Vec<_> = keys.iter().map(|key| (&**key, Some(&*value))).collect();
            let batch = one(&name, &tags, Measure::Timing { ms: 2.5, rate: 0.5 });
            let mut encoder = Encoder::new(dialect, usize::MAX);
            let line = encode(&mut encoder, &batch).unwrap();
            let shadowed: u64 = encoder.lost_parts().iter().map(|(_, count)| count).sum();
            let mut back = Batch::new();
            let line = line.strip_suffix('\n').unwrap();
            let parsed = parse_line(line.as_bytes(), &Dialects::default(), &Limits::default(), &mut back);
            prop_assert!(matches!(parsed, Ok(Line::Points(_))), "{line:?}: {parsed:?}");
            prop_assert_eq!(back.len(), 1);
            let point = back.point(0).unwrap();
            prop_assert_eq!(point.measure, Measure::Timing { ms: 2.5, rate: 0.5 });
            prop_assert_eq!(point.tags.len() as u64 + shadowed, tags.len() as u64);
        }
    }
}
