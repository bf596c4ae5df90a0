//! statsd lines as clients really send them: DogStatsD's extensions, tags, odd names, broken
//! lines and every end of a line. What is understood keeps its meaning, what is not costs a
//! counter and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{Case, FakeHttp, UdpSink, eventually};
use serde_json::json;

#[tokio::test]
async fn container_id_and_unknown_fields_are_no_tags_and_no_errors() {
    let case = Case::start("").await;
    case.datagrams([concat!(
        "f.lock:9|c|c:0123abcd-77\n",
        "f.lock:1|c|#q:x|c:ci-9f|e:it-false|card:low\n",
        "f.dead:0|g|zz:new\n"
    )])
    .await;
    let ledger = case.books("statsd", 3, json!({})).await;
    assert_eq!(ledger["listeners"]["statsd"]["noticed"], json!({ "unknown_field": 1 }));
    assert_eq!(case.raw(), ["f.lock counter 9.0", "f.lock{q=x} counter 1.0", "f.dead gauge 0.0"]);
}

#[tokio::test]
async fn packed_values_are_samples_of_one_series() {
    let case = Case::start("").await;
    let lines = "t:1:2:3|ms|@0.5|#env:a\nc:1:2:3|c\ng:1:2:3|g\ns:a:b|s\nd:1::3|c\n";
    case.datagrams([lines]).await;
    case.books("statsd", 10, json!({ "missing_value": 1 })).await;
    assert_eq!(case.sum("t{env=a}", "count"), 6.0);
    assert_eq!(case.sum("t{env=a}", "sum"), 12.0);
    let timer = &case.windows("t{env=a}")[0];
    for (column, value) in [("mean", 2.0), ("lower", 1.0), ("upper", 3.0)] {
        assert_eq!(timer[column], value, "{timer}");
    }
    assert_eq!(case.sum("c", "count"), 6.0);
    assert_eq!(case.last("g", "value"), 3.0);
    assert_eq!(case.sum("s", "count"), 1.0);
    assert!(case.raw().contains(&"s set a:b".to_owned()));
    assert_eq!(case.window_series(), ["c", "g", "s", "t{env=a}"], "nothing of the broken line");
}

#[tokio::test]
async fn legacy_multibit_samples_have_types_and_rates_of_their_own() {
    let case = Case::start("").await;
    case.datagrams(["k:10|ms:20|ms|@0.5:3|c\n"]).await;
    case.books("statsd", 3, json!({})).await;
    assert_eq!(case.raw(), ["k timer 10.0", "k timer 20.0 @0.5", "k counter 3.0"]);
    let timer = case.windows("k").into_iter().find(|fields| !fields["sum"].is_null()).unwrap();
    assert_eq!((&timer["count"], &timer["sum"]), (&json!(3.0), &json!(50.0)));
    let counter = case.windows("k").into_iter().find(|fields| fields["sum"].is_null()).unwrap();
    assert_eq!(counter["count"], 3.0);
}

#[tokio::test]
async fn dsd_event_is_recognised_by_its_lengths_in_bytes() {
    let case = Case::start("").await;
    let lines = [
        "_e{5,4}:Disk!|full|t:warning|#host:a\n",
        "_e{3,3}:a|b|x|y\n",
        // Five letters of which one takes two bytes.
        "_e{4,2}:\u{152}uf|ok\n",
        "_e{99,2}:short|ok\n",
        "ok:1|c\n",
    ];
    case.datagrams([lines.concat()]).await;
    let rejected = json!({ "unsupported_event": 3, "invalid_event": 1 });
    case.books("statsd", 1, rejected).await;
    assert_eq!(case.raw(), ["ok counter 1.0"]);
}

#[tokio::test]
async fn tags_colon_splits_at_the_first_one_only() {
    let case = Case::start("").await;
    case.datagrams(["c:42|c|#addr:10.0.0.1:443,url:http://h/x\n"]).await;
    case.books("statsd", 1, json!({})).await;
    assert_eq!(case.raw(), ["c{addr=10.0.0.1:443,url=http://h/x} counter 42.0"]);
}

