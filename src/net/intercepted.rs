//! A stream with something between it and its reader; what is written goes straight through.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What stands between a stream and its reader.
pub trait Intercept<S> {
    /// Reads in the place of the stream.
    fn poll_read(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>;

    /// The stream has taken something that was written, or has failed to.
    fn written(&mut self) {}
}

/// A stream that is read by way of an interceptor.
#[derive(Debug)]
pub struct Intercepted<S, I> {
    /// The stream itself.
    pub stream: S,
    /// What its reads go through.
    pub interceptor: I,
}

impl<S: Unpin, I: Intercept<S> + Unpin> AsyncRead for Intercepted<S, I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, interceptor } = &mut *self;
        interceptor.poll_read(Pin::new(stream), cx, into)
    }
}

impl<S: AsyncWrite + Unpin, I: Intercept<S> + Unpin> AsyncWrite for Intercepted<S, I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if polled.is_ready() {
            self.interceptor.written();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
