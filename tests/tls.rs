//! TLS at listeners and to backends, on the real binary: with openssl and curl, with rustls, and
//! with a real InfluxDB behind https.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{
    Authority, FakeHttp, Gateway, Influxd, TcpSink, TlsFront, all_to, assert_balanced, connect,
    eventually, influxdb, installed, pointsman,
};
use reqwest::Client;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

const ADMIN: &str = "[admin]\nbind = '127.0.0.1:0'\n";
const NOWHERE: &str =
    "[backends.nowhere]\nkind = 'blackhole'\n[[routes]]\nname = 'all'\nto = ['nowhere']\n";
const POINT: &str = r#"{"name":"a","value":1}"#;

/// A listener with a `tls` block, and further keys.
fn listener(name: &str, protocol: &str, tls: &str, keys: &str) -> String {
    format!(
        "[listeners.{name}]\nprotocol = '{protocol}'\nbind = ['tcp://127.0.0.1:0']\n\
         tls = {{ {tls} }}\n{keys}\n"
    )
}

/// A gateway with one listener `l`.
async fn gateway(protocol: &str, tls: &str, keys: &str) -> Gateway {
    Gateway::start(&[ADMIN, &listener("l", protocol, tls, keys), NOWHERE].concat()).await
}

async fn received(gateway: &Gateway, listener: &str) -> f64 {
    gateway.metrics().await.sum("pointsman_received_points_total", &[("listener", listener)])
}

async fn refused(gateway: &Gateway) -> f64 {
    let labels = [("reason", "tls_handshake")];
    gateway.metrics().await.sum("pointsman_rejected_total", &labels)
}

async fn until_received(gateway: &Gateway, listener: &str, points: f64) {
    eventually("the points are received", async || received(gateway, listener).await == points)
        .await;
}

