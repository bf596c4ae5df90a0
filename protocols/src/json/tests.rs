//! Tables of JSON points, good and bad; each is read twice into a batch that is not empty.

use super::*;
use crate::answer::Answer;
use crate::point::{Measure, UnixNanos};

const LIMITS: Limits =
    Limits { tags: 3, fields: 4, unfolded: 1 << 20, times: crate::timestamp::TimeRange::ALL };

/// How `Debug` shows the points of a body, without the punctuation of structs.
fn shown(batch: &Batch, from: usize) -> Vec<String> {
    batch
        .iter()
        .skip(from)
        .map(|point| {
            let tags: String = point
                .tags
                .iter()
                .map(|tag| match tag.value {
                    Some(value) => format!(",{}={value}", tag.key),
                    None => format!(",{}", tag.key),
                })
                .collect();
            let time = point.time.map(|UnixNanos(nanos)| format!(" @{nanos}")).unwrap_or_default();
            format!("{}{tags} {}{time}", point.name, shown_measure(&point.measure))
        })
        .collect()
}

fn shown_measure(measure: &Measure<'_>) -> String {
    match measure {
        Measure::Fields(fields) => {
            let columns: Vec<_> = fields.iter().map(|(key, v)| format!("{key}={v:?}")).collect();
            columns.join(" ").replace("Number(", "(")
        }
        other => format!("{other:?}"),
    }
}

fn filled() -> Batch {
    let mut batch = Batch::new();
    batch.begin("first").finish(Measure::Gauge(1.0), None, "");
    batch
}

fn accepts(body: &str, expected: &[&str]) {
    let mut batch = filled();
    for round in 0..2 {
        let from = batch.len();
        let outcome = parse_points(body.as_bytes(), LIMITS, &mut batch).unwrap();
        assert!(outcome.refusals.is_empty(), "{body}: {:?}", outcome.refusals.listed());
        assert_eq!(outcome.accepted, expected.len(), "{body}");
        assert_eq!(shown(&batch, from), expected, "{body}, round {round}");
    }
}

fn refuses(body: &str, reason: ParseError) {
    let mut batch = filled();
    let bytes = batch.bytes();
    let outcome = parse_points(body.as_bytes(), LIMITS, &mut batch).unwrap();
    let reasons: Vec<_> = outcome.refusals.listed().iter().map(|error| error.reason).collect();
    assert_eq!(reasons, [reason], "{body}");
    assert_eq!((outcome.accepted, batch.bytes()), (0, bytes), "{body}");
}

