//! The grammar of a line of measurements.
//!
//! ```abnf
//! line   = name ":" sample *( ":" sample / "|" field )
//! sample = values "|" kind
//! values = value *( ":" value )             ; of a set: one member, colons and all
//! kind   = "c" / "g" / "ms" / "h" / "d" / "s"
//! field  = "@" rate / "#" tags / "T" seconds / "c:" id / "e:" data / "card:" level
//!        / unknown / ""
//! ```
//!
//! A colon begins the next sample only after a kind or a rate: all other fields may hold
//! colons of their own (`#addr:10.0.0.1:443`, `c:ci-9f`).
//!
//! **Advice for whoever changes this.** A line is read once and written from what was seen.
//! Only the rare line of several samples is walked again, because its tags may follow its
//! samples and a point's tags are written before its measure.

use super::tags::{self, Spelling};
use super::{Dialects, Limits, Parsed};
use crate::decimal::parse_finite;
use crate::name::check_length;
use crate::token::{self, Parse, mark, reason, refuse, until, until_either};
use crate::{Batch, Kind, Measure, ParseError, PointWriter, UnixNanos};
use nom::Parser;
use nom::branch::alt;
use nom::bytes::complete::tag;
use nom::combinator::{opt, recognize, value, verify};
use nom::sequence::preceded;
use std::borrow::Cow;

/// Writes the points of one line. On `Err` the caller rolls back what was written.
pub(super) fn metric(
    line: &[u8],
    dialects: &Dialects,
    limits: &Limits,
    out: &mut Batch,
) -> Result<Parsed, ParseError> {
    let line = std::str::from_utf8(line).map_err(|_| ParseError::InvalidUtf8)?;
    if token::has_control(line) {
        return Err(ParseError::ControlCharacter);
    }
    let (name, body) = name(line)?;
    let subject = tags::split_name(name, dialects);
    check_length(&subject.name)?;
    let mut writer = out.begin(&subject.name);
    if let Some((list, spelling)) = subject.tags {
        tags::add(list, spelling, limits, &mut writer)?;
    }
    let seen = read(body, dialects, limits, &mut writer)?;
    if expands(body, name.len() + seen.shared_bytes + seen.rest.text().len()) {
        return Err(ParseError::LineTooLong);
    }
    let points = write(body, &seen, &mut writer)?;
    Ok(Parsed { points, unknown_fields: seen.unknown_fields })
}

/// Whether a line of many values asks for more copies of what they share than is sane. The
/// batch keeps it once, but every backend's records repeat it.
fn expands(body: &str, shared_bytes: usize) -> bool {
    body.len().saturating_mul(shared_bytes) > EXPANDED_BYTES_MAX
        && memchr::memchr_iter(b':', body.as_bytes()).count().saturating_mul(shared_bytes)
            > EXPANDED_BYTES_MAX
}

/// The name, and the rest of the line from its first colon on.
fn name(line: &str) -> Result<(&str, &str), ParseError> {
    let (body, name) = until_either(b':', b'|')(line).map_err(reason)?;
    if name.is_empty() {
        return Err(ParseError::EmptyName);
    }
    if !body.starts_with(':') {
        return Err(ParseError::MissingValue);
    }
    Ok((name, body))
}

/// What a line says apart from its tags, which are written as they are read.
#[derive(Default)]
struct Seen<'a> {
    /// The only sample, unless there are several.
    last: Sample<'a>,
    samples: u32,
    time: Option<UnixNanos>,
    rest: Rest<'a>,
    unknown_fields: u32,
    /// The length of the tags, which every point of the line has.
    shared_bytes: usize,
}

#[derive(Clone, Copy, Default)]
struct Sample<'a> {
    values: &'a str,
    kind: &'a str,
    rate: Option<&'a str>,
}

