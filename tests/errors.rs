//! Errors as statistics: whatever is refused, by whatever way, is a point of the series that the
//! configuration names, once, with what is known of who has sent it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use common::{API, Case, Gateway, all_to, assert_balanced, eventually, pointsman};
use reqwest::Method;
use serde_json::{Value, json};

/// The errors go to a backend that gets nothing else, raw.
const PLATFORM: &str = "[backends.platform]\nkind = 'stdout'\naggregate = false\nflush = '10ms'\n";

/// The sums of the points that were told, by their tags.
fn told(gateway: &Gateway, series: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let stdout = gateway.stdout();
    let whole = stdout.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    for row in whole.map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        if row["name"] == series && row["kind"] == "counter" {
            *sums.entry(tags_of(&row)).or_default() += row["value"].as_f64().unwrap() as u64;
        }
    }
    sums
}

fn tags_of(row: &Value) -> String {
    let tags = row["tags"].as_object().unwrap().iter();
    let tags: Vec<_> =
        tags.map(|(key, value)| format!("{key}={}", value.as_str().unwrap())).collect();
    tags.join(" ")
}

/// Waits until that is what was told, and all books balance; of each listener as much is told as
/// was rejected and denied.
async fn are_told(gateway: &Gateway, series: &str, expected: &[(&str, u64)]) -> Value {
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(tags, count)| ((*tags).to_owned(), *count)).collect();
    let mut last = BTreeMap::new();
    eventually(&format!("{expected:?} are told"), async || {
        last = told(gateway, series);
        (last == expected).then_some(())
    })
    .await;
    let ledger = gateway.ledger().await;
    assert_balanced(&ledger);
    ledger
}

fn refused(ledger: &Value, listener: &str) -> u64 {
    let book = &ledger["listeners"][listener];
    let rejected = book["rejected"].as_object().unwrap().values();
    rejected.map(|count| count.as_u64().unwrap()).sum::<u64>() + book["denied"].as_u64().unwrap()
}

