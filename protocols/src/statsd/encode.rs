//! Points as statsd lines, and lines as datagrams.
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

use crate::decimal::{write_f64, write_number};
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
    /// By [`Skip::index`].
    lost: [u64; Skip::ALL.len()],
}

impl Encoder {
    /// For lines of at most `max_line` bytes without their LF.
    pub const fn new(dialect: TagDialect, max_line: usize) -> Self {
        Self { dialect, max_line, timestamps: false, lost: [0; Skip::ALL.len()] }
    }

    /// Whether readings and columns keep their own time (`|T…`, DogStatsD only). Off by
    /// default: a receiver does not aggregate what has a time. Counters and gauges that came
    /// with a time always keep it.
    #[must_use]
    pub const fn with_timestamps(self, timestamps: bool) -> Self {
        Self { timestamps, ..self }
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
                self.lose(skip, 1);
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

    fn lose(&mut self, skip: Skip, parts: u64) {
        if let Some(count) = self.lost.get_mut(skip.index()) {
            *count += parts;
        }
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
            Ok(()) => self.lose(Skip::Unrepresentable, subject.shadowed_tags()),
            Err(_) => out.truncate(start),
        }
        result
    }

    fn lost_parts(&mut self) -> Vec<(Skip, u64)> {
        let lost = std::mem::take(&mut self.lost);
        Skip::ALL.iter().copied().zip(lost).filter(|(_, count)| *count > 0).collect()
    }
}

/// Cuts a block of lines into datagrams of at most `max` bytes, at line borders. A datagram
/// has no LF at its end.
///
/// The reset of a negative gauge and the change that follows it stay together. A line (or
/// such a pair) longer than `max` cannot be cut and comes alone: whoever sends counts it as
/// too large.
pub fn packets(body: &[u8], max: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = body;
    std::iter::from_fn(move || {
        while let Some(after) = rest.strip_prefix(b"\n") {
            rest = after;
        }
        if rest.is_empty() {
            return None;
        }
        let (packet, left) = rest.split_at_checked(packet_end(rest, max))?;
        rest = left;
        Some(without_lf(packet))
    })
}

/// Where the first packet of `body` ends.
fn packet_end(body: &[u8], max: usize) -> usize {
    if without_lf(body).len() <= max {
        return body.len();
    }
    let window = body.get(..=max).unwrap_or(body);
    let Some(end) = memchr::memrchr(b'\n', window) else {
        return unit_end(body);
    };
    let last = memchr::memrchr(b'\n', window.get(..end).unwrap_or_default()).map_or(0, |at| at + 1);
    let tail = body.get(last..).unwrap_or_default();
    match unit_end(tail) {
        // The last line that fits is the reset of a pair whose second line does not fit.
        unit if last + unit > end + 1 && last > 0 => last,
        unit => last + unit,
    }
}

/// Where the first line of `body` ends, or the second if the two set one gauge.
fn unit_end(body: &[u8]) -> usize {
    let (line, rest) = split_line(body);
    let (next, left) = split_line(rest);
    let end = if is_pair(line, next) { left } else { rest };
    body.len() - end.len()
}

/// `n:0|g…` and `n:-5|g…`, of the same name and with the same tail.
fn is_pair(reset: &[u8], change: &[u8]) -> bool {
    let Some(colon) = memchr::memchr(b':', reset) else { return false };
    let (name, value) = reset.split_at(colon);
    let Some(tail) = value.strip_prefix(b":0|g") else { return false };
    let Some(change) = change.strip_prefix(name).and_then(|rest| rest.strip_prefix(b":-")) else {
        return false;
    };
    let Some(bar) = memchr::memchr(b'|', change) else { return false };
    change.get(bar..).and_then(|kind| kind.strip_prefix(b"|g")) == Some(tail)
}

fn split_line(body: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr(b'\n', body).unwrap_or(body.len());
    let (line, rest) = body.split_at(end);
    (line, rest.get(1..).unwrap_or_default())
}

fn without_lf(body: &[u8]) -> &[u8] {
    body.strip_suffix(b"\n").unwrap_or(body)
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
        let fit = if in_name(self.dialect) { NAME_WITH_TAGS } else { NAME };
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
    key: Fit,
    value: Fit,
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

const fn in_name(dialect: TagDialect) -> bool {
    matches!(dialect, TagDialect::Influxdb | TagDialect::Graphite)
}

const fn style(dialect: TagDialect) -> Option<&'static Style> {
    match dialect {
        TagDialect::Dogstatsd => Some(&DOGSTATSD),
        TagDialect::Influxdb => Some(&INFLUXDB),
        TagDialect::Graphite => Some(&GRAPHITE),
        TagDialect::None => None,
    }
}

/// A name that begins like an event would not be taken for a measurement.
fn defuse_event(out: &mut [u8], start: usize) {
    if let Some([b'_', b'e', brace @ b'{', ..]) = out.get_mut(start..) {
        *brace = b'_';
    }
}

fn finite(value: f64) -> Result<(), Skip> {
    if value.is_finite() { Ok(()) } else { Err(Skip::NotFinite) }
}

/// The characters that may not stand in one place: some ASCII marks, by bit, and always the
/// control characters.
#[derive(Clone, Copy)]
struct Fit(u128);

impl Fit {
    const fn without(marks: &[u8]) -> Self {
        let mut unfit = CONTROLS;
        let mut rest = marks;
        while let [mark, more @ ..] = rest {
            unfit |= 1 << *mark;
            rest = more;
        }
        Self(unfit)
    }

    fn clean(self, out: &mut Vec<u8>, text: &str) {
        if self.suits(text) {
            return out.extend_from_slice(text.as_bytes());
        }
        for fit in self.cleaned(text) {
            out.extend_from_slice(fit.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn suits(self, text: &str) -> bool {
        // One look at every byte; C1 control characters are only looked for beyond ASCII.
        let unfit = text.bytes().any(|byte| byte < 0x80 && self.0 >> byte & 1 == 1);
        !unfit && (text.is_ascii() || !text.chars().any(char::is_control))
    }

    fn cleaned(self, text: &str) -> impl Iterator<Item = char> {
        text.chars().map(move |char| {
            let unfit = char.is_control() || (char.is_ascii() && self.0 >> (char as u32) & 1 == 1);
            if unfit { '_' } else { char }
        })
    }
}

/// C0 and DEL.
const CONTROLS: u128 = (1 << 127) | 0xffff_ffff;

/// A colon ends a name, a bar could end a field of a careless reader.
const NAME: Fit = Fit::without(b":|=");
/// With tags inside the name, nothing else there may look like the beginning of a list.
const NAME_WITH_TAGS: Fit = Fit::without(b":|=,;#[]");
const MEMBER: Fit = Fit::without(b"|");
/// The separators of both dialects, as a receiver may know the other one too.
const KEY_IN_NAME: Fit = Fit::without(b":|=,;#");
const VALUE_IN_NAME: Fit = Fit::without(b":|,;#");
/// Came from a line, so it is made of fields already.
const REST: Fit = Fit::without(b"");

const DOGSTATSD: Style = Style {
    first: "|#",
    next: ",",
    assign: b':',
    bare: true,
    key: Fit::without(b":|,#"),
    value: Fit::without(b"|,#"),
};

const INFLUXDB: Style = Style {
    first: ",",
    next: ",",
    assign: b'=',
    bare: false,
    key: KEY_IN_NAME,
    value: VALUE_IN_NAME,
};

const GRAPHITE: Style = Style {
    first: ";",
    next: ";",
    assign: b'=',
    bare: false,
    key: KEY_IN_NAME,
    value: VALUE_IN_NAME,
};
