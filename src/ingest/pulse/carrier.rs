//! How bytes travel to the broker: our own streams, with our own TLS, under the AMQP client.
//!
//! The client connects by itself, using a runtime that it is given. The runtime it gets here has streams
//! that we have connected, so that certificates are judged, renewed and explained as everywhere else,
//! and no second TLS library is linked. The streams can be severed: the client has a thread for each,
//! which would otherwise last for ever if the broker never says a word.

use crate::net::{Intercept, Intercepted};
use crate::tls;
use async_rs::traits::{AsyncToSocketAddrs, Reactor};
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_core::Stream;
use lapin::uri::{AMQPScheme, AMQPUri};
use std::future::ready;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A stream, with TLS or without, until it is severed.
pub(super) type Carrier = Compat<Intercepted<Box<dyn Duplex>, Severed>>;

/// Something that is read and written.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The runtime of the AMQP client.
pub(super) type Kit = RuntimeParts<Tokio, Streams>;

/// The present runtime, with streams of ours.
pub(super) fn kit() -> Runtime<Kit> {
    let tokio = Tokio::current();
    Runtime::new(RuntimeParts::new(tokio.clone(), Streams(tokio)))
}

/// Connects to the broker, until the token is cancelled; the error says what to mend.
pub(super) async fn connect(
    uri: &AMQPUri,
    tls: &tls::Client,
    sever: &CancellationToken,
) -> io::Result<Carrier> {
    let (host, port) = (uri.authority.host.as_str(), uri.authority.port);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    stream.set_nodelay(true)?;
    let stream: Box<dyn Duplex> = match uri.scheme {
        AMQPScheme::AMQP => Box::new(stream),
        AMQPScheme::AMQPS => Box::new(tls.connect(host, stream).await?),
    };
    let interceptor = Severed(Box::pin(sever.clone().cancelled_owned()));
    Ok(Intercepted { stream, interceptor }.compat())
}

/// What ends a stream when somebody says so, whatever the other end does.
pub(super) struct Severed(Pin<Box<WaitForCancellationFutureOwned>>);

impl<S: AsyncRead> Intercept<S> for Severed {
    fn poll_read(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        stream.poll_read(cx, into)
    }
}

/// Tokio's timers; it connects nowhere by itself.
#[derive(Clone, Debug)]
pub(super) struct Streams(Tokio);

impl Reactor for Streams {
    type TcpStream = Carrier;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl futures_io::AsyncRead + futures_io::AsyncWrite + Send + Unpin + 'static>
    {
        self.0.register(socket)
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(duration)
    }

    async fn tcp_connect<A: AsyncToSocketAddrs + Send>(&self, _: A) -> io::Result<Carrier> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn tcp_connect_addr(
        &self,
        _: SocketAddr,
    ) -> impl Future<Output = io::Result<Carrier>> + Send + 'static {
        ready(Err(io::ErrorKind::Unsupported.into()))
    }
}
