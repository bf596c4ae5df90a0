//! What is sent: a fixed mix of series, and blocks of bytes that hold them.
//!
//! Everything follows from a series' number, so that two runs with the same arguments send the
//! same bytes (but for timestamps) and every total is known before the first is sent. Blocks
//! are made once and sent again and again; nothing is formatted while the clock runs.

use std::io::Write;
use std::ops::Range;

/// What statsd would do with a series; fixed for each number: 60 % counters, 20 % gauges and
/// 20 % timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Timer,
}

impl Kind {
    pub const fn of(series: u64) -> Self {
        match series % 5 {
            3 => Self::Gauge,
            4 => Self::Timer,
            _ => Self::Counter,
        }
    }

    /// The `index`-th series of this kind.
    pub const fn nth(self, index: u64) -> u64 {
        match self {
            Self::Counter => index / 3 * 5 + index % 3,
            Self::Gauge => index * 5 + 3,
            Self::Timer => index * 5 + 4,
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Counter => "requests",
            Self::Gauge => "threads",
            Self::Timer => "latency",
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "c",
            Self::Gauge => "g",
            Self::Timer => "ms",
        }
    }
}

/// How a point is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `name:123|c`, 45 bytes, or with three tags.
    Statsd { tags: bool },
    /// `put name 1700000000000 123.5 env=prod host=web-17`.
    Put,
    /// A JSON point of `/v1/points`.
    JsonPoint,
    /// A JSON point of OpenTSDB's `/api/put`.
    ApiPut,
}

/// Points, ready to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    pub bytes: Vec<u8>,
    pub points: u64,
    /// The sum of the counters among the points.
    pub counter_sum: u64,
    /// The sum of all values, in halves.
    pub halves: u64,
    /// Where the milliseconds of each timed point stand.
    stamps: Vec<usize>,
}

impl Block {
    /// Lines of these series, each ended by a line feed.
    pub fn lines(form: Form, series: &[u64]) -> Self {
        let mut block = Self::default();
        for &series in series {
            block.push(form, series);
            block.bytes.push(b'\n');
        }
        block
    }

    /// A JSON array of these series, behind `head`, which is given the length of the array.
    pub fn request(form: Form, series: &[u64], head: impl Fn(usize) -> String) -> Self {
        let mut block = Self::default();
        for &series in series {
            block.bytes.push(if block.bytes.is_empty() { b'[' } else { b',' });
            block.push(form, series);
        }
        block.bytes.push(b']');
        let head = head(block.bytes.len());
        block.behind(head.as_bytes())
    }

    /// Gives every timed point this time, so that no point is sent twice.
    pub fn stamp(&mut self, milliseconds: u64) {
        let digits = format!("{milliseconds:0STAMP$}");
        for &at in &self.stamps {
            if let Some(stamp) = self.bytes.get_mut(at..at + STAMP) {
                stamp.copy_from_slice(digits.as_bytes());
            }
        }
    }

    /// Adds a point without what separates it from the next.
    fn push(&mut self, form: Form, series: u64) {
        let stamp = write_point(form, series, &mut self.bytes);
        self.stamps.extend(stamp);
        self.points += 1;
        self.halves += halves(form, series);
        if matches!(form, Form::Statsd { .. }) && Kind::of(series) == Kind::Counter {
            self.counter_sum += value(series);
        }
    }

    fn behind(mut self, head: &[u8]) -> Self {
        self.bytes.splice(..0, head.iter().copied());
        self.stamps.iter_mut().for_each(|at| *at += head.len());
        self
    }
}

/// Datagrams of equal length, end to end, as segmentation by the kernel wants them.
#[derive(Clone, Debug)]
pub struct Datagrams {
    bytes: Vec<u8>,
    /// The length of each.
    pub length: usize,
    /// How many there are.
    pub count: u64,
    counter_sums: Vec<u64>,
}

impl Datagrams {
    /// As many datagrams of `pack` lines as it takes to name every series.
    pub fn new(names: u64, pack: u64, tags: bool) -> Self {
        Self::of(|line| line, names, pack, tags)
    }

    /// The same of so many series of one kind.
    pub fn of_kind(kind: Kind, names: u64, pack: u64) -> Self {
        Self::of(|line| kind.nth(line), names, pack, false)
    }

