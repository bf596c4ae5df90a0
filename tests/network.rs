//! Addresses, names and connections: both families, a name that moves, a peer that hangs up, a
//! port that is taken.
//!
//! Tests that need another resolver or another host make a network of their own, for which one
//! has to be root; they say so and are skipped otherwise.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Answer, FakeHttp, Gateway, Neighbour, UdpSink, eventually, in_own_network};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn ipv6_bind_takes_the_families_that_it_says() {
    if UdpSocket::bind("[::1]:0").await.is_err() {
        eprintln!("skipped: this host has no IPv6");
        return;
    }
    for (host, four, six) in [
        ("", true, true),
        ("0.0.0.0", true, false),
        ("[::]", true, true),
        ("[::1]", false, true),
        ("127.0.0.1", true, false),
        ("localhost", true, true),
    ] {
        reached_by(host, [four, six]).await;
    }
}

#[test]
fn ipv6_bind_does_without_where_there_is_none() {
    in_own_network(|| async {
        // Nothing of IPv6 is left in here, not even ::1.
        std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        for host in ["", "0.0.0.0", "[::]"] {
            reached_by(host, [true, false]).await;
        }
        let gateway = reached_by("localhost", [true, false]).await;
        assert!(gateway.log().contains("no IPv6 on this host"), "{}", gateway.log());
    });
}

/// Sends to listeners with this host by IPv4 and by IPv6: statsd over UDP and TCP, and HTTP. They
/// must be reached by those of the two `families` that are wanted and by no other.
async fn reached_by(host: &str, families: [bool; 2]) -> Gateway {
    let gateway = Gateway::start(&format!(
        "{ADMIN}[listeners.statsd]\nprotocol = 'statsd'\n\
         bind = ['udp://{host}:0', 'tcp://{host}:0']\n\
         [listeners.api]\nprotocol = 'http'\nbind = ['tcp://{host}:0']\n\
         [backends.b]\nkind = 'stdout'\nflush = '10ms'\n[[routes]]\nto = ['b']\n"
    ))
    .await;
    for (family, loopback) in ["127.0.0.1", "[::1]"].into_iter().enumerate() {
        let at = |name: &str, transport: &str| {
            format!("{loopback}:{}", gateway.addr(name, transport).port())
        };
        let http = format!("{{\"name\":\"http{family}\",\"value\":1}}");
        let head = format!("POST /v1/points HTTP/1.1\r\nHost: {loopback}\r\n");
        let http = format!("{head}Content-Length: {}\r\n\r\n{http}", http.len());
        let heard = [
            datagram(&at("statsd", "udp"), &format!("udp{family}:1|c")).await,
            stream(&at("statsd", "tcp"), &format!("tcp{family}:1|c\n")).await,
            stream(&at("api", "tcp"), &http).await,
        ];
        if families[family] {
            assert_eq!(heard, [true; 3], "bind {host:?}, sent to {loopback}");
        } else {
            assert_eq!(heard[1..], [false; 2], "bind {host:?}, sent to {loopback}");
        }
    }
    let names = |family: usize| ["udp", "tcp", "http"].map(|kind| format!("\"{kind}{family}\""));
    for (family, wanted) in families.into_iter().enumerate() {
        if wanted {
            eventually("what was sent has come out", async || {
                names(family).iter().all(|name| gateway.stdout().contains(name))
            })
            .await;
        }
    }
    for (family, wanted) in families.into_iter().enumerate() {
        let out = gateway.stdout();
        let came = names(family).iter().any(|name| out.contains(name));
        assert_eq!(came, wanted, "bind {host:?}: {out}");
    }
    gateway
}

/// Whether the kernel took it, which says little.
async fn datagram(to: &str, text: &str) -> bool {
    let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let Ok(socket) = UdpSocket::bind(any).await else { return false };
    socket.send_to(text.as_bytes(), to).await.is_ok()
}

/// Whether somebody listened.
async fn stream(to: &str, text: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(to).await else { return false };
    stream.write_all(text.as_bytes()).await.unwrap();
    true
}

