//! Where to send, as it is typed: `udp://host:port`, `tcp://host:port`, `http://host:port/path`.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A socket, or a path behind one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Udp(SocketAddr),
    Tcp(SocketAddr),
    Http { socket: SocketAddr, path: String },
}

impl Address {
    /// The socket, of whatever sort.
    pub const fn socket(&self) -> SocketAddr {
        match self {
            Self::Udp(socket) | Self::Tcp(socket) | Self::Http { socket, .. } => *socket,
        }
    }
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (scheme, rest) = text.split_once("://").context("wanted udp://, tcp:// or http://")?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let socket = host
            .to_socket_addrs()
            .with_context(|| format!("'{host}' is no host:port"))?
            .next()
            .with_context(|| format!("'{host}' has no address"))?;
        match scheme {
            "udp" => Ok(Self::Udp(socket)),
            "tcp" => Ok(Self::Tcp(socket)),
            "http" => Ok(Self::Http { socket, path: path.to_owned() }),
            other => bail!("'{other}://' is not udp://, tcp:// or http://"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(socket) => write!(f, "udp://{socket}"),
            Self::Tcp(socket) => write!(f, "tcp://{socket}"),
            Self::Http { socket, path } => write!(f, "http://{socket}{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in ["udp://127.0.0.1:8125", "tcp://[::1]:4242", "http://127.0.0.1:8080/v1/points"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["127.0.0.1:8125", "ftp://127.0.0.1:1", "udp://127.0.0.1"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
