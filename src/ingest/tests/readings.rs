//! Readings that are known again come to the same as those that are not.

use super::rig::{Brief, NOW};
use super::yard::{Keep, Kept, Yard};
use crate::access::Access;
use crate::backend;
use crate::books::{Books, Counter};
use crate::clock::Clock;
use crate::ingest::intake::{Intake, Who};
use crate::lane::{self, Lane, Running, Settings};
use crate::origin::Protocol;
use proptest::prelude::*;
use protocols::form::Speech;
use protocols::timestamp::TimeRange;
use protocols::{Encode, UnixNanos, json, opentsdb};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Two lanes of line protocol, one of them gets some points rewritten, and one of another kind.
const LANES: [&str; 3] = ["floats", "integers", "other"];

fn yard() -> (Yard, [Kept; 3]) {
    let routes = json!([
        { "match": { "name": "r*" }, "to": ["integers"], "rewrite": { "name": "x ${name}" } },
        { "match": { "name": "d*" }, "to": [] },
        { "match": { "name": "o*" }, "to": ["other"] },
        { "match": { "name": ["n*", "r*", "o*"] }, "to": ["floats", "integers"] },
    ]);
    let kept = <[Kept; 3]>::default();
    let make = |at: usize, books: &Books, clock| lane(LANES[at], &kept[at], books, clock);
    (Yard::new(Access::default(), routes, &LANES, make), kept)
}

/// All that came out of the lanes, and all that was counted.
async fn finish(mut yard: Yard, kept: &[Kept]) -> (Vec<String>, Vec<String>) {
    yard.drain().await;
    let texts = kept.iter().map(|kept| kept.lock().unwrap().concat()).collect();
    let mut shown = vec![format!("{:?}", yard.counts())];
    let routes = ["route 1", "route 2", "route 3", "route 4"];
    shown.extend(routes.map(|name| format!("{name} {}", yard.books.route(name).get())));
    shown.extend(LANES.map(|name| {
        let book = yard.books.backend(name);
        let counts = [&book.handed, &book.delivered].map(Counter::get);
        let left = [book.inbox.get(), book.open.get()];
        let (noticed, dropped) = (book.noticed.counts(), book.dropped.counts());
        format!("{name} {counts:?} {left:?} {noticed:?} {dropped:?}")
    }));
    (texts, shown)
}

fn lane(name: &str, kept: &Kept, books: &Books, clock: Clock) -> (Lane, Running) {
    let mut settings = Settings::new(name, "influxdb", &lane::Config::default());
    (settings.batch_points, settings.batch_bytes) = (7, 300);
    let state = lane::State::new(books.backend(name), settings.shards);
    let influxdb = |integers: &str| {
        let config = json!({ "url": "http://h", "database": "d", "integers": integers });
        let config: backend::influxdb::Config = serde_json::from_value(config).unwrap();
        Box::new(config.encoder())
    };
    let encode: Box<dyn Encode> = match name {
        "other" => Box::new(Brief),
        "integers" => influxdb("keep"),
        _ => influxdb("float"),
    };
    lane::spawn(settings, state, encode, Box::new(Keep(Arc::clone(kept))), clock)
}

/// What is received at once.
#[derive(Clone, Debug)]
enum Input {
    Lines(Vec<String>),
    Datapoints(Vec<String>),
    Points(Vec<String>),
}

