//! Files that are followed as they grow, over rotations of any sort.

use super::decode::Decoder;
use super::glob::Glob;
use super::positions::{Id, Position, id_of};
use super::{Desk, EVERY, QUIET, Step, blocking, mark};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use tokio::time::Instant;

/// All that are open.
pub(super) struct Followed {
    globs: Vec<Glob>,
    files: BTreeMap<Id, Open>,
    /// How many there were too many at the last look, which were counted then.
    over: u64,
    /// Those that could not be opened at the last look, which were counted then.
    failed: BTreeSet<PathBuf>,
}

/// A file that is read on.
pub(super) struct Open {
    pub(super) id: Id,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) decoder: Decoder,
    /// For how many looks it has been neither at a place that is looked at nor grown.
    quiet: u32,
}

impl Followed {
    pub(super) const fn new(globs: Vec<Glob>) -> Self {
        Self { globs, files: BTreeMap::new(), over: 0, failed: BTreeSet::new() }
    }

    /// Looks which files there are, and reads what is new in them.
    pub(super) async fn look(&mut self, desk: &mut Desk) {
        if self.globs.is_empty() {
            return;
        }
        self.find(desk);
        let until = Instant::now() + EVERY;
        while self.read_on(desk).await && Instant::now() < until {}
        self.files.retain(|id, open| {
            let stays = open.quiet <= QUIET;
            if !stays {
                open.decoder.give_up(&desk.context);
                desk.positions.forget(*id);
            }
            stays
        });
    }

    /// Lets each file have its turn; answers whether there is more in any of them.
    async fn read_on(&mut self, desk: &mut Desk) -> bool {
        let mut more = false;
        for open in self.files.values_mut() {
            more |= open.read_on(desk).await == Step::More;
        }
        more
    }

    /// Opens what is new.
    fn find(&mut self, desk: &mut Desk) {
        let max = desk.context.config.limits.connections as usize;
        self.files.values_mut().for_each(|open| open.quiet += 1);
        let globs = &self.globs;
        let found = blocking(|| {
            let paths = globs.iter().flat_map(|glob| glob.files(max + 1));
            let paths = paths.filter(|path| !is_packed(path));
            paths.map(|path| (fs::metadata(&path), path)).collect::<Vec<_>>()
        });
        let (mut over, mut failed) = (0, BTreeSet::new());
        for (meta, path) in found {
            let known = meta.as_ref().ok().and_then(|meta| self.files.get_mut(&id_of(meta)));
            if let Some(open) = known {
                (open.path, open.quiet) = (path, 0);
            } else if self.files.len() >= max {
                over += 1;
                if over > self.over {
                    let name = path.display().to_string();
                    desk.context.refuse_about(mark(&path), "file_limit", name.as_bytes());
                }
            } else {
                match meta.and_then(|_| blocking(|| Open::new(path.clone(), desk))) {
                    Ok(open) => drop(self.files.insert(open.id, open)),
                    // It was renamed or removed just now.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        if !self.failed.contains(&path) {
                            let text = format!("{}: {error}", path.display());
                            desk.context.refuse_about(mark(&path), "file_failed", text.as_bytes());
                        }
                        failed.insert(path);
                    }
                }
            }
        }
        (self.over, self.failed) = (over, failed);
    }
}

impl Open {
    /// A file that is read from where that ended before. Blocks.
    pub(super) fn new(path: PathBuf, desk: &mut Desk) -> io::Result<Self> {
        let mut file = File::open(&path)?;
        let id = id_of(&file.metadata()?);
        let position = desk.positions.of(id, &mut file)?;
        let mut decoder = Decoder::new(&path, &desk.context.config, &position);
        if decoder.wants_header() {
            file.rewind()?;
            let mut beginning = Vec::new();
            let most = desk.context.config.limits.line.0;
            (&mut file).take(most).read_to_end(&mut beginning)?;
            decoder.header(&beginning);
        }
        file.seek(SeekFrom::Start(position.offset))?;
        Ok(Self { id, path, file, decoder, quiet: 0 })
    }

    /// Reads what is new in it, as far as its turn allows.
    async fn read_on(&mut self, desk: &mut Desk) -> Step {
        self.restart_if_cut(desk);
        let before = self.decoder.read();
        let step = desk.read_some(self).await;
        if self.decoder.read() > before {
            self.quiet = 0;
        }
        step
    }

    pub(super) fn note(&mut self, desk: &mut Desk) {
        let (offset, line) = self.decoder.place();
        blocking(|| desk.positions.note(self.id, &self.path, &mut self.file, offset, line));
    }

    /// A file that is shorter than what was read of it says something new.
    fn restart_if_cut(&mut self, desk: &mut Desk) {
        let len = blocking(|| self.file.metadata()).map(|meta| meta.len());
        if len.is_ok_and(|len| len < self.decoder.read()) && self.file.rewind().is_ok() {
            self.decoder.give_up(&desk.context);
            desk.context.book.noticed.add("file_truncated", 1);
            desk.positions.forget(self.id);
            self.decoder = Decoder::new(&self.path, &desk.context.config, &Position::default());
        }
    }
}

/// What a rotation has compressed was read before.
pub(super) fn is_packed(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("gz" | "bz2" | "xz" | "zst"))
}
