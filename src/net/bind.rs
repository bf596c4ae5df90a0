//! Addresses as a configuration writes them, and the sockets that each of them means.
//!
//! | written | bound |
//! |---|---|
//! | `udp://127.0.0.1:8125`, `tcp://[::1]:8125` | that address |
//! | `tcp://:8125`, `tcp://[::]:8125` | both families on one socket; IPv4 alone on a host without IPv6 |
//! | `udp://localhost:8125` | 127.0.0.1 and, where there is IPv6, ::1 |
//! | `tcp://name:8125` | every address that the name has now |
//! | `unixgram:///run/x.sock`, `unix:///run/x.sock` | a datagram or a stream socket in the file system |
//!
//! Port 0 lets the kernel choose. Nothing is opened here.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One entry of `bind`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BindAddr {
    transport: Transport,
    place: Place,
}

/// How bytes arrive on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Datagrams from the network.
    Udp,
    /// Streams from the network.
    Tcp,
    /// Datagrams from this host.
    Unixgram,
    /// Streams from this host.
    Unix,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Any { port: u16 },
    Localhost { port: u16 },
    Address(SocketAddr),
    Name { host: String, port: u16 },
    Path(PathBuf),
}

/// One socket to open for an address of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) address: SocketAddr,
    pub(super) without_ipv6: WithoutIpv6,
}

/// What to do on a host that has no IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WithoutIpv6 {
    Fail,
    Skip,
    Instead(SocketAddr),
}

/// Why a text is no address to bind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no address to listen on: {problem}")]
pub struct BindAddrError {
    text: String,
    problem: &'static str,
}

impl BindAddr {
    /// Reads `host:port` as an address for TCP streams.
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn tcp(text: &str) -> Result<Self, BindAddrError> {
        let place = network(text).map_err(|problem| BindAddrError::new(text, problem))?;
        Ok(Self { transport: Transport::Tcp, place })
    }

    /// How bytes arrive.
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// The file of a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Path(path) => Some(path),
            _ => None,
        }
    }

    /// The port, 0 when the kernel is to choose.
    pub fn port(&self) -> Option<u16> {
        match &self.place {
            Place::Any { port } | Place::Localhost { port } | Place::Name { port, .. } => {
                Some(*port)
            }
            Place::Address(address) => Some(address.port()),
            Place::Path(_) => None,
        }
    }

    /// The sockets to open; asks the resolver (and waits for it) if the host is a name.
    pub(super) fn spots(&self) -> io::Result<Vec<Spot>> {
        Ok(match &self.place {
            Place::Any { port } => vec![Spot::both_families(*port)],
            Place::Address(address) if address.ip() == Ipv6Addr::UNSPECIFIED => {
                vec![Spot::both_families(address.port())]
            }
            Place::Address(address) => vec![Spot::just(*address)],
            Place::Localhost { port } => Spot::loopbacks(*port).to_vec(),
            Place::Name { host, port } => {
                let mut addresses: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
                addresses.sort();
                addresses.dedup();
                addresses.into_iter().map(Spot::just).collect()
            }
            Place::Path(_) => Vec::new(),
        })
    }
}

impl Spot {
    fn just(address: SocketAddr) -> Self {
        Self { address, without_ipv6: WithoutIpv6::Fail }
    }

    fn both_families(port: u16) -> Self {
        let instead = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        Self {
            address: SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
            without_ipv6: WithoutIpv6::Instead(instead),
        }
    }

    fn loopbacks(port: u16) -> [Self; 2] {
        let six = IpAddr::V6(Ipv6Addr::LOCALHOST);
        [
            Self::just(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            Self { address: SocketAddr::new(six, port), without_ipv6: WithoutIpv6::Skip },
        ]
    }
}

impl FromStr for BindAddr {
    type Err = BindAddrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|problem| BindAddrError::new(text, problem))
    }
}

impl BindAddrError {
    fn new(text: &str, problem: &'static str) -> Self {
        Self { text: text.to_owned(), problem }
    }
}

