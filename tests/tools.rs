//! Proof that the tools of the end-to-end tests work: each real server is started, spoken to and
//! ended, each real client heard, and each fake shown to misbehave as it is told.

// Helpers beside the tests fail as the tests do.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{
    Answer, FakeHttp, Fault, Http, Influxd, Proxy, Reply, StatsdJs, StatsdOptions, TcpSink,
    UdpSink, VictoriaMetrics, eventually, run_client,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};

#[tokio::test]
async fn influxd_returns_what_was_written() {
    let influxd = Influxd::start().await;
    influxd.create_database("tasks").await;
    influxd.write("tasks", "build,os=linux seconds=1.5,ok=true 1000").await.expect_success();

    let rows = influxd.rows("tasks", "SELECT * FROM build").await;
    let expected = json!({ "time": 1000, "os": "linux", "seconds": 1.5, "ok": true });
    assert_eq!(Value::from(rows), json!([expected]));
}

#[tokio::test]
async fn influxd_shows_the_tags_of_grouped_series() {
    let influxd = Influxd::start().await;
    influxd.create_database("tasks").await;
    influxd.write("tasks", "build,os=linux n=1 1\nbuild,os=mac n=2 1").await.expect_success();

    let rows = influxd.rows("tasks", "SELECT n FROM build GROUP BY *").await;
    let expected =
        json!([{ "os": "linux", "time": 1, "n": 1 }, { "os": "mac", "time": 1, "n": 2 }]);
    assert_eq!(Value::from(rows), expected);
}

#[tokio::test]
async fn influxd_keeps_its_port_and_data_over_an_outage() {
    let mut influxd = Influxd::start().await;
    influxd.create_database("tasks").await;
    influxd.write("tasks", "build n=1 1").await.expect_success();
    let url = influxd.url();

    influxd.kill9();
    let refused = influxd.http.send(reqwest::Method::GET, "/ping", &[], Vec::new()).await;
    assert!(refused.unwrap_err().is_connect());

    influxd.restart().await;
    assert_eq!(influxd.url(), url);
    assert_eq!(influxd.rows("tasks", "SELECT n FROM build").await.len(), 1);
}

#[tokio::test]
async fn influxd_refuses_a_field_of_another_type() {
    let influxd = Influxd::start().await;
    influxd.create_database("tasks").await;
    influxd.write("tasks", "build n=1 1").await.expect_success();
    let reply = influxd.write("tasks", "build n=\"one\" 2").await;
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("field type conflict"), "{reply:?}");
}

#[tokio::test]
async fn victoria_metrics_returns_what_was_written() {
    let server = VictoriaMetrics::start().await;
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    server.write(&format!("build,os=linux seconds=1.5 {}", now.as_nanos())).await.expect_success();

    let series = eventually("the sample is stored", async || {
        server.export("build_seconds").await.into_iter().next()
    })
    .await;
    assert_eq!(series["metric"]["os"], "linux");
    assert_eq!(series["values"], json!([1.5]));
    let now_ms = u64::try_from(now.as_millis()).unwrap();
    assert_eq!(series["timestamps"], json!([now_ms]));
}

#[tokio::test]
async fn statsd_flushes_doubles_to_the_last_bit() {
    let statsd = StatsdJs::start(StatsdOptions::default()).await;
    let packet = "hits:0.1|c\nhits:0.2|c\nwait:1|ms\nwait:2|ms|@0.5\nusers:a|s\nusers:b|s\nnow:7|g";
    send_udp(&statsd, packet).await;
    eventually("the packet arrives", async || statsd.packets() == [packet]).await;

    let flush = statsd.finish().await;
    assert_eq!(flush["counters"]["hits"], json!(0.1 + 0.2));
    assert_eq!(flush["timer_data"]["wait"]["mean_90"], json!(1.5));
    assert_eq!(flush["timer_counters"]["wait"], json!(3));
    assert_eq!(flush["sets"]["users"], json!(["a", "b"]));
    assert_eq!(flush["gauges"]["now"], json!(7));
}

