//! A statsd server: kinds, units, rates and tags are relayed as received.
//!
//! Datagrams are cut at line borders. When the kernel reports that nobody listens, the rest of
//! the payload waits in the queue, and what nobody took is sent again. Of a peer on this host the
//! kernel knows at once. One farther away answers later: what was sent until the first report is
//! lost and cannot be known, and from then on each datagram is given time for its answer. Streams
//! are written whole payload by whole payload, and one that broke off is sent again. What either
//! kernel had taken and the peer never read is lost with the peer; statsd answers nothing, so
//! `reconnected` counts how often that may have been.
//!
//! Noticed in the backend's book: `send_refused`, `send_too_large`, `send_unreachable`,
//! `send_other` by kind of socket error, `dns_failure`, `reconnected`.

mod calls;
mod connection;
mod datagrams;
mod resolve;

use super::{Outcome, Payload, Ship, Shipping};
use crate::books::BackendBook;
use crate::tls::{Client, ClientSettings};
use crate::units::{Address, HostPort, Size, Span};
use connection::Connection;
use datagrams::Datagrams;
use protocols::statsd;
use resolve::Resolved;
use serde::{Deserialize, Deserializer, de};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

/// What is particular to this kind of backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `udp://host:8125`, `tcp://host:8125`, `unixgram:///path` or `unix:///path`.
    #[serde(deserialize_with = "one_address")]
    pub address: String,
    /// How tags are written.
    #[serde(default)]
    pub tags: TagDialect,
    /// The largest datagram, cut at line borders.
    pub max_payload: Option<Size>,
    /// Whether UDP datagrams are filled up to that size with blank lines.
    #[serde(default)]
    pub fill: bool,
    /// How long a resolved address is trusted before the name is looked up again.
    pub resolve_every: Option<crate::units::Span>,
    /// TLS, over `tcp://`.
    pub tls: Option<ClientSettings>,
}

/// How tags are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TagDialect {
    /// `name:1|c|#k:v`.
    #[default]
    Dogstatsd,
    /// `name,k=v:1|c`.
    Influxdb,
    /// `name;k=v:1|c`.
    Graphite,
    /// Tags are left out.
    None,
}

impl Config {
    /// What writes the lines. One that fits in no datagram is refused as it is written.
    pub fn encoder(&self) -> statsd::Encoder {
        let dialect = match self.tags {
            TagDialect::Dogstatsd => statsd::TagDialect::Dogstatsd,
            TagDialect::Influxdb => statsd::TagDialect::Influxdb,
            TagDialect::Graphite => statsd::TagDialect::Graphite,
            TagDialect::None => statsd::TagDialect::None,
        };
        let datagrams =
            self.address.parse::<Address>().is_ok_and(|address| address.transport().is_datagram());
        statsd::Encoder::new(dialect, if datagrams { self.max_payload() } else { STREAM_LINE })
    }

    fn max_payload(&self) -> usize {
        self.max_payload.unwrap_or(MAX_PAYLOAD).bytes()
    }
}

/// Ships payloads to one statsd server.
#[derive(Debug)]
pub struct Shipper {
    address: Address,
    tls: Option<Client>,
    resolved: Option<Resolved>,
    connection: Option<Connection>,
    datagrams: Datagrams,
    /// Whether the last stream broke off.
    broken: bool,
    book: Arc<BackendBook>,
}

impl Shipper {
    /// A shipper; connects when the first payload comes. Must be called on the runtime, since a
    /// host name is looked up in the background from here on.
    ///
    /// # Errors
    ///
    /// A sentence that says which setting cannot be used.
    pub fn new(
        config: &Config,
        book: Arc<BackendBook>,
        tls: Option<Client>,
    ) -> Result<Self, String> {
        let address: Address = config.address.parse()?;
        let every = config.resolve_every.unwrap_or(RESOLVE_EVERY);
        let resolved = |to: &HostPort| Resolved::watch(&to.to_string(), every.0, &book);
        Ok(Self {
            resolved: address.host_port().map(resolved),
            address,
            tls,
            connection: None,
            datagrams: Datagrams::new(config.max_payload(), config.fill, Arc::clone(&book)),
            broken: false,
            book,
        })
    }

