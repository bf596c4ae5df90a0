//! gzip (RFC 1952), known by its first bytes, whatever a file is called, and unpacked.
//!
//! tar and tapes fill up their last block with zeros, which no member begins with. gzip(1) takes them for
//! the end, and so they are none of the text here; a member may follow them.

use flate2::bufread::GzDecoder;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt as _;

/// Whether these bytes begin as gzip does.
pub(crate) fn is_begun(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Whether a file begins as gzip does; where somebody reads in it stays as it is.
pub(crate) fn is_in(file: &File) -> bool {
    let mut head = MAGIC.map(|_| 0);
    file.read_exact_at(&mut head, 0).is_ok() && is_begun(&head)
}

/// RFC 1952, section 2.3.1.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What a stream of one member or several says.
pub(crate) struct Unpacked<R> {
    decoder: GzDecoder<Input<R>>,
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    /// In a member, or where one has to begin.
    Member,
    /// Where zeros, another member or nothing may follow.
    Between,
    End,
    /// After what is no gzip.
    Broken,
}

impl<R: BufRead> Unpacked<R> {
    /// From the first member on.
    pub(crate) fn new(input: R) -> Self {
        let mut decoder = GzDecoder::new(Input(None));
        // Now it reads no header before it is asked.
        decoder.reset(Input(Some(input)));
        Self { decoder, at: At::Member }
    }

    /// What comes after the last member that was read before, which may be nothing.
    pub(crate) fn after_member(input: R) -> Self {
        Self { at: At::Between, ..Self::new(input) }
    }

    /// Goes to the next member; answers whether there is one.
    fn next_member(&mut self) -> io::Result<bool> {
        let input = self.decoder.get_mut();
        loop {
            let bytes = input.fill_buf()?;
            let (len, zeros) = (bytes.len(), bytes.iter().take_while(|byte| **byte == 0).count());
            input.consume(zeros);
            if zeros < len {
                let input = Input(input.0.take());
                self.decoder.reset(input);
                return Ok(true);
            }
            if len == 0 {
                return Ok(false);
            }
        }
    }
}

impl<R> Unpacked<R> {
    /// What it reads from.
    pub(crate) fn get_ref(&self) -> Option<&R> {
        self.decoder.get_ref().0.as_ref()
    }

    /// The same, which may have been read further.
    pub(crate) fn into_inner(self) -> Option<R> {
        self.decoder.into_inner().0
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            match self.at {
                At::Member => match self.decoder.read(into) {
                    Ok(0) => self.at = At::Between,
                    Err(error) if is_flaw(&error) => {
                        // The decoder itself would call it the end when it is asked again.
                        self.at = At::Broken;
                        return Err(error);
                    }
                    read => return read,
                },
                At::Between => self.at = if self.next_member()? { At::Member } else { At::End },
                At::End => return Ok(0),
                At::Broken => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

/// Whether the bytes are to blame, and not whoever reads them.
fn is_flaw(error: &io::Error) -> bool {
    error.raw_os_error().is_none() && error.kind() != io::ErrorKind::Interrupted
}

/// What a decoder reads from; nothing while another one is made ready for it.
struct Input<R>(Option<R>);

impl<R: BufRead> Read for Input<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.as_mut().map_or(Ok(0), |input| input.read(into))
    }
}

impl<R: BufRead> BufRead for Input<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.as_mut().map_or(Ok(&[]), BufRead::fill_buf)
    }

    fn consume(&mut self, len: usize) {
        self.0.iter_mut().for_each(|input| input.consume(len));
    }
}

/// A member that says this.
#[cfg(test)]
pub(crate) fn packed(text: &[u8]) -> Vec<u8> {
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    /// What it says, and whether it ends as it should; a second look says the same.
    fn unpacked(bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut text = Vec::new();
        let mut stream = Unpacked::new(BufReader::with_capacity(3, bytes));
        let is_whole = stream.read_to_end(&mut text).is_ok();
        assert_eq!(stream.read(&mut [0]).is_ok(), is_whole);
        (text, is_whole)
    }

    #[test]
    fn zeros_after_a_member_are_no_text() {
        let (one, two, zeros) = (packed(b"one"), packed(b"two"), vec![0; 1000]);
        for (parts, text, is_whole) in [
            (&[&one[..]][..], &b"one"[..], true),
            (&[&one, &two], b"onetwo", true),
            (&[&one, &[0]], b"one", true),
            (&[&one, &zeros], b"one", true),
            (&[&one, &zeros, &two, &zeros], b"onetwo", true),
            (&[&packed(b""), &zeros], b"", true),
            (&[&one, &zeros, b"x"], b"one", false),
            (&[&one, b"x", &zeros], b"one", false),
            (&[&one[..one.len() - 1]], b"one", false),
            (&[&one[..one.len() - 1], b"\x01", &zeros], b"one", false),
            (&[&zeros, &one], b"", false),
            (&[], b"", false),
        ] {
            assert_eq!(unpacked(&parts.concat()), (text.to_vec(), is_whole), "{parts:?}");
        }
    }

    #[test]
    fn it_is_gone_on_with_after_a_member() {
        for (bytes, text) in [(vec![], &b""[..]), (vec![0; 9], b""), (packed(b"two"), b"two")] {
            let mut read = Vec::new();
            Unpacked::after_member(&bytes[..]).read_to_end(&mut read).unwrap();
            assert_eq!(read, text);
        }
    }
}