#[tokio::test]
async fn statsd_is_told_its_interval_percentiles_and_more() {
    let options = StatsdOptions {
        flush_interval_ms: 200,
        percentiles: vec![50.0, 99.9],
        extra: json!({ "deleteIdleStats": true }),
    };
    let statsd = StatsdJs::start(options).await;
    send_udp(&statsd, "wait:1|ms").await;

    let wait = |flush: &Value| flush["timer_data"].get("wait").cloned();
    let first = async || statsd.flushes().iter().find_map(wait);
    let timer = eventually("a flush by the clock", first).await;
    assert_eq!([&timer["upper_50"], &timer["upper_99_9"]], [&json!(1), &json!(1)]);
    eventually("an idle timer is forgotten", async || {
        wait(statsd.flushes().last().unwrap()).is_none()
    })
    .await;
}

#[tokio::test]
async fn a_python_statsd_client_sends_its_fixed_set() {
    let expected = [
        "pystatsd.requests:1|c",
        "pystatsd.depth:17.5|g",
        "pystatsd.latency:12.500000|ms",
        "pystatsd.latency:320.000000|ms",
        "pystatsd.users:alice|s",
        "pystatsd.users:bob|s",
        "pystatsd.users:alice|s",
        "pystatsd.requests:4|c",
        "pystatsd.requests:-2|c",
        "pystatsd.depth:+2.5|g",
        "pystatsd.depth:-5|g",
    ];
    check_client("python_statsd.py", &expected).await;
}

#[tokio::test]
async fn a_python_datadog_client_sends_its_fixed_set() {
    let expected = [
        "pydatadog.requests:1|c|#route:/home,canary,client:datadog",
        "pydatadog.requests:4|c|#route:/home,canary,client:datadog",
        "pydatadog.depth:17.5|g|#client:datadog",
        "pydatadog.latency:12.5|ms|#route:/home,client:datadog",
        "pydatadog.bytes:512|h|#client:datadog",
        "pydatadog.wait:0.25|d|#client:datadog",
        "pydatadog.users:alice|s|#client:datadog",
        "pydatadog.users:bob|s|#client:datadog",
        "pydatadog.users:alice|s|#client:datadog",
    ];
    check_client("python_datadog.py", &expected).await;
}

#[tokio::test]
async fn a_node_client_sends_its_fixed_set() {
    let expected = [
        "hotshots.requests:1|c|#client:hot-shots,route:/home,canary",
        "hotshots.requests:4|c|#client:hot-shots,route:/home,canary",
        "hotshots.depth:17.5|g|#client:hot-shots",
        "hotshots.latency:12.5|ms|#client:hot-shots,route:/home",
        "hotshots.bytes:512|h|#client:hot-shots",
        "hotshots.wait:0.25|d|#client:hot-shots",
        "hotshots.users:alice|s|#client:hot-shots",
        "hotshots.users:bob|s|#client:hot-shots",
        "hotshots.users:alice|s|#client:hot-shots",
    ];
    check_client("hot_shots.js", &expected).await;
}

#[tokio::test]
async fn a_tcp_sink_tells_connections_apart_and_comes_back() {
    let sink = TcpSink::start().await;
    let address = sink.address();
    TcpStream::connect(address).await.unwrap().write_all(b"one\ntwo\n").await.unwrap();
    eventually("the first connection", async || sink.lines() == ["one", "two"]).await;
    TcpStream::connect(address).await.unwrap().write_all(b"three").await.unwrap();
    eventually("the second", async || sink.connections() == [&b"one\ntwo\n"[..], b"three"]).await;

    drop(sink);
    eventually("the port is closed", async || TcpStream::connect(address).await.is_err()).await;
    let again = TcpSink::start_at(address).await;
    TcpStream::connect(address).await.unwrap().write_all(b"four\n").await.unwrap();
    eventually("the sink is back", async || again.lines() == ["four"]).await;
}

