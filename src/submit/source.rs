//! Where the bytes come from: a file, compressed or not, or something that can be read only once, like a
//! pipe, a device or standard input.

use crate::file_id::{FileId, Fingerprint};
use crate::gzip;
use serde::{Deserialize, Serialize};
use std::fs::{File, Metadata};
use std::io::{self, BufRead as _, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
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
    id: FileId,
    size: u64,
    /// In nanoseconds.
    modified: i128,
    /// Of all that it said then.
    fingerprint: Fingerprint,
}

/// A file that is open.
pub(super) struct Opened {
    pub(super) source: Source,
    /// None of what can only be read once.
    pub(super) known: Option<Known>,
    /// How many bytes of it were read so far, as they lie there.
    pub(super) read: Arc<AtomicU64>,
}

/// A file that can be told from others, and from itself as it was.
pub(super) struct Known {
    pub(super) identity: Identity,
    file: File,
}

/// Opens a file; `-` is standard input.
///
/// # Errors
///
/// What the system says.
pub(super) fn open(path: &Path) -> io::Result<Opened> {
    if path.as_os_str() == "-" {
        return stream(io::stdin());
    }
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !meta.is_file() || is_nameless(path) {
        return stream(file);
    }
    let identity = Identity::of(&file, &meta)?;
    let known = Some(Known { identity, file: file.try_clone()? });
    let read = Arc::default();
    let is_packed = gzip::is_in(&file);
    let file = BufReader::with_capacity(BUFFER, Counted { inner: file, read: Arc::clone(&read) });
    let source = match is_packed {
        true => Source::Stream(Box::new(gzip::Unpacked::new(file)), 0),
        false => Source::Plain(file),
    };
    Ok(Opened { source, known, read })
}

/// What can only be read once.
fn stream(input: impl Read + Send + 'static) -> io::Result<Opened> {
    let read = Arc::default();
    let input = Counted { inner: input, read: Arc::clone(&read) };
    let mut input = BufReader::with_capacity(BUFFER, input);
    let source: Box<dyn Read + Send> = match gzip::is_begun(input.fill_buf()?) {
        true => Box::new(gzip::Unpacked::new(input)),
        false => Box::new(input),
    };
    Ok(Opened { source: Source::Stream(source, 0), known: None, read })
}

/// Whether the name does not identify what is there, like `/dev/fd/63`: it is another thing each time, and
/// nothing can be kept beside it.
pub(super) fn is_nameless(path: &Path) -> bool {
    path.as_os_str() == "-"
        || ["/dev/stdin", "/dev/fd", "/proc"].iter().any(|place| path.starts_with(place))
}

impl Source {
    /// Goes to so many bytes from the beginning, which is never before what was read.
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
    fn of(file: &File, meta: &Metadata) -> io::Result<Self> {
        Ok(Self {
            id: FileId::of(meta),
            size: meta.len(),
            modified: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
            fingerprint: Fingerprint::of(file, meta.len(), SAMPLE)?,
        })
    }

    /// How many bytes it has on disk.
    pub(super) const fn size(&self) -> u64 {
        self.size
    }
}

impl Known {
    /// Whether it is the file that was `before`, perhaps grown, or an exact copy of it, like one that was
    /// moved to another disk.
    pub(super) fn continues(&self, before: &Identity) -> bool {
        let now = &self.identity;
        let grown = now.id == before.id && now.size >= before.size;
        let copied = (now.size, now.modified) == (before.size, before.modified);
        (grown || copied) && before.fingerprint.fits(&self.file).unwrap_or(false)
    }
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

/// Enough to tell two files apart that begin with the same names of columns, or end with the same
/// rows.
const SAMPLE: usize = 4096;

const BUFFER: usize = 64 << 10;
