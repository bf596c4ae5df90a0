//! What a compressed file says.
//!
//! gzip, of one member or several ([`gzip`](crate::gzip)). It is unpacked in chunks, which are read like those of
//! any other file: a file that holds far more than it is long takes turns like others, and no memory.
//! Places in it are counted in unpacked bytes; whoever goes on in the middle unpacks once more what is
//! before that. A file that is still being written breaks off, so it is read when it has not changed
//! between two looks. One that has grown after its end goes on there, with another member; one that
//! broke off is unpacked anew, and each time it has to lie still for twice as long before. Traces are of
//! the bytes as they lie there, so that one that was written anew is told as others are.
//!
//! Limit: what one file may hold ([`Config::unpacked`](crate::ingest::Config::unpacked)). Rejected:
//! `gzip_broken`, of one that is cut off or damaged, whose lines before that count; and
//! `unpacked_too_large`.

use super::SAMPLE;
use crate::file_id::Traces;
use crate::gzip::Unpacked;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// A compressed file.
pub(super) struct Packed {
    /// None until it is begun, and at its end.
    stream: Option<Unpacked<BufReader<Reader>>>,
    /// How long it was at the last look, as it lies there, and for how many looks.
    seen: (Option<u64>, u32),
    /// And when it was begun.
    begun: Option<u64>,
    /// How much was unpacked.
    at: u64,
    max: u64,
    /// Of what was read, as it lies there, but for what the stream reads.
    traces: Traces,
    /// Whether it ended there as it should.
    is_whole: bool,
    /// How often it ended otherwise.
    breaks: u32,
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
        let (stream, seen, begun) = (None, (None, 0), None);
        let traces = Traces::none(SAMPLE);
        Self { stream, seen, begun, at: 0, max, traces, is_whole: false, breaks: 0 }
    }

    /// It says something else now; how often it broke off is remembered.
    pub(super) fn restart(&mut self) {
        *self = Self { breaks: self.breaks, ..Self::new(self.max) };
    }

    /// Of what was read, as it lies there.
    pub(super) fn traces(&self) -> &Traces {
        let reader = self.stream.as_ref().and_then(Unpacked::get_ref);
        reader.map_or(&self.traces, |reader| &reader.get_ref().traces)
    }

    /// Begins it after what was read before, if it is `len` long now, has been so for long enough, and
    /// was not begun at that length.
    pub(super) fn ripen(&mut self, file: &File, len: u64, read: u64) -> Result<(), Flaw> {
        let looks = if self.seen.0 == Some(len) { self.seen.1.saturating_add(1) } else { 1 };
        self.seen = (Some(len), looks);
        let is_still = looks > 1 << self.breaks.min(BREAKS_MAX);
        if is_still && self.begun != Some(len) { self.begin(file, len, read) } else { Ok(()) }
    }

    /// Begins it after what was read before.
    pub(super) fn begin(&mut self, file: &File, len: u64, read: u64) -> Result<(), Flaw> {
        self.begun = Some(len);
        let file = file.try_clone().map_err(Flaw::Failed)?;
        // All that was read of it lies before an end.
        let goes_on = std::mem::take(&mut self.is_whole) && self.at == read;
        if !goes_on {
            (self.at, self.traces) = (0, Traces::none(SAMPLE));
        }
        let traces = std::mem::take(&mut self.traces);
        let reader = BufReader::with_capacity(BUFFER, Reader { file, traces });
        let begin = if goes_on { Unpacked::after_member } else { Unpacked::new };
        self.stream = Some(begin(reader));
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
        self.is_whole
    }

    /// The next bytes; none at its end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize, Flaw> {
        let Some(stream) = &mut self.stream else { return Ok(0) };
        let read = loop {
            match stream.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(len) => break Ok(len),
                Err(error) if error.raw_os_error().is_some() => break Err(Flaw::Failed(error)),
                Err(error) => break Err(Flaw::Broken(error)),
            }
        };
        let read = read.and_then(|len| {
            self.at += len as u64;
            if self.at > self.max { Err(Flaw::TooLarge(self.max)) } else { Ok(len) }
        });
        if !matches!(read, Ok(1..)) {
            self.end(read.as_ref().err());
        }
        read
    }

    fn end(&mut self, flaw: Option<&Flaw>) {
        if let Some(reader) = self.stream.take().and_then(Unpacked::into_inner) {
            self.traces = reader.into_inner().traces;
        }
        self.is_whole = flaw.is_none();
        self.breaks += u32::from(flaw.is_some());
        if matches!(flaw, Some(Flaw::Failed(_))) {
            // Though it does not change.
            self.begun = None;
        }
    }
}

