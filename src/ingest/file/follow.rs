//! Files that are followed as they grow, over rotations of any sort.

use super::decode::Decoder;
use super::glob::{Found, Glob};
use super::positions::Position;
use super::watch::Watch;
use super::{Desk, EVERY, QUIET, Step, blocking};
use crate::file_id::{FileId, Traces};
use crate::ingest::intake::Who;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::time::Instant;

/// All that are open.
pub(super) struct Followed {
    globs: Vec<Glob>,
    files: BTreeMap<FileId, Open>,
    /// Those that there were too many of at the last look, which were counted then.
    over: BTreeSet<FileId>,
    /// Those that could not be opened at the last look, which were counted then.
    failed: BTreeSet<PathBuf>,
    watch: Watch,
}

/// A file that is read on.
pub(super) struct Open {
    pub(super) id: FileId,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) decoder: Decoder,
    /// Of what was read.
    pub(super) traces: Traces,
    /// How long it was at the last look, and when it was changed.
    seen: Option<(u64, SystemTime)>,
    /// It cannot be read, which was counted.
    failed: bool,
    /// For how many looks it has been neither at a place that is looked at nor grown.
    quiet: u32,
}

impl Followed {
    pub(super) fn new(globs: Vec<Glob>) -> Self {
        Self {
            globs,
            files: BTreeMap::new(),
            over: BTreeSet::new(),
            failed: BTreeSet::new(),
            watch: Watch::new(),
        }
    }

    /// Waits until a file may have come up.
    pub(super) async fn news(&self) {
        self.watch.news().await;
    }

    /// Looks which files there are, and reads what is new in them.
    pub(super) async fn look(&mut self, desk: &mut Desk) {
        if self.globs.is_empty() {
            return;
        }
        // What is not read does not grow quiet.
        let waits = desk.has_to_wait();
        self.files.values_mut().for_each(|open| open.quiet += u32::from(!waits));
        self.find(desk);
        if waits {
            return;
        }
        let until = Instant::now() + EVERY;
        while self.read_on(desk).await && Instant::now() < until {
            if self.watch.has_news() {
                self.find(desk);
            }
        }
        self.close(desk);
    }

    /// Lets each file have its turn; answers whether there is more in any of them.
    async fn read_on(&mut self, desk: &mut Desk) -> bool {
        let mut more = false;
        for open in self.files.values_mut() {
            if desk.has_to_wait() {
                return false;
            }
            more |= open.read_on(desk).await;
        }
        more
    }

    /// Opens what is new.
    pub(super) fn find(&mut self, desk: &mut Desk) {
        let max = desk.context.config.limits.connections as usize;
        let mut found = Found::default();
        blocking(|| {
            self.globs.iter().for_each(|glob| glob.find(max.saturating_add(OVER), &mut found));
            self.watch.keep(std::mem::take(&mut found.folders));
        });
        let (mut over, mut failed) = (BTreeSet::new(), BTreeSet::new());
        for (path, meta) in found.files {
            let id = FileId::of(&meta);
            if let Some(open) = self.files.get_mut(&id) {
                (open.path, open.quiet) = (path, 0);
                continue;
            }
            if is_packed(&path) {
                continue;
            }
            if self.files.len() >= max {
                if over.insert(id) && !self.over.contains(&id) {
                    let name = path.display().to_string();
                    desk.context.refuse("file_limit", 1, name.as_bytes(), Who(None));
                }
            } else {
                match blocking(|| Open::new(path.clone(), desk)) {
                    Ok(open) => drop(self.files.insert(open.id, open)),
                    Err(error) => found.failed.push((path, error)),
                }
            }
        }
        for (path, error) in found.failed {
            // What is not there was renamed or removed just now.
            if error.kind() != io::ErrorKind::NotFound {
                if !self.failed.contains(&path) {
                    let text = format!("{}: {error}", path.display());
                    desk.context.refuse("file_failed", 1, text.as_bytes(), Who(None));
                }
                failed.insert(path);
            }
        }
        (self.over, self.failed) = (over, failed);
    }