#[tokio::test]
async fn tags_duplicate_reach_no_backend() {
    let influx = FakeHttp::start([]).await;
    let case = Case::start(&influx_route(&influx)).await;
    case.datagrams(["p:2|ms|#env:a,env:a,q:x\np:3|ms|#q:x,env:a\nr:1|c|#env:a,env:b\n"]).await;
    case.books("statsd", 3, json!({})).await;
    assert_eq!(case.sum("p{env=a,q=x}", "count"), 2.0);
    assert_eq!(case.sum("p{env=a,q=x}", "sum"), 5.0);
    assert_eq!(case.sum("r{env=b}", "count"), 1.0);
    assert_eq!(case.window_series(), ["p{env=a,q=x}", "r{env=b}"]);
    let lines = influx_lines(&influx);
    assert!(lines.iter().all(|line| line.matches("env=").count() == 1), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("p,env=a,q=x ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("r,env=b ")), "{lines:?}");
}

/// What was refused, and why: eleven lines, of which the first nine are broken.
const MALFORMED: &str = concat!(
    "abc:\n",
    "abc:|\n",
    "abc:1|\n",
    "|c\n",
    ":1|c\n",
    "abc\n",
    "abc:1||c\n",
    "abc:1|q\n",
    "cpu:  0.11  -0.05|h|#a:b\n",
    "abc:1|c|\n",
    "ok:1|c\n"
);

#[tokio::test]
async fn malformed_fuzz_costs_each_broken_line_and_no_other() {
    let case = Case::start("").await;
    case.datagrams([MALFORMED]).await;
    let once = json!({
        "missing_value": 3,
        "missing_kind": 2,
        "empty_name": 2,
        "unknown_kind": 1,
        "invalid_value": 1,
    });
    case.books("statsd", 2, once.clone()).await;
    assert_eq!(case.raw(), ["abc counter 1.0", "ok counter 1.0"]);

    // Over TCP the connection goes on after all of them.
    let twice = once.as_object().unwrap().iter();
    let twice = twice.map(|(reason, count)| (reason.clone(), json!(count.as_u64().unwrap() * 2)));
    let lines = format!("{MALFORMED}after:1|c\n");
    assert_eq!(case.exchange("statsd", lines).await, "");
    case.books("statsd", 5, twice.collect::<serde_json::Map<_, _>>().into()).await;
    assert_eq!(case.raw().last().unwrap(), "after counter 1.0");
}

#[tokio::test]
async fn malformed_fuzz_of_every_truncation_leaves_the_gateway_alive() {
    let case = Case::start("").await;
    let lines = [
        "a.b:1.5:-2|ms|@0.25|#k:v,bare|c:id|T1700000000",
        "k:10|ms:20|ms|@0.5:3|c",
        "_e{5,4}:Disk!|full|t:warning|#host:a",
        "_sc|name|0|d:1700000000|h:x|#k:v|m:text",
        "n,k=v,l=w:+1e3|g",
        "n;k=v:u\u{153}|s",
        "n[k=v]:1|h",
    ];
    let cuts = lines.iter().flat_map(|line| (1..line.len()).map(|end| &line.as_bytes()[..end]));
    let count = cuts.clone().count() as u64;
    case.datagrams(cuts).await;
    case.datagrams(["alive:1|c"]).await;
    // Some make several points, so their number does not tell when the last one has come.
    eventually("the last one is there", async || {
        case.raw().contains(&"alive counter 1.0".to_owned())
    })
    .await;
    let book = case.gateway.ledger().await["listeners"]["statsd"].take();
    let rejected = book["rejected"].as_object().unwrap().values();
    let rejected: u64 = rejected.map(|count| count.as_u64().unwrap()).sum();
    // A line is refused as a whole or makes at least one point.
    assert!(rejected + book["received"].as_u64().unwrap() > count, "{book}");
    assert_eq!(book["kernel_dropped"], 0);
    case.books("statsd", book["received"].as_u64().unwrap(), book["rejected"].clone()).await;
}

#[tokio::test]
async fn name_space_slash_is_kept_inside_and_made_fit_for_each_backend() {
    let (influx, statsd) = (FakeHttp::start([]).await, UdpSink::start().await);
    let case = Case::start(&(influx_route(&influx) + &statsd_route(&statsd))).await;
    case.datagrams(["my service/ok:1|c\n"]).await;
    case.books("statsd", 1, json!({})).await;
    assert_eq!(case.raw(), ["my service/ok counter 1.0"]);
    let lines = influx_lines(&influx);
    assert!(lines[0].starts_with("my\\ service/ok count=1,"), "{lines:?}");
    eventually("it is forwarded", async || !statsd.lines().is_empty()).await;
    assert_eq!(statsd.lines(), ["my service/ok:1|c"]);
}

#[tokio::test]
async fn name_collision_after_making_fit_is_counted_and_told() {
    let statsd = UdpSink::start().await;
    let case = Case::start(&statsd_route(&statsd)).await;
    let points = r#"[{"name":"gl_ork","value":320},{"name":"gl|ork","value":10},{"name":"gl:ork","value":7}]"#;
    case.gateway.http("api").post("/v1/points", points).await.expect_success();
    let ledger = case.books("api", 3, json!({})).await;
    let own = ["gl_ork sample 320", "gl|ork sample 10", "gl:ork sample 7"];
    assert_eq!(case.raw(), own, "where names are kept, there are three");
    eventually("all are forwarded", async || statsd.lines().len() == 3).await;
    assert_eq!(statsd.lines(), ["gl_ork:320|g", "gl_ork:10|g", "gl_ork:7|g"]);
    assert_eq!(ledger["backends"]["forward"]["noticed"], json!({ "name_collision": 1 }));
    for backend in ["raw", "windows"] {
        assert_eq!(ledger["backends"][backend]["noticed"], json!({}));
    }
    let log = case.gateway.log();
    assert_eq!(log.matches(r#""name":"gl:ork","sent":"gl_ork""#).count(), 1, "{log}");
}

#[tokio::test]
async fn udp_newlines_of_every_sort_end_a_line() {
    let case = Case::start("").await;
    let datagrams =
        ["a:1|c", "a:1|c\n", "a:1|c\r\n", "a:1|c\n\nb:2|c\n", "\n\n", "", "t:320|ms\r\n"];
    case.datagrams(datagrams).await;
    let ledger = case.books("statsd", 6, json!({})).await;
    assert_eq!(case.sum("a", "count"), 4.0);
    assert_eq!(case.sum("b", "count"), 2.0);
    assert_eq!((case.sum("t", "count"), case.sum("t", "sum")), (1.0, 320.0));
    let bytes: usize = datagrams.iter().map(|datagram| datagram.len()).sum();
    assert_eq!(ledger["listeners"]["statsd"]["received_bytes"], bytes);
}

fn influx_route(influx: &FakeHttp) -> String {
    format!(
        r#"
[backends.influx]
kind = "influxdb"
url = "{}"
database = "d"
flush = "1s"
expire = {{ gauge = "0s" }}

[[routes]]
name = "influx"
to = ["influx"]
"#,
        influx.url()
    )
}

fn statsd_route(statsd: &UdpSink) -> String {
    format!(
        r#"
[backends.forward]
kind = "statsd"
address = "udp://{}"
flush = "50ms"

[[routes]]
name = "forward"
to = ["forward"]
"#,
        statsd.address()
    )
}

fn influx_lines(influx: &FakeHttp) -> Vec<String> {
    let bodies = influx.received().into_iter().map(|request| request.body);
    bodies.flat_map(|body| body.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}
