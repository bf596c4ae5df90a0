//! A server that takes every request and answers 204: a backend that costs nobody but the
//! generator. It keeps nothing, or the bodies until somebody asks for them.

use anyhow::{Context, Result};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::SystemTime;

/// The running server. Dropping it closes its port; connections end with their next request.
pub struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    closed: AtomicBool,
    /// None keeps nothing.
    bodies: Option<Mutex<Vec<Body>>>,
}

/// The body of a request, as it came.
#[derive(Clone, Debug)]
pub struct Body {
    pub arrived: SystemTime,
    pub bytes: Vec<u8>,
}

impl Sink {
    /// Listens there and keeps nothing; port 0 takes a free one.
    pub fn start(address: SocketAddr) -> Result<Self> {
        Self::listen(address, None)
    }

    /// Listens there and keeps the bodies.
    pub fn keeping(address: SocketAddr) -> Result<Self> {
        Self::listen(address, Some(Mutex::default()))
    }

    /// The bodies that it has kept since this was asked last.
    pub fn take(&self) -> Vec<Body> {
        let bodies = self.shared.bodies.as_ref();
        bodies.map(|bodies| mem::take(&mut *lock(bodies))).unwrap_or_default()
    }

    fn listen(address: SocketAddr, bodies: Option<Mutex<Vec<Body>>>) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("sink at {address}"))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { closed: AtomicBool::new(false), bodies });
        let ours = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ours.closed.load(Relaxed) {
                    return;
                }
                let ours = Arc::clone(&ours);
                thread::spawn(move || serve(BufReader::new(stream), &ours));
            }
        });
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.closed.store(true, Relaxed);
        // The one who waits for connections looks up when there is one.
        TcpStream::connect(self.address).ok();
    }
}

impl Shared {
    fn receive(&self, body: &mut impl Read) -> io::Result<()> {
        if let Some(bodies) = &self.bodies {
            let mut bytes = Vec::new();
            body.read_to_end(&mut bytes)?;
            lock(bodies).push(Body { arrived: SystemTime::now(), bytes });
        } else {
            io::copy(body, &mut io::sink())?;
        }
        Ok(())
    }
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(mut stream: BufReader<TcpStream>, shared: &Shared) -> io::Result<()> {
    while let Some(length) = read_head(&mut stream)? {
        shared.receive(&mut stream.by_ref().take(length))?;
        if shared.closed.load(Relaxed) {
            return Ok(());
        }
        stream.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
    }
    Ok(())
}

/// The length of the body that follows; none at the end of the connection.
fn read_head(stream: &mut impl BufRead) -> io::Result<Option<u64>> {
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
