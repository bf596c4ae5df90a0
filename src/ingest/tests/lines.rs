//! Lines that are known again come to the same as lines that are not.

use super::rig::Brief;
use super::yard::{Keep, Kept, Yard};
use crate::access::{Access, Meters};
use crate::backend;
use crate::books::{Books, Counter};
use crate::clock::Clock;
use crate::lane::{self, Lane, Running, Settings};
use crate::origin::Protocol;
use crate::route::Memo;
use proptest::prelude::*;
use protocols::Encode;
use protocols::statsd::{Encoder, TagDialect, splits};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Two lanes sum up in windows, one relays, one has points in a form of its own, and one is sent each
/// as line protocol.
const LANES: [&str; 5] = ["windows", "windows_too", "relay", "other", "points"];

fn yard(access: Access) -> (Yard, [Kept; 5]) {
    let routes = json!([
        { "match": { "name": "n*" }, "to": ["windows", "relay"] },
        { "match": { "name": "r*" }, "to": ["other"], "rewrite": { "name": "new.${name}" } },
        { "match": { "name": "x*" }, "to": [] },
        { "match": { "name": "p*" }, "to": ["points"] },
        { "match": { "name": "o*" }, "to": ["other"] },
        { "match": { "name": "p.b*" }, "to": ["windows", "relay"] },
        { "match": { "name": "q*" }, "to": ["relay", "other"] },
        { "match": { "name": "p.c*" }, "to": ["windows", "windows_too", "other"] },
        { "match": { "name": "p.d*" }, "to": ["windows_too", "windows"] },
        { "match": { "name": ["p.d*", "n.a"] }, "to": ["points"],
          "rewrite": { "name": "new ${name}" } },
        { "match": { "name": ["p.d*", "n.a"] }, "to": ["points"],
          "rewrite": { "name": "new.${name}", "tags": { "add": { "z": "1" } } } },
    ]);
    let kept = <[Kept; 5]>::default();
    let make = |at: usize, books: &Books, clock| lane(LANES[at], &kept[at], books, clock);
    (Yard::new(access, routes, &LANES, make), kept)
}

/// All that came out of the lanes, and all that was counted.
async fn finish(mut yard: Yard, kept: &[Kept]) -> (Vec<String>, Vec<String>) {
    yard.drain().await;
    let texts = kept.iter().map(|kept| kept.lock().unwrap().concat());
    let book = yard.books.listener("under_test");
    let mut counts = Vec::from(yard.counts());
    counts.extend([book.rejected.total(), book.denied.total()]);
    counts.extend((1..=11).map(|nth| yard.books.route(&format!("route {nth}")).get()));
    let mut shown = vec![format!("{counts:?}")];
    shown.extend(LANES.map(|name| {
        let book = yard.books.backend(name);
        let counts = [&book.handed, &book.delivered].map(Counter::get);
        let (noticed, dropped) = (book.noticed.counts(), book.dropped.counts());
        assert_eq!(book.held(), 0, "{name}");
        format!("{name} {counts:?} {noticed:?} {dropped:?}")
    }));
    (texts.collect(), shown)
}

fn lane(name: &str, kept: &Kept, books: &Books, clock: Clock) -> (Lane, Running) {
    let kind = if name == "relay" { "statsd" } else { "influxdb" };
    let aggregate = Some(name.starts_with("windows"));
    let config = lane::Config { aggregate, ..lane::Config::default() };
    let settings = Settings::new(name, kind, &config);
    let state = lane::State::new(books.backend(name), settings.shards);
    let encode: Box<dyn Encode> = match name {
        "relay" => Box::new(Encoder::new(TagDialect::Dogstatsd, 1000)),
        "points" => Box::new(influxdb()),
        _ => Box::new(Brief),
    };
    lane::spawn(settings, state, encode, Box::new(Keep(Arc::clone(kept))), clock)
}

fn influxdb() -> impl Encode {
    let config = json!({ "url": "http://h", "database": "d" });
    let config: backend::influxdb::Config = serde_json::from_value(config).unwrap();
    config.encoder()
}

