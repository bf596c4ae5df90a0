//! Who may write what: each protocol through the one gate, what senders are told, and what lands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use common::{
    Authority, Case, Gateway, Reply, UdpSink, amqp, connect, eventually, pointsman, read_to_end,
};
use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, UdpSocket, UnixStream};

/// What comes without credentials may write builds, and is put below `task/`.
const EDGE: &str = r#"
[listeners.lines]
protocol = "influxdb"
bind = ["tcp://127.0.0.1:0"]

[principals.edge]
listeners = ["statsd", "tsdb", "api"]
scopes = ["stats:put-points:build/*"]
prefix = "task/"
tags = { set = { pool = "linux" }, drop = ["secret"], reserved = ["pool", "host"] }
"#;

const CI: &str = r#"
[principals.ci]
tokens = ["ci-token", "other-token"]
basic = [{ username = "ci", password = "ci-password" }]
scopes = ["stats:put-points:ci.*", "stats:put-points:exact"]
"#;

#[tokio::test]
async fn datagrams_pass_if_they_may_and_in_their_shape() {
    let case = Case::start(EDGE).await;
    // The same head again and again, so that it is known; and what may not pass in between.
    for _ in 0..3 {
        case.datagrams([
            "build/a:1|c|#os:x,secret:y\nother:1|c\nbuild/a:1|c|#host:evil\nbuild/é:1|c",
        ])
        .await;
    }
    let ledger = case.books("statsd", 12, json!({})).await;
    let book = &ledger["listeners"]["statsd"];
    assert_eq!(
        (&book["routed"], &book["unmatched"], &book["denied"]),
        (&3.into(), &0.into(), &9.into())
    );
    assert_eq!(book["denials"], json!({ "name": 3, "reserved_tag": 3, "scope": 3 }));
    assert_eq!(case.raw(), ["task/build/a{os=x,pool=linux} counter 1.0"; 3]);
    assert_eq!(case.sum("task/build/a{os=x,pool=linux}", "count"), 3.0);
    let metrics = case.gateway.metrics().await;
    let of = |name: &str, more: &[(&str, &str)]| {
        metrics.sum(name, &[&[("listener", "statsd")], more].concat())
    };
    assert_eq!(of("pointsman_denied_points_total", &[]), 9.0);
    assert_eq!(of("pointsman_denials_total", &[("reason", "scope")]), 3.0);
    assert_eq!(of("pointsman_denials_total", &[("reason", "reserved_tag")]), 3.0);
    let log = case.gateway.log();
    assert!(log.contains("the tag `host` is reserved"), "{log}");
}

#[tokio::test]
async fn a_line_whose_shape_changes_is_never_relayed_as_it_came() {
    let sink = UdpSink::start().await;
    let relay = |name: &str| {
        let address = sink.address();
        format!(
            "[backends.{name}]\nkind = \"statsd\"\naddress = \"udp://{address}\"\nflush = \"10ms\"\n"
        )
    };
    let routes = "[[routes]]\nto = [\"relay\"]\n";
    let case = Case::start(&[EDGE, &relay("relay"), routes].concat()).await;
    for _ in 0..5 {
        case.datagrams(["build/a:1|c\nbuild/a:2|c\nadmin:1|c\nbuild/b:3|ms|#secret:y"]).await;
    }
    let mut lines = eventually("all that may pass was relayed", async || {
        Some(sink.lines()).filter(|lines| lines.len() >= 15)
    })
    .await;
    lines.sort();
    lines.dedup();
    assert_eq!(
        lines,
        [
            "task/build/a:1|c|#pool:linux",
            "task/build/a:2|c|#pool:linux",
            "task/build/b:3|ms|#pool:linux"
        ]
    );
}

#[tokio::test]
async fn statsd_over_tcp_is_counted_and_not_answered() {
    let case = Case::start(EDGE).await;
    let answer = case.exchange("statsd", "build/a:1|c\nother:1|c\n").await;
    assert_eq!(answer, "");
    let ledger = case.books("statsd", 2, json!({})).await;
    assert_eq!(ledger["listeners"]["statsd"]["denied"], 1);
    assert_eq!(case.raw(), ["task/build/a{pool=linux} counter 1.0"]);
}

#[tokio::test]
async fn a_denied_put_has_a_line_of_its_own() {
    let case = Case::start(EDGE).await;
    let puts = "put build/a 1700000000 1 os=x\nput other 1700000000 1 os=x\n\
                put build/b 1700000000 1 host=x\nput build/c 1700000000 1 os=x\n";
    let answer = case.exchange("tsdb", puts).await;
    assert_eq!(
        answer,
        "put: illegal argument: the scope stats:put-points:other is missing\n\
         put: illegal argument: the tag `host` is reserved\n"
    );
    let ledger = case.books("tsdb", 4, json!({})).await;
    let book = &ledger["listeners"]["tsdb"];
    assert_eq!((&book["routed"], &book["denied"]), (&2.into(), &2.into()));
    assert_eq!(
        case.raw(),
        ["task/build/a{os=x,pool=linux} sample 1", "task/build/c{os=x,pool=linux} sample 1"]
    );
}