    async fn attempt(&mut self, payload: &Payload) -> Outcome {
        // Taken, and put back when all went well: a cancelled attempt leaves no half-used stream.
        let mut before = self.connection.take();
        let is_fresh = before.as_mut().is_some_and(|connection| self.fresh(connection));
        let connection = match before {
            Some(connection) if is_fresh => connection,
            before => {
                self.broken |= before.is_some_and(|before| before.is_stream());
                match self.connect().await {
                    Ok(connection) => connection,
                    Err(error) => return self.later("connect", &error),
                }
            }
        };
        if std::mem::take(&mut self.broken) {
            self.book.noticed.add("reconnected", 1);
        }
        if connection.is_stream() {
            return self.stream(connection, payload).await;
        }
        let shipped = self.packets(&connection, payload).await;
        // A server that comes back has another socket under the same path.
        let is_dead = connection.peer().is_none() && matches!(shipped, Outcome::Retry { .. });
        self.connection = Some(connection).filter(|_| !is_dead);
        shipped
    }

    /// Whether the name still stands for the peer, and the peer has not hung up.
    fn fresh(&self, connection: &mut Connection) -> bool {
        let resolved = self.resolved.as_ref().filter(|_| connection.peer().is_some());
        resolved.is_none_or(|resolved| resolved.now() == connection.peer()) && connection.is_open()
    }

    async fn connect(&mut self) -> io::Result<Connection> {
        match &self.address {
            Address::Udp(_) => Connection::udp(self.peer().await?).await,
            Address::Tcp(to) => {
                let host = to.host.clone();
                let connection = Connection::tcp(self.peer().await?).await?;
                match &self.tls {
                    Some(tls) => connection.secure(tls, &host).await,
                    None => Ok(connection),
                }
            }
            Address::Unixgram(path) => Connection::unixgram(path),
            Address::Unix(path) => Connection::unix(path).await,
        }
    }

    async fn peer(&mut self) -> io::Result<SocketAddr> {
        match &mut self.resolved {
            Some(resolved) => resolved.first().await,
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    async fn stream(&mut self, mut connection: Connection, payload: &Payload) -> Outcome {
        // Until all is written; an attempt may be cut short.
        self.broken = true;
        match connection.write_all(&payload.body).await {
            Ok(()) => {
                self.broken = false;
                self.connection = Some(connection);
                Outcome::Delivered
            }
            Err(error) => self.later("write", &error),
        }
    }

    async fn packets(&mut self, connection: &Connection, payload: &Payload) -> Outcome {
        let Some(socket) = connection.datagrams() else { return Outcome::Delivered };
        match self.datagrams.send(socket, payload).await {
            Ok(0) => Outcome::Delivered,
            Ok(oversized) => Outcome::Partial {
                rejected: oversized.min(payload.points),
                reason: "too_large",
                detail: "the kernel takes no datagram of that size; lower max_payload".to_owned(),
            },
            Err(error) => self.later("send", &error),
        }
    }

    fn later(&self, doing: &str, error: &io::Error) -> Outcome {
        self.book.noticed.add(kind(error), 1);
        Outcome::not_now(format!("{doing} {}: {error}", self.address))
    }
}

impl Ship for Shipper {
    fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a> {
        Box::pin(self.attempt(payload))
    }
}

fn kind(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => "send_refused",
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => "send_unreachable",
        _ => "send_other",
    }
}

/// A list is what other backends can have, so it is told why this one cannot.
fn one_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Address;
    impl<'de> de::Visitor<'de> for Address {
        type Value = String;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, _: A) -> Result<String, A::Error> {
            Err(de::Error::custom(
                "a statsd backend has one address, since a counter that is split over two servers \
                 is wrong on both; make a backend of each: a route to both gives each of them \
                 everything, routes by name share the load",
            ))
        }
    }
    deserializer.deserialize_any(Address)
}

/// What an Ethernet frame holds after the headers of IPv6 and UDP, with room for a tunnel.
pub const MAX_PAYLOAD: Size = Size(1432);

