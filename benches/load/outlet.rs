//! Where a server under test sends what it makes of a load: sinks in the generator that add up
//! what arrives.
//!
//! Datagrams and lines are read at once. Bodies of requests are answered at once and kept, and
//! read when somebody asks for the sum, so that reading them does not slow the server down.

use crate::kernel;
use crate::sink::Sink;
use crate::tally::{Format, Tally};
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg, setsockopt, sockopt};
use std::io::{BufRead, BufReader, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A running sink. Dropping it ends it.
pub struct Outlet {
    format: Format,
    address: SocketAddr,
    shared: Arc<Shared>,
    /// What answers requests.
    requests: Option<Sink>,
}

#[derive(Default)]
struct Shared {
    tally: Mutex<Tally>,
    closed: AtomicBool,
}

impl Outlet {
    /// Starts the sink of a format, on a port that the system chooses.
    pub fn start(format: Format) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut requests = None;
        let address = match format {
            Format::Statsd => take_datagrams(UdpSocket::bind(any)?, Arc::clone(&shared))?,
            Format::Graphite => take_lines(TcpListener::bind(any)?, Arc::clone(&shared))?,
            Format::LineProtocol | Format::RemoteWrite => {
                requests.insert(Sink::keeping(any)?).address()
            }
        };
        Ok(Self { format, address, shared, requests })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has arrived so far.
    pub fn tally(&self) -> Tally {
        let bodies = self.requests.as_ref().map(Sink::take).unwrap_or_default();
        let mut tally = self.shared.tally();
        bodies.iter().for_each(|body| tally.packet(self.format, &body.bytes));
        *tally
    }

    /// Datagrams that the kernel dropped in front of it: they are not the server's loss.
    pub fn kernel_dropped(&self) -> Result<u64> {
        if self.format == Format::Statsd { kernel::dropped(self.address) } else { Ok(0) }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.shared.closed.store(true, Relaxed);
        // The one who waits for connections looks up when there is one.
        if self.format == Format::Graphite {
            TcpStream::connect(self.address).ok();
        }
    }
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take_datagrams(socket: UdpSocket, shared: Arc<Shared>) -> Result<SocketAddr> {
    // Root gets what it asks for, others what net.core.rmem_max allows.
    setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)
        .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER))?;
    socket.set_read_timeout(Some(GLANCE))?;
    let address = socket.local_addr()?;
    thread::spawn(move || read_datagrams(&socket, &shared));
    Ok(address)
}

fn read_datagrams(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = vec![0; DATAGRAMS * DATAGRAM];
    let mut headers = MultiHeaders::<()>::preallocate(DATAGRAMS, None);
    while !shared.closed.load(Relaxed) {
        let mut slots = buffer.chunks_mut(DATAGRAM);
        let mut slots: [_; DATAGRAMS] =
            std::array::from_fn(|_| [IoSliceMut::new(slots.next().unwrap_or_default())]);
        let flags = MsgFlags::MSG_WAITFORONE;
        match recvmmsg(socket.as_raw_fd(), &mut headers, slots.iter_mut(), flags, None) {
            Ok(datagrams) => {
                let mut tally = shared.tally();
                let datagrams = datagrams.flat_map(|datagram| datagram.iovs());
                datagrams.for_each(|datagram| tally.packet(Format::Statsd, datagram));
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => return,
        }
    }
}

fn take_lines(listener: TcpListener, shared: Arc<Shared>) -> Result<SocketAddr> {
    let address = listener.local_addr().context("sink of lines")?;
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if shared.closed.load(Relaxed) {
                return;
            }
            let shared = Arc::clone(&shared);
            thread::spawn(move || read_lines(BufReader::new(stream), &shared));
        }
    });
    Ok(address)
}

/// Until the server, which the trial ends, closes.
fn read_lines(mut stream: BufReader<TcpStream>, shared: &Shared) {
    let mut line = Vec::new();
    while let Ok(length @ 1..) = stream.read_until(b'\n', &mut line) {
        let mut tally = shared.tally();
        tally.bytes += length as u64;
        tally.line(Format::Graphite, line.trim_ascii_end());
        line.clear();
    }
}

/// How long a closed sink may go on waiting.
const GLANCE: Duration = Duration::from_millis(100);

const DATAGRAMS: usize = 64;

/// A relay may send larger datagrams than it receives.
const DATAGRAM: usize = 64 << 10;

/// Servers send in bursts when a buffer of theirs is full; none of that may be lost here.
const RECEIVE_BUFFER: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::rest;
    use std::io::{Read, Write};

    fn wait_for(outlet: &Outlet, points: u64) -> Tally {
        (0..500)
            .map(|_| {
                rest(Duration::from_millis(10));
                outlet.tally()
            })
            .find(|tally| tally.points >= points)
            .unwrap()
    }

    #[test]
    fn datagrams_are_added_up() {
        let outlet = Outlet::start(Format::Statsd).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for datagram in ["a.requests:1|c\nb:2|g", "a.requests:3|c"] {
            socket.send_to(datagram.as_bytes(), outlet.address()).unwrap();
        }
        let tally = wait_for(&outlet, 3);
        assert_eq!((tally.halves, tally.counter_sum, tally.packets), (12, 4, 2));
        assert_eq!(outlet.kernel_dropped().unwrap(), 0);
    }

    #[test]
    fn lines_are_added_up() {
        let outlet = Outlet::start(Format::Graphite).unwrap();
        let mut stream = TcpStream::connect(outlet.address()).unwrap();
        stream.write_all(b"a.requests.count 4 1\na.requests.rate 2 1\n").unwrap();
        let tally = wait_for(&outlet, 2);
        assert_eq!((tally.counter_sum, tally.bytes), (4, 41));
    }

    #[test]
    fn bodies_are_answered_and_added_up() {
        let outlet = Outlet::start(Format::LineProtocol).unwrap();
        let mut stream = TcpStream::connect(outlet.address()).unwrap();
        stream.write_all(b"POST /write HTTP/1.1\r\nContent-Length: 8\r\n\r\na v=1 7\n").unwrap();
        let mut answer = [0; 27];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 204 No Content\r\n\r\n");
        let tally = wait_for(&outlet, 1);
        assert_eq!((tally.halves, tally.packets, tally.bytes), (2, 1, 8));
    }
}
