//! statsd in datagrams, from UDP and from Unix sockets alike.
//!
//! One task for each socket: it waits until the socket is readable, takes up to 64 datagrams
//! with one system call, and goes on until there is nothing left or 512 points are together;
//! then they are routed. Idle, that makes small batches at once; under load, full ones.
//!
//! The buffers hold 64 KiB for each of the 64 datagrams, more than UDP can carry. They are
//! zeroed by the kernel on first use, so usual datagrams cost a page each. A longer one (from
//! a Unix socket) is cut by the kernel: its whole lines count, the rest is refused as
//! `truncated_datagram`.
//!
//! Datagrams that the kernel threw away are told in two ways: with the next datagram that
//! finds room (`SO_RXQ_OVFL`), and a second after some traffic from `/proc/net/udp`, because
//! after the end of a burst no next one comes.

use super::intake::{Context, Intake, Who};
use crate::net::{Peer, Socket, drops};
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrLike, SockaddrStorage, recvmmsg,
};
use protocols::statsd;
use protocols::timestamp::TimeRange;
use std::io::{self, IoSliceMut};
use std::net::{self, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::os::unix;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{UdpSocket, UnixDatagram};
use tokio::task::coop::consume_budget;
use tokio::time::sleep;
use tracing::warn;

/// A socket of datagrams.
#[derive(Debug)]
pub(super) enum Datagrams {
    /// From the network, with its row in the kernel's table and what is known to be lost.
    Udp { socket: UdpSocket, inode: u64, lost: Arc<AtomicU32> },
    /// From the file system, where senders wait instead of losing.
    Unix(UnixDatagram),
}

impl Datagrams {
    /// Takes a UDP socket into the runtime.
    pub(super) fn udp(socket: net::UdpSocket, lost: Arc<AtomicU32>) -> io::Result<Self> {
        let inode = drops::inode(&socket);
        Ok(Self::Udp { socket: UdpSocket::from_std(socket)?, inode, lost })
    }

    /// Takes a Unix socket into the runtime.
    pub(super) fn unix(socket: unix::net::UnixDatagram) -> io::Result<Self> {
        Ok(Self::Unix(UnixDatagram::from_std(socket)?))
    }

    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Udp { socket, .. } => socket.readable().await,
            Self::Unix(socket) => socket.readable().await,
        }
    }

    /// Receives what is there, at most one round of buffers; `WouldBlock` when there is none.
    fn receive(&self, buffers: &mut Buffers, receiver: &mut Receiver) -> io::Result<()> {
        match self {
            Self::Udp { socket, .. } => round(socket.as_raw_fd(), buffers, receiver, sender),
            // Senders are mostly unnamed, and then the kernel leaves the address unset.
            Self::Unix(socket) => {
                round(socket.as_raw_fd(), buffers, receiver, |()| Some(Peer::Local))
            }
        }
    }

    /// The same, and the runtime is told when nothing is left, so that `readable` waits again.
    fn try_receive(&self, buffers: &mut Buffers, receiver: &mut Receiver) -> io::Result<()> {
        let receive = || self.receive(buffers, receiver);
        match self {
            Self::Udp { socket, .. } => socket.try_io(Interest::READABLE, receive),
            Self::Unix(socket) => socket.try_io(Interest::READABLE, receive),
        }
    }

    fn lost(&self, now: u32, context: &Context) {
        let Self::Udp { lost, .. } = self else { return };
        let count = Socket::lost_since(lost, now);
        if count == 0 {
            return;
        }
        context.book.kernel_dropped.add(count);
        if context.may_warn("kernel_dropped", WARN_EVERY) {
            warn!(
                listener = &*context.listener,
                count,
                "the kernel threw datagrams away, because its buffer was full; \
                 set receive_buffer higher (and net.core.rmem_max), or sockets"
            );
        }
    }

    /// Asks the kernel's table, which knows of losses that no later datagram has told.
    fn ask_table(&self, context: &Context) {
        let Self::Udp { inode, .. } = self else { return };
        if let Some(now) = drops::of(*inode) {
            self.lost(now, context);
        }
    }
}

/// Receives until the listener stops; what is in the socket then is still taken.
pub(super) async fn run(socket: Datagrams, context: Context) {
    let mut buffers = Buffers::new();
    let mut receiver = Receiver::new(context.intake());
    let stop = context.stop.clone();
    let mut asked = true;
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep(ASK_AFTER), if !asked => {
                socket.ask_table(&context);
                asked = true;
            }
            // A broken socket is found out by receiving.
            _ = socket.readable() => {
                while !stop.is_cancelled()
                    && !take(&socket, &mut receiver, |receiver| {
                        socket.try_receive(&mut buffers, receiver)
                    })
                {
                    consume_budget().await;
                }
                asked = false;
            }
        }
    }
    // The runtime may not have heard yet of what came last, so the kernel is asked.
    for _ in 0..LAST_ROUNDS {
        if take(&socket, &mut receiver, |receiver| socket.receive(&mut buffers, receiver)) {
            break;
        }
    }
    socket.ask_table(&context);
}

