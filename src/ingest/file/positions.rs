//! Where reading goes on in each file, over a restart.
//!
//! `data_dir`/files/LISTENER.json, written whole. A file that says something else than it did where
//! it was read is another one, though the system may have given it the inode of one that is gone.
//!
//! Limits: those of files that are open, which `limits.connections` bounds, and of [`OTHERS`] that
//! are not; of more the ones that were read longest ago are forgotten, and noticed as
//! `positions_evicted`.

use super::{WARN_EVERY, blocking};
use crate::file_id::{FileId, Fingerprint};
use crate::ingest::intake::Context;
use crate::whole_file::{self, Lasting, beside};
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

/// Those of a listener.
#[derive(Debug, Default)]
pub(super) struct Positions {
    at: PathBuf,
    known: BTreeMap<FileId, Position>,
    seen: u64,
    changed: bool,
    kept: Option<Instant>,
}

impl Positions {
    /// What is known; a file that cannot be read is set aside, and all files are begun anew.
    pub(super) fn read(data_dir: &Path, context: &Context) -> Self {
        let at = data_dir.join("files").join(format!("{}.json", context.listener));
        let known = load(&at).unwrap_or_else(|error| {
            set_aside(&at, &error, context);
            Vec::new()
        });
        let seen = known.iter().map(|(_, position)| position.seen).max().unwrap_or_default();
        Self { at, known: known.into_iter().collect(), seen, changed: false, kept: None }
    }

    /// Where to go on in a file: at its beginning, if it is not the one that was known.
    pub(super) fn of(&mut self, id: FileId, file: &File) -> io::Result<Position> {
        let Some(known) = self.known.get(&id) else { return Ok(Position::default()) };
        if file.metadata()?.len() >= known.offset && known.fingerprint.fits(file)? {
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

    /// Forgets what there are too many of; answers how many these were.
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
        let known: Vec<_> = self.known.iter().collect();
        let bytes = serde_json::to_vec(&known)?;
        whole_file::replace(&self.at, &beside(&self.at, ".new"), &bytes, Lasting::Power)
    }
}

/// There are none where there is no file yet.
fn load(at: &Path) -> io::Result<Vec<(FileId, Position)>> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
