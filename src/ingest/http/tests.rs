//! Every status, over real TCP.

use crate::gzip::packed as gzip;
use crate::ingest::busy::Busy;
use crate::ingest::keys::{Fingerprint, Patience};
use crate::ingest::tests::rig::Rig;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

mod influxdb;

fn start(more: Value) -> Rig {
    Rig::start("http", "tcp://127.0.0.1:0", more)
}

/// An answer taken apart.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// One request on a connection of its own; `start` is `METHOD /path`, headers end with CRLF.
async fn ask(rig: &Rig, start: &str, headers: &str, body: &[u8]) -> Answer {
    let mut request = format!(
        "{start} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    Answer::of(&rig.exchange(&request).await)
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// A frame of one raw block, as RFC 8878 writes it.
fn zstd(text: &[u8]) -> Vec<u8> {
    let len = u8::try_from(text.len()).expect("a short text");
    let block = (u32::from(len) << 3 | 1).to_le_bytes();
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, len];
    frame.extend(&block[..3]);
    frame.extend(text);
    frame
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

const GZIP: &str = "Content-Encoding: gzip\r\n";
const ONE: &[u8] = br#"[{"name":"a","value":1}]"#;

#[tokio::test]
async fn points_are_taken_in_every_form() {
    let rig = start(json!({}));
    let two = br#"[{"name":"a","tags":{"h":"x"},"time":1700000000,"value":1},{"name":"b","x":1,"ok":true}]"#;
    for (request, headers, body) in [
        ("POST /v1/points", "Content-Type: application/json\r\n", &two[..]),
        ("PUT /v1/points", "", &two[..]),
        ("POST /v1/points", "Content-Type: application/x-www-form-urlencoded\r\n", &two[..]),
        ("POST /v1/points", "Content-Type: text/plain; charset=utf-8\r\n", &two[..]),
        (
            "POST /v1/points",
            "Content-Type: application/x-ndjson\r\n",
            b"{\"name\":\"a\",\"value\":1}\n\n{\"name\":\"b\",\"value\":2}",
        ),
        ("POST /v1/points", GZIP, &gzip(two)),
        ("POST /v1/points", "Content-Encoding: GZip\r\n", &gzip(two)),
        ("POST /v1/points", "Content-Encoding: deflate\r\n", &zlib(two)),
        ("POST /v1/points", "Content-Encoding: zstd\r\n", &zstd(two)),
    ] {
        let before = rig.book.received.get();
        let answer = ask(&rig, request, headers, body).await;
        assert_eq!((answer.status, &*answer.body), (204, ""), "{headers}");
        assert_eq!(rig.book.received.get(), before + 2, "{headers}");
    }
    assert_eq!(rig.rejected(), []);
    assert_eq!(rig.finish().await[0], "a{h=x}=1@1700000000");
}

#[tokio::test]
async fn details_and_refused_points() {
    let rig = start(json!({}));
    let some = br#"[{"name":"a","value":1},{"name":"","value":2},{"name":"c","value":3}]"#;
    let answer = ask(&rig, "POST /v1/points?details", "", ONE).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"accepted": 1, "rejected": []})));
    for flag in ["", "?details"] {
        let answer = ask(&rig, &format!("POST /v1/points{flag}"), "", some).await;
        assert_eq!(answer.status, 400);
        assert!(answer.head.contains("content-type: application/json"));
        let body = answer.json();
        assert_eq!((&body["accepted"], &body["rejected"][0]["index"]), (&json!(2), &json!(1)));
    }
    assert_eq!(rig.rejected(), [("empty_name", 2)]);
    assert_eq!(rig.finish().await.len(), 5);
}

#[tokio::test]
async fn one_point_in_a_path() {
    let rig = start(json!({}));
    for (path, expected) in [
        ("build/times?value=1.5&tag.os=linux", 204),
        ("a%2Fb%20c%3F?value=1&time=1700000000", 204),
        ("a%0A?value=1", 400),
        ("x?details&value=2", 200),
        ("x", 400),
        ("x?value=1&name=y", 400),
        ("%ff?value=1", 400),
        ("x?value=NaN", 400),
    ] {
        let answer = ask(&rig, &format!("PUT /v1/point/{path}"), "", b"").await;
        assert_eq!(answer.status, expected, "{path}: {answer:?}");
        if expected == 200 {
            assert_eq!(answer.json(), json!({"accepted": 1, "rejected": []}));
        }
    }
    let refused = ask(&rig, "POST /v1/point/x", "", b"").await.json();
    assert_eq!((&refused["accepted"], &refused["rejected"][0]["index"]), (&json!(0), &json!(0)));
    assert_eq!(rig.finish().await, ["build/times{os=linux}=1.5", "a/b c?=1@1700000000", "x=2"]);
}

