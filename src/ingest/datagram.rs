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
//! Where so many datagrams come that to be woken for them would cost more than to take them, the
//! socket is looked at by the clock ([`pace`]).
//!
//! Datagrams that the kernel threw away are told in two ways, each once a second while there is
//! traffic: with a datagram that finds room (`SO_RXQ_OVFL`), and from `/proc/net/udp`, because
//! after the end of a burst no next one comes.

mod pace;

use super::intake::{Context, Intake};
use super::lines::Lines;
use crate::net::{Peer, Socket, drops};
use crate::route::Memo;
use nix::cmsg_space;
use nix::sys::socket::sockopt::RcvBuf;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrLike, SockaddrStorage, getsockopt,
    recvmmsg,
};
use pace::{Pace, TICK};
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
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// A socket of datagrams.
#[derive(Debug)]
pub(super) enum Datagrams {
    /// From the network, with its row in the kernel's table and what is known to be lost.
    Udp { socket: Udp, inode: u64, lost: Arc<AtomicU32> },
    /// From the file system, where senders wait instead of losing.
    Unix(UnixDatagram),
}

impl Datagrams {
    /// Takes a UDP socket into the runtime.
    pub(super) fn udp(socket: net::UdpSocket, lost: Arc<AtomicU32>) -> io::Result<Self> {
        let inode = drops::inode(&socket);
        Ok(Self::Udp { socket: Udp::watched(socket)?, inode, lost })
    }

    /// Takes a Unix socket into the runtime.
    pub(super) fn unix(socket: unix::net::UnixDatagram) -> io::Result<Self> {
        Ok(Self::Unix(UnixDatagram::from_std(socket)?))
    }

    /// Waits until there is something, or it is time to look.
    async fn readable(&self) {
        let readable = match self {
            Self::Udp { socket: Udp { watch: Some(watch), .. }, .. } => watch.readable().await,
            Self::Udp { .. } => return sleep(TICK).await,
            Self::Unix(socket) => socket.readable().await,
        };
        // A broken socket is found out by receiving.
        drop(readable);
    }

    /// Has the runtime watch the socket, or leaves it to the clock.
    fn watch(&mut self, pace: &Pace) {
        let Self::Udp { socket: Udp { socket, watch }, .. } = self else { return };
        if pace.is_by_clock() {
            *watch = None;
        } else if watch.is_none() {
            // If that cannot be, the clock goes on.
            *watch = socket.try_clone().and_then(UdpSocket::from_std).ok();
        }
    }

    /// The bytes of the kernel's buffer, as it counts them, if they are worth a thought.
    fn buffer(&self) -> usize {
        match self {
            Self::Udp { socket, .. } => getsockopt(&socket.socket, RcvBuf).unwrap_or(0),
            Self::Unix(_) => 0,
        }
    }

