//! Where a file's bytes come from: a file, compressed or not, or standard input.

use flate2::read::MultiGzDecoder;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file's bytes, decompressed.
pub(super) enum Source {
    /// One that can be gone through at will.
    Plain(BufReader<Counted<File>>),
    /// One that can only be read to its end, and how much of it was read.
    Stream(Box<dyn Read + Send>, u64),
}

/// What a file is known by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    /// In nanoseconds.
    modified: i128,
    /// A hash of its first [`HEAD`] bytes, or of fewer.
    head: String,
    head_bytes: u64,
}

/// A file that is open.
pub(super) struct Opened {
    pub(super) source: Source,
    /// None of standard input.
    pub(super) identity: Option<Identity>,
    /// How many bytes of it were read so far, as they lie there.
    pub(super) read: Arc<AtomicU64>,
}

/// Opens a file; `-` is standard input.
///
/// # Errors
///
/// What the system says.
pub(super) fn open(path: &Path) -> io::Result<Opened> {
    let read = Arc::default();
    if path.as_os_str() == "-" {
        let input = Counted { inner: io::stdin(), read: Arc::clone(&read) };
        let mut input = BufReader::with_capacity(BUFFER, input);
        let packed = is_packed(io::BufRead::fill_buf(&mut input)?);
        let source = match packed {
            true => Source::Stream(Box::new(MultiGzDecoder::new(input)), 0),
            false => Source::Stream(Box::new(input), 0),
        };
        return Ok(Opened { source, identity: None, read });
    }
    let mut file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let head = head(&mut file, HEAD)?;
    let identity = Some(Identity::of(&file, &head)?);
    let file = BufReader::with_capacity(BUFFER, Counted { inner: file, read: Arc::clone(&read) });
    let source = match is_packed(&head) {
        true => Source::Stream(Box::new(MultiGzDecoder::new(file)), 0),
        false => Source::Plain(file),
    };
    Ok(Opened { source, identity, read })
}

impl Source {
    /// Goes on at so many bytes from the beginning, and no fewer than were read.
    pub(super) fn go_to(&mut self, offset: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => {
                file.get_ref().read.store(offset, Ordering::Relaxed);
                file.seek(SeekFrom::Start(offset)).map(|_| ())
            }
            Self::Stream(stream, read) => {
                let skipped =
                    io::copy(&mut stream.take(offset.saturating_sub(*read)), &mut io::sink())?;
                *read += skipped;
                if *read < offset { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
            }
        }
    }
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(into),
            Self::Stream(stream, read) => {
                let len = stream.read(into)?;
                *read += len as u64;
                Ok(len)
            }
        }
    }
}

impl Identity {
    fn of(file: &File, head: &[u8]) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.len(),
            modified: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
            head: hash(head),
            head_bytes: head.len() as u64,
        })
    }

    /// Whether the file at `path`, which looks like this now, is the one that was `before`, perhaps
    /// grown; or a copy of it in every respect, as one that was moved to another disk.
    pub(super) fn continues(&self, before: &Self, path: &Path) -> bool {
        let grown =
            (self.device, self.inode) == (before.device, before.inode) && self.size >= before.size;
        let copied = (self.size, self.modified) == (before.size, before.modified);
        (grown || copied) && has_head(path, before).unwrap_or(false)
    }

    /// The beginning of the keys of all requests for this file.
    pub(super) fn id(&self) -> String {
        let Self { device, inode, size, modified, head, .. } = self;
        hash(format!("{device} {inode} {size} {modified} {head}").as_bytes())
    }

    /// How many bytes it has on disk.
    pub(super) const fn size(&self) -> u64 {
        self.size
    }
}

fn has_head(path: &Path, before: &Identity) -> io::Result<bool> {
    let bytes = before.head_bytes.min(HEAD);
    Ok(hash(&head(&mut File::open(path)?, bytes)?) == before.head)
}

fn head(file: &mut File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(bytes).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head)
}

fn is_packed(head: &[u8]) -> bool {
    head.starts_with(&[0x1f, 0x8b])
}

/// 128 bits, which is plenty to tell files apart.
pub(super) fn hash(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Counts what is read.
pub(super) struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(into)?;
        self.read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

impl<R: Seek> Seek for Counted<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// Enough to tell two files apart that begin with the same names of columns.
const HEAD: u64 = 4096;

const BUFFER: usize = 64 << 10;
