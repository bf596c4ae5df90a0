//! An HTTP server that misbehaves on request, for faults that no real server can be asked for.
//!
//! It answers from a script, one [`Answer`] for each request in the order they arrive, and as its
//! rule says, or with 204, when the script is at its end. It reads bodies of a known length only,
//! and un-gzips them.

use std::collections::VecDeque;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::read::GzDecoder;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::eventually::eventually;

/// The server. Dropping it closes its port and every connection.
pub struct FakeHttp {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    _task: JoinSet<()>,
}

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Received {
    pub at: Instant,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Un-gzipped where the client had gzipped it.
    pub body: String,
}

/// What the server does about one request.
#[derive(Debug, Clone)]
pub struct Answer {
    after: Duration,
    act: Act,
    /// Whether the connection ends with it, without a word about that in the headers.
    last: bool,
}

#[derive(Debug, Clone)]
enum Act {
    Reply {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// A reply whose body goes on for as long as the client reads it.
    Endless {
        status: u16,
    },
    Hang,
    Reset,
}

struct State {
    script: VecDeque<Answer>,
    rule: Rule,
    received: Vec<Received>,
}

type Rule = Box<dyn Fn(&Received) -> Answer + Send>;

impl Answer {
    /// Answers with this status and no body.
    pub fn status(status: u16) -> Answer {
        Answer::act(Act::Reply { status, headers: Vec::new(), body: String::new() })
    }

    /// Takes the request and never says a word.
    pub fn hang() -> Answer {
        Answer::act(Act::Hang)
    }

    /// Takes the request and resets the connection.
    pub fn reset() -> Answer {
        Answer::act(Act::Reset)
    }

    fn act(act: Act) -> Answer {
        Answer { after: Duration::ZERO, act, last: false }
    }

    /// The same status, with a body that never ends.
    pub fn endless_body(self) -> Answer {
        match self.act {
            Act::Reply { status, .. } => Answer { act: Act::Endless { status }, ..self },
            _ => self,
        }
    }

    /// The same, and the connection is closed after it, unannounced.
    pub fn last(self) -> Answer {
        Answer { last: true, ..self }
    }

    /// The same, but only after this long.
    pub fn after(self, after: Duration) -> Answer {
        Answer { after, ..self }
    }

    pub fn header(mut self, name: &str, value: &str) -> Answer {
        if let Act::Reply { headers, .. } = &mut self.act {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub fn body(mut self, text: &str) -> Answer {
        if let Act::Reply { body, .. } = &mut self.act {
            text.clone_into(body);
        }
        self
    }
}

impl FakeHttp {
    pub async fn start(script: impl IntoIterator<Item = Answer>) -> FakeHttp {
        FakeHttp::start_at("127.0.0.1:0".parse().unwrap(), script).await
    }

    /// Listens where an earlier server did, as one that comes back.
    pub async fn start_at(
        address: SocketAddr,
        script: impl IntoIterator<Item = Answer>,
    ) -> FakeHttp {
        let script = script.into_iter().collect();
        FakeHttp::listen(address, script, Box::new(|_| Answer::status(204))).await
    }

    /// Judges each request by itself.
    pub async fn judging(rule: impl Fn(&Received) -> Answer + Send + 'static) -> FakeHttp {
        FakeHttp::listen("127.0.0.1:0".parse().unwrap(), VecDeque::new(), Box::new(rule)).await
    }

    async fn listen(address: SocketAddr, script: VecDeque<Answer>, rule: Rule) -> FakeHttp {
        // The tasks of the one before end when the runtime comes to them, not as it is dropped.
        let free = async || TcpListener::bind(address).await.ok();
        let listener = eventually(&format!("{address} is free"), free).await;
        FakeHttp::serve(listener, script, rule)
    }

    /// Takes every request that comes to a socket that is bound already.
    pub fn on(listener: TcpListener) -> FakeHttp {
        FakeHttp::serve(listener, VecDeque::new(), Box::new(|_| Answer::status(204)))
    }

    fn serve(listener: TcpListener, script: VecDeque<Answer>, rule: Rule) -> FakeHttp {
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { script, rule, received: Vec::new() }));
        let mut task = JoinSet::new();
        task.spawn(accept(listener, Arc::clone(&state)));
        FakeHttp { address, state, _task: task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds to the end of the script.
    pub fn then(&self, answer: Answer) {
        self.state.lock().unwrap().script.push_back(answer);
    }

    /// Forgets the rest of the script: from now on all is well.
    pub fn heal(&self) {
        self.state.lock().unwrap().script.clear();
    }

    /// The requests so far, in order, those that were never answered included.
    pub fn received(&self) -> Vec<Received> {
        self.state.lock().unwrap().received.clone()
    }
}

impl Received {
    /// The first header of this name, which is written in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(converse(BufReader::new(stream), Arc::clone(&state)));
    }
}

/// Serves one connection until the client leaves it or the script ends it.
async fn converse(mut stream: BufReader<TcpStream>, state: Arc<Mutex<State>>) {
    while let Some(request) = read_request(&mut stream).await {
        let answer = {
            let mut state = state.lock().unwrap();
            let answer = state.script.pop_front().unwrap_or_else(|| (state.rule)(&request));
            state.received.push(request);
            answer
        };
        tokio::time::sleep(answer.after).await;
        match answer.act {
            Act::Reply { status, headers, body } => {
                let reply = render(status, &headers, &body);
                if stream.write_all(reply.as_bytes()).await.is_err() || answer.last {
                    return;
                }
            }
            Act::Endless { status } => return go_on(&mut stream, status).await,
            Act::Hang => std::future::pending().await,
            Act::Reset => return reset(stream.into_inner()),
        }
    }
}

/// Reads one request; none when the client has closed the connection.
async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let first = read_line(stream).await?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream).await?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = Received { at: Instant::now(), method, target, headers, body: String::new() };
    request.body = read_body(stream, &request).await?;
    Some(request)
}

async fn read_body(stream: &mut BufReader<TcpStream>, request: &Received) -> Option<String> {
    assert!(request.header("transfer-encoding").is_none(), "only bodies of known length are read");
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.ok()?;
    if request.header("content-encoding") == Some("gzip") {
        bytes = gunzip(&bytes);
    }
    Some(String::from_utf8(bytes).expect("the body is UTF-8"))
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let length = stream.read_line(&mut line).await.ok()?;
    (length > 0).then(|| line.trim_end().to_owned())
}

pub(super) fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).expect("the body is gzip");
    plain
}

pub(super) fn render(status: u16, headers: &[(String, String)], body: &str) -> String {
    let mut reply = format!("HTTP/1.1 {status} Scripted\r\n");
    for (name, value) in headers {
        reply.push_str(&format!("{name}: {value}\r\n"));
    }
    // A 204 has no body, and must not state the length of one.
    if status != 204 {
        reply.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    reply + "\r\n" + body
}

async fn go_on(stream: &mut BufReader<TcpStream>, status: u16) {
    let head = format!("HTTP/1.1 {status} Scripted\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let mut sent = stream.write_all(head.as_bytes()).await;
    while sent.is_ok() {
        sent = stream.write_all(chunk.as_bytes()).await;
    }
}

/// Closes a connection so that the peer sees a reset, not an end.
pub(super) fn reset(stream: TcpStream) {
    let socket = socket2::SockRef::from(&stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}
