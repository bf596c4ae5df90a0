//! What the line-protocol encoder writes reads back as the point it was, made fit.
//!
//! The rules for names are said a second time here, as simply as possible, so that encoder
//! and reader cannot agree on a mistake.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use protocols::influxdb::{
    Encoder, EncoderOptions, Integers, ReadOptions, TIME_MAX, TIME_MIN, lines, parse_body,
};
use protocols::{Batch, Encode, FieldValue, Measure, Number, ParseError, UnixNanos, influxdb};
use std::collections::BTreeMap;

/// A point as plain data.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    tags: Vec<(String, Option<String>)>,
    columns: Vec<(String, Value)>,
    time: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(Number),
    Bool(bool),
    Text(String),
}

proptest! {
    /// Whatever the names, tags and columns are, the point comes back with its names made
    /// fit and everything else unchanged, and nothing is lost that is not counted.
    #[test]
    fn a_point_comes_back_made_fit(row in row()) {
        let (line, lost) = encode(&row);
        let mut batch = Batch::new();
        let line = line.trim_end_matches('\n');
        prop_assert_eq!(parse_line(line.as_bytes(), &mut batch), Ok(()), "{:?}", line);
        let (expected, doubled) = made_fit(&row);
        prop_assert_eq!(read(&batch), expected, "{:?}", line);
        prop_assert_eq!(lost, doubled);
    }

    /// One point is one line, whoever counts the lines, and is not a comment.
    #[test]
    fn one_point_is_one_line(row in row()) {
        let (line, _) = encode(&row);
        let body = line.strip_suffix('\n').unwrap();
        prop_assert!(!body.contains(LINE_BREAKS));
        let special = body.starts_with(['#', ',', ' ', '\u{feff}']);
        prop_assert!(!special);
    }

    /// What was made fit once is left as it is.
    #[test]
    fn fit_is_fit(row in row()) {
        let (line, _) = encode(&row);
        let mut batch = Batch::new();
        parse_line(line.trim_end_matches('\n').as_bytes(), &mut batch).unwrap();
        let (again, lost) = encode(&read(&batch));
        prop_assert_eq!(again, line);
        prop_assert_eq!(lost, 0);
    }

    /// The reader takes or refuses any text and never panics; a refusal leaves no trace.
    #[test]
    fn the_reader_never_panics(line in prop_oneof![any::<String>(), nasty(), mangled()]) {
        let mut batch = Batch::new();
        let result = parse_line(line.as_bytes(), &mut batch);
        prop_assert_eq!(batch.len(), usize::from(result.is_ok()));
        prop_assert!(result.is_ok() || batch.bytes() == 0);
    }

    /// So it is with any bytes as a body, of which each line is read once at most: as a point,
    /// or as refused.
    #[test]
    fn a_body_never_panics(body in vec(prop_oneof![4 => mangled(), 1 => nasty()], 0..6), torn: u8) {
        let mut body = body.join("\n").into_bytes();
        if let Some(byte) = body.get_mut(usize::from(torn)) {
            *byte = torn;
        }
        let (mut batch, mut numbers) = (Batch::new(), Vec::new());
        let options = ReadOptions::default();
        parse_body(&body, &options, &mut batch, |refused| numbers.push(refused.number));
        prop_assert!(numbers.is_sorted_by(|one, next| one < next));
        prop_assert_eq!(lines(&body).count(), batch.len() + numbers.len());
    }

    /// What was encoded is found again line by line, whatever the texts are, and a line that
    /// is bad in itself costs none of its neighbours.
    #[test]
    fn neighbours_of_a_bad_line_are_kept(rows in vec(row(), 1..5), bad in bad_line(), at: u8) {
        let mut sent: Vec<_> = rows.iter().map(|row| encode(row).0).collect();
        let at = usize::from(at) % (rows.len() + 1);
        sent.insert(at, format!("{bad}\n"));
        let (mut batch, mut numbers) = (Batch::new(), Vec::new());
        let body = sent.concat();
        let options = ReadOptions::default();
        parse_body(body.as_bytes(), &options, &mut batch, |refused| numbers.push(refused.number));
        prop_assert_eq!(batch.len(), rows.len(), "{:?}", body);
        prop_assert_eq!(numbers, [at + 1]);
    }

    /// Texts with newlines, which the encoder never writes but clients do.
    #[test]
    fn texts_may_have_any_character(texts in vec(any_text(), 1..4)) {
        let columns: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(n, text)| format!("f{n}=\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")))
            .collect();
        let line = format!("m {} 7\n", columns.join(","));
        let mut batch = Batch::new();
        parse_body(line.repeat(2).as_bytes(), &ReadOptions::default(), &mut batch, |_| {});
        prop_assert_eq!(batch.len(), 2, "{:?}", line);
        prop_assert_eq!(batch.point(0), batch.point(1));
        let Measure::Fields(fields) = batch.point(1).unwrap().measure else { panic!() };
        let read: Vec<_> = fields.iter().map(|(_, value)| value).collect();
        let expected: Vec<_> = texts.iter().map(|text| FieldValue::Text(text)).collect();
        prop_assert_eq!(read, expected);
    }
}

