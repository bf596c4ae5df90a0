//! JSON points over HTTP: what is a number keeps its digits, a large body holds up nobody, and
//! one bad item costs no other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{Case, FakeHttp, Http, eventually};
use reqwest::Method;
use serde_json::{Value, json};

/// Four numbers: two that no double holds, the largest of 64 bits, and one that overflows.
const BIG: &str = concat!(
    r#"{"metric":"id","timestamp":1700000000,"value":2882429806056571124}"#,
    "\n",
    r#"{"metric":"id","timestamp":1700000001,"value":9007199254740993}"#,
    "\n",
    r#"{"metric":"id","timestamp":1700000002,"value":18446744073709551615}"#,
    "\n",
    r#"{"metric":"id","timestamp":1700000003,"value":1e400}"#,
    "\n"
);

#[tokio::test]
async fn json_bigint_keeps_every_digit_where_integers_are_kept() {
    let (keep, float) = (FakeHttp::start([]).await, FakeHttp::start([]).await);
    let case = Case::start(&format!(
        r#"
[backends.keep]
kind = "influxdb"
url = "{}"
database = "d"
integers = "keep"
flush = "1s"

[backends.float]
kind = "influxdb"
url = "{}"
database = "d"
flush = "1s"

[backends.local]
kind = "store"
flush = "1s"

[[routes]]
name = "both"
to = ["keep", "float", "local"]
"#,
        keep.url(),
        float.url()
    ))
    .await;
    let lines = [("Content-Type", "application/x-ndjson")];
    let api = case.gateway.http("api");
    let answer = api.send(Method::POST, "/v1/points?details", &lines, BIG.into()).await.unwrap();
    assert_eq!(answer.status, 400);
    let refused = &answer.json()["rejected"];
    assert_eq!((refused.as_array().unwrap().len(), &refused[0]["index"]), (1, &json!(3)));
    let ledger = case.books("api", 3, json!({ "invalid_value": 1 })).await;

    let raw = ["2882429806056571124", "9007199254740993", "18446744073709551615"];
    assert_eq!(case.raw(), raw.map(|digits| format!("id sample {digits}")));
    // An integer of InfluxDB is signed: what is larger is dropped with a reason.
    let kept = [
        "id value=2882429806056571124i 1700000000000000000",
        "id value=9007199254740993i 1700000001000000000",
    ];
    assert_eq!(lines_of(&keep), kept);
    assert_eq!(ledger["backends"]["keep"]["dropped"], json!({ "unrepresentable": 1 }));
    for (line, double) in lines_of(&float).iter().zip([
        2_882_429_806_056_571_124_u64,
        9_007_199_254_740_993,
        u64::MAX,
    ]) {
        let value = line.split([' ', '=']).nth(2).unwrap();
        #[allow(clippy::cast_precision_loss)] // That is what is asked for.
        let nearest = double as f64;
        assert_eq!(value.parse::<f64>().unwrap(), nearest, "{line}");
    }
    let rows = case.gateway.admin_get("/v1/query?name=id&since=2023-01-01T00:00:00Z").await;
    let rows = rows.expect_success().json()["series"][0]["rows"].take();
    assert_eq!(rows[0]["fields"]["value"], 2_882_429_806_056_571_124_u64, "{rows}");
    assert_eq!(rows[1]["fields"]["value"], 9_007_199_254_740_993_u64, "{rows}");
    assert!(rows[2]["fields"]["value"].as_f64().unwrap() > 1.8e19, "{rows}");
}

#[tokio::test]
async fn a_bad_item_costs_no_other_and_is_told() {
    let case = Case::start("").await;
    let api = case.gateway.http("api");
    let body = r#"[{"name":"a","value":1},{"name":"","value":2},7,{"name":"b","x":1,"ok":true}]"#;
    let answer = api.post("/v1/points", body).await;
    assert_eq!(answer.status, 400);
    let told = answer.json();
    let indices: Vec<_> =
        told["rejected"].as_array().unwrap().iter().map(|item| item["index"].clone()).collect();
    assert_eq!((&told["accepted"], indices), (&json!(2), vec![json!(1), json!(2)]));
    case.books("api", 2, json!({ "empty_name": 1, "not_a_point": 1 })).await;
    assert_eq!(case.raw(), ["a sample 1", r#"b fields {"ok":true,"x":1}"#]);
}

#[tokio::test]
async fn every_refusal_has_a_status_a_code_and_a_reason() {
    let case = Case::start("").await;
    let api = case.gateway.http("api");
    for (method, path, content_type, body, status) in [
        (Method::GET, "/v1/points", "application/json", "", 405),
        (Method::POST, "/nowhere", "application/json", "", 404),
        (Method::POST, "/v1/points", "application/xml", "<a/>", 415),
        (Method::POST, "/v1/points", "application/json", "[{", 400),
    ] {
        let headers = [("Content-Type", content_type)];
        let answer = api.send(method, path, &headers, body.into()).await.unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
        let error = &answer.json()["error"];
        let message = error["message"].as_str().unwrap_or_default();
        assert!(error["code"] == status && !message.is_empty(), "{answer:?}");
    }
    let rejected =
        json!({ "wrong_method": 1, "not_found": 1, "unsupported_type": 1, "invalid_json": 1 });
    case.books("api", 0, rejected).await;
    let metrics = case.gateway.metrics().await;
    let labels = [("listener", "api"), ("reason", "invalid_json")];
    assert_eq!(metrics.sum("pointsman_rejected_total", &labels), 1.0);
}

#[tokio::test]
async fn large_bodies_are_taken_whole_while_datagrams_flow() {
    let case = Case::start("").await;
    let item = |nth: usize| json!({ "name": "big", "tags": { "host": "web01" }, "value": nth });
    let body = Value::from((0..40_000).map(item).collect::<Vec<_>>()).to_string();
    assert!(body.len() > 1 << 20);
    let api = case.gateway.http("api");
    let (first, second, ()) = tokio::join!(
        api.post("/v1/points", body.as_str()),
        api.post("/v1/points", body.as_str()),
        case.datagrams((0..100).map(|_| "small:1|c"))
    );
    assert_eq!((first.status, second.status), (204, 204));
    case.books("api", 80_000, json!({})).await;
    case.books("statsd", 100, json!({})).await;
    assert_eq!(case.sum("small", "count"), 100.0);
    let received = case.raw();
    let big = received.iter().filter(|point| point.starts_with("big{host=web01} sample "));
    assert_eq!(big.count(), 80_000);
}

#[tokio::test]
async fn a_point_in_a_path_is_one_point() {
    let case = Case::start("").await;
    let api = case.gateway.http("api");
    let path = Http::with_query("/v1/point/build%2Ftimes", &[("compile", "12.5"), ("ok", "true")]);
    assert_eq!(api.post(&path, "").await.status, 204);
    case.books("api", 1, json!({})).await;
    eventually("it is there", async || !case.raw().is_empty()).await;
    assert_eq!(case.raw(), [r#"build/times fields {"compile":12.5,"ok":true}"#]);
}

fn lines_of(influx: &FakeHttp) -> Vec<String> {
    let bodies = influx.received().into_iter().map(|request| request.body);
    bodies.flat_map(|body| body.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}
