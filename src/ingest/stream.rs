//! One connection, and the lines that are read from it.
//!
//! Reading never waits for the peer to read: what is to be answered is written as far as the
//! kernel takes it, and the rest waits in a bounded buffer. At the end of a stream a last line
//! without LF counts as one. A reset, silence for `limits.idle` and a stop of the listener do
//! not end a line, so what came of it is refused as `incomplete_line`. With TLS, we announce the
//! end as well.
//!
//! At a stop, what the kernel has already received is still read. While a backend that may
//! refuse is full, nothing is read, so that the senders feel it.
//!
//! Metrics: `idle_timeout`, `incomplete_line`, and noticed `paused` and `reply_dropped`.

use super::intake::{Context, Intake};
use crate::access::Denial;
use crate::net::{Peer, Stream, linger, say_goodbye};
use protocols::Point;
use protocols::frame::{Frame, LineFramer};
use protocols::timestamp::TimeRange;
use std::cell::RefCell;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// One client's connection.
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) presence: Presence,
}

/// The place that a connection takes up; free again when this is dropped.
pub(super) struct Presence {
    pub(super) peer: Peer,
    pub(super) context: Context,
    _permit: OwnedSemaphorePermit,
}

impl Presence {
    pub(super) fn new(peer: Peer, context: Context, permit: OwnedSemaphorePermit) -> Self {
        context.book.connections.add(1);
        Self { peer, context, _permit: permit }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.context.book.connections.sub(1);
    }
}

