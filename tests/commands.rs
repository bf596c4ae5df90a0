//! The commands around the gateway: `send` a point, `query` the store, print the default
//! configuration.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::process::Output;

use common::{Gateway, eventually, pointsman};
use serde_json::{Value, json};

#[tokio::test]
async fn send_speaks_every_protocol() {
    let gateway = Gateway::start(&with_backend("kind = 'stdout'\nflush = '10ms'")).await;
    for (protocol, listener, transport, kind) in [
        ("statsd", "statsd", "udp", "counter"),
        ("opentsdb", "tsdb", "tcp", "sample"),
        ("http", "api", "tcp", "sample"),
    ] {
        // As the banner shows it.
        let to = format!("{transport}://{}", gateway.addr(listener, transport));
        let name = format!("sent.by.{protocol}");
        let output = pointsman(&[
            "send", protocol, "--to", &to, "--name", &name, "--value", "-2.5", "--tag", "os=linux",
        ]);
        succeeds(&output);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.starts_with(&format!("sent to {to}: ")) && said.contains(&name), "{said}");
        let point = printed(&gateway, &name).await;
        let parts = ["kind", "value", "tags"].map(|key| point[key].clone());
        assert_eq!(parts, [json!(kind), json!(-2.5), json!({ "os": "linux" })], "{point}");
    }
}

#[tokio::test]
async fn send_times_a_command_and_ends_as_it_did() {
    let gateway = Gateway::start(&with_backend("kind = 'stdout'\nflush = '10ms'")).await;
    for (protocol, listener, transport, kind) in [
        ("statsd", "statsd", "udp", "timer"),
        ("opentsdb", "tsdb", "tcp", "sample"),
        ("http", "api", "tcp", "timer"),
    ] {
        let to = gateway.addr(listener, transport).to_string();
        let name = format!("took.{protocol}");
        let command = ["sh", "-c", "echo heard; sleep 0.05; exit 7"];
        let send = ["send", protocol, "--to", &to, "--name", &name, "--"];
        let output = pointsman(&[&send[..], &command[..]].concat());
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert_eq!(output.stdout, b"heard\n", "the command speaks for itself");
        let point = printed(&gateway, &name).await;
        assert_eq!(point["kind"], kind);
        let millis = point["value"].as_f64().unwrap();
        assert!((50.0..60_000.0).contains(&millis), "{point}");
    }
}

/// Who answers may be somebody else.
#[test]
fn send_shows_an_answer_that_commands_no_terminal() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap().to_string();
    let serving = std::thread::spawn(move || {
        let (mut client, _) = server.accept().unwrap();
        std::io::Read::read_to_end(&mut client, &mut Vec::new()).unwrap();
        std::io::Write::write_all(&mut client, b"\x1b[2Jgone\n").unwrap();
    });
    let output = pointsman(&["send", "opentsdb", "--to", &to]);
    serving.join().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("\\u{1b}[2Jgone") && !said.contains('\x1b'), "{said}");
}

#[tokio::test]
async fn send_says_what_went_wrong() {
    let gateway = Gateway::start(&with_backend("kind = 'blackhole'")).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (nobody, api) = (nobody.to_string(), gateway.addr("api", "tcp").to_string());
    let tsdb = gateway.addr("tsdb", "tcp").to_string();
    let long = "x".repeat(2000);
    for (arguments, says) in [
        (&["send", "opentsdb", "--to", &nobody][..], &["refused", &nobody][..]),
        (&["send", "http", "--to", &nobody], &["refused", &nobody]),
        (&["send", "statsd", "--to", "nowhere"], &["nowhere"]),
        (&["send", "http", "--to", &api, "--name", &long], &["400", "1024"]),
        (&["send", "opentsdb", "--to", &tsdb, "--tag", "a=b", "--tag", "c=d"], &["put: ", "tags"]),
        (&["send", "statsd", "--", "/no/such/command"], &["/no/such/command"]),
    ] {
        let output = pointsman(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("error: "), "{said}");
        for part in says {
            assert!(said.contains(part), "{said} does not say {part}");
        }
    }
}

