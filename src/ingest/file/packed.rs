//! What a compressed file says.
//!
//! gzip (RFC 1952), of one member or several. It is unpacked in chunks, which are read like those of
//! any other file: a file that holds far more than it is long takes turns like others, and no memory.
//! Places in it are counted in unpacked bytes; whoever goes on in the middle unpacks once more what is
//! before that. A file that is still being written breaks off, so it is read when it has not
//! changed between two looks, and from there on when it has grown.
//!
//! Limit: what one file may hold ([`Config::unpacked`](crate::ingest::Config::unpacked)). Rejected:
//! `gzip_broken`, of one that is cut off or damaged, whose lines before that count; and
//! `unpacked_too_large`.

use flate2::read::MultiGzDecoder;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;

/// A compressed file.
pub(super) struct Packed {
    /// None until it is begun, and at its end.
    stream: Option<MultiGzDecoder<FromStart>>,
    /// How long it was at the last look, as it lies there.
    seen: Option<u64>,
    /// And when it was begun.
    begun: Option<u64>,
    /// How much was unpacked.
    at: u64,
    max: u64,
    /// Whether it ended otherwise than it should.
    is_broken: bool,
}

/// Why no more of a file can be read.
#[derive(Debug)]
pub(super) enum Flaw {
    /// What the system says.
    Failed(io::Error),
    /// It is no gzip, or no whole one.
    Broken(io::Error),
    /// It holds more than one may.
    TooLarge(u64),
}

impl Flaw {
    /// As it is counted.
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::Failed(_) => "file_failed",
            Self::Broken(_) => "gzip_broken",
            Self::TooLarge(_) => "unpacked_too_large",
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Broken(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("the gzip is cut off; lines before that count")
            }
            Self::Broken(error) => {
                write!(f, "the gzip is damaged; lines before that count: {error}")
            }
            Self::TooLarge(max) => {
                write!(f, "it holds more than `unpacked` allows, {max} bytes; those count")
            }
        }
    }
}

impl Packed {
    /// One that may hold so many bytes; nothing is read yet.
    pub(super) const fn new(max: u64) -> Self {
        Self { stream: None, seen: None, begun: None, at: 0, max, is_broken: false }
    }

    /// Begins it after what was read before, if it is `len` long now, was so at the last look, and
    /// was not begun at that length.
    pub(super) fn ripen(&mut self, file: &File, len: u64, read: u64) -> Result<(), Flaw> {
        let is_still = self.seen.replace(len) == Some(len);
        if is_still && self.begun != Some(len) { self.begin(file, len, read) } else { Ok(()) }
    }

    /// Begins it after what was read before.
    pub(super) fn begin(&mut self, file: &File, len: u64, read: u64) -> Result<(), Flaw> {
        (self.begun, self.at, self.is_broken) = (Some(len), 0, false);
        let file = file.try_clone().map_err(Flaw::Failed)?;
        self.stream = Some(MultiGzDecoder::new(FromStart { file, at: 0 }));
        let mut skipped = [0; 8 << 10];
        while self.at < read {
            let room = usize::try_from(read - self.at).unwrap_or(usize::MAX).min(skipped.len());
            if self.read(skipped.get_mut(..room).unwrap_or_default())? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Whether there may be more to read now.
    pub(super) const fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether there is no more of it than was read.
    pub(super) const fn is_whole(&self) -> bool {
        self.stream.is_none() && !self.is_broken
    }

    /// The next bytes; none at its end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize, Flaw> {
        let Some(stream) = &mut self.stream else { return Ok(0) };
        let read = loop {
            match stream.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(len) => break Ok(len),
                Err(error) => break Err(Flaw::Broken(error)),
            }
        };
        let read = read.and_then(|len| {
            self.at += len as u64;
            if self.at > self.max { Err(Flaw::TooLarge(self.max)) } else { Ok(len) }
        });
        if !matches!(read, Ok(1..)) {
            (self.stream, self.is_broken) = (None, read.is_err());
        }
        read
    }
}

/// A file from its beginning, wherever others read in it.
struct FromStart {
    file: File,
    at: u64,
}

impl Read for FromStart {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(into, self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// What can be read of it, and the reason why not more.
    fn rest(packed: &mut Packed) -> (Vec<u8>, Option<&'static str>) {
        let (mut all, mut buffer) = (Vec::new(), [0; 7]);
        loop {
            match packed.read(&mut buffer) {
                Ok(0) => return (all, None),
                Ok(len) => all.extend_from_slice(&buffer[..len]),
                Err(flaw) => return (all, Some(flaw.reason())),
            }
        }
    }

    #[test]
    fn members_are_one_text_and_reading_goes_on_anywhere() {
        let bytes = [gzip(b"one and "), gzip(b"two")].concat();
        let file = file(&bytes);
        for read in [0, 5, 11] {
            let mut packed = Packed::new(100);
            packed.begin(&file, bytes.len() as u64, read).unwrap();
            let expected = b"one and two"[read as usize..].to_vec();
            assert_eq!(rest(&mut packed), (expected, None));
            assert!(packed.is_whole());
        }
    }

    #[test]
    fn it_is_begun_when_it_has_not_changed() {
        let (mut packed, file) = (Packed::new(100), file(&gzip(b"x")));
        for (len, is_open) in [(5, false), (9, false), (9, true)] {
            packed.ripen(&file, len, 0).unwrap();
            assert_eq!(packed.is_open(), is_open);
        }
        assert_eq!(rest(&mut packed), (b"x".to_vec(), None));
        packed.ripen(&file, 9, 1).unwrap();
        assert!(!packed.is_open(), "once");
        packed.ripen(&file, 10, 1).unwrap();
        packed.ripen(&file, 10, 1).unwrap();
        assert_eq!((packed.is_open(), rest(&mut packed)), (true, (Vec::new(), None)));
    }

    #[test]
    fn one_that_is_cut_off_damaged_or_a_bomb_gives_what_it_can() {
        let whole = gzip(&(0..50_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
        let begun = |bytes: &[u8], max| {
            let mut packed = Packed::new(max);
            packed.begin(&file(bytes), bytes.len() as u64, 0).unwrap();
            rest(&mut packed)
        };
        let (text, reason) = begun(&whole[..whole.len() / 2], 1 << 20);
        assert!(!text.is_empty() && reason == Some("gzip_broken"));
        assert_eq!(begun(b"no gzip at all", 9), (Vec::new(), Some("gzip_broken")));
        assert_eq!(begun(b"", 9), (Vec::new(), Some("gzip_broken")));
        let bomb = gzip(&vec![0; 1 << 20]);
        let (text, reason) = begun(&bomb, 1000);
        assert!(text.len() <= 1000 && reason == Some("unpacked_too_large"));
    }
}
