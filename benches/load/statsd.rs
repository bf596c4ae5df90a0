//! statsd over UDP: `sendmmsg`, with the kernel cutting each message into datagrams.
//!
//! Without that cutting (`UDP_SEGMENT`) one core sends too few datagrams to find the limit of
//! a good receiver. The receiver sees ordinary datagrams, but in bursts, which favours whoever
//! reads many at once; `--gso 1` sends them one by one.

use crate::mix::Datagrams;
use crate::pace::rest;
use crate::report::Sent;
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, sendmmsg, setsockopt, sockopt};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// What to offer.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    pub names: u64,
    pub pack: u64,
    pub tags: bool,
    /// Lines a second.
    pub rate: f64,
    pub seconds: f64,
    /// Datagrams that one message is cut into, at the most.
    pub gso: u64,
}

/// Sends as many lines as rate and time say, to the datagram, however long it takes.
pub fn send(to: SocketAddr, offer: Offer) -> Result<Sent> {
    let datagrams = Datagrams::new(offer.names, offer.pack, offer.tags);
    let Offer { pack, rate, gso, .. } = offer;
    let lines = (offer.rate * offer.seconds).round() as u64;
    send_datagrams(to, &datagrams, Flow { pack, rate, lines, first: 0, gso, sockets: 1 })
}

/// How datagrams that are made already leave.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Lines in each of them.
    pub pack: u64,
    /// Lines a second.
    pub rate: f64,
    /// Lines in all.
    pub lines: u64,
    /// Of them so many come first, at a tenth of the rate, since their series are new.
    pub first: u64,
    /// Datagrams that one message is cut into, at the most.
    pub gso: u64,
    /// Sockets that take turns: a receiver with several of its own is given each sender's
    /// datagrams on the same one.
    pub sockets: u64,
}

/// Sends them round and round.
pub fn send_datagrams(to: SocketAddr, datagrams: &Datagrams, flow: Flow) -> Result<Sent> {
    let total = flow.lines.div_ceil(flow.pack);
    let (per_second, gait) = (flow.rate / flow.pack as f64, Gait::of(flow));
    let senders = (0..flow.sockets.max(1)).map(|_| Sender::connect(to, datagrams, flow.gso));
    let mut senders: VecDeque<_> = senders.collect::<Result<_>>()?;
    let began = Instant::now();
    let mut sent = 0;
    while sent < total {
        senders.rotate_left(1);
        let Some(sender) = senders.front_mut() else { break };
        let due = gait.due(began.elapsed().as_secs_f64());
        // A sender that fell behind must not make up for it by a flood of its own making.
        let burst = due.saturating_sub(sent).min(sender.burst(per_second)).min(total - sent);
        sender.send(sent, burst)?;
        sent += burst;
        rest(TICK);
    }
    Ok(Sent {
        points: sent * flow.pack,
        datagrams: Some(sent),
        bytes: sent * datagrams.length as u64,
        counter_sum: Some(datagrams.counter_sum(sent)),
        seconds: began.elapsed().as_secs_f64() - gait.delay(),
        ..Sent::default()
    })
}

/// When how many datagrams are due.
struct Gait {
    per_second: f64,
    /// Those that come first.
    first: f64,
}

impl Gait {
    fn of(flow: Flow) -> Self {
        let pack = flow.pack as f64;
        Self { per_second: flow.rate / pack, first: flow.first.min(flow.lines) as f64 / pack }
    }

    fn due(&self, seconds: f64) -> u64 {
        let slow = seconds * self.per_second / SLOWER;
        let fast = (seconds - self.delay()) * self.per_second;
        (if slow < self.first { slow } else { fast }) as u64
    }

    /// How much later the last is due for the first ones' sake.
    fn delay(&self) -> f64 {
        self.first * (SLOWER - 1.0) / self.per_second
    }
}

struct Sender<'a> {
    socket: UdpSocket,
    datagrams: &'a Datagrams,
    headers: MultiHeaders<()>,
    /// Datagrams in one message.
    segments: u64,
}

impl<'a> Sender<'a> {
    fn connect(to: SocketAddr, datagrams: &'a Datagrams, gso: u64) -> Result<Self> {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        let segments = gso.min(MESSAGE / datagrams.length.max(1) as u64).max(1);
        if segments > 1 {
            setsockopt(&socket, sockopt::UdpGsoSegment, &(datagrams.length as i32))
                .context("this kernel does not cut datagrams; try --gso 1")?;
        }
        let headers = MultiHeaders::preallocate(MESSAGES, None);
        Ok(Self { socket, datagrams, headers, segments })
    }

    /// The most that is sent at once, and never less than a message.
    fn burst(&self, per_second: f64) -> u64 {
        ((per_second * CATCH_UP.as_secs_f64()) as u64).max(self.segments)
    }