async fn put(client: &Client, to: SocketAddr) -> reqwest::Result<reqwest::Response> {
    client.post(format!("https://{to}/v1/points")).body(POINT).send().await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_listener_for_streams_speaks_tls() {
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    let config = [
        ADMIN,
        &listener("statsd", "statsd", &tls, ""),
        &listener("tsdb", "opentsdb", &tls, ""),
        &listener("api", "http", &tls, ""),
        &listener("lines", "influxdb", &tls, ""),
        NOWHERE,
    ]
    .concat();
    let gateway = Gateway::start(&config).await;

    let mut statsd = authority.connect(gateway.addr("statsd", "tcp")).await;
    statsd.write_all(b"a:1|c\nb:2|g\n").await.unwrap();
    statsd.flush().await.unwrap();
    until_received(&gateway, "statsd", 2.0).await;

    let mut telnet = authority.connect(gateway.addr("tsdb", "tcp")).await;
    telnet.write_all(b"put a 1 1 x=y\nversion\n").await.unwrap();
    let mut answer = [0; 10];
    telnet.read_exact(&mut answer).await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("pointsman"), "{answer:?}");
    let client = authority.http(None);
    let tsdb = gateway.addr("tsdb", "tcp");
    let point = r#"{"metric":"a","timestamp":1,"value":1,"tags":{"x":"y"}}"#;
    let put_json = client.post(format!("https://{tsdb}/api/put")).body(point).send().await;
    assert_eq!(put_json.unwrap().status(), 204);
    until_received(&gateway, "tsdb", 2.0).await;

    assert_eq!(put(&client, gateway.addr("api", "tcp")).await.unwrap().status(), 204);
    let lines = gateway.addr("lines", "tcp");
    let written = client.post(format!("https://{lines}/write?db=d")).body("a v=1").send().await;
    assert_eq!(written.unwrap().status(), 204);

    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("pointsman_received_points_total", &[]), 6.0);
    assert_eq!(metrics.sum("pointsman_rejected_total", &[]), 0.0);
    let ends = "pointsman_tls_certificate_expiry_timestamp_seconds";
    let in_2100 = 4_102_444_800.0;
    for name in ["statsd", "tsdb", "api", "lines"] {
        assert_eq!(metrics.sum(ends, &[("listener", name)]), in_2100, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openssl_and_curl_are_understood() {
    if !installed("openssl") || !installed("curl") {
        return;
    }
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    let gateway = gateway("opentsdb", &tls, "").await;
    let (to, ca) = (gateway.addr("l", "tcp").to_string(), authority.ca());
    for version in ["--tlsv1.2 --tls-max 1.2", "--tlsv1.3"] {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail", "--noproxy", "*", "--cacert", &ca]).args(version.split(' '));
        curl.arg(format!("https://{to}/api/version"));
        let output = curl.output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let words =
        format!("s_client -quiet -no_ign_eof -verify_return_error -CAfile {ca} -connect {to}");
    let mut openssl = Command::new("openssl");
    openssl.args(words.split(' ')).stdin(std::process::Stdio::piped()).kill_on_drop(true);
    openssl.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut openssl = openssl.spawn().unwrap();
    let mut stdin = openssl.stdin.take().unwrap();
    stdin.write_all(b"put a 1 1 x=y\nput b 1 1 x=y").await.unwrap();
    drop(stdin);
    openssl.wait().await.unwrap();
    // The second line has no end but that of the stream, which openssl announces.
    until_received(&gateway, "l", 2.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_speak_tls_costs_only_himself() {
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    let gateway = gateway("http", &tls, "limits = { header = '300ms' }").await;
    let to = gateway.addr("l", "tcp");
    let before = authority.http(None);
    assert_eq!(put(&before, to).await.unwrap().status(), 204);

    let mut asked = TcpStream::connect(to).await.unwrap();
    asked.write_all(b"GET /v1/points HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    // What was not read of the request may end the connection by a reset.
    let _ = asked.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("https://"), "{answer}");

    for bytes in [&b"a:1|c\n"[..], b"\x80\x2e\x01\x03\x01", b"\x16\x03\x01\x00\x05hello", &[0; 900]]
    {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
    // Half a handshake, a client that says nothing, and one that only looks whether somebody is
    // there.
    let mut half = TcpStream::connect(to).await.unwrap();
    half.write_all(b"\x16\x03\x01\x02\x00\x01\x00").await.unwrap();
    let silent = TcpStream::connect(to).await.unwrap();
    drop(TcpStream::connect(to).await.unwrap());
    eventually("all of them are refused", async || refused(&gateway).await == 7.0).await;
    drop((half, silent));

    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("pointsman_noticed_total", &[("kind", "closed_unused")]), 1.0);
    let log = gateway.log();
    for words in ["does not speak TLS, which this listener wants", "did not end in time"] {
        assert!(log.contains(words), "{log}");
    }
    assert_eq!(put(&before, to).await.unwrap().status(), 204);
    eventually("only that connection is left", async || {
        gateway.metrics().await.sum("pointsman_connections", &[]) <= 1.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_handshakes_do_not_starve_others() {
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    let limits = "limits = { header = '2s', connections = 200 }";
    let gateway = gateway("http", &tls, limits).await;
    let to = gateway.addr("l", "tcp");
    let mut slow = Vec::new();
    for n in 0..150 {
        let mut stream = TcpStream::connect(to).await.unwrap();
        if n % 2 == 0 {
            stream.write_all(b"\x16\x03\x01\x02\x00").await.unwrap();
        }
        slow.push(stream);
    }
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(put(&authority.http(None), to).await.unwrap().status(), 204);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    // They take places like any other connection, and lose them when their time is up.
    eventually("all have lost their places", async || refused(&gateway).await == 150.0).await;
    drop(slow);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_version_is_refused_where_a_new_one_is_wanted() {
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    let gateway = gateway("http", &format!("{tls}, min_version = '1.3'"), "").await;
    let to = gateway.addr("l", "tcp");
    let old = authority.client_of(&[&rustls::version::TLS12], None);
    let error = connect(old, to).await.unwrap_err().to_string();
    assert!(error.contains("ProtocolVersion"), "{error}");
    eventually("it is counted", async || refused(&gateway).await == 1.0).await;
    assert!(gateway.log().contains("speaks no version of TLS that is allowed"));
    let new = authority.client_of(&[&rustls::version::TLS13], None);
    assert!(connect(new, to).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_prove_who_they_are_where_that_is_asked() {
    let (authority, stranger) = (Authority::new("root"), Authority::new("stranger"));
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    let tls = format!("{tls}, client_ca = '{}'", authority.ca());
    let gateway = gateway("http", &tls, "").await;
    let to = gateway.addr("l", "tcp");
    let known = authority.http(Some(&authority.issue(&["client.test"])));
    assert_eq!(put(&known, to).await.unwrap().status(), 204);
    for shown in [
        None,
        Some(stranger.issue(&["client.test"])),
        Some(authority.issue_until(&["client.test"], 2020)),
    ] {
        assert!(put(&authority.http(shown.as_ref()), to).await.is_err());
    }
    // A client may be quick enough to try once more on a connection that failed.
    eventually("they are counted", async || refused(&gateway).await >= 3.0).await;
    assert_eq!(received(&gateway, "l").await, 1.0);
    for words in ["shows no certificate", "no root in `client_ca` has signed it"] {
        eventually(words, async || gateway.log().contains(words)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_requests_on_one_connection() {
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    let gateway = gateway("http", &tls, "").await;
    let mut stream = authority.connect(gateway.addr("l", "tcp")).await;
    let request = format!(
        "POST /v1/points HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{POINT}",
        POINT.len()
    );
    let mut answer = vec![0; 4096];
    for _ in 0..10_000 {
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let length = stream.read(&mut answer).await.unwrap();
        assert!(answer[..length].starts_with(b"HTTP/1.1 204"), "{:?}", &answer[..length]);
    }
    assert_eq!(received(&gateway, "l").await, 10_000.0);
}

/// Whoever ends in order has said all; what was cut off within a line has not.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_counts_at_an_end_that_is_announced() {
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    let gateway = gateway("statsd", &tls, "").await;
    let to = gateway.addr("l", "tcp");
    let mut ended = authority.connect(to).await;
    ended.write_all(b"a:1|c\nb:1|c").await.unwrap();
    ended.shutdown().await.unwrap();
    until_received(&gateway, "l", 2.0).await;
    let mut cut = authority.connect(to).await;
    cut.write_all(b"a:1|c\nb:1|c").await.unwrap();
    cut.flush().await.unwrap();
    drop(cut);
    until_received(&gateway, "l", 3.0).await;
    let labels = [("reason", "incomplete_line")];
    let incomplete = async || gateway.metrics().await.sum("pointsman_rejected_total", &labels);
    eventually("the rest is refused", async || incomplete().await == 1.0).await;
}

/// Without "close notify" a client cannot tell an end from a cut, and its library complains.
#[tokio::test(flavor = "multi_thread")]
async fn we_announce_the_end_as_well() {
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    for (protocol, says, ends) in [
        ("statsd", "a:1|c\n", true),
        ("opentsdb", "version\nput a 1700000000 1 b=c\n", true),
        ("opentsdb", "version\nexit\nput a 1700000000 1 b=c\n", false),
        ("http", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", false),
        // Whoever falls silent.
        ("statsd", "a:1|c\n", false),
        ("opentsdb", "version\n", false),
        ("http", "", false),
        ("http", "GET / HTTP/1.1\r\n", false),
    ] {
        let gateway = gateway(protocol, &tls, "limits = { idle = '200ms', header = '1s' }").await;
        let mut stream = authority.connect(gateway.addr("l", "tcp")).await;
        stream.write_all(says.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        if ends {
            stream.shutdown().await.unwrap();
        }
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer).await;
        assert!(read.is_ok(), "{protocol} {says:?}: {read:?}");
        assert_eq!(answer.contains("OpenTSDB"), says.starts_with("version"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_reads_what_has_come() {
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    let mut gateway = gateway("statsd", &tls, "").await;
    let mut stream = authority.connect(gateway.addr("l", "tcp")).await;
    let line = "a.name.of.some.length:1|c\n";
    let lines = 20_000;
    stream.write_all(line.repeat(lines).as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let ended = gateway.terminate().await;
    assert!(ended.status.success());
    assert!(ended.log.contains(&format!("\"delivered\":{lines}")), "{}", ended.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_costs_no_connection_and_no_point() {
    let authority = Authority::new("root");
    let (first, second) =
        (authority.issue(&["127.0.0.1"]), authority.issue_until(&["127.0.0.1"], 2101));
    let tls = authority.install("l", &first);
    let config = [ADMIN, &listener("l", "http", &tls, ""), NOWHERE].concat();
    let mut gateway = Gateway::start(&config).await;
    let to = gateway.addr("l", "tcp");
    let kept = authority.http(None);
    assert_eq!(put(&kept, to).await.unwrap().status(), 204);

    let traffic = tokio::spawn({
        let (client, authority) = (kept.clone(), authority.client(None));
        async move {
            for n in 0..400 {
                assert_eq!(put(&client, to).await.unwrap().status(), 204);
                if n % 20 == 0 {
                    connect(authority.clone(), to).await.unwrap();
                }
            }
        }
    });
    authority.install("l", &second);
    let told = gateway.reload(&config).await.expect_success().body;
    assert!(told.contains("certificates of listener l renewed"), "{told}");
    traffic.await.unwrap();

    let shown = async || {
        let stream = authority.connect(to).await;
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    assert_eq!(shown().await, second.leaf());
    assert_eq!(received(&gateway, "l").await, 401.0);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("pointsman_noticed_total", &[("kind", "certificate_renewed")]), 1.0);
    let ends = metrics.sum("pointsman_tls_certificate_expiry_timestamp_seconds", &[]);
    assert_eq!(ends, 4_133_980_800.0, "in 2101");

    // A key that does not fit changes nothing, and is told.
    authority.write("l.key", &first.key);
    let reply = gateway.reload(&config).await;
    assert_eq!(reply.status, 422);
    assert!(reply.body.contains("does not hold the key of the certificate"), "{}", reply.body);
    assert_eq!(shown().await, second.leaf());
    assert_eq!(put(&kept, to).await.unwrap().status(), 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_influxdb_behind_https_is_trusted_by_its_root() {
    let (authority, stranger) = (Authority::new("root"), Authority::new("stranger"));
    authority.install("influxd", &authority.issue(&["127.0.0.1"]));
    let settings = format!(
        "https-enabled = true\nhttps-certificate = '{}'\nhttps-private-key = '{}'",
        authority.path("influxd.pem"),
        authority.path("influxd.key")
    );
    let influxd = Influxd::start_secure(&settings, authority.http(None)).await;
    influxd.create_database("d").await;
    let url = format!("https://127.0.0.1:{}", influxd.port());
    let config = |tls: &str| {
        let keys = format!("flush = '50ms'\nretry = {{ first = '20ms', max = '50ms' }}\n{tls}");
        [common::API, &influxdb("influx", &url, &keys), &all_to(&["influx"])].concat()
    };
    // First without TLS, which such a server answers with 400, as it does bad points.
    let plain = config("").replace("https://", "http://");
    let mut gateway = Gateway::start(&plain).await;
    common::post(&gateway, serde_json::json!([{ "name": "a", "v": 1 }, { "name": "b", "v": 2 }]))
        .await;
    eventually("the mistake is told", async || {
        let ill = gateway.book("influx").await["ill"].to_string();
        ill.contains("HTTP request to an HTTPS server")
    })
    .await;
    let wrong = config(&format!("tls = {{ ca = '{}' }}", stranger.ca()));
    gateway.reload(&wrong).await.expect_success();
    eventually("the trouble is told", async || {
        let ill = gateway.book("influx").await["ill"].to_string();
        ill.contains("signed by nobody who is trusted here")
    })
    .await;
    let book = gateway.book("influx").await;
    assert_eq!((&book["delivered"], &book["dropped"]), (&Value::from(0), &serde_json::json!({})));

    let mended = config(&format!("tls = {{ ca = '{}', min_version = '1.3' }}", authority.ca()));
    gateway.reload(&mended).await.expect_success();
    eventually("the points are there", async || gateway.book("influx").await["delivered"] == 2)
        .await;
    assert_eq!(influxd.rows("d", "SELECT v FROM a, b").await.len(), 2);
    assert_balanced(&gateway.ledger().await);
}

/// A server that says to whatever comes what web servers say to what is no HTTP.
async fn answers_in_plain_text() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.read(&mut [0; 4096]).await;
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    address
}

/// What a certificate is wrong about is told by name, and nothing is given up for it.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_backends_are_judged() {
    let authority = Authority::new("root");
    let fake = FakeHttp::start([]).await;
    let cases = [
        (authority.issue_until(&["127.0.0.1"], 2020), "", "has expired"),
        (
            authority.issue(&["influx.test"]),
            "",
            "is not for 127.0.0.1, but for influx.test, spiffe://test/issued; say `tls.server_name`",
        ),
        (authority.issue(&["127.0.0.1"]), ", server_name = 'other.test'", "is not for other.test"),
    ];
    for (issued, more, words) in cases {
        let front = TlsFront::start(&issued, None, fake.address()).await;
        let tls = format!(
            "retry = {{ first = '20ms', max = '50ms' }}\nflush = '20ms'\n\
             tls = {{ ca = '{}'{more} }}",
            authority.ca()
        );
        let gateway = Gateway::start(&common::api_to_influxdb(&front.url(), &tls)).await;
        common::post(&gateway, serde_json::json!([{ "name": "a", "v": 1 }])).await;
        eventually(words, async || gateway.book("influx").await["ill"].to_string().contains(words))
            .await;
        assert_eq!(gateway.book("influx").await["dropped"], serde_json::json!({}));
    }
    let plain = format!("https://{}", answers_in_plain_text().await);
    let gateway = Gateway::start(&common::api_to_influxdb(&plain, "flush = '20ms'")).await;
    common::post(&gateway, serde_json::json!([{ "name": "a", "v": 1 }])).await;
    eventually("that there is no TLS is told", async || {
        gateway.book("influx").await["ill"].to_string().contains("does not speak TLS there")
    })
    .await;
    let front = TlsFront::start(&authority.issue(&["influx.test"]), None, fake.address()).await;
    let tls = format!(
        "flush = '20ms'\ntls = {{ ca = '{}', server_name = 'influx.test' }}",
        authority.ca()
    );
    let gateway = Gateway::start(&common::api_to_influxdb(&front.url(), &tls)).await;
    common::post(&gateway, serde_json::json!([{ "name": "a", "v": 1 }])).await;
    eventually("it is delivered", async || gateway.book("influx").await["delivered"] == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_are_shown_a_certificate_which_may_be_renewed() {
    let (authority, stranger) = (Authority::new("root"), Authority::new("stranger"));
    let (fake, sink) = (FakeHttp::start([]).await, TcpSink::start().await);
    let server = authority.issue(&["127.0.0.1"]);
    let influx = TlsFront::start(&server, Some(&authority), fake.address()).await;
    let statsd = TlsFront::start(&server, Some(&authority), sink.address()).await;
    // The first one is no good there.
    let shown = authority.install("client", &stranger.issue(&["client.test"]));
    let tls = format!("tls = {{ ca = '{}', {shown} }}", authority.ca());
    let keys = format!("flush = '20ms'\nretry = {{ first = '20ms', max = '50ms' }}\n{tls}\n");
    let config = [
        common::API,
        &influxdb("influx", &influx.url(), &keys),
        &format!(
            "[backends.relay]\nkind = 'statsd'\naddress = 'tcp://{}'\n{keys}",
            statsd.address()
        ),
        &all_to(&["influx", "relay"]),
    ]
    .concat();
    let mut gateway = Gateway::start(&config).await;
    common::post(&gateway, serde_json::json!([{ "name": "a", "value": 1 }])).await;
    for backend in ["influx", "relay"] {
        eventually("the refusal is told", async || {
            let ill = gateway.book(backend).await["ill"].to_string();
            ill.contains("does not accept our certificate")
        })
        .await;
    }
    authority.install("client", &authority.issue(&["client.test"]));
    gateway.reload(&config).await.expect_success();
    for backend in ["influx", "relay"] {
        eventually("it is delivered", async || gateway.book(backend).await["delivered"] == 1).await;
    }
    eventually("statsd has it", async || sink.lines() == ["a:1|g"]).await;
    assert_balanced(&gateway.ledger().await);
    let metrics = gateway.metrics().await;
    let ends = "pointsman_tls_certificate_expiry_timestamp_seconds";
    assert!(
        metrics.has(ends, &[("backend", "influx")]) && metrics.has(ends, &[("backend", "relay")])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_reach_listeners_with_tls() {
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    let config = [
        &format!("[admin]\nbind = '127.0.0.1:0'\ntls = {{ {tls} }}\n"),
        &listener("api", "http", &tls, ""),
        NOWHERE,
    ];
    let gateway = Gateway::start(&config.map(String::from).concat()).await;
    let admin = format!("https://{}", gateway.addr("admin", "tcp"));
    let page = authority.http(None).get(format!("{admin}/-/ready")).send().await.unwrap();
    assert_eq!(page.status(), 200);

    let ca = authority.ca();
    let listed = pointsman(&["dead-letters", "list", "--admin", &admin, "--ca", &ca]);
    assert!(listed.status.success(), "{listed:?}");
    let unknown = pointsman(&["dead-letters", "replay", "--all", "--admin", &admin]);
    let words = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && words.contains("no gateway answers at"), "{words}");

    let api = format!("https://{}", gateway.addr("api", "tcp"));
    let sent = pointsman(&["send", "http", "--to", &api, "--ca", &ca]);
    assert!(sent.status.success(), "{sent:?}");
    let namesake = "a CA of its issuer's name is trusted, but has another key";
    for (wrong, more) in [
        (Authority::new("stranger"), ""),
        (Authority::new("root"), namesake),
        (Authority::ed25519("root"), namesake),
    ] {
        let sent = pointsman(&["send", "http", "--to", &api, "--ca", &wrong.ca()]);
        let words = String::from_utf8_lossy(&sent.stderr).into_owned();
        assert!(words.contains("signed by nobody who is trusted here"), "{words}");
        assert!(words.contains(more) && words.contains("as `--ca`"), "{words}");
        assert!(!words.contains("tls."), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_leads_to_backends_unless_it_is_not_wanted() {
    let fake = FakeHttp::start([]).await;
    let gateway = Gateway::start(&common::api_to_influxdb(
        // A name that only the proxy could know; it is asked for the whole URL.
        "http://influx.invalid:8086",
        &format!("flush = '20ms'\nproxy = 'http://{}'", fake.address()),
    ))
    .await;
    common::post(&gateway, serde_json::json!([{ "name": "a", "v": 1 }])).await;
    eventually("it is delivered", async || gateway.book("influx").await["delivered"] == 1).await;
}

#[test]
fn check_says_what_is_wrong_with_files() {
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue_until(&["x.test"], 2020));
    let file = authority.path("p.toml");
    let checked = |config: &str| {
        std::fs::write(&file, config).unwrap();
        let output = pointsman(&["check", "--config", &file]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, words) = checked(&[&listener("l", "http", &tls, ""), NOWHERE].concat());
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("a certificate that has expired"), "{words}");
    let (code, words) = checked(&[
        "[admin]\nbind = '127.0.0.1:0'\ntls = { cert = '/none.pem', key = '/none.key' }\n",
        "[listeners.l]\nprotocol = 'statsd'\nbind = ['udp://127.0.0.1:0', 'tcp://127.0.0.1:0']\n",
        &format!("tls = {{ {tls} }}\n"),
        "[listeners.m]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n",
        &format!("tls = {{ cert = '{}' }}\n", authority.ca()),
        "[backends.b]\nkind = 'statsd'\naddress = 'udp://127.0.0.1:1'\n",
        &format!("tls = {{ ca = '{file}' }}\n"),
        NOWHERE,
    ]
    .concat());
    assert_eq!(code, Some(78), "{words}");
    for expected in [
        "/none.pem cannot be read",
        "this listener has a `tls` block, and udp:// cannot speak TLS",
        "`key` is missing",
        "it needs an `address` that begins with tcp://",
        "holds no certificate",
    ] {
        assert!(words.contains(expected), "{expected}:\n{words}");
    }
}