/// A principal that has the listener, and may write some of what the tests send.
fn guarded() -> Access {
    let principals = json!({ "p": {
        "listeners": ["under_test"],
        "scopes": ["stats:put-points:n*", "stats:put-points:r.a", "stats:put-points:u*",
                   "stats:put-points:p*", "stats:put-points:o*", "stats:put-points:q*"],
        "tags": { "set": { "p": "1", "b": "3" }, "drop": ["a"], "reserved": ["t"] },
    } });
    Access::new(
        &serde_json::from_value(principals).unwrap(),
        std::iter::empty(),
        &Meters::default(),
    )
}

/// The same with a quota, and no shape.
fn metered() -> Access {
    let principals = json!({ "p": {
        "listeners": ["under_test"],
        "scopes": ["stats:put-points:*"],
        "quota": { "points_per_second": 2, "burst": 2 },
    } });
    let principals = serde_json::from_value(principals).unwrap();
    Access::new(&principals, std::iter::empty(), &Meters::default())
}

/// Sends datagrams; each batch of them is followed by the end of a window.
async fn outcome(
    access: Access,
    batches: &[Vec<String>],
    forgetful: bool,
) -> (Vec<String>, Vec<String>) {
    let (yard, kept) = yard(access);
    let (mut memo, mut intake) = (Memo::default(), yard.context(Protocol::Statsd).intake());
    for batch in batches {
        let table = intake.table();
        if forgetful {
            for line in batch.iter().flat_map(|datagram| datagram.split_inclusive('\n')) {
                memo = Memo::default();
                intake.lines(&table, &mut memo, false).take([line.as_bytes()], |_| None);
            }
        } else {
            let datagrams = batch.iter().map(String::as_bytes);
            intake.lines(&table, &mut memo, false).take(datagrams, |_| None);
        }
        drop(table);
        sleep(Duration::from_secs(11)).await;
    }
    drop(intake);
    finish(yard, &kept).await
}

fn line() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "n.a",
        "n.b,t=1",
        "r.a",
        "r.b",
        "x.a",
        "unmatched",
        "",
        "p.a",
        "p.a,t=1",
        "p.b",
        "p.c",
        "p.d",
        "p=e",
        "p.f,t=a b",
        "o.a",
        "p.b2,z=1,y=2",
        "p.b2,y=2,z=1",
        "p e",
        "p\\f",
        "p.ü\"q",
        "p.g,time=1,k=",
        "q.a",
    ]);
    let values = prop::sample::select(vec![
        "1",
        "-2.5",
        "+3",
        "1e2",
        "0.1",
        "x",
        "1:2",
        "",
        "1e308",
        "-0",
        "+0",
        "-1e308",
        "1e-320",
        "9007199254740993",
        "18446744073709551616",
        "1e309",
        "nan",
        "inf",
        "0x1",
        "1_0",
        ".5",
        "5.",
        "000000000000000000007",
        "123456789012345.6",
        "1",
        "2",
    ]);
    let tails = prop::sample::select(vec![
        "|c",
        "|g",
        "|ms",
        "|c|@0.5",
        "|s",
        "|g|#b:2,a:1",
        "|g|#a:1,b:2",
        "|c|T1699999999",
        "|c|@0.0001",
        "|c|@1e-300",
        "|g|@0.5",
        "|ms|@0.1",
        "|h",
        "|d",
        "|c|#a",
        "|c|#a:",
        "|c|#time:1",
        "|c|#a:1,a:2",
        "|c|c:abc",
        "|c|#z:1,y:2",
        "|c|#y:2,z:1",
        "|c",
        "|g",
        "|c\r",
        "|q",
        "",
    ]);
    (names, values, tails).prop_map(|(name, value, tail)| format!("{name}:{value}{tail}\n"))
}

fn paused() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap()
}