/// Takes datagrams until none is left (then `true`) or the batch is full, and submits.
fn take(
    socket: &Datagrams,
    receiver: &mut Receiver,
    mut receive: impl FnMut(&mut Receiver) -> io::Result<()>,
) -> bool {
    receiver.times = receiver.intake.context.times();
    let mut empty = false;
    while !empty && receiver.intake.batch.len() < BATCH_POINTS {
        match receive(receiver) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => empty = true,
            Err(error) => {
                // Short of memory, say; the next call goes on.
                receiver.refuse("receive_failed", error.to_string().as_bytes(), None);
                break;
            }
        }
        if let Some(lost) = receiver.lost.take() {
            socket.lost(lost, &receiver.intake.context);
        }
    }
    receiver.intake.submit();
    empty
}

/// What happens to each datagram.
struct Receiver {
    intake: Intake,
    times: TimeRange,
    /// The kernel's count of lost datagrams, as the last datagram told.
    lost: Option<u32>,
}

impl Receiver {
    fn new(intake: Intake) -> Self {
        Self { intake, times: TimeRange::ALL, lost: None }
    }

    fn datagram(&mut self, mut datagram: &[u8], cut: bool, peer: Option<Peer>) {
        self.intake.context.book.received_bytes.add(datagram.len() as u64);
        if cut {
            let whole = memchr::memrchr(b'\n', datagram).map_or(0, |end| end + 1);
            let (lines, rest) = datagram.split_at(whole);
            self.refuse("truncated_datagram", rest, peer);
            datagram = lines;
        }
        for line in statsd::lines(datagram) {
            self.intake.statsd_line(line, &self.times, Who(peer.as_ref()));
        }
    }

    fn refuse(&self, reason: &'static str, example: &[u8], peer: Option<Peer>) {
        self.intake.context.refuse(reason, 1, example, Who(peer.as_ref()));
    }
}

struct Buffers(Vec<u8>);

impl Buffers {
    fn new() -> Self {
        Self(vec![0; DATAGRAMS * DATAGRAM_BYTES])
    }
}

/// One system call. Headers are made anew for each: the kernel writes the length of the
/// control messages it stored into them, and nobody would set it back.
fn round<S: SockaddrLike + Copy>(
    fd: i32,
    buffers: &mut Buffers,
    receiver: &mut Receiver,
    sender: fn(S) -> Option<Peer>,
) -> io::Result<()> {
    let mut headers = MultiHeaders::<S>::preallocate(DATAGRAMS, Some(cmsg_space!(u32)));
    let mut slices: Vec<[IoSliceMut<'_>; 1]> =
        buffers.0.chunks_exact_mut(DATAGRAM_BYTES).map(|chunk| [IoSliceMut::new(chunk)]).collect();
    let received = recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
    for message in received {
        if let Ok(mut told) = message.cmsgs() {
            receiver.lost = told.find_map(lost_as_told).or(receiver.lost);
        }
        let cut = message.flags.contains(MsgFlags::MSG_TRUNC);
        let peer = message.address.and_then(sender);
        // One slice each, and none at all for an empty datagram.
        receiver.datagram(message.iovs().next().unwrap_or(&[]), cut, peer);
    }
    Ok(())
}

fn lost_as_told(message: ControlMessageOwned) -> Option<u32> {
    match message {
        ControlMessageOwned::RxqOvfl(lost) => Some(lost),
        _ => None,
    }
}

fn sender(address: SockaddrStorage) -> Option<Peer> {
    let four = address.as_sockaddr_in().map(|four| SocketAddr::V4(SocketAddrV4::from(*four)));
    let six = || address.as_sockaddr_in6().map(|six| SocketAddr::V6(SocketAddrV6::from(*six)));
    four.or_else(six).map(Peer::from)
}

/// Datagrams taken with one system call.
const DATAGRAMS: usize = 64;

/// More than the 65507 bytes that UDP carries.
const DATAGRAM_BYTES: usize = 64 << 10;

/// Enough that routing a batch costs little for each point, and few enough to stay in cache.
const BATCH_POINTS: usize = 512;

/// What a full receive buffer may hold at a stop, and no more: a flood does not end.
const LAST_ROUNDS: usize = 256;

const ASK_AFTER: Duration = Duration::from_secs(1);

const WARN_EVERY: Duration = Duration::from_secs(60);
