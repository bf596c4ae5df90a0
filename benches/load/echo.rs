//! Marks: lone points that a gateway sends back, and how long each was away.
//!
//! A mark leaves at the time that is taken before the call of the kernel, and is back when the
//! kernel has it for our socket, by the kernel's own stamp: how soon our thread reads it does not
//! matter. Both clocks are the machine's.

use crate::pace::rest;
use anyhow::{Context, Result, anyhow};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// When each mark came, by number.
pub type Times = BTreeMap<u64, SystemTime>;

/// Where marks come back to. Dropping it ends its thread.
pub struct Echo {
    address: SocketAddr,
    heard: Arc<Mutex<Times>>,
    closed: Arc<AtomicBool>,
}

impl Echo {
    /// Listens on a free port.
    pub fn start() -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(GLANCE))?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)
            .context("the kernel does not tell when datagrams come")?;
        let address = socket.local_addr()?;
        let echo = Self { address, heard: Arc::default(), closed: Arc::default() };
        let (heard, closed) = (Arc::clone(&echo.heard), Arc::clone(&echo.closed));
        thread::spawn(move || listen(&socket, &heard, &closed));
        Ok(echo)
    }

    /// The section of a backend that sends each mark back at once, or as late as `flush`.
    pub fn section(&self, flush: Option<Duration>) -> String {
        let wait = flush.map_or_else(
            || "batch = { points = 1 }\n".to_owned(),
            |flush| format!("flush = \"{}ms\"\n", flush.as_millis()),
        );
        format!("kind = \"statsd\"\naddress = \"udp://{}\"\n{wait}", self.address)
    }

    /// What has come back.
    pub fn heard(&self) -> Times {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.closed.store(true, Relaxed);
    }
}

fn listen(socket: &UdpSocket, heard: &Mutex<Times>, closed: &AtomicBool) {
    let mut buffer = [0; 2048];
    while !closed.load(Relaxed) {
        match receive(socket, &mut buffer) {
            Ok((time, datagram)) => {
                let numbers = datagram.split(|byte| *byte == b'\n').filter_map(number);
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                numbers.for_each(|number| _ = heard.entry(number).or_insert(time));
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// A datagram, and when the kernel had it.
fn receive<'a>(socket: &UdpSocket, buffer: &'a mut [u8]) -> Result<(SystemTime, &'a [u8]), Errno> {
    let mut space = cmsg_space!(TimeSpec);
    let (length, time) = {
        let mut slots = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::empty();
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut slots, Some(&mut space), flags)?;
        let stamp = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(UNIX_EPOCH + Duration::from(stamp)),
            _ => None,
        });
        (message.bytes, stamp)
    };
    let datagram = buffer.get(..length).unwrap_or_default();
    Ok((time.unwrap_or_else(SystemTime::now), datagram))
}

/// The line of a mark.
pub fn mark(number: u64) -> String {
    format!("{MARK}:{number}|g")
}

fn number(line: &[u8]) -> Option<u64> {
    let value = line.strip_prefix(MARK.as_bytes())?.strip_prefix(b":")?.strip_suffix(b"|g")?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// A thread that sends marks until it is told to end.
pub struct Marks {
    ends: Arc<AtomicBool>,
    sender: JoinHandle<Result<Times>>,
}

impl Marks {
    /// One after the other, about so far apart.
    pub fn start(to: SocketAddr, apart: Duration) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let sender = thread::spawn(move || {
            let mut sent = Times::new();
            let socket = mark_socket(to)?;
            while !told.load(Relaxed) {
                let number = sent.len() as u64;
                sent.insert(number, send_mark(&socket, number)?);
                rest(apart + jitter(number, apart));
            }
            Ok(sent)
        });
        Self { ends, sender }
    }

    /// When each of them left.
    pub fn end(self) -> Result<Times> {
        self.ends.store(true, Relaxed);
        self.sender.join().map_err(|_| anyhow!("the sender of marks ended by a bug of its own"))?
    }
}

/// A socket that marks leave from.
pub fn mark_socket(to: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(to)?;
    Ok(socket)
}

/// Sends one; says when it left.
pub fn send_mark(socket: &UdpSocket, number: u64) -> Result<SystemTime> {
    let line = mark(number);
    let now = SystemTime::now();
    socket.send(line.as_bytes())?;
    Ok(now)
}

/// Up to `most`, the same for a number each time, and in step with no clock.
pub fn jitter(number: u64, most: Duration) -> Duration {
    most.mul_f64((number * 37 % 101) as f64 / 101.0)
}

/// How long marks were away.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Away {
    pub marks: u64,
    pub missing: u64,
    /// Seconds.
    pub p50: f64,
    pub p99: f64,
    pub longest: f64,
}

impl Away {
    /// Of the marks that left, when each came back.
    pub fn of(left: &Times, back: &Times) -> Self {
        let mut away: Vec<f64> = left
            .iter()
            .filter_map(|(number, left)| {
                Some(back.get(number)?.duration_since(*left).unwrap_or_default().as_secs_f64())
            })
            .collect();
        away.sort_by(f64::total_cmp);
        Self {
            marks: left.len() as u64,
            missing: (left.len() - away.len()) as u64,
            p50: rank(&away, 0.5),
            p99: rank(&away, 0.99),
            longest: rank(&away, 1.0),
        }
    }
}

/// The nearest rank: no less than that part is not above it.
fn rank(sorted: &[f64], part: f64) -> f64 {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// The name of marks, which no series of the load has.
pub const MARK: &str = "mark";

/// How often the listening thread looks whether it is to end.
const GLANCE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_with_the_time_of_the_kernel() {
        let echo = Echo::start().unwrap();
        let socket = mark_socket(echo.address).unwrap();
        let left: Times =
            (0..3).map(|number| (number, send_mark(&socket, number).unwrap())).collect();
        while echo.heard().len() < 3 {
            rest(Duration::from_millis(1));
        }
        let away = Away::of(&left, &echo.heard());
        assert_eq!((away.marks, away.missing), (3, 0));
        assert!(away.longest >= away.p50);
    }

    #[test]
    fn numbers_are_those_of_marks_and_of_nothing_else() {
        assert_eq!(number(mark(17).as_bytes()), Some(17));
        assert_eq!(number(b"market:17|g"), None);
        assert_eq!(number(b"mark:17|c"), None);
    }

    #[test]
    fn ranks_are_the_nearest() {
        let at = |milliseconds| UNIX_EPOCH + Duration::from_millis(milliseconds);
        let left: Times = (1..=200).map(|number| (number, at(0))).collect();
        let back: Times = (1..=198).map(|number| (number, at(number))).collect();
        let away = Away::of(&left, &back);
        assert_eq!((away.marks, away.missing), (200, 2));
        let expected = [0.099, 0.197, 0.198];
        for (got, expected) in [away.p50, away.p99, away.longest].into_iter().zip(expected) {
            assert!((got - expected).abs() < 1e-9, "{away:?}");
        }
        assert!(Away::of(&left, &Times::new()).p99.is_nan());
    }
}
