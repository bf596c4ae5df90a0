//! Lines over TCP: statsd, or OpenTSDB's `put`.
//!
//! Each connection sends blocks of its own share of the series, flat out unless a rate is asked
//! for, and hears out what the server says to the end: answers are refusals in both protocols.

use crate::mix::{Block, Datagrams, Form, share};
use crate::pace::Pace;
use crate::report::Sent;
use crate::statsd::Flow;
use anyhow::{Context, Result, anyhow};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What to offer.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    pub form: Form,
    pub names: u64,
    pub connections: u64,
    /// Lines a second over all connections; none is flat out.
    pub rate: Option<f64>,
    pub seconds: f64,
}

/// Sends over all connections at once.
pub fn send(to: SocketAddr, offer: Offer) -> Result<Sent> {
    let per_connection = offer.rate.map(|rate| rate / offer.connections as f64);
    let pace = Pace::new(per_connection, Duration::from_secs_f64(offer.seconds));
    in_parallel(offer.connections, |connection| {
        let counter_sum = matches!(offer.form, Form::Statsd { .. }).then_some(0);
        let sent = Sent { counter_sum, ..Sent::default() };
        send_blocks(to, blocks(offer, connection), pace, sent)
    })
}

/// Sends the lines of datagrams round and round over one connection.
pub fn send_datagrams(to: SocketAddr, datagrams: &Datagrams, flow: Flow) -> Result<Sent> {
    let mut stream = BufWriter::with_capacity(BUFFER, TcpStream::connect(to)?);
    let total = flow.lines.div_ceil(flow.pack);
    let length = Duration::from_secs_f64(flow.lines as f64 / flow.rate);
    let pace = Pace::new(Some(flow.rate), length);
    for turn in 0..total {
        let at = turn % datagrams.count;
        if turn % BREATH == 0 {
            pace.wait(turn * flow.pack);
        }
        stream.write_all(datagrams.slice(at..at + 1))?;
        stream.write_all(b"\n")?;
    }
    stream.flush()?;
    Ok(Sent {
        points: total * flow.pack,
        bytes: total * (datagrams.length as u64 + 1),
        counter_sum: Some(datagrams.counter_sum(total)),
        seconds: pace.elapsed().as_secs_f64(),
        ..Sent::default()
    })
}

/// Runs one sender for each connection and adds up what they sent.
pub fn in_parallel(connections: u64, send: impl Fn(u64) -> Result<Sent> + Sync) -> Result<Sent> {
    thread::scope(|scope| {
        let send = &send;
        let senders: Vec<_> =
            (0..connections).map(|connection| scope.spawn(move || send(connection))).collect();
        let all = senders.into_iter().map(|sender| {
            sender.join().map_err(|_| anyhow!("a sender ended by a bug of its own"))?
        });
        all.sum()
    })
}

/// The time that points are given, which moves on with every block.
pub fn now_milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn blocks(offer: Offer, connection: u64) -> Vec<Block> {
    share(offer.names, connection, offer.connections)
        .chunks(LINES)
        .map(|series| Block::lines(offer.form, series))
        .collect()
}

/// Adds what it sends to `sent`.
fn send_blocks(to: SocketAddr, mut blocks: Vec<Block>, pace: Pace, mut sent: Sent) -> Result<Sent> {
    let mut stream = TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))?;
    let answers = stream.try_clone()?;
    answers.set_read_timeout(Some(PATIENCE))?;
    let listener = thread::spawn(move || count_lines(answers));
    let mut stamp = now_milliseconds();
    'time: loop {
        for block in &mut blocks {
            if pace.is_over() {
                break 'time;
            }
            pace.wait(sent.points);
            block.stamp(stamp);
            stream.write_all(&block.bytes)?;
            sent.add(block);
        }
        stamp += 1;
    }
    stream.shutdown(Shutdown::Write)?;
    sent.seconds = pace.elapsed().as_secs_f64();
    sent.refused = listener.join().map_err(|_| anyhow!("the ear of a sender ended by a bug"))??;
    Ok(sent)
}

/// Lines until the server closes, or says nothing for a while after we are done.
fn count_lines(stream: TcpStream) -> Result<u64> {
    let mut answers = BufReader::new(stream);
    let mut line = Vec::new();
    let mut count = 0;
    loop {
        line.clear();
        match answers.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(count),
            Ok(_) => count += 1,
            Err(error) if is_timeout(error.kind()) => return Ok(count),
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

const BUFFER: usize = 64 << 10;

/// Datagrams' worth of lines between two looks at the clock.
const BREATH: u64 = 64;

/// Lines of a block: about 100 kB, so that calls of the kernel do not count.
const LINES: usize = 1250;

/// How long a server may be silent before it is taken for one that never closes.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    /// What is said to be sent is what a server reads, and its answers are counted.
    #[test]
    fn totals_are_those_of_the_receiver() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let streams: Vec<_> = listener.incoming().take(2).map(Result::unwrap).collect();
            let readers =
                streams.into_iter().map(|stream| thread::spawn(|| read_and_grumble(stream)));
            let readers: Vec<_> = readers.collect();
            readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>()
        });
        let (form, names) = (Form::Statsd { tags: false }, 100);
        let offer = Offer { form, names, connections: 2, rate: Some(100_000.0), seconds: 0.02 };
        let sent = send(to, offer).unwrap();
        assert_eq!(server.join().unwrap(), sent.points);
        assert_eq!(sent.points % 50, 0, "whole blocks");
        assert!(sent.points > 0);
        assert_eq!(sent.refused, 2);
    }

    #[test]
    fn lines_of_datagrams_come_whole() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let datagrams = Datagrams::new(10, 4, false);
        let flow = Flow { pack: 4, rate: 1e6, lines: 18, first: 0, gso: 1, sockets: 1 };
        let sent = send_datagrams(to, &datagrams, flow).unwrap();
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!((sent.points, sent.bytes), (20, text.len() as u64));
        let counters = text.lines().filter_map(|line| line.strip_suffix("|c"));
        let sum = counters.map(|line| line.rsplit_once(':').unwrap().1.parse::<u64>().unwrap());
        assert_eq!(sent.counter_sum, Some(sum.sum()));
    }

    fn read_and_grumble(mut stream: TcpStream) -> u64 {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        stream.write_all(b"no such metric\n").unwrap();
        text.lines().count() as u64
    }
}