    /// Receives what is there, at most one round of buffers; `WouldBlock` when there is none.
    fn receive(&self, buffers: &mut Buffers, arrival: &mut Arrival<'_>) -> io::Result<Filled> {
        match self {
            Self::Udp { socket, .. }
                if arrival.lines.strangers.is_some() || buffers.ask_names() =>
            {
                round(socket.socket.as_raw_fd(), buffers, arrival, sender)
            }
            Self::Udp { socket, .. } => {
                round(socket.socket.as_raw_fd(), buffers, arrival, |()| None)
            }
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
        let mut receive = || match self.receive(buffers, arrival)? {
            Filled::Partly => {
                filled = Some(Filled::Partly);
                Err(io::ErrorKind::WouldBlock.into())
            }
            whole => Ok(whole),
        };
        let received = match self {
            Self::Udp { socket: Udp { watch: Some(watch), .. }, .. } => {
                watch.try_io(Interest::READABLE, receive)
            }
            Self::Udp { .. } => receive(),
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

/// A UDP socket.
#[derive(Debug)]
pub(super) struct Udp {
    socket: net::UdpSocket,
    /// The same, as the runtime watches it.
    watch: Option<UdpSocket>,
}

impl Udp {
    fn watched(socket: net::UdpSocket) -> io::Result<Self> {
        let watch = Some(UdpSocket::from_std(socket.try_clone()?)?);
        Ok(Self { socket, watch })
    }
}

/// Receives until the listener stops; what is in the socket then is still taken.
pub(super) async fn run(mut socket: Datagrams, context: Context) {
    let mut pace = Pace::new(socket.buffer(), Instant::now());
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
            () = socket.readable() => {
                let now = Instant::now();
                if !std::mem::replace(&mut receiver.owes_question, true) {
                    buffers.listen = true;
                    ask.as_mut().reset(now + ASK_AFTER);
                }
                let before = receiver.datagrams;
                empty(&socket, &mut receiver, &mut buffers, &stop).await;
                pace.looked(receiver.datagrams != before, now);
                socket.watch(&pace);
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

/// Takes datagrams until none is left, and gives others their turn meanwhile.
async fn empty(
    socket: &Datagrams,
    receiver: &mut Receiver,
    buffers: &mut Buffers,
    stop: &CancellationToken,
) {
    let mut turn = 1;
    while !stop.is_cancelled()
        && !take(socket, receiver, |arrival| socket.try_receive(buffers, arrival))
    {
        // Shapers have a short inbox, and perhaps no other processor.
        if turn % TURN_BATCHES == 0 {
            yield_now().await;
        }
        turn += 1;
    }
}

/// Takes datagrams until none is left (then `true`) or there are enough for once.
fn take(
    socket: &Datagrams,
    receiver: &mut Receiver,
    mut receive: impl FnMut(&mut Arrival<'_>) -> io::Result<Filled>,
) -> bool {
    let table = receiver.intake.table();
    let by_network = matches!(socket, Datagrams::Udp { .. });
    let lines = receiver.intake.lines(&table, &mut receiver.memo, by_network);
    let mut arrival = Arrival { lines, lost: None, datagrams: 0, bytes: 0 };
    let mut empty = false;
    while !empty && arrival.lines.points() < BATCH_POINTS {
        match receive(&mut arrival) {
            Ok(filled) => empty = filled == Filled::Partly,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => empty = true,
            Err(error) => {
                // Short of memory, say; the next call goes on.
                arrival.lines.refuse("receive_failed", error.to_string().as_bytes(), None);
                break;
            }
        }
    }
    if let Some(lost) = arrival.lost {
        socket.lost(lost, arrival.lines.context);
    }
    receiver.datagrams += arrival.datagrams;
    empty
}

/// What the receiving task has.
struct Receiver {
    intake: Intake,
    memo: Memo,
    /// Whether there was traffic since the kernel's table was asked for losses.
    owes_question: bool,
    /// How many came so far.
    datagrams: u64,
}

impl Receiver {
    fn new(intake: Intake) -> Self {
        Self { intake, memo: Memo::default(), owes_question: true, datagrams: 0 }
    }
}

/// The datagrams that are routed together.
struct Arrival<'t> {
    lines: Lines<'t>,
    /// The kernel's count of lost datagrams, as the last datagram told.
    lost: Option<u32>,
    datagrams: u64,
    bytes: u64,
}

impl Arrival<'_> {
    /// How many lines were refused or denied so far.
    fn turned_away(&self) -> u64 {
        self.lines.refused + self.lines.crossing.submitted().denied
    }

    /// Takes in what one call has received.
    fn take<S: Copy>(&mut self, messages: &[Message<'_, S>], sender: fn(S) -> Option<Peer>) {
        let peer =
            |at: usize| messages.get(at).and_then(|message| message.address).and_then(sender);
        self.datagrams += messages.len() as u64;
        for (at, message) in messages.iter().enumerate() {
            self.bytes += message.bytes.len() as u64;
            if let Some((_, rest)) = message.cut {
                self.lines.refuse("truncated_datagram", rest, peer(at));
            }
        }
        self.lines.take(messages.iter().map(Message::lines), peer);
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.lines.context.book.received_bytes.add(self.bytes);
    }
}

/// A datagram, and who has sent it.
struct Message<'d, S> {
    bytes: &'d [u8],
    /// Its whole lines and the rest, if the kernel has cut it.
    cut: Option<(&'d [u8], &'d [u8])>,
    address: Option<S>,
}

impl<'d, S> Message<'d, S> {
    fn new(bytes: &'d [u8], is_cut: bool, address: Option<S>) -> Self {
        let whole = || memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
        Self { bytes, cut: is_cut.then(|| bytes.split_at(whole())), address }
    }

    fn lines(&self) -> &'d [u8] {
        self.cut.map_or(self.bytes, |(lines, _)| lines)
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
    /// For how many rounds to ask who has sent what.
    names: usize,
}

impl Buffers {
    fn new() -> Self {
        Self { bytes: vec![0; DATAGRAMS * STRIDE], slots: DATAGRAMS_MIN, listen: true, names: 0 }
    }

    /// Whether senders' names are worth what they cost, a twentieth of all that a small datagram
    /// does: they are only for the log. So they are asked for when there is little to do, and for a
    /// while when something was refused or denied.
    const fn ask_names(&mut self) -> bool {
        let ask = self.names > 0 || self.slots == DATAGRAMS_MIN;
        self.names = self.names.saturating_sub(1);
        ask
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
    let is_listening = std::mem::take(&mut buffers.listen);
    let control = is_listening.then(|| cmsg_space!(u32));
    let mut headers = MultiHeaders::<S>::preallocate(slots, control);
    let chunks = buffers.bytes.chunks_exact_mut(STRIDE).take(slots);
    let usable = chunks.filter_map(|chunk| chunk.get_mut(..DATAGRAM_BYTES));
    let mut slices: Vec<[IoSliceMut<'_>; 1]> =
        usable.map(|chunk| [IoSliceMut::new(chunk)]).collect();
    let received = recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
    let mut messages = Vec::with_capacity(slots);
    for message in received {
        if is_listening && let Ok(mut told) = message.cmsgs() {
            arrival.lost = told.find_map(lost_as_told).or(arrival.lost);
        }
        let is_cut = message.flags.contains(MsgFlags::MSG_TRUNC);
        // One slice each, and none at all for an empty datagram.
        let bytes = message.iovs().next().unwrap_or(&[]);
        messages.push(Message::new(bytes, is_cut, message.address));
    }
    let turned_away = arrival.turned_away();
    arrival.take(&messages, sender);
    if arrival.turned_away() != turned_away {
        buffers.names = CURIOUS_ROUNDS;
    }
    let count = messages.len();
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

/// After so many full batches others have their turn, long before a shaper's inbox is full: a point
/// in it should not wait for a millisecond.
const TURN_BATCHES: usize = 2;

/// What a full receive buffer may hold at a stop, and no more: a flood does not end.
const LAST_ROUNDS: usize = 256;

/// So long names are asked for after something was refused or denied.
const CURIOUS_ROUNDS: usize = 4096;

const ASK_AFTER: Duration = Duration::from_secs(1);

const WARN_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Meters};
    use crate::ingest::tests::yard::Yard;
    use crate::origin::Protocol;
    use serde_json::json;

    /// Whoever is turned away is named in the log; what passes costs no name.
    #[tokio::test]
    async fn names_are_asked_for_after_a_line_was_refused_or_denied() {
        let principals =
            json!({ "a": { "listeners": ["under_test"], "scopes": ["stats:put-points:a"] } });
        let principals = serde_json::from_value(principals).unwrap();
        let access = Access::new(&principals, std::iter::empty(), &Meters::default());
        let context =
            Yard::new(access, json!([]), &[], |_, _, _| unreachable!()).context(Protocol::Statsd);
        let (mut receiver, mut buffers) = (Receiver::new(context.intake()), Buffers::new());
        let socket = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let to = socket.local_addr().unwrap();
        let socket = Datagrams::udp(socket, Arc::default()).unwrap();
        let sender = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for (line, asked) in [("a:1|c", 0), ("b:1|c", CURIOUS_ROUNDS), ("a:1", CURIOUS_ROUNDS)] {
            buffers.names = 0;
            sender.send_to(line.as_bytes(), to).unwrap();
            let before = receiver.datagrams;
            while receiver.datagrams == before {
                take(&socket, &mut receiver, |arrival| socket.receive(&mut buffers, arrival));
            }
            assert_eq!(buffers.names, asked, "{line}");
        }
    }
}
