//! A server that takes every request, answers 204 and keeps nothing: a backend that costs nobody
//! but the generator.

use anyhow::{Context, Result};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// The running server. Dropping it closes its port; connections end with their next request.
pub struct Sink {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
}

impl Sink {
    /// Listens there; port 0 takes a free one.
    pub fn start(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("sink at {address}"))?;
        let address = listener.local_addr()?;
        let closed = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&closed);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ends.load(Relaxed) {
                    return;
                }
                let ends = Arc::clone(&ends);
                thread::spawn(move || serve(BufReader::new(stream), &ends));
            }
        });
        Ok(Self { address, closed })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.closed.store(true, Relaxed);
        // The one who waits for connections looks up when there is one.
        TcpStream::connect(self.address).ok();
    }
}

fn serve(mut stream: BufReader<TcpStream>, ends: &AtomicBool) -> io::Result<()> {
    while let Some(length) = read_head(&mut stream)? {
        io::copy(&mut stream.by_ref().take(length), &mut io::sink())?;
        if ends.load(Relaxed) {
            return Ok(());
        }
        stream.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
    }
    Ok(())
}

/// The length of the body that follows; none at the end of the connection.
pub fn read_head(stream: &mut impl BufRead) -> io::Result<Option<u64>> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            Some(_) => {}
            None if line.trim_end().is_empty() => return Ok(Some(length)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_one_after_the_other() {
        let sink = Sink::start("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut stream = TcpStream::connect(sink.address()).unwrap();
        for _ in 0..2 {
            stream.write_all(b"POST /write HTTP/1.1\r\nContent-Length: 4\r\n\r\na=1\n").unwrap();
            let mut answer = [0; 27];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 204 No Content\r\n\r\n");
        }
    }
}
