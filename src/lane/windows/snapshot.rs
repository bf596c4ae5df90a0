//! What outlives the process of a backend's windows: `<data_dir>/windows/<name>.snapshot`.
//!
//! The file holds a version, what is [remembered](Memory) in postcard's format, and a CRC-32 of all
//! before it. It is written beside, waits until the disk has it, and is then renamed, so that there
//! is either the earlier one or this. A stop makes the file beside, empty, before it writes rows:
//! one that is found at a start says that these rows are not to be replaced. It stays when it was
//! read: should the process be killed, the next one may take it up again, since the rows of a
//! window only ever replace those of its part, and a part whose window has ended is no more looked
//! at. A file that is damaged, or of another version, is set aside as `<name>.snapshot.damaged`,
//! the latest such only. Everything to do with the file blocks.

use super::carried::Part;
use super::edges::Edges;
use super::idle::Idle;
use crate::lane::Layout;
use crate::lane::series::{of_kind, series_hash};
use crate::lane::table::{Series, Table};
use crate::whole_file::{self, Lasting, beside};
use protocols::{Batch, Kind, Measure, Tags};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What is remembered of a backend's windows.
pub(super) struct Memory<'a> {
    pub(super) layout: Layout,
    pub(super) edges: &'a Edges,
    /// What is idle.
    pub(super) idle: Entries,
    /// What was seen of the open window, and what was carried into it.
    pub(super) parts: Entries,
}

/// Series and their states as the file has them, one after the other: they are gathered a few at a
/// time, so that nobody has to stand still for all.
#[derive(Default)]
pub(super) struct Entries {
    count: usize,
    bytes: Vec<u8>,
}

/// The same, read back.
#[derive(Debug)]
pub(in crate::lane) struct Remembered {
    pub(super) layout: Layout,
    pub(super) edges: Edges,
    pub(super) idle: Table<Idle>,
    pub(super) parts: Table<Part>,
}

/// As it stands in the file; each series with its name, tags, kind and state.
#[derive(Deserialize)]
struct Stored<'a> {
    layout: Layout,
    edges: Edges,
    #[serde(borrow)]
    idle: Vec<Entry<'a, Idle>>,
    #[serde(borrow)]
    parts: Vec<Entry<'a, Part>>,
}

/// What can be wrong with a snapshot.
#[derive(Debug, thiserror::Error)]
pub(in crate::lane) enum Error {
    /// The file system said so.
    #[error("{0}")]
    File(#[from] io::Error),
    /// The checksum, or what it guards.
    #[error("it is damaged")]
    Damaged,
    /// Another program wrote it, or another version of this one.
    #[error("it is no snapshot of this version")]
    Foreign,
}

impl Memory<'_> {
    /// The whole file.
    pub(super) fn into_bytes(self) -> Option<Vec<u8>> {
        // Only memory takes it, and there is nothing that the format cannot say.
        let mut bytes = postcard::to_extend(&(self.layout, self.edges), MAGIC.to_vec()).ok()?;
        for entries in [self.idle, self.parts] {
            bytes = postcard::to_extend(&entries.count, bytes).ok()?;
            bytes.extend_from_slice(&entries.bytes);
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        Some(bytes)
    }
}

impl Entries {
    /// Adds a series.
    pub(super) fn add(&mut self, series: &Series<'_>, state: impl Serialize) {
        let bytes = std::mem::take(&mut self.bytes);
        if let Ok(bytes) = postcard::to_extend(&Entry::new(series, state), bytes) {
            self.bytes = bytes;
            self.count += 1;
        }
    }
}

impl Remembered {
    /// Reads a whole file.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let (guarded, sum) = bytes.split_last_chunk().ok_or(Error::Damaged)?;
        if checksum(guarded) != u32::from_le_bytes(*sum) {
            return Err(Error::Damaged);
        }
        let body = guarded.strip_prefix(MAGIC).ok_or(Error::Foreign)?;
        let stored: Stored<'_> = postcard::from_bytes(body).map_err(|_| Error::Damaged)?;
        let Stored { layout, edges, idle, parts } = stored;
        Ok(Self { layout, edges, idle: table(idle), parts: table(parts) })
    }
}

impl Remembered {
    /// Without what was written of an open window, if later rows of that are not known here.
    pub(in crate::lane) fn without_part(self, drop: bool) -> Self {
        if !drop {
            return self;
        }
        Self { edges: self.edges.without_part(), parts: Table::default(), ..self }
    }
}

#[derive(Serialize, Deserialize)]
struct Entry<'a, S> {
    name: &'a str,
    #[serde(borrow)]
    tags: Vec<(&'a str, Option<&'a str>)>,
    kind: &'a str,
    state: S,
}

impl<'a, S> Entry<'a, S> {
    fn new(series: &Series<'a>, state: S) -> Self {
        let tags = series.tags.iter().map(|tag| (tag.key, tag.value)).collect();
        Self { name: series.name, tags, kind: series.kind.name(), state }
    }
}

/// Hashes are this process's own, so series get theirs anew.
fn table<S>(entries: Vec<Entry<'_, S>>) -> Table<S> {
    let mut table = Table::default();
    let mut key = Batch::new();
    for Entry { name, tags, kind, state } in entries {
        // A kind that is not known cannot be in a file of this version.
        let Some(kind) = Kind::ALL.into_iter().find(|known| known.name() == kind) else { continue };
        with_tags(&mut key, &tags, |tags| {
            let hash = of_kind(series_hash(name, tags), kind);
            table.insert(&Series { hash, kind, name, tags }, state);
        });
    }
    table
}

