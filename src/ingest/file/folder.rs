//! A folder that whole files are taken from, and moved out of when their points are accepted.
//!
//! A file is taken when it has not changed between two looks; one whose name begins with a dot, or
//! ends with `.tmp` or `.part`, never is, so that it can be written there and renamed. It goes to
//! `done`, or to `refused` if no point could be taken of it; beside it goes a list of what was
//! refused in it, if anything was. What cannot be opened, read or moved is tried again at every
//! look, and counted once for every change of it.

use super::follow::Open;
use super::packed::{Packed, is_gzip, is_packed};
use super::sheet::Refusals;
use super::{Desk, EVERY, Step, blocking};
use crate::file_id::FileId;
use crate::gzip;
use crate::whole_file::beside;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use tokio::time::Instant;

/// The folder.
pub(super) struct Folder {
    path: PathBuf,
    /// What was there at the last look.
    seen: BTreeMap<PathBuf, State>,
    /// One that was too long for one look.
    taking: Option<Open>,
    /// Those that could not be moved.
    taken: BTreeMap<PathBuf, (State, Taken)>,
    /// What has failed since it was as it is, and was counted.
    failed: BTreeMap<PathBuf, State>,
}

/// What changes when a file does, its rights and its name included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What is known of a file that was read to its end.
struct Taken {
    id: FileId,
    accepted: u64,
    refusals: Refusals,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        let (seen, taken, failed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { path, seen, taking: None, taken, failed }
    }

    /// Takes the files that are whole.
    pub(super) async fn look(&mut self, desk: &mut Desk) {
        let still = self.still(desk);
        let until = Instant::now() + EVERY;
        for (path, state) in still {
            if desk.has_to_wait() || Instant::now() >= until {
                return;
            }
            match self.take(&path, state, until, desk).await {
                Ok(()) => drop(self.failed.remove(&path)),
                // Somebody else has taken it.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => {}
                Err(error) => self.fail(&path, state, &error, desk),
            }
        }
    }

    /// The files that are as they were at the last look.
    fn still(&mut self, desk: &Desk) -> Vec<(PathBuf, State)> {
        // Those that are stuck take nobody's place.
        let stuck = self.failed.len() + self.taken.len();
        let max = (desk.context.config.limits.connections as usize).saturating_add(stuck);
        let now = match blocking(|| list(&self.path, max.min(LISTED))) {
            Ok(now) => now,
            Err(error) => {
                self.fail(&self.path.clone(), State::default(), &error, desk);
                return Vec::new();
            }
        };
        self.failed.retain(|path, state| now.get(path) == Some(state));
        self.taken.retain(|path, (state, _)| now.get(path) == Some(state));
        let before = std::mem::replace(&mut self.seen, now);
        let still = self.seen.iter().filter(|(path, state)| before.get(*path) == Some(*state));
        let mut still: Vec<_> = still.map(|(path, state)| (path.clone(), *state)).collect();
        // What was begun comes first.
        if let Some(open) = &self.taking {
            still.retain(|(path, _)| *path != open.path);
            let state = self.seen.get(&open.path).copied().unwrap_or_default();
            still.insert(0, (open.path.clone(), state));
        }
        still
    }

    /// Counts what has failed, once while it is as it is.
    fn fail(&mut self, path: &Path, state: State, error: &io::Error, desk: &Desk) {
        if self.failed.insert(path.to_owned(), state) != Some(state) {
            desk.refuse_failed(path, error);
        }
    }