#[tokio::test]
async fn a_wrong_path_is_told_the_right_ones() {
    let rig = start(json!({}));
    for (path, is_for_influxdb) in [("/v1/point", false), ("/write", true), ("/api/v2/write", true)]
    {
        let answer = ask(&rig, &format!("POST {path}"), "", b"m v=1").await;
        let text = answer.json()["error"]["message"].to_string();
        assert_eq!(answer.status, 404);
        assert!(text.contains(&format!("nothing at {path}; points come to /v1/points")), "{text}");
        assert_eq!(text.contains("influxdb"), is_for_influxdb, "{text}");
    }
    assert_eq!(rig.rejected(), [("not_found", 3)]);
}

#[tokio::test]
async fn requests_that_are_refused_as_a_whole() {
    let rig = start(json!({ "limits": { "body": "1KiB" } }));
    let large = vec![b' '; 1025];
    let broken = &gzip(ONE)[..20];
    let twice = gzip(&gzip(ONE));
    for (status, reason, request, headers, body) in [
        (404, "not_found", "POST /v1/nothing", "", &b"{}"[..]),
        (404, "not_found", "GET /", "", b""),
        (405, "wrong_method", "GET /v1/points", "", b""),
        (405, "wrong_method", "DELETE /v1/point/x", "", b""),
        (405, "wrong_method", "GET /api/put", "", b""),
        (415, "unsupported_type", "POST /v1/points", "Content-Type: application/xml\r\n", ONE),
        (415, "unsupported_encoding", "POST /v1/points", "Content-Encoding: br\r\n", ONE),
        (415, "unsupported_encoding", "POST /api/put", "Content-Encoding: gzip, gzip\r\n", ONE),
        (413, "body_too_large", "POST /v1/points", "", &large),
        (413, "body_too_large", "POST /v1/points", GZIP, &gzip(&large)),
        (413, "body_too_large", "POST /api/put", GZIP, &gzip(&large)),
        (400, "bad_encoding", "POST /v1/points", GZIP, broken),
        (400, "bad_encoding", "POST /v1/points", GZIP, ONE),
        (400, "invalid_utf8", "POST /v1/points", GZIP, &twice),
        (400, "invalid_json", "POST /v1/points", "", b"[{]"),
        (400, "not_a_point", "POST /v1/points", "", b"7"),
    ] {
        let before = rig.book.rejected.counts();
        let count = |counts: &[(&str, u64)]| {
            counts.iter().find(|(other, _)| *other == reason).map_or(0, |(_, count)| *count)
        };
        let answer = ask(&rig, request, headers, body).await;
        assert_eq!(answer.status, status, "{request} {headers}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], json!(status), "{request} {headers}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()));
        let after = rig.book.rejected.counts();
        assert_eq!(count(&after), count(&before) + 1, "{request} {headers}: {after:?}");
        if status == 405 {
            assert!(answer.head.contains("\r\nallow: "), "{}", answer.head);
            let (text, path) = (error["message"].to_string(), request.split(' ').nth(1).unwrap());
            assert!(text.contains("POST, for example: curl "), "{text}");
            let stem = path.trim_end_matches("/x");
            assert!(text.rsplit_once(' ').unwrap().1.contains(stem), "{text}");
        }
        if reason == "unsupported_encoding" {
            assert!(answer.head.contains("accept-encoding: gzip, deflate, zstd"));
        }
    }
    assert_eq!(rig.finish().await, Vec::<String>::new());
}

/// One that came before is answered while nothing new is taken, and one that was not taken then
/// is taken later.
#[tokio::test]
async fn keys_hold_also_while_a_queue_is_full() {
    let rig = start(json!({}));
    let [old, new] = ["old", "new"].map(|key| format!("Idempotency-Key: {key}\r\n"));
    assert_eq!(ask(&rig, "POST /v1/points", &old, ONE).await.status, 204);
    rig.set_refusing(true);
    let again = ask(&rig, "POST /v1/points", &old, ONE).await;
    assert_eq!(again.status, 204);
    assert!(again.head.contains("idempotency-replayed: true"), "{}", again.head);
    assert_eq!(ask(&rig, "POST /v1/points", &new, ONE).await.status, 503);
    rig.set_refusing(false);
    assert_eq!(ask(&rig, "POST /v1/points", &new, &gzip(ONE)).await.status, 400);
    let new_in_gzip = format!("{GZIP}{new}");
    assert_eq!(ask(&rig, "POST /v1/points", &new_in_gzip, &gzip(ONE)).await.status, 204);
    assert_eq!(ask(&rig, "POST /v1/points", &new, ONE).await.status, 204, "the same, decompressed");
    assert_eq!(rig.book.noticed.counts(), [("repeated_request", 2)]);
    assert_eq!(rig.finish().await.len(), 2);
}

