//! A listener's section as arguments of the parsers: what is understood, and how much of it.
//!
//! No sockets and no counters: `explain` asks the same that the listeners do.

use super::{Config, Dialect, FileFormat};
use crate::clock::nanos;
use crate::origin::Protocol;
use protocols::opentsdb::{self, PutOptions};
use protocols::timestamp::TimeRange;
use protocols::{Batch, ParseError, UnixNanos, influxdb, json, statsd};

/// What a listener understands.
#[derive(Clone, Debug)]
pub(super) struct Grammar {
    dialects: statsd::Dialects,
    line_bytes: usize,
    tags: usize,
    strict: bool,
    past: Option<i64>,
    future: Option<i64>,
}

impl Grammar {
    pub(super) fn new(config: &Config) -> Self {
        let window = config.time_window;
        Self {
            dialects: dialects(config.dialects.as_deref()),
            line_bytes: config.limits.line.bytes(),
            tags: config.limits.tags as usize,
            strict: config.strict,
            past: window.and_then(|window| window.past).map(|past| nanos(past.0)),
            future: window.and_then(|window| window.future).map(|future| nanos(future.0)),
        }
    }

    /// The times that points may have at `now`.
    pub(super) fn times(&self, UnixNanos(now): UnixNanos) -> TimeRange {
        let TimeRange { earliest, latest } = TimeRange::ALL;
        TimeRange {
            earliest: self.past.map_or(earliest, |past| UnixNanos(now.saturating_sub(past))),
            latest: self.future.map_or(latest, |future| UnixNanos(now.saturating_add(future))),
        }
    }

    /// Whether a line is short enough.
    pub(super) const fn takes(&self, line: &[u8]) -> bool {
        line.len() <= self.line_bytes
    }

    /// Reads a line of statsd into `out`; answers how many fields nobody knows.
    pub(super) fn statsd(
        &self,
        line: &[u8],
        times: &TimeRange,
        out: &mut Batch,
    ) -> Result<u32, ParseError> {
        if !self.takes(line) {
            return Err(ParseError::LineTooLong);
        }
        let (mark, before) = (out.mark(), out.len());
        let limits = statsd::Limits { tags: self.tags };
        let statsd::Line::Points(parsed) = statsd::parse_line(line, &self.dialects, &limits, out)?
        else {
            return Err(ParseError::UnsupportedEvent);
        };
        // The points of one line have one time.
        let time = out.point(before).and_then(|point| point.time);
        times.check(time).inspect_err(|_| out.rollback(mark))?;
        Ok(parsed.unknown_fields)
    }

    /// For puts, telnet and HTTP.
    pub(super) const fn put_options(&self, times: TimeRange) -> PutOptions {
        PutOptions { strict: self.strict, tags: self.tags, times }
    }

    /// For our own JSON.
    pub(super) fn json_limits(&self, times: TimeRange) -> json::Limits {
        json::Limits { tags: self.tags, times, ..json::Limits::default() }
    }

    /// For line protocol whose times are in units of `precision`.
    pub(super) fn read_options(
        &self,
        times: TimeRange,
        precision: influxdb::Precision,
    ) -> influxdb::ReadOptions {
        let (line_bytes, tags) = (self.line_bytes, self.tags);
        influxdb::ReadOptions { precision, line_bytes, tags, times, ..Default::default() }
    }
}

/// The points of one line, as a listener with this section reads it; for the listeners of
/// HTTP, and where a brace or bracket begins a line for OpenTSDB, a whole body.
///
/// # Errors
///
/// Why it would be refused; of several points, why the first of them would.
pub fn parse_alone(config: &Config, line: &[u8], now: UnixNanos) -> Result<Batch, Unparsed> {
    let grammar = Grammar::new(config);
    let times = grammar.times(now);
    let mut batch = Batch::new();
    match config.protocol {
        Protocol::Statsd => {
            grammar.statsd(line, &times, &mut batch).map_err(Unparsed::from)?;
        }
        Protocol::Opentsdb if !is_json(line) => {
            let put = opentsdb::parse_put(line, &grammar.put_options(times), &mut batch);
            put.map_err(|error| Unparsed::from(error.reason))?;
        }
        Protocol::Opentsdb => {
            let body = opentsdb::parse_body(line, &grammar.put_options(times), &mut batch);
            first(&body.map_err(Unparsed::body)?)?;
        }
        Protocol::Http => {
            let body = json::parse_points(line, grammar.json_limits(times), &mut batch);
            first(&body.map_err(Unparsed::body)?.refusals)?;
        }
        Protocol::File | Protocol::Pulse => {
            file_line(config, &grammar, line, &times, &mut batch)?;
        }
        Protocol::Influxdb => {
            let options = grammar.read_options(times, influxdb::Precision::default());
            let mut why = None;
            influxdb::parse_body(line, &options, &mut batch, |refused| {
                let (reason, message) = (refused.reason.label(), refused.message());
                why.get_or_insert(Unparsed { reason, message });
            });
            why.map_or(Ok(()), Err)?;
        }
    }
    Ok(batch)
}

