//! HTTP/1 on one connection, with a limit on every wait.
//!
//! Shared by all that speaks HTTP: the points, the OpenTSDB port and the admin listener.
//! What is answered is the axum router's affair; here it is only decided how long a client
//! may take. A client may be silent between requests for `idle`, needs at most `header` for
//! a request's head once it has begun, and gets its answer within `request` and `idle`.
//! Reading a body within `request` (and answering 408) is the handler's part.
//!
//! At a stop the request under way is answered with `Connection: close`, and an idle
//! connection ends. A client that still sends when its answer is out (a body too large, say)
//! is listened to for a moment, so that the answer is not lost in a reset.

use super::accept::Peer;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Silence between two requests.
    pub idle: Duration,
    /// From the first byte of a request's head to its last.
    pub header: Duration,
    /// From there to the end of the body.
    pub request: Duration,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By either side, in order or in a reset.
    Closed,
    /// Silent for too long.
    Idle,
    /// A head that did not come to its end.
    SlowHeader,
    /// A body or an answer that did not come to its end.
    SlowRequest,
}

/// Serves one connection to its end. Handlers find the [`Peer`] among a request's extensions.
pub async fn serve<S>(
    stream: S,
    peer: Peer,
    app: axum::Router,
    timeouts: Timeouts,
    stop: CancellationToken,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let phase = Arc::new(watch::Sender::new(Phase::begin(Step::Idle)));
    let steps = Arc::clone(&phase);
    let service = service_fn(move |mut request: Request<Incoming>| {
        steps.send_replace(Phase::begin(Step::Request));
        request.extensions_mut().insert(peer);
        let answer = app.clone().oneshot(request.map(Body::new));
        let steps = Arc::clone(&steps);
        Box::pin(async move {
            let answer = answer.await;
            steps.send_replace(Phase::begin(Step::Idle));
            answer
        })
    });
    let io = TokioIo::new(Watched { stream, phase: Arc::clone(&phase) });
    let mut connection = http1::Builder::new()
        .header_read_timeout(None) // Counts idle time as well; `overdue` tells them apart.
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(io, service);
    let mut late = pin!(overdue(phase.subscribe(), timeouts));
    let mut stopping = false;
    loop {
        tokio::select! {
            // An error is the client's: a reset, or no HTTP at all, which hyper has answered.
            _ = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break,
            ended = &mut late => return ended,
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
    linger(connection.into_parts().io.into_inner().stream).await;
    Ended::Closed
}

/// Where a connection is, and since when.
#[derive(Clone, Copy, Debug)]
struct Phase {
    step: Step,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Head,
    Request,
}

impl Phase {
    fn begin(step: Step) -> Self {
        Self { step, since: Instant::now() }
    }

    fn deadline(&self, timeouts: &Timeouts) -> Instant {
        self.since
            + match self.step {
                Step::Idle => timeouts.idle,
                Step::Head => timeouts.header,
                Step::Request => timeouts.request + timeouts.idle,
            }
    }

    const fn ended(&self) -> Ended {
        match self.step {
            Step::Idle => Ended::Idle,
            Step::Head => Ended::SlowHeader,
            Step::Request => Ended::SlowRequest,
        }
    }
}

/// Waits until the connection has stayed in one phase for too long.
async fn overdue(mut phase: watch::Receiver<Phase>, timeouts: Timeouts) -> Ended {
    loop {
        let now = *phase.borrow_and_update();
        tokio::select! {
            () = sleep_until(now.deadline(&timeouts)) => return now.ended(),
            changed = phase.changed() => if changed.is_err() {
                return Ended::Closed;
            },
        }
    }
}

/// Lets a client that still sends read its answer before the connection is closed.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let drained = async {
        stream.shutdown().await?;
        let mut rest = (&mut stream).take(LINGER_BYTES_MAX);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    // Whatever happens, the connection is over.
    let _ = timeout(LINGER, drained).await;
}

/// A stream that notices when a request begins and when an answer moves on.
struct Watched<S> {
    stream: S,
    phase: Arc<watch::Sender<Phase>>,
}

impl<S> Watched<S> {
    fn step(&self, from: Step, to: Step) {
        self.phase.send_if_modified(|phase| {
            let moves = phase.step == from;
            if moves {
                *phase = Phase::begin(to);
            }
            moves
        });
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, into);
        if into.filled().len() > before {
            self.step(Step::Idle, Step::Head);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if polled.is_ready() {
            self.step(Step::Idle, Step::Idle);
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

/// Ample for a head with a bearer token; hyper's own limit is 400 KiB, too much for thousands
/// of strangers.
const HEAD_BYTES_MAX: usize = 64 << 10;

const LINGER: Duration = Duration::from_secs(1);

const LINGER_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::{get, post};
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;

    const TIMEOUTS: Timeouts = Timeouts {
        idle: Duration::from_secs(60),
        header: Duration::from_secs(5),
        request: Duration::from_secs(30),
    };

    struct Client {
        stream: DuplexStream,
        stop: CancellationToken,
        served: JoinHandle<(Ended, Duration)>,
    }

    fn connect() -> Client {
        let (stream, server) = duplex(4096);
        let stop = CancellationToken::new();
        let app = axum::Router::new()
            .route("/", get(async |peer: axum::Extension<Peer>| peer.to_string()))
            .route("/echo", post(async |body: String| body))
            .route("/early", post(async || "no need to read"));
        let serving = serve(server, Peer::Local, app, TIMEOUTS, stop.clone());
        let served = tokio::spawn(async move {
            let start = Instant::now();
            (serving.await, start.elapsed())
        });
        Client { stream, stop, served }
    }

    impl Client {
        async fn send(&mut self, text: &str) {
            self.stream.write_all(text.as_bytes()).await.unwrap();
        }

        /// Reads until `end` has come.
        async fn read_to(&mut self, end: &str) -> String {
            let mut text = String::new();
            while !text.contains(end) {
                let byte = self.stream.read_u8().await.unwrap_or_else(|_| panic!("only {text}"));
                text.push(char::from(byte));
            }
            text
        }

        async fn ended(self) -> (Ended, u64) {
            let (ended, after) = self.served.await.unwrap();
            (ended, after.as_secs())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_after_idle_and_not_after_header() {
        let mut client = connect();
        client.send("GET / HTTP/1.1\r\n\r\n").await;
        assert!(client.read_to("unix").await.starts_with("HTTP/1.1 200"));
        assert_eq!(client.ended().await, (Ended::Idle, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_head_ends_after_header() {
        let mut client = connect();
        for byte in "GET ".chars() {
            client.send(&byte.to_string()).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(client.ended().await, (Ended::SlowHeader, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_without_end_ends_too() {
        let mut client = connect();
        client.send("POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc").await;
        assert_eq!(client.ended().await, (Ended::SlowRequest, 90));
    }

    #[tokio::test(start_paused = true)]
    async fn at_a_stop_the_request_under_way_is_answered_and_the_connection_ends() {
        let mut client = connect();
        client.send("POST /echo HTTP/1.1\r\nContent-Length: 4\r\n\r\nab").await;
        tokio::task::yield_now().await;
        client.stop.cancel();
        tokio::task::yield_now().await;
        client.send("cd").await;
        let answer = client.read_to("abcd").await;
        assert!(answer.contains("connection: close"), "{answer}");
        drop(client.stream);
        assert_eq!(client.served.await.unwrap().0, Ended::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn at_a_stop_an_idle_connection_ends() {
        let mut client = connect();
        client.send("GET / HTTP/1.1\r\n\r\n").await;
        client.read_to("unix").await;
        client.stop.cancel();
        assert_eq!(client.stream.read(&mut [0; 9]).await.unwrap(), 0);
        assert_eq!(client.ended().await.0, Ended::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn an_early_answer_reaches_a_client_that_still_sends() {
        let mut client = connect();
        client.send("POST /early HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n").await;
        for _ in 0..100 {
            client.send(&"x".repeat(1000)).await;
        }
        assert!(client.read_to("no need to read").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_close_its_half_first() {
        let mut client = connect();
        client.send("GET / HTTP/1.1\r\n\r\n").await;
        client.stream.shutdown().await.unwrap();
        client.read_to("unix").await;
        assert_eq!(client.ended().await.0, Ended::Closed);
    }
}
