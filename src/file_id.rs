//! What a file is known by, whatever it is called: where it lies, and what it begins and ends with.
//!
//! Device and inode tell it from every other file that is there. They do not tell it from one that
//! came after it: a file that was removed leaves its inode to the next, and one can be written anew
//! in place. A [`Fingerprint`] tells that: of what a file said when it was looked at, the first
//! bytes and the last are the same for as long as it is only appended to.

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// A file that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

/// How the first part of a file begins and ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    head: Sample,
    tail: Sample,
}

/// What was read of a file, as far as it goes into its fingerprint. It is of the bytes that were
/// read: by the time that these are dealt with, the file may say something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traces {
    /// Of at most so many bytes at either end.
    bytes: usize,
    read: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// Some bytes of a file, as a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sample {
    at: u64,
    bytes: usize,
    hash: String,
}

impl FileId {
    /// Of a file that was looked at.
    pub(crate) fn of(meta: &fs::Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino() }
    }

    /// Of what is at a path, if anything is.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|meta| Self::of(&meta))
    }
}

impl Fingerprint {
    /// Of what a file says up to `end`, by `bytes` at either end of that.
    pub(crate) fn of(file: &File, end: u64, bytes: usize) -> io::Result<Self> {
        Traces::of(file, end, bytes).map(|traces| traces.fingerprint())
    }

    /// Whether a file says the same there.
    pub(crate) fn fits(&self, file: &File) -> io::Result<bool> {
        Ok(self.head.fits(file)? && self.tail.fits(file)?)
    }
}

impl Traces {
    /// Of a file that was not read.
    pub(crate) const fn none(bytes: usize) -> Self {
        Self { bytes, read: 0, head: Vec::new(), tail: Vec::new() }
    }

    /// How much was read.
    pub(crate) const fn read(&self) -> u64 {
        self.read
    }

    /// Of a file that was read up to there.
    pub(crate) fn of(file: &File, read: u64, bytes: usize) -> io::Result<Self> {
        let len = usize::try_from(read).unwrap_or(usize::MAX).min(bytes);
        let tail = cut(file, read.saturating_sub(len as u64), len)?;
        Ok(Self { bytes, read, head: cut(file, 0, len)?, tail })
    }

    /// This was read after that.
    pub(crate) fn add(&mut self, chunk: &[u8]) {
        let room = self.bytes.saturating_sub(self.head.len()).min(chunk.len());
        self.head.extend_from_slice(chunk.get(..room).unwrap_or_default());
        let last = chunk.len().saturating_sub(self.bytes);
        self.tail.extend_from_slice(chunk.get(last..).unwrap_or_default());
        self.tail.drain(..self.tail.len().saturating_sub(self.bytes));
        self.read += chunk.len() as u64;
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let tail = self.read.saturating_sub(self.tail.len() as u64);
        Fingerprint { head: Sample::new(0, &self.head), tail: Sample::new(tail, &self.tail) }
    }
}

impl Sample {
    fn new(at: u64, bytes: &[u8]) -> Self {
        Self { at, bytes: bytes.len(), hash: hash(bytes) }
    }

    /// A file that ends before is another sample.
    fn of(file: &File, at: u64, bytes: usize) -> io::Result<Self> {
        cut(file, at, bytes).map(|bytes| Self::new(at, &bytes))
    }

    /// Nothing is said by every file.
    fn fits(&self, file: &File) -> io::Result<bool> {
        Ok(self.bytes == 0 || Self::of(file, self.at, self.bytes)? == *self)
    }
}

/// So many bytes of a file, or as many as there are.
fn cut(file: &File, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(len);
    Ok(buffer)
}

/// 128 bits, which is plenty to tell files apart.
pub(crate) fn hash(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a file that was `before` is taken for the same when it is `now`.
    fn fits(before: &str, now: &str) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, before).unwrap();
        let file = File::open(&path).unwrap();
        let fingerprint = Fingerprint::of(&file, before.len() as u64, 4).unwrap();
        fs::write(&path, now).unwrap();
        fingerprint.fits(&file).unwrap()
    }

    #[test]
    fn a_file_is_the_same_while_it_is_only_appended_to() {
        for (before, now, expected) in [
            ("", "", true),
            ("", "anything", true),
            ("ab", "ab", true),
            ("ab", "abc", true),
            ("abcdefgh", "abcdefgh and more", true),
            ("ab", "a", false),
            ("ab", "xb", false),
            ("abcdefgh", "abcdefg", false),
            ("abcdefgh", "abcdxxxx and more", false),
            ("abcdefgh", "xxxxefgh", false),
        ] {
            assert_eq!(fits(before, now), expected, "{before:?}, now {now:?}");
        }
    }

    /// However it was read, it is the fingerprint of what was.
    #[test]
    fn traces_are_of_what_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = b"abcdefghijklmnop";
        fs::write(dir.path().join("a"), text).unwrap();
        let file = File::open(dir.path().join("a")).unwrap();
        for first in 0..text.len() {
            for size in 1..text.len() {
                let mut traces = Traces::of(&file, first as u64, 4).unwrap();
                text[first..].chunks(size).for_each(|chunk| traces.add(chunk));
                let whole = Fingerprint::of(&file, text.len() as u64, 4).unwrap();
                assert_eq!(traces.fingerprint(), whole, "from {first}, {size} at a time");
            }
        }
    }

    #[test]
    fn every_file_may_be_the_one_of_which_nothing_is_known() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "abc").unwrap();
        let file = File::open(dir.path().join("a")).unwrap();
        assert!(Fingerprint::default().fits(&file).unwrap());
    }

    #[test]
    fn a_place_tells_files_apart_whatever_they_are_called() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| dir.path().join(name));
        assert_eq!(FileId::at(&a), None);
        fs::write(&a, "").unwrap();
        fs::write(&b, "").unwrap();
        let first = FileId::at(&a);
        assert_ne!(first, FileId::at(&b));
        fs::rename(&a, &c).unwrap();
        assert_eq!(first, FileId::at(&c));
    }
}
