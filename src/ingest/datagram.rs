//! statsd in datagrams, from UDP and from Unix sockets alike.
//!
//! One task for each socket: it waits until the socket is readable, takes up to 64 datagrams
//! with one system call, routes their lines, and goes on until there is nothing left or there
//! were 512 points; then all is handed over. Idle, that makes small batches at once; under load,
//! full ones.
//!
//! The buffers hold 64 KiB for each of the 64 datagrams, more than UDP can carry. They are
//! zeroed by the kernel on first use, so usual datagrams cost a page each. A longer one (from
//! a Unix socket) is cut by the kernel: its whole lines count, the rest is refused as
//! `truncated_datagram`.
//!
//! Datagrams that the kernel threw away are told in two ways, each once a second while there is
//! traffic: with a datagram that finds room (`SO_RXQ_OVFL`), and from `/proc/net/udp`, because
//! after the end of a burst no next one comes.

use super::intake::{Context, Intake, Who};
use super::lines::Lines;
use crate::net::{Peer, Socket, drops};
use crate::route::Memo;
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrLike, SockaddrStorage, recvmmsg,
};
use std::io::{self, IoSliceMut};
use std::net::{self, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::os::unix;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{UdpSocket, UnixDatagram};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
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
    fn receive(&self, buffers: &mut Buffers, arrival: &mut Arrival<'_>) -> io::Result<Filled> {
        match self {
            Self::Udp { socket, .. } => round(socket.as_raw_fd(), buffers, arrival, sender),
            // Senders are mostly unnamed, and then the kernel leaves the address unset.
            Self::Unix(socket) => {
                round(socket.as_raw_fd(), buffers, arrival, |()| Some(Peer::Local))
            }
        }
    }

    /// The same, and the runtime is told when nothing is left, so that `readable` waits again.
    ///
    /// A round that found fewer datagrams than it had room for has emptied the socket: it need not
    /// be asked once more. What comes later wakes the runtime again.
    fn try_receive(&self, buffers: &mut Buffers, arrival: &mut Arrival<'_>) -> io::Result<Filled> {
        let mut filled = None;
        let receive = || match self.receive(buffers, arrival)? {
            Filled::Partly => {
                filled = Some(Filled::Partly);
                Err(io::ErrorKind::WouldBlock.into())
            }
            whole => Ok(whole),
        };
        let received = match self {
            Self::Udp { socket, .. } => socket.try_io(Interest::READABLE, receive),
            Self::Unix(socket) => socket.try_io(Interest::READABLE, receive),
        };
        filled.map_or(received, Ok)
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
    let mut ask = pin!(sleep(ASK_AFTER));
    let mut stopped = pin!(stop.cancelled());
    while !stop.is_cancelled() {
        tokio::select! {
            () = &mut stopped => break,
            () = &mut ask, if receiver.owes_question => {
                socket.ask_table(&context);
                receiver.owes_question = false;
            }
            // A broken socket is found out by receiving.
            _ = socket.readable() => {
                if !std::mem::replace(&mut receiver.owes_question, true) {
                    buffers.listen = true;
                    ask.as_mut().reset(Instant::now() + ASK_AFTER);
                }
                let mut turn = 1;
                while !stop.is_cancelled()
                    && !take(&socket, &mut receiver, |arrival| {
                        socket.try_receive(&mut buffers, arrival)
                    })
                {
                    // Shapers have a short inbox, and perhaps no other processor.
                    if turn % TURN_BATCHES == 0 {
                        yield_now().await;
                    }
                    turn += 1;
                }
            }
        }
    }
    // The runtime may not have heard yet of what came last, so the kernel is asked.
    for _ in 0..LAST_ROUNDS {
        if take(&socket, &mut receiver, |arrival| socket.receive(&mut buffers, arrival)) {
            break;
        }
    }
    socket.ask_table(&context);
}

/// Takes datagrams until none is left (then `true`) or there are enough for once.
fn take(
    socket: &Datagrams,
    receiver: &mut Receiver,
    mut receive: impl FnMut(&mut Arrival<'_>) -> io::Result<Filled>,
) -> bool {
    let table = receiver.intake.table();
    let lines = receiver.intake.lines(&table, &mut receiver.memo);
    let mut arrival = Arrival { lines, lost: None, bytes: 0 };
    let mut empty = false;
    while !empty && arrival.lines.points() < BATCH_POINTS {
        match receive(&mut arrival) {
            Ok(filled) => empty = filled == Filled::Partly,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => empty = true,
            Err(error) => {
                // Short of memory, say; the next call goes on.
                arrival.refuse("receive_failed", error.to_string().as_bytes(), None);
                break;
            }
        }
    }
    if let Some(lost) = arrival.lost {
        socket.lost(lost, arrival.lines.context);
    }
    empty
}

/// What the receiving task has.
struct Receiver {
    intake: Intake,
    memo: Memo,
    /// Whether there was traffic since the kernel's table was asked for losses.
    owes_question: bool,
}

impl Receiver {
    fn new(intake: Intake) -> Self {
        Self { intake, memo: Memo::default(), owes_question: true }
    }
}

/// The datagrams that are routed together.
struct Arrival<'t> {
    lines: Lines<'t>,
    /// The kernel's count of lost datagrams, as the last datagram told.
    lost: Option<u32>,
    bytes: u64,
}

impl Arrival<'_> {
    fn datagram(&mut self, mut datagram: &[u8], cut: bool, peer: impl Fn() -> Option<Peer>) {
        self.bytes += datagram.len() as u64;
        if cut {
            let whole = memchr::memrchr(b'\n', datagram).map_or(0, |end| end + 1);
            let (lines, rest) = datagram.split_at(whole);
            self.refuse("truncated_datagram", rest, peer());
            datagram = lines;
        }
        self.lines.take(datagram, peer);
    }

    fn refuse(&self, reason: &'static str, example: &[u8], peer: Option<Peer>) {
        self.lines.context.refuse(reason, 1, example, Who(peer.as_ref()));
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.lines.context.book.received_bytes.add(self.bytes);
    }
}

