//! JSON over HTTP: our own points, or OpenTSDB's `/api/put`; and the one question to the ledger.
//!
//! A client just good enough for a server on loopback: requests are made beforehand, each
//! connection has one under way, answers have a `Content-Length` or no body.

use crate::mix::{Block, Form, share};
use crate::pace::Pace;
use crate::report::Sent;
use crate::tcp::{in_parallel, now_milliseconds};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What to offer.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    pub names: u64,
    pub connections: u64,
    /// Points in a request.
    pub batch: usize,
    /// Points a second over all connections; none is flat out.
    pub rate: Option<f64>,
    pub seconds: f64,
}

/// Sends over all connections at once. The path says which form is meant.
pub fn send(to: SocketAddr, path: &str, offer: Offer) -> Result<Sent> {
    let path = if matches!(path, "" | "/") { "/v1/points" } else { path };
    let per_connection = offer.rate.map(|rate| rate / offer.connections as f64);
    let pace = Pace::new(per_connection, Duration::from_secs_f64(offer.seconds));
    in_parallel(offer.connections, |connection| {
        send_requests(to, requests(to, path, offer, connection), pace)
    })
}

/// Asks for a JSON document.
pub fn get_json(from: SocketAddr, path: &str) -> Result<serde_json::Value> {
    serde_json::from_slice(&get(from, path)?).with_context(|| format!("{path} is not JSON"))
}

/// Asks for a page.
pub fn get(from: SocketAddr, path: &str) -> Result<Vec<u8>> {
    let mut connection = Connection::open(from)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {from}\r\nConnection: close\r\n\r\n");
    let answer = connection.ask(request.as_bytes())?;
    if answer.status != 200 {
        bail!("{path} answered {}", answer.status);
    }
    Ok(answer.body)
}

/// Requests that name all of the connection's series; the last begins again from the first.
fn requests(to: SocketAddr, path: &str, offer: Offer, connection: u64) -> Vec<Block> {
    let form = if path.starts_with("/api/put") { Form::ApiPut } else { Form::JsonPoint };
    let head = |length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        )
    };
    let series = share(offer.names, connection, offer.connections);
    let count = series.len().div_ceil(offer.batch);
    let round: Vec<u64> = series.iter().copied().cycle().take(count * offer.batch).collect();
    round.chunks(offer.batch).map(|series| Block::request(form, series, head)).collect()
}

fn send_requests(to: SocketAddr, mut requests: Vec<Block>, pace: Pace) -> Result<Sent> {
    let mut connection = Connection::open(to)?;
    let mut sent = Sent { requests: Some(0), ..Sent::default() };
    let mut stamp = now_milliseconds();
    'time: loop {
        for request in &mut requests {
            if pace.is_over() {
                break 'time;
            }
            pace.wait(sent.points);
            request.stamp(stamp);
            stamp += 1; // A batch may name a series more than once a round.
            let answer = connection.ask(&request.bytes)?;
            sent.add(request);
            sent.requests = sent.requests.map(|count| count + 1);
            sent.refused += u64::from(!(200..300).contains(&answer.status));
        }
    }
    sent.seconds = pace.elapsed().as_secs_f64();
    Ok(sent)
}

struct Connection(BufReader<TcpStream>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Connection {
    fn open(to: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn ask(&mut self, request: &[u8]) -> Result<Answer> {
        self.0.get_mut().write_all(request)?;
        read_answer(&mut self.0).context("the answer was cut short")
    }
}

fn read_answer(from: &mut impl BufRead) -> Result<Answer> {
    let status_line = read_line(from)?;
    let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let mut answer = Answer { status: status.context("no status")?, body: Vec::new() };
    let mut length = 0;
    loop {
        let line = read_line(from)?;
        match line.split_once(':') {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse()?;
            }
            Some(_) => {}
        }
    }
    answer.body.resize(length, 0);
    from.read_exact(&mut answer.body)?;
    Ok(answer)
}

/// A line of the head; the empty one ends it.
fn read_line(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        bail!("the server closed the connection");
    }
    Ok(line.trim_end().to_owned())
}

/// How long a server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_to_their_end_and_no_further() {
        let mut bytes: &[u8] = b"HTTP/1.1 200 OK\r\nContent-length: 2\r\n\r\n{}HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n";
        let first = Answer { status: 200, body: b"{}".to_vec() };
        assert_eq!(read_answer(&mut bytes).unwrap(), first);
        assert_eq!(read_answer(&mut bytes).unwrap(), Answer { status: 204, body: Vec::new() });
        assert!(read_answer(&mut bytes).is_err());
    }

    #[test]
    fn requests_name_every_series() {
        let offer = Offer { names: 10, connections: 2, batch: 3, rate: None, seconds: 0.0 };
        let to = "127.0.0.1:80".parse().unwrap();
        let requests = requests(to, "/api/put", offer, 1);
        assert_eq!(requests.len(), 2);
        assert!(requests.iter().all(|request| request.points == 3));
        let text: String =
            requests.iter().map(|request| String::from_utf8_lossy(&request.bytes)).collect();
        for series in [1, 3, 5, 7, 9] {
            assert!(text.contains(&format!("{series}\",\"timestamp\"")), "{series} in {text}");
        }
    }
}
