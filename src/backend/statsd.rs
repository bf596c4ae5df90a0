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

mod resolve;

use super::{Outcome, Payload, Ship, Shipping};
use crate::books::BackendBook;
use crate::units::{Address, HostPort, Size, Span};
use protocols::statsd::{self, packets};
use resolve::Resolved;
use serde::{Deserialize, Deserializer, de};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket, UnixDatagram, UnixStream};

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
    /// How long a resolved address is trusted before the name is looked up again.
    pub resolve_every: Option<crate::units::Span>,
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
    resolved: Option<Resolved>,
    max_payload: usize,
    connection: Option<Connection>,
    /// How much of a payload of datagrams went out before the kernel refused the next.
    progress: Progress,
    /// Whether the last datagram was one that nobody took.
    refused: bool,
    /// Whether the last stream broke off.
    broken: bool,
    book: Arc<BackendBook>,
}

#[derive(Debug)]
enum Connection {
    Udp(UdpSocket, SocketAddr),
    Unixgram(UnixDatagram),
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// Bytes of the payload born then that are out already, and lines of it that are too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    payload: (usize, i64),
    sent: usize,
    oversized: u32,
}

impl Connection {
    const fn is_stream(&self) -> bool {
        matches!(self, Self::Tcp(..) | Self::Unix(_))
    }
}

impl Shipper {
    /// A shipper; connects when the first payload comes. Must be called on the runtime, since a
    /// host name is looked up in the background from here on.
    ///
    /// # Errors
    ///
    /// A sentence that says which setting cannot be used.
    pub fn new(config: &Config, book: Arc<BackendBook>) -> Result<Self, String> {
        let address: Address = config.address.parse()?;
        let every = config.resolve_every.unwrap_or(RESOLVE_EVERY);
        let resolved = |to: &HostPort| Resolved::watch(&to.to_string(), every.0, &book);
        Ok(Self {
            resolved: address.host_port().map(resolved),
            address,
            max_payload: config.max_payload(),
            connection: None,
            progress: Progress::default(),
            refused: false,
            broken: false,
            book,
        })
    }

