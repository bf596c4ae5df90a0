//! HTTP/1 on one connection, with a limit on every wait.
//!
//! Shared by all that speaks HTTP: the points, the OpenTSDB port and the admin listener.
//! What is answered is the axum router's affair; here it is only decided how long a client
//! may take. A client may be silent between requests for `idle`, needs at most `header` for
//! a request's head once it has begun, and gets its answer within `request` and `idle`.
//! Reading a body within `request` (and answering 408) is the handler's part.
//!
//! At a stop the request under way is answered with `Connection: close`, and an idle
//! connection ends. So is one that is answered before its body has come, unless that is just about
//! to ([`unread`]); its client is listened to while it still sends, so that the answer is not lost
//! in a reset.

mod unread;

use super::accept::Peer;
use super::intercepted::{Intercept, Intercepted};
use super::linger::{linger, say_goodbye};
use axum::body::Body;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use unread::Lent;

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
    /// What came was no HTTP, and was answered 400.
    NotHttp,
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
        let (app, steps) = (app.clone(), Arc::clone(&steps));
        Box::pin(async move {
            let answer = answer(app, request).await;
            steps.send_replace(Phase::begin(Step::Idle));
            Ok::<_, Infallible>(answer)
        })
    });
    let interceptor = Watch(Arc::clone(&phase));
    let io = TokioIo::new(Intercepted { stream, interceptor });
    let mut connection = http1::Builder::new()
        .header_read_timeout(None) // Counts idle time as well; `overdue` tells them apart.
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(io, service);
    let mut late = pin!(overdue(phase.subscribe(), timeouts));
    let mut stopping = false;
    let ended = loop {
        tokio::select! {
            served = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break match served {
                Err(error) if error.is_parse() => Ended::NotHttp,
                _ => Ended::Closed,
            },
            ended = &mut late => break ended,
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    close(connection.into_parts().io.into_inner().stream, ended, timeouts.request, stop).await;
    ended
}

/// Closes a stream so that its client gets what was answered, though it may still be sending.
async fn close<S>(mut stream: S, ended: Ended, patience: Duration, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match ended {
        Ended::Closed | Ended::NotHttp => tokio::select! {
            () = linger(stream, patience) => {}
            () = async { stop.cancelled().await; sleep(AT_A_STOP).await; } => {}
        },
        Ended::Idle | Ended::SlowHeader | Ended::SlowRequest => say_goodbye(&mut stream).await,
    }
}

/// The answer to a request. It is the connection's last one if its body has not come by then.
async fn answer(app: axum::Router, request: Request<Incoming>) -> Response<Body> {
    // Who waits for leave to send the body has not been given it yet.
    let waits = request.headers().contains_key(EXPECT);
    let (parts, body) = request.into_parts();
    let (body, left) = Lent::new(body);
    let answered = app.oneshot(Request::from_parts(parts, Body::new(body))).await;
    let mut answer = answered.unwrap_or_else(|never| match never {});
    if !left.ends(waits).await {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
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

/// Notices on a stream when a request begins and when an answer moves on.
struct Watch(Arc<watch::Sender<Phase>>);

impl Watch {
    fn step(&self, from: Step, to: Step) {
        self.0.send_if_modified(|phase| {
            let moves = phase.step == from;
            if moves {
                *phase = Phase::begin(to);
            }
            moves
        });
    }
}

impl<S: AsyncRead> Intercept<S> for Watch {
    fn poll_read(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = stream.poll_read(cx, into);
        if into.filled().len() > before {
            self.step(Step::Idle, Step::Head);
        }
        polled
    }

    fn written(&mut self) {
        self.step(Step::Idle, Step::Idle);
    }
}

/// Ample for a head with a bearer token; hyper's own limit is 400 KiB, too much for thousands
/// of strangers.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long whoever still sends is listened to when all is to end.
const AT_A_STOP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
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
        let answer = client.read_to("no need to read").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        for _ in 100..1000 {
            client.send(&"x".repeat(1000)).await;
        }
        assert_eq!(client.stream.read(&mut [0; 9]).await.unwrap(), 0, "and no reset");
    }

    #[tokio::test(start_paused = true)]
    async fn a_little_that_is_about_to_come_is_read_and_the_connection_goes_on() {
        let mut client = connect();
        for (path, end) in [("/early", "no need to read"), ("/nowhere", "\r\n\r\n")] {
            client.send(&format!("POST {path} HTTP/1.1\r\nContent-Length: 4\r\n\r\n")).await;
            sleep(Duration::from_millis(50)).await;
            client.send("abcd").await;
            let answer = client.read_to(end).await;
            assert!(!answer.contains("connection: close"), "{answer}");
        }
        client.send("POST /early HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n").await;
        let answer = client.read_to("no need to read").await;
        assert!(answer.contains("connection: close"), "{answer}");
        let (ended, after) = client.ended().await;
        assert_eq!((ended, after), (Ended::Closed, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_before_it_sends_need_not_send() {
        let mut client = connect();
        let head = "Content-Length: 4\r\nExpect: 100-continue\r\n\r\n";
        client.send(&format!("POST /echo HTTP/1.1\r\n{head}")).await;
        assert!(client.read_to("\r\n\r\n").await.starts_with("HTTP/1.1 100"));
        client.send("abcd").await;
        assert!(!client.read_to("abcd").await.contains("connection: close"));
        client.send(&format!("POST /early HTTP/1.1\r\n{head}")).await;
        let answer = client.read_to("no need to read").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_http_is_answered_and_told() {
        let mut client = connect();
        client.send("put a.b 1700000000 1 host=x\r\n\r\n").await;
        assert!(client.read_to("\r\n\r\n").await.starts_with("HTTP/1.1 400"));
        assert_eq!(client.ended().await.0, Ended::NotHttp);
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
