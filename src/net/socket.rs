//! One bound socket: how it is opened, shared and measured.

use crate::units::{Size, Transport};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockAddr, SockRef, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A bound socket of one sort or another.
#[derive(Debug)]
pub enum Socket {
    /// UDP, with the kernel's count of lost datagrams as last seen by any of its readers.
    Udp(UdpSocket, Arc<AtomicU32>),
    /// TCP.
    Tcp(TcpListener),
    /// Datagrams in the file system.
    Unixgram(UnixDatagram),
    /// Streams in the file system.
    Unix(UnixListener),
}

impl Socket {
    /// Binds an address of the network, and listens where that is needed. With `join` the
    /// port may be shared with those that have joined too.
    pub(super) fn open(transport: Transport, address: SocketAddr, join: bool) -> io::Result<Self> {
        let (kind, protocol) = match transport {
            Transport::Udp => (Type::DGRAM, Protocol::UDP),
            _ => (Type::STREAM, Protocol::TCP),
        };
        let socket = socket2::Socket::new(Domain::for_address(address), kind, Some(protocol))?;
        if address.is_ipv6() {
            let both = address.ip().is_unspecified();
            socket.set_only_v6(!both)?;
        }
        socket.set_reuse_port(join)?;
        socket.set_nonblocking(true)?;
        match transport {
            Transport::Udp => {
                setsockopt(&socket, sockopt::RxqOvfl, &1)?;
                socket.bind(&SockAddr::from(address))?;
                Ok(Self::Udp(socket.into(), Arc::default()))
            }
            _ => {
                // Connections of an earlier run that linger in TIME_WAIT are not in the way.
                socket.set_reuse_address(true)?;
                socket.bind(&SockAddr::from(address))?;
                socket.listen(BACKLOG)?;
                Ok(Self::Tcp(socket.into()))
            }
        }
    }