/// A client that is refused before it has sent all hears why, and that its connection ends.
#[tokio::test]
async fn an_answer_before_the_body_has_come_is_read() {
    let gateway = Gateway::start(&format!(
        "{ADMIN}[listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n\
         limits = {{ body = '1MiB' }}\n{BLACKHOLE}\
         [principals.p]\ntokens = ['t']\nscopes = ['*']\n"
    ))
    .await;
    let token = "Authorization: Bearer t\r\n";
    for (start, headers, status) in [
        ("POST /v1/points", "", 401),
        ("POST /api/put", "Authorization: Bearer x\r\n", 401),
        ("POST /nowhere", token, 404),
        ("DELETE /v1/points", token, 405),
        ("POST /v1/points", &format!("{token}Content-Encoding: br\r\n"), 415),
        ("POST /v1/points", &format!("{token}Content-Type: text/csv\r\n"), 415),
        ("POST /v1/points", token, 413),
    ] {
        let mut stream = TcpStream::connect(gateway.addr("api", "tcp")).await.unwrap();
        let body = vec![b' '; 2 << 20];
        let head = format!("{start} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", body.len());
        stream.write_all(format!("{head}{headers}\r\n").as_bytes()).await.unwrap();
        // It does not read before it has sent all.
        stream.write_all(&body).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let code = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&code), "{start} {headers}: {answer}");
        assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    }
    assert!(!gateway.log().contains("\"peer\":\"unknown\""), "{}", gateway.log());
    // A small body costs nobody his connection.
    let mut stream = TcpStream::connect(gateway.addr("api", "tcp")).await.unwrap();
    for _ in 0..3 {
        let head = "POST /v1/points HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(b"[{}]").await.unwrap();
        let mut answer = String::new();
        while !answer.ends_with("}}") {
            answer.push(char::from(stream.read_u8().await.unwrap()));
        }
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert!(!answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn port_in_use_is_an_error_that_names_the_way_out() {
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = tcp.local_addr().map(|address| (tcp, address)).unwrap();
    let udp = udp.local_addr().map(|address| (udp, address)).unwrap();
    let free = "127.0.0.1:0";
    for (statsd, api, admin, names) in [
        (udp.1.to_string(), free.into(), free.into(), ["`statsd`", "listeners.statsd.bind"]),
        (free.into(), tcp.1.to_string(), free.into(), ["`api`", "listeners.api.bind"]),
        (free.into(), free.into(), tcp.1.to_string(), ["`admin`", "admin.bind"]),
    ] {
        let config = format!(
            "[admin]\nbind = '{admin}'\n\
             [listeners.statsd]\nprotocol = 'statsd'\nbind = ['udp://{statsd}']\n\
             [listeners.api]\nprotocol = 'http'\nbind = ['tcp://{api}']\n{BLACKHOLE}"
        );
        let Err(ended) = Gateway::try_start(&config).await else { panic!("it started: {config}") };
        assert_eq!(ended.status.code(), Some(1));
        let port = [&statsd, &api, &admin].into_iter().find(|bind| *bind != free).unwrap();
        for part in [port.as_str(), names[0], names[1], "another program is using it"] {
            assert!(ended.log.contains(part), "{} does not say {part}", ended.log);
        }
    }
}

#[tokio::test]
async fn stale_keepalive_a_server_that_hangs_up_after_each_answer() {
    let influx = FakeHttp::start((0..1000).map(|_| Answer::status(204).last())).await;
    let gateway = Gateway::start(&relay_to(&influxdb(&influx.url()))).await;
    for number in 0..10 {
        post(&gateway, number).await;
        delivered(&gateway, number + 1).await;
    }
    assert_eq!(numbers(&influx), (0..10).collect::<Vec<_>>(), "none lost, none twice");
}

#[tokio::test]
async fn stale_keepalive_a_server_that_restarts_on_its_port() {
    let influx = FakeHttp::start([]).await;
    let address = influx.address();
    let gateway = Gateway::start(&relay_to(&influxdb(&influx.url()))).await;
    post(&gateway, 0).await;
    delivered(&gateway, 1).await;
    assert_eq!(numbers(&influx), [0]);
    drop(influx);

    let influx = FakeHttp::start_at(address, []).await;
    post(&gateway, 1).await;
    delivered(&gateway, 2).await;
    post(&gateway, 2).await;
    delivered(&gateway, 3).await;
    assert_eq!(numbers(&influx), [1, 2], "none lost, none twice");
    let retries = gateway.metrics().await.sum("pointsman_delivery_retries_total", &[]);
    assert!(retries <= 1.0, "{retries} failed attempts");
}

#[test]
fn udp_bind_forward_reaches_another_host_by_both_families() {
    in_own_network(|| async {
        let targets = ["10.9.0.2:8125", "[fd00:9::2]:8125"].map(|text| text.parse().unwrap());
        let neighbour = Neighbour::start(
            &["10.9.0.1/24", "fd00:9::1/64"],
            &["10.9.0.2/24", "fd00:9::2/64"],
            &targets,
        )
        .await;
        let sinks: Vec<_> = neighbour.sockets.into_iter().map(UdpSink::on).collect();
        let section = |(name, target): (&str, SocketAddr)| {
            format!(
                "[backends.{name}]\nkind = 'statsd'\naddress = 'udp://{target}'\nflush = '10ms'\n"
            )
        };
        let sections = [("four", targets[0]), ("six", targets[1])].map(section).concat();
        let gateway =
            Gateway::start(&format!("{ADMIN}{STATSD}{sections}[[routes]]\nto = ['four', 'six']\n"))
                .await;
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(b"a:1|c", gateway.addr("statsd", "udp")).await.unwrap();
        for sink in &sinks {
            eventually("the neighbour hears it", async || sink.lines() == ["a:1|c"]).await;
        }
    });
}

#[test]
fn dns_change_is_followed_by_statsd_over_udp() {
    in_own_network(|| async {
        let (first, second) = ("127.0.0.2:8125", "127.0.0.3:8125");
        let (first, second) = (first.parse().unwrap(), second.parse().unwrap());
        let resolver = Resolver::start(Ipv4Addr::new(127, 0, 0, 2)).await;
        let before = UdpSink::start_at(first).await;
        let after = UdpSink::start_at(second).await;
        let gateway = Gateway::start(&relay_to(
            "[backends.b]\nkind = 'statsd'\naddress = 'udp://be.test:8125'\nflush = '10ms'\n\
             resolve_every = '2s'\n",
        ))
        .await;
        let began = Instant::now();
        let arrives = async |sink: &UdpSink, name: &str| {
            eventually(&format!("{name} arrives"), async || {
                tell(&gateway, name).await;
                sink.lines().iter().any(|line| line.starts_with(name))
            })
            .await;
        };
        arrives(&before, "one").await;

        drop(before); // (c): simply no listener any more.
        resolver.answer(Some(Ipv4Addr::new(127, 0, 0, 3)));
        arrives(&after, "two").await;

        resolver.answer(None);
        let failures =
            async || gateway.ledger().await["backends"]["b"]["noticed"]["dns_failure"].as_u64();
        eventually("a lookup fails and is counted", async || failures().await >= Some(1)).await;
        arrives(&after, "three").await;
        // Failed lookups are repeated by the C library itself, so they are left out.
        let (lookups, periods) = (resolver.answered(), began.elapsed().as_secs() / 2);
        assert!(lookups as u64 <= periods + 1, "{lookups} lookups in {periods} times 2 s");
    });
}

#[test]
fn dns_change_is_followed_by_influxdb_when_the_old_host_has_gone() {
    dns_change_over_http(|_| {});
}

#[test]
fn dns_change_is_followed_by_influxdb_when_the_old_host_is_a_black_hole() {
    dns_change_over_http(|before| {
        (0..100).for_each(|_| before.then(Answer::hang()));
        std::mem::forget(before);
    });
}

/// The name cannot be looked up any more, and the server closes each connection: the last address
/// is good enough, and each failure is counted. At the start there is no last one, so points wait.
#[test]
fn dns_change_to_nothing_is_an_outage_only_at_the_start() {
    in_own_network(|| async {
        let resolver = Resolver::start(Ipv4Addr::new(127, 0, 0, 2)).await;
        resolver.answer(None);
        let script = (0..100).map(|_| Answer::status(204).last());
        let server = FakeHttp::start_at("127.0.0.2:8086".parse().unwrap(), script).await;
        let section = influxdb("http://be.test:8086").replace("'1s'", "'5s'");
        let gateway = Gateway::start(&relay_to(&section)).await;
        let book = async || gateway.ledger().await["backends"]["b"].take();
        post(&gateway, 0).await;
        eventually("the backend is ill", async || book().await["ill"].is_string()).await;
        assert_eq!(book().await["held"]["total"], 1);
        let ill = gateway.metrics().await.sum("pointsman_backend_healthy", &[("backend", "b")]);
        assert_eq!(ill, 0.0);

        resolver.answer(Some(Ipv4Addr::new(127, 0, 0, 2)));
        delivered(&gateway, 1).await;
        let failures = book().await["noticed"]["dns_failure"].as_u64().unwrap();
        resolver.answer(None);
        post(&gateway, 1).await;
        delivered(&gateway, 2).await;
        assert_eq!(numbers(&server), [0, 1], "none lost, none twice");
        let book = book().await;
        assert!(book["noticed"]["dns_failure"].as_u64() > Some(failures), "{book}");
        assert_eq!((&book["ill"], &book["balanced"]), (&Value::Null, &true.into()), "{book}");
    });
}

/// Neither a reset nor an error comes back: connections that are open fall silent, and new ones are
/// never opened. Points wait until the cable is mended, and the other backend knows of nothing.
#[test]
fn dead_backend_behind_a_cable_that_is_cut() {
    in_own_network(|| async {
        let far = "10.9.0.2";
        let target = format!("{far}:8086").parse().unwrap();
        let neighbour = Neighbour::start(&["10.9.0.1/24"], &["10.9.0.2/24"], &[target]).await;
        let server = FakeHttp::on(neighbour.listeners.into_iter().next().unwrap());
        let near = FakeHttp::start([]).await;
        let other = influxdb(&near.url()).replace("backends.b", "backends.near");
        let sections = format!("{}{other}", influxdb(&format!("http://{target}")));
        let config = relay_to(&sections).replace("to = ['b']", "to = ['b', 'near']");
        let gateway = Gateway::start(&config).await;
        let book = async || gateway.ledger().await["backends"]["b"].take();
        post(&gateway, 0).await;
        delivered(&gateway, 1).await;

        Neighbour::cut(far);
        for number in 1..10 {
            post(&gateway, number).await;
        }
        eventually("it was tried by open and by new connections", async || {
            book().await["retries"].as_u64() >= Some(2)
        })
        .await;
        let cut = book().await;
        assert_eq!(
            (&cut["ill"], &cut["held"]["total"]),
            (&"no answer within 1s".into(), &9.into())
        );
        eventually("the other has all", async || numbers(&near).len() == 10).await;

        Neighbour::mend(far);
        delivered(&gateway, 10).await;
        let mut all = numbers(&server);
        all.dedup();
        assert_eq!(all, (0..10).collect::<Vec<_>>(), "in order, and none is lost");
        let book = book().await;
        assert_eq!((&book["ill"], &book["dropped"]), (&Value::Null, &serde_json::json!({})));
    });
}

/// `leave` is what becomes of the old host; dropped, it has gone.
fn dns_change_over_http(leave: impl FnOnce(FakeHttp) + Send + 'static) {
    in_own_network(|| async {
        let resolver = Resolver::start(Ipv4Addr::new(127, 0, 0, 2)).await;
        let before = FakeHttp::start_at("127.0.0.2:8086".parse().unwrap(), []).await;
        let after = FakeHttp::start_at("127.0.0.3:8086".parse().unwrap(), []).await;
        let gateway = Gateway::start(&relay_to(&influxdb("http://be.test:8086"))).await;
        post(&gateway, 0).await;
        delivered(&gateway, 1).await;
        assert_eq!(numbers(&before), [0]);

        resolver.answer(Some(Ipv4Addr::new(127, 0, 0, 3)));
        leave(before);
        // A failed attempt costs the timeout of 1 s, and a look-up.
        post(&gateway, 1).await;
        post(&gateway, 2).await;
        delivered(&gateway, 3).await;
        assert_eq!(numbers(&after), [1, 2]);
    });
}

/// A resolver at 127.0.0.1:53 that knows one name, and an answer for it that the test may change.
struct Resolver {
    state: Arc<Mutex<Known>>,
    _task: JoinSet<()>,
}

struct Known {
    address: Option<Ipv4Addr>,
    answered: usize,
}

impl Resolver {
    async fn start(address: Ipv4Addr) -> Resolver {
        let socket = UdpSocket::bind("127.0.0.1:53").await.unwrap();
        let state = Arc::new(Mutex::new(Known { address: Some(address), answered: 0 }));
        let mut task = JoinSet::new();
        task.spawn(resolve(socket, Arc::clone(&state)));
        Resolver { state, _task: task }
    }

    /// Without an address, every lookup fails from now on.
    fn answer(&self, address: Option<Ipv4Addr>) {
        self.state.lock().unwrap().address = address;
    }

    /// How many lookups of an IPv4 address were answered with one.
    fn answered(&self) -> usize {
        self.state.lock().unwrap().answered
    }
}

async fn resolve(socket: UdpSocket, state: Arc<Mutex<Known>>) {
    let mut query = [0; 512];
    while let Ok((length, peer)) = socket.recv_from(&mut query).await {
        let reply = reply(&query[..length], &mut state.lock().unwrap());
        socket.send_to(&reply, peer).await.unwrap();
    }
}

/// A reply as RFC 1035 §4 has it: the header and the question of the query, and one address with
/// a TTL of 2 s if that was asked for.
fn reply(query: &[u8], known: &mut Known) -> Vec<u8> {
    let name = query[12..].iter().position(|byte| *byte == 0).unwrap();
    let question = &query[12..12 + name + 5];
    let is_known = question.starts_with(b"\x02be\x04test\0");
    let wants_four = question[name + 1..name + 3] == [0, 1];
    let code = match known.address {
        None => SERVER_FAILURE,
        Some(_) if is_known => 0,
        Some(_) => NO_SUCH_NAME,
    };
    let address = known.address.filter(|_| is_known && wants_four);
    let answers = u8::from(address.is_some());
    let mut reply = query[..2].to_vec();
    reply.extend([0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0]);
    reply.extend(question);
    if let Some(address) = address {
        known.answered += 1;
        // The name is the one at byte 12; type A, class IN, TTL, length.
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 2, 0, 4]);
        reply.extend(address.octets());
    }
    reply
}

