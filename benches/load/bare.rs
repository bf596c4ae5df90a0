//! Bare receivers: the least that any gateway must do to have the bytes at all.
//!
//! UDP is read by `recvmmsg` of up to 64 datagrams, TCP by reads of 64 KiB; lines are counted
//! and nothing else is done. What a gateway costs more than that is its own.

use crate::address::Address;
use crate::cpu;
use crate::kernel;
use crate::pace::rest;
use crate::report::Received;
use anyhow::{Result, bail};
use memchr::memchr_iter;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg, setsockopt, sockopt};
use std::io::{IoSliceMut, Read, Write, stderr};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Receives until nothing has come for `idle` after the first, or until the deadline.
pub fn receive(listen: &Address, idle: Duration, deadline: Duration) -> Result<Received> {
    let totals = Arc::new(Totals::default());
    let dropped = match listen {
        Address::Udp(address) => Some(start_udp(*address, &totals)?),
        Address::Tcp(address) => start_tcp(*address, &totals)?,
        Address::Http { .. } => bail!("listens on udp:// or tcp://"),
    };
    let before = cpu::of_this_process()?;
    wait(&totals, idle, deadline);
    Ok(Received {
        lines: totals.lines.load(Relaxed),
        reads: totals.reads.load(Relaxed),
        bytes: totals.bytes.load(Relaxed),
        kernel_dropped: dropped.map_or(Ok(0), kernel::dropped)?,
        cpu_seconds: cpu::of_this_process()? - before,
    })
}

/// Counts the lines of datagrams that come to a free port, with a thread of its own.
pub struct Counted {
    pub address: SocketAddr,
    totals: Arc<Totals>,
}

impl Counted {
    /// Begins.
    pub fn start() -> Result<Self> {
        let totals = Arc::default();
        let address = count_udp(SocketAddr::from(([127, 0, 0, 1], 0)), &totals)?;
        Ok(Self { address, totals })
    }

    /// So far.
    pub fn lines(&self) -> u64 {
        self.totals.lines.load(Relaxed)
    }

    /// Datagrams that were dropped because the thread was not there in time.
    pub fn dropped(&self) -> Result<u64> {
        kernel::dropped(self.address)
    }
}

/// Written by the receiving threads once a call of the kernel, watched by the waiting one.
#[derive(Debug, Default)]
struct Totals {
    lines: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl Totals {
    fn add(&self, lines: usize, reads: usize, bytes: usize) {
        self.lines.fetch_add(lines as u64, Relaxed);
        self.reads.fetch_add(reads as u64, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

fn wait(totals: &Totals, idle: Duration, deadline: Duration) {
    let began = Instant::now();
    let mut seen = 0;
    let mut changed = began;
    while began.elapsed() < deadline {
        rest(GLANCE);
        let reads = totals.reads.load(Relaxed);
        if reads != seen {
            seen = reads;
            changed = Instant::now();
        }
        if seen > 0 && changed.elapsed() >= idle {
            return;
        }
    }
}

/// Starts the receiving thread; says on which port.
fn start_udp(address: SocketAddr, totals: &Arc<Totals>) -> Result<SocketAddr> {
    let bound = count_udp(address, totals)?;
    tell_where(&Address::Udp(bound))?;
    Ok(bound)
}

fn count_udp(address: SocketAddr, totals: &Arc<Totals>) -> Result<SocketAddr> {
    let socket = UdpSocket::bind(address)?;
    // The kernel grants what net.core.rmem_max allows.
    setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
    let bound = socket.local_addr()?;
    let totals = Arc::clone(totals);
    thread::spawn(move || read_datagrams(&socket, &totals));
    Ok(bound)
}

fn read_datagrams(socket: &UdpSocket, totals: &Totals) {
    let mut buffer = vec![0; DATAGRAMS * DATAGRAM];
    let mut headers = MultiHeaders::<()>::preallocate(DATAGRAMS, None);
    loop {
        let mut slots = buffer.chunks_mut(DATAGRAM);
        let mut slots: [_; DATAGRAMS] =
            std::array::from_fn(|_| [IoSliceMut::new(slots.next().unwrap_or_default())]);
        let flags = MsgFlags::MSG_WAITFORONE;
        match recvmmsg(socket.as_raw_fd(), &mut headers, slots.iter_mut(), flags, None) {
            Ok(datagrams) => count_datagrams(datagrams.flat_map(|one| one.iovs()), totals),
            Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

fn count_datagrams<'a>(datagrams: impl Iterator<Item = &'a [u8]>, totals: &Totals) {
    let (mut lines, mut reads, mut bytes) = (0, 0, 0);
    for datagram in datagrams {
        // The last line of a datagram ends with it.
        lines += memchr_iter(b'\n', datagram).count() + usize::from(!datagram.ends_with(b"\n"));
        reads += 1;
        bytes += datagram.len();
    }
    totals.add(lines, reads, bytes);
}

fn start_tcp(address: SocketAddr, totals: &Arc<Totals>) -> Result<Option<SocketAddr>> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    let totals = Arc::clone(totals);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let totals = Arc::clone(&totals);
            thread::spawn(move || read_stream(stream, &totals));
        }
    });
    tell_where(&Address::Tcp(bound))?;
    Ok(None) // TCP drops nothing.
}

fn read_stream(mut stream: TcpStream, totals: &Totals) {
    let mut buffer = vec![0; STREAM];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        let bytes = buffer.get(..length).unwrap_or_default();
        totals.add(memchr_iter(b'\n', bytes).count(), 1, length);
    }
}

/// Says where it listens as the gateway does, so that both are started alike.
fn tell_where(bound: &Address) -> Result<()> {
    let listening = serde_json::json!(
        { "message": "listening", "listener": "bare", "address": bound.to_string() });
    writeln!(stderr(), "{listening}\n{}", serde_json::json!({ "message": "ready" }))?;
    Ok(())
}

/// How often the waiting thread looks: it should not show in the CPU time.
const GLANCE: Duration = Duration::from_millis(20);

/// Datagrams of one call: more was no better on the machines that were measured.
const DATAGRAMS: usize = 64;

/// Room for a packet of 25 lines with tags.
const DATAGRAM: usize = 8 << 10;

const STREAM: usize = 64 << 10;

const RECEIVE_BUFFER: usize = 4 << 20;