    fn of(series: impl Fn(u64) -> u64, names: u64, pack: u64, tags: bool) -> Self {
        let count = names.div_ceil(pack);
        let mut bytes = Vec::new();
        let mut counter_sums = Vec::new();
        for datagram in 0..count {
            let lines = datagram * pack..(datagram + 1) * pack;
            let series: Vec<u64> = lines.map(|line| series(line % names)).collect();
            let mut block = Block::lines(Form::Statsd { tags }, &series);
            block.bytes.pop(); // The last line of a datagram ends with it.
            bytes.extend(block.bytes);
            counter_sums.push(block.counter_sum);
        }
        Self { length: bytes.len() / count.max(1) as usize, bytes, count, counter_sums }
    }

    /// The bytes of some datagrams.
    pub fn slice(&self, datagrams: Range<u64>) -> &[u8] {
        let at = |datagram: u64| datagram as usize * self.length;
        self.bytes.get(at(datagrams.start)..at(datagrams.end)).unwrap_or_default()
    }

    /// The sum of the counters in the first `sent` datagrams, when they are sent round and round.
    pub fn counter_sum(&self, sent: u64) -> u64 {
        let round: u64 = self.counter_sums.iter().sum();
        let rest: u64 = self.counter_sums.iter().take((sent % self.count) as usize).sum();
        sent / self.count * round + rest
    }
}

/// The series that fall to one of several connections.
pub fn share(names: u64, connection: u64, connections: u64) -> Vec<u64> {
    (0..names).filter(|series| series % connections == connection).collect()
}

/// The sum of the values in the first `sent` datagrams of `pack` lines, in halves, when those that
/// name every series are sent round and round.
pub fn halves_of_datagrams(names: u64, pack: u64, sent: u64) -> u64 {
    let in_round = |datagrams: u64| -> u64 {
        let lines = 0..datagrams * pack;
        lines.map(|line| halves(Form::Statsd { tags: false }, line % names)).sum()
    };
    let count = names.div_ceil(pack);
    sent / count * in_round(count) + in_round(sent % count)
}

