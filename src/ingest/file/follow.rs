//! Files that are followed as they grow, over rotations of any sort.

use super::decode::Decoder;
use super::glob::Glob;
use super::positions::{Id, Position, id_of};
use super::{Desk, QUIET, Step, blocking};
use crate::ingest::intake::Who;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// All that are open.
pub(super) struct Followed {
    globs: Vec<Glob>,
    files: BTreeMap<Id, Open>,
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
        Self { globs, files: BTreeMap::new() }
    }

    /// Looks which files there are, and reads what is new in them.
    pub(super) async fn look(&mut self, desk: &mut Desk) {
        if self.globs.is_empty() {
            return;
        }
        self.find(desk);
        let mut gone = Vec::new();
        for (id, open) in &mut self.files {
            if open.read_on(desk).await {
                open.quiet = 0;
            }
            if open.quiet > QUIET {
                gone.push(*id);
            }
        }
        for id in gone {
            self.files.remove(&id);
            desk.positions.forget(id);
        }
    }

    /// Opens what is new.
    fn find(&mut self, desk: &mut Desk) {
        let max = desk.context.config.limits.connections as usize;
        self.files.values_mut().for_each(|open| open.quiet += 1);
        let found =
            blocking(|| self.globs.iter().flat_map(|glob| glob.files(max + 1)).collect::<Vec<_>>());
        for path in found.into_iter().filter(|path| !is_packed(path)) {
            // Without a word where it was renamed just now, or is not for us.
            let Ok((file, id)) = open(&path) else { continue };
            if let Some(open) = self.files.get_mut(&id) {
                (open.path, open.quiet) = (path, 0);
            } else if self.files.len() >= max {
                let name = path.display().to_string();
                desk.context.refuse("file_limit", 1, name.as_bytes(), Who(None));
            } else if let Ok(open) = blocking(|| Open::new(id, path, file, desk)) {
                self.files.insert(id, open);
            }
        }
    }
}

impl Open {
    /// A file that is read from where that ended before.
    pub(super) fn new(id: Id, path: PathBuf, mut file: File, desk: &Desk) -> io::Result<Self> {
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

    /// Reads to its present end; answers whether there was anything.
    async fn read_on(&mut self, desk: &mut Desk) -> bool {
        self.restart_if_cut(desk);
        let before = self.decoder.read();
        while desk.read(&mut self.file, &mut self.decoder).await == Step::More {
            self.note(desk);
        }
        self.decoder.read() > before
    }

    pub(super) fn note(&mut self, desk: &mut Desk) {
        let (offset, line) = self.decoder.place();
        desk.positions.note(self.id, &self.path, &mut self.file, offset, line);
    }

    /// A file that is shorter than what was read of it says something new.
    fn restart_if_cut(&mut self, desk: &mut Desk) {
        let len = self.file.metadata().map(|meta| meta.len());
        if len.is_ok_and(|len| len < self.decoder.read()) && self.file.rewind().is_ok() {
            desk.context.book.noticed.add("file_truncated", 1);
            desk.positions.forget(self.id);
            self.decoder = Decoder::new(&self.path, &desk.context.config, &Position::default());
        }
    }
}

pub(super) fn open(path: &Path) -> io::Result<(File, Id)> {
    let file = File::open(path)?;
    let id = id_of(&file)?;
    Ok((file, id))
}

/// What a rotation has compressed was read before.
fn is_packed(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("gz" | "bz2" | "xz" | "zst"))
}
