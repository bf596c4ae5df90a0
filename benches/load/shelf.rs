//! An InfluxDB that keeps every body as it came, and when: what is in them is read when the load
//! is over, so that reading costs the load nothing.

use crate::lines::Totals;
use crate::sink::read_head;
use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use std::borrow::Cow;
use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The running server. Dropping it closes its port; connections end with their next request.
pub struct Shelf {
    address: SocketAddr,
    kept: Arc<Kept>,
}

/// One write request.
#[derive(Clone, Debug)]
pub struct Body {
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Kept {
    bodies: Mutex<Vec<Body>>,
    closed: AtomicBool,
}

impl Shelf {
    /// Listens on a free port.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a port for a shelf")?;
        let address = listener.local_addr()?;
        let kept = Arc::new(Kept::default());
        let shared = Arc::clone(&kept);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.closed.load(Relaxed) {
                    return;
                }
                let kept = Arc::clone(&shared);
                thread::spawn(move || kept.serve(BufReader::new(stream)));
            }
        });
        Ok(Self { address, kept })
    }

    /// As a backend's section names it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What has come so far; the shelf is empty then.
    pub fn take(&self) -> Vec<Body> {
        std::mem::take(&mut self.kept.bodies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the rows that have come say; the shelf is empty then.
    pub fn totals(&self) -> Result<Totals> {
        let mut totals = Totals::default();
        for body in self.take() {
            totals.read(&body.rows()?);
        }
        Ok(totals)
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.kept.closed.store(true, Relaxed);
        // The one who waits for connections looks up when there is one.
        TcpStream::connect(self.address).ok();
    }
}

impl Kept {
    fn serve(&self, mut stream: BufReader<TcpStream>) -> io::Result<()> {
        while let Some(length) = read_head(&mut stream)? {
            let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
            stream.by_ref().take(length).read_to_end(&mut bytes)?;
            let body = Body { bytes };
            self.bodies.lock().unwrap_or_else(PoisonError::into_inner).push(body);
            if self.closed.load(Relaxed) {
                return Ok(());
            }
            stream.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
        }
        Ok(())
    }
}

impl Body {
    /// What was in it before it was compressed.
    pub fn rows(&self) -> Result<Cow<'_, [u8]>> {
        if !self.bytes.starts_with(GZIP) {
            return Ok(Cow::Borrowed(&self.bytes));
        }
        let mut rows = Vec::new();
        GzDecoder::new(self.bytes.as_slice()).read_to_end(&mut rows)?;
        Ok(Cow::Owned(rows))
    }
}

/// How every gzip stream begins; no line protocol does.
const GZIP: &[u8] = &[0x1f, 0x8b];

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};

    #[test]
    fn bodies_are_kept_and_read_compressed_or_not() {
        let shelf = Shelf::start().unwrap();
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(b"a count=2 1\n").unwrap();
        let mut stream = TcpStream::connect(shelf.address).unwrap();
        for body in [b"a count=1 1\n".to_vec(), packed.finish().unwrap()] {
            let head = format!("POST /write HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&body).unwrap();
            let mut answer = [0; 27];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 204 No Content\r\n\r\n");
        }
        let totals = shelf.totals().unwrap();
        assert_eq!(totals, Totals { rows: 2, counter_sum: 3.0, ..Totals::default() });
        assert!(shelf.take().is_empty());
    }
}
