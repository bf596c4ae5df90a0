//! `pointsman send`: a test point by any protocol, or a command timed and its time sent.
//!
//! ```text
//! pointsman send statsd --name build.time --tag os=linux -- make all
//! ```
//!
//! Lines are written by the same encoders that backends use. The exit status is that of the
//! command, if there was one: to be timed changes nothing for it.

use crate::client;
use crate::clock::Clock;
use clap::ValueEnum;
use protocols::statsd::TagDialect;
use protocols::{Batch, Encode, Measure, Number, UnixNanos, opentsdb, statsd};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// By which protocol.
    pub protocol: Protocol,
    /// `host:port` or an address with its scheme; by default the protocol's port on this host.
    pub to: Option<String>,
    /// The roots to trust over https, if not the system's.
    pub ca: Option<PathBuf>,
    /// The series' name.
    pub name: String,
    /// The value, unless a command is timed.
    pub value: f64,
    /// Its tags.
    pub tags: Vec<(String, String)>,
    /// The command to time.
    pub command: Vec<String>,
}

/// A protocol to send by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// `name:1|c` over UDP; over TCP to tcp://host:port.
    Statsd,
    /// `put name time value tags` over TCP.
    Opentsdb,
    /// A JSON point over HTTP.
    Http,
}

/// What was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// That of the command, if there was one.
    pub status: u8,
    to: String,
    wire: String,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sent to {}: {}", self.to, self.wire.trim_end())
    }
}

/// Runs the command, if there is one, and sends.
///
/// # Errors
///
/// What went wrong, as a sentence that says where.
pub fn send(message: &Message) -> Result<Sent, String> {
    let (status, millis) = match message.command.split_first() {
        Some((program, arguments)) => timed(program, arguments)?,
        None => (0, None),
    };
    let to = message.to.clone().unwrap_or_else(|| message.protocol.usual().to_owned());
    let wire = message.wire(millis, Clock::System)?;
    let delivered = deliver(message, &to, &wire);
    let to = client::shown(&to).to_owned();
    delivered.map_err(|error| format!("to {to}: {error}"))?;
    Ok(Sent { status, to, wire: String::from_utf8_lossy(&wire).into_owned() })
}

fn timed(program: &str, arguments: &[String]) -> Result<(u8, Option<f64>), String> {
    let began = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .status()
        .map_err(|error| format!("cannot run `{program}`: {error}"))?;
    let millis = began.elapsed().as_secs_f64() * 1e3;
    // A command that a signal ended has no status of its own.
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok((code, Some(millis)))
}

impl Message {
    /// The bytes to send. A command that was timed makes a timer where the protocol has timers.
    fn wire(&self, millis: Option<f64>, clock: Clock) -> Result<Vec<u8>, String> {
        let value = millis.unwrap_or(self.value);
        match self.protocol {
            Protocol::Statsd => {
                let measure = match millis {
                    Some(ms) => Measure::Timing { ms, rate: 1.0 },
                    None => Measure::Count { delta: value, rate: 1.0 },
                };
                let encoder = statsd::Encoder::new(TagDialect::Dogstatsd, LINE_MAX);
                self.encoded(measure, None, encoder)
            }
            Protocol::Opentsdb => {
                let measure = Measure::Reading(Number::F64(value));
                self.encoded(measure, Some(clock.now()), opentsdb::Encoder::new())
            }
            Protocol::Http => Ok(self.json(value, millis.is_some())),
        }
    }

    fn encoded(
        &self,
        measure: Measure<'_>,
        time: Option<UnixNanos>,
        mut encoder: impl Encode,
    ) -> Result<Vec<u8>, String> {
        let mut batch = Batch::new();
        let mut writer = batch.begin(&self.name);
        for (key, value) in &self.tags {
            writer.tag(key, Some(value));
        }
        writer.finish(measure, time, "");
        drop(writer);
        let point = batch.point(0).ok_or("there is no point")?;
        let mut wire = Vec::new();
        encoder.encode(&point, &mut wire).map_err(|skip| skip.to_string())?;
        Ok(wire)
    }

    fn json(&self, value: f64, timed: bool) -> Vec<u8> {
        let tags: BTreeMap<_, _> = self.tags.iter().cloned().collect();
        let mut point = json!({ "name": self.name, "tags": tags, "value": value });
        if let (Some(point), true) = (point.as_object_mut(), timed) {
            point.insert("type".to_owned(), "timer".into());
        }
        point.to_string().into_bytes()
    }
}

impl Protocol {
    const fn usual(self) -> &'static str {
        match self {
            Self::Statsd => "127.0.0.1:8125",
            Self::Opentsdb => "127.0.0.1:4242",
            Self::Http => "127.0.0.1:8080",
        }
    }
}

