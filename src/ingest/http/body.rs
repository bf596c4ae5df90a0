//! A request's body, whole, decompressed and within the limits of size and time.
//!
//! Decompression streams, so a small body that unfolds to a huge one costs no more than the
//! limit before it is refused. Large bodies are parsed apart from the runtime's other tasks.

use super::answer::{Refusal, Web};
use super::encoding::Encoded;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::error::Error;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;
use tokio::time::timeout;

/// Reads the body, when the lanes have got through what came before.
pub(super) async fn read(request: Request, web: &Web) -> Result<Bytes, Refusal> {
    let limits = web.config.limits;
    let most = limits.body.bytes();
    let encoded = request.extensions().get::<Encoded>().is_some();
    if !encoded && declared(&request) > most {
        return Err(too_large(most));
    }
    web.router.ease().await;
    let body = Limited::new(request.into_body(), most).collect();
    let bytes = match timeout(limits.request.0, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if is_limit(&*error) => return Err(too_large(most)),
        Ok(Err(_)) if encoded => {
            let text = "the body is not what its content encoding says";
            return Err(Refusal::new(400, "bad_encoding", text));
        }
        // The sender has gone, or does not keep to HTTP.
        Ok(Err(_)) => return Err(Refusal::new(400, "broken_body", "the body broke off")),
        Err(_) => {
            let text = format!("the body took longer than {:?}", limits.request.0);
            return Err(Refusal::new(408, "request_timeout", text));
        }
    };
    web.book.received_bytes.add(bytes.len() as u64);
    Ok(bytes)
}

/// Works on a body of `len` bytes; on a large one where it does not keep the other connections
/// and sockets of this worker waiting.
pub(super) fn digest<T>(len: usize, work: impl FnOnce() -> T) -> T {
    // A runtime of one thread, as tests use, has nobody to hand the others over to.
    let shared = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if len >= LARGE && shared { block_in_place(work) } else { work() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Whether, while a body is worked on for so long, another task of the only worker gets on.
    async fn others_get_on(len: usize, work: Duration) -> bool {
        let worker = tokio::spawn(async move {
            let (done, mut seen) = tokio::sync::oneshot::channel();
            tokio::spawn(async move { done.send(()) });
            digest(len, || {
                let end = Instant::now() + work;
                while Instant::now() < end && seen.try_recv().is_err() {
                    std::thread::yield_now();
                }
                Instant::now() < end
            })
        });
        worker.await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_large_body_keeps_nobody_waiting() {
        assert!(others_get_on(LARGE, Duration::from_secs(10)).await);
        let shown = others_get_on(LARGE - 1, Duration::from_millis(50)).await;
        assert!(!shown, "without `digest` they would get on as well");
    }
}
