//! What comes out of a server, added up: pure readers of the formats that servers send in.
//!
//! Every value that goes in is a function of its series, so the sum of those that come out says
//! whether they are the same, and not only as many.

use memchr::memchr_iter;
use serde::Serialize;
use std::io::Read;
use std::str;

/// The sum of what came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Lines, rows or samples.
    pub points: u64,
    /// The sum of their values, in halves: every value that is sent is a whole number of those.
    pub halves: u64,
    /// The sum of the counters among them.
    pub counter_sum: u64,
    /// Lines that the server says it has received; statsd/statsd alone sends that along.
    pub told: u64,
    /// Datagrams, or requests.
    pub packets: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// What could not be read.
    pub garbled: u64,
}

/// How a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `name:123|c`.
    Statsd,
    /// `name 123 1700000000`, of statsd/statsd or of collectd.
    Graphite,
    /// `name,tags count=123,rate=12.3 1700000000000000000`, perhaps in gzip.
    LineProtocol,
    /// Prometheus's remote write: a protobuf message in snappy.
    RemoteWrite,
}

impl Tally {
    /// Adds a datagram, or the body of a request.
    pub fn packet(&mut self, format: Format, bytes: &[u8]) {
        self.packets += 1;
        self.bytes += bytes.len() as u64;
        let inflated;
        let bytes = match inflate(format, bytes) {
            None => bytes,
            Some(body) => {
                inflated = body.unwrap_or_default();
                self.garbled += u64::from(inflated.is_empty());
                &inflated
            }
        };
        if format == Format::RemoteWrite {
            return self.remote_write(bytes);
        }
        for line in lines(bytes) {
            self.line(format, line);
        }
    }

    /// Adds one line.
    pub fn line(&mut self, format: Format, line: &[u8]) {
        let record = str::from_utf8(line).ok().and_then(|line| match format {
            Format::Statsd => statsd(line),
            Format::Graphite => graphite(line),
            Format::LineProtocol => line_protocol(line),
            Format::RemoteWrite => None,
        });
        match record {
            Some((name, value)) => self.point(name, value),
            None => self.garbled += 1,
        }
    }

    fn point(&mut self, name: &str, value: f64) {
        self.points += 1;
        self.halves = self.halves.wrapping_add((value * 2.0) as u64);
        if is_count(name) {
            self.counter_sum += value as u64;
        }
        if name.ends_with(TOLD) {
            self.told += value as u64;
        }
    }

    fn remote_write(&mut self, message: &[u8]) {
        for series in fields(message, TIMESERIES) {
            for sample in fields(series, SAMPLES) {
                // The value comes first: its key, then eight bytes.
                match sample.get(1..9).and_then(|bytes| bytes.try_into().ok()) {
                    Some(bytes) => self.point("", f64::from_le_bytes(bytes)),
                    None => self.garbled += 1,
                }
            }
        }
    }
}

/// Whether this is how much a counter has grown, and not its rate or its height.
fn is_count(name: &str) -> bool {
    name.contains(COUNTER) && !name.ends_with(".rate") && !name.contains(".derive-")
}

/// The body as it was before it was compressed, if it was; none inside if that cannot be undone.
fn inflate(format: Format, bytes: &[u8]) -> Option<Option<Vec<u8>>> {
    match format {
        Format::RemoteWrite => Some(snap::raw::Decoder::new().decompress_vec(bytes).ok()),
        Format::LineProtocol if bytes.starts_with(GZIP) => {
            let mut body = Vec::new();
            let read = flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut body);
            Some(read.ok().map(|_| body))
        }
        _ => None,
    }
}

/// Lines that are not empty; the last may end with the bytes.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr_iter(b'\n', bytes).chain([bytes.len()]);
    let mut start = 0;
    ends.map(move |end| bytes.get(std::mem::replace(&mut start, end + 1)..end).unwrap_or_default())
        .filter(|line| !line.is_empty())
}

fn statsd(line: &str) -> Option<(&str, f64)> {
    let (name, rest) = line.split_once(':')?;
    Some((name, rest.split('|').next()?.parse().ok()?))
}

fn graphite(line: &str) -> Option<(&str, f64)> {
    let mut words = line.split_ascii_whitespace();
    Some((words.next()?, words.next()?.parse().ok()?))
}

/// The name and the first field, which is `count`, `value` or `sum`; names and tags that are sent
/// here hold nothing that would be escaped.
fn line_protocol(line: &str) -> Option<(&str, f64)> {
    let mut words = line.split(' ');
    let name = words.next()?.split(',').next()?;
    let first = words.next()?.split(',').next()?;
    let value = first.split_once('=')?.1.trim_end_matches(['i', 'u']);
    Some((name, value.parse().ok()?))
}