#[tokio::test]
async fn a_fake_http_server_follows_its_script() {
    let later = Duration::from_millis(50);
    let tired = Answer::status(503).header("Retry-After", "1").body("tired").after(later);
    let server = FakeHttp::start([tired, Answer::reset(), Answer::status(204)]).await;
    let http = Http::new(&server.url());
    let gzip = [("content-encoding", "gzip")];
    let write = async |body: &str, headers: &[(&str, &str)]| {
        let body = if headers.is_empty() { body.into() } else { gzipped(body) };
        http.send(reqwest::Method::POST, "/write?db=x", headers, body).await
    };

    let asked = tokio::time::Instant::now();
    let reply = write("a n=1", &gzip).await.unwrap();
    assert_eq!((reply.status, reply.body.as_str()), (503, "tired"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert!(asked.elapsed() >= later);

    let reset = write("b n=1", &[]).await.unwrap_err();
    assert!(reset.is_request(), "{reset:?}");
    assert_eq!(write("c n=1", &[]).await.unwrap().status, 204);
    assert_eq!(http.get("/ping").await.status, 204, "after its script it is content");

    let received = server.received();
    let bodies: Vec<_> = received.iter().map(|request| request.body.as_str()).collect();
    assert_eq!(bodies, ["a n=1", "b n=1", "c n=1", ""]);
    assert_eq!((received[0].method.as_str(), received[0].target.as_str()), ("POST", "/write?db=x"));
}

#[tokio::test]
async fn a_fake_http_server_can_hang() {
    let server = FakeHttp::start([Answer::hang()]).await;
    let http = Http::new(&server.url());
    let request = http.get("/");
    let answer = tokio::time::timeout(Duration::from_millis(100), request).await;
    assert!(answer.is_err(), "it answered: {answer:?}");
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn a_proxy_spoils_answers_after_the_request_took_effect() {
    let influxd = Influxd::start().await;
    influxd.create_database("d").await;
    let proxy = Proxy::start(&influxd.url()).await;
    let write = async |n: u32| send(&proxy, "/write?db=d", format!("m n={n} {n}")).await;
    let status = async |n| write(n).await.map(|reply| reply.status).ok();

    assert_eq!(status(1).await, Some(204));
    proxy.script([Fault::LoseAnswer, Fault::ResetInAnswer, Fault::Slow { rate: 2000 }]);
    assert_eq!((status(2).await, status(3).await, status(4).await), (None, None, Some(204)));
    assert_eq!(influxd.rows("d", "SELECT n FROM m").await.len(), 4);
    let rows = send(&proxy, "/query?db=d&q=SELECT+n+FROM+m", String::new()).await.unwrap();
    assert_eq!(rows.json()["results"][0]["series"][0]["values"].as_array().unwrap().len(), 4);

    let met: Vec<_> = proxy.passages().into_iter().map(|passage| passage.fault).collect();
    let expected = [
        Fault::Pass,
        Fault::LoseAnswer,
        Fault::ResetInAnswer,
        Fault::Slow { rate: 2000 },
        Fault::Pass,
    ];
    assert_eq!(met, expected);
    assert_eq!(proxy.passages()[1].body, "m n=2 2");
}

#[tokio::test]
async fn a_proxy_can_stand_before_the_server_and_be_closed() {
    let influxd = Influxd::start().await;
    influxd.create_database("d").await;
    let proxy = Proxy::start(&influxd.url()).await;
    let write = async || send(&proxy, "/write?db=d", "m n=1 1".to_owned()).await;

    proxy.switch(Fault::Answer { status: 503, body: "tired" }).await;
    assert_eq!(write().await.unwrap().body, "tired");
    proxy.switch(Fault::Truncated { status: 400, body: "half a" }).await;
    assert!(write().await.unwrap_err().is_decode(), "the body ends too early");
    proxy.switch(Fault::Hang).await;
    let waits = tokio::time::timeout(Duration::from_millis(300), write()).await;
    assert!(waits.is_err(), "nobody answers");
    let connections = proxy.connections();
    proxy.switch(Fault::Refuse).await;
    assert!(write().await.unwrap_err().is_connect());
    assert_eq!(proxy.connections(), connections);
    assert!(influxd.rows("d", "SELECT n FROM m").await.is_empty(), "the server saw nothing");
    proxy.switch(Fault::Pass).await;
    assert_eq!(write().await.unwrap().status, 204);
    assert_eq!((proxy.connections(), proxy.requests()), (4, 4));
}

async fn send(proxy: &Proxy, path: &str, body: String) -> reqwest::Result<Reply> {
    Http::new(&proxy.url()).send(reqwest::Method::POST, path, &[], body.into()).await
}

async fn check_client(driver: &str, expected: &[&str]) {
    let sink = UdpSink::start().await;
    run_client(driver, sink.address()).await;
    eventually("all its lines arrive", async || sink.lines().len() >= expected.len()).await;
    assert_eq!(sink.lines(), expected);
}

async fn send_udp(statsd: &StatsdJs, packet: &str) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(packet.as_bytes(), statsd.address()).await.unwrap();
}

fn gzipped(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}