#[tokio::test]
async fn every_way_in_tells_what_it_refuses_and_who_has_sent_it() {
    let errors = "errors = { backend = 'platform' }\n";
    let principals = "[principals.edge]\nlisteners = ['statsd', 'tsdb']\n\
         scopes = ['stats:put-points:ok*']\n\
         [principals.ci]\ntokens = ['T']\nscopes = ['stats:put-points:*']\n\
         quota = { points_per_second = 1, burst = 2 }\ntags = { reserved = ['pool'] }\n";
    let config = format!("{errors}{}{PLATFORM}{principals}", Case::config(""));
    let case = Case { gateway: Gateway::start(&config).await };

    case.datagrams(["ok:1|c\nok:x|c\nok:1|?\nother:1|c", "other:2|c\nok:y|c"]).await;
    case.exchange("statsd", "ok:z|c\nok:2|c\n").await;
    case.exchange("tsdb", "put ok 1700000000 nan h=x\nput other 1700000000 1 h=x\nnonsense\n")
        .await;
    let api = case.gateway.http("api");
    let post = async |token: Option<&str>, body: &str| {
        let authorization = token.map(|token| ("authorization", format!("Bearer {token}")));
        let headers = authorization.iter().map(|(key, value)| (*key, value.as_str()));
        let headers: Vec<_> = headers.collect();
        api.send(Method::POST, "/v1/points", &headers, body.into()).await.unwrap().status
    };
    assert_eq!(post(None, "{}").await, 401);
    assert_eq!(post(Some("T"), "nonsense").await, 400);
    assert_eq!(post(Some("T"), r#"[{"name":"a","value":1},{"name":"b","value":[]}]"#).await, 400);
    assert_eq!(post(Some("T"), r#"{"name":"a","value":1,"tags":{"pool":"p"}}"#).await, 403);
    let many = r#"{"name":"a","value":1}"#;
    assert_eq!(post(Some("T"), &format!("[{many},{many},{many}]")).await, 413);

    let ledger = are_told(
        &case.gateway,
        "pointsman.errors",
        &[
            ("listener=statsd principal=edge reason=invalid_value transport=udp", 2),
            ("listener=statsd principal=edge reason=unknown_kind transport=udp", 1),
            ("listener=statsd principal=edge reason=scope transport=udp", 2),
            ("listener=statsd principal=edge reason=invalid_value transport=tcp", 1),
            ("listener=tsdb principal=edge reason=invalid_value transport=tcp", 1),
            ("listener=tsdb principal=edge reason=scope transport=tcp", 1),
            ("listener=tsdb principal=edge reason=unknown_command transport=tcp", 1),
            ("listener=api reason=unauthenticated transport=tcp", 1),
            ("listener=api principal=ci reason=invalid_json transport=tcp", 1),
            ("listener=api principal=ci reason=invalid_field transport=tcp", 1),
            ("listener=api principal=ci reason=forbidden transport=tcp", 1),
            ("listener=api principal=ci reason=reserved_tag transport=tcp", 1),
            ("listener=api principal=ci reason=quota_points_per_second transport=tcp", 4),
        ],
    )
    .await;
    // What `explain` says would be told is what was told.
    let file = case.gateway.config_file();
    let config = file.to_str().unwrap();
    let all = told(&case.gateway, "pointsman.errors");
    for (listener, principal, line, reasons) in [
        ("statsd", None, "ok:x|c", &["invalid_value"][..]),
        ("statsd", None, "other:1|c", &["scope"]),
        ("tsdb", None, "put ok 1700000000 nan h=x", &["invalid_value"]),
        ("tsdb", None, "put other 1700000000 1 h=x", &["scope"]),
        ("api", None, "nonsense", &["unauthenticated"]),
        ("api", None, r#"{"name":"a","value":1}"#, &["unauthenticated"]),
        ("api", Some("ci"), "nonsense", &["invalid_json"]),
        (
            "api",
            Some("ci"),
            r#"{"name":"a","value":1,"tags":{"pool":"p"}}"#,
            &["reserved_tag", "forbidden"],
        ),
    ] {
        let mut arguments = vec!["explain", "--config", config, "--listener", listener];
        arguments.extend(principal.iter().flat_map(|name| ["--principal", *name]));
        let output = pointsman(&[&arguments[..], &["--", line]].concat());
        let story = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let rows = story.lines().filter(|line| line.starts_with("         {"));
        let rows: Vec<Value> = rows.map(|row| serde_json::from_str(row).unwrap()).collect();
        let tags: Vec<_> = rows.iter().map(tags_of).collect();
        assert!(tags.iter().all(|tags| all.contains_key(tags)), "{story}");
        let told: Vec<_> = rows.iter().map(|row| row["tags"]["reason"].as_str().unwrap()).collect();
        assert_eq!(told, reasons, "{story}");
    }
    let all: u64 = ["statsd", "tsdb", "api"].map(|name| refused(&ledger, name)).iter().sum();
    assert_eq!(told(&case.gateway, "pointsman.errors").values().sum::<u64>(), all);
    // Nobody was charged, nothing of them was refused, and no other route has seen them.
    let book = &ledger["listeners"]["errors"];
    assert_eq!(
        (&book["denied"], &book["unmatched"], &book["rejected"]),
        (&json!(0), &json!(0), &json!({}))
    );
    assert_eq!(book["received"], ledger["routes"]["pointsman.errors to platform"]);
    assert_eq!(ledger["backends"]["platform"]["delivered"], book["received"]);
}

#[tokio::test]
async fn a_file_is_named_with_what_is_wrong_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(place("drop")).unwrap();
    fs::write(place("a.jsonl"), "{\"name\":\"a\",\"value\":1}\nnonsense\n{\"name\":1}\n").unwrap();
    fs::write(place("b.jsonl"), "nonsense\nno sense\n{\"name\":\"b\",\"value\":1}\n").unwrap();
    fs::write(place("drop/c.csv"), "name,v,v\nx,1,2\n").unwrap();
    fs::write(place("drop/d.csv"), "name,v\nx,1\ny,NaN\n").unwrap();
    let config = format!(
        "[admin]\nbind = '127.0.0.1:0'\n[listeners.files]\nprotocol = 'file'\n\
         paths = ['{}']\ndrop = '{}'\nerrors = {{ backend = 'platform', name = 'platform/errors' }}\n\
         [backends.out]\nkind = 'blackhole'\n{PLATFORM}{}",
        place("*.jsonl"),
        place("drop"),
        all_to(&["out"])
    );
    let gateway = Gateway::start(&config).await;
    let of = |file: &str, reason: &str| {
        format!("file={} listener=files reason={reason} transport=file", place(file))
    };
    let expected = [
        (of("a.jsonl", "invalid_json"), 1),
        (of("a.jsonl", "not_a_point"), 1),
        (of("b.jsonl", "invalid_json"), 2),
        (of("drop/c.csv", "table_refused"), 1),
        (of("drop/d.csv", "invalid_value"), 1),
    ];
    let expected: Vec<_> = expected.iter().map(|(tags, count)| (tags.as_str(), *count)).collect();
    let ledger = are_told(&gateway, "platform/errors", &expected).await;
    assert_eq!(refused(&ledger, "files"), 6);
    assert_eq!(ledger["backends"]["out"]["handed"], 3);
}

/// Who sends through the client says what the points are from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submitted_files_and_logs_are_named_too() {
    let config = format!(
        "errors = {{ backend = 'platform' }}\n{API}{PLATFORM}\
         [[routes]]\nto = []\n"
    );
    let gateway = Gateway::start(&config).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stats.jsonl");
    fs::write(&file, "nonsense\n{\"name\":\"a\",\"value\":1}\n").unwrap();
    let run = |arguments: &[&str], input: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
        command.args(arguments).args(["--to", &format!("http://{}", gateway.addr("api", "tcp"))]);
        command.env("TASK_ID", "T").env("RUN_ID", "1").stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait().unwrap();
    };
    run(&["submit", file.to_str().unwrap()], "");
    run(&["logs", "--once"], "[taskcluster-task:stat] {\"name\":1}\n");
    let submitted = format!(
        "file={} listener=api reason=invalid_json run=1 task=T transport=tcp",
        file.display()
    );
    let logged = "listener=api reason=not_a_point run=1 task=T transport=tcp";
    are_told(&gateway, "pointsman.errors", &[(&submitted, 1), (logged, 1)]).await;
}

/// What was refused in the last moment is told, by whichever table is in force.
#[tokio::test]
async fn a_reload_changes_where_errors_go_and_a_stop_tells_the_last() {
    let with = |errors: &str| format!("{errors}{}{PLATFORM}", Case::config(""));
    let mut gateway = Gateway::start(&with("")).await;
    let case = |gateway| Case { gateway };
    let before = case(gateway);
    before.datagrams(["a:x|c"]).await;
    before.books("statsd", 0, json!({ "invalid_value": 1 })).await;
    gateway = before.gateway;
    let reply = gateway.reload(&with("errors = { backend = 'platform', name = 'e' }\n")).await;
    assert!(reply.body.contains("errors"), "{}", reply.body);
    let after = case(gateway);
    after.datagrams(["a:x|c\na:y|c"]).await;
    are_told(&after.gateway, "e", &[("listener=statsd reason=invalid_value transport=udp", 2)])
        .await;
    after.datagrams(["a:x|c"]).await;
    after.books("statsd", 0, json!({ "invalid_value": 4 })).await;
    gateway = after.gateway;
    assert!(gateway.terminate().await.status.success());
    assert_eq!(told(&gateway, "e").values().sum::<u64>(), 3, "not what was before");
}

#[test]
fn check_and_explain_show_where_errors_go() {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let config = format!(
        "{}{PLATFORM}[principals.edge]\nlisteners = ['statsd']\nscopes = []\n",
        Case::config("").replacen(
            "[listeners.statsd]",
            "[listeners.statsd]\nerrors = { backend = 'platform' }",
            1
        )
    );
    fs::write(file.path(), &config).unwrap();
    let path = file.path().to_str().unwrap();
    let output = |arguments: &[&str]| {
        let output = pointsman(arguments);
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap()
    };
    let check = output(&["check", "--config", path]);
    assert!(check.contains("-  pointsman.errors to platform\n"), "{check}");
    let explain = |listener: &str, line: &str| {
        output(&["explain", "--config", path, "--listener", listener, line])
    };
    let broken = explain("statsd", "a:x|c");
    assert!(broken.contains("\nerror    \"pointsman.errors\" counter 1"), "{broken}");
    assert!(broken.contains("\"reason\"=\"invalid_value\""), "{broken}");
    assert!(broken.contains("backend  platform (stdout"), "{broken}");
    let denied = explain("statsd", "a:1|c");
    assert!(denied.contains("\"reason\"=\"scope\""), "{denied}");
    assert!(denied.contains("\"principal\"=\"edge\""), "{denied}");
    let other = explain("tsdb", "put a");
    assert!(!other.contains("pointsman.errors"), "{other}");
    fs::write(file.path(), config.replace("backend = 'platform'", "backend = 'plattform'"))
        .unwrap();
    let check = output(&["check", "--config", path]);
    for words in ["listeners.statsd.errors.backend", "no backend `plattform`", "mean `platform`?"] {
        assert!(check.contains(words), "{check}");
    }
}