fn parse_line(line: &[u8], out: &mut Batch) -> Result<(), ParseError> {
    influxdb::parse_line(line, &ReadOptions::default(), out)
}

fn encode(row: &Row) -> (String, u64) {
    let mut batch = Batch::new();
    let mut writer = batch.begin(&row.name);
    for (key, value) in &row.tags {
        writer.tag(key, value.as_deref());
    }
    for (key, value) in &row.columns {
        writer.field(key, value.view());
    }
    writer.finish_fields(row.time.map(UnixNanos));
    drop(writer);
    let options = EncoderOptions { integers: Integers::Keep, unsigned: true };
    let mut encoder = Encoder::new(options);
    let mut out = Vec::new();
    encoder.encode(&batch.point(0).unwrap(), &mut out).unwrap();
    let lost = encoder.lost_parts().iter().map(|(_, count)| count).sum();
    (String::from_utf8(out).unwrap(), lost)
}

impl Value {
    fn view(&self) -> FieldValue<'_> {
        match self {
            Value::Number(number) => FieldValue::Number(*number),
            Value::Bool(truth) => FieldValue::Bool(*truth),
            Value::Text(text) => FieldValue::Text(text),
        }
    }
}

fn read(batch: &Batch) -> Row {
    assert_eq!(batch.len(), 1);
    let point = batch.point(0).unwrap();
    let Measure::Fields(fields) = point.measure else { panic!("{point:?}") };
    let value = |value| match value {
        FieldValue::Number(number) => Value::Number(number),
        FieldValue::Bool(truth) => Value::Bool(truth),
        FieldValue::Text(text) => Value::Text(text.to_owned()),
    };
    Row {
        name: point.name.to_owned(),
        tags: point
            .tags
            .iter()
            .map(|tag| (tag.key.to_owned(), tag.value.map(str::to_owned)))
            .collect(),
        columns: fields.iter().map(|(key, field)| (key.to_owned(), value(field))).collect(),
        time: point.time.map(|time| time.0),
    }
}

/// The row as a server should see it, and how many parts are gone because of equal keys.
fn made_fit(row: &Row) -> (Row, u64) {
    let mut name = fit(&row.name);
    if let Some(rest) = name.strip_prefix(['#', '\u{feff}']) {
        name = format!("_{rest}");
    }
    let tags: BTreeMap<_, _> = row
        .tags
        .iter()
        .map(|(key, value)| (fit_key(key), Some(fit(value.as_deref().unwrap_or("true")))))
        .collect();
    let last =
        |at: usize, key: &String| !row.columns[at + 1..].iter().any(|(k, _)| fit_key(k) == *key);
    let columns: Vec<_> = row
        .columns
        .iter()
        .enumerate()
        .map(|(at, (key, value))| (at, fit_key(key), fit_value(value)))
        .filter(|(at, key, _)| last(*at, key))
        .map(|(_, key, value)| (key, value))
        .collect();
    let doubled = row.tags.len() - tags.len() + row.columns.len() - columns.len();
    let mut tags: Vec<_> = tags.into_iter().collect();
    tags.sort_by_key(|(key, _)| key.replace(',', "\\,").replace(' ', "\\ ").replace('=', "\\="));
    (Row { name, tags, columns, time: row.time }, doubled as u64)
}