/// A protocol of lines.
pub(super) trait Speak {
    /// Takes one line; to break is to end the connection.
    fn take(&mut self, frame: Frame<'_>, desk: &mut Desk) -> ControlFlow<()>;

    /// Says that a point of that series was denied, if clients are told such things.
    fn deny(_denial: Denial, _point: &Point<'_>, _out: &mut Vec<u8>) {}
}

/// What lies ready for a line to be worked on.
pub(super) struct Desk {
    pub(super) intake: Intake,
    pub(super) replies: Replies,
    pub(super) peer: Peer,
    pub(super) times: TimeRange,
}

impl Desk {
    /// Counts and perhaps logs something refused.
    pub(super) fn refuse(&self, reason: &'static str, example: &[u8]) {
        self.intake.refuse(reason, 1, example, (&self.peer).into());
    }

    /// Hands over what lines have led to.
    fn submit<S: Speak>(&mut self) {
        let Self { intake, replies, peer, .. } = self;
        let mut dropped = 0;
        intake.submit_and_tell((&*peer).into(), |point, denial| {
            let told = replies.push(|out| S::deny(denial, point, out));
            dropped += u64::from(!told);
        });
        self.intake.context.book.noticed.add("reply_dropped", dropped);
    }

    /// Answers, unless the client has not read what it was told before.
    pub(super) fn reply(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.replies.push(write) {
            self.intake.context.book.noticed.add("reply_dropped", 1);
        }
    }
}

/// Why lines come no more.
#[derive(Clone, Copy)]
enum End {
    /// The client has said all.
    Eof,
    /// It asked for the end.
    Asked,
    Reset,
    Idle,
    Stop,
}

enum Read {
    Some,
    Nothing,
    End(End),
}

impl Connection {
    /// Reads lines to the end, `head` first.
    pub(super) async fn lines(self, head: &[u8], speak: impl Speak) {
        let Self { mut stream, presence } = self;
        let mut reader = Reader::new(&presence, speak);
        let end = match reader.feed(head) {
            ControlFlow::Break(()) => End::Asked,
            ControlFlow::Continue(()) => reader.read_to_end(&mut stream).await,
        };
        reader.end(end);
        reader.desk.replies.flush_to_end(&mut stream).await;
        match end {
            // What it sent after that is not read, and must not cost it the answers before.
            End::Asked => linger(stream, LAST_REPLY).await,
            End::Eof | End::Idle | End::Stop => say_goodbye(&mut stream).await,
            End::Reset => {}
        }
    }
}

struct Reader<S> {
    framer: LineFramer,
    speak: S,
    desk: Desk,
}

impl<S: Speak> Reader<S> {
    fn new(presence: &Presence, speak: S) -> Self {
        let context = &presence.context;
        let framer = LineFramer::new(context.config.limits.line.bytes());
        let (intake, replies) = (context.intake(), Replies::default());
        let desk = Desk { intake, replies, peer: presence.peer, times: TimeRange::ALL };
        Self { framer, speak, desk }
    }

    async fn read_to_end(&mut self, stream: &mut Stream) -> End {
        let stop = self.desk.intake.context.stop.clone();
        let idle = self.desk.intake.context.config.idle();
        let mut heard = Instant::now();
        loop {
            self.desk.replies.flush(stream);
            if self.desk.intake.refusing() {
                self.pause().await;
                heard = Instant::now();
            }
            tokio::select! {
                // A broken connection is found out by reading.
                _ = stream.readable() => {}
                _ = stream.writable(), if !self.desk.replies.is_empty() => continue,
                () = sleep_until(heard + idle) => return End::Idle,
                () = stop.cancelled() => return self.read_rest(stream),
            }
            match self.read(|chunk| stream.try_read(chunk)) {
                Read::Some => heard = Instant::now(),
                Read::Nothing => {}
                Read::End(end) => return end,
            }
            self.desk.intake.ease().await;
            consume_budget().await;
        }
    }

    /// Leaves the stream alone until there is room again.
    async fn pause(&self) {
        let context = &self.desk.intake.context;
        context.book.noticed.add("paused", 1);
        while self.desk.intake.refusing() && !context.stop.is_cancelled() {
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = context.stop.cancelled() => {}
            }
        }
    }

    /// Reads what the kernel has received so far.
    fn read_rest(&mut self, stream: &mut Stream) -> End {
        for _ in 0..LAST_CHUNKS {
            match self.read(|chunk| stream.read_now(chunk)) {
                Read::Some => {}
                Read::Nothing => break,
                Read::End(end) => return end,
            }
        }
        End::Stop
    }

    /// Takes all that there is to read, as far as it fits: what is done once for each of these seldom is
    /// done for little.
    fn read(&mut self, read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Read {
        BUFFER.with_borrow_mut(|buffer| {
            let (len, end) = fill(buffer, read);
            match (self.feed(buffer.get(..len).unwrap_or_default()), end) {
                (ControlFlow::Break(()), _) => Read::End(End::Asked),
                (_, Some(end)) => Read::End(end),
                _ if len == 0 => Read::Nothing,
                _ => Read::Some,
            }
        })
    }

    /// Takes the lines of a chunk; those after one that ends the connection are not read.
    fn feed(&mut self, chunk: &[u8]) -> ControlFlow<()> {
        let (speak, desk) = (&mut self.speak, &mut self.desk);
        desk.intake.context.book.received_bytes.add(chunk.len() as u64);
        desk.times = desk.intake.context.times();
        let mut flow = ControlFlow::Continue(());
        self.framer.feed(chunk, |frame| {
            if flow.is_continue() {
                flow = speak.take(frame, desk);
            }
        });
        desk.submit::<S>();
        flow
    }

    fn end(&mut self, end: End) {
        let (speak, desk) = (&mut self.speak, &mut self.desk);
        match end {
            End::Eof => self.framer.finish(|frame| {
                // Whether it asks for the end means nothing any more.
                let _ = speak.take(frame, desk);
            }),
            End::Asked => {}
            End::Reset | End::Idle | End::Stop => self.framer.finish(|frame| {
                if let Frame::Line(line) = frame {
                    desk.refuse("incomplete_line", line);
                }
            }),
        }
        if let End::Idle = end {
            desk.refuse("idle_timeout", b"");
        }
        desk.submit::<S>();
    }
}

/// Reads until there is nothing more, or no room; answers how much that was, and whether that is the
/// end.
fn fill(
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
) -> (usize, Option<End>) {
    let mut len = 0;
    while let Some(room) = buffer.get_mut(len..).filter(|room| !room.is_empty()) {
        match read(room) {
            Ok(0) => return (len, Some(End::Eof)),
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(_) => return (len, Some(End::Reset)),
        }
    }
    (len, None)
}

/// Answers that wait for the client to read.
#[derive(Debug, Default)]
pub(super) struct Replies {
    waiting: Vec<u8>,
    /// What was written is not with the kernel yet, as TLS has it.
    unflushed: bool,
    /// The client reads no more.
    broken: bool,
}

impl Replies {
    /// Adds an answer, whole or not at all; says whether.
    fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let room = !self.broken && self.waiting.len() < REPLY_BYTES_MAX;
        if room {
            write(&mut self.waiting);
        }
        room
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.unflushed
    }

    /// Writes as much as the kernel takes.
    fn flush(&mut self, stream: &mut Stream) {
        if self.is_empty() {
            return;
        }
        while !self.waiting.is_empty() {
            match stream.try_write(&self.waiting) {
                Ok(len) => drop(self.waiting.drain(..len)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.broken = true;
                    self.waiting.clear();
                }
            }
        }
        self.unflushed = !stream.try_flush();
    }

    /// Gives the client a moment to read what is left.
    async fn flush_to_end(&mut self, stream: &mut Stream) {
        let flushed = async {
            self.flush(stream);
            while !self.is_empty() && stream.writable().await.is_ok() {
                self.flush(stream);
            }
        };
        // It had its chance.
        let _ = timeout(LAST_REPLY, flushed).await;
    }
}

thread_local! {
    /// What is read into: of a thread and not of a connection, since most of those are idle. Nothing
    /// waits while it is in use.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into());
}

/// What is taken at once.
const CHUNK: usize = 64 << 10;

/// About 600 refusals; a client that has not read so many will not miss one more.
const REPLY_BYTES_MAX: usize = 64 << 10;

const LAST_REPLY: Duration = Duration::from_secs(1);

/// Above any receive buffer the kernel gives to a stream.
const LAST_CHUNKS: usize = 1024;

/// Short against the patience of any sender.
const PAUSE: Duration = Duration::from_millis(50);