#[tokio::test]
async fn query_reads_the_store_of_a_running_gateway_in_every_format() {
    let gateway = Gateway::start(&with_backend("kind = 'store'\nflush = '10ms'")).await;
    let points = r#"[
        {"name":"build","tags":{"os":"linux"},"time":1700000000,"seconds":1.5,"ok":true},
        {"name":"build","tags":{"os":"mac"},"time":1700000001,"seconds":2,"note":"a, \"b\""},
        {"name":"other","time":1700000000,"value":1}
    ]"#;
    gateway.http("api").post("/v1/points", points).await.expect_success();
    let query = |more: &[&str]| {
        let data_dir = gateway.data_dir();
        let common = ["query", "--data-dir", data_dir.to_str().unwrap(), "--since", "1699999999"];
        pointsman(&[&common[..], more].concat())
    };
    eventually("the points can be read", async || {
        let output = query(&["build", "--format", "csv"]);
        String::from_utf8(output.stdout).unwrap().lines().count() >= 3
    })
    .await;

    let table = text(query(&["build"]));
    for part in ["linux", "mac", "1.5", "2023-11-14T22:13:20Z"] {
        assert!(table.contains(part), "{table} does not show {part}");
    }
    assert!(!table.contains("other"), "{table}");

    let json: Value = serde_json::from_str(&text(query(&["build", "--format", "json"]))).unwrap();
    let [linux, mac] = &json["series"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!((&linux["tags"], &mac["tags"]), (&json!({"os":"linux"}), &json!({"os":"mac"})));
    assert_eq!(linux["rows"][0]["fields"], json!({ "seconds": 1.5, "ok": true }), "{json}");
    let page = gateway.admin_get("/v1/query?name=build&since=1699999999").await.json();
    assert_eq!(page, json, "the admin listener answers the same");

    let csv = text(query(&["build", "--format", "csv"]));
    assert!(csv.contains("\"a, \"\"b\"\"\""), "{csv}");
    assert_eq!(text(query(&["*", "--format", "csv"])).matches("other").count(), 1);

    let early = text(query(&["build", "--until", "1700000000", "--format", "csv"]));
    assert!(early.contains("linux") && !early.contains("mac"), "{early}");
    let nothing = query(&["nosuch", "--format", "json"]);
    assert_eq!(nothing.status.code(), Some(1), "as grep does");
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("`nosuch`"), "{nothing:?}");
}

#[test]
fn query_without_a_store_says_so() {
    let empty = tempfile::tempdir().unwrap();
    let output = pointsman(&["query", "x", "--data-dir", empty.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0, "reading makes nothing");
}

#[test]
fn default_config_passes_its_own_check_and_starts() {
    let printed = pointsman(&["default-config"]);
    succeeds(&printed);
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(file.path(), printed.stdout).unwrap();
    let output = pointsman(&["check", "--config", file.path().to_str().unwrap()]);
    succeeds(&output);
    assert!(output.stderr.is_empty(), "no warnings: {output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    for part in ["udp://127.0.0.1:8125", "tcp://127.0.0.1:4242", "tcp://127.0.0.1:8080", "store"] {
        assert!(table.contains(part), "{table} does not show {part}");
    }
}

/// The point of this name, once it has been printed.
async fn printed(gateway: &Gateway, name: &str) -> Value {
    eventually(&format!("{name} is printed"), async || {
        let out = gateway.stdout();
        let whole = out.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let mut points = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
        points.find(|point| point["name"] == name)
    })
    .await
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

#[track_caller]
fn text(output: Output) -> String {
    succeeds(&output);
    String::from_utf8(output.stdout).unwrap()
}

/// A listener for each protocol, and a route to the backend `b`.
fn with_backend(keys: &str) -> String {
    format!(
        "[admin]\nbind = '127.0.0.1:0'\n\
         [listeners.statsd]\nprotocol = 'statsd'\nbind = ['udp://127.0.0.1:0']\n\
         [listeners.tsdb]\nprotocol = 'opentsdb'\nbind = ['tcp://127.0.0.1:0']\n\
         limits.tags = 1\n\
         [listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n\
         [backends.b]\n{keys}\n[[routes]]\nto = ['b']\n"
    )
}
