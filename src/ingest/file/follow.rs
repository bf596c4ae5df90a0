//! Files that are followed as they grow, over rotations of any sort.

use super::decode::Decoder;
use super::glob::{Found, Glob};
use super::packed::{Flaw, Packed, is_gzip};
use super::positions::Position;
use super::regular::{self, Links};
use super::watch::Watch;
use super::{Desk, EVERY, QUIET, SAMPLE, Step, blocking, read};
use crate::file_id::{FileId, Traces};
use crate::gzip::Unpacked;
use memchr::memchr_iter;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::time::Instant;

/// All followed files that are open.
pub(super) struct Followed {
    globs: Vec<Glob>,
    files: BTreeMap<FileId, Open>,
    /// Those beyond the limit at the last look, which were counted then.
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
    /// How it is unpacked, if it is compressed.
    pub(super) packed: Option<Packed>,
    /// How many lines are still to be skipped, since they were read before.
    pub(super) known: u64,
    /// Traces of what was read, if it is not compressed.
    traces: Traces,
    /// How long it was at the last look, and when it was changed.
    seen: Option<(u64, SystemTime)>,
    /// It cannot be read, which was counted.
    failed: bool,
    /// For how many looks it has neither been found at a followed path nor grown.
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
        // While nothing is read, no file counts as quiet.
        let waits = desk.has_to_wait();
        self.files.values_mut().for_each(|open| open.quiet += u32::from(!waits));
        self.find(desk);
        if waits {
            return;
        }
        self.files.values_mut().for_each(|open| open.ripen(desk));
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
        let mut over = BTreeSet::new();
        for (path, meta) in found.files {
            let id = FileId::of(&meta);
            if let Some(open) = self.files.get_mut(&id) {
                (open.path, open.quiet) = (path, 0);
            } else if self.files.len() >= max {
                if over.insert(id) && !self.over.contains(&id) {
                    let name = path.display().to_string();
                    desk.refuse(&name, "file_limit", &name);
                }
            } else {
                let opening = || {
                    let file = regular::open(&path, Links::Followed)?;
                    Open::new(path.clone(), file, is_gzip(&path), desk)
                };
                match blocking(opening) {
                    Ok(open) => drop(self.files.insert(open.id, open)),
                    Err(error) => found.failed.push((path, error)),
                }
            }
        }
        self.over = over;
        self.fail(found.failed, desk);
    }

    /// Counts those that cannot be opened, once for as long as that is so.
    fn fail(&mut self, errors: Vec<(PathBuf, io::Error)>, desk: &Desk) {
        let mut failed = BTreeSet::new();
        for (path, error) in errors {
            // What is not there was renamed or removed just now.
            if error.kind() != io::ErrorKind::NotFound {
                if !self.failed.contains(&path) {
                    desk.refuse_failed(&path, &error);
                }
                failed.insert(path);
            }
        }
        self.failed = failed;
    }

    /// Closes those that are gone, and are not written to any more.
    fn close(&mut self, desk: &mut Desk) {
        self.files.retain(|id, open| {
            // It may still be at its path, if there are more files than are looked at.
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
    /// A file to be read from where reading ended before. Blocks.
    pub(super) fn new(
        path: PathBuf,
        mut file: File,
        is_gzip: bool,
        desk: &mut Desk,
    ) -> io::Result<Self> {
        let id = FileId::of(&file.metadata()?);
        let position = desk.positions.of(id, &file)?;
        let config = &desk.context.config;
        let mut decoder = Decoder::new(&path, config, &position);
        if decoder.wants_header() {
            let most = config.limits.line.0;
            decoder.header(&beginning(&mut file, is_gzip, most)?);
        }
        file.seek(SeekFrom::Start(position.offset))?;
        let packed = is_gzip.then(|| Packed::new(config.unpacked()));
        let traces = match is_gzip {
            true => Traces::default(),
            false => Traces::of(&file, position.offset, SAMPLE)?,
        };
        let known = known_lines(&path, desk).saturating_sub(position.line);
        let (seen, failed, quiet) = (None, false, 0);
        Ok(Self { id, path, file, decoder, packed, known, traces, seen, failed, quiet })
    }

    /// Begins a compressed file that is whole.
    pub(super) fn begin(&mut self) -> Result<(), Flaw> {
        let Self { packed: Some(packed), file, decoder, .. } = self else { return Ok(()) };
        let len = file.metadata().map_err(Flaw::Failed)?.len();
        packed.begin(file, len, decoder.read())
    }

    /// Looks whether a compressed file is still, once at each look, and begins it then.
    fn ripen(&mut self, desk: &Desk) {
        let Self { packed: Some(packed), file, decoder, .. } = self else { return };
        let begun = blocking(|| {
            let len = file.metadata().map_err(Flaw::Failed)?.len();
            packed.ripen(file, len, decoder.read())
        });
        if let Err(flaw) = begun {
            let step = desk.refuse_rest(self, flaw);
            self.fail(&step, desk);
        }
    }

    /// The next bytes.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Flaw> {
        if let Some(packed) = &mut self.packed {
            return packed.read(buffer);
        }
        let len = read(&mut self.file, buffer).map_err(Flaw::Failed)?;
        self.traces.add(buffer.get(..len).unwrap_or_default());
        Ok(len)
    }

    /// Traces of the bytes that were read, as they are on disk.
    fn traces(&self) -> &Traces {
        self.packed.as_ref().map_or(&self.traces, Packed::traces)
    }

    /// How much of a chunk is of lines that were read before.
    pub(super) fn pass_over(&mut self, chunk: &[u8]) -> usize {
        let mut ends = memchr_iter(b'\n', chunk);
        let mut passed = 0;
        while self.known > 0 {
            let Some(end) = ends.next() else {
                self.decoder.pass_over(passed, chunk);
                return chunk.len();
            };
            self.known -= 1;
            passed = end + 1;
        }
        self.decoder.pass_over(passed, chunk.get(..passed).unwrap_or_default());
        passed
    }

    /// Reads what is new in it, as far as its turn allows; answers whether there may be more.
    async fn read_on(&mut self, desk: &mut Desk) -> bool {
        self.restart_if_other(desk);
        if self.packed.as_ref().is_some_and(|packed| !packed.is_open()) {
            return false;
        }
        let before = self.decoder.read();
        let step = desk.read_some(self).await;
        if matches!(step, Step::End) && self.packed.as_ref().is_some_and(Packed::is_whole) {
            desk.end(self);
        }
        if self.decoder.read() > before {
            (self.quiet, self.failed) = (0, false);
        }
        self.fail(&step, desk);
        matches!(step, Step::More)
    }

    /// Counts that it cannot be read, once until it can.
    fn fail(&mut self, step: &Step, desk: &Desk) {
        if let Step::Failed(error) = step
            && !std::mem::replace(&mut self.failed, true)
        {
            desk.refuse_failed(&self.path, error);
        }
    }

    /// Remembers how far it was read, and what was.
    pub(super) fn note(&self, desk: &mut Desk) {
        let ((offset, line), fingerprint) = (self.decoder.place(), self.traces().fingerprint());
        let path = self.path.display().to_string();
        desk.positions.note(self.id, Position { path, offset, line, fingerprint, seen: 0 });
        if desk.context.config.once {
            desk.positions.note_lines(&self.path, line);
        }
    }

    /// A file that was truncated, or rewritten in place, is read from its beginning.
    fn restart_if_other(&mut self, desk: &mut Desk) {
        let Ok(meta) = blocking(|| self.file.metadata()) else { return };
        let now = meta.modified().ok().map(|modified| (meta.len(), modified));
        if now.is_some() && now == self.seen {
            return;
        }
        self.seen = now;
        let change = if meta.len() < self.traces().read() {
            "file_truncated"
        } else if !blocking(|| self.traces().fingerprint().fits(&self.file)).unwrap_or(true) {
            "file_rewritten"
        } else {
            return;
        };
        if self.file.rewind().is_ok() {
            self.decoder.give_up(&desk.context);
            desk.context.book.noticed.add(change, 1);
            desk.positions.forget(self.id);
            let config = &desk.context.config;
            self.traces = Traces::none(SAMPLE);
            self.packed.iter_mut().for_each(Packed::restart);
            self.decoder = Decoder::new(&self.path, config, &Position::default());
            self.known = known_lines(&self.path, desk);
        }
    }
}

/// How many lines of a file of that name were counted before.
fn known_lines(path: &Path, desk: &Desk) -> u64 {
    if desk.context.config.once { desk.positions.lines_of(path) } else { 0 }
}

/// The first bytes of what a file says.
fn beginning(file: &mut File, is_gzip: bool, most: u64) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    file.rewind()?;
    if is_gzip {
        // Even if it is cut off it has a beginning.
        let _ = Unpacked::new(BufReader::new(&mut *file)).take(most).read_to_end(&mut beginning);
    } else {
        file.take(most).read_to_end(&mut beginning)?;
    }
    Ok(beginning)
}

/// How many files beyond the limit are looked at.
const OVER: usize = 4096;
