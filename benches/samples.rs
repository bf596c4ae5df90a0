//! Inputs that several steps share: 512 lines over 512 names, as one receive would bring.

use protocols::Batch;
use protocols::opentsdb::{PutOptions, parse_put};
use protocols::statsd::{Dialects, Limits, lines, parse_line};
use std::fmt::Write;

/// Lines or items in each sample.
pub const LINES: usize = 512;

/// Values in each line of [`statsd_many`].
pub const VALUES: usize = 4;

/// Counters, gauges and timers of about 45 bytes, without tags.
pub fn statsd_plain() -> String {
    statsd("")
}

/// The same with three tags.
pub fn statsd_tagged() -> String {
    statsd("|#host:web-17,env:production,region:eu-west-1")
}

/// Timers of [`VALUES`] values a line.
pub fn statsd_many() -> String {
    repeat(|text, n| {
        writeln!(text, "service.frontend.endpoint-{n:05}.latency:{n}:12.5:0.25:{}|ms", n * 3)
    })
}

/// OpenTSDB puts with two tags, of the minute that many after the first.
pub fn puts(minute: usize) -> String {
    repeat(|text, n| {
        writeln!(
            text,
            "put app.requests.{n}.latency {} {}.25 host=web-17 env=prod",
            second(minute, n),
            n * 7
        )
    })
}

/// The same as a JSON array.
pub fn put_json(minute: usize) -> String {
    let items = repeat(|text, n| {
        let comma = if n == 0 { "" } else { "," };
        write!(
            text,
            r#"{comma}{{"metric":"app.requests.{n}.latency","timestamp":{},"value":{}.25,"tags":{{"host":"web-17","env":"prod"}}}}"#,
            second(minute, n),
            n * 7
        )
    });
    format!("[{items}]")
}

/// JSON points of three columns.
pub fn json_points(minute: usize) -> String {
    let items = repeat(|text, n| {
        let comma = if n == 0 { "" } else { "," };
        write!(
            text,
            r#"{comma}{{"name":"build/times/{n}","tags":{{"os":"linux"}},"time":{},"compile":{}.5,"link":3,"ok":true}}"#,
            second(minute, n),
            n
        )
    });
    format!("[{items}]")
}

/// Line protocol of two tags and three columns, as an agent sends it.
pub fn line_protocol() -> String {
    repeat(|text, n| {
        writeln!(
            text,
            "cpu,cpu=cpu{n},host=web-17 usage_idle={}.25,usage_user=1.5,threads={n}i \
             17000000{:02}000000000",
            n % 100,
            n % 60
        )
    })
}

/// The same size with escapes in its names, and text.
pub fn line_protocol_escaped() -> String {
    repeat(|text, n| {
        writeln!(
            text,
            "disk\\ use,path=/mnt/a\\ b\\,{n},host=web-17 free={n}i,state=\"say \\\"ok\\\"\" \
             17000000{:02}000000000",
            n % 60
        )
    })
}

/// The points of a body of statsd lines.
pub fn batch(body: &str) -> Batch {
    let mut batch = Batch::new();
    for line in lines(body.as_bytes()) {
        parse_line(line, &Dialects::default(), &Limits::default(), &mut batch).ok();
    }
    batch
}

/// The points of [`puts`]: readings with two tags and a time, what a database is sent.
pub fn readings() -> Batch {
    let mut batch = Batch::new();
    for line in lines(puts(0).as_bytes()) {
        parse_put(line, &PutOptions::default(), &mut batch).ok();
    }
    batch
}

const fn second(minute: usize, n: usize) -> usize {
    1_700_000_000 + minute * 60 + n % 60
}

fn statsd(tags: &str) -> String {
    let kinds = ["c", "c", "c|@0.1", "g", "ms"];
    repeat(|text, n| {
        let kind = kinds.get(n % kinds.len()).copied().unwrap_or("c");
        writeln!(text, "service.frontend.endpoint-{n:05}.requests:{}|{kind}{tags}", n * 3)
    })
}

fn repeat(mut line: impl FnMut(&mut String, usize) -> std::fmt::Result) -> String {
    let mut text = String::new();
    for n in 0..LINES {
        // Writing to a String does not fail.
        line(&mut text, n).ok();
    }
    text
}