/// So that one backend more costs no other one anything: a line that is not known is parsed, routed
/// and looked for in every window.
#[tokio::test(start_paused = true)]
async fn lines_that_are_sent_as_points_are_known_again() {
    let (yard, _) = yard(Access::default());
    let (mut memo, mut intake) = (Memo::default(), yard.context(Protocol::Statsd).intake());
    let table = intake.table();
    let mut is_known = |line: &str| {
        intake.lines(&table, &mut memo, false).take([line.as_bytes()], |_| None);
        let head = splits(line.as_bytes()).next().unwrap().unwrap().head;
        memo.print(&head).and_then(|print| memo.seek(print)).is_some()
    };
    for line in ["p.a:1|c", "p.a:1|ms", "p.b:1|g", "p.b:1|c|@0.5|#b:2,a:1", "p.d:1|h"] {
        assert!(is_known(line), "{line}");
    }
    // In another form, or by a name that has to be changed for this one.
    for line in ["p.c:1|c", "p=e:1|c"] {
        assert!(is_known(line), "{line}");
    }
    // A member of a set, and a point that is rewritten to such a name.
    for line in ["p.a:1|s", "n.a:1|c"] {
        assert!(!is_known(line), "{line}");
    }
}

/// Whatever lanes do with them, side by side.
#[tokio::test(start_paused = true)]
async fn what_is_known_of_a_line_can_be_done_with_the_next() {
    let (yard, _) = yard(Access::default());
    let (mut memo, mut intake) = (Memo::default(), yard.context(Protocol::Statsd).intake());
    let table = intake.table();
    for line in ["p.a:1|c", "p.b:1|g", "p.c:1|c", "p.d:1|c", "n.b:1|c", "o.a:1|c", "q.a:1|c"] {
        let split = splits(line.as_bytes()).next().unwrap().unwrap();
        let mut lines = intake.lines(&table, &mut memo, false);
        lines.take([line.as_bytes()], |_| None);
        let print = lines.memo.print(&split.head).unwrap();
        let found = lines.memo.seek(print).unwrap();
        assert!(lines.repeat(&found, &split), "{line}");
    }
}

/// Otherwise it would hold the place of a series for one window more.
#[test]
fn a_refused_line_of_a_known_head_leaves_no_trace() {
    let batches = ["n.a:1|c|@0.5\n", "n.a:x|c|@0.5\n", "n.a:1|g\nn.b,t=1:1|c\n"];
    let batches = batches.map(|lines| vec![lines.to_owned()]);
    let [known, unknown] = [false, true]
        .map(|forgetful| paused().block_on(outcome(Access::default(), &batches, forgetful)));
    assert_eq!(known, unknown);
}

/// A flood beyond its quota would keep its series for ever.
#[test]
fn a_line_without_quota_leaves_no_trace() {
    let flood = ["r.a:1|c\nr.a:1|c\n", "n.a:1|c|@0.5\n"].concat();
    let batches = ["n.a:1|c|@0.5\n", &flood, "n.a:1|g\nn.b,t=1:1|c\n"];
    let batches = batches.map(|lines| vec![lines.to_owned()]);
    let [known, unknown] =
        [false, true].map(|forgetful| paused().block_on(outcome(metered(), &batches, forgetful)));
    assert_eq!(known, unknown);
}

/// What has no address needs not be told apart by it.
#[tokio::test(start_paused = true)]
async fn only_the_network_brings_strangers() {
    let principals = json!({ "p": { "networks": ["10.0.0.0/8"] } });
    let principals = serde_json::from_value(principals).unwrap();
    let (yard, _) = yard(Access::new(&principals, std::iter::empty(), &Meters::default()));
    let (mut memo, mut intake) = (Memo::default(), yard.context(Protocol::Statsd).intake());
    let table = intake.table();
    assert!(intake.lines(&table, &mut memo, true).strangers.is_some());
    assert!(intake.lines(&table, &mut memo, false).strangers.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn to_be_known_again_changes_nothing(
        batches in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(line(), 1..30), 1..3), 1..4,
        ),
    ) {
        let batches: Vec<Vec<String>> = batches.iter().map(|batch| {
            batch.iter().map(|lines| lines.concat()).collect()
        }).collect();
        for access in [Access::default, guarded, metered] {
            let run = |forgetful| outcome(access(), &batches, forgetful);
            let known = paused().block_on(run(false));
            let unknown = paused().block_on(run(true));
            prop_assert_eq!(known, unknown);
        }
    }
}