#[tokio::test]
async fn a_request_needs_the_scopes_of_all_its_series() {
    let case = Case::start(&[EDGE, CI].concat()).await;
    let body = json!([
        { "name": "ci.a", "value": 1 }, { "name": "x", "value": 1 }, { "name": "exact", "value": 1 },
        { "name": "exactly", "value": 1 }, { "name": "x", "value": 2 },
    ]);
    let denied = send(&case.gateway, "api", "/v1/points", &[BEARER], &body.to_string()).await;
    assert_eq!(
        (denied.status, denied.json()),
        (
            403,
            json!({ "error": { "code": 403, "message":
                "these scopes are missing: stats:put-points:x, stats:put-points:exactly; \
                 nothing of the request was kept" } })
        )
    );
    let ledger = case.books("api", 5, json!({ "forbidden": 1 })).await;
    let book = &ledger["listeners"]["api"];
    assert_eq!((&book["denied"], &book["denials"]["scope"]), (&5.into(), &5.into()));

    let good = json!([{ "name": "ci.a", "value": 1 }, { "name": "exact", "value": 2 }]).to_string();
    for credentials in [BEARER, OTHER_BEARER, basic("ci", "ci-password")] {
        let reply = send(&case.gateway, "api", "/v1/points", &[credentials], &good).await;
        assert_eq!(reply.status, 204, "{reply:?}");
    }
    let path = "/v1/point/ci.b?value=1";
    assert_eq!(send(&case.gateway, "api", path, &[BEARER], "").await.status, 204);
    let path = "/v1/point/x?value=1";
    let reply = send(&case.gateway, "api", path, &[BEARER], "").await;
    assert_eq!(reply.status, 403, "{reply:?}");
    // Without any the connection counts.
    let mine = json!({ "name": "build/a", "value": 1 }).to_string();
    assert_eq!(send(&case.gateway, "api", "/v1/points", &[], &mine).await.status, 204);
    case.books("api", 5 + 6 + 2 + 1, json!({ "forbidden": 2 })).await;
    let mut series: Vec<_> =
        case.raw().iter().map(|row| row.split(' ').next().unwrap().to_owned()).collect();
    series.sort();
    series.dedup();
    assert_eq!(series, ["ci.a", "ci.b", "exact", "task/build/a{pool=linux}"]);
}

#[tokio::test]
async fn the_answer_and_the_log_name_the_reserved_tag() {
    let case = Case::start(EDGE).await;
    let body = json!({ "name": "build/a", "value": 1, "tags": { "os": "x", "Host": "evil" } });
    let reply = send(&case.gateway, "api", "/v1/points", &[], &body.to_string()).await;
    let says = "the tag `Host` is reserved; nothing of the request was kept";
    assert_eq!((reply.status, &reply.json()["error"]["message"]), (403, &says.into()));
    let log = case.gateway.log();
    assert!(log.lines().any(|line| line.contains("forbidden") && line.contains(says)), "{log}");
}

#[tokio::test]
async fn every_protocol_tells_it_in_its_own_words() {
    let case = Case::start(&[EDGE, CI].concat()).await;
    let put =
        json!([{ "metric": "x", "timestamp": 1, "value": 1, "tags": { "a": "b" } }]).to_string();
    for listener in ["tsdb", "api"] {
        for path in ["/api/put", "/api/put?details", "/api/v1/put?sync"] {
            let reply = send(&case.gateway, listener, path, &[BEARER], &put).await;
            assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &403.into()));
            assert!(reply.body.contains("stats:put-points:x"), "{reply:?}");
        }
    }
    for path in ["/write?db=d", "/api/v2/write?bucket=b"] {
        let reply = send(&case.gateway, "lines", path, &[BEARER], "x v=1").await;
        assert_eq!((reply.status, &reply.json()["code"]), (403, &"forbidden".into()));
        assert!(reply.json()["error"].as_str().unwrap().contains("stats:put-points:x"));
        let reply = send(&case.gateway, "lines", path, &[], "x v=1").await;
        assert_eq!((reply.status, &reply.json()["code"]), (401, &"unauthorized".into()));
    }
    // As agents of InfluxDB write their credentials.
    let token = ("Authorization", "Token ci-token");
    let reply = send(&case.gateway, "lines", "/api/v2/write?bucket=b", &[token], "ci.x v=1").await;
    assert_eq!(reply.status, 204, "{reply:?}");
    for (path, status) in [
        ("/write?db=d&u=ci&p=ci-password", 204),
        ("/write?db=d&u=ci&p=ci%2Dpassword", 204),
        ("/write?db=d&u=&p=", 401),
        ("/write?db=d&u=ci&p=wrong", 401),
        ("/write?db=d&u=ci&p=%ff", 401),
    ] {
        let reply = send(&case.gateway, "lines", path, &[], "ci.y v=1").await;
        assert_eq!(reply.status, status, "{path} {reply:?}");
    }
    let ledger = case.gateway.ledger().await;
    let book = &ledger["listeners"]["lines"];
    assert_eq!((&book["routed"], &book["denied"]), (&3.into(), &2.into()));
    assert_eq!(
        book["rejected"],
        json!({ "bad_credentials": 2, "forbidden": 2, "unauthenticated": 3 })
    );
}

