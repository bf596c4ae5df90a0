//! A proxy that misbehaves, before a real server that does not: faults on the way, with the
//! effects that a real server has.
//!
//! [`Proxy::switch`] says what happens to every request from now on, and [`Proxy::script`] what
//! happens to the next few, one [`Fault`] each. What a request meets is decided when all of it has
//! been read. Bodies must have a known length; answers may be chunked too.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::fake_http::{gunzip, render, reset};

/// What happens to a request, or, with [`Fault::Refuse`], to a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// None: the server's answer comes back as it is.
    Pass,
    /// Nobody listens, and what was connected is closed. Only for [`Proxy::switch`].
    Refuse,
    /// The request is read, the server never sees it, and no answer comes.
    Hang,
    /// It takes effect; the connection is reset in the middle of the answer.
    ResetInAnswer,
    /// It takes effect; the connection is reset instead of any answer.
    LoseAnswer,
    /// It takes effect; request and answer travel at so many bytes a second each.
    Slow { rate: usize },
    /// The server never sees it; this is the answer.
    Answer { status: u16, body: &'static str },
    /// As `Answer`, with a body that ends before the length that was promised.
    Truncated { status: u16, body: &'static str },
}

/// The proxy. Dropping it closes its port and every connection.
pub struct Proxy {
    /// Bound, never listened on: the port stays ours while connections are refused.
    _port: TcpSocket,
    address: SocketAddr,
    state: Arc<State>,
    is_open: watch::Receiver<bool>,
    _task: JoinSet<()>,
}

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Passage {
    pub at: Instant,
    /// Method, path and query.
    pub target: String,
    /// Un-gzipped where the client had gzipped it.
    pub body: String,
    /// What it met.
    pub fault: Fault,
}

struct State {
    server: SocketAddr,
    switch: watch::Sender<Fault>,
    script: Mutex<VecDeque<Fault>>,
    connections: AtomicUsize,
    passages: Mutex<Vec<Passage>>,
}

impl Proxy {
    /// Starts before a server such as `http://127.0.0.1:8086`, and passes everything on.
    pub async fn start(server: &str) -> Proxy {
        let port = held_port();
        let address = port.local_addr().unwrap();
        let state = Arc::new(State {
            server: server.trim_start_matches("http://").parse().unwrap(),
            switch: watch::channel(Fault::Pass).0,
            script: Mutex::default(),
            connections: AtomicUsize::new(0),
            passages: Mutex::default(),
        });
        let (opened, is_open) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn(serve(address, Arc::clone(&state), opened));
        let proxy = Proxy { _port: port, address, state, is_open, _task: task };
        proxy.switch(Fault::Pass).await;
        proxy
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on every request meets this, those of open connections too. What is under way
    /// stays as it is, but [`Fault::Refuse`] cuts it off. It is so when this returns.
    pub async fn switch(&self, fault: Fault) {
        let open = fault != Fault::Refuse;
        self.state.switch.send_replace(fault);
        self.is_open.clone().wait_for(|is_open| *is_open == open).await.unwrap();
    }

    /// The next requests meet these, whatever the switch says.
    pub fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.script.lock().unwrap().extend(faults);
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Relaxed)
    }

    /// How many requests have come in so far.
    pub fn requests(&self) -> usize {
        self.state.passages.lock().unwrap().len()
    }

    /// The requests so far, in order, and what each met.
    pub fn passages(&self) -> Vec<Passage> {
        self.state.passages.lock().unwrap().clone()
    }
}

impl State {
    /// Decides what a request meets, and writes it down.
    fn meet(&self, request: &Message) -> Fault {
        let scripted = self.script.lock().unwrap().pop_front();
        let fault = scripted.unwrap_or_else(|| self.switch.borrow().clone());
        let passage = Passage {
            at: Instant::now(),
            target: request.target(),
            body: request.text(),
            fault: fault.clone(),
        };
        self.passages.lock().unwrap().push(passage);
        fault
    }
}

/// A port of our own. The kernel lets another socket listen on it as long as this one does not.
fn held_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

/// Listens for as long as connections are not to be refused, again and again.
async fn serve(address: SocketAddr, state: Arc<State>, opened: watch::Sender<bool>) {
    let mut switch = state.switch.subscribe();
    while switch.wait_for(|fault| *fault != Fault::Refuse).await.is_ok() {
        let listener = TcpListener::bind(address).await.unwrap();
        opened.send_replace(true);
        tokio::select! {
            () = accept(listener, &state) => {}
            _ = switch.wait_for(|fault| *fault == Fault::Refuse) => {}
        }
        opened.send_replace(false);
    }
}

