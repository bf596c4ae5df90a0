//! Where reading goes on in each file, over a restart.
//!
//! `data_dir`/files/LISTENER.json, written whole and put in place by a rename. Of files that were
//! seen longest ago only [`MAX`] are remembered; and in LISTENER.lines.json how many lines were read of a
//! file of a name, for a listener that reads each of them `once`. A file that begins differently than it did is another one, though
//! the system may have given it the inode of one that is gone.

use super::{WARN_EVERY, blocking};
use crate::ingest::intake::Context;
use ring::digest::{SHA256, digest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file, whatever it is called: device and inode.
pub(super) type Id = (u64, u64);

/// Where reading goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// For people.
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) line: u64,
    /// How many bytes of its beginning these are a hash of.
    head_bytes: u64,
    head: Vec<u8>,
    /// Larger for what was seen later.
    seen: u64,
}

/// How many lines were read of a file of that name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Lines {
    count: u64,
    seen: u64,
}

/// Those of a listener.
#[derive(Debug, Default)]
pub(super) struct Positions {
    at: PathBuf,
    known: BTreeMap<Id, Position>,
    /// By name, without what tells that it is compressed.
    lines: BTreeMap<PathBuf, Lines>,
    seen: u64,
    changed: bool,
    kept: Option<Instant>,
}

impl Positions {
    /// What is known; a file that cannot be read is set aside, and all files are begun anew.
    pub(super) fn read(data_dir: &Path, context: &Context) -> Self {
        let at = data_dir.join("files").join(format!("{}.json", context.listener));
        let known: Vec<(Id, Position)> = load_or_set_aside(&at, context);
        let lines: Vec<(PathBuf, Lines)> = load_or_set_aside(&lines_file(&at), context);
        let seen = known.iter().map(|(_, position)| position.seen);
        let seen = seen.chain(lines.iter().map(|(_, lines)| lines.seen)).max().unwrap_or_default();
        let (known, lines) = (known.into_iter().collect(), lines.into_iter().collect());
        Self { at, known, lines, seen, changed: false, kept: None }
    }

    /// How many lines were read of a file of that name.
    pub(super) fn lines_of(&self, path: &Path) -> u64 {
        self.lines.get(&plain(path)).map_or(0, |lines| lines.count)
    }

    /// A file of that name was read so far.
    pub(super) fn note_lines(&mut self, path: &Path, count: u64) {
        let path = plain(path);
        if self.lines.get(&path).is_some_and(|lines| lines.count >= count) {
            return;
        }
        self.changed = true;
        self.seen += 1;
        self.lines.insert(path, Lines { count, seen: self.seen });
        if self.lines.len() > MAX
            && let Some(oldest) = self.lines.iter().min_by_key(|(_, lines)| lines.seen)
        {
            let oldest = oldest.0.clone();
            self.lines.remove(&oldest);
        }
    }

    /// Where to go on in a file: at its beginning, if it is not the one that was known.
    pub(super) fn of(&mut self, id: Id, file: &mut File, packed: bool) -> io::Result<Position> {
        let Some(known) = self.known.get(&id) else { return Ok(Position::default()) };
        // Places in a compressed file are no places of the disk.
        let long_enough = packed || file.metadata()?.len() >= known.offset;
        let same = long_enough && head(file, known.head_bytes)? == known.head;
        if same {
            return Ok(known.clone());
        }
        // Or its beginning would be taken for that of the other one.
        self.forget(id);
        Ok(Position::default())
    }

    /// It was read up to there.
    pub(super) fn note(
        &mut self,
        id: Id,
        path: &Path,
        file: &mut File,
        packed: bool,
        offset: u64,
        line: u64,
    ) {
        if self.known.get(&id).is_some_and(|known| (known.offset, &*known.path) == (offset, path)) {
            return;
        }
        self.changed = true;
        self.seen += 1;
        let known = self.known.entry(id).or_default();
        (known.offset, known.line, known.seen) = (offset, line, self.seen);
        path.clone_into(&mut known.path);
        let most = if packed { file.metadata().map_or(0, |meta| meta.len()) } else { offset };
        let wanted = most.min(HEAD);
        if known.head_bytes != wanted
            && let Ok(head) = head(file, wanted)
        {
            (known.head_bytes, known.head) = (wanted, head);
        }
        if self.known.len() > MAX
            && let Some((&oldest, _)) = self.known.iter().min_by_key(|(_, known)| known.seen)
        {
            self.known.remove(&oldest);
        }
    }