#[tokio::test]
async fn wrong_credentials_are_not_forgiven() {
    let case = Case::start(&[EDGE, CI].concat()).await;
    let mine = json!({ "name": "build/a", "value": 1 }).to_string();
    let wrong = basic("ci", "wrong");
    let garbled = ("Authorization", "Basic ???");
    for credentials in [
        &[("Authorization", "Bearer wrong")][..],
        &[("Authorization", "Bearer ")],
        &[wrong],
        &[garbled],
        &[("Authorization", "Digest username=\"ci\"")],
        &[BEARER, BEARER],
    ] {
        for path in ["/v1/points", "/api/put", "/v1/point/build%2Fa?v=1"] {
            let reply = send(&case.gateway, "api", path, credentials, &mine).await;
            assert_eq!(reply.status, 401, "{credentials:?} {reply:?}");
            assert_eq!(reply.json()["error"]["code"], 401);
            let challenges: Vec<_> =
                reply.headers.iter().filter(|(name, _)| name == "www-authenticate").collect();
            assert_eq!(challenges.len(), 2, "{reply:?}");
        }
    }
    case.books("api", 0, json!({ "bad_credentials": 18 })).await;
    assert_eq!(case.raw(), [""; 0]);
}

/// Agents write the header they always write when they have nothing to put into it.
#[tokio::test]
async fn empty_credentials_of_an_agent_are_none() {
    let anonymous =
        "[principals.anyone]\nlisteners = [\"lines\"]\nscopes = [\"stats:put-points:any.*\"]\n";
    let lines = "[listeners.lines]\nprotocol = \"influxdb\"\nbind = [\"tcp://127.0.0.1:0\"]\n";
    let case = Case::start(&[lines, CI, anonymous].concat()).await;
    let write = async |listener: &str, path: &str, value: &str, line: &str| {
        send(&case.gateway, listener, path, &[("Authorization", value)], line).await.status
    };
    for value in ["Token", "Token ", "Token :", "Bearer ", "Basic Og=="] {
        assert_eq!(write("lines", "/write?db=d", value, "any.x v=1").await, 204, "{value}");
        assert_eq!(
            write("lines", "/api/v2/write?bucket=b", value, "ci.x v=1").await,
            403,
            "{value}"
        );
        let with_query = "/write?u=ci&p=ci-password";
        assert_eq!(write("lines", with_query, value, "ci.x v=1").await, 204, "{value}");
        // Elsewhere an empty token is a variable that was not set.
        assert_eq!(write("api", "/v1/points", value, "[]").await, 401, "{value}");
    }
    assert_eq!(write("lines", "/write", "Token wrong", "any.x v=1").await, 401);
    assert_eq!(write("lines", "/write", "Basic YTo=", "any.x v=1").await, 401);
}

#[tokio::test]
async fn whoever_may_not_write_creates_no_database() {
    let lines = "[listeners.lines]\nprotocol = \"influxdb\"\nbind = [\"tcp://127.0.0.1:0\"]\n";
    let case = Case::start(&[lines, CI].concat()).await;
    let form = format!("q=CREATE+DATABASE+x&padding={}", "x".repeat(128 << 10));
    let ask = async |headers: &[(&str, &str)]| {
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        let headers = [&[kind], headers].concat();
        let http = case.gateway.http("lines");
        http.send(Method::POST, "/query", &headers, form.clone().into()).await.unwrap()
    };
    assert_eq!(ask(&[]).await.status, 401);
    assert_eq!(ask(&[("Authorization", "Token guess")]).await.status, 401);
    let ledger =
        case.books("lines", 0, json!({ "unauthenticated": 1, "bad_credentials": 1 })).await;
    assert_eq!(ledger["listeners"]["lines"]["received_bytes"], json!(0), "no body was read");
    assert_eq!(ask(&[("Authorization", "Token ci-token")]).await.status, 200);
}