/// Writes a point and says where its timestamp stands, if it has one.
fn write_point(form: Form, series: u64, out: &mut Vec<u8>) -> Option<usize> {
    let value = value(series);
    let name = name(series);
    // Writing to a Vec does not fail.
    let write = |out: &mut Vec<u8>, text: &str| out.write_all(text.as_bytes()).ok();
    let (before, after) = match form {
        Form::Statsd { tags } => {
            write(out, &format!("{name}:{value}|{}", Kind::of(series).suffix()));
            if tags {
                write(out, &format!("|#env:prod,region:eu-west-1,host:web-{:02}", series % 100));
            }
            return None;
        }
        Form::Put => {
            (format!("put {name} "), format!(" {value}.5 env=prod host=web-{:02}", series % 100))
        }
        Form::JsonPoint => (
            format!(r#"{{"name":"{name}","time":"#),
            format!(
                r#","tags":{{"env":"prod","host":"web-{:02}"}},"value":{value}.5}}"#,
                series % 100
            ),
        ),
        Form::ApiPut => (
            format!(r#"{{"metric":"{name}","timestamp":"#),
            format!(
                r#","value":{value}.5,"tags":{{"env":"prod","host":"web-{:02}"}}}}"#,
                series % 100
            ),
        ),
    };
    write(out, &before);
    let at = out.len();
    write(out, &"0".repeat(STAMP));
    write(out, &after);
    Some(at)
}

/// The bytes of the name of a series of this kind.
pub fn name_length(kind: Kind) -> usize {
    name(kind.nth(0)).len()
}

/// A name that makes every statsd line equally long, which segmentation needs.
fn name(series: u64) -> String {
    let kind = Kind::of(series);
    let stem = format!("web.frontend.{}.endpoint-", kind.noun());
    let digits = LINE - stem.len() - ":123|".len() - kind.suffix().len();
    format!("{stem}{series:0digits$}")
}

/// What a point of this series adds: all forms but statsd end in a half.
const fn halves(form: Form, series: u64) -> u64 {
    2 * value(series) + if matches!(form, Form::Statsd { .. }) { 0 } else { 1 }
}

/// Three digits.
const fn value(series: u64) -> u64 {
    100 + series * 7 % 900
}

/// The length of a statsd line without tags; that of the measurements we compare with.
const LINE: usize = 45;

/// Digits of milliseconds since 1970 until the year 2286.
const STAMP: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_equally_long() {
        for series in [0, 3, 4, 99_999, 999_999] {
            let block = Block::lines(Form::Statsd { tags: false }, &[series]);
            assert_eq!(block.bytes.len(), LINE + 1, "{block:?}");
        }
    }

    #[test]
    fn every_form_is_as_its_receiver_wants_it() {
        let check = |form, expected: &str| {
            let mut block = Block::lines(form, &[1]);
            block.stamp(1_700_000_000_123);
            assert_eq!(String::from_utf8(block.bytes).unwrap(), format!("{expected}\n"));
        };
        check(Form::Statsd { tags: false }, "web.frontend.requests.endpoint-00000001:107|c");
        check(
            Form::Statsd { tags: true },
            "web.frontend.requests.endpoint-00000001:107|c|#env:prod,region:eu-west-1,host:web-01",
        );
        check(
            Form::Put,
            "put web.frontend.requests.endpoint-00000001 1700000000123 107.5 env=prod host=web-01",
        );
        check(
            Form::JsonPoint,
            r#"{"name":"web.frontend.requests.endpoint-00000001","time":1700000000123,"tags":{"env":"prod","host":"web-01"},"value":107.5}"#,
        );
        check(
            Form::ApiPut,
            r#"{"metric":"web.frontend.requests.endpoint-00000001","timestamp":1700000000123,"value":107.5,"tags":{"env":"prod","host":"web-01"}}"#,
        );
    }

    #[test]
    fn six_in_ten_series_are_counters() {
        let of = |kind| (0..10_000).filter(|series| Kind::of(*series) == kind).count();
        assert_eq!([Kind::Counter, Kind::Gauge, Kind::Timer].map(of), [6_000, 2_000, 2_000]);
    }

    #[test]
    fn the_series_of_a_kind_are_all_of_it_and_none_twice() {
        for kind in [Kind::Counter, Kind::Gauge, Kind::Timer] {
            let of_it: Vec<u64> = (0..100).filter(|series| Kind::of(*series) == kind).collect();
            let nth: Vec<u64> = (0..of_it.len() as u64).map(|index| kind.nth(index)).collect();
            assert_eq!(nth, of_it, "{kind:?}");
        }
    }

    #[test]
    fn a_request_is_stamped_behind_its_head() {
        let mut block =
            Block::request(Form::ApiPut, &[0, 1], |length| format!("length {length}\r\n\r\n"));
        block.stamp(1_700_000_000_123);
        let text = String::from_utf8(block.bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(head, format!("length {}", body.len()));
        let items: Vec<serde_json::Value> = serde_json::from_str(body).unwrap();
        assert_eq!(items.len(), 2);
        assert!(items.iter().all(|item| item["timestamp"] == 1_700_000_000_123_u64));
    }

    /// The sum said for any number of datagrams is that of the lines in them.
    #[test]
    fn counter_sums_are_those_of_the_lines() {
        let datagrams = Datagrams::new(10, 4, false);
        assert_eq!(datagrams.count, 3);
        let mut sum = 0;
        for sent in 0..10 {
            assert_eq!(datagrams.counter_sum(sent), sum, "{sent}");
            let at = sent % datagrams.count;
            sum += counters_in(datagrams.slice(at..at + 1));
        }
    }

    #[test]
    fn sums_of_values_are_those_of_the_lines() {
        let datagrams = Datagrams::new(10, 4, false);
        let mut sum = 0;
        for sent in 0..10 {
            assert_eq!(halves_of_datagrams(10, 4, sent), sum, "{sent}");
            let at = sent % datagrams.count;
            let text = std::str::from_utf8(datagrams.slice(at..at + 1)).unwrap();
            let values = text.lines().map(|line| line.split([':', '|']).nth(1).unwrap());
            sum += 2 * values.map(|value| value.parse::<u64>().unwrap()).sum::<u64>();
        }
        assert_eq!(Block::lines(Form::Put, &[1, 2]).halves, 2 * (107 + 114) + 2);
    }

    fn counters_in(datagram: &[u8]) -> u64 {
        let lines = std::str::from_utf8(datagram).unwrap().lines();
        lines
            .filter_map(|line| line.strip_suffix("|c"))
            .map(|line| line.rsplit_once(':').unwrap().1.parse::<u64>().unwrap())
            .sum()
    }
}
