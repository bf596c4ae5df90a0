//! An InfluxDB whose rows are read when the load is over, so that reading costs the load nothing.

use crate::lines::Totals;
use crate::sink::{Body, Sink};
use anyhow::Result;
use flate2::read::GzDecoder;
use std::borrow::Cow;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};

/// The running server.
pub struct Shelf(Sink);

impl Shelf {
    /// Listens on a free port.
    pub fn start() -> Result<Self> {
        Ok(Self(Sink::keeping(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?))
    }

    /// As a backend's section names it.
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address())
    }

    /// What has come since this was asked last.
    pub fn take(&self) -> Vec<Body> {
        self.0.take()
    }

    /// What the rows say that have come since then.
    pub fn totals(&self) -> Result<Totals> {
        let mut totals = Totals::default();
        for body in self.take() {
            totals.read(&rows(&body)?);
        }
        Ok(totals)
    }
}

/// What was in a body before it was compressed.
pub fn rows(body: &Body) -> Result<Cow<'_, [u8]>> {
    if !body.bytes.starts_with(GZIP) {
        return Ok(Cow::Borrowed(&body.bytes));
    }
    let mut rows = Vec::new();
    GzDecoder::new(body.bytes.as_slice()).read_to_end(&mut rows)?;
    Ok(Cow::Owned(rows))
}

/// How every gzip stream begins; no line protocol does.
const GZIP: &[u8] = &[0x1f, 0x8b];

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;
    use std::net::TcpStream;

    #[test]
    fn bodies_are_kept_and_read_compressed_or_not() {
        let shelf = Shelf::start().unwrap();
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(b"a count=2 1\n").unwrap();
        let mut stream = TcpStream::connect(shelf.0.address()).unwrap();
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