/// The two things a line is made of after its name.
#[derive(Clone)]
enum Piece<'a> {
    Sample(Sample<'a>),
    Field(Field<'a>),
}

#[derive(Clone)]
enum Field<'a> {
    Rate(&'a str),
    Tags(&'a str),
    Time(&'a str),
    /// For others than us: the client's container, external data, cardinality.
    Known(&'a str),
    Unknown(&'a str),
    Empty,
}

fn read<'a>(
    body: &'a str,
    dialects: &Dialects,
    limits: &Limits,
    writer: &mut PointWriter<'_>,
) -> Result<Seen<'a>, ParseError> {
    let mut seen = Seen::default();
    for piece in pieces(body) {
        match piece? {
            Piece::Sample(sample) => {
                seen.last = sample;
                seen.samples += 1;
            }
            Piece::Field(Field::Rate(rate)) => seen.last.rate = Some(rate),
            Piece::Field(Field::Tags(list)) if dialects.dogstatsd => {
                // The mark `#` was found by the grammar and is not part of the list.
                let list = list.get(1..).unwrap_or_default();
                seen.shared_bytes += list.len();
                tags::add(list, Spelling::DOGSTATSD, limits, writer)?;
            }
            Piece::Field(Field::Time(seconds)) => seen.time = Some(time(seconds)?),
            Piece::Field(Field::Known(field)) => seen.rest.push(body, field),
            // Not kept: an encoder would repeat it as tags that no one had looked at.
            Piece::Field(Field::Tags(_)) => seen.unknown_fields += 1,
            Piece::Field(Field::Unknown(field)) => {
                seen.rest.push(body, field);
                seen.unknown_fields += 1;
            }
            Piece::Field(Field::Empty) => {}
        }
    }
    Ok(seen)
}

/// Writes a point for every value; answers how many.
fn write(body: &str, seen: &Seen<'_>, writer: &mut PointWriter<'_>) -> Result<u32, ParseError> {
    if seen.samples == 1 {
        return write_sample(&seen.last, seen, writer);
    }
    let mut points = 0;
    let mut open: Option<Sample<'_>> = None;
    for piece in pieces(body) {
        match (piece?, &mut open) {
            (Piece::Sample(next), _) => {
                if let Some(done) = open.replace(next) {
                    points += write_sample(&done, seen, writer)?;
                }
            }
            (Piece::Field(Field::Rate(rate)), Some(sample)) => sample.rate = Some(rate),
            (Piece::Field(_), _) => {}
        }
    }
    match open {
        Some(done) => Ok(points + write_sample(&done, seen, writer)?),
        None => Ok(points),
    }
}

fn write_sample(
    sample: &Sample<'_>,
    seen: &Seen<'_>,
    writer: &mut PointWriter<'_>,
) -> Result<u32, ParseError> {
    let kind = kind(sample.kind)?;
    let rate = rate(kind, sample.rate)?;
    let mut points = 0;
    let mut finish = |text| -> Result<(), ParseError> {
        writer.finish(measure(kind, text, rate)?, seen.time, seen.rest.text());
        points += 1;
        Ok(())
    };
    let mut values = sample.values;
    if kind != Kind::Set {
        while let Some((value, more)) = token::split_once(values, b':') {
            finish(value)?;
            values = more;
        }
    }
    finish(values)?;
    Ok(points)
}

fn measure(kind: Kind, text: &str, rate: f64) -> Result<Measure<'_>, ParseError> {
    if text.is_empty() {
        return Err(ParseError::MissingValue);
    }
    if kind == Kind::Set {
        return Ok(Measure::Set(text));
    }
    let value = parse_finite(text).ok_or(ParseError::InvalidValue)?;
    Ok(match kind {
        Kind::Gauge if text.starts_with(['+', '-']) => Measure::GaugeShift(value),
        Kind::Gauge => Measure::Gauge(value),
        Kind::Timer => Measure::Timing { ms: value, rate },
        Kind::Histogram => Measure::Histogram { value, rate },
        Kind::Distribution => Measure::Distribution { value, rate },
        _ => Measure::Count { delta: value, rate },
    })
}

fn kind(text: &str) -> Result<Kind, ParseError> {
    Ok(match text {
        "c" => Kind::Counter,
        "g" => Kind::Gauge,
        "ms" => Kind::Timer,
        "h" => Kind::Histogram,
        "d" => Kind::Distribution,
        "s" => Kind::Set,
        "" => return Err(ParseError::MissingKind),
        _ => return Err(ParseError::UnknownKind),
    })
}

/// The rate of a sample, 1 without one. Gauges and sets have none, whatever it says.
fn rate(kind: Kind, text: Option<&str>) -> Result<f64, ParseError> {
    match text {
        Some(text) if !matches!(kind, Kind::Gauge | Kind::Set) => parse_finite(text)
            .filter(|rate| *rate > 0.0 && *rate <= 1.0)
            .ok_or(ParseError::InvalidRate),
        _ => Ok(1.0),
    }
}

/// A positive number of whole seconds that nanoseconds can hold.
fn time(seconds: &str) -> Result<UnixNanos, ParseError> {
    let whole = seconds.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = seconds.parse().ok().filter(|secs| whole && (1..=SECONDS_MAX).contains(secs));
    seconds.map(UnixNanos::from_secs).ok_or(ParseError::InvalidTimestamp)
}

/// Fields to be repeated, as one text. Where they stand side by side, as clients write them,
/// it is the line's own.
#[derive(Default)]
struct Rest<'a>(Cow<'a, str>);

impl<'a> Rest<'a> {
    fn push(&mut self, body: &'a str, field: &'a str) {
        if self.0.is_empty() {
            self.0 = Cow::Borrowed(field);
        } else if let Some(joined) = self.joined(body, field) {
            self.0 = Cow::Borrowed(joined);
        } else {
            let text = self.0.to_mut();
            text.push('|');
            text.push_str(field);
        }
    }

    /// The fields so far and the one that follows them in `body` with just a `|` between.
    fn joined(&self, body: &'a str, field: &'a str) -> Option<&'a str> {
        let Cow::Borrowed(text) = self.0 else { return None };
        let offset = |part: &str| part.as_ptr().addr().checked_sub(body.as_ptr().addr());
        let (start, next) = (offset(text)?, offset(field)?);
        (next == start + text.len() + 1).then(|| body.get(start..next + field.len()))?
    }

    fn text(&self) -> &str {
        &self.0
    }
}