/// The connection breaks while the answer is on its way to the disk: the points are counted, so
/// the request is known.
#[tokio::test]
async fn who_goes_away_and_asks_again_is_known() {
    let rig = start(json!({}));
    let key = "Idempotency-Key: k\r\n";
    let body = String::from_utf8(ONE.to_vec()).unwrap();
    let request =
        format!("POST /v1/points HTTP/1.1\r\nContent-Length: {}\r\n{key}\r\n{body}", body.len());
    let mut stream = rig.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    rig.until(|book| book.received.get() == 1).await;
    drop(stream);
    let again = ask(&rig, "POST /v1/points", key, ONE).await;
    assert!(again.head.contains("idempotency-replayed: true"), "{}", again.head);
    assert_eq!(rig.finish().await.len(), 1);
}

#[tokio::test]
async fn a_twin_that_takes_too_long_is_409() {
    let rig = start(json!({ "limits": { "request": "50ms" } }));
    let ring = rig.ring();
    let (deadline, busy, stop) = (Instant::now(), Busy::default(), CancellationToken::new());
    let patience = Patience { deadline, busy: &busy, stop: &stop };
    let first = ring.claim("k", Fingerprint([0; 32]), patience).await;
    let busy = ask(&rig, "POST /v1/points", "Idempotency-Key: k\r\n", ONE).await;
    assert_eq!(busy.status, 409);
    assert!(busy.head.contains("retry-after: 1"), "{}", busy.head);
    assert_eq!(rig.rejected(), [("key_in_use", 1)]);
    drop(first);
    assert_eq!(ask(&rig, "POST /v1/points", "Idempotency-Key: k\r\n", ONE).await.status, 204);
}

#[tokio::test]
async fn a_full_queue_answers_503_before_anything_is_kept() {
    let rig = start(json!({}));
    rig.set_refusing(true);
    for request in ["POST /v1/points", "PUT /v1/point/x?value=1", "POST /api/put"] {
        let answer = ask(&rig, request, "", ONE).await;
        assert_eq!(answer.status, 503, "{request}");
        assert!(answer.head.contains("\r\nretry-after: 1"));
        assert_eq!(answer.json()["error"]["code"], json!(503));
    }
    assert_eq!(rig.rejected(), [("overloaded", 3)]);
    assert_eq!(rig.finish().await, Vec::<String>::new());
}

#[tokio::test]
async fn opentsdb_put_answers_as_opentsdb() {
    let rig = start(json!({}));
    let good = br#"[{"metric":"a","timestamp":1700000000,"value":1,"tags":{"h":"x"}},
                    {"metric":"c","timestamp":1700000000,"value":"3.5","tags":{"h":"x"}}]"#;
    let some = br#"[{"metric":"a","timestamp":1700000000,"value":1,"tags":{"h":"x"}},
                    {"metric":"b","timestamp":1700000000,"value":"zz","tags":{"h":"x"}},
                    {"metric":"c","timestamp":1700000000,"value":3,"tags":{"h":"x"}}]"#;
    let quiet = ask(&rig, "POST /api/put", "", good).await;
    assert_eq!((quiet.status, &*quiet.body), (204, ""));
    assert_eq!(ask(&rig, "POST /api/v1/put", "", good).await.status, 204);
    let summary = ask(&rig, "POST /api/put?summary", "", good).await;
    assert_eq!((summary.status, summary.json()), (200, json!({"success": 2, "failed": 0})));
    let sync = ask(&rig, "POST /api/put?summary&sync&sync_timeout=500", "", good).await;
    assert_eq!(sync.json(), json!({"success": 2, "failed": 0, "timeouts": 0}));
    let details = ask(&rig, "POST /api/put?details", "", some).await;
    assert_eq!(details.status, 400);
    let body = details.json();
    assert_eq!((&body["success"], &body["failed"]), (&json!(2), &json!(1)));
    assert_eq!(body["errors"][0]["datapoint"]["metric"], json!("b"));
    let summary = ask(&rig, "POST /api/put?summary", "", some).await;
    assert_eq!((summary.status, summary.json()), (400, json!({"success": 2, "failed": 1})));
    let quiet = ask(&rig, "POST /api/put", "", some).await;
    assert_eq!((quiet.status, &quiet.json()["error"]["code"]), (400, &json!(400)));
    let empty = ask(&rig, "POST /api/put?details", "", b"[]").await;
    assert_eq!(empty.json()["error"]["message"], json!("No datapoints found in content"));
    assert_eq!(ask(&rig, "POST /api/put", "", b"nonsense").await.status, 400);
    assert_eq!(rig.finish().await.len(), 2 * 4 + 2 * 3);
}