/// Reads a file, wherever others are in it.
struct Reader {
    file: File,
    traces: Traces,
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(into, self.traces.read())?;
        self.traces.add(into.get(..len).unwrap_or_default());
        Ok(len)
    }
}

/// What a rotation has compressed was read before, unless somebody asks for it.
pub(super) fn is_packed(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("gz" | "bz2" | "xz" | "zst"))
}

/// The one sort of them that can be unpacked here.
pub(super) fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "gz")
}

/// What is read at once of it, as it lies there.
const BUFFER: usize = 32 << 10;

/// A file that breaks off again and again is unpacked once a minute.
const BREAKS_MAX: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gzip::packed as gzip;
    use std::io::Write as _;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// What can be read of it, and why not more.
    fn rest(packed: &mut Packed) -> (Vec<u8>, Option<&'static str>) {
        let (mut all, mut buffer) = (Vec::new(), [0; 7]);
        loop {
            match packed.read(&mut buffer) {
                Ok(0) => return (all, None),
                Ok(len) => all.extend_from_slice(&buffer[..len]),
                Err(Flaw::Failed(_)) => return (all, Some("failed")),
                Err(Flaw::Broken(_)) => return (all, Some("broken")),
                Err(Flaw::TooLarge(_)) => return (all, Some("too large")),
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
        let (mut packed, mut file) = (Packed::new(100), file(&gzip(b"x")));
        for (len, is_open) in [(5, false), (9, false), (9, true)] {
            packed.ripen(&file, len, 0).unwrap();
            assert_eq!(packed.is_open(), is_open);
        }
        assert_eq!(rest(&mut packed), (b"x".to_vec(), None));
        packed.ripen(&file, 9, 1).unwrap();
        assert!(!packed.is_open(), "once");
        // Another member.
        file.write_all(&gzip(b"y")).unwrap();
        packed.ripen(&file, 10, 1).unwrap();
        packed.ripen(&file, 10, 1).unwrap();
        assert_eq!((packed.is_open(), rest(&mut packed)), (true, (b"y".to_vec(), None)));
        // A block is filled up.
        file.write_all(&[0; 99]).unwrap();
        packed.ripen(&file, 11, 2).unwrap();
        packed.ripen(&file, 11, 2).unwrap();
        assert_eq!((packed.is_open(), rest(&mut packed)), (true, (Vec::new(), None)));
        assert!(packed.is_whole());
    }

    #[test]
    fn one_that_breaks_off_has_to_lie_still_for_longer_each_time() {
        let (mut packed, mut file) = (Packed::new(100), tempfile::tempfile().unwrap());
        let whole = gzip(b"one");
        let (mut waits, mut text) = (Vec::new(), Vec::new());
        for piece in whole.chunks(whole.len().div_ceil(3)) {
            file.write_all(piece).unwrap();
            let len = file.metadata().unwrap().len();
            let mut looks = 0;
            while !packed.is_open() {
                packed.ripen(&file, len, text.len() as u64).unwrap();
                looks += 1;
            }
            waits.push(looks);
            text.extend(rest(&mut packed).0);
        }
        assert_eq!((waits, text, packed.is_whole()), (vec![2, 3, 5], b"one".to_vec(), true));
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
        assert!(!text.is_empty() && reason == Some("broken"));
        assert_eq!(begun(b"no gzip at all", 9), (Vec::new(), Some("broken")));
        assert_eq!(begun(b"", 9), (Vec::new(), Some("broken")));
        let bomb = gzip(&vec![0; 1 << 20]);
        let (text, reason) = begun(&bomb, 1000);
        assert!(text.len() <= 1000 && reason == Some("too large"));
    }
}
