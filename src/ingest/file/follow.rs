//! Files that are followed as they grow, over rotations of any sort.

use super::decode::Decoder;
use super::glob::Glob;
use super::packed::{Flaw, Packed};
use super::positions::{Id, Position, id_of};
use super::{Desk, EVERY, QUIET, Step, blocking, mark, read};
use flate2::read::MultiGzDecoder;
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
    /// If it is compressed.
    pub(super) packed: Option<Packed>,
    /// How many lines there are yet to be passed over, since they were read before.
    pub(super) known: u64,
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
            let paths = globs.iter().flat_map(|glob| {
                let files = glob.files(max + 1).into_iter();
                files.filter(|path| !is_packed(path) || glob.takes_gzip && is_gzip(path))
            });
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
                let gzip = is_gzip(&path);
                match meta.and_then(|_| blocking(|| Open::new(path.clone(), gzip, desk))) {
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
    pub(super) fn new(path: PathBuf, is_gzip: bool, desk: &mut Desk) -> io::Result<Self> {
        let mut file = File::open(&path)?;
        let id = id_of(&file.metadata()?);
        let config = &desk.context.config;
        let position = desk.positions.of(id, &mut file, is_gzip)?;
        let known = if config.once { desk.positions.lines_of(&path) } else { 0 };
        let known = known.saturating_sub(position.line);
        let mut decoder = Decoder::new(&path, config, &position);
        if decoder.wants_header() {
            let most = config.limits.line.0;
            decoder.header(&beginning(&mut file, is_gzip, most)?);
        }
        file.seek(SeekFrom::Start(position.offset))?;
        let packed = is_gzip.then(|| Packed::new(config.unpacked()));
        Ok(Self { id, path, file, decoder, packed, known, quiet: 0 })
    }

    /// Begins a compressed file that is whole.
    pub(super) fn begin(&mut self) -> Result<(), Flaw> {
        let Self { packed: Some(packed), file, decoder, .. } = self else { return Ok(()) };
        let len = file.metadata().map_err(Flaw::Failed)?.len();
        packed.begin(file, len, decoder.read())
    }

    /// Begins a compressed file that looks whole; answers whether there is anything to read.
    fn ripen(&mut self) -> Result<bool, Flaw> {
        let Self { packed: Some(packed), file, decoder, .. } = self else { return Ok(true) };
        let len = file.metadata().map_err(Flaw::Failed)?.len();
        packed.ripen(file, len, decoder.read())?;
        Ok(packed.is_open())
    }

    /// The next bytes.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Flaw> {
        match &mut self.packed {
            Some(packed) => packed.read(buffer),
            None => read(&mut self.file, buffer).map_err(Flaw::Failed),
        }
    }

    /// How much of a chunk is of lines that were read before.
    pub(super) fn pass_over(&mut self, chunk: &[u8]) -> usize {
        let mut ends = memchr::memchr_iter(b'\n', chunk);
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

    /// Reads what is new in it, as far as its turn allows.
    async fn read_on(&mut self, desk: &mut Desk) -> Step {
        self.restart_if_cut(desk);
        let before = self.decoder.read();
        match blocking(|| self.ripen()) {
            Ok(true) => {}
            Ok(false) => return Step::End,
            Err(flaw) => {
                desk.refuse_rest(self, &flaw);
                return Step::End;
            }
        }
        let step = desk.read_some(self).await;
        if step == Step::End && self.packed.as_ref().is_some_and(Packed::is_whole) {
            desk.end(self);
        }
        if self.decoder.read() > before {
            self.quiet = 0;
        }
        step
    }

    pub(super) fn note(&mut self, desk: &mut Desk) {
        let (offset, line) = self.decoder.place();
        let packed = self.packed.is_some();
        blocking(|| {
            desk.positions.note(self.id, &self.path, &mut self.file, packed, offset, line);
        });
        if desk.context.config.once {
            desk.positions.note_lines(&self.path, line);
        }
    }

    /// A file that is shorter than what was read of it says something new.
    fn restart_if_cut(&mut self, desk: &mut Desk) {
        // Of a compressed one nothing can be said by its length.
        if self.packed.is_some() {
            return;
        }
        let len = blocking(|| self.file.metadata()).map(|meta| meta.len());
        if len.is_ok_and(|len| len < self.decoder.read()) && self.file.rewind().is_ok() {
            self.decoder.give_up(&desk.context);
            desk.context.book.noticed.add("file_truncated", 1);
            desk.positions.forget(self.id);
            self.decoder = Decoder::new(&self.path, &desk.context.config, &Position::default());
            let once = desk.context.config.once;
            self.known = if once { desk.positions.lines_of(&self.path) } else { 0 };
        }
    }
}

/// The first bytes of what a file says.
fn beginning(file: &mut File, is_gzip: bool, most: u64) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    file.rewind()?;
    if is_gzip {
        // One that is cut off has a beginning, too.
        let _ = MultiGzDecoder::new(&mut *file).take(most).read_to_end(&mut beginning);
    } else {
        file.take(most).read_to_end(&mut beginning)?;
    }
    Ok(beginning)
}

/// What a rotation has compressed was read before, unless somebody asks for it.
pub(super) fn is_packed(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("gz" | "bz2" | "xz" | "zst"))
}

/// The one sort of them that can be unpacked here.
pub(super) fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "gz")
}