    /// Takes a file, unless it is too long for now: then it is gone on with at the next look.
    async fn take(
        &mut self,
        path: &Path,
        state: State,
        until: Instant,
        desk: &mut Desk,
    ) -> io::Result<()> {
        if !self.taken.contains_key(path) {
            let mut open = match self.taking.take() {
                Some(open) => open,
                None => blocking(|| open(path.to_owned(), desk))?,
            };
            if !read(&mut open, until, desk).await? {
                self.taking = Some(open);
                return Ok(());
            }
            self.taken.insert(path.to_owned(), (state, Taken::of(&mut open)));
        }
        if let Some((_, taken)) = self.taken.get(path) {
            blocking(|| taken.move_away(&self.path, path))?;
            desk.positions.forget(taken.id);
        }
        self.taken.remove(path);
        Ok(())
    }
}

/// Answers whether the file is read to its end.
async fn read(open: &mut Open, until: Instant, desk: &mut Desk) -> io::Result<bool> {
    if is_packed(&open.path) && open.packed.is_none() {
        let name = open.decoder.name();
        desk.refuse(name, "file_failed", &format!("{name} is compressed"));
        let what = "it is compressed, and not by gzip; unpack it first";
        open.decoder.note_refusal(what.to_owned());
        return Ok(true);
    }
    loop {
        match desk.read_some(open).await {
            Step::More if Instant::now() < until => {}
            Step::More | Step::Wait => return Ok(false),
            Step::End => break,
            Step::Failed(error) => return Err(error),
        }
    }
    // Should it not be moved, it is not read again.
    if open.packed.as_ref().is_none_or(Packed::is_whole) {
        desk.end(open);
    } else {
        open.decoder.give_up(&desk.context);
        open.note(desk);
    }
    desk.positions.keep_at_times(&desk.context);
    Ok(true)
}

impl Taken {
    fn of(open: &mut Open) -> Self {
        let (id, decoder) = (open.id, &mut open.decoder);
        let refusals = std::mem::take(&mut decoder.refusals);
        Self { id, accepted: decoder.accepted, refusals }
    }

    fn move_away(&self, folder: &Path, path: &Path) -> io::Result<()> {
        let Self { accepted, refusals: Refusals { total, listed }, .. } = self;
        let nothing = *accepted == 0 && *total > 0;
        let folder = folder.join(if nothing { "refused" } else { "done" });
        fs::create_dir_all(&folder)?;
        let place = free(&folder, path);
        if *total > 0 {
            let mut text = String::new();
            for what in listed {
                let _ = writeln!(text, "{what}");
            }
            let _ = writeln!(text, "{total} refused, {accepted} accepted");
            fs::write(beside(&place, ".refused"), text)?;
        }
        fs::rename(path, place)
    }
}

fn list(folder: &Path, max: usize) -> io::Result<BTreeMap<PathBuf, State>> {
    let files = fs::read_dir(folder)?.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        let unfinished = name.starts_with(b".")
            || [&b".tmp"[..], b".part"].iter().any(|ending| name.ends_with(ending));
        let meta = (!unfinished).then(|| entry.metadata().ok())??;
        meta.is_file().then(|| (entry.path(), State::of(&meta)))
    });
    Ok(files.take(max).collect())
}

impl State {
    fn of(meta: &fs::Metadata) -> Self {
        Self {
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// What is compressed by gzip, whatever it is called, is unpacked.
fn open(path: PathBuf, desk: &mut Desk) -> io::Result<Open> {
    let is_packed = gzip::is_in(&fs::File::open(&path)?) || is_gzip(&path);
    let mut open = Open::new(path, is_packed, desk)?;
    let begun = open.begin().map_err(|flaw| desk.refuse_rest(&mut open, flaw));
    if let Err(Step::Failed(error)) = begun { Err(error) } else { Ok(open) }
}

/// A name in the folder that nobody has.
fn free(folder: &Path, path: &Path) -> PathBuf {
    let plain = folder.join(path.file_name().unwrap_or_default());
    let others = (1_u32..).map(|n| beside(&plain, &format!(".{n}")));
    let mut places = std::iter::once(plain.clone()).chain(others);
    places.find(|place| place.symlink_metadata().is_err()).unwrap_or_default()
}

/// Of one look.
const LISTED: usize = 100_000;