    /// It is begun anew, or there is no such file any more.
    pub(super) fn forget(&mut self, id: Id) {
        self.changed |= self.known.remove(&id).is_some();
    }

    /// Writes them, if that was not done within the last moment.
    pub(super) fn keep_at_times(&mut self, context: &Context) {
        if self.kept.is_none_or(|kept| kept.elapsed() >= KEEP_EVERY) {
            self.keep(context);
        }
    }

    /// Writes them, if there is any news.
    pub(super) fn keep(&mut self, context: &Context) {
        self.kept = Some(Instant::now());
        if !self.changed {
            return;
        }
        match blocking(|| self.write()) {
            Ok(()) => self.changed = false,
            Err(error) => {
                context.book.noticed.add("positions_failed", 1);
                if context.may_warn("positions", WARN_EVERY) {
                    let file = self.at.display();
                    tracing::warn!(%file, %error, "a restart would read files again");
                }
            }
        }
    }

    fn write(&self) -> io::Result<()> {
        if let Some(directory) = self.at.parent() {
            fs::create_dir_all(directory)?;
        }
        let known: Vec<_> = self.known.iter().collect();
        write_whole(&self.at, &serde_json::to_vec(&known)?)?;
        let (at, lines) = (lines_file(&self.at), self.lines.iter().collect::<Vec<_>>());
        if lines.is_empty() && !at.exists() {
            return Ok(());
        }
        write_whole(&at, &serde_json::to_vec(&lines)?)
    }
}

fn write_whole(at: &Path, text: &[u8]) -> io::Result<()> {
    let fresh = at.with_extension("new");
    fs::write(&fresh, text)?;
    fs::rename(&fresh, at)
}

fn lines_file(at: &Path) -> PathBuf {
    at.with_extension("lines.json")
}

/// The name of a file whether it is compressed by now or not.
fn plain(path: &Path) -> PathBuf {
    if super::follow::is_gzip(path) { path.with_extension("") } else { path.to_owned() }
}

fn load_or_set_aside<T: DeserializeOwned>(at: &Path, context: &Context) -> Vec<T> {
    load(at).unwrap_or_else(|error| {
        set_aside(at, &error, context);
        Vec::new()
    })
}

/// There are none where there is no file yet.
fn load<T: DeserializeOwned>(at: &Path) -> io::Result<Vec<T>> {
    match fs::read(at) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// As `LISTENER.json.damaged`, the latest such only.
fn set_aside(at: &Path, error: &io::Error, context: &Context) {
    context.book.noticed.add("positions_damaged", 1);
    let (listener, file, aside) =
        (&*context.listener, at.display(), at.with_extension("json.damaged"));
    match fs::rename(at, &aside) {
        Ok(()) => {
            let set_aside = aside.display();
            tracing::error!(listener, %error, %file, %set_aside, "where files were read cannot be read; they are read again from their beginnings");
        }
        Err(stays) => {
            tracing::error!(listener, %error, %file, %stays, "where files were read cannot be read, nor set aside; they are read again from their beginnings");
        }
    }
}

/// What tells a file from all others.
pub(super) fn id_of(meta: &fs::Metadata) -> Id {
    (meta.dev(), meta.ino())
}

fn head(file: &mut File, bytes: u64) -> io::Result<Vec<u8>> {
    let place = file.stream_position()?;
    file.rewind()?;
    let mut head = Vec::new();
    file.take(bytes).read_to_end(&mut head)?;
    file.seek(io::SeekFrom::Start(place))?;
    Ok(digest(&SHA256, &head).as_ref().iter().take(16).copied().collect())
}

/// Enough to tell two logs apart.
const HEAD: u64 = 256;

/// What a kill may repeat.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// As many files are remembered.
const MAX: usize = 4096;