fn with_tags(batch: &mut Batch, tags: &[(&str, Option<&str>)], act: impl FnOnce(Tags<'_>)) {
    batch.clear();
    let mut writer = batch.begin("");
    for (key, value) in tags {
        writer.tag(key, *value);
    }
    writer.finish(Measure::Gauge(0.0), None, "");
    drop(writer);
    if let Some(point) = batch.point(0) {
        act(point.tags);
    }
}

/// The file of one backend.
#[derive(Debug)]
pub(in crate::lane) struct Snapshot {
    path: PathBuf,
    /// Locked while it is written.
    writing: Mutex<()>,
    /// The latest wish for a file.
    order: Mutex<Arc<Order>>,
}

/// Whether whoever asked for a file still wants it. Once it was given up it never comes to be.
#[derive(Debug, Default)]
pub(in crate::lane) struct Order(Mutex<Progress>);

#[derive(Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    Wanted,
    InPlace,
    GivenUp,
}

impl Snapshot {
    /// The file of a backend; nothing is read or made yet.
    pub(in crate::lane) fn new(data_dir: &Path, name: &str) -> Self {
        let path = data_dir.join("windows").join(format!("{name}.snapshot"));
        Self { path, writing: Mutex::default(), order: Mutex::default() }
    }

    /// A new wish for a file, which takes all earlier ones back.
    pub(in crate::lane) fn order(&self) -> Arc<Order> {
        let mut latest = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        latest.give_up();
        *latest = Arc::default();
        Arc::clone(&latest)
    }

    /// Whether the disk is at work on an earlier one.
    pub(in crate::lane) fn is_busy(&self) -> bool {
        self.writing.try_lock().is_err()
    }

    /// Where it is.
    pub(in crate::lane) fn path(&self) -> &Path {
        &self.path
    }

    /// What an earlier process has left, if it has.
    pub(in crate::lane) fn read(&self) -> Result<Option<Remembered>, Error> {
        match fs::metadata(&self.path) {
            Ok(file) if !file.is_file() || file.len() > BYTES_MAX => return Err(Error::Foreign),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        Remembered::from_bytes(&fs::read(&self.path)?).map(Some)
    }

    /// Renames what cannot be read.
    pub(in crate::lane) fn set_aside(&self) -> io::Result<PathBuf> {
        let aside = beside(&self.path, ".damaged");
        fs::rename(&self.path, &aside)?;
        Ok(aside)
    }

    /// Puts another one in its place. Answers whether it is there, which it is not if it was
    /// given up before the disk had it.
    pub(in crate::lane) fn write(&self, bytes: &[u8], order: &Order) -> io::Result<bool> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = self.fresh();
        let written = whole_file::write(&fresh, bytes, Lasting::Power)
            .and_then(|()| order.place(|| fs::rename(&fresh, &self.path)));
        if !matches!(written, Ok(true)) {
            // Gives the disk back, and goes on to say that this one is missing.
            let _ = self.announce();
        }
        written
    }

    /// Says, for a later process, that rows are written of which no snapshot may come to know.
    pub(in crate::lane) fn announce(&self) -> io::Result<()> {
        whole_file::write(&self.fresh(), b"", Lasting::Process)
    }

    /// Whether one was announced, or begun, and never came; asked once.
    pub(in crate::lane) fn is_missing(&self) -> bool {
        fs::remove_file(self.fresh()).is_ok()
    }

    /// Empties it: nobody is to go on from what it holds.
    pub(in crate::lane) fn spoil(&self) -> io::Result<()> {
        OpenOptions::new().write(true).truncate(true).open(&self.path).map(drop)
    }

    fn fresh(&self) -> PathBuf {
        beside(&self.path, ".new")
    }
}

impl Order {
    /// Takes it back. Answers whether it came too late, since the file is in place.
    pub(in crate::lane) fn give_up(&self) -> bool {
        let mut progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *progress == Progress::Wanted {
            *progress = Progress::GivenUp;
        }
        *progress == Progress::InPlace
    }

    fn place(&self, rename: impl FnOnce() -> io::Result<()>) -> io::Result<bool> {
        let mut progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *progress == Progress::GivenUp {
            return Ok(false);
        }
        rename()?;
        *progress = Progress::InPlace;
        Ok(true)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum()
}

/// Ten million series, each of a few hundred bytes. What is larger is not ours.
const BYTES_MAX: u64 = 4 << 30;
/// The last byte is the version, raised when what stands in files of before would be read otherwise.
const MAGIC: &[u8] = b"PMWIN\x01";

#[cfg(test)]
mod tests {
    use super::*;

    /// What lies there would be read for ever, or fill the memory.
    #[test]
    fn what_is_no_file_of_ours_is_not_even_read() {
        let check = |lay: fn(&Path)| {
            let dir = tempfile::tempdir().unwrap();
            let snapshot = Snapshot::new(dir.path(), "b");
            fs::create_dir(dir.path().join("windows")).unwrap();
            lay(snapshot.path());
            assert!(matches!(snapshot.read(), Err(Error::Foreign)));
            snapshot.set_aside().unwrap();
            assert!(matches!(snapshot.read(), Ok(None)));
        };
        check(|path| std::os::unix::fs::symlink("/dev/zero", path).unwrap());
        check(|path| fs::create_dir(path).unwrap());
        check(|path| fs::File::create(path).unwrap().set_len(BYTES_MAX + 1).unwrap());
    }
}
