//! The admin listener, asked as its users ask it.

use super::*;
use crate::dead_letters::Replayed;
use crate::lane::Refused;
use crate::store::{Limits, Writer};
use crate::waybill::Waybill;
use axum::body::Body;
use axum::http::{StatusCode, request};
use http_body_util::BodyExt;
use protocols::UnixNanos;
use serde_json::{Value, json};
use tower::ServiceExt;

const NOW: UnixNanos = UnixNanos::from_secs(1_700_000_000);

struct Gateway {
    state: State,
    /// Removed with the gateway.
    _data_dir: tempfile::TempDir,
}

fn gateway() -> Gateway {
    let books = Arc::new(Books::default());
    let data_dir = tempfile::tempdir().unwrap();
    let state = State {
        telemetry: Arc::new(Telemetry::new(Arc::clone(&books))),
        data_dir: data_dir.path().to_owned(),
        letters: DeadLetters::new(data_dir.path().to_owned(), Arc::clone(&books), Clock::System),
        replay: Arc::new(|_| Box::pin(async { Ok(Replayed::default()) })),
        books,
        clock: Clock::Tokio { epoch: NOW, start: tokio::time::Instant::now() },
        ready: Arc::new(|| Ok(())),
        reload: Arc::new(|| Box::pin(async { Ok("2 routes".to_owned()) })),
        listeners: Arc::new(|| {
            [("statsd".to_owned(), vec!["udp://127.0.0.1:8125".to_owned()])].into()
        }),
        routes: Arc::new(|| {
            let to = vec!["local".to_owned()];
            vec![RouteView { name: "all".into(), matching: String::new(), to, last: true }]
        }),
        explain: Arc::new(|listener, line| match listener {
            "statsd" => Ok(json!({ "line": line })),
            _ => Err(format!("there is no listener `{listener}`")),
        }),
    };
    Gateway { state, _data_dir: data_dir }
}

impl Gateway {
    fn stored(self, lines: &[&str]) -> Self {
        let limits = Limits::new(None, None);
        let mut writer = Writer::new(&self.state.data_dir, limits);
        writer.write(lines.join("\n").as_bytes(), NOW, NOW).unwrap();
        self
    }

    async fn ask(&self, request: request::Builder) -> Answered {
        self.say(request, "").await
    }