/// The contents of a message's fields of this number, which are messages themselves.
fn fields(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    let mut rest = message;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (key, content) = field(&mut rest)?;
            if key == number {
                return content;
            }
        }
        None
    })
}

/// One field of a protobuf message: its number, and its bytes if it has a length.
fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Option<&'a [u8]>)> {
    let key = varint(rest)?;
    let content = match key & 7 {
        0 => varint(rest).map(|_| None)?,
        1 => rest.split_off(..8).map(|_| None)?,
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Some(rest.split_off(..length)?)
        }
        5 => rest.split_off(..4).map(|_| None)?,
        _ => return None,
    };
    Some((key >> 3, content))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = rest.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// What the names of counters have in them, and no others: see `mix::name`. Collectd writes
/// underscores for dots.
const COUNTER: &str = "requests";

/// The end of the name under which statsd/statsd tells how many lines it has received.
const TOLD: &str = "metrics_received.count";

const GZIP: &[u8] = &[0x1f, 0x8b];

/// Numbers of fields in Prometheus's `WriteRequest` and `TimeSeries`.
const TIMESERIES: u64 = 1;
const SAMPLES: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::{Block, Form};
    use std::io::Write;

    fn of(format: Format, packet: &[u8]) -> Tally {
        let mut tally = Tally::default();
        tally.packet(format, packet);
        tally
    }

    #[test]
    fn relayed_lines_are_those_that_were_sent() {
        let mut sent = Block::lines(Form::Statsd { tags: false }, &[1, 3, 4]);
        sent.bytes.pop();
        let tally = of(Format::Statsd, &sent.bytes);
        assert_eq!((tally.points, tally.halves), (sent.points, sent.halves));
        assert_eq!((tally.counter_sum, tally.packets, tally.garbled), (sent.counter_sum, 1, 0));
    }

    #[test]
    fn counters_are_told_from_rates_and_from_what_a_server_says_of_itself() {
        let check = |line: &str, counter_sum, told| {
            let tally = of(Format::Graphite, line.as_bytes());
            assert_eq!(
                (tally.counter_sum, tally.told, tally.garbled),
                (counter_sum, told, 0),
                "{line}"
            );
        };
        check(
            "stats.counters.web.frontend.requests.endpoint-00000001.count 321 1700000000\n",
            321,
            0,
        );
        check(
            "stats.counters.web.frontend.requests.endpoint-00000001.rate 32.1 1700000000\n",
            0,
            0,
        );
        check("stats.gauges.web.frontend.threads.endpoint-000000003 17 1700000000", 0, 0);
        check("stats.counters.statsd.metrics_received.count 9000 1700000000", 0, 9000);
        check(
            "h.statsd.count-web_frontend_requests_endpoint-00000001 321.000000 1700000000",
            321,
            0,
        );
        check("h.statsd.derive-web_frontend_requests_endpoint-00000001 999 1700000000", 0, 0);
    }

    #[test]
    fn rows_are_read_plain_and_compressed() {
        let rows = b"web.frontend.requests.endpoint-00000001,type=c count=107,rate=10.7 1700000000000000000\n\
            web.frontend.threads.endpoint-000000003 value=121.5 1700000000000000000\n";
        let plain = of(Format::LineProtocol, rows);
        assert_eq!((plain.points, plain.halves, plain.counter_sum), (2, 457, 107));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(rows).unwrap();
        let packed = gzip.finish().unwrap();
        let tally = of(Format::LineProtocol, &packed);
        assert_eq!(tally, Tally { bytes: packed.len() as u64, ..plain });
        assert_eq!(of(Format::LineProtocol, &packed[..packed.len() / 2]).garbled, 1);
    }

    /// Two series, the first with a label and two samples.
    #[test]
    fn samples_of_a_remote_write_are_added() {
        let sample = |value: f64| {
            let mut bytes = vec![0x12, 11, 0x09];
            bytes.extend(value.to_le_bytes());
            bytes.extend([0x10, 0x7f]);
            bytes
        };
        let label = [0x0a, 4, 0x0a, 0, 0x12, 0];
        let first = [&label[..], &sample(107.5), &sample(1.0)].concat();
        let second = sample(0.5);
        let message: Vec<u8> = [first, second]
            .into_iter()
            .flat_map(|series| [vec![0x0a, series.len() as u8], series].concat())
            .collect();
        let body = snap::raw::Encoder::new().compress_vec(&message).unwrap();
        let tally = of(Format::RemoteWrite, &body);
        assert_eq!((tally.points, tally.halves, tally.garbled), (3, 218, 0));
        assert_eq!(of(Format::RemoteWrite, b"no snappy").garbled, 1);
    }

    #[test]
    fn what_is_no_line_is_counted() {
        assert_eq!(of(Format::Statsd, b"a:1|c\nhello\n\nb:x|c").garbled, 2);
    }
}
