//! What a hostile or careless peer may not do: read a secret, unfold a bomb, hold connections
//! for ever, or say more than one record with one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use common::{Answer, Case, Daemon, FakeHttp, Gateway, UdpSink, amqp, eventually, gzip, pointsman};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[tokio::test]
async fn secret_in_log_page_or_file_of_a_running_gateway() {
    let refusing = FakeHttp::start([Answer::status(401).body(r#"{"error":"unauthorized"}"#)]).await;
    let secrets = tempfile::tempdir().unwrap();
    fs::write(secrets.path().join("password"), "S3CR3T-1\n").unwrap();
    let picky =
        FakeHttp::judging(|_| Answer::status(422).body(r#"{"error":"no such column"}"#)).await;
    let backends = with_secrets(secrets.path(), &refusing.url(), &picky.url());
    let good = format!("grace = \"1s\"\n{}", Case::config(&backends));
    let mut gateway = Gateway::start_with(&good, &["--log-level", "trace"]).await;

    let mut shown = send_secrets(&gateway).await;
    let pages = [
        "/",
        "/metrics",
        "/-/ready",
        "/v1/ledger",
        "/v1/listeners",
        "/v1/routes",
        "/v1/query?name=a",
        "/v1/explain?listener=statsd&line=a:1|c",
        "/v1/dead-letters",
    ];
    eventually("every backend has failed", async || {
        let backends = gateway.ledger().await["backends"].take();
        let is_ill = |name: &str| backends[name]["ill"].is_string();
        let has_refused = backends["picky"]["held"]["dead_letters"].as_u64() > Some(0);
        ["v1", "v1_file", "v2", "pool"].into_iter().all(is_ill)
            && has_refused
            && !refusing.received().is_empty()
    })
    .await;
    let letters: Value = gateway.admin_get("/v1/dead-letters").await.expect_success().json();
    let letter = format!("/v1/dead-letters/{}", letters["letters"][0]["id"]);
    shown.push(gateway.admin_get(&letter).await.expect_success().body);
    for page in pages {
        shown.push(gateway.admin_get(page).await.expect_success().body);
    }
    for bad in mistaken() {
        let reply = gateway.reload(&Case::config(&bad)).await;
        assert_eq!(reply.status, 422, "{reply:?}");
        shown.push(reply.body);
    }
    let ended = gateway.terminate().await;
    assert!(ended.log.contains("\"level\":\"TRACE\""), "nothing would be shown at this level");
    shown.push(ended.log);
    shown.push(gateway.stdout());
    let files = files_below(&gateway.data_dir());
    for kept in ["keys.db", "spool/v1.db", "dead-letters/picky", "windows/"] {
        assert!(files.iter().any(|name| name.contains(kept)), "there is no {kept} to look into");
    }
    shown.extend(files);
    for text in &shown {
        assert_harmless(text);
    }
    for (server, token) in [(&refusing, "Bearer S3CR3T-4"), (&picky, "Token S3CR3T-6")] {
        let sent = server.received()[0].header("authorization").unwrap().to_owned();
        assert_eq!(sent, token, "the secrets were in use");
    }
}

#[tokio::test]
async fn secret_in_log_of_no_command() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("password"), "S3CR3T-1\n").unwrap();
    let file = directory.path().join("pointsman.toml");
    let good =
        Case::config(&with_secrets(directory.path(), "http://127.0.0.1:1", "http://127.0.0.1:1"));
    let path = file.to_str().unwrap();
    for (config, code) in
        std::iter::once((good, 0)).chain(mistaken().map(|bad| (Case::config(&bad), 78)))
    {
        fs::write(&file, &config).unwrap();
        for arguments in [
            &["check", "--log-level", "trace", "--config", path][..],
            &["explain", "--config", path, "--listener", "statsd", "a:1|c"],
        ] {
            let output = pointsman(arguments);
            let said =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(output.status.code(), Some(code), "{said:?}");
            said.iter().for_each(|text| assert_harmless(text));
        }
    }
}

/// Whatever is to be logged of the library that speaks to it.
#[tokio::test]
async fn secret_in_log_of_no_broker() {
    for level in ["trace", "trace,hyper=info", "info,lapin=trace", "info,lapin::io_loop=trace"] {
        let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = format!(
            "[admin]\nbind = '127.0.0.1:0'\n[listeners.tasks]\nprotocol = 'pulse'\n\
             [listeners.tasks.broker]\nurl = 'amqp://{}'\nusername = 'pointsman'\n\
             password = 'S3CR3T-1'\n\
             [listeners.tasks.tasks]\nroot_url = 'http://127.0.0.1:1'\nclient_id = 'c'\n\
             access_token = 'S3CR3T-2'\n",
            broker.local_addr().unwrap()
        );
        let mut gateway = Gateway::start_with(&config, &["--log-level", level]).await;
        let mut stream = broker.accept().await.unwrap().0;
        let sent = amqp::ask_who(&mut stream).await;
        assert!(sent.contains("\0pointsman\0S3CR3T-1"), "{sent:?}");
        drop(stream);
        eventually("the broker is missed", async || {
            gateway.ledger().await["listeners"]["tasks"]["noticed"]["broker_away"].is_number()
        })
        .await;
        let ended = gateway.terminate().await;
        assert_harmless(&ended.log);
        let bytes = format!("{:?}", b"S3CR3T-");
        let bytes = bytes.trim_matches(['[', ']']);
        assert!(!ended.log.contains(bytes), "{level}: a secret is shown in numbers");
    }
}

/// Backends that hold secrets and cannot be reached with them.
fn with_secrets(directory: &Path, refusing: &str, picky: &str) -> String {
    let password = directory.join("password");
    format!(
        r#"
[backends.v1]
kind = "influxdb"
url = "http://127.0.0.1:1"
database = "d"
username = "pointsman"
password = "S3CR3T-2"
create_database = true
flush = "1s"

[backends.v1_file]
kind = "influxdb"
url = "http://127.0.0.1:1"
database = "d"
username = "pointsman"
password_file = "{}"
flush = "1s"

[backends.v2]
kind = "influxdb"
url = "http://127.0.0.1:1"
api = "v2"
org = "o"
bucket = "b"
token = "S3CR3T-3"
flush = "1s"

[backends.v3]
kind = "influxdb"
url = "{refusing}"
api = "v3"
database = "d"
token = "S3CR3T-4"
flush = "1s"

[backends.pool]
kind = "influxdb"
url = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
database = "d"
username = "pointsman"
password = "S3CR3T-2"
flush = "1s"

[backends.picky]
kind = "influxdb"
url = "{picky}"
api = "v2"
org = "o"
bucket = "b"
token = "S3CR3T-6"
flush = "1s"

[backends.local]
kind = "store"
flush = "1s"

[[routes]]
to = ["v1", "v1_file", "v2", "v3", "pool", "picky", "local"]
"#,
        password.display()
    )
}

/// Sections whose mistakes sit on the secrets themselves.
fn mistaken() -> impl Iterator<Item = String> {
    let influx = |keys: &str| {
        format!(
            "[backends.i]\nkind = \"influxdb\"\ndatabase = \"d\"\n{keys}\n[[routes]]\nto = [\"i\"]\n"
        )
    };
    [
        r#"url = "http://user:S3CR3T-1@127.0.0.1:1""#,
        r#"url = "http://127.0.0.1:1/write?u=a&p=S3CR3T-3""#,
        "url = \"http://127.0.0.1:1\"\npassword = [\"S3CR3T-2\"]",
        "url = \"http://127.0.0.1:1\"\npassword = \"S3CR3T-2\"\npassword_file = \"/S3CR3T\"",
        "url = \"http://127.0.0.1:1\"\ntokn = \"S3CR3T-2\"",
        "url = \"http://127.0.0.1:1\"\ntoken = \"S3CR3T-2",
    ]
    .map(influx)
    .into_iter()
}

/// Sends wrong keys in every place that a client may think of, with points that are remembered by
/// a key and in a window; returns what was answered.
async fn send_secrets(gateway: &Gateway) -> Vec<String> {
    let basic = format!("Basic {}", BASE64_STANDARD.encode("user:S3CR3T-5"));
    let mut answers = Vec::new();
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(b"g:1|g", gateway.addr("statsd", "udp")).await.unwrap();
    for (listener, path, body) in [
        ("api", "/v1/points?token=S3CR3T-5", r#"[{"name":"a","value":1}]"#),
        ("api", "/v1/points?token=S3CR3T-5", "nonsense"),
        ("api", "/v1/points?token=S3CR3T-5&ack=queued", r#"[{"name":"a","value":1}]"#),
        ("api", "/write?u=user&p=S3CR3T-5", "a value=1"),
        ("tsdb", "/api/put?token=S3CR3T-5", "nonsense"),
        ("tsdb", "/api/query?token=S3CR3T-5", ""),
    ] {
        for authorization in ["Bearer S3CR3T-5", &basic] {
            let key = format!("k{}", answers.len());
            let headers = [
                ("Authorization", authorization),
                ("X-Api-Key", "S3CR3T-5"),
                ("Idempotency-Key", &key),
            ];
            let http = gateway.http(listener);
            let answer = http.send(Method::POST, path, &headers, body.into()).await.unwrap();
            answers.push(format!("{answer:?}"));
        }
    }
    answers
}

/// No secret stands in the text, neither plain nor as a header would carry it.
fn assert_harmless(text: &str) {
    let users = [("pointsman", 1), ("pointsman", 2), ("user", 5)];
    let coded = users.map(|(user, nth)| BASE64_STANDARD.encode(format!("{user}:S3CR3T-{nth}")));
    for secret in coded.iter().map(String::as_str).chain(["S3CR3T-"]) {
        if let Some(line) = text.lines().find(|line| line.contains(secret)) {
            panic!("a secret is shown: {line}");
        }
    }
}

fn files_below(directory: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        texts.push(path.display().to_string());
        if path.is_dir() {
            texts.extend(files_below(&path));
        } else {
            texts.push(String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned());
        }
    }
    texts
}

#[tokio::test]
async fn gzip_bomb_is_refused_after_the_limit_and_costs_little_memory() {
    let case = Case::start(concat!(
        "[listeners.tsdb.limits]\nbody = \"1MiB\"\n",
        "[listeners.api.limits]\nbody = \"1MiB\"\n"
    ))
    .await;
    let point = br#"[{"metric":"ok","timestamp":1700000000,"value":1}]"#;
    // All that a usual request needs is in place before memory is measured.
    assert_eq!(post(&case, "tsdb", "gzip", gzip(point)).await, 204);
    let before = peak_memory(&case);

    let blanks = vec![b' '; 64 << 20];
    let bombs = [
        ("gzip", gzip(&blanks)),
        ("deflate", zlib(&blanks)),
        ("gzip", gzip(&blanks)),
        ("zstd", zstd_bomb()),
    ];
    drop(blanks);
    assert!(bombs.iter().all(|(_, bomb)| bomb.len() < 100_000));
    let all = ["tsdb", "api"].into_iter().flat_map(|listener| {
        bombs.iter().map(move |(coding, bomb)| (listener, *coding, bomb.clone()))
    });
    let mut requests = JoinSet::new();
    for (listener, coding, bomb) in all {
        let http = case.gateway.http(listener);
        requests.spawn(async move {
            let headers = [("Content-Encoding", coding)];
            http.send(Method::POST, "/api/put", &headers, bomb).await.unwrap().status
        });
    }
    assert_eq!(requests.join_all().await, [413; 8]);
    let grown = peak_memory(&case) - before;
    assert!(grown < 32 << 10, "{grown} KiB more than before");

    let whole = gzip(point);
    for (coding, body, status) in [
        ("gzip, gzip", gzip(gzip(point)), 415),
        ("br", point.to_vec(), 415),
        ("gzip", whole[..whole.len() / 2].to_vec(), 400),
        ("gzip", point.to_vec(), 400),
        // Labelled once and packed twice, the rest is not even text.
        ("gzip", gzip(gzip(point)), 400),
        ("gzip", whole, 204),
    ] {
        let length = body.len();
        assert_eq!(post(&case, "tsdb", coding, body).await, status, "{coding}, {length} bytes");
    }
    case.books("api", 0, json!({ "body_too_large": 4 })).await;
    let rejected = json!({
        "body_too_large": 4,
        "bad_encoding": 2,
        "invalid_utf8": 1,
        "unsupported_encoding": 2,
    });
    case.books("tsdb", 2, rejected).await;
    assert_eq!(case.raw(), ["ok sample 1"; 2]);
}

async fn post(case: &Case, listener: &str, coding: &str, body: Vec<u8>) -> u16 {
    let headers = [("Content-Encoding", coding)];
    let http = case.gateway.http(listener);
    http.send(Method::POST, "/api/put", &headers, body).await.unwrap().status
}

/// The most memory that the gateway ever held, in KiB.
fn peak_memory(case: &Case) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", case.gateway.daemon.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A frame of 512 blocks that each repeat a blank 128 Ki times: 64 MiB in 2 KiB.
fn zstd_bomb() -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    for index in 0..512_u32 {
        let block = ((128_u32 << 10) << 3 | 1 << 1 | u32::from(index == 511)).to_le_bytes();
        frame.extend(&block[..3]);
        frame.push(b' ');
    }
    frame
}

#[tokio::test]
async fn slow_loris_of_every_sort_is_sent_away() {
    let limits = "idle = \"3s\"\nheader = \"1s\"\nrequest = \"2s\"\n";
    let case = Case::start(&format!("[listeners.api.limits]\n{limits}")).await;
    let descriptors = open_files(&case);
    let began = Instant::now();
    let mut crowd = JoinSet::new();
    for _ in 0..EACH {
        let (heads, bodies) = (case.connect("api").await, case.connect("api").await);
        crowd.spawn(slowly(heads, "POST /v1/points HTTP/1.1\r\n"));
        crowd.spawn(slowly(
            bodies,
            "POST /v1/points HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n",
        ));
        let silent = case.connect("api").await;
        crowd.spawn(silently(silent));
    }
    let mut posted = 0;
    let mut ended = Vec::new();
    while ended.len() < 3 * EACH {
        let answer = case.gateway.http("api").post("/v1/points", POINT).await;
        assert_eq!(answer.status, 204);
        posted += 1;
        let until = tokio::time::sleep(Duration::from_millis(100));
        tokio::pin!(until);
        loop {
            tokio::select! {
                Some(end) = crowd.join_next() => ended.push(end.unwrap()),
                () = &mut until => break,
            }
        }
        assert!(began.elapsed() < Duration::from_secs(15), "only {} have ended", ended.len());
    }
    let answered = |status: &str| ended.iter().filter(|answer| answer.starts_with(status)).count();
    assert_eq!((answered("HTTP/1.1 408 "), answered("HTTP/1.1 204 ")), (EACH, EACH));
    let rejected = json!({ "header_timeout": EACH, "request_timeout": EACH });
    let ledger = case.books("api", (posted + EACH) as u64, rejected).await;
    let book = &ledger["listeners"]["api"];
    assert_eq!(book["noticed"], json!({ "idle_timeout": EACH }));
    eventually("every descriptor is given back", async || open_files(&case) <= descriptors).await;
}

/// Sends a beginning and then a byte now and then until the peer has had enough.
async fn slowly(mut stream: TcpStream, begin: &str) -> String {
    stream.write_all(begin.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    loop {
        tokio::select! {
            read = stream.read_buf(&mut answer) => match read {
                Ok(1..) => {}
                // Closed, or reset by a byte that came later.
                Ok(0) | Err(_) => return String::from_utf8_lossy(&answer).into_owned(),
            },
            () = tokio::time::sleep(Duration::from_millis(200)) => {
                let _ = stream.write_all(b"x").await;
            }
        }
    }
}

/// Sends a good request, reads the answer and is silent.
async fn silently(mut stream: TcpStream) -> String {
    let request = format!(
        "POST /v1/points HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{POINT}",
        POINT.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    common::read_to_end(&mut stream).await
}

fn open_files(case: &Case) -> usize {
    fs::read_dir(format!("/proc/{}/fd", case.gateway.daemon.pid())).unwrap().count()
}

const EACH: usize = 100;

const POINT: &str = r#"[{"name":"a","value":1}]"#;

/// A name, tag keys, tag values and a text that would each be more than one record somewhere.
const INJECTION: &str = r#"{"metric":"m","timestamp":1700000000,"value":1,"tags":{"h":"x|c\nadmin:1|c","g":"a\r\nput evil 1 1 a=b","z":"\u0000\u001b[2J","k\nadmin:1|c":"v","c":"a,b=c d"}}"#;

#[tokio::test]
async fn line_injection_makes_one_record_for_each_backend() {
    let (influx, statsd) = (FakeHttp::start([]).await, UdpSink::start().await);
    let dialects = ["dogstatsd", "influxdb", "graphite", "none"];
    let forward = |tags: &&str| {
        format!(
            "[backends.{tags}]\nkind = \"statsd\"\naddress = \"udp://{}\"\ntags = \"{tags}\"\nflush = \"50ms\"\n",
            statsd.address()
        )
    };
    let case = Case::start(&format!(
        "{}[backends.influx]\nkind = \"influxdb\"\nurl = \"{}\"\ndatabase = \"d\"\nflush = \"1s\"\n\
         [[routes]]\nmatch = {{ name = \"m*\" }}\nto = [\"influx\", \"dogstatsd\", \"influxdb\", \"graphite\", \"none\"]\n",
        dialects.iter().map(forward).collect::<String>(),
        influx.url()
    ))
    .await;
    let answer = case.gateway.http("api").post("/api/put", INJECTION).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    let ledger = case.books("api", 1, json!({})).await;
    for name in dialects.iter().chain(&["influx", "raw"]) {
        assert_eq!(ledger["backends"][name]["delivered"], 1, "{ledger}");
    }

    eventually("each dialect has come", async || statsd.datagrams().len() >= 4).await;
    for datagram in statsd.datagrams() {
        let text = String::from_utf8(datagram).unwrap();
        let record = text.trim_end_matches('\n');
        assert!(!record.chars().any(char::is_control), "{record:?}");
        let name_ends = record.find([':', ',', ';']).unwrap();
        assert_eq!(&record[..name_ends], "m", "{record}");
        assert_eq!(record.matches(":1|g").count(), 1, "{record}");
        assert!(!record.contains("|c"), "{record}");
    }
    let body = &influx.received()[0].body;
    assert!(body.starts_with("m,") && body.lines().count() == 1, "{body:?}");
    assert!(!body.trim_end_matches('\n').chars().any(char::is_control), "{body:?}");
    let raw = case.raw();
    assert!(raw.len() == 1 && raw[0].starts_with("m{"), "{raw:?}");
}

#[tokio::test]
async fn line_injection_does_not_reach_a_log_for_people() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("pointsman.toml");
    fs::write(&config, Case::config("")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    command.args(["run", "--log-format", "text", "--log-level", "debug", "--config"]).arg(&config);
    command.arg("--data-dir").arg(directory.path().join("data"));
    command.stdout(fs::File::create(directory.path().join("stdout")).unwrap());
    let mut gateway = Daemon::spawn("pointsman", &mut command, directory.path().join("log"));
    let statsd = gateway.address("udp").await;
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"evil\x1b[2J\r\x00\x07\xc2\x9b2J:x|c", statsd).unwrap();
    eventually("it is told", async || gateway.log().contains("refused")).await;
    let log = gateway.terminate().await.log;
    let line = log.lines().find(|line| line.contains("refused")).unwrap();
    assert!(line.contains("evil") && line.contains("u{1b}[2J"), "{line:?}");
    assert!(!log.chars().any(|c| c.is_control() && c != '\n'), "{log:?}");
}

#[tokio::test]
async fn line_injection_into_a_refusal_is_escaped_in_log_and_answer() {
    let case = Case::start("").await;
    let point =
        json!({ "metric": "m", "timestamp": 0, "value": 1, "tags": { "h": "\u{1b}[2J\r\n" } });
    let answer = case.gateway.http("api").post("/api/put?details", point.to_string()).await;
    assert_eq!(answer.status, 400);
    assert!(!answer.body.chars().any(char::is_control), "{answer:?}");
    let told: Value = answer.json();
    assert_eq!(told["failed"], 1);
    let echoed = case.exchange("tsdb", b"\x1b[2J\x07 bogus\nput m 1700000000 \x1b[2J h=x\n").await;
    let lines: Vec<_> = echoed.lines().collect();
    assert_eq!(lines.len(), 2, "{echoed:?}");
    assert!(!lines.concat().chars().any(char::is_control), "{echoed:?}");
    case.books("api", 0, json!({ "invalid_timestamp": 1 })).await;
    case.books("tsdb", 0, json!({ "unknown_command": 1, "invalid_value": 1 })).await;
    let log = case.gateway.log();
    assert!(!log.chars().any(|c| c.is_control() && c != '\n'), "{log:?}");
}