#[test]
fn points() {
    accepts(
        r#"{"name":"build/times","tags":{"os":"linux"},"time":1414000000,"compile":12.5,"ok":true}"#,
        &["build/times,os=linux compile=(F64(12.5)) ok=Bool(true) @1414000000000000000"],
    );
    accepts(
        r#"[{"fields":{"compile":12.5,"ok":false},"b":1,"name":"n"},{"name":"m","text":"a\nb"}]"#,
        &["n compile=(F64(12.5)) ok=Bool(false) b=(I64(1))", r#"m text=Text("a\nb")"#],
    );
    accepts(
        r#"{"metric":"a","timestamp":1700000000123,"value":1,"tags":{"h":"x"}}"#,
        &["a,h=x Reading(I64(1)) @1700000000123000000"],
    );
    accepts(
        r#"{"metric":"field","name":"n","value":1}"#,
        &[r#"n value=(I64(1)) metric=Text("field")"#],
    );
    accepts(r#"{"name":"n","points":[],"columns":["a"]}"#, &[]);
    accepts(
        r#"{"name":"n","fields":3,"columns":1,"points":"p"}"#,
        &[r#"n fields=(I64(3)) columns=(I64(1)) points=Text("p")"#],
    );
    accepts(r#"{"name":"n","value":"42"}"#, &[r#"n value=Text("42")"#]);
    accepts(r#"{"name":"n","value":true}"#, &["n value=Bool(true)"]);
    accepts(
        r#"{"name":"n","value":1,"gone":null,"time":null,"tags":null,"type":null}"#,
        &["n Reading(I64(1))"],
    );
    accepts("[]", &[]);
}

#[test]
fn numbers_keep_their_64_bits() {
    for (digits, shown) in [
        ("2882429806056571124", "I64(2882429806056571124)"),
        ("9007199254740993", "I64(9007199254740993)"),
        ("18446744073709551615", "U64(18446744073709551615)"),
        ("1.0", "F64(1.0)"),
        ("-0", "F64(-0.0)"),
    ] {
        let body = format!(r#"{{"metric":"id","value":{digits}}}"#);
        accepts(&body, &[&format!("id Reading({shown})")]);
    }
}

#[test]
fn statsd_kinds() {
    for (members, expected) in [
        (r#""type":"counter","value":3"#, "n Count { delta: 3.0, rate: 1.0 }"),
        (r#""type":"counter","value":3,"rate":0.1"#, "n Count { delta: 3.0, rate: 0.1 }"),
        (r#""rate":9,"value":-1.5,"type":"gauge""#, "n Gauge(-1.5)"),
        (r#""type":"timer","value":3,"rate":1"#, "n Timing { ms: 3.0, rate: 1.0 }"),
        (r#""type":"histogram","value":3"#, "n Histogram { value: 3.0, rate: 1.0 }"),
        (r#""type":"distribution","value":3"#, "n Distribution { value: 3.0, rate: 1.0 }"),
        (r#""type":"set","value":"é""#, "n Set(\"é\")"),
        (r#""type":"set","value":42"#, "n Set(\"42\")"),
    ] {
        accepts(&format!(r#"{{"name":"n",{members}}}"#), &[expected]);
    }
}

#[test]
fn tags() {
    accepts(
        r#"{"name":"n","tags":{"a":1.0,"b":true,"c":null,"d":""},"value":1}"#,
        &["n,a=1.0,b=true,d Reading(I64(1))"],
    );
    accepts(r#"{"name":"n","tags":{"a":"x","a":"x"},"value":1}"#, &["n,a=x Reading(I64(1))"]);
    for (tags, reason) in [
        (r#"{"a":"x","a":"y"}"#, ParseError::DuplicateTag),
        (r#"{"":"x"}"#, ParseError::InvalidTag),
        (r#"{"a":[]}"#, ParseError::InvalidTag),
        (r#"["a:b"]"#, ParseError::InvalidTag),
        (r#"{"a":1,"b":1,"c":1,"d":1}"#, ParseError::TooManyTags),
    ] {
        refuses(&format!(r#"{{"name":"n","tags":{tags},"value":1}}"#), reason);
    }
}

#[test]
fn times() {
    for (time, nanos) in [
        ("1414000000", 1_414_000_000_000_000_000),
        ("1414000000123456", 1_414_000_000_123_456_000),
        ("1414000000.5", 1_414_000_000_500_000_000_i64),
        (r#""1414000000""#, 1_414_000_000_000_000_000),
        (r#""2014-10-22T17:46:40Z""#, 1_414_000_000_000_000_000),
    ] {
        let expected = format!("n Reading(I64(1)) @{nanos}");
        accepts(&format!(r#"{{"name":"n","value":1,"time":{time}}}"#), &[&expected]);
    }
    for time in ["0", "-5", "true", "[]", "\"now\"", "\"\""] {
        refuses(
            &format!(r#"{{"name":"n","value":1,"time":{time}}}"#),
            ParseError::InvalidTimestamp,
        );
    }
    refuses(r#"{"name":"n","value":1,"time":1,"timestamp":1}"#, ParseError::InvalidTimestamp);
    refuses(r#"{"name":"n","value":1,"time":99999999999}"#, ParseError::TimestampOutOfRange);
}

#[test]
fn refused_items() {
    for (item, reason) in [
        ("[null]", ParseError::NotAPoint),
        ("[[1]]", ParseError::NotAPoint),
        (r#"{"value":1}"#, ParseError::EmptyName),
        (r#"{"name":"","value":1}"#, ParseError::EmptyName),
        (r#"{"name":5,"value":1}"#, ParseError::NotAPoint),
        (r#"{"name":"a\nb","value":1}"#, ParseError::ControlCharacter),
        ("{\"name\":\"a\u{9b}b\",\"value\":1}", ParseError::ControlCharacter),
        (r#"{"metric":"a\u0000","value":1}"#, ParseError::ControlCharacter),
        (r#"{"name":"\u007f","type":"counter","value":1}"#, ParseError::ControlCharacter),
        (r#"{"name":"a","name":"b","value":1}"#, ParseError::NotAPoint),
        (r#"{"metric":"a","metric":"b","value":1}"#, ParseError::NotAPoint),
        (r#"{"name":"n"}"#, ParseError::NoFields),
        (r#"{"name":"n","a":null}"#, ParseError::NoFields),
        (r#"{"name":"n","a":[1]}"#, ParseError::InvalidField),
        (r#"{"name":"n","a":{}}"#, ParseError::InvalidField),
        (r#"{"name":"n","a":1,"a":1}"#, ParseError::InvalidField),
        (r#"{"name":"n","":1}"#, ParseError::InvalidField),
        (r#"{"name":"n","value":1e400}"#, ParseError::InvalidValue),
        (r#"{"name":"n","a":1,"b":-1e400}"#, ParseError::InvalidValue),
        (r#"{"name":"n","a":1,"b":1,"c":1,"d":1,"e":1}"#, ParseError::TooManyFields),
        (r#"{"name":"n","a":"\ud800"}"#, ParseError::InvalidJson),
        (r#"{"name":"n","\ud800":1}"#, ParseError::InvalidJson),
        (r#"{"name":"n","type":"c","value":1}"#, ParseError::UnknownType),
        (r#"{"name":"n","type":"sample","value":1}"#, ParseError::UnknownType),
        (r#"{"name":"n","type":1,"value":1}"#, ParseError::UnknownType),
        (r#"{"name":"n","type":"counter"}"#, ParseError::MissingValue),
        (r#"{"name":"n","type":"set","value":""}"#, ParseError::MissingValue),
        (r#"{"name":"n","type":"set","value":true}"#, ParseError::InvalidValue),
        (r#"{"name":"n","type":"counter","value":"1"}"#, ParseError::InvalidValue),
        (r#"{"name":"n","type":"counter","value":1,"other":2}"#, ParseError::InvalidField),
        (r#"{"name":"n","type":"counter","value":1,"value":2}"#, ParseError::InvalidField),
        (r#"{"name":"n","type":"counter","value":1,"rate":0}"#, ParseError::InvalidRate),
        (r#"{"name":"n","type":"counter","value":1,"rate":1.5}"#, ParseError::InvalidRate),
        (r#"{"name":"n","type":"counter","value":1,"rate":"1"}"#, ParseError::InvalidRate),
        (r#"{"name":"n","columns":["a"],"a":1}"#, ParseError::InvalidField),
        (r#"{"name":"n","columns":["a"],"points":[],"time":1}"#, ParseError::InvalidField),
        (r#"{"name":"n","columns":[1],"points":[[1]]}"#, ParseError::InvalidField),
        (
            r#"{"name":"n","columns":["1","2","3","4","5","6","7"],"points":[]}"#,
            ParseError::TooManyFields,
        ),
    ] {
        refuses(item, reason);
    }
    let long = "x".repeat(crate::name::BYTES_MAX + 1);
    refuses(&format!(r#"{{"name":"{long}","value":1}}"#), ParseError::NameTooLong);
    accepts(
        &format!(r#"{{"name":"{0}","value":1}}"#, &long[1..]),
        &[&format!("{} Reading(I64(1))", &long[1..])],
    );
}

#[test]
fn one_bad_item_costs_only_itself() {
    let body =
        br#"[{"name":"a","value":1},{"name":"b","value":1e400},null,{"name":"c","value":3}]"#;
    let mut batch = filled();
    let outcome = parse_points(body, LIMITS, &mut batch).unwrap();
    assert_eq!(shown(&batch, 1), ["a Reading(I64(1))", "c Reading(I64(3))"]);
    let refused: Vec<_> =
        outcome.refusals.listed().iter().map(|error| (error.index, error.reason)).collect();
    assert_eq!(refused, [(1, ParseError::InvalidValue), (2, ParseError::NotAPoint)]);
    let answer = outcome.answer(false);
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.body.unwrap(),
        r#"{"accepted":2,"rejected":[{"index":1,"error":"the field \"value\" is not a finite number"},{"index":2,"error":"the item is not an object that describes a point"}]}"#
    );
}

#[test]
fn a_broken_body_changes_nothing() {
    let mut batch = filled();
    let bytes = batch.bytes();
    let error = parse_points(br#"[{"name":"a","value":1},"#, LIMITS, &mut batch).unwrap_err();
    assert_eq!(error, BodyError::Syntax { line: 1, column: 24 });
    assert_eq!((batch.len(), batch.bytes()), (1, bytes));
    assert_eq!(
        error.answer().body.unwrap(),
        r#"{"error":{"code":400,"message":"the JSON is broken at line 1, column 24"}}"#
    );
}

#[test]
fn answers_to_good_bodies() {
    let outcome = Outcome { accepted: 3, ..Outcome::default() };
    assert_eq!(outcome.answer(false), Answer { status: 204, body: None });
    let body = Some(r#"{"accepted":3,"rejected":[]}"#.to_owned());
    assert_eq!(outcome.answer(true), Answer { status: 200, body });
}

#[test]
fn influxdb_08_series() {
    accepts(
        r#"[{"name":"s","columns":["time","sequence_number","a","b"],
            "points":[[1414000000123,7,1.5,"x"],[null,8,null,true]]},
            {"points":[[1],[2]],"columns":["value"],"name":"t","tags":{"os":"linux"}}]"#,
        &[
            r#"s a=(F64(1.5)) b=Text("x") @1414000000123000000"#,
            "s b=Bool(true)",
            "t,os=linux Reading(I64(1))",
            "t,os=linux Reading(I64(2))",
        ],
    );
    accepts(
        r#"{"name":"s","columns":["name","type","tags","timestamp"],"points":[[1,2,3,4]]}"#,
        &["s name=(I64(1)) type=(I64(2)) tags=(I64(3)) timestamp=(I64(4))"],
    );
}

#[test]
fn rows_are_refused_one_by_one() {
    let body = br#"{"name":"s","columns":["a","b"],
        "points":[[1,2],[1],[1,2,3],5,[null,null],[1,[2]],[1,1e400],[3,4]]}"#;
    let mut batch = Batch::new();
    let outcome = parse_points(body, LIMITS, &mut batch).unwrap();
    assert_eq!(shown(&batch, 0), ["s a=(I64(1)) b=(I64(2))", "s a=(I64(3)) b=(I64(4))"]);
    let reasons: Vec<_> = outcome.refusals.listed().iter().map(|error| error.reason).collect();
    assert_eq!(
        reasons,
        [
            ParseError::ColumnMismatch,
            ParseError::ColumnMismatch,
            ParseError::ColumnMismatch,
            ParseError::NoFields,
            ParseError::InvalidField,
            ParseError::InvalidValue,
        ]
    );
    let messages: Vec<_> = outcome.refusals.listed().iter().map(|error| &error.message).collect();
    assert_eq!(messages[0], "row 1: a row has not as many cells as there are columns");
    assert_eq!(messages[5], "row 6: the field \"b\" is not a finite number");
    refuses(r#"{"name":"s","columns":["a","a"],"points":[[1,1]]}"#, ParseError::InvalidField);
}

#[test]
fn a_small_body_cannot_unfold_without_end() {
    let column = "c".repeat(10_000);
    let rows = vec!["[1]"; 1000].join(",");
    let body = format!(r#"{{"name":"s","columns":["{column}"],"points":[{rows}]}}"#);
    let mut batch = Batch::new();
    let outcome = parse_points(body.as_bytes(), LIMITS, &mut batch).unwrap();
    assert_eq!(outcome.accepted, LIMITS.unfolded / 10_001);
    let refused: Vec<_> = outcome.refusals.by_reason().collect();
    assert_eq!(refused, [(ParseError::BodyTooLarge, 1000 - outcome.accepted)]);
}

#[test]
fn lines_stand_for_themselves() {
    let body = b"\xef\xbb\xbf{\"name\":\"a\",\"value\":1}\r\n\n  \n{\"name\":\"b\",\"val\n\xff\n[]\n\
        {\"name\":\"s\",\"columns\":[\"value\"],\"points\":[[1],[2]]}\n{\"name\":\"e\",\"value\":NaN}\n\
        {\"name\":\"z\",\"value\":2}";
    let mut batch = filled();
    let outcome = parse_json_lines(body, LIMITS, &mut batch);
    assert_eq!(
        shown(&batch, 1),
        ["a Reading(I64(1))", "s Reading(I64(1))", "s Reading(I64(2))", "z Reading(I64(2))"]
    );
    let refused: Vec<_> =
        outcome.refusals.listed().iter().map(|error| (error.index, error.reason)).collect();
    assert_eq!(
        refused,
        [
            (3, ParseError::InvalidJson),
            (4, ParseError::InvalidUtf8),
            (5, ParseError::NotAPoint),
            (7, ParseError::InvalidJson),
        ]
    );
}

fn asked(series: &str, pairs: &[(&str, &str)]) -> Result<String, ParseError> {
    let mut batch = filled();
    let bytes = batch.bytes();
    let result = parse_query(series, pairs.iter().copied(), LIMITS, &mut batch);
    if result.is_err() {
        assert_eq!((batch.len(), batch.bytes()), (1, bytes), "{pairs:?}");
    }
    result.map(|()| shown(&batch, 1).remove(0)).map_err(|error| error.reason)
}

#[test]
fn queries() {
    let check = |pairs: &[(&str, &str)], expected: &str| {
        assert_eq!(asked("build/a b", pairs), Ok(format!("build/a b{expected}")), "{pairs:?}");
    };
    check(&[("value", "1.5")], " Reading(F64(1.5))");
    check(&[("a", "12"), ("b", "true"), ("c", "false"), ("details", "")], {
        " a=(I64(12)) b=Bool(true) c=Bool(false)"
    });
    check(&[("a", "x y"), ("b", "007"), ("c", "+5"), ("d", "1 ")], {
        r#" a=Text("x y") b=Text("007") c=Text("+5") d=Text("1 ")"#
    });
    check(&[("a", "1"), ("b", "null"), ("tag.os", "linux"), ("tag.bare", "")], {
        ",os=linux,bare a=(I64(1))"
    });
    check(&[("value", "1"), ("time", "1414000000")], " Reading(I64(1)) @1414000000000000000");
    check(&[("value", "1"), ("timestamp", "2014-10-22T17:46:40Z")], {
        " Reading(I64(1)) @1414000000000000000"
    });
    check(&[("value", "u1"), ("type", "set")], " Set(\"u1\")");
    check(&[("value", "[1]")], r#" value=Text("[1]")"#);
    for (pairs, reason) in [
        (&[][..], ParseError::NoFields),
        (&[("a", "1"), ("a", "1")], ParseError::InvalidField),
        (&[("a", "1e400")], ParseError::InvalidValue),
        (&[("a", "-Infinity")], ParseError::InvalidValue),
        (&[("a", "NaN")], ParseError::InvalidValue),
        (&[("name", "x"), ("a", "1")], ParseError::InvalidField),
        (&[("tags", "x"), ("a", "1")], ParseError::InvalidField),
        (&[("tag.", "x"), ("a", "1")], ParseError::InvalidTag),
        (&[("value", "1"), ("type", "x")], ParseError::UnknownType),
        (&[("value", "1"), ("time", "soon")], ParseError::InvalidTimestamp),
    ] {
        assert_eq!(asked("n", pairs), Err(reason), "{pairs:?}");
    }
    assert_eq!(asked("", &[("a", "1")]), Err(ParseError::EmptyName));
}

#[test]
fn an_object_over_several_lines_says_how_to_make_one_of_it() {
    let check = |line: &str, is_told: bool| {
        let mut batch = Batch::new();
        let outcome = parse_json_lines(line.as_bytes(), LIMITS, &mut batch);
        let refused = &outcome.refusals.listed()[0];
        assert_eq!(refused.reason, ParseError::InvalidJson, "{line}");
        assert_eq!(refused.message.contains("`jq -c .`"), is_told, "{line}: {}", refused.message);
    };
    check("{\n  \"name\": \"a\",\n  \"value\": 1\n}\n", true);
    check("\u{feff}{ \"name\": \"a\", \r\n  \"value\": 1 }", true);
    check("{\"name\": \"a\", \"tags\": {\n\"x\": \"y\"}, \"value\": 1}", true);
    check("{\"name\": \"a\", \"val", false);
    check("{\"name\": \"a\" \"value\": 1,", false);
    check("\"name\": \"a\",", false);
}

#[test]
fn what_other_languages_take_for_a_number_is_called_by_its_name() {
    let told = |line: &str| {
        let mut batch = Batch::new();
        let outcome = parse_json_lines(line.as_bytes(), LIMITS, &mut batch);
        outcome.refusals.listed()[0].message.to_string()
    };
    for (value, word) in [("NaN", "NaN"), ("Infinity", "Infinity"), ("-Infinity", "Infinity")] {
        let text = told(&format!("{{\"name\":\"a\",\"v\":{value}}}"));
        assert!(text.contains(&format!(": JSON has no {word} (say null)")), "{value}: {text}");
    }
    assert_eq!(told("{\"name\":\"a\",\"v\":Nan}"), "the JSON is broken at column 17");
    assert_eq!(told("{\"name\":\"é\",é"), "the JSON is broken at column 14");
    assert_eq!(told("{\"nam\":\"a\",\"value\":1}"), "there is no `name`");
}

#[test]
fn an_array_among_json_lines_says_how_to_make_lines_of_it() {
    let body = b"\xef\xbb\xbf[\n{\"name\":\"a\",\"value\":1}\n [{\"name\":\"a\",\"value\":1}]\nx";
    let mut batch = Batch::new();
    let outcome = parse_json_lines(body, LIMITS, &mut batch);
    let refused: Vec<_> = (outcome.refusals.listed().iter())
        .map(|refused| (refused.index, refused.reason, refused.message.contains("jq -c '.[]'")))
        .collect();
    let expected = [
        (0, ParseError::InvalidJson, true),
        (2, ParseError::NotAPoint, true),
        (3, ParseError::InvalidJson, false),
    ];
    assert_eq!((batch.len(), &*refused), (1, &expected[..]));
}
