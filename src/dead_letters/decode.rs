//! The records of a letter, back to points.
//!
//! They are in the backend's own bytes, and each kind of backend has a protocol that reads them. A
//! record says what the backend was told, which is less than the client said where a protocol has
//! no word for it: a row of one column `value` is taken for a sample, as it most likely was.

use protocols::influxdb::{self, ReadOptions};
use protocols::{Batch, Measure, Point, jsonl, statsd};

/// Points, and the line of the body that each was read from, counted from 0.
#[derive(Debug, Default)]
pub struct Decoded {
    /// The points.
    pub points: Batch,
    /// As many as there are points.
    pub lines: Vec<u32>,
}

/// Reads the records of a backend of that kind.
///
/// # Errors
///
/// A sentence that names the first line that is no point.
pub fn decode(kind: &str, body: &[u8]) -> Result<Decoded, String> {
    let read = match kind {
        "influxdb" => row,
        "statsd" => relayed,
        "store" | "stdout" | "blackhole" => json,
        _ => return Err(format!("nobody knows how a {kind} writes its records")),
    };
    let mut decoded = Decoded::default();
    for (number, line) in (0..).zip(body.split(|byte| *byte == b'\n')) {
        if line.is_empty() {
            continue;
        }
        let problem = |problem| format!("line {}: {problem}", number + 1);
        read(line, &mut decoded.points).map_err(problem)?;
        decoded.lines.resize(decoded.points.len(), number);
    }
    Ok(decoded)
}

/// Each point as one line of JSON, without its end.
pub fn json_lines(points: &Batch) -> Vec<String> {
    use protocols::Encode;
    let mut encoder = jsonl::Encoder::new();
    let line = |point: Point<'_>| {
        let mut out = Vec::new();
        encoder.encode(&point, &mut out).ok()?;
        String::from_utf8(out).ok().map(|line| line.trim_end().to_owned())
    };
    points.iter().filter_map(line).collect()
}

fn row(line: &[u8], out: &mut Batch) -> Result<(), String> {
    // What was sent before may be sent again, however large.
    let options = ReadOptions {
        line_bytes: usize::MAX,
        tags: usize::MAX,
        fields: usize::MAX,
        ..ReadOptions::default()
    };
    let mut read = Batch::new();
    influxdb::parse_line(line, &options, &mut read).map_err(|error| error.to_string())?;
    for point in read.iter() {
        out.push(&Point { measure: sample(point.measure), ..point });
    }
    Ok(())
}

fn sample(measure: Measure<'_>) -> Measure<'_> {
    let Measure::Fields(fields) = &measure else { return measure };
    match (fields.len(), fields.iter().next()) {
        (1, Some(("value", protocols::FieldValue::Number(number)))) => Measure::Reading(number),
        _ => measure,
    }
}

fn relayed(line: &[u8], out: &mut Batch) -> Result<(), String> {
    let limits = statsd::Limits { tags: usize::MAX };
    let read = statsd::parse_line(line, &statsd::Dialects::default(), &limits, out);
    read.map(drop).map_err(|error| error.to_string())
}

fn json(line: &[u8], out: &mut Batch) -> Result<(), String> {
    let line = str::from_utf8(line).map_err(|error| error.to_string())?;
    jsonl::parse_line(line, out).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: &str, body: &str, expected: Result<&[(u32, &str)], &str>) {
        let decoded = decode(kind, body.as_bytes());
        let decoded = decoded.map(|Decoded { points, lines }| {
            let texts = json_lines(&points);
            assert_eq!(texts.len(), lines.len());
            lines.into_iter().zip(texts).collect::<Vec<_>>()
        });
        let owned = |lines: &[(u32, &str)]| {
            lines.iter().map(|(line, text)| (*line, (*text).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(decoded, expected.map(owned).map_err(str::to_owned), "{body}");
    }

    #[test]
    fn each_kinds_records_are_read() {
        check(
            "influxdb",
            "m,os=linux value=1.5 7\nrow a=1i,b=\"x y\" 8\nm\\ n value=2i 9\n",
            Ok(&[
                (0, r#"{"name":"m","tags":{"os":"linux"},"time":7,"kind":"sample","value":1.5}"#),
                (1, r#"{"name":"row","time":8,"kind":"fields","fields":{"a":1,"b":"x y"}}"#),
                (2, r#"{"name":"m n","time":9,"kind":"sample","value":2}"#),
            ]),
        );
        check(
            "influxdb",
            "m value=\"text\" 7\n",
            Ok(&[(0, r#"{"name":"m","time":7,"kind":"fields","fields":{"value":"text"}}"#)]),
        );
        check(
            "statsd",
            "c:1|c|@0.5|#os:linux\n\ng:-5|g\n",
            Ok(&[
                (
                    0,
                    r#"{"name":"c","tags":{"os":"linux"},"kind":"counter","value":1.0,"rate":0.5}"#,
                ),
                (2, r#"{"name":"g","kind":"gauge","change":-5.0}"#),
            ]),
        );
        let timer = r#"{"name":"t","time":5,"kind":"timer","value":12.5}"#;
        for kind in ["store", "stdout", "blackhole"] {
            check(kind, &format!("{timer}\n"), Ok(&[(0, timer)]));
        }
        check("influxdb", "", Ok(&[]));
    }

    #[test]
    fn what_is_no_point_is_named_by_its_line() {
        check(
            "influxdb",
            "m value=1 7\nm value\n",
            Err("line 2: a field has no key, or is not key=value"),
        );
        check("stdout", "{}\n", Err("line 1: the line is not a point in JSON"));
        check("kafka", "m\n", Err("nobody knows how a kafka writes its records"));
    }
}