/// The pieces of a body one after the other; ends after the first that is refused.
fn pieces<'a>(body: &'a str) -> impl Iterator<Item = Result<Piece<'a>, ParseError>> {
    let mut input = body;
    std::iter::from_fn(move || {
        if input.is_empty() {
            return None;
        }
        let parsed = piece(input).map_err(reason);
        input = parsed.as_ref().map_or("", |(left, _)| *left);
        Some(parsed.map(|(_, piece)| piece))
    })
}

fn piece(input: &str) -> Parse<'_, Piece<'_>> {
    alt((
        preceded(mark('|'), field.map(Piece::Field)),
        preceded(mark(':'), sample.map(Piece::Sample)),
    ))
    .parse(input)
}

fn sample(input: &str) -> Parse<'_, Sample<'_>> {
    let (input, values) = until(b'|')(input)?;
    if values.is_empty() {
        return refuse(ParseError::MissingValue);
    }
    let (input, found) = opt(mark('|')).parse(input)?;
    if found.is_none() {
        return refuse(ParseError::MissingKind);
    }
    let (input, kind) = until_either(b'|', b':')(input)?;
    Ok((input, Sample { values, kind, rate: None }))
}

fn field(input: &str) -> Parse<'_, Field<'_>> {
    alt((
        preceded(mark('@'), until_either(b'|', b':')).map(Field::Rate),
        recognize((mark('#'), until(b'|'))).map(Field::Tags),
        preceded(mark('T'), verify(until(b'|'), is_numeric)).map(Field::Time),
        recognize((alt((tag("c:"), tag("e:"), tag("card:"))), until(b'|'))).map(Field::Known),
        value(Field::Empty, verify(until(b'|'), str::is_empty)),
        until(b'|').map(Field::Unknown),
    ))
    .parse(input)
}

/// Whether this is meant as a number, so that a future field may begin with a `T`.
fn is_numeric(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.'))
}

/// The last whole second of the year 2262 that fits into 63 bits of nanoseconds.
const SECONDS_MAX: i64 = i64::MAX / 1_000_000_000;

/// A full 64 KiB line of short values with 250 bytes of tags passes; one half of which is
/// tags would become half a gigabyte.
const EXPANDED_BYTES_MAX: usize = 8 << 20;
