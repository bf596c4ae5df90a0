//! What the bodies of one listener may take together: memory, and processors.
//!
//! All the bodies that a listener holds may take up [`BODIES_MAX`] together, or two of the
//! largest; one that would grow beyond that is refused. Bodies of up to [`SMALL`] bytes, of which
//! there are no more than connections, are not asked. Large ones are parsed apart from the
//! runtime's other tasks, as many at a time as there are processors.

use std::ops::Deref;
use std::sync::Arc;
use std::thread::available_parallelism;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::block_in_place;

/// What the bodies of one listener share.
#[derive(Clone, Debug)]
pub(super) struct Bodies {
    /// A permit for each [`UNIT`] of memory.
    memory: Arc<Semaphore>,
    /// A permit for each large body that is parsed.
    parsing: Arc<Semaphore>,
}

/// A body, and its share of the listener's memory.
#[derive(Debug, Default)]
pub(super) struct Whole {
    bytes: Vec<u8>,
    share: Option<OwnedSemaphorePermit>,
}

impl Bodies {
    /// For bodies of up to `largest` bytes.
    pub(super) fn new(largest: usize) -> Self {
        let memory = BODIES_MAX.max(largest.saturating_mul(2)) / UNIT;
        let processors = available_parallelism().map_or(1, usize::from);
        Self {
            memory: Arc::new(Semaphore::new(memory.min(Semaphore::MAX_PERMITS))),
            parsing: Arc::new(Semaphore::new(processors)),
        }
    }

    /// Works on a body of `len` bytes; on a large one in its turn, and where it does not keep the
    /// other connections and sockets of this worker waiting.
    pub(super) async fn digest<T>(&self, len: usize, work: impl FnOnce() -> T) -> T {
        if len < LARGE {
            return work();
        }
        // It is never closed.
        let _turn = self.parsing.acquire().await;
        // A runtime of one thread, as tests use, has nobody to hand the others over to.
        let alone = Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread;
        if alone { work() } else { block_in_place(work) }
    }
}

impl Whole {
    /// Adds to it, if there is memory for so much.
    pub(super) fn grow(&mut self, more: &[u8], bodies: &Bodies) -> bool {
        let bytes = self.bytes.len() + more.len();
        let held = self.share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = bytes.saturating_sub(SMALL).div_ceil(UNIT).saturating_sub(held);
        if wanted > 0 {
            let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
            let Ok(permit) = Arc::clone(&bodies.memory).try_acquire_many_owned(wanted) else {
                return false;
            };
            match &mut self.share {
                Some(share) => share.merge(permit),
                none => *none = Some(permit),
            }
        }
        self.bytes.extend_from_slice(more);
        true
    }
}

impl Deref for Whole {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Some thousand points, which take about as long as the hand-over is worth.
const LARGE: usize = 256 << 10;

/// Sixteen bodies of the largest size that is allowed unless another is set.
const BODIES_MAX: usize = 256 << 20;

/// What usual senders put into a body; thousands of them cost little.
const SMALL: usize = 64 << 10;

/// In which steps memory is shared out.
const UNIT: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Whether, while a body is worked on for so long, another task of the only worker gets on.
    async fn others_get_on(len: usize, work: Duration) -> bool {
        let worker = tokio::spawn(async move {
            let (done, mut seen) = tokio::sync::oneshot::channel();
            tokio::spawn(async move { done.send(()) });
            let bodies = Bodies::new(0);
            let digested = bodies.digest(len, || {
                let end = Instant::now() + work;
                while Instant::now() < end && seen.try_recv().is_err() {
                    std::thread::yield_now();
                }
                Instant::now() < end
            });
            digested.await
        });
        worker.await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_large_body_keeps_nobody_waiting() {
        assert!(others_get_on(LARGE, Duration::from_secs(10)).await);
        let shown = others_get_on(LARGE - 1, Duration::from_millis(50)).await;
        assert!(!shown, "without `digest` they would get on as well");
    }

    #[test]
    fn large_bodies_share_the_memory() {
        let mut bodies = Bodies::new(0);
        bodies.memory = Arc::new(Semaphore::new(3));
        let whole = |bytes: usize| {
            let mut whole = Whole::default();
            let chunk = vec![0; 100];
            let grown = (0..bytes / 100).all(|_| whole.grow(&chunk, &bodies));
            grown.then_some(whole)
        };
        let first = whole(SMALL + 2 * UNIT).unwrap();
        let second = whole(SMALL + UNIT).unwrap();
        assert_eq!((first.len() / 100, bodies.memory.available_permits()), (675, 0));
        assert!(whole(SMALL + 100).is_none());
        assert!(whole(SMALL).is_some(), "small bodies are not asked");
        drop((first, second));
        assert_eq!(bodies.memory.available_permits(), 3);
    }
}