fn parse(text: &str) -> Result<BindAddr, &'static str> {
    let (scheme, rest) = text.split_once("://").ok_or(NO_SCHEME)?;
    let transport = match scheme {
        "udp" => Transport::Udp,
        "tcp" => Transport::Tcp,
        "unixgram" => Transport::Unixgram,
        "unix" => Transport::Unix,
        _ => return Err(NO_SCHEME),
    };
    let place = match transport {
        Transport::Udp | Transport::Tcp => network(rest)?,
        Transport::Unixgram | Transport::Unix => path(rest)?,
    };
    Ok(BindAddr { transport, place })
}

fn network(text: &str) -> Result<Place, &'static str> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Place::Address(address));
    }
    let (host, port) = text.rsplit_once(':').ok_or("there is no port; write host:port")?;
    let port = port.parse().map_err(|_| "the port is not a number from 0 to 65535")?;
    match host {
        "" => Ok(Place::Any { port }),
        "localhost" => Ok(Place::Localhost { port }),
        _ if host.contains(':') => Err("write an IPv6 address in brackets: [::1]:8125"),
        _ if host.contains(['/', '[', ']', '@', ' ']) => Err("the host is not a name"),
        _ => Ok(Place::Name { host: host.to_owned(), port }),
    }
}

fn path(text: &str) -> Result<Place, &'static str> {
    if !text.starts_with('/') {
        return Err("write an absolute path, with three slashes: unix:///run/x.sock");
    }
    if text.len() > UNIX_PATH_MAX {
        return Err("the path is longer than the 107 bytes that a Unix socket may have");
    }
    Ok(Place::Path(PathBuf::from(text)))
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Unixgram => "unixgram",
            Self::Unix => "unix",
        })
    }
}

impl fmt::Display for BindAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.transport)?;
        match &self.place {
            Place::Any { port } => write!(f, ":{port}"),
            Place::Localhost { port } => write!(f, "localhost:{port}"),
            Place::Address(address) => write!(f, "{address}"),
            Place::Name { host, port } => write!(f, "{host}:{port}"),
            Place::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// `sockaddr_un` has room for 108 bytes, the closing zero among them.
const UNIX_PATH_MAX: usize = 107;

const NO_SCHEME: &str = "begin it with udp://, tcp://, unixgram:// or unix://";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_prints_as_it_was_written() {
        for text in [
            "udp://127.0.0.1:8125",
            "tcp://[::1]:0",
            "tcp://:8125",
            "udp://localhost:8125",
            "tcp://gateway.internal:4242",
            "unixgram:///run/pointsman/statsd.sock",
            "unix:///x",
        ] {
            assert_eq!(text.parse::<BindAddr>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_wrong_address_says_what_is_wrong() {
        for (text, part) in [
            ("127.0.0.1:8125", "begin it with udp://"),
            ("http://127.0.0.1:8125", "begin it with udp://"),
            ("udp://127.0.0.1", "no port"),
            ("udp://127.0.0.1:99999", "0 to 65535"),
            ("udp://::1:8125", "brackets"),
            ("tcp://user@host:1", "not a name"),
            ("unix://run/x.sock", "three slashes"),
            ("unix://", "three slashes"),
        ] {
            let error = text.parse::<BindAddr>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(part), "{error}");
        }
        let long = format!("unix:///{}", "x".repeat(107));
        assert!(long.parse::<BindAddr>().unwrap_err().to_string().contains("107"));
    }

    #[test]
    fn each_host_means_its_sockets() {
        let check = |text: &str, expected: &[&str]| {
            let spots = text.parse::<BindAddr>().unwrap().spots().unwrap();
            let got: Vec<_> = spots.iter().map(|spot| spot.address.to_string()).collect();
            assert_eq!(got, expected, "{text}");
        };
        check("udp://0.0.0.0:1", &["0.0.0.0:1"]);
        check("udp://:1", &["[::]:1"]);
        check("udp://[::]:1", &["[::]:1"]);
        check("tcp://localhost:1", &["127.0.0.1:1", "[::1]:1"]);
        check("tcp://[::1]:1", &["[::1]:1"]);
        check("unix:///x", &[]);
    }
}