fn fit(name: &str) -> String {
    let mut fit: String = name
        .chars()
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { '_' } else { c })
        .collect();
    for (bad, good) in [("\\,", "_,"), ("\\ ", "_ "), ("\\=", "_="), ("\\\"", "_\"")] {
        fit = fit.replace(bad, good);
    }
    if fit.ends_with('\\') {
        fit.pop();
        fit.push('_');
    }
    fit
}

fn fit_key(key: &str) -> String {
    if key == "time" { "time_".to_owned() } else { fit(key) }
}

fn fit_value(value: &Value) -> Value {
    match value {
        Value::Text(text) => Value::Text(text.replace(LINE_BREAKS, " ")),
        other => other.clone(),
    }
}

/// Text made of what the protocol cares about.
fn nasty() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just('\\'),
        Just(','),
        Just(' '),
        Just('='),
        Just('"'),
        Just('\n'),
        Just('#'),
        Just('\u{feff}'),
        prop::sample::select(vec![
            '\r',
            '\0',
            '\x1b',
            '\x7f',
            '\u{85}',
            '\u{2028}',
            'é',
            '\u{1f600}'
        ]),
        prop::char::range('a', 'c'),
        any::<char>(),
    ];
    vec(piece, 1..8).prop_map(String::from_iter)
}

/// Few enough that some become equal once they are fit.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => nasty(),
        1 => prop::sample::select(vec!["a\n", "a_", "a\\", "time", "time_"]).prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        prop::num::f64::NORMAL.prop_map(|value| Value::Number(Number::F64(value))),
        (prop::num::f64::ZERO | prop::num::f64::SUBNORMAL)
            .prop_map(|value| Value::Number(Number::F64(value))),
        any::<i64>().prop_map(|value| Value::Number(Number::I64(value))),
        (i64::MAX as u64 + 1..).prop_map(|value| Value::Number(Number::U64(value))),
        any::<bool>().prop_map(Value::Bool),
        prop_oneof![Just(String::new()), nasty(), any::<String>()].prop_map(Value::Text),
    ]
}

fn row() -> impl Strategy<Value = Row> {
    let tags = btree_map(key(), prop::option::of(nasty()), 0..5);
    let columns = btree_map(key(), value(), 1..5);
    let time = prop::option::of(TIME_MIN..=TIME_MAX);
    (nasty(), tags, columns, time).prop_map(|(name, tags, columns, time)| Row {
        name,
        tags: tags.into_iter().collect(),
        columns: columns.into_iter().rev().collect(),
        time,
    })
}

/// A good line with one character gone or another put in.
fn mangled() -> impl Strategy<Value = String> {
    (row(), any::<prop::sample::Index>(), prop::option::of(nasty())).prop_map(|(row, at, put)| {
        let mut line: Vec<char> = encode(&row).0.chars().collect();
        let at = at.index(line.len());
        line.splice(at..=at, put.unwrap_or_default().chars());
        line.into_iter().collect()
    })
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), nasty(), any::<String>()]
}

/// What no server takes, and whose end is where it seems to be: an open quote may find its
/// other half in a name of the next line.
fn bad_line() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "m",
        "m,t f=1",
        "m f=",
        "m f=1,f=1",
        "m f=1 x",
        r#"m f="a "b" c""#,
        r#"m f=1,g="x"y"#,
        r#"m,t=" f"#,
    ])
}

/// Whatever ends a line for anybody.
const LINE_BREAKS: [char; 7] = ['\n', '\r', '\x0b', '\x0c', '\u{85}', '\u{2028}', '\u{2029}'];
