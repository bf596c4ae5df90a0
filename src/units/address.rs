//! Addresses as a configuration writes them: `udp://host:8125`, `unix:///run/x.sock`.
//!
//! One type for listeners and for backends. Reading one says whether it is well-formed; names are
//! looked up by whoever binds or connects, again and again. Errors never repeat what was written,
//! which may hold a password that does not belong there.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where to listen, or whom to send to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// Datagrams over the network.
    Udp(HostPort),
    /// A stream over the network.
    Tcp(HostPort),
    /// Datagrams to a socket in the file system.
    Unixgram(PathBuf),
    /// A stream to a socket in the file system.
    Unix(PathBuf),
}

/// `name:8125`, `127.0.0.1:8125`, `[::1]:8125`; to listen, `:8125` too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// A name or an address, one of IPv6 in its brackets; empty for every address of this host.
    pub host: String,
    /// The port, 0 when the kernel is to choose.
    pub port: u16,
}

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Datagrams over the network.
    Udp,
    /// Streams over the network.
    Tcp,
    /// Datagrams on this host.
    Unixgram,
    /// Streams on this host.
    Unix,
}

impl Address {
    /// How bytes travel.
    pub const fn transport(&self) -> Transport {
        match self {
            Self::Udp(_) => Transport::Udp,
            Self::Tcp(_) => Transport::Tcp,
            Self::Unixgram(_) => Transport::Unixgram,
            Self::Unix(_) => Transport::Unix,
        }
    }

    /// The place in the network.
    pub const fn host_port(&self) -> Option<&HostPort> {
        match self {
            Self::Udp(place) | Self::Tcp(place) => Some(place),
            Self::Unixgram(_) | Self::Unix(_) => None,
        }
    }

    /// The file of a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unixgram(path) | Self::Unix(path) => Some(path),
            Self::Udp(_) | Self::Tcp(_) => None,
        }
    }

    /// Whether something can be sent there: to a host and a port that are said.
    pub fn is_peer(&self) -> bool {
        self.host_port().is_none_or(|to| !to.host.is_empty() && to.port != 0)
    }

    /// Whether two sockets cannot listen on both: the same place, or one that covers the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Udp(a), Self::Udp(b)) | (Self::Tcp(a), Self::Tcp(b)) => a.overlaps(b),
            _ => self.path().is_some() && self.path() == other.path(),
        }
    }
}

impl HostPort {
    fn overlaps(&self, other: &Self) -> bool {
        let everywhere = |host: &str| matches!(host, "" | "0.0.0.0" | "[::]");
        // Port 0 asks for a free port, which is another one each time.
        self.port == other.port
            && self.port != 0
            && (self.host == other.host || everywhere(&self.host) || everywhere(&other.host))
    }
}

impl Transport {
    /// Whether what is sent has borders of its own.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::Unixgram)
    }
}

impl FromStr for Address {
    type Err = String;

    /// # Errors
    ///
    /// A sentence that says what is wrong and how to write it.
    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| how("there is no scheme"))?;
        match scheme {
            "udp" => rest.parse().map(Self::Udp),
            "tcp" => rest.parse().map(Self::Tcp),
            "unixgram" => path(rest).map(Self::Unixgram),
            "unix" => path(rest).map(Self::Unix),
            _ => Err(how(&format!("`{scheme}` is not a transport"))),
        }
    }
}

impl FromStr for HostPort {
    type Err = String;

    /// # Errors
    ///
    /// A sentence that says what is wrong.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('@') {
            return Err("credentials do not belong into an address".to_owned());
        }
        if text.contains(['/', '?', '#']) {
            return Err("only a host and a port may follow".to_owned());
        }
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| "there is no port; write host:port".to_owned())?;
        let fits = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
            None => !host.contains([':', '[', ']', ' ']),
        };
        if !fits {
            let help = "write a name, an IPv4 address or [an IPv6 address]";
            return Err(format!("the host is malformed; {help}"));
        }
        match port.parse() {
            // A number alone may begin with a sign.
            Ok(number) if !port.starts_with('+') => {
                Ok(Self { host: host.to_owned(), port: number })
            }
            _ => Err("the port is not a number from 0 to 65535".to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.transport())?;
        match self {
            Self::Udp(place) | Self::Tcp(place) => place.fmt(f),
            Self::Unixgram(path) | Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
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

fn path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err(how("there is no path")),
        relative if !relative.starts_with('/') => {
            Err("the path of a socket is absolute: three slashes".to_owned())
        }
        long if long.len() > UNIX_PATH_MAX => {
            Err("a socket's path is at most 107 bytes long".to_owned())
        }
        path => Ok(PathBuf::from(path)),
    }
}

fn how(what: &str) -> String {
    format!("{what}; write for example \"udp://127.0.0.1:8125\" or \"unix:///run/pointsman.sock\"")
}

/// `sockaddr_un` has room for 108 bytes, the closing zero among them.
const UNIX_PATH_MAX: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_alike() {
        for text in [
            "udp://127.0.0.1:8125",
            "tcp://[::1]:0",
            "udp://statsd.internal:8125",
            "unixgram:///run/pointsman/statsd.sock",
            "tcp://:8125",
            "unix:///tmp/x",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_malformed_is_named() {
        for (text, says) in [
            ("127.0.0.1:8125", "no scheme"),
            ("http://x:1", "`http` is not a transport"),
            ("udp://host", "no port"),
            ("udp://::1:8125", "host is malformed"),
            ("udp://[nonsense]:8125", "host is malformed"),
            ("tcp://h:65536", "0 to 65535"),
            ("tcp://h:+1", "0 to 65535"),
            ("tcp://h:1/x", "only a host and a port"),
            ("tcp://me:S3CR3T@h:1", "credentials"),
            ("unix://", "no path"),
            ("unix://run/x", "three slashes"),
            (&format!("unix:///{}", "x".repeat(107)), "107 bytes"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
            assert!(!error.contains("S3CR3T"));
        }
    }

    #[test]
    fn a_peer_has_a_host_and_a_port() {
        for (text, expected) in [
            ("udp://h:1", true),
            ("tcp://[::1]:1", true),
            ("udp://:1", false),
            ("udp://h:0", false),
            ("unix:///x", true),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().is_peer(), expected, "{text}");
        }
    }

    #[test]
    fn sockets_that_cannot_live_side_by_side() {
        for (a, b, expected) in [
            ("udp://127.0.0.1:1", "udp://127.0.0.1:1", true),
            ("udp://0.0.0.0:1", "udp://127.0.0.1:1", true),
            ("tcp://[::]:1", "tcp://127.0.0.1:1", true),
            ("udp://127.0.0.1:1", "tcp://127.0.0.1:1", false),
            ("udp://127.0.0.1:1", "udp://127.0.0.1:2", false),
            ("udp://127.0.0.1:0", "udp://127.0.0.1:0", false),
            ("unix:///a", "unixgram:///a", true),
            ("unix:///a", "unix:///b", false),
        ] {
            let (a, b): (Address, Address) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!((a.overlaps(&b), b.overlaps(&a)), (expected, expected), "{a} {b}");
        }
    }
}