/// Takes it in, known readings as such or not; answers what was refused.
fn take(input: &Input, intake: &mut Intake, forgetful: bool, times: TimeRange) -> String {
    let options = opentsdb::PutOptions { times, ..Default::default() };
    let limits = json::Limits { times, ..Default::default() };
    match input {
        Input::Lines(lines) => {
            let refused = lines.iter().filter(|line| {
                let (recall, batch) = intake.recall(times);
                let line = line.as_bytes();
                let known = !forgetful && recall.recall(line, batch.len(), Speech::Put).is_some();
                !known && opentsdb::parse_put(line, &options, batch).is_err()
            });
            format!("{}", refused.count())
        }
        Input::Datapoints(items) => {
            let body = format!("[{}]", items.join(" ,"));
            let (recall, batch) = intake.recall(times);
            let parsed = match forgetful {
                true => opentsdb::parse_body(body.as_bytes(), &options, batch),
                false => opentsdb::parse_body_with(recall, body.as_bytes(), &options, batch),
            };
            let told = format!("{:?}", parsed.map(|refusals| refusals.total()));
            if told.starts_with("Err") {
                intake.forget();
            }
            format!("{told} {}", intake.len())
        }
        Input::Points(items) => {
            let body = format!("[{}]", items.join(","));
            let (recall, batch) = intake.recall(times);
            let parsed = match forgetful {
                true => json::parse_points(body.as_bytes(), limits, batch),
                false => json::parse_points_with(recall, body.as_bytes(), limits, batch),
            };
            let told = parsed.map(|outcome| (outcome.accepted, outcome.refusals.total()));
            let told = format!("{told:?}");
            if told.starts_with("Err") {
                intake.forget();
            }
            format!("{told} {}", intake.len())
        }
    }
}

async fn outcome(inputs: &[Input], forgetful: bool) -> (Vec<String>, (Vec<String>, Vec<String>)) {
    let (yard, kept) = yard();
    let (context, mut told) = (yard.context(Protocol::Opentsdb), Vec::new());
    let earliest = UnixNanos::from_secs(NOW - 1_000_000);
    let times = TimeRange { earliest, ..TimeRange::ALL };
    for input in inputs {
        let mut intake = context.intake();
        told.push(take(input, &mut intake, forgetful, times));
        let receipt = intake.submit_request(None);
        assert!(receipt.unwrap().is_none());
        // Longer than a point waits for its batch, now and then.
        sleep(Duration::from_millis(400)).await;
    }
    drop(context);
    (told, finish(yard, &kept).await)
}

fn number() -> impl Strategy<Value = String> {
    let some = [
        "0",
        "-0",
        "1",
        "-17",
        "107.5",
        "0.25",
        "-0.0001",
        "0.00001",
        "0.00002",
        "1.50",
        "5.",
        ".5",
        "007",
        "+3",
        "1e3",
        "1E-7",
        "123456789012345",
        "1234567890123456",
        "0.3333333333333333",
        "1.25e400",
        "9223372036854775807",
        "18446744073709551615",
        "12345678901.2345",
        "x",
        "",
        "1,5",
        "-",
        "1-2",
    ];
    prop_oneof![
        prop::sample::select(some.to_vec()).prop_map(str::to_owned),
        "-?[0-9]{1,9}(\\.[0-9]{1,7})?",
    ]
}

fn time() -> impl Strategy<Value = String> {
    let some = [
        "1700000000",
        "1700000001",
        "1700000000000",
        "1700000000123",
        "1699999999999",
        "1600000000",
        "9999999999",
        "9999999999999",
        "170000000",
        "1700000000.5",
        "0700000000",
        "17000000001234",
        "x",
        "",
    ];
    prop::sample::select(some.to_vec()).prop_map(str::to_owned)
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "n.a", "n.b", "n.b", "r.a", "d.a", "o.a", "u.a", "n,=é", "n\\\\", "#n", "",
    ])
}

fn line() -> impl Strategy<Value = String> {
    let tags = prop::sample::select(vec![
        "", " a=1", " b=2 a=1", " a=1 b=2", "  a=1", " a=1 ", " a=1\r", "\ta=1", " a", " a=1 a=2",
        " a=1 a=1", " time=x", " a=x,y", " 6=7", "\r",
    ]);
    let gap = prop::sample::select(vec![" ", " ", " ", " ", "  ", "\t"]);
    (name(), time(), gap, number(), tags)
        .prop_map(|(name, time, gap, number, tags)| format!("put {name}{gap}{time} {number}{tags}"))
}

