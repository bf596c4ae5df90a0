//! Properties of the OpenTSDB side: nothing panics, refusals change nothing, and what is
//! encoded is read back as it was.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use protocols::opentsdb::{
    AnswerMode, Encoder, PutOptions, answer, command, parse_body, parse_put, reply_put_error,
    reply_unknown, strip_negotiation,
};
use protocols::{Batch, Encode, Measure, Number, UnixNanos};
use serde_json::json;

/// A name that OpenTSDB takes as it is.
fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9é日_./-]{1,20}"
}

/// All numbers whose text comes back as the same number.
fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        any::<i64>().prop_map(Number::I64),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Number::F64),
    ]
}

/// Whole milliseconds, from where they no longer fit in 32 bits to the end of the range.
fn time() -> impl Strategy<Value = UnixNanos> {
    (i64::from(u32::MAX) + 1..=i64::MAX / 1_000_000).prop_map(UnixNanos::from_millis)
}

fn tags() -> impl Strategy<Value = Vec<(String, String)>> {
    proptest::collection::btree_map(name(), name(), 0..8)
        .prop_map(|tags| tags.into_iter().collect())
}

fn reading(name: &str, tags: &[(String, String)], time: UnixNanos, value: Number) -> Batch {
    let mut batch = Batch::new();
    let mut writer = batch.begin(name);
    for (key, value) in tags {
        writer.tag(key, Some(value));
    }
    writer.finish(Measure::Reading(value), Some(time), "");
    drop(writer);
    batch
}

/// Lines that look like puts, and some that do not.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        "[a-z=0-9.]{0,8}".prop_map(String::into_bytes),
        "-?[0-9]{1,20}(\\.[0-9]{0,4})?(e[0-9]{1,3})?".prop_map(String::into_bytes),
        "[a-c]=[a-c]".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    let words = proptest::collection::vec((word, "[ \t\r]{1,2}"), 0..7);
    (prop_oneof![Just("put "), Just("")], words).prop_map(|(start, words)| {
        let mut line = start.as_bytes().to_vec();
        for (word, blank) in words {
            line.extend(word);
            line.extend(blank.into_bytes());
        }
        line
    })
}

proptest! {
    /// A point that OpenTSDB can say comes back from its put line as it was.
    #[test]
    fn put_lines_round_trip(name in name(), tags in tags(), time in time(), value in number()) {
        let sent = reading(&name, &tags, time, value);
        let mut encoder = Encoder::new();
        let mut line = Vec::new();
        encoder.encode(&sent.point(0).unwrap(), &mut line).unwrap();
        prop_assert_eq!(encoder.lost_parts(), []);
        let mut got = Batch::new();
        parse_put(&line, &PutOptions::default(), &mut got).unwrap();
        prop_assert_eq!(got.point(0), sent.point(0));
    }

    /// A point comes back from a JSON datapoint as it was, whatever its text holds.
    #[test]
    fn datapoints_round_trip(
        name in any::<String>().prop_filter("a name", |n| (1..=1024).contains(&n.len())),
        key in "\\PC{1,9}",
        value in ".{1,9}|\\PC{1,9}",
        time in time(),
        number in number(),
    ) {
        let sent = reading(&name, &[(key.clone(), value.clone())], time, number);
        let digits = match number {
            Number::I64(n) => json!(n),
            Number::U64(n) => json!(n),
            Number::F64(x) => json!(x),
        };
        let millis = format!("{:013}", time.millis());
        let body = json!([
            {"metric": name, "timestamp": millis, "value": digits, "tags": {key: value}}
        ]).to_string();
        let mut got = Batch::new();
        let refusals = parse_body(body.as_bytes(), &PutOptions::default(), &mut got).unwrap();
        prop_assert!(refusals.is_empty());
        prop_assert_eq!(got.point(0), sent.point(0));
    }

    /// Whatever is encoded is one line, without control characters, that is read again.
    #[test]
    fn no_text_breaks_out_of_its_line(
        name in any::<String>(),
        tags in proptest::collection::vec((any::<String>(), any::<String>()), 0..4),
        value in number(),
    ) {
        let tags: Vec<_> = tags
            .into_iter()
            .filter(|(key, value)| !key.is_empty() && !value.is_empty())
            .collect();
        let sent = reading(&name, &tags, UnixNanos::from_secs(1_700_000_000), value);
        let mut line = Vec::new();
        if Encoder::new().encode(&sent.point(0).unwrap(), &mut line).is_ok() {
            let text = std::str::from_utf8(&line).unwrap();
            prop_assert!(text.ends_with('\n') && text.len() <= 1023);
            prop_assert!(!text.trim_end_matches('\n').contains(char::is_control));
            let mut got = Batch::new();
            parse_put(&line, &PutOptions::default(), &mut got).unwrap();
            prop_assert_eq!(got.point(0).unwrap().measure, Measure::Reading(value));
        } else {
            prop_assert!(line.is_empty());
        }
    }

    /// No line panics; a refused one leaves the batch as it was and is answered by one line
    /// without control characters.
    #[test]
    fn refused_lines_change_nothing(line in line(), strict: bool, tags in 0_usize..3) {
        let mut batch = reading("kept", &[], UnixNanos(1), Number::I64(1));
        let before = (batch.len(), batch.bytes());
        let mut reply = Vec::new();
        let _ = command(strip_negotiation(&line));
        match parse_put(&line, &PutOptions { strict, tags, ..PutOptions::default() }, &mut batch) {
            Ok(()) => prop_assert_eq!(batch.len(), before.0 + 1),
            Err(error) => {
                prop_assert_eq!((batch.len(), batch.bytes()), before);
                reply_put_error(&error, &mut reply);
            }
        }
        let mut word = Vec::new();
        reply_unknown(&line, &mut word);
        for text in [reply, word] {
            let text = String::from_utf8(text).unwrap();
            prop_assert!(text.lines().count() <= 1 && text.len() < 300);
            prop_assert!(!text.trim_end_matches('\n').contains(char::is_control));
        }
    }

    /// Every item of a body is either in the batch or among the refusals.
    #[test]
    fn every_datapoint_is_accounted_for(
        items in proptest::collection::vec(
            prop_oneof![
                Just(r#"{"metric":"a","timestamp":1,"value":1}"#),
                Just(r#"{"metric":"a","timestamp":"1","value":"0.5","tags":{"a":"b"}}"#),
                Just(r#"{"metric":"a","timestamp":1,"value":1e400}"#),
                Just(r#"{"metric":"a","timestamp":0,"value":1}"#),
                Just(r#"{"metric":"","timestamp":1,"value":1,"tags":{"a":"b"}}"#),
                Just("null"),
                Just("[[],{}]"),
            ],
            1..20,
        ),
    ) {
        let body = format!("[{}]", items.join(","));
        let mut batch = Batch::new();
        let refusals = parse_body(body.as_bytes(), &PutOptions::default(), &mut batch).unwrap();
        prop_assert_eq!(batch.len() + refusals.total(), items.len());
        let details = answer(batch.len(), &refusals, AnswerMode::Details).body.unwrap();
        prop_assert_eq!(details.matches(r#"{"error":"#).count(), refusals.total());
    }
}
