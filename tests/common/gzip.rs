//! What senders do to a body or a file to make it smaller.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;

/// A member of gzip that says this.
pub fn gzip(text: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_ref()).unwrap();
    encoder.finish().unwrap()
}