async fn tell(gateway: &Gateway, name: &str) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let line = format!("{name}:1|c");
    socket.send_to(line.as_bytes(), gateway.addr("statsd", "udp")).await.unwrap();
    sleep(Duration::from_millis(50)).await;
}

async fn post(gateway: &Gateway, number: u64) {
    let point = format!("{{\"name\":\"n\",\"value\":{number}}}");
    gateway.http("api").post("/v1/points", point).await.expect_success();
}

async fn delivered(gateway: &Gateway, points: u64) {
    eventually(&format!("{points} points are delivered"), async || {
        gateway.ledger().await["backends"]["b"]["delivered"] == points
    })
    .await;
}

/// The values of the points that the server has been sent, in order.
fn numbers(server: &FakeHttp) -> Vec<u64> {
    let requests = server.received();
    let lines = requests.iter().flat_map(|request| request.body.lines());
    let value = |line: &str| {
        let value = line.split_once("value=").unwrap().1.split_once(' ').unwrap().0;
        value.parse::<f64>().unwrap() as u64
    };
    lines.map(value).collect()
}

/// Everything goes to the backend `b`.
fn relay_to(b: &str) -> String {
    format!(
        "{ADMIN}{STATSD}[listeners.api]\nprotocol = 'http'\nbind = ['tcp://127.0.0.1:0']\n\
         {b}[[routes]]\nto = ['b']\n"
    )
}

fn influxdb(url: &str) -> String {
    format!(
        "[backends.b]\nkind = 'influxdb'\nurl = '{url}'\ndatabase = 'd'\naggregate = false\n\
         flush = '10ms'\ntimeout = '1s'\nretry = {{ first = '20ms', max = '100ms' }}\n"
    )
}

const ADMIN: &str = "[admin]\nbind = '127.0.0.1:0'\n";

const STATSD: &str = "[listeners.statsd]\nprotocol = 'statsd'\nbind = ['udp://127.0.0.1:0']\n";

const BLACKHOLE: &str = "[backends.b]\nkind = 'blackhole'\n[[routes]]\nto = ['b']\n";

const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