    /// Sends `count` datagrams of the round, from the one whose turn it is.
    fn send(&mut self, mut turn: u64, count: u64) -> Result<()> {
        let end = turn + count;
        while turn < end {
            turn += self.send_some(turn, end)?;
        }
        Ok(())
    }

    /// One call of the kernel; says how many datagrams it took.
    fn send_some(&mut self, turn: u64, end: u64) -> Result<u64> {
        let messages = messages(self.datagrams, turn, end, self.segments);
        let nowhere_else = vec![None; messages.len()];
        let socket = self.socket.as_raw_fd();
        let flags = MsgFlags::empty();
        match sendmmsg(socket, &mut self.headers, &messages, nowhere_else, [], flags) {
            Ok(taken) => {
                Ok(taken.map(|message| message.bytes / self.datagrams.length).sum::<usize>() as u64)
            }
            Err(Errno::EINTR | Errno::ENOBUFS | Errno::EAGAIN) => Ok(0),
            Err(Errno::ECONNREFUSED) => Err(Errno::ECONNREFUSED).context("nobody listens there"),
            Err(other) => Err(other.into()),
        }
    }
}

/// Cuts the datagrams from `turn` to `end` into messages; one ends where the round does.
fn messages(datagrams: &Datagrams, turn: u64, end: u64, segments: u64) -> Vec<[IoSlice<'_>; 1]> {
    let mut messages = Vec::new();
    let mut turn = turn;
    while turn < end && messages.len() < MESSAGES {
        let first = turn % datagrams.count;
        let count = segments.min(end - turn).min(datagrams.count - first);
        messages.push([IoSlice::new(datagrams.slice(first..first + count))]);
        turn += count;
    }
    messages
}

/// How many times as slowly as all others come those that come first.
const SLOWER: f64 = 10.0;

/// Between bursts, as in the measurements that we compare with.
const TICK: Duration = Duration::from_micros(200);

/// What a sender that was kept waiting makes up for at once: a few thousand datagrams at the
/// highest rates, which a buffer of 4 MiB holds.
const CATCH_UP: Duration = Duration::from_millis(2);

/// Messages in one call.
const MESSAGES: usize = 64;

/// The most bytes of one UDP message, before it is cut.
const MESSAGE: u64 = 65_507;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_come_slowly_and_the_rest_at_the_rate() {
        let flow = Flow { pack: 10, rate: 1000.0, lines: 9000, first: 500, gso: 1, sockets: 1 };
        let gait = Gait::of(flow);
        let due = [0.0, 1.0, 4.95, 5.0, 6.0].map(|seconds| gait.due(seconds));
        assert_eq!((due, gait.delay()), ([0, 10, 49, 50, 150], 4.5));
        let at_once = Gait::of(Flow { first: 0, ..flow });
        assert_eq!((at_once.due(2.0), at_once.delay()), (200, 0.0));
    }

    /// The messages of any stretch hold its datagrams, in order, none left out.
    #[test]
    fn messages_hold_every_datagram_once() {
        let datagrams = Datagrams::new(10, 1, false);
        let check = |turn: u64, end: u64, segments, expected: usize| {
            let messages = messages(&datagrams, turn, end, segments);
            assert_eq!(messages.len(), expected);
            let bytes: Vec<u8> = messages.iter().flat_map(|[message]| message.to_vec()).collect();
            let wanted: Vec<u8> = (turn..end)
                .map(|turn| turn % datagrams.count)
                .flat_map(|at| datagrams.slice(at..at + 1).to_vec())
                .collect();
            assert_eq!(bytes, wanted);
        };
        check(0, 10, 32, 1);
        check(0, 10, 4, 3);
        check(7, 23, 4, 5);
        check(5, 5, 4, 0);
        check(9, 11, 1, 2);
    }

    /// What is said to be sent is what a socket receives.
    #[test]
    fn totals_are_those_of_the_receiver() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        // Few enough for any receive buffer, and not a whole number of rounds.
        let offer =
            Offer { names: 30, pack: 4, tags: false, rate: 400_000.0, seconds: 0.001, gso: 32 };
        let sent = send(socket.local_addr().unwrap(), offer).unwrap();

        let mut buffer = [0; 2048];
        let received: Vec<String> = std::iter::from_fn(|| {
            let length = socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
        })
        .collect();
        let lines: Vec<&str> = received.iter().flat_map(|datagram| datagram.lines()).collect();
        let counters = lines.iter().filter_map(|line| line.strip_suffix("|c"));
        let values = counters.map(|line| line.rsplit_once(':').unwrap().1);
        assert_eq!(sent.datagrams, Some(100));
        assert_eq!(received.len(), 100);
        assert_eq!(lines.len() as u64, sent.points);
        assert_eq!(Some(values.map(|value| value.parse::<u64>().unwrap()).sum()), sent.counter_sum);
    }
}