#[tokio::test]
async fn nobody_writes_where_nobody_is_known() {
    let case = Case::start(CI).await;
    let reply =
        send(&case.gateway, "api", "/v1/points", &[], r#"{"name":"exact","value":1}"#).await;
    assert_eq!((reply.status, reply.header("retry-after")), (401, None), "{reply:?}");
    case.datagrams(["exact:1|c"]).await;
    let ledger = case.books("statsd", 1, json!({})).await;
    assert_eq!(ledger["listeners"]["statsd"]["denials"], json!({ "no_principal": 1 }));
    let answer = case.exchange("tsdb", "put exact 1700000000 1 a=b\n").await;
    assert_eq!(answer, "put: illegal argument: nobody who is known here sends this\n");
    // What brings no points is answered as ever.
    for path in ["/api/version", "/api/aggregators", "/api/suggest?type=metrics"] {
        assert_eq!(case.gateway.http("tsdb").get(path).await.status, 200, "{path}");
    }
}

/// Quotas are those of the principal, whichever listener its points come by.
#[tokio::test]
async fn more_than_the_quota_is_denied() {
    let quota = "quota = { points_per_second = 1, burst = 1000, series = 5, body = \"64KiB\" }\n";
    let mut case = Case::start(&[EDGE, quota].concat()).await;
    let rows = |count: usize| {
        let rows = (0..count).map(|n| json!({ "name": format!("build/{}", n % 2), "value": n }));
        serde_json::to_string(&rows.collect::<Vec<_>>()).unwrap()
    };
    let post =
        async |case: &Case, body: &str| send(&case.gateway, "api", "/v1/points", &[], body).await;
    let reply = post(&case, &rows(1001)).await;
    assert_eq!(reply.status, 413, "{reply:?}");
    assert!(reply.body.contains("more than quota.burst allows at once"), "{reply:?}");
    assert_eq!(post(&case, &rows(900)).await.status, 204);
    let reply = post(&case, &rows(900)).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (429, &429.into()));
    let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((600..=800).contains(&seconds), "{reply:?}");
    // What is left is a hundred points, and one more each second, for datagrams and puts as well.
    case.datagrams(["build/0:1|c"; 200]).await;
    let answer = case.exchange("tsdb", "put build/0 1700000000 1 a=b\n".repeat(200)).await;
    assert!(answer.contains("put: illegal argument: the quota of points a second is used up\n"));
    let large = format!("[{}]", " ".repeat(64 << 10));
    assert_eq!(post(&case, &large).await.status, 413);
    // A reload forgives nothing.
    case.gateway.reload(&Case::config(&[EDGE, quota].concat())).await.expect_success();
    assert_eq!(post(&case, &rows(900)).await.status, 429);
    let ledger = case
        .books(
            "api",
            1001 + 900 + 900 + 900,
            json!({ "quota_body": 1, "quota_points_per_second": 3 }),
        )
        .await;
    assert_eq!(ledger["listeners"]["api"]["denials"], json!({ "quota_points_per_second": 2801 }));
    let passed = |listener: &str| ledger["listeners"][listener]["routed"].as_u64().unwrap();
    let all = passed("api") + passed("statsd") + passed("tsdb");
    assert!((1000..=1200).contains(&all), "{ledger}");
}

#[tokio::test]
async fn more_series_than_the_quota_are_denied() {
    let quota = "quota = { series = 3 }\n";
    let case = Case::start(&[EDGE, quota].concat()).await;
    for _ in 0..2 {
        case.datagrams(["build/a:1|c\nbuild/b:1|c\nbuild/a:1|c|#os:x\nbuild/c:1|c"]).await;
    }
    let ledger = case.books("statsd", 8, json!({})).await;
    assert_eq!(ledger["listeners"]["statsd"]["denials"], json!({ "quota_series": 2 }));
    let one_more = r#"[{"name":"build/a","value":1},{"name":"build/d","value":1}]"#;
    let reply = send(&case.gateway, "api", "/v1/points", &[], one_more).await;
    assert_eq!(reply.status, 429, "{reply:?}");
    assert!(reply.body.contains("the quota of series is used up"), "{reply:?}");
    let held = r#"[{"name":"build/a","value":1},{"name":"build/b","value":1}]"#;
    assert_eq!(send(&case.gateway, "api", "/v1/points", &[], held).await.status, 204);
}

