//! Points by all ways in at once, of which every total is known.
//!
//! Each way counts its points from 0: the number is the value, and tells the series and, where
//! the protocol has one, the time. A series comes again only seconds later, so that no two points
//! are the same to a backend. With each step goes one thing that is to be refused.

use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::common::{Gateway, eventually, is_drained};

/// Sends, and knows what it has sent.
pub struct Traffic {
    udp: UdpSocket,
    /// The time of number 0.
    start: u64,
    /// Points sent by each way.
    pub sent: u64,
    /// Refusals that each way owes.
    pub bad: u64,
}

impl Traffic {
    pub async fn new() -> Traffic {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        Traffic { udp, start: now - 3600, sent: 0, bad: 0 }
    }

    /// Sends a few points by each way; all of them have been read by the gateway, or soon will be.
    pub async fn step(&mut self, gateway: &Gateway) {
        let numbers = self.sent..self.sent + POINTS;
        let lines = |name: &str| {
            let good = numbers.clone().map(|n| format!("{name}:{n}|c|#s:{}\n", series(n)));
            good.collect::<String>() + name + ":abc|c"
        };
        let puts = numbers
            .clone()
            .map(|n| format!("put chaos.put {} {n} s={}\n", self.start + n / SERIES, series(n)));
        let puts = puts.collect::<String>() + "put chaos.put never 1 s=0\nexit\n";
        let items = numbers.clone().map(|n| {
            let (series, time) = (series(n), self.start + n / SERIES);
            format!(
                r#"{{"name":"chaos.http","tags":{{"s":"{series}"}},"time":{time},"value":{n}}},"#
            )
        });
        let items = format!(r#"[{}{{"value":1}}]"#, items.collect::<String>());
        self.datagram(gateway, &lines(UDP)).await;
        stream(gateway, "statsd", &(lines(TCP) + "\n")).await;
        stream(gateway, "tsdb", &puts).await;
        let answer = gateway.http("api").post("/v1/points", items).await;
        assert_eq!(answer.status, 400, "one item is bad: {answer:?}");
        self.sent += POINTS;
        self.bad += 1;
    }

    /// No faster than the gateway reads: the kernel would drop what its buffer cannot hold.
    async fn datagram(&self, gateway: &Gateway, lines: &str) {
        let to = gateway.addr("statsd", "udp");
        eventually("the last datagram is read", async || is_drained(to)).await;
        self.udp.send_to(lines.as_bytes(), to).await.unwrap();
    }

    /// The sum of the values that each way has sent.
    pub fn sum(&self) -> u64 {
        (0..self.sent).sum()
    }
}

async fn stream(gateway: &Gateway, listener: &str, lines: &str) {
    let mut stream = TcpStream::connect(gateway.addr(listener, "tcp")).await.unwrap();
    stream.write_all(lines.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    // Refusals are answered; the end of the answers is that of the reading.
    stream.read_to_end(&mut Vec::new()).await.unwrap();
}

const fn series(n: u64) -> u64 {
    n % SERIES
}

pub const UDP: &str = "chaos.udp";
pub const TCP: &str = "chaos.tcp";
/// By each of the four ways, in each step.
pub const POINTS: u64 = 20;
/// From one step to the next.
pub const PACE: Duration = Duration::from_millis(50);
const SERIES: u64 = 1000;