    async fn say(&self, request: request::Builder, body: &str) -> Answered {
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = router(self.state.clone()).oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answered {
            status: head.status,
            headers: head.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Answered {
        self.ask(Request::get(path)).await
    }
}

struct Answered {
    status: StatusCode,
    headers: axum::http::HeaderMap,
    body: String,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn error(&self) -> (u16, String) {
        let json = self.json();
        assert!(json["error"]["message"].is_string(), "{json}");
        (self.status.as_u16(), json["error"]["code"].as_str().unwrap().to_owned())
    }
}

#[tokio::test]
async fn metrics_are_what_a_scraper_expects() {
    let answer = gateway().get("/metrics").await;
    assert_eq!(answer.headers[header::CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
    assert!(answer.body.contains("pointsman_build_info{version="), "{}", answer.body);
}

#[tokio::test]
async fn health_and_readiness() {
    let mut gateway = gateway();
    // A dead backend is the backend's own affair.
    gateway.state.books.backend("dead").queued.add(9);
    for path in ["/-/healthy", "/-/ready"] {
        assert_eq!(gateway.get(path).await.status, StatusCode::OK, "{path}");
    }
    gateway.state.ready = Arc::new(|| Err("listener `statsd` is not bound".to_owned()));
    assert_eq!(gateway.get("/-/ready").await.error(), (503, "not_ready".to_owned()));
    assert_eq!(gateway.get("/-/healthy").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_reload_says_what_happened() {
    let mut gateway = gateway();
    let answer = gateway.ask(Request::post("/-/reload")).await;
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, json!({ "applied": "2 routes" })));
    gateway.state.reload = Arc::new(|| Box::pin(async { Err("routes[0].to: no `x`".to_owned()) }));
    let answer = gateway.ask(Request::post("/-/reload")).await;
    assert_eq!(answer.error(), (422, "invalid_configuration".to_owned()));
    assert_eq!(answer.json()["error"]["message"], "routes[0].to: no `x`");
}

#[tokio::test]
async fn no_web_page_can_reload() {
    let mut gateway = gateway();
    gateway.state.reload = Arc::new(|| panic!("a page reloaded"));
    // The last is what a page sends that has rebound its name to this address.
    for (host, origin) in [
        ("127.0.0.1:9102", "https://evil.example"),
        ("127.0.0.1:9102", "null"),
        ("evil.example:9102", "http://evil.example:9102"),
    ] {
        let request = Request::post("/-/reload").header("Host", host).header("Origin", origin);
        assert_eq!(gateway.ask(request).await.error(), (403, "forbidden".to_owned()), "{origin}");
    }
    assert_eq!(gateway.get("/-/reload").await.error().0, 405);
}

#[tokio::test]
async fn what_is_not_there_is_said_in_json() {
    let gateway = gateway();
    assert_eq!(gateway.get("/nothing").await.error(), (404, "not_found".to_owned()));
    let answer = gateway.ask(Request::delete("/v1/ledger")).await;
    assert_eq!(answer.error(), (405, "method_not_allowed".to_owned()));
    assert_eq!(answer.headers[header::ALLOW], "GET,HEAD");
}

#[tokio::test]
async fn the_ledger_shows_every_book() {
    let gateway = gateway();
    let books = &gateway.state.books;
    books.listener("statsd").received.add(2);
    books.listener("statsd").routed.add(2);
    books.listener("statsd").rejected.add("unknown_kind", 1);
    books.backend("local").handed.add(2);
    books.route("all").add(2);
    let ledger = gateway.get("/v1/ledger").await.json();
    assert_eq!(ledger["listeners"]["statsd"]["rejected"], json!({ "unknown_kind": 1 }));
    assert_eq!(ledger["listeners"]["statsd"]["balanced"], true);
    assert_eq!(ledger["backends"]["local"]["balanced"], false);
    assert_eq!(ledger["routes"], json!({ "all": 2 }));
}

#[tokio::test]
async fn the_store_answers_questions() {
    let gateway = gateway().stored(&[
        r#"{"name":"a b/é","time":1699999990000000000,"kind":"sample","value":18446744073709551615}"#,
        r#"{"name":"other","time":5,"kind":"gauge","value":1.0}"#,
    ]);
    let answer = gateway.get("/v1/query?name=a%20b/%C3%A9&since=1m&until=now&limit=5").await;
    let expected = r#"{"series":[{"name":"a b/é","tags":{},"rows":[{"time":"2023-11-14T22:13:10Z","fields":{"value":18446744073709551615}}]}],"truncated":false}"#;
    assert_eq!((answer.status, answer.body.trim_end()), (StatusCode::OK, expected));
    let none = gateway.get("/v1/query?name=nothing").await;
    assert_eq!(none.json(), json!({ "series": [], "truncated": false }));
    let latest = gateway.get("/v1/latest?series=1").await.json();
    assert_eq!(latest["series"][0]["name"], "other");
}

#[tokio::test]
async fn bad_questions_are_refused() {
    let gateway = gateway().stored(&[r#"{"name":"a","kind":"gauge","value":1.0}"#]);
    for query in [
        "",
        "name=a&since=yesterday",
        "name=a&until=",
        "name=a&limit=-1",
        "name=a&from=1m",
        "name={a",
        "name=%2F(%2F",
    ] {
        let answer = gateway.get(&format!("/v1/query?{query}")).await;
        assert_eq!(answer.error(), (400, "bad_request".to_owned()), "{query}");
    }
    let nameless = gateway.get("/v1/query").await.json();
    assert!(
        nameless["error"]["message"].as_str().unwrap().contains("?name=demo.load"),
        "{nameless}"
    );
    let empty = self::gateway().get("/v1/query?name=a").await;
    assert_eq!(empty.error(), (404, "no_store".to_owned()));
}

#[tokio::test]
async fn listeners_routes_and_explanations_come_from_the_gateway() {
    let gateway = gateway();
    let listeners = gateway.get("/v1/listeners").await.json();
    assert_eq!(listeners, json!({ "statsd": ["udp://127.0.0.1:8125"] }));
    let routes = gateway.get("/v1/routes").await.json();
    assert_eq!(routes, json!([{ "name": "all", "match": "", "to": ["local"], "final": true }]));
    let explained = gateway.get("/v1/explain?listener=statsd&line=a:1%7Cc").await.json();
    assert_eq!(explained, json!({ "line": "a:1|c" }));
    for query in ["listener=x&line=a", "listener=statsd"] {
        let answer = gateway.get(&format!("/v1/explain?{query}")).await;
        assert_eq!(answer.error(), (400, "bad_request".to_owned()), "{query}");
    }
}

#[tokio::test]
async fn the_page_is_html_that_no_other_page_may_frame() {
    let answer = gateway().get("/").await;
    assert_eq!(answer.headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
    assert_eq!(answer.headers[header::X_FRAME_OPTIONS], "DENY");
    let policy = answer.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    let nonce = policy.split('\'').find_map(|word| word.strip_prefix("nonce-")).unwrap();
    assert!(answer.body.contains(&format!("<script nonce=\"{nonce}\">")));
    assert!(!policy.contains("unsafe"));
}

#[tokio::test]
async fn it_works_over_a_real_socket() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let gateway = gateway();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(axum::serve(listener, router(gateway.state.clone())).into_future());
    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    client
        .write_all(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    serving.abort();
}

/// A gateway with a letter each of these backends and reasons.
fn with_letters(letters: &[(&str, &'static str)]) -> Gateway {
    let gateway = gateway();
    for (backend, reason) in letters {
        let of = gateway.state.letters.of(backend);
        of.keep_at_most(Some(1 << 20));
        let body = "m value=1 7\nm value=\"\u{1b}[2J\" 8\n".into();
        let (words, waybill, born) = ("400 no".to_owned(), Waybill::default(), NOW);
        of.put("influxdb", Refused { body, points: 2, among: 2, reason, words, waybill, born });
    }
    gateway
}

#[tokio::test]
async fn dead_letters_are_listed_page_by_page() {
    let gateway = with_letters(&[("a", "rejected"), ("b", "rejected"), ("a", "too_large")]);
    let ids = |list: &Value| -> Vec<(String, i64)> {
        let letters = list["letters"].as_array().unwrap().iter();
        let id = |letter: &Value| letter["id"].as_i64().unwrap();
        letters.map(|letter| (letter["backend"].as_str().unwrap().to_owned(), id(letter))).collect()
    };
    let all = gateway.get("/v1/dead-letters").await.json();
    assert_eq!(all["sum"], json!({ "letters": 3, "points": 6 }));
    assert_eq!(
        ids(&all).iter().map(|(backend, _)| backend.as_str()).collect::<Vec<_>>(),
        ["a", "b", "a"]
    );
    assert_eq!(all["next"], Value::Null);
    let first = gateway.get("/v1/dead-letters?limit=2").await.json();
    let second =
        gateway.get(&format!("/v1/dead-letters?limit=2&after={}", first["next"])).await.json();
    assert_eq!([ids(&first), ids(&second)].concat(), ids(&all));
    let few = gateway.get("/v1/dead-letters?backend=a&reason=rejected").await.json();
    assert_eq!(few["letters"].as_array().unwrap().len(), 1);
    let mut letter = few["letters"][0].clone();
    letter["id"].take();
    letter["refused"].take();
    let expected = json!({
        "id": null, "backend": "a", "kind": "influxdb", "reason": "rejected", "words": "400 no",
        "refused": null, "born": "2023-11-14T22:13:20Z", "points": 2, "among": 2, "bytes": 29,
        "routes": [],
    });
    assert_eq!(letter, expected);
}

#[tokio::test]
async fn a_dead_letter_shows_its_records_and_points() {
    let gateway = with_letters(&[("a", "rejected")]);
    let list = gateway.get("/v1/dead-letters").await.json();
    let id = &list["letters"][0]["id"];
    let letter = gateway.get(&format!("/v1/dead-letters/{id}")).await.json();
    assert_eq!(letter["records"], "m value=1 7\nm value=\"\u{1b}[2J\" 8\n");
    assert_eq!(
        letter["decoded"][0],
        json!({ "name": "m", "time": 7, "kind": "sample", "value": 1.0 })
    );
    assert_eq!(letter["decoded"][1]["fields"], json!({ "value": "\u{1b}[2J" }));
    assert_eq!(gateway.get(&format!("/v1/dead-letters/a/{id}")).await.json(), letter);
    for path in [format!("/v1/dead-letters/b/{id}"), "/v1/dead-letters/1".to_owned()] {
        assert_eq!(gateway.get(&path).await.error(), (404, "no_letter".to_owned()), "{path}");
    }
    assert_eq!(gateway.get("/v1/dead-letters/x").await.error().0, 400);
    assert_eq!(gateway.get("/v1/dead-letters?limt=1").await.error().0, 400);
}

#[tokio::test]
async fn dead_letters_are_purged_deliberately() {
    let gateway = with_letters(&[("a", "rejected"), ("b", "rejected")]);
    let purge = async |body: &str| gateway.say(Request::post("/v1/dead-letters/purge"), body).await;
    for body in ["", "{}", "[", r#"{"reson":"x"}"#, r#"{"before":"soon"}"#] {
        assert_eq!(purge(body).await.error(), (400, "bad_request".to_owned()), "{body}");
    }
    assert_eq!(purge(r#"{"backend":"a"}"#).await.json(), json!({ "letters": 1, "points": 2 }));
    assert_eq!(purge(r#"{"all":true}"#).await.json(), json!({ "letters": 1, "points": 2 }));
    for path in ["purge", "replay"] {
        let foreign = Request::post(format!("/v1/dead-letters/{path}"))
            .header(header::ORIGIN, "http://elsewhere");
        assert_eq!(gateway.say(foreign, r#"{"all":true}"#).await.error().0, 403);
    }
    let replay = gateway.say(Request::post("/v1/dead-letters/replay"), "").await.json();
    assert_eq!(replay, json!({ "replayed": 0, "unmatched": 0, "kept": 0, "problems": [] }));
}
