//! Addresses as a configuration writes them: `udp://host:8125`, `unix:///run/x.sock`.
//!
//! This only says whether they are well-formed, and which of them exclude each other. Names
//! are looked up by whoever binds or connects, again and again.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where to listen, or whom to send to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// Datagrams to `host:port`.
    Udp(String),
    /// A stream to `host:port`.
    Tcp(String),
    /// Datagrams to a socket in the file system.
    Unixgram(PathBuf),
    /// A stream to a socket in the file system.
    Unix(PathBuf),
}

impl Address {
    /// The scheme: `udp`, `tcp`, `unixgram`, `unix`.
    pub const fn transport(&self) -> &'static str {
        match self {
            Self::Udp(_) => "udp",
            Self::Tcp(_) => "tcp",
            Self::Unixgram(_) => "unixgram",
            Self::Unix(_) => "unix",
        }
    }

    /// Whether something can be sent there: to a host and a port that are said.
    pub fn is_peer(&self) -> bool {
        match self {
            Self::Udp(to) | Self::Tcp(to) => !to.starts_with(':') && !to.ends_with(":0"),
            Self::Unixgram(_) | Self::Unix(_) => true,
        }
    }

    /// Whether two sockets cannot listen on both: the same place, or one that covers the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Udp(a), Self::Udp(b)) | (Self::Tcp(a), Self::Tcp(b)) => ports_overlap(a, b),
            (Self::Unixgram(a) | Self::Unix(a), Self::Unixgram(b) | Self::Unix(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = self.transport();
        match self {
            Self::Udp(host_port) | Self::Tcp(host_port) => write!(f, "{transport}://{host_port}"),
            Self::Unixgram(path) | Self::Unix(path) => {
                write!(f, "{transport}://{}", path.display())
            }
        }
    }
}

impl FromStr for Address {
    type Err = String;

    /// # Errors
    ///
    /// A sentence that says what is wrong and how to write it. It never repeats what may be a
    /// password.
    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| how("there is no scheme"))?;
        match scheme {
            "udp" => host_port(rest).map(Self::Udp),
            "tcp" => host_port(rest).map(Self::Tcp),
            "unixgram" => path(rest).map(Self::Unixgram),
            "unix" => path(rest).map(Self::Unix),
            _ => Err(how(&format!("`{scheme}` is not a transport"))),
        }
    }
}

/// Checks `host:port`, `[v6]:port` without looking the name up.
///
/// # Errors
///
/// A sentence that says what is wrong.
pub fn host_port(text: &str) -> Result<String, String> {
    if text.contains('@') {
        return Err("credentials do not belong into an address".to_owned());
    }
    if text.contains(['/', '?', '#']) {
        return Err("only a host and a port may follow".to_owned());
    }
    let (host, port) =
        text.rsplit_once(':').ok_or_else(|| "there is no port; write host:port".to_owned())?;
    let is_v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let fits = match is_v6 {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.contains([':', '[', ']', ' ']),
    };
    if !fits {
        return Err(
            "the host is malformed; write a name, an IPv4 address or [an IPv6 address]".to_owned()
        );
    }
    match port.parse::<u16>() {
        Ok(_) if port.bytes().all(|b| b.is_ascii_digit()) => Ok(text.to_owned()),
        _ => Err("the port is not a number from 0 to 65535".to_owned()),
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

fn ports_overlap(a: &str, b: &str) -> bool {
    let (Some((a_host, a_port)), Some((b_host, b_port))) = (a.rsplit_once(':'), b.rsplit_once(':'))
    else {
        return false;
    };
    let everywhere = |host: &str| matches!(host, "" | "0.0.0.0" | "[::]");
    // Port 0 asks for a free port, which is another one each time.
    a_port == b_port
        && a_port != "0"
        && (a_host == b_host || everywhere(a_host) || everywhere(b_host))
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
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
            assert!(!error.contains("S3CR3T"));
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
