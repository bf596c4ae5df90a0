//! Properties of JSON points: nothing panics, a refused body changes nothing, every item is
//! accounted for, and what JSON can say is read back as it was.

#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use protocols::json::{Limits, parse_json_lines, parse_points, parse_query};
use protocols::{Batch, FieldValue, Measure, Number, Point, UnixNanos};
use serde_json::{Map, Value, json};

/// JSON of any shape, with the members that mean something more often than not.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,4}".prop_map(Value::from),
        "(counter|gauge|set|2014-10-22T17:46:40Z|1414000000)".prop_map(Value::from),
    ];
    let key = "(name|metric|tags|time|timestamp|type|fields|columns|points|value|rate|[a-c]?)";
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A value of a field, and the JSON that says it.
fn field() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

fn filled() -> Batch {
    let mut batch = Batch::new();
    batch.begin("kept").finish(Measure::Gauge(1.0), None, "");
    batch
}

fn said(value: FieldValue<'_>) -> Value {
    match value {
        FieldValue::Number(Number::I64(n)) => json!(n),
        FieldValue::Number(Number::U64(n)) => json!(n),
        FieldValue::Number(Number::F64(x)) => json!(x),
        FieldValue::Bool(truth) => json!(truth),
        FieldValue::Text(text) => json!(text),
    }
}

/// The JSON of a point of columns.
fn object(point: &Point<'_>) -> Value {
    let Measure::Fields(fields) = point.measure else { panic!("not columns: {point:?}") };
    let fields: Map<_, _> = fields.iter().map(|(key, v)| (key.to_owned(), said(v))).collect();
    let tags: Map<_, _> =
        point.tags.iter().map(|tag| (tag.key.to_owned(), json!(tag.value.unwrap_or("")))).collect();
    json!({"name": point.name, "tags": tags, "fields": fields, "time": point.time.unwrap().0})
}

proptest! {
    /// A point of columns is read as it was said, to the last bit and character.
    #[test]
    fn columns_round_trip(
        name in any::<String>().prop_filter("a name", |n| (1..=1024).contains(&n.len())),
        tags in proptest::collection::btree_map(".{1,9}", any::<String>(), 0..5),
        fields in proptest::collection::btree_map("[^v].{0,9}", field(), 1..9),
        nanos in 100_000_000_000_000_000..i64::MAX,
    ) {
        let sent = json!({"name": name, "tags": tags, "fields": fields, "time": nanos});
        let mut batch = Batch::new();
        let body = sent.to_string();
        let outcome = parse_points(body.as_bytes(), Limits::default(), &mut batch).unwrap();
        prop_assert!(outcome.refusals.is_empty(), "{:?}", outcome.refusals.listed());
        let point = batch.point(0).unwrap();
        prop_assert_eq!(point.time, Some(UnixNanos(nanos)));
        prop_assert_eq!(object(&point), sent);
    }

    /// No JSON panics, each item of an array gives a point or refusals, and one by one the
    /// items give what they give together: in an array, as lines, and alone.
    #[test]
    fn every_item_is_accounted_for(items in proptest::collection::vec(value(), 0..6)) {
        let limits = Limits { tags: 2, fields: 3, ..Limits::default() };
        let body = Value::from(items.clone()).to_string();
        let mut together = Batch::new();
        let outcome = parse_points(body.as_bytes(), limits, &mut together).unwrap();
        prop_assert_eq!(outcome.accepted, together.len());

        let lines: Vec<_> = items.iter().map(Value::to_string).collect();
        let lines = lines.join("\n");
        let mut by_line = Batch::new();
        let lined = parse_json_lines(lines.as_bytes(), limits, &mut by_line);
        prop_assert_eq!(lined.accepted, outcome.accepted);
        prop_assert!(by_line.iter().eq(together.iter()));
        let reasons = |outcome: &protocols::json::Outcome<'_>| -> Vec<_> {
            outcome.refusals.listed().iter().map(|error| (error.index, error.reason)).collect()
        };
        prop_assert_eq!(reasons(&lined), reasons(&outcome));
        let mut alone = Batch::new();
        for item in items.iter().filter(|item| item.is_object()) {
            parse_points(item.to_string().as_bytes(), limits, &mut alone).unwrap();
        }
        prop_assert!(alone.iter().eq(together.iter()));
    }

    /// A body that is cut anywhere is refused whole and changes nothing, however much of it
    /// was sound.
    #[test]
    fn a_body_that_is_cut_changes_nothing(items in proptest::collection::vec(value(), 0..4), cut: u16) {
        let mut body = json!([{"name": "good", "value": 1}, items]).to_string().into_bytes();
        body.truncate(usize::from(cut) % body.len());
        let mut batch = filled();
        let before = (batch.len(), batch.bytes());
        prop_assert!(parse_points(&body, Limits::default(), &mut batch).is_err());
        prop_assert_eq!((batch.len(), batch.bytes()), before);
    }

    /// No bytes panic, whichever way they come, and what was there before stays.
    #[test]
    fn any_bytes_are_safe(body in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut batch = filled();
        let _ = parse_points(&body, Limits::default(), &mut batch);
        let _ = parse_json_lines(&body, Limits::default(), &mut batch);
        prop_assert_eq!(batch.point(0).unwrap().name, "kept");
    }

    /// A query gives one point or, refused, none.
    #[test]
    fn queries_give_one_point_or_none(
        series in ".{0,9}",
        pairs in proptest::collection::vec(
            ("(time|type|value|rate|name|tag\\.[a-b]?|[a-c]?)", "(true|null|[0-9.e-]{0,5}|set|.{0,4})"),
            0..6,
        ),
    ) {
        let mut batch = filled();
        let before = (batch.len(), batch.bytes());
        let borrowed = pairs.iter().map(|(key, text)| (key.as_str(), text.as_str()));
        match parse_query(&series, borrowed, Limits::default(), &mut batch) {
            Ok(()) => prop_assert_eq!(batch.len(), before.0 + 1),
            Err(_) => prop_assert_eq!((batch.len(), batch.bytes()), before),
        }
    }
}