fn item(name_key: &'static str, time_key: &'static str) -> impl Strategy<Value = String> {
    let tags = prop::sample::select(vec![
        r#""tags":{"a":"1"}"#,
        r#""tags":{"b":"x y", "a":1}"#,
        r#""tags":{}"#,
        r#""tags": {"a":true}"#,
        r#""tags":{"a":"}"}"#,
        r#""tags":{"a":"\u0031"}"#,
        r#""tags":{"a":null}"#,
        r#""tags":null"#,
        r#""type":"gauge""#,
        r#""more":1"#,
        r#""value":2"#,
        r#""tags":{"a":"1","a":"2"}"#,
    ]);
    let quotes = prop::sample::select(vec!["", "", "\""]);
    let orders = prop::sample::select(vec![[0, 1, 2, 3], [0, 3, 2, 1], [1, 2, 0, 3], [2, 0, 1, 3]]);
    (name(), time(), number(), tags, quotes, orders).prop_map(
        move |(name, time, number, tags, quote, order)| {
            let members = [
                format!(r#""{name_key}":"{name}""#),
                format!(r#""{time_key}":{quote}{time}{quote}"#),
                format!(r#""value":{quote}{number}{quote}"#),
                tags.to_owned(),
            ];
            let members: Vec<_> = order.iter().map(|at| members[*at].clone()).collect();
            format!("{{{}}}", members.join(","))
        },
    )
}

/// Some, of which most come several times.
fn again(
    one: impl Strategy<Value = String> + 'static,
    broken: bool,
) -> impl Strategy<Value = Vec<String>> {
    let some = prop::collection::vec(one, 1..6);
    (some, prop::collection::vec(any::<prop::sample::Index>(), 1..20)).prop_map(
        move |(some, order)| {
            // Of a body of JSON, one item that is broken would leave nothing to look at.
            let sound: Vec<_> = some
                .iter()
                .filter(|text| {
                    broken
                        || serde_json::from_str::<serde_json::Value>(text).is_ok()
                        || text.len() % 7 == 0
                })
                .collect();
            let pick = |at: &prop::sample::Index| {
                (!sound.is_empty()).then(|| sound[at.index(sound.len())].clone())
            };
            order.iter().filter_map(pick).collect()
        },
    )
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        again(line(), true).prop_map(Input::Lines),
        again(item("metric", "timestamp"), false).prop_map(Input::Datapoints),
        again(item("name", "time"), false).prop_map(Input::Points),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn to_be_known_again_changes_nothing(inputs in prop::collection::vec(input(), 1..6)) {
        // Each comes once more, when it may be known.
        let inputs: Vec<_> = inputs.iter().chain(&inputs).cloned().collect();
        let runtime = || {
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()
        };
        let known = runtime().unwrap().block_on(outcome(&inputs, false));
        let unknown = runtime().unwrap().block_on(outcome(&inputs, true));
        prop_assert_eq!(known, unknown);
    }
}

/// A reading with another time and value is known, or none of the above says anything.
#[tokio::test(start_paused = true)]
async fn the_next_of_its_form_is_known() {
    let (yard, kept) = yard();
    let context = yard.context(Protocol::Opentsdb);
    for (first, second) in [
        (
            Input::Lines(vec!["put n.a 1700000000 1 b=2 a=1".into()]),
            Input::Lines(vec!["put n.a 1700000000123 -2.5 b=2 a=1".into()]),
        ),
        (
            Input::Datapoints(vec![r#"{"metric":"n.a","timestamp":1700000000,"value":1,"tags":{"a":"1"}}"#.into()]),
            Input::Datapoints(vec![r#"{"metric":"n.a","timestamp":1700000009,"value":0.3333333333333333,"tags":{"a":"1"}}"#.into()]),
        ),
        (
            Input::Points(vec![r#"{"value": 1, "name":"n.a","time":"1700000000"}"#.into()]),
            Input::Points(vec![r#"{"value": 7.25, "name":"n.a","time":"1700000009"}"#.into()]),
        ),
    ] {
        for (input, points) in [(&first, 1), (&second, 0)] {
            let mut intake = context.intake();
            take(input, &mut intake, false, TimeRange::ALL);
            assert_eq!((intake.batch.len(), intake.len()), (points, 1), "{input:?}");
            intake.submit_and_tell(Who::Unknown, |_, _| {});
        }
    }
    drop(context);
    let (texts, _) = finish(yard, &kept).await;
    assert!(texts[0].contains("n.a,a=1,b=2 value=-2.5 1700000000123000000\n"), "{texts:?}");
}
