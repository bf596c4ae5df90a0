//! Connections, one after the other, from TCP and Unix sockets alike, and with TLS.
//!
//! Limits on how many there are, and how long they last, are the caller's.

use super::secured::Secured;
use super::socket::Socket;
use crate::tls::{PeerCertificate, Refusal, Server};
use nix::sys::socket::{MsgFlags, recv};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::sleep;

/// A socket that connections arrive at.
#[derive(Debug)]
pub enum Acceptor {
    /// From the network.
    Tcp(TcpListener),
    /// From this host.
    Unix(UnixListener),
}

/// One connection.
#[derive(Debug)]
pub enum Stream {
    /// From the network.
    Tcp(TcpStream),
    /// From this host.
    Unix(UnixStream),
    /// From the network, with TLS.
    Tls(Box<Secured>),
}

/// Who is at the other end, for people to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An address of the network.
    Net(SocketAddr),
    /// Some process on this host.
    Local,
    /// A process on this host, as the kernel knows it.
    User {
        /// The number of its user.
        uid: u32,
        /// The number of its first group.
        gid: u32,
    },
}

impl Acceptor {
    /// Takes a bound socket into the runtime; `None` for sockets of datagrams.
    ///
    /// # Errors
    ///
    /// What the runtime says.
    pub fn new(socket: Socket) -> io::Result<Option<Self>> {
        Ok(match socket {
            Socket::Tcp(listener) => Some(Self::Tcp(TcpListener::from_std(listener)?)),
            Socket::Unix(listener) => Some(Self::Unix(UnixListener::from_std(listener)?)),
            Socket::Udp(..) | Socket::Unixgram(_) => None,
        })
    }

    /// The next connection; of those that fail, `failed` is told. Safe to cancel.
    ///
    /// One may break before it is ours, or the process be out of descriptors: then `accept` fails at
    /// once again, so there is a pause.
    pub async fn next(&self, failed: impl Fn(io::Error)) -> (Stream, Peer) {
        loop {
            match self.accept().await {
                Ok(accepted) => return accepted,
                Err(error) => failed(error),
            }
            sleep(RETRY_AFTER).await;
        }
    }

    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Answers are short and wanted at once; a socket that refuses still works.
                let _ = stream.set_nodelay(true);
                Ok((Stream::Tcp(stream), Peer::from(peer)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred().map(|user| (user.uid(), user.gid()));
                let peer = user.map_or(Peer::Local, |(uid, gid)| Peer::User { uid, gid });
                Ok((Stream::Unix(stream), peer))
            }
        }
    }
}

impl Stream {
    /// The same with TLS, once the handshake has come to its end, which it may take so long for.
    /// What does not come from the network stays as it is.
    ///
    /// # Errors
    ///
    /// Why there is no stream any more.
    pub async fn secure(self, server: &Server, patience: Duration) -> Result<Self, Refusal> {
        match self {
            Self::Tcp(stream) => {
                let secured = Secured::shake_hands(stream, server, patience).await?;
                Ok(Self::Tls(Box::new(secured)))
            }
            other => Ok(other),
        }
    }

    /// Whom the certificate names that the peer has proved to be its own, if it was asked for one.
    pub fn peer_certificate(&self) -> Option<&Arc<PeerCertificate>> {
        match self {
            Self::Tls(stream) => stream.peer_certificate(),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// Waits until there is something to read, or the end. Safe to cancel.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
            Self::Tls(stream) => stream.readable().await,
        }
    }

    /// Reads what is there, without waiting; 0 at the end.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when there is nothing, otherwise the connection is broken.
    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(into),
            Self::Unix(stream) => stream.try_read(into),
            Self::Tls(stream) => stream.try_read(into),
        }
    }

    /// As [`try_read`](Self::try_read), but asks the kernel even where the runtime has not
    /// heard yet that something came; for the last look at a stream.
    ///
    /// # Errors
    ///
    /// As `try_read`.
    pub fn read_now(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let fd = match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
            Self::Tls(stream) => return stream.read_now(into),
        };
        Ok(recv(fd, into, MsgFlags::MSG_DONTWAIT)?)
    }

    /// Writes as much as the kernel takes, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when it takes nothing, otherwise the connection is broken.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tls(stream) => stream.try_write(bytes),
        }
    }

    /// Whether all that was written is with the kernel; tries to bring it there, without waiting.
    /// A connection that is broken holds nothing any more.
    pub fn try_flush(&mut self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => true,
            Self::Tls(stream) => stream.try_flush(),
        }
    }

    /// Waits until the kernel takes more bytes. Safe to cancel.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
            Self::Tls(stream) => stream.writable().await,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Tls(stream) => stream.stream().poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => stream.stream().poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => stream.stream().poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => stream.stream().poll_shutdown(cx),
        }
    }
}

impl From<SocketAddr> for Peer {
    /// A socket for both families shows IPv4 peers as `::ffff:…`, which nobody wants to read.
    fn from(address: SocketAddr) -> Self {
        Self::Net(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(address) => address.fmt(f),
            Self::Local | Self::User { .. } => f.write_str("unix"),
        }
    }
}

/// Soon enough for those who wait.
const RETRY_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_readable() {
        for (address, expected) in [
            ("127.0.0.1:9", "127.0.0.1:9"),
            ("[::1]:9", "[::1]:9"),
            ("[::ffff:10.1.2.3]:9", "10.1.2.3:9"),
        ] {
            assert_eq!(Peer::from(address.parse::<SocketAddr>().unwrap()).to_string(), expected);
        }
        assert_eq!(Peer::Local.to_string(), "unix");
    }
}
