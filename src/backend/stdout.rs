//! One JSON line a point on standard output, to look at.
//!
//! Payloads are written whole and one after the other, by a thread of their own: whoever reads
//! slowly, or not at all, stops that thread and nothing else. A pipe whose reader has gone away
//! refuses every payload (reason `closed`); any other trouble (a full disk behind `> file`) is a
//! reason to come back, and the payload goes on where it broke off.

use super::{Outcome, Payload, Ship, Shipping};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// What is particular to this kind of backend: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {}

/// Hands payloads to the thread that writes them.
#[derive(Debug)]
pub struct Shipper {
    /// Closing it ends the thread.
    jobs: mpsc::Sender<Job>,
    /// An attempt that was cancelled while its bytes were on their way.
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Job {
    payload: Payload,
    done: oneshot::Sender<io::Result<()>>,
}

#[derive(Debug)]
struct Pending {
    payload: Payload,
    done: oneshot::Receiver<io::Result<()>>,
}

impl Shipper {
    /// Writes to the process's standard output.
    ///
    /// # Errors
    ///
    /// If there is none, or no thread to be had.
    pub fn new() -> io::Result<Self> {
        // Past the buffer of `io::stdout`, which would not say how much of a payload is written.
        Self::to(Terminal(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    /// Writes to `sink`.
    ///
    /// # Errors
    ///
    /// If no thread is to be had.
    pub fn to(sink: impl Write + Send + 'static) -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel(1);
        // Not one of the runtime's own, which would wait for a stuck reader when it ends.
        std::thread::Builder::new().name("stdout".to_owned()).spawn(move || run(inbox, sink))?;
        Ok(Self { jobs, pending: None })
    }

    async fn attempt(&mut self, payload: &Payload) -> Outcome {
        loop {
            let Some(pending) = &mut self.pending else {
                if let Err(outcome) = self.hand_over(payload).await {
                    return outcome;
                }
                continue;
            };
            // Cancelled here, the attempt stays pending, and the next one finds it.
            let result = (&mut pending.done).await;
            let was_another = !same(&pending.payload, payload);
            self.pending = None;
            if !was_another {
                return outcome(result.unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into())));
            }
        }
    }

    async fn hand_over(&mut self, payload: &Payload) -> Result<(), Outcome> {
        let (done, answer) = oneshot::channel();
        let Ok(slot) = self.jobs.reserve().await else {
            return Err(outcome(Err(ErrorKind::BrokenPipe.into())));
        };
        slot.send(Job { payload: payload.clone(), done });
        self.pending = Some(Pending { payload: payload.clone(), done: answer });
        Ok(())
    }
}

impl Ship for Shipper {
    fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a> {
        Box::pin(self.attempt(payload))
    }
}

fn outcome(result: io::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Delivered,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            Outcome::Rejected { reason: "closed", detail: "standard output is closed".to_owned() }
        }
        Err(error) => Outcome::not_now(format!("standard output: {error}")),
    }
}

fn same(one: &Payload, other: &Payload) -> bool {
    one.born == other.born && one.body == other.body
}

/// The thread: one payload after the other until the shipper is gone.
fn run(mut inbox: mpsc::Receiver<Job>, mut sink: impl Write) {
    let mut broken_off: Option<(Payload, usize)> = None;
    while let Some(Job { payload, done }) = inbox.blocking_recv() {
        let begun = broken_off.take().filter(|(begun, _)| same(begun, &payload));
        let mut written = begun.map_or(0, |(_, written)| written);
        let result = write(&mut sink, &payload.body, &mut written);
        if result.is_err() {
            broken_off = Some((payload, written));
        }
        // Nobody waits for it if the shipper is gone.
        let _ = done.send(result);
    }
}

fn write(sink: &mut impl Write, body: &[u8], written: &mut usize) -> io::Result<()> {
    while let Some(rest) = body.get(*written..).filter(|rest| !rest.is_empty()) {
        match sink.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => *written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    sink.flush()
}

/// Standard output, of which several backends may write a payload each at a time.
struct Terminal(File);

impl Write for Terminal {
    /// Writes all of it unless there is trouble, so that payloads do not mix.
    fn write(&mut self, body: &[u8]) -> io::Result<usize> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = 0;
        match write(&mut self.0, body, &mut written) {
            Err(error) if written == 0 => Err(error),
            _ => Ok(written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whose turn it is to write.
static TURN: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::UnixNanos;
    use std::sync::Arc;
    use std::time::Duration;

    fn payload(body: &'static str) -> Payload {
        Payload::new(body, 1, UnixNanos(7))
    }

    /// Takes what its script says: so many bytes, or an error.
    struct Script {
        steps: Vec<Result<usize, ErrorKind>>,
        seen: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Script {
        fn write(&mut self, body: &[u8]) -> io::Result<usize> {
            let step = if self.steps.is_empty() { Ok(usize::MAX) } else { self.steps.remove(0) };
            let count = step?.min(body.len());
            self.seen.lock().unwrap().extend_from_slice(&body[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn scripted(steps: Vec<Result<usize, ErrorKind>>) -> (Shipper, Arc<Mutex<Vec<u8>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script = Script { steps, seen: Arc::clone(&seen) };
        (Shipper::to(script).unwrap(), seen)
    }

    #[tokio::test]
    async fn payloads_are_written_whole_and_in_order() {
        let (mut shipper, seen) = scripted(vec![Ok(1), Err(ErrorKind::Interrupted), Ok(1)]);
        assert_eq!(shipper.ship(&payload("one\n")).await, Outcome::Delivered);
        assert_eq!(shipper.ship(&payload("two\n")).await, Outcome::Delivered);
        assert_eq!(*seen.lock().unwrap(), b"one\ntwo\n");
    }

    #[tokio::test]
    async fn a_closed_pipe_refuses() {
        let (mut shipper, _) = scripted(vec![Err(ErrorKind::BrokenPipe)]);
        let outcome = shipper.ship(&payload("one\n")).await;
        assert!(matches!(outcome, Outcome::Rejected { reason: "closed", .. }), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_payload_goes_on_where_it_broke_off() {
        let full = || Err(ErrorKind::StorageFull);
        let (mut shipper, seen) = scripted(vec![Ok(2), full(), Ok(1), full()]);
        for _ in 0..2 {
            let outcome = shipper.ship(&payload("one\n")).await;
            assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
        }
        assert_eq!(shipper.ship(&payload("one\n")).await, Outcome::Delivered);
        assert_eq!(*seen.lock().unwrap(), b"one\n");
    }

    /// Writes nothing before it is told to.
    struct Gated(std::sync::mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Gated {
        fn write(&mut self, body: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_| ErrorKind::BrokenPipe)?;
            self.1.lock().unwrap().extend_from_slice(body);
            Ok(body.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_attempt_that_is_cancelled_is_not_written_twice() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (open, gate) = std::sync::mpsc::sync_channel(9);
        let mut shipper = Shipper::to(Gated(gate, Arc::clone(&seen))).unwrap();
        for _ in 0..3 {
            let one = payload("one\n");
            let attempt = tokio::time::timeout(Duration::from_millis(1), shipper.ship(&one));
            assert!(attempt.await.is_err());
        }
        open.send(()).unwrap();
        open.send(()).unwrap();
        assert_eq!(shipper.ship(&payload("one\n")).await, Outcome::Delivered);
        assert_eq!(shipper.ship(&payload("two\n")).await, Outcome::Delivered);
        assert_eq!(*seen.lock().unwrap(), b"one\ntwo\n");
    }
}
