//! What goes wrong behind the gateway: everything, by turns, as the dice have it.

use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::net::{TcpListener, UdpSocket};

use super::common::{Fault, Influxd, Proxy, TcpSink, UdpSink, eventually};

/// The peers, and the dice.
pub struct Weather {
    dice: StdRng,
    /// Fails in every way after which a payload is sent again.
    pub flaky: Proxy,
    /// As `flaky`, before a server that is sent windows.
    pub folded: Proxy,
    /// Refuses payloads for good, too.
    pub picky: Proxy,
    pub udp: Datagrams,
    pub tcp: Streams,
}

impl Weather {
    pub async fn new(seed: u64, one: &Influxd, other: &Influxd) -> Weather {
        Weather {
            dice: StdRng::seed_from_u64(seed),
            flaky: Proxy::start(&one.url()).await,
            folded: Proxy::start(&other.url()).await,
            picky: Proxy::start(&one.url()).await,
            udp: Datagrams::start().await,
            tcp: Streams::start().await,
        }
    }

    /// How long until the next change.
    pub fn pause(&mut self) -> Duration {
        Duration::from_millis(self.dice.random_range(20..300))
    }

    /// One of so many.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.dice.random_range(0..bound)
    }

    /// Something changes, for the worse or for the better.
    pub async fn change(&mut self) {
        let refuses = self.below(3) == 0;
        let (retried, mixed) =
            (self.fault(RETRIED), self.fault(if refuses { REFUSED } else { RETRIED }));
        match self.below(5) {
            0 => self.flaky.switch(retried).await,
            1 => self.folded.switch(retried).await,
            2 => self.picky.switch(mixed).await,
            3 => self.udp.turn().await,
            _ => self.tcp.turn().await,
        }
    }

    /// All is well from now on.
    pub async fn clear(&mut self) {
        for proxy in [&self.flaky, &self.folded, &self.picky] {
            proxy.switch(Fault::Pass).await;
        }
        self.udp.come().await;
        self.tcp.come().await;
    }

    fn fault(&mut self, faults: &[Fault]) -> Fault {
        let drawn = self.dice.random_range(0..faults.len() * 3 / 2);
        faults.get(drawn).cloned().unwrap_or(Fault::Pass)
    }
}

/// A sink of datagrams that comes and goes, always at the same address.
pub struct Datagrams {
    pub address: SocketAddr,
    sink: Option<UdpSink>,
    earlier: Vec<String>,
    /// How often it went.
    pub departures: u64,
}

impl Datagrams {
    async fn start() -> Datagrams {
        let sink = UdpSink::start().await;
        let address = sink.address();
        Datagrams { address, sink: Some(sink), earlier: Vec::new(), departures: 0 }
    }

    async fn turn(&mut self) {
        match self.sink.take() {
            Some(sink) => {
                self.departures += 1;
                self.earlier.extend(sink.close().await);
            }
            None => self.come().await,
        }
    }

    async fn come(&mut self) {
        if self.sink.is_none() {
            let free = async || UdpSocket::bind(self.address).await.is_ok();
            eventually("the address of the sink is free", free).await;
            self.sink = Some(UdpSink::start_at(self.address).await);
        }
    }

    /// All that it has ever heard.
    pub fn lines(&self) -> Vec<String> {
        let now = self.sink.iter().flat_map(|sink| sink.lines());
        self.earlier.iter().cloned().chain(now).collect()
    }
}

/// A server of streams that comes and goes, always at the same address.
pub struct Streams {
    pub address: SocketAddr,
    sink: Option<TcpSink>,
    earlier: Vec<String>,
    /// How often it went.
    pub departures: u64,
}

impl Streams {
    async fn start() -> Streams {
        let sink = TcpSink::start().await;
        let address = sink.address();
        Streams { address, sink: Some(sink), earlier: Vec::new(), departures: 0 }
    }

    async fn turn(&mut self) {
        match self.sink.take() {
            Some(sink) => {
                self.departures += 1;
                self.earlier.extend(whole_lines(&sink));
            }
            None => self.come().await,
        }
    }

    async fn come(&mut self) {
        if self.sink.is_none() {
            let free = async || TcpListener::bind(self.address).await.is_ok();
            eventually("the address of the sink is free", free).await;
            self.sink = Some(TcpSink::start_at(self.address).await);
        }
    }

    /// All whole lines that it has ever heard.
    pub fn lines(&self) -> Vec<String> {
        let now = self.sink.iter().flat_map(whole_lines);
        self.earlier.iter().cloned().chain(now).collect()
    }
}

/// A connection that broke ends in the middle of a line.
fn whole_lines(sink: &TcpSink) -> Vec<String> {
    let connections = sink.connections().into_iter();
    let texts = connections.map(|bytes| String::from_utf8(bytes).unwrap());
    let whole = |text: String| {
        let end = text.rfind('\n').map_or(0, |at| at + 1);
        text[..end].lines().map(str::to_owned).collect::<Vec<_>>()
    };
    texts.flat_map(whole).collect()
}

/// After each of these a payload is sent again, whether or not it took effect.
const RETRIED: &[Fault] = &[
    Fault::Refuse,
    Fault::Hang,
    Fault::ResetInAnswer,
    Fault::LoseAnswer,
    Fault::Slow { rate: 20_000 },
    Fault::Slow { rate: 200_000 },
    Fault::Answer { status: 500, body: r#"{"error":"timeout"}"# },
    Fault::Answer { status: 503, body: "" },
    Fault::Answer { status: 429, body: "" },
    Fault::Answer { status: 401, body: r#"{"error":"authorization failed"}"# },
    Fault::Truncated { status: 503, body: "so" },
];

/// And after these it is not, but in halves.
const REFUSED: &[Fault] = &[
    Fault::Answer { status: 400, body: r#"{"error":"unable to parse"}"# },
    Fault::Answer { status: 413, body: r#"{"error":"Request Entity Too Large"}"# },
    Fault::Answer { status: 415, body: "" },
];
