//! What a backend refuses for good is kept with the backend's own words, outlives the gateway, and
//! goes through the routing table again when a person says so. The books balance all the while.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use common::{API, Answer, FakeHttp, Gateway, Influxd, eventually, influxdb, pointsman, post};
use serde_json::{Value, json};

/// A column that was a number becomes text; the letter waits through a stop and a kill, until the
/// configuration sends it under another name.
#[tokio::test]
async fn a_type_conflict_is_told_kept_and_replayed_under_a_new_name() {
    let server = Influxd::start().await;
    server.create_database("d").await;
    // Types are those of a shard, so it has to lie in the same week.
    server.write("d", &format!("build status=1 {}", TIME - 1)).await.expect_success();
    // In one body with a good point it would depend on the server what is told of which.
    let keys = "batch = { points = 1 }";
    let mut gateway = Gateway::start(&config(&server.url(), keys, "")).await;
    post(
        &gateway,
        &json!([
            { "name": "build", "status": "broken", "time": TIME },
            { "name": "build", "status": 2, "time": TIME + 1 },
        ]),
    )
    .await;
    eventually("one is delivered", async || gateway.book("influx").await["delivered"] == 1).await;
    eventually("one is refused", async || dead(&gateway).await == 1).await;

    let list = letters(&gateway, "").await;
    let letter = list["letters"][0].clone();
    assert_eq!(list["sum"], json!({ "letters": 1, "points": 1 }), "{list}");
    assert_eq!((&letter["backend"], &letter["kind"]), (&json!("influx"), &json!("influxdb")));
    let words = letter["words"].as_str().unwrap();
    assert!(words.contains("field type conflict"), "{words}");
    let refused = gateway.book("influx").await["refused"].clone();
    assert_eq!(refused[letter["reason"].as_str().unwrap()], 1, "{refused}");

    let ended = gateway.terminate().await;
    assert!(ended.status.success(), "nothing is lost: {}", ended.log);
    gateway.restart().await;
    assert_eq!(gateway.book("influx").await["recovered"], 1);
    gateway.kill9();
    let offline = command(&gateway, &["list", "--format", "json"]);
    assert!(text(&offline.stderr).contains("no gateway answers"), "{offline:?}");
    let offline: Value = serde_json::from_slice(&offline.stdout).unwrap();
    assert_eq!(offline, list, "the files say the same");
    gateway.restart().await;
    assert_eq!(letters(&gateway, "").await, list);

    let shown = succeeds(&command(&gateway, &["show", &letter["id"].to_string()]));
    for part in
        ["field type conflict", "build status=\"broken\"", r#""fields":{"status":"broken"}"#]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }

    // As it is, it is refused again, and becomes a new letter.
    let again = command(&gateway, &["replay"]);
    assert!(succeeds(&again).contains("replayed 1 point, kept 0"), "{again:?}");
    eventually("it is back", async || dead(&gateway).await == 1 && moved(&gateway).await == 0)
        .await;
    assert_ne!(letters(&gateway, "").await["letters"][0]["id"], letter["id"]);

    let renamed = "[[routes]]\nname = \"renamed\"\nmatch = { name = \"build\" }\nto = [\"influx\"]\n\
                   rewrite = { name = \"${name}.text\" }\nfinal = true\n";
    gateway.reload(&config(&server.url(), keys, renamed)).await.expect_success();
    assert!(
        succeeds(&command(&gateway, &["replay", "--backend", "influx"])).contains("replayed 1")
    );
    eventually("it is delivered", async || gateway.book("influx").await["delivered"] == 1).await;
    let rows = server.rows("d", "SELECT * FROM \"build.text\"").await;
    assert_eq!(rows, [json!({ "time": TIME, "status": "broken" }).as_object().unwrap().clone()]);
    let book = gateway.book("influx").await;
    assert_eq!((&book["held"]["total"], &book["replayed"]), (&json!(0), &json!(2)), "{book}");
    assert_eq!((&book["dropped"], &book["balanced"]), (&json!({}), &json!(true)), "{book}");
    assert_eq!(letters(&gateway, "").await["letters"], json!([]));
    assert!(!file(&gateway).exists(), "an empty file is removed");
}

#[tokio::test]
async fn a_replay_keeps_what_no_route_takes_and_spares_who_has_it() {
    let (bad, good) = (refusing().await, FakeHttp::start([]).await);
    let other = influxdb("other", &good.url(), "");
    let both = format!("{other}[[routes]]\nname = \"copy\"\nto = [\"other\"]\n");
    let mut gateway = Gateway::start(&config(&bad.url(), "", &both)).await;
    post(&gateway, &point("bad.a")).await;
    eventually("the one refuses it", async || dead(&gateway).await == 1).await;
    eventually("the other has it", async || good.received().len() == 1).await;

    // The refusing backend is still named, so only it is asked again.
    assert!(succeeds(&command(&gateway, &["replay"])).contains("replayed 1 point"));
    eventually("it is refused again", async || bad.received().len() == 2).await;
    eventually("it is a letter again", async || {
        dead(&gateway).await == 1 && moved(&gateway).await == 0
    })
    .await;
    assert_eq!(good.received().len(), 1);

    // Nobody is named: it stays.
    let routes =
        |routes: &str| config(&bad.url(), "", &format!("{other}{routes}")).replace(ALL, "");
    let unrelated = "[[routes]]\nmatch = { name = \"x\" }\nto = [\"influx\", \"other\"]\n";
    gateway.reload(&routes(unrelated)).await.expect_success();
    let stays = command(&gateway, &["replay"]);
    assert_eq!(stays.status.code(), Some(1), "{stays:?}");
    let said = text(&stays.stdout);
    assert!(said.contains("replayed 0 points, kept 1; no route takes 1"), "{said}");
    assert_eq!(dead(&gateway).await, 1);

    // Another is named now, and the one that has refused it is gone.
    let config = routes("[[routes]]\nmatch = { name = \"bad.*\" }\nto = [\"other\"]\n");
    gateway.reload(&config).await.expect_success();
    assert!(succeeds(&command(&gateway, &["replay"])).contains("replayed 1 point"));
    eventually("the other gets it", async || good.received().len() == 2).await;
    assert_eq!(dead(&gateway).await, 0);
    balanced(&gateway).await;
}

/// A letter is safe on disk, and so have to be its points when it leaves.
#[tokio::test]
async fn a_kill_after_a_replay_costs_nothing_that_was_replayed() {
    let server = refusing().await;
    let mut gateway = Gateway::start(&config(&server.url(), "", "")).await;
    post(&gateway, &json!([{ "name": "bad.a", "value": 1 }, { "name": "bad.b", "value": 2 }]))
        .await;
    eventually("they are refused", async || dead(&gateway).await == 2).await;
    // Nobody is there, so the points can only wait.
    gateway.reload(&config("http://127.0.0.1:1", "", "")).await.expect_success();
    assert!(succeeds(&command(&gateway, &["replay"])).contains("replayed 2 points, kept 0"));
    gateway.kill9();
    gateway.restart().await;
    assert_eq!(gateway.book("influx").await["recovered"], 2);
    balanced(&gateway).await;
}

#[test]
fn where_there_is_neither_a_gateway_nor_a_directory_it_is_said() {
    let nowhere = tempfile::tempdir().unwrap().path().join("nowhere");
    let ask = |task: &str| {
        let to = ["dead-letters", "--admin", "127.0.0.1:1", "--data-dir"];
        let output = pointsman(&[&to[..], &[nowhere.to_str().unwrap(), task]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stderr)
    };
    let said = ask("list");
    assert!(said.contains("nowhere`; are `--admin` and `--data-dir` right?"), "{said}");
    let said = ask("replay");
    assert!(said.contains("no gateway answers at 127.0.0.1:1"), "{said}");
    assert!(said.contains("is it started, and is `--admin` right?"), "{said}");
    let named = pointsman(&["dead-letters", "--admin", "127.0.0.1:1", "list"]);
    let said = text(&named.stderr);
    assert_eq!((named.status.code(), text(&named.stdout).as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("this needs a running gateway"), "what lies here is none of its: {said}");
}

#[tokio::test]
async fn letters_are_purged_by_what_is_said_of_them() {
    let server = refusing().await;
    let gateway = Gateway::start(&config(&server.url(), "batch = { points = 1 }", "")).await;
    post(&gateway, &json!([{ "name": "bad.a", "value": 1 }, { "name": "bad.b", "value": 2 }]))
        .await;
    eventually("both are refused", async || dead(&gateway).await == 2).await;
    let id = letters(&gateway, "").await["letters"][0]["id"].to_string();

    let nothing = command(&gateway, &["purge"]);
    assert_eq!(nothing.status.code(), Some(2), "{nothing:?}");
    assert!(text(&nothing.stderr).contains("say which"), "{nothing:?}");
    let other = command(&gateway, &["purge", "--reason", "too_large"]);
    assert!(succeeds(&other).contains("purged 0 letters"), "{other:?}");
    assert!(
        succeeds(&command(&gateway, &["purge", "--id", &id])).contains("purged 1 letter, 1 point")
    );
    assert_eq!(dead(&gateway).await, 1);
    assert!(succeeds(&command(&gateway, &["purge", "--all"])).contains("purged 1 letter"));
    let book = gateway.book("influx").await;
    assert_eq!((&book["dropped"], dead(&gateway).await), (&json!({ "purged": 2 }), 0), "{book}");
    assert!(succeeds(&command(&gateway, &["list"])).contains("there are no dead letters"));
    balanced(&gateway).await;

    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("pointsman_refused_points_total", &[("reason", "rejected")]), 2.0);
    assert_eq!(metrics.sum("pointsman_dropped_points_total", &[("reason", "purged")]), 2.0);
    assert!(metrics.has("pointsman_dead_letters_points", &[("backend", "influx")]));
}

#[tokio::test]
async fn the_oldest_letters_make_room() {
    let server = refusing().await;
    let keys = "batch = { points = 1 }\ndead_letters = { max_size = \"4KiB\" }";
    let gateway = Gateway::start(&config(&server.url(), keys, "")).await;
    let points = (0..100).map(|n| json!({ "name": format!("bad.{n}"), "value": n, "time": TIME }));
    post(&gateway, points.collect::<Vec<_>>()).await;
    eventually("all are refused", async || {
        gateway.book("influx").await["refused"]["rejected"] == 100
    })
    .await;
    eventually("some had to go", async || {
        gateway.book("influx").await["dropped"]["dead_letters_full"] != Value::Null
    })
    .await;
    let list = letters(&gateway, "limit=1").await;
    let book = gateway.book("influx").await;
    let (kept, gone) =
        (book["held"]["dead_letters"].as_u64(), book["dropped"]["dead_letters_full"].as_u64());
    assert_eq!(kept.zip(gone).map(|(kept, gone)| kept + gone), Some(100), "{book}");
    assert_eq!(list["sum"]["points"].as_u64(), kept);
    let newest = list["letters"][0]["id"].to_string();
    let newest = gateway.admin_get(&format!("/v1/dead-letters/influx/{newest}")).await.json();
    assert_eq!(newest["decoded"][0]["name"], "bad.99", "{newest}");
    balanced(&gateway).await;
}

#[tokio::test]
async fn without_letters_a_refusal_is_dropped_and_the_disk_left_alone() {
    let server = refusing().await;
    for keys in ["dead_letters = false", "spool = false"] {
        let gateway = Gateway::start(&config(&server.url(), keys, "")).await;
        post(&gateway, &point("bad")).await;
        eventually("it is refused", async || {
            gateway.book("influx").await["refused"]["rejected"] == 1
        })
        .await;
        let book = gateway.book("influx").await;
        assert_eq!(book["dropped"], json!({ "rejected": 1 }), "{keys}");
        assert_eq!(dead(&gateway).await, 0);
        assert!(!file(&gateway).exists() && !file(&gateway).parent().unwrap().exists());
        balanced(&gateway).await;
    }
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_keeps_nobody_from_starting() {
    let server = refusing().await;
    let mut gateway = Gateway::start(&config(&server.url(), "", "")).await;
    post(&gateway, &point("bad")).await;
    eventually("it is refused", async || dead(&gateway).await == 1).await;
    assert!(gateway.terminate().await.status.success());
    fs::write(file(&gateway), "no database, ".repeat(999)).unwrap();
    gateway.restart().await;
    let aside = file(&gateway).with_extension("db.damaged-1");
    assert!(aside.exists(), "{}", gateway.log());
    assert!(gateway.log().contains("the dead letters are damaged"), "{}", gateway.log());
    assert_eq!(gateway.book("influx").await["noticed"]["dead_letters_damaged"], 1);
    post(&gateway, &point("bad")).await;
    eventually("a new one is kept", async || dead(&gateway).await == 1).await;
    assert_eq!(letters(&gateway, "").await["sum"]["letters"], 1);
    balanced(&gateway).await;
}

#[tokio::test]
async fn letters_of_a_backend_that_is_gone_are_still_there() {
    let server = refusing().await;
    let mut gateway = Gateway::start(&config(&server.url(), "", "")).await;
    post(&gateway, &point("bad")).await;
    eventually("it is refused", async || dead(&gateway).await == 1).await;
    assert!(gateway.terminate().await.status.success());
    let config = config(&server.url(), "", "").replace("influx]", "screen]");
    let config = config.replace("[\"influx\"]", "[\"screen\"]").replace("influxdb", "stdout");
    let is_of_influxdb = |line: &&str| !line.contains("url") && !line.contains("database");
    let config: Vec<_> = config.lines().filter(is_of_influxdb).collect();
    fs::write(gateway.config_file(), config.join("\n")).unwrap();
    gateway.restart().await;
    assert!(gateway.log().contains("not configured any more"), "{}", gateway.log());
    assert_eq!((dead(&gateway).await, &gateway.book("influx").await["recovered"]), (1, &json!(1)));
    assert!(succeeds(&command(&gateway, &["replay"])).contains("replayed 1 point"));
    let printed = eventually("it is printed", async || {
        gateway.stdout().lines().next().map(|line| serde_json::from_str::<Value>(line).unwrap())
    })
    .await;
    assert_eq!((&printed["name"], &printed["value"]), (&json!("bad"), &json!(1.0)), "{printed}");
    balanced(&gateway).await;
}

#[tokio::test]
async fn a_replay_needs_a_gateway() {
    let gone =
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for task in [&["replay"][..], &["purge", "--all"], &["show", "1"]] {
        let output = pointsman(&[&["dead-letters", "--admin", &gone], task].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(&gone) && said.contains("needs a running gateway"), "{said}");
    }
}

/// Refuses each body in which something is bad.
async fn refusing() -> FakeHttp {
    FakeHttp::judging(|request| match request.body.contains("bad") {
        true => Answer::status(400).body(r#"{"error":"unable to parse 'bad'"}"#),
        false => Answer::status(204),
    })
    .await
}

/// A gateway whose listener `api` feeds the backend `influx`, which has these keys.
fn config(url: &str, keys: &str, before: &str) -> String {
    let influx = influxdb("influx", url, &format!("flush = '50ms'\naggregate = false\n{keys}"));
    format!("{API}{influx}{before}\n{ALL}\n")
}

fn point(name: &str) -> Value {
    json!([{ "name": name, "value": 1, "time": TIME }])
}

/// How many points are in dead letters.
async fn dead(gateway: &Gateway) -> u64 {
    gateway.book("influx").await["held"]["dead_letters"].as_u64().unwrap()
}

/// How many are held elsewhere.
async fn moved(gateway: &Gateway) -> u64 {
    let held = &gateway.book("influx").await["held"];
    held["total"].as_u64().unwrap() - held["dead_letters"].as_u64().unwrap()
}

async fn balanced(gateway: &Gateway) {
    let book = gateway.book("influx").await;
    assert_eq!(book["balanced"], true, "{book}");
}

async fn letters(gateway: &Gateway, query: &str) -> Value {
    gateway.admin_get(&format!("/v1/dead-letters?{query}")).await.expect_success().json()
}

fn file(gateway: &Gateway) -> PathBuf {
    gateway.data_dir().join("dead-letters/influx.db")
}

/// Runs `dead-letters` against the gateway, or against its files when it is not there.
fn command(gateway: &Gateway, task: &[&str]) -> Output {
    let (config, data_dir) = (gateway.config_file(), gateway.data_dir());
    let admin = gateway.admin.address();
    let to = ["dead-letters", "--admin", &admin, "--config", config.to_str().unwrap()];
    pointsman(&[&to[..], &["--data-dir", data_dir.to_str().unwrap()], task].concat())
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const ALL: &str = "[[routes]]\nname = \"all\"\nto = [\"influx\"]";
const TIME: i64 = 1_700_000_000_000_000_000;