/// The longest line that goes into a stream: our own listeners' limit.
const STREAM_LINE: usize = 64 << 10;

/// As long as an answer of a resolver may usually be trusted.
const RESOLVE_EVERY: Span = Span::secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::UnixNanos;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, UdpSocket, UnixDatagram};

    fn shipper(address: String, max_payload: u64) -> Shipper {
        let config = Config {
            address,
            tags: TagDialect::default(),
            max_payload: Some(Size(max_payload)),
            fill: false,
            resolve_every: None,
            tls: None,
        };
        Shipper::new(&config, Arc::default(), None).unwrap()
    }

    fn payload(body: &'static str) -> Payload {
        let points = u32::try_from(body.lines().count()).unwrap();
        Payload::new(body, points, UnixNanos(1))
    }

    async fn received(socket: &UdpSocket) -> String {
        let mut buffer = [0; 2048];
        let length = socket.recv(&mut buffer).await.unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[tokio::test]
    async fn datagrams_are_cut_at_line_borders() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let server = UdpSocket::bind(host).await.unwrap();
            let address = server.local_addr().unwrap();
            let mut shipper = shipper(format!("udp://{address}"), 12);
            let outcome = shipper.ship(&payload("aa:1|c\nbb:2|c\ncc:3|c\n")).await;
            assert_eq!(outcome, Outcome::Delivered);
            for line in ["aa:1|c", "bb:2|c", "cc:3|c"] {
                assert_eq!(received(&server).await, line);
            }
        }
    }

    #[tokio::test]
    async fn what_the_kernel_refuses_waits_and_nothing_is_sent_twice() {
        // An address that no other test uses, so that nobody takes the port in between.
        let server = UdpSocket::bind("127.77.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let mut shipper = shipper(format!("udp://{address}"), 6);
        let first = payload("a:1|c\nb:1|c\nc:1|c\n");
        drop(server);
        for attempt in 1..=3 {
            let outcome = shipper.ship(&first).await;
            assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
            assert_eq!(shipper.book.noticed.counts(), [("send_refused", attempt)]);
        }
        let server = UdpSocket::bind(address).await.unwrap();
        assert_eq!(shipper.ship(&first).await, Outcome::Delivered);
        for line in ["a:1|c", "b:1|c", "c:1|c"] {
            assert_eq!(received(&server).await, line);
        }
    }

    /// What is too large for any datagram stays counted when a later one has to wait.
    #[tokio::test]
    async fn an_interrupted_payload_remembers_what_was_too_large() {
        let server = UdpSocket::bind("127.77.0.2:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let mut shipper = shipper(format!("udp://{address}"), 100_000);
        let large = format!("{}:1|c", "a".repeat(70_000));
        let body = format!("{large}\n{}:1|c\n", "b".repeat(40_000));
        let payload = Payload::new(body, 2, UnixNanos(1));
        drop(server);
        let outcome = shipper.ship(&payload).await;
        assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
        let _server = UdpSocket::bind(address).await.unwrap();
        let outcome = shipper.ship(&payload).await;
        assert!(matches!(outcome, Outcome::Partial { rejected: 1, .. }), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_stream_that_the_peer_closed_is_opened_again_before_anything_is_lost() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut shipper = shipper(format!("tcp://{}", server.local_addr().unwrap()), 1432);
        for round in 0..3 {
            let (outcome, accepted) =
                tokio::join!(async { shipper.attempt(&payload("a:1|c\n")).await }, server.accept());
            assert_eq!(outcome, Outcome::Delivered, "round {round}");
            let mut stream = accepted.unwrap().0;
            let mut line = [0; 6];
            stream.read_exact(&mut line).await.unwrap();
            assert_eq!(&line, b"a:1|c\n");
            drop(stream);
            let Some(Connection::Tcp(client, _)) = &shipper.connection else { panic!("a stream") };
            client.readable().await.unwrap();
        }
        assert_eq!(shipper.book.noticed.counts(), [("reconnected", 2)]);
    }

    #[tokio::test]
    async fn unix_sockets_are_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let server = UnixDatagram::bind(&path).unwrap();
        let mut shipper = shipper(format!("unixgram://{}", path.display()), 1432);
        assert_eq!(shipper.ship(&payload("a:1|c\nb:1|c\n")).await, Outcome::Delivered);
        let mut buffer = [0; 64];
        let length = server.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"a:1|c\nb:1|c");
    }

    /// The kernel cuts no messages for Unix sockets, and says nothing.
    #[tokio::test]
    async fn equal_datagrams_go_to_a_unix_socket_one_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let server = UnixDatagram::bind(&path).unwrap();
        let mut shipper = shipper(format!("unixgram://{}", path.display()), 5);
        let lines = "a:1|c\nb:1|c\nc:1|c\nd:1|c\ne:1|c\n";
        assert_eq!(shipper.ship(&payload(lines)).await, Outcome::Delivered);
        for line in lines.lines() {
            let mut buffer = [0; 64];
            let length = server.recv(&mut buffer).await.unwrap();
            assert_eq!(str::from_utf8(&buffer[..length]), Ok(line));
        }
    }

    #[tokio::test]
    async fn a_unix_server_that_comes_back_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let server = UnixDatagram::bind(&path).unwrap();
        let mut shipper = shipper(format!("unixgram://{}", path.display()), 1432);
        assert_eq!(shipper.ship(&payload("a:1|c\n")).await, Outcome::Delivered);
        drop(server);
        let next = payload("b:1|c\nc:1|c\n");
        for _ in 0..2 {
            let outcome = shipper.ship(&next).await;
            assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
        }
        std::fs::remove_file(&path).unwrap();
        let server = UnixDatagram::bind(&path).unwrap();
        assert_eq!(shipper.ship(&next).await, Outcome::Delivered);
        let mut buffer = [0; 64];
        let length = server.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"b:1|c\nc:1|c");
    }

    /// The kernel stops a call where it has a report, and tells nobody what it was.
    #[tokio::test]
    async fn a_server_that_goes_away_within_a_payload_gets_the_rest_when_it_is_back() {
        for widths in [1, 7] {
            // Equal datagrams go out together, others one by one.
            let lines: Vec<_> =
                (100..500).map(|n| format!("{n:x<0$}:1|c", 3 + n % widths)).collect();
            let payload = Payload::new(lines.join("\n") + "\n", 400, UnixNanos(1));
            let server = listener("127.77.0.3:0");
            let address = server.local_addr().unwrap();
            let mut shipper = shipper(format!("udp://{address}"), 10);
            let heard = async {
                let mut heard = Vec::new();
                while heard.is_empty() {
                    tokio::task::yield_now().await;
                    heard = heard_by(&server);
                }
                drop(server);
                heard
            };
            let (outcome, mut heard) = tokio::join!(biased; shipper.ship(&payload), heard);
            assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
            assert!(!heard.is_empty() && heard.len() < 400);
            let outcome = shipper.ship(&payload).await;
            assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
            let server = listener(&address.to_string());
            assert_eq!(shipper.ship(&payload).await, Outcome::Delivered);
            heard.extend(heard_by(&server));
            assert_eq!(heard, lines);
        }
    }

    fn listener(address: &str) -> std::net::UdpSocket {
        let socket = std::net::UdpSocket::bind(address).unwrap();
        // The most that any kernel gives: small datagrams take much of it.
        socket2::SockRef::from(&socket).set_recv_buffer_size(208 << 10).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    /// The datagrams that are there.
    fn heard_by(server: &std::net::UdpSocket) -> Vec<String> {
        let mut buffer = [0; 2048];
        let datagrams = std::iter::from_fn(|| {
            let length = server.recv(&mut buffer).ok()?;
            Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
        });
        datagrams.collect()
    }

    #[tokio::test]
    async fn nobody_there_is_no_loss() {
        let mut shipper = shipper("unix:///nonexistent/pointsman.sock".to_owned(), 1432);
        let outcome = shipper.ship(&payload("a:1|c\n")).await;
        assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
    }
}
