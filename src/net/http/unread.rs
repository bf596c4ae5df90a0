//! What a handler leaves unread of a request's body.
//!
//! The next request of a connection begins where the body of this one ends. A little that is just
//! about to come is read and thrown away, so that a client which is refused keeps its connection;
//! for more than that it is cheaper to begin another one.

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// A body in the hands of a handler, who leaves it behind unread, or somewhere on the way.
pub(super) struct Lent {
    body: Option<Incoming>,
    left: Left,
}

/// Where it is found again.
#[derive(Clone, Default)]
pub(super) struct Left(Arc<Mutex<Option<Incoming>>>);

impl Lent {
    pub(super) fn new(body: Incoming) -> (Self, Left) {
        let left = Left::default();
        (Self { body: Some(body), left: left.clone() }, left)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.left.0.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
    }
}

impl Left {
    /// Whether the body was read to its end, or is by now; `waits` is whether its sender waits to
    /// be asked for it.
    pub(super) async fn ends(self, waits: bool) -> bool {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(body) = left else { return true };
        if body.is_end_stream() {
            return true;
        }
        if waits || body.size_hint().lower() > BYTES_MAX {
            return false;
        }
        timeout(PATIENCE, drain(body)).await.unwrap_or(false)
    }
}

/// Whether that brought it to its end.
async fn drain(mut body: Incoming) -> bool {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        if bytes > BYTES_MAX {
            return false;
        }
    }
    true
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// What usual senders put into a body.
const BYTES_MAX: u64 = 64 << 10;

/// A round trip within a site: head and body often come in two packets. The answer waits for it.
const PATIENCE: Duration = Duration::from_millis(100);
