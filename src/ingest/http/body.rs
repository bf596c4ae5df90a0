//! A request's body, whole, decompressed and within the limits of size, time and memory.
//!
//! Decompression streams, so a small body that unfolds to a huge one costs no more than the
//! limit before it is refused. Large bodies are parsed apart from the runtime's other tasks, as
//! many at a time as there are processors. All the bodies that a listener holds may take up
//! [`BODIES_MAX`] together, or two of the largest; one that would grow beyond that is refused
//! with 503, and bodies of up to [`SMALL`] bytes, of which there are no more than connections,
//! are not asked.

use super::answer::{Refusal, Web};
use super::encoding::Encoded;
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::error::Error;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::available_parallelism;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::block_in_place;
use tokio::time::timeout;

/// What the bodies of one listener share.
#[derive(Clone, Debug)]
pub(in crate::ingest) struct Shared {
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

impl Shared {
    /// For bodies of up to `largest` bytes.
    pub(in crate::ingest) fn new(largest: usize) -> Self {
        let memory = BODIES_MAX.max(largest.saturating_mul(2)) / UNIT;
        let processors = available_parallelism().map_or(1, usize::from);
        Self {
            memory: Arc::new(Semaphore::new(memory.min(Semaphore::MAX_PERMITS))),
            parsing: Arc::new(Semaphore::new(processors)),
        }
    }
}

impl Whole {
    /// Adds to it, if there is memory for so much.
    fn grow(&mut self, more: &[u8], shared: &Shared) -> bool {
        let bytes = self.bytes.len() + more.len();
        let held = self.share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = bytes.saturating_sub(SMALL).div_ceil(UNIT).saturating_sub(held);
        if wanted > 0 {
            let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
            let Ok(permit) = Arc::clone(&shared.memory).try_acquire_many_owned(wanted) else {
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

/// Reads the body, when the lanes have got through what came before.
pub(super) async fn read(request: Request, web: &Web) -> Result<Whole, Refusal> {
    let limits = web.config.limits;
    let most = limits.body.bytes();
    let encoded = request.extensions().get::<Encoded>().is_some();
    if !encoded && declared(&request) > most {
        return Err(too_large(most));
    }
    web.router.ease().await;
    let whole = match timeout(limits.request.0, collect(request, most, &web.bodies)).await {
        Ok(Ok(whole)) => whole,
        Ok(Err(Broken::NoMemory)) => {
            let text = "too many large bodies at a time; nothing of the request was kept";
            return Err(Refusal::new(503, "overloaded", text));
        }
        Ok(Err(Broken::Body(error))) if is_limit(&*error) => return Err(too_large(most)),
        Ok(Err(Broken::Body(_))) if encoded => {
            let text = "the body is not what its content encoding says";
            return Err(Refusal::new(400, "bad_encoding", text));
        }
        // The sender has gone, or does not keep to HTTP.
        Ok(Err(Broken::Body(_))) => {
            return Err(Refusal::new(400, "broken_body", "the body broke off"));
        }
        Err(_) => {
            let text = format!("the body took longer than {:?}", limits.request.0);
            return Err(Refusal::new(408, "request_timeout", text));
        }
    };
    web.book.received_bytes.add(whole.len() as u64);
    Ok(whole)
}

/// Why a body is not whole.
enum Broken {
    NoMemory,
    Body(Box<dyn Error + Send + Sync>),
}

async fn collect(request: Request, most: usize, shared: &Shared) -> Result<Whole, Broken> {
    let mut body = Limited::new(request.into_body(), most);
    let mut whole = Whole::default();
    while let Some(frame) = body.frame().await {
        // Trailers are of no interest.
        let Ok(data) = frame.map_err(Broken::Body)?.into_data() else { continue };
        if !whole.grow(&data, shared) {
            return Err(Broken::NoMemory);
        }
    }
    Ok(whole)
}

/// Works on a body of `len` bytes; on a large one in its turn, and where it does not keep the
/// other connections and sockets of this worker waiting.
pub(super) async fn digest<T>(len: usize, shared: &Shared, work: impl FnOnce() -> T) -> T {
    if len < LARGE {
        return work();
    }
    // It is never closed.
    let _turn = shared.parsing.acquire().await;
    // A runtime of one thread, as tests use, has nobody to hand the others over to.
    let alone = Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread;
    if alone { work() } else { block_in_place(work) }
}

fn declared(request: &Request) -> usize {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

fn too_large(most: usize) -> Refusal {
    let text = format!("the body is larger than {most} bytes, decompressed; send it in parts");
    Refusal::new(413, "body_too_large", text)
}

/// Layers wrap the error of the limit in errors of their own.
fn is_limit(error: &(dyn Error + 'static)) -> bool {
    let mut chain = Some(error);
    while let Some(error) = chain {
        if error.is::<LengthLimitError>() {
            return true;
        }
        chain = error.source();
    }
    false
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
            let shared = Shared::new(0);
            let digested = digest(len, &shared, || {
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
        let mut shared = Shared::new(0);
        shared.memory = Arc::new(Semaphore::new(3));
        let whole = |bytes: usize| {
            let mut whole = Whole::default();
            let chunk = vec![0; 100];
            let grown = (0..bytes / 100).all(|_| whole.grow(&chunk, &shared));
            grown.then_some(whole)
        };
        let first = whole(SMALL + 2 * UNIT).unwrap();
        let second = whole(SMALL + UNIT).unwrap();
        assert_eq!((first.len() / 100, shared.memory.available_permits()), (675, 0));
        assert!(whole(SMALL + 100).is_none());
        assert!(whole(SMALL).is_some(), "small bodies are not asked");
        drop((first, second));
        assert_eq!(shared.memory.available_permits(), 3);
    }
}