#[tokio::test]
async fn senders_are_known_by_their_addresses() {
    let networks = r#"
[principals.near]
networks = ["127.0.0.2/31"]
scopes = ["stats:put-points:*"]
prefix = "near."

[principals.wide]
networks = ["127.0.0.0/8"]
scopes = ["stats:put-points:*"]
prefix = "wide."
"#;
    let case = Case::start(networks).await;
    let from = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"];
    for _ in 0..2 {
        for address in from {
            let socket = UdpSocket::bind(address).await.unwrap();
            socket.send_to(b"u:1|c\nu:2|c", case.gateway.addr("statsd", "udp")).await.unwrap();
        }
    }
    case.books("statsd", 16, json!({})).await;
    let count = |name: &str| case.raw().iter().filter(|row| row.starts_with(name)).count();
    assert_eq!((count("near.u "), count("wide.u ")), (8, 8));
    // So many at once that names are not asked for where they are only for the log.
    for _ in 0..40 {
        for address in from {
            let socket = UdpSocket::bind(address).await.unwrap();
            socket.send_to(b"m:1|c", case.gateway.addr("statsd", "udp")).await.unwrap();
        }
    }
    case.books("statsd", 176, json!({})).await;
    eventually("all are printed", async || count("near.m ") + count("wide.m ") == 160).await;
    assert_eq!((count("near.m "), count("wide.m ")), (80, 80));
    for address in from {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(address.parse().unwrap()).unwrap();
        let to: SocketAddr = case.gateway.addr("tsdb", "tcp");
        let mut stream = socket.connect(to).await.unwrap();
        stream.write_all(b"put t 1700000000 1 a=b\n").await.unwrap();
        stream.shutdown().await.unwrap();
        read_to_end(&mut stream).await;
    }
    case.books("tsdb", 4, json!({})).await;
    assert_eq!((count("near.t"), count("wide.t")), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_known_by_their_certificates() {
    let authority = Authority::new("root");
    let tls = authority.install("l", &authority.issue(&["127.0.0.1"]));
    let tls = format!("tls = {{ {tls}, client_ca = \"{}\" }}\n", authority.ca());
    let listener = |name: &str, protocol: &str| {
        let bind = "bind = [\"tcp://127.0.0.1:0\"]\n";
        format!("[listeners.{name}]\nprotocol = \"{protocol}\"\n{bind}{tls}")
    };
    let principals = "[principals.worker]\nmtls = [\"worker.test\"]\n\
                      scopes = [\"stats:put-points:a\"]\nprefix = \"worker.\"\n";
    let config = [&listener("web", "http"), &listener("lines", "statsd"), principals].concat();
    let case = Case::start(&config).await;
    let (worker, other) = (authority.issue(&["worker.test"]), authority.issue(&["other.test"]));
    for (shown, name, status) in [(&worker, "a", 204), (&worker, "b", 403), (&other, "a", 401)] {
        let url = format!("https://{}/v1/points", case.gateway.addr("web", "tcp"));
        let body = json!({ "name": name, "value": 1 }).to_string();
        let reply = authority.http(Some(shown)).post(url).body(body).send().await.unwrap();
        assert_eq!(reply.status(), status, "{name}");
    }
    for shown in [&worker, &other] {
        let to = case.gateway.addr("lines", "tcp");
        let mut stream = connect(authority.client(Some(shown)), to).await.unwrap();
        stream.write_all(b"a:1|c\nb:1|c\n").await.unwrap();
        stream.shutdown().await.unwrap();
    }
    let ledger = case.books("lines", 4, json!({})).await;
    let denials = &ledger["listeners"]["lines"]["denials"];
    assert_eq!(*denials, json!({ "no_principal": 2, "scope": 1 }));
    let mut rows = case.raw();
    rows.retain(|row| row.ends_with("counter 1.0"));
    assert_eq!(rows, ["worker.a counter 1.0"]);
}

#[tokio::test]
async fn processes_of_this_host_are_known_by_their_user() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let uid = nix::unistd::getuid().as_raw();
    let unix = format!(
        "[listeners.local]\nprotocol = \"statsd\"\nbind = [\"unix://{}\"]\n\
         [principals.me]\nunix = [{{ uid = {uid} }}]\nscopes = [\"stats:put-points:*\"]\nprefix = \"me.\"\n\
         [principals.other]\nunix = [{{ uid = {} }}]\nscopes = [\"stats:put-points:*\"]\n",
        path.display(),
        uid + 1,
    );
    let case = Case::start(&unix).await;
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"a:1|c\n").await.unwrap();
    stream.shutdown().await.unwrap();
    case.books("local", 1, json!({})).await;
    assert_eq!(case.raw(), ["me.a counter 1.0"]);
}