    /// Closes those that are gone, and are not written to any more.
    fn close(&mut self, desk: &mut Desk) {
        self.files.retain(|id, open| {
            // More may be there than are looked at.
            let stays =
                open.quiet <= QUIET || blocking(|| FileId::at(&open.path)).as_ref() == Some(id);
            if !stays {
                open.decoder.give_up(&desk.context);
                desk.positions.forget(*id);
            }
            stays
        });
        let evicted = desk.positions.bound(|id| self.files.contains_key(id));
        if evicted > 0 {
            desk.context.book.noticed.add("positions_evicted", evicted);
        }
    }
}

impl Open {
    /// A file that is read from where that ended before. Blocks.
    pub(super) fn new(path: PathBuf, desk: &mut Desk) -> io::Result<Self> {
        let mut file = File::open(&path)?;
        let id = FileId::of(&file.metadata()?);
        let position = desk.positions.of(id, &file)?;
        let mut decoder = Decoder::new(&path, &desk.context.config, &position);
        if decoder.wants_header() {
            let mut beginning = Vec::new();
            let most = desk.context.config.limits.line.0;
            (&mut file).take(most).read_to_end(&mut beginning)?;
            decoder.header(&beginning);
        }
        file.seek(SeekFrom::Start(position.offset))?;
        let traces = Traces::of(&file, position.offset, SAMPLE)?;
        let (seen, failed, quiet) = (None, false, 0);
        Ok(Self { id, path, file, decoder, traces, seen, failed, quiet })
    }

    /// Reads what is new in it, as far as its turn allows; answers whether there may be more.
    async fn read_on(&mut self, desk: &mut Desk) -> bool {
        self.restart_if_other(desk);
        let before = self.decoder.read();
        let step = desk.read_some(self).await;
        if self.decoder.read() > before {
            (self.quiet, self.failed) = (0, false);
        }
        if let Step::Failed(error) = &step
            && !std::mem::replace(&mut self.failed, true)
        {
            let text = format!("{}: {error}", self.path.display());
            desk.context.refuse("file_failed", 1, text.as_bytes(), Who(None));
        }
        matches!(step, Step::More)
    }

    /// Remembers how far it was read, and what was.
    pub(super) fn note(&mut self, desk: &mut Desk) {
        let ((offset, line), fingerprint) = (self.decoder.place(), self.traces.fingerprint());
        let path = self.path.display().to_string();
        desk.positions.note(self.id, Position { path, offset, line, fingerprint, seen: 0 });
    }

    /// A file that was cut, or written anew in place, says something new.
    fn restart_if_other(&mut self, desk: &mut Desk) {
        let Ok(meta) = blocking(|| self.file.metadata()) else { return };
        let now = meta.modified().ok().map(|modified| (meta.len(), modified));
        if now.is_some() && now == self.seen {
            return;
        }
        self.seen = now;
        let change = if meta.len() < self.decoder.read() {
            "file_truncated"
        } else if !blocking(|| self.traces.fingerprint().fits(&self.file)).unwrap_or(true) {
            "file_rewritten"
        } else {
            return;
        };
        if self.file.rewind().is_ok() {
            self.decoder.give_up(&desk.context);
            desk.context.book.noticed.add(change, 1);
            desk.positions.forget(self.id);
            self.traces = Traces::of(&self.file, 0, SAMPLE).unwrap_or_default();
            self.decoder = Decoder::new(&self.path, &desk.context.config, &Position::default());
        }
    }
}

/// What a rotation has compressed was read before.
pub(super) fn is_packed(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("gz" | "bz2" | "xz" | "zst"))
}

/// How many are looked at that are not to be opened.
const OVER: usize = 4096;

/// Enough to tell two logs apart, and what was written from what was written over it.
const SAMPLE: usize = 256;
