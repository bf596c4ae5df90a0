//! What a shipper holds open: a stream, or a socket for datagrams.

use super::calls::Call;
use crate::tls::{Client, try_now};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::{TcpStream, UdpSocket, UnixDatagram, UnixStream};
use tokio_rustls::client::TlsStream;

/// An open way to the peer, and its address where it has one.
#[derive(Debug)]
pub(super) enum Connection {
    Udp(UdpSocket, SocketAddr),
    Unixgram(UnixDatagram),
    Tcp(TcpStream, SocketAddr),
    Tls(Box<TlsStream<TcpStream>>, SocketAddr),
    Unix(UnixStream),
}

impl Connection {
    pub(super) async fn udp(peer: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr = match peer {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(peer).await?;
        Ok(Self::Udp(socket, peer))
    }

    pub(super) async fn tcp(peer: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(peer).await?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream, peer))
    }

    /// The same with TLS, where it leads over the network.
    pub(super) async fn secure(self, tls: &Client, host: &str) -> io::Result<Self> {
        match self {
            Self::Tcp(stream, peer) => {
                Ok(Self::Tls(Box::new(tls.connect(host, stream).await?), peer))
            }
            other => Ok(other),
        }
    }

    pub(super) fn unixgram(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self::Unixgram(socket))
    }

    pub(super) async fn unix(path: &Path) -> io::Result<Self> {
        Ok(Self::Unix(UnixStream::connect(path).await?))
    }

    pub(super) const fn is_stream(&self) -> bool {
        matches!(self, Self::Tcp(..) | Self::Tls(..) | Self::Unix(_))
    }

    /// The address of the peer, of which a name may have another one by now.
    pub(super) const fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Udp(_, peer) | Self::Tcp(_, peer) | Self::Tls(_, peer) => Some(*peer),
            Self::Unixgram(_) | Self::Unix(_) => None,
        }
    }

    /// Whether the peer has not hung up.
    pub(super) fn is_open(&mut self) -> bool {
        match self {
            Self::Udp(..) | Self::Unixgram(_) => true,
            Self::Tcp(stream, _) => open(|buf| stream.try_read(buf)),
            // What it says may be TLS's own affair, so it has to be decrypted.
            Self::Tls(stream, _) => open(|buf| try_read(stream, buf)),
            Self::Unix(stream) => open(|buf| stream.try_read(buf)),
        }
    }

    /// The socket, unless it is a stream.
    pub(super) const fn datagrams(&self) -> Option<Socket<'_>> {
        match self {
            Self::Udp(socket, _) => Some(Socket::Udp(socket)),
            Self::Unixgram(socket) => Some(Socket::Unix(socket)),
            Self::Tcp(..) | Self::Tls(..) | Self::Unix(_) => None,
        }
    }

    /// Writes all of it to a stream.
    pub(super) async fn write_all(&mut self, body: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream, _) => stream.write_all(body).await,
            Self::Tls(stream, _) => {
                stream.write_all(body).await?;
                stream.flush().await
            }
            Self::Unix(stream) => stream.write_all(body).await,
            Self::Udp(..) | Self::Unixgram(_) => Err(ErrorKind::Unsupported.into()),
        }
    }
}

/// A statsd server never writes, so all there can be to read is the end of the stream. A stream
/// that the peer closed would take one more write and lose it without a word.
fn open(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> bool {
    let mut buffer = [0; 64];
    match read(&mut buffer) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Reads what is there, without waiting.
fn try_read(stream: &mut TlsStream<TcpStream>, into: &mut [u8]) -> io::Result<usize> {
    let mut buffer = ReadBuf::new(into);
    let read = try_now(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buffer));
    read.map(|()| buffer.filled().len())
}

/// A connected socket for datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) enum Socket<'c> {
    Udp(&'c UdpSocket),
    Unix(&'c UnixDatagram),
}

impl Socket<'_> {
    /// Makes a call, and lets the runtime know when there is no room; see [`Call::make`].
    pub(super) fn make(self, call: &Call<'_>) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => {
                socket.try_io(Interest::WRITABLE, || call.make(socket.as_raw_fd()))
            }
            Self::Unix(socket) => {
                socket.try_io(Interest::WRITABLE, || call.make(socket.as_raw_fd()))
            }
        }
    }

    pub(super) async fn send(self, packet: &[u8]) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.send(packet).await,
            Self::Unix(socket) => socket.send(packet).await,
        }
    }

    pub(super) async fn writable(self) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.writable().await,
            Self::Unix(socket) => socket.writable().await,
        }
    }

    /// Whether there would be room for a datagram, as the kernel knows it.
    pub(super) fn has_room(self) -> bool {
        let mut polled = [PollFd::new(self.fd(), PollFlags::POLLOUT)];
        // An error that has been reported meanwhile is found by the next datagram, too.
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Whether the network reports later what became of a datagram, and the kernel can cut
    /// messages.
    pub(super) const fn is_udp(self) -> bool {
        matches!(self, Self::Udp(_))
    }

    /// The report that has come in since it was last asked for.
    pub(super) fn report(self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Udp(socket) => socket.take_error(),
            Self::Unix(_) => Ok(None),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}