#[tokio::test]
async fn a_route_may_ask_who_sent_it() {
    let routes = "[backends.theirs]\nkind = \"blackhole\"\n\
                  [[routes]]\nname = \"of ci\"\nto = [\"theirs\"]\nmatch = { principal = [\"ci\", \"edge\"] }\n\
                  [[routes]]\nname = \"of edge\"\nto = [\"theirs\"]\nmatch = { principal = \"edge\" }\n";
    let case = Case::start(&[EDGE, CI, routes].concat()).await;
    send(&case.gateway, "api", "/v1/points", &[BEARER], r#"{"name":"exact","value":1}"#)
        .await
        .expect_success();
    case.datagrams(["build/a:1|c", "build/a:1|c"]).await;
    case.books("statsd", 2, json!({})).await;
    let ledger = case.books("api", 1, json!({})).await;
    assert_eq!((&ledger["routes"]["of ci"], &ledger["routes"]["of edge"]), (&3.into(), &2.into()));
    assert_eq!(ledger["backends"]["theirs"]["delivered"], 3);
}

#[tokio::test]
async fn tokens_are_read_again_at_a_reload() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    fs::write(&file, "first\n").unwrap();
    let ci = format!(
        "[principals.ci]\ntokens_file = \"{}\"\nscopes = [\"stats:put-points:*\"]\n",
        file.display()
    );
    let mut case = Case::start(&ci).await;
    let status = async |case: &Case, token: &str| {
        let bearer = format!("Bearer {token}");
        let credentials = [("Authorization", bearer.as_str())];
        send(&case.gateway, "api", "/v1/points", &credentials, r#"{"name":"a","value":1}"#)
            .await
            .status
    };
    assert_eq!((status(&case, "first").await, status(&case, "second").await), (204, 401));
    fs::write(&file, "# rotated\nsecond\n").unwrap();
    let config = Case::config(&ci);
    let reply = case.gateway.reload(&config).await.expect_success();
    assert!(reply.body.contains("principal ci changed"), "{reply:?}");
    assert_eq!((status(&case, "first").await, status(&case, "second").await), (401, 204));
    fs::remove_file(&file).unwrap();
    let reply = case.gateway.reload(&config).await;
    assert_eq!(reply.status, 422, "{reply:?}");
    // Nobody will ever write to it.
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let reply = case.gateway.reload(&config).await;
    assert_eq!(reply.status, 422, "{reply:?}");
    assert!(reply.body.contains("is a pipe; a regular file is wanted"), "{reply:?}");
    assert_eq!(status(&case, "second").await, 204, "a bad file changes nothing");
}

/// A connection is asked again by what the new table says.
#[tokio::test]
async fn an_open_connection_follows_a_reload() {
    let principal = |scope: &str| {
        format!(
            "[principals.edge]\nlisteners = [\"tsdb\"]\nscopes = [\"stats:put-points:{scope}\"]\n"
        )
    };
    let mut case = Case::start(&principal("a")).await;
    let mut stream = case.connect("tsdb").await;
    stream.write_all(b"put a 1700000000 1 h=x\n").await.unwrap();
    case.books("tsdb", 1, json!({})).await;
    case.gateway.reload(&Case::config(&principal("b"))).await.expect_success();
    stream.write_all(b"put a 1700000000 2 h=x\nput b 1700000000 3 h=x\n").await.unwrap();
    let ledger = case.books("tsdb", 3, json!({})).await;
    assert_eq!(ledger["listeners"]["tsdb"]["denied"], 1);
    assert_eq!(case.raw(), ["a{h=x} sample 1", "b{h=x} sample 3"]);
}

/// Another sender's key of the same spelling is another key.
#[tokio::test]
async fn keys_of_requests_belong_to_their_senders() {
    let case = Case::start(&[EDGE, CI].concat()).await;
    let key = ("Idempotency-Key", "k");
    let mine = r#"{"name":"exact","value":1}"#;
    let first = send(&case.gateway, "api", "/v1/points", &[BEARER, key], mine).await;
    let again = send(&case.gateway, "api", "/v1/points", &[BEARER, key], mine).await;
    assert_eq!((first.status, again.status), (204, 204));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    let theirs = send(&case.gateway, "api", "/v1/points", &[key], mine).await;
    assert_eq!(theirs.status, 403, "{theirs:?}");
    let other = r#"{"name":"build/a","value":1}"#;
    assert_eq!(send(&case.gateway, "api", "/v1/points", &[key], other).await.status, 204);
}

#[test]
fn check_and_explain_show_the_gate() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("p.toml");
    fs::write(&file, Case::config(&[EDGE, CI].concat())).unwrap();
    let path = file.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let output = pointsman(&[arguments, &["--config", path]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let check = run(&["check"]);
    for line in [
        "  edge\n     known by   listeners statsd, tsdb, api\n",
        "     may        stats:put-points:build/*\n",
        "     as         task/… before the name; without tag secret; tag pool = linux; reserved tags pool, host\n",
        "  ci\n     known by   2 bearer tokens; users ci\n",
    ] {
        assert!(check.contains(line), "{check}");
    }
    let told = run(&["explain", "--listener", "statsd", "build/a:1|c"]);
    assert!(
        told.contains("gate     passes, edge may write it\nshape    \"task/build/a\""),
        "{told}"
    );
    let told = run(&["explain", "--listener", "statsd", "other:1|c"]);
    assert!(told.contains("gate     denied, scope: the scope stats:put-points:other is"), "{told}");
    assert!(!told.contains("route"), "{told}");
    let told = run(&["explain", "--listener", "lines", "exact v=1"]);
    assert!(told.contains("gate     denied, unauthenticated"), "{told}");
    let told = run(&["explain", "--listener", "lines", "--principal", "ci", "exact v=1"]);
    assert!(told.contains("gate     passes, ci may write it\nroute"), "{told}");
}

/// What a scope forbids cannot be said in other words: in another line, by another protocol's
/// spelling of tags, or with characters that a backend takes for something else.
#[tokio::test]
async fn line_injection_is_no_way_around_a_scope() {
    let sink = UdpSink::start().await;
    let limited = format!(
        "[principals.m]\nlisteners = [\"statsd\", \"tsdb\", \"api\"]\nscopes = [\"stats:put-points:m\"]\n\
         tags = {{ set = {{ pool = \"p\" }}, reserved = [\"pool\"] }}\n\
         [backends.relay]\nkind = \"statsd\"\naddress = \"udp://{}\"\nflush = \"10ms\"\n\
         [[routes]]\nto = [\"relay\"]\n",
        sink.address()
    );
    let case = Case::start(&limited).await;
    let tags =
        json!({ "h": "x|c\nadmin:1|c", "g": "a\r\nput evil 1 1 a=b", "z": "\u{0}\u{1b}[2J" });
    let put = |name: &str, tags: &serde_json::Value| {
        json!({ "metric": name, "timestamp": 1_700_000_000, "value": 1, "tags": tags }).to_string()
    };
    for body in [
        put("m", &tags),
        put("m\nadmin:1|c", &json!({ "a": "b" })),
        put("m:1|c|#pool:evil", &json!({ "a": "b" })),
        put("m", &json!({ "pool": "evil" })),
        put("m", &json!({ "po\\ol": "evil" })),
        put("m", &json!({ "a": "b|#pool:evil" })),
        put("m ", &json!({ "a": "b" })),
    ] {
        for path in ["/api/put", "/v1/points"] {
            send(&case.gateway, "api", path, &[], &body).await;
        }
    }
    case.datagrams([
        "m:1|c\nadmin:1|c",
        "m:1|c\radmin:1|c",
        "m;pool=evil:1|c",
        "m,pool=evil:1|c",
        "m[pool=evil]:1|c",
        "m#pool=evil:1|c",
        "m:1|c|#pool:evil",
        "m:1|c|#a:b|#pool:evil",
        "m:1|c|zz:1|#pool:evil",
        "m:1|c|#p\\ool:evil,\u{2028}pool:evil",
    ])
    .await;
    case.exchange("tsdb", "put m 1 1 a=b\rput admin 1 1 a=b\nput m 1 1 pool=evil\n").await;
    case.datagrams(["m:9|g"]).await;
    let lines = eventually("the last line was relayed", async || {
        Some(sink.lines()).filter(|lines| lines.iter().any(|line| line.starts_with("m:9|g")))
    })
    .await;
    for line in &lines {
        assert!(line.starts_with("m:") || line.starts_with("m."), "{line:?}");
        let (_, tags) = line.split_once("|#").unwrap();
        let tags = tags.split('|').next().unwrap().split(',');
        let pools: Vec<_> = tags.filter(|tag| tag.starts_with("pool")).collect();
        assert_eq!(pools, ["pool:p"], "{line:?}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

#[tokio::test]
async fn secret_in_log_of_principals() {
    let directory = tempfile::tempdir().unwrap();
    let (tokens, password) = (directory.path().join("tokens"), directory.path().join("password"));
    fs::write(&tokens, "S3CR3T-1\n").unwrap();
    fs::write(&password, "S3CR3T-2\n").unwrap();
    let key = directory.path().join("key");
    fs::write(&key, "S3CR3T-8\n").unwrap();
    let principals = format!(
        "[principals.ci]\ntokens = [\"S3CR3T-3\"]\ntokens_file = \"{}\"\nscopes = [\"stats:put-points:*\"]\n\
         basic = [{{ username = \"a\", password = \"S3CR3T-4\" }}, \
                  {{ username = \"b\", password_file = \"{}\" }}]\n\
         hawk = {{ credentials = [{{ id = \"k\", key = \"S3CR3T-7\" }}, \
                  {{ id = \"l\", key_file = \"{}\" }}] }}\n",
        tokens.display(),
        password.display(),
        key.display(),
    );
    let lines = "[listeners.lines]\nprotocol = \"influxdb\"\nbind = [\"tcp://127.0.0.1:0\"]\n";
    let config = Case::config(&[lines, &principals].concat());
    let mut gateway = Gateway::start_with(&config, &["--log-level", "trace"]).await;
    let mut shown = Vec::new();
    let good = ["Bearer S3CR3T-1", "Bearer S3CR3T-3"].map(str::to_owned);
    let good = good.into_iter().chain([coded("a", "S3CR3T-4"), coded("b", "S3CR3T-2")]);
    let wrong = ["Bearer S3CR3T-5".to_owned(), "S3CR3T-5".to_owned(), coded("a", "S3CR3T-5")];
    let good: Vec<_> = good.map(|it| (it, 204)).collect();
    for (value, status) in good.into_iter().chain(wrong.map(|it| (it, 401))) {
        let credentials = [("Authorization", value.as_str())];
        let body = r#"{"name":"a","value":1}"#;
        let path = "/v1/points?token=S3CR3T-5";
        let reply = send(&gateway, "api", path, &credentials, body).await;
        assert_eq!(reply.status, status, "{reply:?}");
        shown.push(format!("{reply:?}"));
    }
    let reply = send(&gateway, "lines", "/write?u=a&p=S3CR3T-5", &[], "a v=1").await;
    assert_eq!(reply.status, 401);
    shown.push(format!("{reply:?}"));
    for page in [
        "/",
        "/metrics",
        "/v1/ledger",
        "/v1/routes",
        "/v1/listeners",
        "/v1/explain?listener=api&line={}",
    ] {
        shown.push(gateway.admin_get(page).await.body);
    }
    let mistakes = [
        "[principals.x]\ntokens = \"S3CR3T-6\"\n",
        "[principals.x]\ntoken = \"S3CR3T-6\"\n",
        "[principals.x]\ntokns = [\"S3CR3T-6\"]\n",
        "[principals.x]\ntokens = [\"S3CR3T-3\"]\n",
        "[principals.x]\ntokens = [\"S3CR3T-6]\n",
        "[principals.x]\nhawk.credentials = [{ id = \"m\", key = 7, kei = \"S3CR3T-6\" }]\n",
        "[principals.x]\nhawk.credentials = [{ id = \"k\", key = \"S3CR3T-6\" }]\n",
        "[principals.x]\nhawk.root_url = \"http://u:S3CR3T-6@h\"\n",
        "[principals.x]\nbasic = [{ username = \"a\", password = [\"S3CR3T-6\"] }]\n",
        "[principals.x]\nbasic = [{ username = \"a\", passwort = \"S3CR3T-6\" }]\n",
        "[principals.x]\nbasic = [{ username = \"c\", password = \"S3CR3T-6\", password_file = \"/x\" }]\n",
    ];
    for mistake in mistakes {
        let reply = gateway.reload(&format!("{config}{mistake}")).await;
        assert_eq!(reply.status, 422, "{mistake} {reply:?}");
        shown.push(reply.body);
    }
    let ended = gateway.terminate().await;
    shown.extend([ended.log, gateway.stdout()]);
    let file = directory.path().join("p.toml");
    for text in std::iter::once(config.clone()).chain(mistakes.map(|it| format!("{config}{it}"))) {
        fs::write(&file, text).unwrap();
        let path = file.to_str().unwrap();
        for arguments in [
            &["check", "--log-level", "trace", "--config", path][..],
            &["explain", "--config", path, "--listener", "api", "--principal", "ci", "{}"],
        ] {
            let output = pointsman(arguments);
            shown.extend([output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()));
        }
    }
    let coded = ["S3CR3T-2", "S3CR3T-4", "S3CR3T-5"].map(|it| [coded("a", it), coded("b", it)]);
    let secrets: Vec<_> = coded.concat().iter().map(|it| it.replace("Basic ", "")).collect();
    for text in &shown {
        for secret in secrets.iter().map(String::as_str).chain(["S3CR3T-"]) {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

/// What a listener of finished tasks shows the broker and the queue; the broker is told it, and refuses.
#[tokio::test]
async fn secret_in_log_of_finished_tasks() {
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("password");
    fs::write(&password, "S3CR3T-1\n").unwrap();
    let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tasks = |broker: &str, tasks: &str| {
        format!(
            "[listeners.tasks]\nprotocol = \"pulse\"\n[listeners.tasks.broker]\n{broker}\n\
             [listeners.tasks.tasks]\n{tasks}\n"
        )
    };
    let place = format!("url = \"amqp://{}\"\nusername = \"u\"\n", broker.local_addr().unwrap());
    let by_file = format!("{place}password_file = \"{}\"", password.display());
    let queue = "root_url = \"http://127.0.0.1:1\"\nclient_id = \"c\"\naccess_token = \"S3CR3T-2\"";
    let config = Case::config(&tasks(&by_file, queue));
    let refusing = tokio::spawn(refuse_login(broker));
    let mut gateway = Gateway::start_with(&config, &["--log-level", "trace"]).await;
    eventually("the broker has refused it", async || gateway.log().contains("ACCESS_REFUSED"))
        .await;
    let mut shown = Vec::new();
    for page in ["/", "/metrics", "/v1/ledger", "/v1/routes", "/v1/listeners"] {
        shown.push(gateway.admin_get(page).await.body);
    }
    let wrong = |broker: &str, queue: &str| Case::config(&tasks(broker, queue));
    let bare = "url = \"amqp://h\"\nusername = \"u\"\n";
    let web = "root_url = \"http://h\"\nclient_id = \"c\"\n";
    let mistakes = [
        wrong("url = \"amqp://u:S3CR3T-3@h\"\nusername = \"u\"\npassword = \"S3CR3T-3\"", queue),
        wrong("url = \"amqp://h?password=S3CR3T-3\"\nusername = \"u\"\npassword = \"p\"", queue),
        wrong("url = \"amqp://u:S3CR3T-3@h:99999\"\nusername = \"u\"\npassword = \"p\"", queue),
        wrong(&format!("{bare}password = [\"S3CR3T-3\"]"), queue),
        wrong(&format!("{bare}pasword = \"S3CR3T-3\""), queue),
        wrong(&format!("{bare}password = \"S3CR3T-3"), queue),
        wrong(&format!("{bare}password = \"S3CR3T-3\"\npassword_file = \"/x\""), queue),
        wrong(&by_file, "root_url = \"http://u:S3CR3T-3@h\""),
        wrong(&by_file, "root_url = \"http://h?token=S3CR3T-3\""),
        wrong(&by_file, &format!("{web}access_token = {{ a = \"S3CR3T-3\" }}")),
        wrong(&by_file, &format!("{web}acces_token = \"S3CR3T-3\"")),
        wrong(&by_file, &format!("{web}access_token = \"S3CR3T-3\"\naccess_token_file = \"/x\"")),
        wrong(&by_file, "root_url = \"http://h\"\naccess_token = \"S3CR3T-3\""),
    ];
    for mistake in &mistakes {
        let reply = gateway.reload(mistake).await;
        assert_eq!(reply.status, 422, "{mistake} {reply:?}");
        shown.push(reply.body);
    }
    let ended = gateway.terminate().await;
    shown.extend([ended.log, gateway.stdout()]);
    let file = directory.path().join("p.toml");
    for text in std::iter::once(&config).chain(&mistakes) {
        fs::write(&file, text).unwrap();
        let output =
            pointsman(&["check", "--log-level", "trace", "--config", file.to_str().unwrap()]);
        shown.extend([output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()));
    }
    refusing.abort();
    assert!(shown.iter().all(|text| !text.contains("S3CR3T-")), "{shown:#?}");
}

/// A broker that listens to the credentials, and then does not want them.
async fn refuse_login(broker: TcpListener) {
    while let Ok((mut stream, _)) = broker.accept().await {
        let heard = amqp::ask_who(&mut stream).await;
        assert!(heard.contains("\0u\0S3CR3T-1"), "{heard:?}");
        amqp::refuse(&mut stream).await;
    }
}

async fn send(
    gateway: &Gateway,
    listener: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Reply {
    gateway.http(listener).send(Method::POST, path, headers, body.into()).await.unwrap()
}

fn coded(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// Lives as long as the test does.
fn basic(user: &str, password: &str) -> (&'static str, &'static str) {
    ("Authorization", coded(user, password).leak())
}

const BEARER: (&str, &str) = ("Authorization", "Bearer ci-token");
const OTHER_BEARER: (&str, &str) = ("Authorization", "bearer other-token");