#[tokio::test]
async fn what_opentsdb_senders_ask_before() {
    let rig = Rig::start("opentsdb", "tcp://127.0.0.1:0", json!({}));
    for (status, request) in [
        (204, "POST /api/metadata/put"),
        (200, "GET /api/version"),
        (200, "GET /api/v1/version"),
        (200, "GET /api/suggest?type=metrics&q=a"),
        (400, "GET /api/suggest"),
        (200, "GET /api/aggregators"),
        (200, "GET /api/stats"),
        (200, "GET /api/dropcaches"),
        (404, "GET /api/query"),
        (404, "POST /v1/points"),
    ] {
        let answer = ask(&rig, request, "", b"").await;
        assert_eq!(answer.status, status, "{request}");
        match request {
            "GET /api/version" => assert!(answer.json()["version"].as_str().unwrap() > "2."),
            "GET /api/suggest?type=metrics&q=a" => assert_eq!(answer.json(), json!([])),
            "GET /api/query" => assert_eq!(
                answer.json(),
                json!({"error": {"code": 404, "message": "Endpoint not found"}})
            ),
            _ => {}
        }
    }
}

/// 160 points with a length in small segments, in chunks, after `100 Continue`, and in gzip.
#[tokio::test]
async fn bodies_of_any_framing() {
    let rig = start(json!({}));
    let mut body = String::from("[");
    for index in 0..160 {
        let comma = if index == 0 { "" } else { "," };
        write!(
            body,
            r#"{comma}{{"metric":"sys.load.average.per.host","timestamp":{},"value":{index},"tags":{{"host":"web{index}","dc":"lga"}}}}"#,
            1_700_000_000 + index
        )
        .unwrap();
    }
    body.push(']');
    let head = "POST /api/put HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";

    let mut stream = rig.connect().await;
    stream.set_nodelay(true).unwrap();
    let sized = format!("{head}Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(sized.as_bytes()).await.unwrap();
    for segment in body.as_bytes().chunks(1000) {
        stream.write_all(segment).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(rest(&mut stream).await.status, 204);

    let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
    for chunk in body.as_bytes().chunks(1000) {
        write!(chunked, "{:x}\r\n{}\r\n", chunk.len(), str::from_utf8(chunk).unwrap()).unwrap();
    }
    chunked.push_str("0\r\n\r\n");
    assert!(rig.exchange(chunked.as_bytes()).await.starts_with("HTTP/1.1 204"));

    let mut stream = rig.connect().await;
    let expecting = format!("{head}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(expecting.as_bytes()).await.unwrap();
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).await.unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100 Continue"));
    stream.write_all(body.as_bytes()).await.unwrap();
    assert_eq!(rest(&mut stream).await.status, 204);

    assert_eq!(ask(&rig, "POST /api/put", GZIP, &gzip(body.as_bytes())).await.status, 204);
    assert_eq!(rig.rejected(), []);
    assert_eq!(rig.finish().await.len(), 4 * 160);
}

async fn rest(stream: &mut tokio::net::TcpStream) -> Answer {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    Answer::of(&text)
}

/// A refusal reaches a sender that has announced far more than it may send.
#[tokio::test]
async fn a_sender_in_full_flow_reads_its_413() {
    let rig = start(json!({ "limits": { "body": "1KiB" } }));
    let body = vec![b' '; 3 << 20];
    let answer = ask(&rig, "POST /v1/points", "", &body).await;
    assert_eq!(answer.status, 413);
    let mut chunked =
        b"POST /v1/points HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n300000\r\n".to_vec();
    chunked.extend(&body);
    chunked.extend(b"\r\n0\r\n\r\n");
    assert!(rig.exchange(&chunked).await.starts_with("HTTP/1.1 413"));
}

/// Bombs cost no more than the limit, and the listener goes on.
#[tokio::test]
async fn small_bodies_that_unfold_are_refused() {
    let rig = start(json!({ "limits": { "body": "1MiB" } }));
    let blanks = vec![b' '; 64 << 20];
    let (gzip, zlib) = (gzip(&blanks), zlib(&blanks));
    drop(blanks);
    for (coding, bomb) in [("gzip", gzip), ("deflate", zlib), ("zstd", zstd_bomb())] {
        assert!(bomb.len() < 1 << 20, "small enough to be let in");
        let coding = format!("Content-Encoding: {coding}\r\n");
        for path in ["POST /api/put", "POST /v1/points"] {
            assert_eq!(ask(&rig, path, &coding, &bomb).await.status, 413, "{coding}");
        }
    }
    assert_eq!(rig.rejected(), [("body_too_large", 6)]);
    assert_eq!(rig.book.received_bytes.get(), 0);
    assert_eq!(ask(&rig, "POST /v1/points", "", ONE).await.status, 204);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_408() {
    let rig = start(json!({ "limits": { "request": "50ms" } }));
    let mut stream = rig.connect().await;
    stream.write_all(b"POST /v1/points HTTP/1.1\r\nContent-Length: 100\r\n\r\n[").await.unwrap();
    let answer = rest(&mut stream).await;
    assert_eq!(answer.status, 408);
    assert!(answer.head.contains("connection: close"));
    assert_eq!(rig.rejected(), [("request_timeout", 1)]);
}

#[tokio::test]
async fn slow_heads_and_idle_connections_end() {
    let rig = start(json!({ "limits": { "header": "50ms", "idle": "100ms" } }));
    let mut slow = rig.connect().await;
    slow.write_all(b"POST /v1").await.unwrap();
    let mut idle = rig.connect().await;
    idle.write_all(b"PUT /v1/point/x?value=1 HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(matches!(slow.read(&mut [0; 9]).await, Ok(0) | Err(_)));
    assert_eq!(rest(&mut idle).await.status, 204);
    rig.until(|book| book.connections.get() == 0).await;
    assert_eq!(rig.rejected(), [("header_timeout", 1)]);
    assert_eq!(rig.book.noticed.counts(), [("idle_timeout", 1)]);
}

#[tokio::test]
async fn a_time_outside_the_window_refuses_its_item() {
    let rig = start(json!({ "time_window": { "past": "1h", "future": "1h" } }));
    let body = br#"[{"name":"a","value":1,"time":1700000000},{"name":"b","value":1,"time":1600000000},{"name":"c","value":1}]"#;
    let answer = ask(&rig, "POST /v1/points", "", body).await;
    assert_eq!(answer.json()["rejected"][0]["index"], json!(1));
    let body = br#"{"metric":"d","timestamp":1600000000,"value":1}"#;
    assert_eq!(ask(&rig, "POST /api/put", "", body).await.status, 400);
    assert_eq!(rig.rejected(), [("ts_out_of_range", 2)]);
    assert_eq!(rig.finish().await, ["a=1@1700000000", "c=1"]);
}

/// Whoever was told 2xx is in the router, and after the stop nobody is told so.
#[tokio::test]
async fn a_stop_under_load_breaks_no_promise() {
    let mut rig = start(json!({}));
    let address = rig.address().to_owned();
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let address = address.clone();
            tokio::spawn(async move {
                let mut promised = 0;
                let Ok(mut stream) = tokio::net::TcpStream::connect(&address).await else {
                    return promised;
                };
                let request = "PUT /v1/point/x?value=1 HTTP/1.1\r\nHost: x\r\n\r\n";
                let mut answer = vec![0; 1024];
                while stream.write_all(request.as_bytes()).await.is_ok() {
                    match stream.read(&mut answer).await {
                        Ok(len) if answer[..len].starts_with(b"HTTP/1.1 204") => promised += 1,
                        _ => break,
                    }
                }
                promised
            })
        })
        .collect();
    rig.until(|book| book.received.get() > 200).await;
    rig.stop().await;
    let mut promised = 0;
    for client in clients {
        promised += client.await.unwrap();
    }
    assert_eq!(rig.finish().await.len(), promised);
}

#[tokio::test]
async fn dropping_a_listener_ends_everything_at_once() {
    let mut rig = start(json!({}));
    let mut stream = rig.connect().await;
    rig.until(|book| book.connections.get() == 1).await;
    drop(rig.listener.take());
    let end = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut [0; 9])).await;
    assert!(matches!(end, Ok(Ok(0) | Err(_))));
    assert_eq!(rig.book.connections.get(), 0);
}