async fn accept(listener: TcpListener, state: &Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        state.connections.fetch_add(1, Relaxed);
        connections.spawn(converse(BufReader::new(client), Arc::clone(state)));
    }
}

/// Serves one connection until either side leaves it, or a fault ends it.
async fn converse(mut client: BufReader<TcpStream>, state: Arc<State>) {
    let mut server = None;
    while let Some(request) = Message::read(&mut client).await {
        let fault = state.meet(&request);
        let rate = if let Fault::Slow { rate } = fault { rate } else { usize::MAX };
        let answer = match fault {
            Fault::Refuse => return,
            Fault::Hang => return std::future::pending().await,
            Fault::Answer { status, body } => render(status, &[], body).into_bytes(),
            Fault::Truncated { status, body } => {
                let _ = client.write_all(&truncated(status, body)).await;
                return;
            }
            _ => match forward(&request, rate, &mut server, state.server).await {
                Some(answer) => answer.0,
                None => return,
            },
        };
        match fault {
            Fault::LoseAnswer => return reset(client.into_inner()),
            Fault::ResetInAnswer => {
                let _ = client.write_all(&answer[..answer.len() / 2]).await;
                return reset(client.into_inner());
            }
            _ if trickle(&mut client, &answer, rate).await.is_none() => return,
            _ => {}
        }
    }
}

/// Asks the server, over a connection that is kept for the next request of the same client.
async fn forward(
    request: &Message,
    rate: usize,
    connection: &mut Option<BufReader<TcpStream>>,
    address: SocketAddr,
) -> Option<Message> {
    let mut server = match connection.take() {
        Some(server) => server,
        None => BufReader::new(TcpStream::connect(address).await.ok()?),
    };
    trickle(&mut server, &request.0, rate).await?;
    let answer = Message::read(&mut server).await?;
    *connection = Some(server);
    Some(answer)
}

/// Writes so many bytes a second, in steps that a clock of milliseconds can tell apart.
async fn trickle(stream: &mut BufReader<TcpStream>, bytes: &[u8], rate: usize) -> Option<()> {
    if rate == usize::MAX {
        return stream.write_all(bytes).await.ok();
    }
    for step in bytes.chunks((rate / STEPS_A_SECOND).max(1)) {
        stream.write_all(step).await.ok()?;
        sleep(Duration::from_secs(1).mul_f64(step.len() as f64 / rate as f64)).await;
    }
    Some(())
}

fn truncated(status: u16, body: &str) -> Vec<u8> {
    let length = body.len() + 100;
    format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// A request or an answer, byte for byte.
struct Message(Vec<u8>);

impl Message {
    /// Reads one; none when it does not come whole.
    async fn read(stream: &mut BufReader<TcpStream>) -> Option<Message> {
        let mut message = Message(Vec::new());
        while !message.0.ends_with(b"\r\n\r\n") {
            message.read_line(stream).await?;
        }
        match message.header("content-length").map(|length| length.parse().unwrap()) {
            Some(length) => message.read_bytes(stream, length).await?,
            None if message.header("transfer-encoding").is_some() => {
                while message.read_chunk(stream).await? > 0 {}
            }
            None => {}
        }
        Some(message)
    }

    async fn read_line(&mut self, stream: &mut BufReader<TcpStream>) -> Option<usize> {
        let length = stream.read_until(b'\n', &mut self.0).await.ok()?;
        (length > 0).then_some(length)
    }

    async fn read_bytes(&mut self, stream: &mut BufReader<TcpStream>, count: usize) -> Option<()> {
        let start = self.0.len();
        self.0.resize(start + count, 0);
        stream.read_exact(&mut self.0[start..]).await.ok().map(|_| ())
    }

    /// Answers how long the chunk is, without the line feed behind it; the last has no bytes.
    async fn read_chunk(&mut self, stream: &mut BufReader<TcpStream>) -> Option<usize> {
        let length = self.read_line(stream).await?;
        let line = str::from_utf8(&self.0[self.0.len() - length..]).ok()?;
        let size = usize::from_str_radix(line.trim_end(), 16).ok()?;
        self.read_bytes(stream, size + "\r\n".len()).await?;
        Some(size)
    }

    fn head(&self) -> &str {
        let end = self.0.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        str::from_utf8(&self.0[..end]).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head().lines().skip(1).filter_map(|line| line.split_once(": "));
        headers.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    fn target(&self) -> String {
        self.head().lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned()
    }

    fn text(&self) -> String {
        let body = &self.0[self.head().len() + "\r\n\r\n".len()..];
        let plain = match self.header("content-encoding") {
            Some("gzip") => gunzip(body),
            _ => body.to_vec(),
        };
        String::from_utf8(plain).expect("the body is UTF-8")
    }
}

const STEPS_A_SECOND: usize = 100;
