//! Where reading goes on in each file, over a restart.
//!
//! `data_dir`/files/LISTENER.json, written whole. A file that says something else than it did where
//! it was read is another one, though the system may have given it the inode of one that is gone.
//! Beside it, in LISTENER.lines.json, is how many lines were read of a file of a name, for a listener
//! that reads each of them `once`.
//!
//! Limits: those of files that are open, which `limits.connections` bounds, and of [`OTHERS`] that
//! are not; and [`NAMES`] with their lines. Of more the ones that were read longest ago are
//! forgotten, and noticed as `positions_evicted`.

use super::packed::is_gzip;
use super::{WARN_EVERY, blocking};
use crate::file_id::{FileId, Fingerprint};
use crate::ingest::intake::Context;
use crate::whole_file::{self, Lasting, beside};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where reading goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// For people; not every path is text.
    pub(super) path: String,
    pub(super) offset: u64,
    pub(super) line: u64,
    /// Of what was read, which may be more than the lines that have ended.
    pub(super) fingerprint: Fingerprint,
    /// Larger for what was noted later.
    pub(super) seen: u64,
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
    known: BTreeMap<FileId, Position>,
    /// By name ([`plain`]).
    lines: BTreeMap<String, Lines>,
    seen: u64,
    changed: bool,
    kept: Option<Instant>,
}

impl Positions {
    /// What is known; a file that cannot be read is set aside, and all files are begun anew.
    pub(super) fn read(data_dir: &Path, context: &Context) -> Self {
        let at = data_dir.join("files").join(format!("{}.json", context.listener));
        let known: Vec<(FileId, Position)> = load_or_set_aside(&at, context);
        let lines: Vec<(String, Lines)> = load_or_set_aside(&lines_file(&at), context);
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
    }

    /// Where to go on in a file: at its beginning, if it is not the one that was known.
    pub(super) fn of(&mut self, id: FileId, file: &File) -> io::Result<Position> {
        let Some(known) = self.known.get(&id) else { return Ok(Position::default()) };
        if known.fingerprint.fits(file)? {
            return Ok(known.clone());
        }
        // Or its beginning would be taken for that of the other one.
        self.forget(id);
        Ok(Position::default())
    }

    /// It was read up to there.
    pub(super) fn note(&mut self, id: FileId, position: Position) {
        let before = self.known.get(&id);
        let place = |position: &Position| (position.offset, position.line);
        let same = before.is_some_and(|before| {
            place(before) == place(&position)
                && before.path == position.path
                && before.fingerprint == position.fingerprint
        });
        if !same {
            self.changed = true;
            self.seen += 1;
            self.known.insert(id, Position { seen: self.seen, ..position });
        }
    }

    /// It is begun anew, or there is no such file any more.
    pub(super) fn forget(&mut self, id: FileId) {
        self.changed |= self.known.remove(&id).is_some();
    }

    /// Forgets files that there are too many of; answers how many these were.
    pub(super) fn bound(&mut self, is_open: impl Fn(&FileId) -> bool) -> u64 {
        if self.known.len() <= OTHERS {
            return 0;
        }
        let others = self.known.iter().filter(|(id, _)| !is_open(id));
        let mut others: Vec<_> = others.map(|(id, position)| (position.seen, *id)).collect();
        others.sort_unstable();
        let surplus = others.len().saturating_sub(OTHERS);
        others.iter().take(surplus).for_each(|(_, id)| self.forget(*id));
        surplus as u64
    }

    /// The same of names.
    fn bound_names(&mut self) -> u64 {
        let surplus = self.lines.len().saturating_sub(NAMES);
        if surplus > 0 {
            let mut seen: Vec<_> = self.lines.values().map(|lines| lines.seen).collect();
            seen.sort_unstable();
            let oldest_kept = seen.get(surplus).copied().unwrap_or_default();
            self.lines.retain(|_, lines| lines.seen >= oldest_kept);
        }
        surplus as u64
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
        context.book.noticed.add("positions_evicted", self.bound_names());
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
        let known: Vec<_> = self.known.iter().collect();
        replace(&self.at, &serde_json::to_vec(&known)?)?;
        let (at, lines) = (lines_file(&self.at), self.lines.iter().collect::<Vec<_>>());
        if lines.is_empty() && !at.exists() {
            return Ok(());
        }
        replace(&at, &serde_json::to_vec(&lines)?)
    }
}

fn replace(at: &Path, text: &[u8]) -> io::Result<()> {
    whole_file::replace(at, &beside(at, ".new"), text, Lasting::Power)
}

fn lines_file(at: &Path) -> PathBuf {
    at.with_extension("lines.json")
}

/// The name of a file whether it is compressed by now or not, as text, which not every name is:
/// what is none is escaped, so that two of them never are one.
fn plain(path: &Path) -> String {
    let plain = if is_gzip(path) { &path.with_extension("") } else { path };
    plain.as_os_str().as_encoded_bytes().escape_ascii().to_string()
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
    let (listener, file, aside) = (&*context.listener, at.display(), beside(at, ".damaged"));
    match fs::rename(at, &aside) {
        Ok(()) => {
            let set_aside = aside.display();
            tracing::error!(listener, %error, %file, %set_aside, "{DAMAGED}");
        }
        Err(stays) => tracing::error!(listener, %error, %file, %stays, "{DAMAGED}"),
    }
}

const DAMAGED: &str =
    "where files were read cannot be read, and they are read again from their beginnings";

/// What a kill may repeat.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// As many files are remembered that are not open: gone, or elsewhere for a while.
const OTHERS: usize = 4096;

/// Of as many names it is remembered how many lines were read.
const NAMES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    /// However many are open, and however long they rest.
    #[test]
    fn what_is_open_is_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let id = |n: usize| {
            let path = dir.path().join(n.to_string());
            fs::write(&path, "").unwrap();
            FileId::at(&path).unwrap()
        };
        let ids: Vec<_> = (0..OTHERS + 20).map(id).collect();
        let mut positions = Positions::default();
        for (id, offset) in ids.iter().zip(1..) {
            positions.note(*id, Position { offset, ..Position::default() });
        }
        assert_eq!(positions.bound(|_| true), 0);
        let (open, others) = ids.split_at(15);
        assert_eq!(positions.bound(|id| open.contains(id)), 5);
        assert!(others.iter().take(5).all(|id| !positions.known.contains_key(id)));
        assert_eq!(positions.known.len(), OTHERS + 15);
    }

    #[test]
    fn lines_are_of_names_whatever_these_are() {
        let mut positions = Positions::default();
        let names =
            [&b"/a.log"[..], b"/\xff.log", b"/\xfe.log", b"/\\xff.log", "/ä.log".as_bytes()];
        for (name, count) in names.iter().zip(1..) {
            positions.note_lines(Path::new(OsStr::from_bytes(name)), count);
        }
        for (name, count) in names.iter().zip(1..) {
            let packed = [name, &b".gz"[..]].concat();
            assert_eq!(positions.lines_of(Path::new(OsStr::from_bytes(&packed))), count);
        }
        (0..NAMES).for_each(|n| positions.note_lines(&Path::new("/b").join(n.to_string()), 1));
        assert_eq!(positions.bound_names(), names.len() as u64);
        assert_eq!((positions.lines.len(), positions.lines_of(Path::new("/a.log"))), (NAMES, 0));
        assert_eq!(positions.bound_names(), 0);
    }
}