    /// Binds a path.
    pub(super) fn open_file(transport: Transport, path: &Path) -> io::Result<Self> {
        if transport == Transport::Unixgram {
            let socket = UnixDatagram::bind(path)?;
            socket.set_nonblocking(true)?;
            return Ok(Self::Unixgram(socket));
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener))
    }

    /// Makes a socket that somebody else has bound behave as one of ours.
    pub(super) fn adopt(&self) -> io::Result<()> {
        match self {
            Self::Udp(socket, _) => {
                setsockopt(socket, sockopt::RxqOvfl, &1)?;
                socket.set_nonblocking(true)
            }
            Self::Unixgram(socket) => socket.set_nonblocking(true),
            Self::Tcp(listener) => listens(listener).and(listener.set_nonblocking(true)),
            Self::Unix(listener) => listens(listener).and(listener.set_nonblocking(true)),
        }
    }

    /// Another descriptor of the same socket.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Udp(socket, seen) => Self::Udp(socket.try_clone()?, Arc::clone(seen)),
            Self::Tcp(listener) => Self::Tcp(listener.try_clone()?),
            Self::Unixgram(socket) => Self::Unixgram(socket.try_clone()?),
            Self::Unix(listener) => Self::Unix(listener.try_clone()?),
        })
    }

    /// Lets sockets that are opened with `join` from now on share the port.
    pub(super) fn join(&self) -> io::Result<()> {
        match self {
            Self::Udp(socket, _) => SockRef::from(socket).set_reuse_port(true),
            Self::Tcp(listener) => SockRef::from(listener).set_reuse_port(true),
            Self::Unixgram(_) | Self::Unix(_) => Ok(()),
        }
    }

    /// Lets no more datagrams come from the network: a connected socket hears its peer alone,
    /// and the peer of this one is the socket itself.
    pub(super) fn turn_away(&self) {
        if let Self::Udp(socket, _) = self
            && let Ok(address) = socket.local_addr()
        {
            // Were it refused, datagrams would come until the socket is closed, as they did.
            let _ = socket.connect(address);
        }
    }

    /// The address in the network, port and all.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Udp(socket, _) => socket.local_addr().ok(),
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unixgram(_) | Self::Unix(_) => None,
        }
    }

    /// The file it is bound to.
    pub(super) fn local_path(&self) -> Option<PathBuf> {
        let address = match self {
            Self::Unixgram(socket) => socket.local_addr().ok()?,
            Self::Unix(listener) => listener.local_addr().ok()?,
            Self::Udp(..) | Self::Tcp(_) => return None,
        };
        address.as_pathname().map(Path::to_owned)
    }

    /// How bytes come to it.
    pub(super) const fn transport(&self) -> Transport {
        match self {
            Self::Udp(..) => Transport::Udp,
            Self::Tcp(_) => Transport::Tcp,
            Self::Unixgram(_) => Transport::Unixgram,
            Self::Unix(_) => Transport::Unix,
        }
    }

    /// Where it is bound, as a configuration writes it.
    pub(super) fn name(&self) -> String {
        let transport = self.transport();
        match (self.local_address(), self.local_path()) {
            (Some(address), _) => format!("{transport}://{address}"),
            (None, Some(path)) => format!("{transport}://{}", path.display()),
            (None, None) => format!("{transport}://"),
        }
    }

    /// The bytes that its receive buffer holds, if datagrams wait there.
    pub(super) fn buffer(&self) -> Option<usize> {
        let socket = match self {
            Self::Udp(socket, _) => SockRef::from(socket),
            Self::Unixgram(socket) => SockRef::from(socket),
            Self::Tcp(_) | Self::Unix(_) => return None,
        };
        // The kernel shows twice what it was asked for.
        Some(socket.recv_buffer_size().ok()? / 2)
    }

    /// Datagrams that the kernel is known to have thrown away since the socket was made.
    pub(super) fn lost(&self) -> Option<u32> {
        match self {
            Self::Udp(_, lost) => Some(lost.load(Relaxed)),
            _ => None,
        }
    }

    /// Asks for a receive buffer, unless it has that size or holds no datagrams; answers what
    /// was asked for and what the kernel gave.
    pub(super) fn ask_buffer(&self, asked: Option<Size>) -> io::Result<Option<(usize, usize)>> {
        let socket = match self {
            Self::Udp(socket, _) => SockRef::from(socket),
            Self::Unixgram(socket) => SockRef::from(socket),
            Self::Tcp(_) | Self::Unix(_) => return Ok(None),
        };
        let asked = asked.unwrap_or(RECEIVE_BUFFER).bytes();
        // The kernel doubles what it is asked for and shows the doubled number.
        if socket.recv_buffer_size()? / 2 == asked {
            return Ok(None);
        }
        socket.set_recv_buffer_size(asked)?;
        Ok(Some((asked, socket.recv_buffer_size()? / 2)))
    }

    /// Adds what the kernel has lost since any reader of this socket last looked; answers
    /// that difference. The kernel's number has 32 bits and wraps.
    pub(crate) fn lost_since(seen: &AtomicU32, now: u32) -> u64 {
        let before = seen.load(Relaxed);
        let delta = now.wrapping_sub(before);
        if delta == 0 || delta > u32::MAX / 2 {
            return 0; // An older number than another reader has already seen.
        }
        match seen.compare_exchange(before, now, Relaxed, Relaxed) {
            Ok(_) => u64::from(delta),
            Err(_) => Self::lost_since(seen, now),
        }
    }
}

/// A connection that somebody else has accepted is no socket to listen on.
fn listens<S: AsFd>(listener: &S) -> io::Result<()> {
    match SockRef::from(listener).is_listener()? {
        true => Ok(()),
        false => Err(io::Error::other("it is a connection, and nothing to accept others from")),
    }
}

/// Whether a bind failed for want of IPv6 on this host.
pub(super) fn lacks_ipv6(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL))
}

/// A few tens of thousands of small datagrams; the kernel's usual 208 KiB holds a few hundred.
const RECEIVE_BUFFER: Size = Size::mib(4);

/// Connections that wait to be accepted; the kernel's `somaxconn` caps it.
const BACKLOG: i32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_datagrams_are_told_once_and_may_wrap() {
        let seen = AtomicU32::new(u32::MAX - 1);
        let told: Vec<_> =
            [u32::MAX, u32::MAX, 3, 1, 3, 10].map(|now| Socket::lost_since(&seen, now)).into();
        assert_eq!(told, [1, 0, 4, 0, 0, 7]);
    }

    #[test]
    fn an_address_that_is_not_here_looks_as_on_a_host_without_ipv6() {
        let elsewhere = SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 0));
        let error = Socket::open(Transport::Udp, elsewhere, false).unwrap_err();
        assert!(lacks_ipv6(&error), "{error}");
        let taken = Socket::open(Transport::Udp, SocketAddr::from(([127, 0, 0, 1], 0)), false);
        let taken = taken.unwrap().local_address().unwrap();
        assert!(!taken.ip().is_unspecified());
    }
}