fn deliver(message: &Message, to: &str, wire: &[u8]) -> io::Result<()> {
    // Addresses are shown with their scheme, and copied with it.
    let (scheme, place) =
        to.split_once("://").map_or((None, to), |(scheme, place)| (Some(scheme), place));
    match (message.protocol, scheme) {
        (Protocol::Statsd, None | Some("udp")) => by_udp(place, wire),
        (Protocol::Statsd | Protocol::Opentsdb, Some("tcp")) | (Protocol::Opentsdb, None) => {
            by_tcp(place, wire)
        }
        (Protocol::Http, _) => post(to, message.ca.as_deref(), wire.to_vec()),
        // Sent in another way than it says, it would be told as sent and never arrive.
        (Protocol::Statsd, _) => Err(io::Error::other("statsd is sent to udp:// or tcp://")),
        (Protocol::Opentsdb, _) => Err(io::Error::other("opentsdb is sent to tcp://")),
    }
}

fn by_udp(place: &str, wire: &[u8]) -> io::Result<()> {
    let peer = place.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0))?.send_to(wire, peer).map(|_| ())
}

fn by_tcp(place: &str, wire: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect(place)?;
    stream.write_all(wire)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    refusal(&mut stream)
}

/// A line that was taken is answered by nothing at all, so whatever is read is a complaint.
fn refusal(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reply = String::new();
    // A peer that keeps the connection open has not complained either.
    let _ = io::Read::read_to_string(stream, &mut reply);
    if reply.is_empty() { Ok(()) } else { Err(io::Error::other(reply.trim().to_owned())) }
}

fn post(to: &str, ca: Option<&Path>, body: Vec<u8>) -> io::Result<()> {
    let url = match to.split_once("://") {
        Some(("http" | "https", _)) => to.to_owned(),
        Some((_, place)) => format!("http://{place}"),
        None => format!("http://{to}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let builder = client::http(&url, ca).map_err(io::Error::other)?.timeout(PATIENCE);
        let client = builder.build().map_err(io::Error::other)?;
        let request = client.post(format!("{}/v1/points", url.trim_end_matches('/')));
        let request = request.header("content-type", "application/json").body(body);
        let response =
            request.send().await.map_err(|error| io::Error::other(client::cause(&error)))?;
        if response.status().is_success() {
            return Ok(());
        }
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        Err(io::Error::other(format!("{status} {}", text.trim_end())))
    })
}

const LINE_MAX: usize = 1432;
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(protocol: Protocol, millis: Option<f64>) -> String {
        let message = Message {
            protocol,
            to: None,
            ca: None,
            name: "a.b".into(),
            value: 1.5,
            tags: vec![("os".into(), "linux".into())],
            command: Vec::new(),
        };
        let start = tokio::time::Instant::now();
        let clock = Clock::Tokio { epoch: UnixNanos::from_secs(1_700_000_000), start };
        String::from_utf8(message.wire(millis, clock).unwrap()).unwrap()
    }

    #[test]
    fn each_protocol_says_it_its_own_way() {
        assert_eq!(wire(Protocol::Statsd, None), "a.b:1.5|c|#os:linux\n");
        assert_eq!(wire(Protocol::Statsd, Some(20.0)), "a.b:20|ms|#os:linux\n");
        assert!(wire(Protocol::Opentsdb, None).starts_with("put a.b 17000000"));
        assert_eq!(
            wire(Protocol::Http, None),
            r#"{"name":"a.b","tags":{"os":"linux"},"value":1.5}"#
        );
        assert!(wire(Protocol::Http, Some(20.0)).contains(r#""type":"timer","value":20.0"#));
    }

    #[test]
    fn it_is_sent_as_the_address_says_or_not_at_all() {
        let send_to = |protocol, to: String| {
            send(&Message {
                protocol,
                to: Some(to),
                ca: None,
                name: "a".into(),
                value: 1.0,
                tags: Vec::new(),
                command: Vec::new(),
            })
        };
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(send_to(Protocol::Statsd, format!("tcp://{closed}")).is_err(), "nobody listens");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let taken = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut text = String::new();
            io::Read::read_to_string(&mut stream, &mut text).unwrap();
            text
        });
        send_to(Protocol::Statsd, format!("tcp://{at}")).unwrap();
        assert_eq!(taken.join().unwrap(), "a:1|c\n");
        for (protocol, scheme, said) in [
            (Protocol::Statsd, "https", "to https://h:1: statsd is sent to udp:// or tcp://"),
            (Protocol::Statsd, "unixgram", "to unixgram://h:1: statsd is sent to udp:// or tcp://"),
            (Protocol::Opentsdb, "http", "to http://h:1: opentsdb is sent to tcp://"),
        ] {
            assert_eq!(send_to(protocol, format!("{scheme}://h:1")).unwrap_err(), said);
        }
    }

    #[test]
    fn a_command_keeps_its_exit_status() {
        let (status, millis) = timed("sh", &["-c".into(), "exit 7".into()]).unwrap();
        assert_eq!(status, 7);
        assert!(millis.unwrap() > 0.0);
        assert!(timed("no-such-program-here", &[]).is_err());
    }
}