/// Whether a round of buffers was used up, or the socket emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    Wholly,
    Partly,
}

struct Buffers {
    bytes: Vec<u8>,
    /// How many datagrams to ask for: more than came last time.
    slots: usize,
    /// Whether the next datagrams are asked to tell of losses.
    listen: bool,
}

impl Buffers {
    fn new() -> Self {
        Self { bytes: vec![0; DATAGRAMS * STRIDE], slots: DATAGRAMS_MIN, listen: true }
    }
}

/// One system call. Headers are made anew for each, since they cannot be sent to another thread,
/// so there are no more of them than are likely to be used.
fn round<S: SockaddrLike + Copy>(
    fd: i32,
    buffers: &mut Buffers,
    arrival: &mut Arrival<'_>,
    sender: fn(S) -> Option<Peer>,
) -> io::Result<Filled> {
    let slots = buffers.slots;
    let control = std::mem::take(&mut buffers.listen).then(|| cmsg_space!(u32));
    let mut headers = MultiHeaders::<S>::preallocate(slots, control);
    let chunks = buffers.bytes.chunks_exact_mut(STRIDE).take(slots);
    let usable = chunks.filter_map(|chunk| chunk.get_mut(..DATAGRAM_BYTES));
    let mut slices: Vec<[IoSliceMut<'_>; 1]> =
        usable.map(|chunk| [IoSliceMut::new(chunk)]).collect();
    let received = recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
    let mut count = 0;
    for message in received {
        count += 1;
        if let Ok(mut told) = message.cmsgs() {
            arrival.lost = told.find_map(lost_as_told).or(arrival.lost);
        }
        let cut = message.flags.contains(MsgFlags::MSG_TRUNC);
        let peer = || message.address.and_then(sender);
        // One slice each, and none at all for an empty datagram.
        arrival.datagram(message.iovs().next().unwrap_or(&[]), cut, peer);
    }
    buffers.slots = (2 * count).clamp(DATAGRAMS_MIN, DATAGRAMS);
    Ok(if count < slots { Filled::Partly } else { Filled::Wholly })
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

/// Datagrams taken with one system call, at the most and at the least.
const DATAGRAMS: usize = 64;
const DATAGRAMS_MIN: usize = 8;

/// More than the 65507 bytes that UDP carries.
const DATAGRAM_BYTES: usize = 64 << 10;

/// From one datagram to the next. Not a power of two, or usual datagrams would all fall on the
/// same few sets of the processor's caches and push each other out.
const STRIDE: usize = DATAGRAM_BYTES + 21 * 64;

/// Enough that routing a batch costs little for each point, and few enough to stay in cache.
const BATCH_POINTS: u64 = 512;

/// After so many full batches others have their turn: an eighth of a shaper's inbox.
const TURN_BATCHES: usize = 8;

/// What a full receive buffer may hold at a stop, and no more: a flood does not end.
const LAST_ROUNDS: usize = 256;

const ASK_AFTER: Duration = Duration::from_secs(1);

const WARN_EVERY: Duration = Duration::from_secs(60);
