//! A payload as datagrams: many with one call of the kernel, and each accounted for.
//!
//! Progress within a payload is kept from one attempt to the next, so that none is sent twice.
//! After each call the socket is asked for a report that nobody took the last datagram; the kernel
//! itself stops at the next one when there is a report, but forgets it then. So where it stops
//! with no full buffer to blame, the next datagram goes alone, and when nobody takes that either,
//! the one before it goes again, too.

use super::calls::{Call, Cutting};
use super::connection::Socket;
use crate::backend::Payload;
use crate::books::BackendBook;
use nix::errno::Errno;
use protocols::statsd::packets;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::sleep;

/// The way of payloads out of one shipper.
#[derive(Debug)]
pub(super) struct Datagrams {
    max_payload: usize,
    progress: Progress,
    pace: Pace,
    /// Whether the kernel cuts messages of UDP into datagrams, as far as is known.
    cutting: Cutting,
    /// Calls since others had their turn.
    calls: u32,
    book: Arc<BackendBook>,
}

/// Bytes of the payload born then that are out already, and lines of it that are too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    payload: (usize, i64),
    sent: usize,
    oversized: u32,
}

/// How datagrams go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Many at once.
    Many,
    /// One, since the kernel stopped before it for a reason unknown; the message that went out
    /// before took up so many bytes.
    Wary(usize),
    /// One, since nobody took the last.
    Refused,
}

impl Datagrams {
    /// Datagrams of this size at the most, and at the least, too, where they are to be filled.
    pub(super) fn new(max_payload: usize, fill: bool, book: Arc<BackendBook>) -> Self {
        let (progress, pace) = (Progress::default(), Pace::Many);
        let cutting = if fill { Cutting::Filled(max_payload) } else { Cutting::Equal };
        Self { max_payload, progress, pace, cutting, calls: 0, book }
    }

    /// Sends what is left of a payload; answers how many of its lines are too large for the kernel.
    pub(super) async fn send(&mut self, socket: Socket<'_>, payload: &Payload) -> io::Result<u32> {
        self.take_up(payload);
        loop {
            let rest = payload.body.get(self.progress.sent..).unwrap_or(&[]);
            let packets = packets(rest, self.max_payload).take(AT_ONCE).collect::<Vec<_>>();
            let Some(first) = packets.first() else { break };
            match self.pace {
                Pace::Many => self.many(socket, &packets).await?,
                Pace::Wary(_) | Pace::Refused => self.one(socket, first).await?,
            }
        }
        Ok(std::mem::take(&mut self.progress).oversized)
    }

    fn take_up(&mut self, payload: &Payload) {
        let identity = (payload.body.as_ptr().addr(), payload.born.0);
        if self.progress.payload != identity {
            self.progress = Progress { payload: identity, ..Progress::default() };
        }
    }

    /// One call; others have their turn after a few.
    async fn many(&mut self, socket: Socket<'_>, packets: &[&[u8]]) -> io::Result<()> {
        // Other kinds of socket would send a message as it is.
        let call = Call::of(packets, if socket.is_udp() { self.cutting } else { Cutting::No });
        match socket.make(&call) {
            Ok(messages) => self.taken(socket, &call, messages)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => socket.writable().await?,
            Err(error) if call.is_cut() && is_about_cutting(&error) => self.cutting = Cutting::No,
            Err(error) => self.not_taken(packets.first().unwrap_or(&&[][..]), error)?,
        }
        self.calls += 1;
        if self.calls >= TURN_CALLS {
            self.calls = 0;
            yield_now().await;
        }
        Ok(())
    }

    fn taken(&mut self, socket: Socket<'_>, call: &Call<'_>, messages: usize) -> io::Result<()> {
        let before = call.bytes(messages.saturating_sub(1));
        let all = call.bytes(messages);
        if let Some(report) = socket.report()? {
            self.progress.sent += before;
            self.pace = Pace::Refused;
            return Err(report);
        }
        self.progress.sent += all;
        if messages < call.len() && socket.has_room() {
            self.pace = Pace::Wary(all - before);
        }
        Ok(())
    }

    /// Sends a datagram, and waits for as long as it takes to hear that nobody took it.
    async fn one(&mut self, socket: Socket<'_>, packet: &[u8]) -> io::Result<()> {
        if let Err(error) = socket.send(packet).await {
            return self.not_taken(packet, error);
        }
        let mut report = socket.report()?;
        if report.is_none() && socket.is_udp() {
            sleep(REPORT_WITHIN).await;
            report = socket.report()?;
        }
        let before = std::mem::replace(&mut self.pace, Pace::Many);
        let Some(report) = report else {
            self.progress.sent += packet.len() + 1;
            return Ok(());
        };
        if let Pace::Wary(message) = before {
            self.progress.sent -= message;
        }
        self.pace = Pace::Refused;
        Err(report)
    }

    /// The kernel would not take this packet, which is lost if that will never be otherwise.
    fn not_taken(&mut self, packet: &[u8], error: io::Error) -> io::Result<()> {
        if error.raw_os_error() != Some(Errno::EMSGSIZE as i32) {
            self.pace = Pace::Refused;
            return Err(error);
        }
        if let Pace::Wary(_) = self.pace {
            self.pace = Pace::Many;
        }
        self.book.noticed.add("send_too_large", 1);
        self.progress.oversized += lines(packet);
        self.progress.sent += packet.len() + 1;
        Ok(())
    }
}

/// Whether the kernel cannot cut, or not on this way: another MTU, no checksums.
fn is_about_cutting(error: &io::Error) -> bool {
    let known = [Errno::EINVAL, Errno::EMSGSIZE, Errno::EIO, Errno::EOPNOTSUPP, Errno::ENOPROTOOPT];
    known.iter().any(|known| error.raw_os_error() == Some(*known as i32))
}

#[allow(clippy::naive_bytecount)] // One datagram.
fn lines(packet: &[u8]) -> u32 {
    let feeds = packet.iter().filter(|byte| **byte == b'\n').count();
    u32::try_from(feeds + 1).unwrap_or(u32::MAX)
}

/// Packets of one call: enough that a call's own cost is none, few enough for everybody else.
const AT_ONCE: usize = 64;

/// Below a millisecond's work. A shipper that has less than its turn falls behind its shaper where
/// they share a processor.
const TURN_CALLS: u32 = 4;

/// As long as the report of a host that is not on another continent takes.
const REPORT_WITHIN: Duration = Duration::from_millis(50);