    async fn attempt(&mut self, payload: &Payload) -> Outcome {
        // Taken, and put back when all went well: a cancelled attempt leaves no half-used stream.
        let connection = match self.connection.take() {
            Some(connection) if self.fresh(&connection) => connection,
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
        let shipped = match &connection {
            Connection::Udp(..) | Connection::Unixgram(_) => {
                self.datagrams(&connection, payload).await
            }
            Connection::Tcp(..) | Connection::Unix(_) => {
                return self.stream(connection, payload).await;
            }
        };
        self.connection = Some(connection);
        shipped
    }

    /// Whether the name still stands for the peer, and the peer has not hung up.
    fn fresh(&self, connection: &Connection) -> bool {
        let current = |peer: &SocketAddr| {
            self.resolved.as_ref().is_none_or(|resolved| resolved.now() == Some(*peer))
        };
        match connection {
            Connection::Udp(_, peer) => current(peer),
            Connection::Unixgram(_) => true,
            Connection::Tcp(stream, peer) => current(peer) && open(|buf| stream.try_read(buf)),
            Connection::Unix(stream) => open(|buf| stream.try_read(buf)),
        }
    }

    async fn connect(&mut self) -> io::Result<Connection> {
        match &self.address {
            Address::Udp(_) => {
                let peer = self.peer().await?;
                let any: SocketAddr = if peer.is_ipv4() {
                    (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
                } else {
                    (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
                };
                let socket = UdpSocket::bind(any).await?;
                socket.connect(peer).await?;
                Ok(Connection::Udp(socket, peer))
            }
            Address::Tcp(_) => {
                let peer = self.peer().await?;
                let stream = TcpStream::connect(peer).await?;
                stream.set_nodelay(true)?;
                Ok(Connection::Tcp(stream, peer))
            }
            Address::Unixgram(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                Ok(Connection::Unixgram(socket))
            }
            Address::Unix(path) => Ok(Connection::Unix(UnixStream::connect(path).await?)),
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
        let written = match &mut connection {
            Connection::Tcp(stream, _) => stream.write_all(&payload.body).await,
            Connection::Unix(stream) => stream.write_all(&payload.body).await,
            Connection::Udp(..) | Connection::Unixgram(_) => Ok(()),
        };
        match written {
            Ok(()) => {
                self.broken = false;
                self.connection = Some(connection);
                Outcome::Delivered
            }
            Err(error) => self.later("write", &error),
        }
    }

    async fn datagrams(&mut self, connection: &Connection, payload: &Payload) -> Outcome {
        let identity = (payload.body.as_ptr().addr(), payload.born.0);
        if self.progress.payload != identity {
            self.progress = Progress { payload: identity, ..Progress::default() };
        }
        let rest = payload.body.get(self.progress.sent..).unwrap_or(&[]);
        for packet in packets(rest, self.max_payload) {
            match self.send(connection, packet).await {
                Ok(()) => self.refused = false,
                Err(error) if is_too_large(&error) => {
                    self.book.noticed.add("send_too_large", 1);
                    self.progress.oversized += lines(packet);
                }
                Err(error) => {
                    self.refused = true;
                    return self.later("send", &error);
                }
            }
            self.progress.sent += packet.len() + 1;
        }
        let oversized = std::mem::take(&mut self.progress).oversized;
        if oversized == 0 {
            return Outcome::Delivered;
        }
        Outcome::Partial {
            rejected: oversized.min(payload.points),
            reason: "too_large",
            detail: "the kernel takes no datagram of that size; lower max_payload".to_owned(),
        }
    }

    /// Sends a datagram, and hears whether nobody took it.
    async fn send(&self, connection: &Connection, packet: &[u8]) -> io::Result<()> {
        match connection {
            Connection::Udp(socket, _) => {
                socket.send(packet).await?;
                if self.refused {
                    tokio::time::sleep(REPORT_WITHIN).await;
                }
                socket.take_error()?.map_or(Ok(()), Err)
            }
            Connection::Unixgram(socket) => socket.send(packet).await.map(|_| ()),
            Connection::Tcp(..) | Connection::Unix(_) => Ok(()),
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

/// A statsd server never writes, so all there can be to read is the end of the stream. A stream
/// that the peer closed would take one more write and lose it without a word.
fn open(read: impl Fn(&mut [u8]) -> io::Result<usize>) -> bool {
    let mut buffer = [0; 64];
    match read(&mut buffer) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

#[allow(clippy::naive_bytecount)] // One datagram.
fn lines(packet: &[u8]) -> u32 {
    let feeds = packet.iter().filter(|byte| **byte == b'\n').count();
    u32::try_from(feeds + 1).unwrap_or(u32::MAX)
}

fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::errno::Errno::EMSGSIZE as i32)
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

/// As long as the report of a host that is not on another continent takes.
const REPORT_WITHIN: Duration = Duration::from_millis(50);

/// The longest line that goes into a stream: our own listeners' limit.
const STREAM_LINE: usize = 64 << 10;

/// As long as an answer of a resolver may usually be trusted.
const RESOLVE_EVERY: Span = Span::secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::UnixNanos;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    fn shipper(address: String, max_payload: u64) -> Shipper {
        let config = Config {
            address,
            tags: TagDialect::default(),
            max_payload: Some(Size(max_payload)),
            resolve_every: None,
        };
        Shipper::new(&config, Arc::default()).unwrap()
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

    #[tokio::test]
    async fn nobody_there_is_no_loss() {
        let mut shipper = shipper("unix:///nonexistent/pointsman.sock".to_owned(), 1432);
        let outcome = shipper.ship(&payload("a:1|c\n")).await;
        assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
    }
}
