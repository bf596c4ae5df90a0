//! Where a statsd server is: `udp://host:8125`, `tcp://…`, `unixgram:///path`, `unix:///path`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a statsd server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Datagrams to `host:port`.
    Udp(String),
    /// A stream to `host:port`.
    Tcp(String),
    /// Datagrams to a Unix socket.
    Unixgram(PathBuf),
    /// A stream to a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// The `host:port` to look up.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Udp(host) | Self::Tcp(host) => Some(host),
            Self::Unixgram(_) | Self::Unix(_) => None,
        }
    }

    /// Whether lines are cut into datagrams.
    pub const fn is_datagram(&self) -> bool {
        matches!(self, Self::Udp(_) | Self::Unixgram(_))
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| usage(text))?;
        match scheme {
            "udp" => host_port(rest).map(Self::Udp),
            "tcp" => host_port(rest).map(Self::Tcp),
            "unixgram" if !rest.is_empty() => Ok(Self::Unixgram(rest.into())),
            "unix" if !rest.is_empty() => Ok(Self::Unix(rest.into())),
            _ => Err(usage(text)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(host) => write!(f, "udp://{host}"),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            Self::Unixgram(path) => write!(f, "unixgram://{}", path.display()),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

fn host_port(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("`{text}` has no port"))?;
    let bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    if host.is_empty() || bare_v6 {
        return Err(format!("`{text}` needs a host before the port; write IPv6 as [::1]:8125"));
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(text.to_owned()),
        _ => Err(format!("`{port}` is not a port")),
    }
}

fn usage(text: &str) -> String {
    format!(
        "`{text}` is not an address; write udp://host:8125, tcp://host:8125, \
         unixgram:///path or unix:///path"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_they_were_written() {
        for text in ["udp://h:1", "tcp://[::1]:8125", "unixgram:///run/s.sock", "unix:///s"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "h:1",
            "udp://h",
            "udp://:1",
            "udp://::1:8125",
            "udp://h:0",
            "udp://h:x",
            "http://h:1",
            "unix://",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