/// A line of a file; of a table it is the row alone that cannot be read.
fn file_line(
    config: &Config,
    grammar: &Grammar,
    line: &[u8],
    times: &TimeRange,
    batch: &mut Batch,
) -> Result<(), Unparsed> {
    let prefix = config.series.as_deref().unwrap_or("");
    match config.format {
        Some(FileFormat::Statsd) => {
            let line = [prefix.as_bytes(), line].concat();
            grammar.statsd(&line, times, batch).map(drop).map_err(Unparsed::from)
        }
        Some(FileFormat::Csv) => Err(Unparsed {
            reason: "table_refused",
            message: "a row says nothing without the columns' names".to_owned(),
        }),
        Some(FileFormat::Jsonl | FileFormat::Log) | None => {
            let mark = config.prefix.as_deref().unwrap_or(super::file::MARK).as_bytes();
            let line = line.strip_prefix(mark).unwrap_or(line);
            let mut prefixed = Vec::new();
            json::write_prefixed(line, prefix, &mut prefixed);
            let outcome = json::parse_json_lines(&prefixed, grammar.json_limits(*times), batch);
            first(&outcome.refusals)
        }
    }
}

/// Whether a listener of that protocol would be brought this by HTTP.
pub fn is_request(protocol: Protocol, line: &[u8]) -> bool {
    protocol.is_http() && (protocol != Protocol::Opentsdb || is_json(line))
}

fn is_json(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start().first(), Some(b'[' | b'{'))
}

fn first(refusals: &protocols::Refusals<'_>) -> Result<(), Unparsed> {
    refusals.listed().first().map_or(Ok(()), |refused| {
        let (reason, message) = (refused.reason.label(), refused.message.clone().into_owned());
        Err(Unparsed { reason, message })
    })
}

/// Why a line would be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unparsed {
    /// As it would be counted.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl Unparsed {
    fn body(error: json::BodyError) -> Self {
        Self { reason: error.reason().label(), message: error.to_string() }
    }
}

impl From<ParseError> for Unparsed {
    fn from(reason: ParseError) -> Self {
        Self { reason: reason.label(), message: reason.to_string() }
    }
}

fn dialects(configured: Option<&[Dialect]>) -> statsd::Dialects {
    let Some(configured) = configured else { return statsd::Dialects::default() };
    let has = |dialect| configured.contains(&dialect);
    statsd::Dialects {
        dogstatsd: has(Dialect::Dogstatsd),
        influxdb: has(Dialect::Influxdb),
        graphite: has(Dialect::Graphite),
        signalfx: has(Dialect::Signalfx),
        librato: has(Dialect::Librato),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The names of the points of one line, or why there are none.
    fn alone(protocol: &str, line: &str) -> Result<Vec<String>, String> {
        let section = json!({
            "protocol": protocol,
            "bind": [],
            "limits": { "line": "100B" },
            "time_window": { "past": "1h" },
        });
        let config = serde_json::from_value(section).unwrap();
        let now = UnixNanos::from_secs(1_700_000_000);
        let batch = parse_alone(&config, line.as_bytes(), now).map_err(|why| why.message)?;
        Ok(batch.iter().map(|point| point.name.to_owned()).collect())
    }

    #[test]
    fn a_line_alone_is_read_as_its_listener_would() {
        let names = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect());
        for (protocol, line, expected) in [
            ("statsd", "a:1:2|c", names(&["a", "a"])),
            ("opentsdb", "put b 1700000000 1 h=x", names(&["b"])),
            ("opentsdb", r#" [{"metric":"c","timestamp":1700000000,"value":1}]"#, names(&["c"])),
            ("http", r#"[{"name":"d","value":1},{"name":"e","value":2}]"#, names(&["d", "e"])),
            ("influxdb", "f,h=x v=1,w=2i 1700000000000000000", names(&["f"])),
            ("influxdb", "# f v=1", names(&[])),
            ("file", "{\"name\":\"g\",\"value\":1}", names(&["g"])),
            ("file", "[taskcluster-task:stat] {\"name\":\"h\",\"value\":1}", names(&["h"])),
        ] {
            assert_eq!(alone(protocol, line), expected, "{line}");
        }
    }

    #[test]
    fn what_a_listener_would_refuse_says_why() {
        let long = format!("{}:1|c", "x".repeat(100));
        for (protocol, line, reason) in [
            ("statsd", "a:x|c", ParseError::InvalidValue),
            ("statsd", &long, ParseError::LineTooLong),
            ("statsd", "_e{1,1}:a|b", ParseError::UnsupportedEvent),
            ("statsd", "a:1|c|T1600000000", ParseError::TimestampOutOfRange),
            ("opentsdb", "put b 1600000000 1", ParseError::TimestampOutOfRange),
            (
                "http",
                r#"{"name":"d","value":1,"time":1600000000}"#,
                ParseError::TimestampOutOfRange,
            ),
            ("http", r#"{"name":"","value":1}"#, ParseError::EmptyName),
            ("influxdb", "f,h v=1", ParseError::InvalidTag),
            ("influxdb", &long, ParseError::LineTooLong),
        ] {
            assert_eq!(alone(protocol, line), Err(reason.to_string()), "{line}");
        }
        assert!(alone("http", "nonsense").is_err());
    }

    #[test]
    fn without_a_window_every_time_is_taken() {
        let config = serde_json::from_value(json!({ "protocol": "statsd", "bind": [] })).unwrap();
        assert_eq!(Grammar::new(&config).times(UnixNanos(7)), TimeRange::ALL);
    }
}
