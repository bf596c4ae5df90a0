//! A folder that whole files are taken from, and moved out of when their points are accepted.
//!
//! A file is taken when it has not changed between two looks; one whose name begins with a dot, or
//! ends with `.tmp` or `.part`, never is, so that it can be written there and renamed. It goes to
//! `done`, or to `refused` if no point could be taken of it; beside it goes a list of what was
//! refused in it, if anything was. What cannot be opened, read or moved is tried again at every
//! look, and counted once for every change of it.
//!
//! Others may write to the folder, and do while it is read. What was read is moved only if it is still
//! what is there: a file that was put in its place, or has grown, is taken when it is still. No link is
//! followed, neither to a file nor to a folder that would be written to.

use super::follow::Open;
use super::packed::{Packed, is_gzip, is_packed};
use super::regular::{self, Links};
use super::sheet::Refusals;
use super::{Desk, EVERY, Step, blocking};
use crate::file_id::FileId;
use crate::gzip;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
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
    /// As it was then.
    read: State,
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
            // What was refused in each that is read and cannot be moved is kept in memory.
            if self.taken.len() >= STUCK && !self.is_begun(&path) {
                continue;
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

    fn is_begun(&self, path: &Path) -> bool {
        let is_taking = self.taking.as_ref().is_some_and(|open| open.path == path);
        is_taking || self.taken.contains_key(path)
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
            let taken = blocking(|| Taken::of(&mut open))?;
            self.taken.insert(path.to_owned(), (state, taken));
        }
        if let Some((_, taken)) = self.taken.get(path)
            // What came in its place, or after its end, is taken at a later look.
            && blocking(|| taken.is_at(path))?
        {
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
    fn of(open: &mut Open) -> io::Result<Self> {
        let (id, read) = (open.id, State::of(&open.file.metadata()?));
        let decoder = &mut open.decoder;
        let refusals = std::mem::take(&mut decoder.refusals);
        Ok(Self { id, read, accepted: decoder.accepted, refusals })
    }

    /// Whether it is what stands there, and says no more than it did.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let meta = fs::symlink_metadata(path)?;
        let now = State::of(&meta);
        let is_same = (now.bytes, now.modified) == (self.read.bytes, self.read.modified);
        Ok(FileId::of(&meta) == self.id && is_same)
    }

    fn move_away(&self, folder: &Path, path: &Path) -> io::Result<()> {
        let nothing = self.accepted == 0 && self.refusals.total > 0;
        let folder = folder.join(if nothing { "refused" } else { "done" });
        own(&folder)?;
        let (place, list) = free(&folder, path);
        if self.refusals.total == 0 {
            return fs::rename(path, place);
        }
        let told = tell(&list, &self.list()).and_then(|()| fs::rename(path, place));
        if told.is_err() {
            // It is written again when it can be.
            let _ = fs::remove_file(&list);
        }
        told
    }

    fn list(&self) -> String {
        let Self { accepted, refusals: Refusals { total, listed }, .. } = self;
        let mut text = String::new();
        for what in listed {
            let _ = writeln!(text, "{what}");
        }
        let _ = writeln!(text, "{total} refused, {accepted} accepted");
        text
    }
}

/// Makes a folder, unless it is there; one that is elsewhere by a link is not written to.
fn own(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Err(_) if !fs::symlink_metadata(folder)?.is_dir() => {
            let what = format!("{} is no folder; a link is not followed", folder.display());
            Err(io::Error::new(io::ErrorKind::NotADirectory, what))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a file that is not there yet.
fn tell(at: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(at)?.write_all(text.as_bytes())
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
    let file = regular::open(&path, Links::Refused)?;
    let is_packed = gzip::is_in(&file) || is_gzip(&path);
    let mut open = Open::new(path, file, is_packed, desk)?;
    let begun = open.begin().map_err(|flaw| desk.refuse_rest(&mut open, flaw));
    if let Err(Step::Failed(error)) = begun { Err(error) } else { Ok(open) }
}

/// Names in the folder that nobody has: of the file, and of the list of what was refused in it.
fn free(folder: &Path, path: &Path) -> (PathBuf, PathBuf) {
    let name = path.file_name().unwrap_or_default();
    let numbers = (1_u32..).map(|n| format!(".{n}"));
    let mut places = std::iter::once(String::new()).chain(numbers).map(|number| {
        let list = format!("{number}.refused");
        (folder.join(ending(name, &number)), folder.join(ending(name, &list)))
    });
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
    places.find(|(place, list)| is_free(place) && is_free(list)).unwrap_or_default()
}

/// A name with something at its end, cut before that where the whole would be too long for a name.
fn ending(name: &OsStr, end: &str) -> PathBuf {
    let name = name.as_bytes();
    let room = NAME_BYTES.saturating_sub(end.len()).min(name.len());
    let kept = [name.get(..room).unwrap_or_default(), end.as_bytes()].concat();
    OsStr::from_bytes(&kept).into()
}

/// Of one look.
const LISTED: usize = 100_000;

/// As many as are read and cannot be moved, what was refused in them included.
const STUCK: usize = 1000;

/// The longest name that file systems have in common.
const NAME_BYTES: usize = 255;

#[cfg(test)]
mod tests {
    use super::super::tests::desk;
    use super::*;
    use std::os::unix::fs::symlink;

    const POINT: &str = "{\"name\":\"a\",\"value\":1}\n";

    struct Rig {
        dir: tempfile::TempDir,
        desk: Desk,
        folder: Folder,
        _listener: crate::ingest::Listener,
    }

    fn rig() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let (desk, listener) = desk(&dir.path().join("data"));
        fs::create_dir(dir.path().join("in")).unwrap();
        let folder = Folder::new(dir.path().join("in"));
        Rig { dir, desk, folder, _listener: listener }
    }

    impl Rig {
        fn at(&self, name: &str) -> PathBuf {
            self.dir.path().join("in").join(name)
        }

        /// Takes what is there by now, which was found in this state.
        async fn take(&mut self, name: &str) -> io::Result<()> {
            let path = self.at(name);
            let state = State::of(&fs::symlink_metadata(&path).unwrap());
            let until = Instant::now() + EVERY;
            self.folder.take(&path, state, until, &mut self.desk).await
        }

        fn received(&self) -> u64 {
            self.desk.context.book.received.get()
        }
    }

    #[tokio::test]
    async fn a_link_in_the_place_of_a_file_is_not_read() {
        let mut rig = rig();
        fs::write(rig.dir.path().join("secret"), POINT).unwrap();
        symlink(rig.dir.path().join("secret"), rig.at("a.jsonl")).unwrap();
        assert!(rig.take("a.jsonl").await.is_err());
        assert_eq!(rig.received(), 0);
    }

    /// It was put there by a rename, as whoever writes should do.
    #[tokio::test]
    async fn a_file_that_came_in_the_place_of_one_that_was_read_is_read_too() {
        let mut rig = rig();
        fs::write(rig.at("a.jsonl"), POINT).unwrap();
        let open = open(rig.at("a.jsonl"), &mut rig.desk).unwrap();
        rig.folder.taking = Some(open);
        fs::write(rig.at("new.tmp"), POINT.repeat(2)).unwrap();
        fs::rename(rig.at("new.tmp"), rig.at("a.jsonl")).unwrap();
        rig.take("a.jsonl").await.unwrap();
        assert_eq!((rig.received(), rig.at("a.jsonl").exists()), (1, true));
        rig.take("a.jsonl").await.unwrap();
        assert_eq!((rig.received(), rig.at("done/a.jsonl").exists()), (3, true));
    }

    /// Whoever wrote to it was slow.
    #[tokio::test]
    async fn what_was_appended_after_the_end_is_read_too() {
        let mut rig = rig();
        fs::write(rig.at("a.jsonl"), POINT).unwrap();
        let path = rig.at("a.jsonl");
        let mut open = open(path.clone(), &mut rig.desk).unwrap();
        assert!(read(&mut open, Instant::now() + EVERY, &mut rig.desk).await.unwrap());
        let taken = Taken::of(&mut open).unwrap();
        rig.folder.taken.insert(path.clone(), (State::default(), taken));
        fs::write(&path, POINT.repeat(3)).unwrap();
        rig.take("a.jsonl").await.unwrap();
        assert_eq!((rig.received(), path.exists()), (1, true));
        rig.take("a.jsonl").await.unwrap();
        assert_eq!((rig.received(), rig.at("done/a.jsonl").exists()), (3, true));
    }

    #[tokio::test]
    async fn nothing_is_written_where_a_link_leads() {
        let mut rig = rig();
        let elsewhere = rig.dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, rig.at("done")).unwrap();
        fs::write(rig.at("a.jsonl"), format!("{POINT}no point\n")).unwrap();
        let told = rig.take("a.jsonl").await.unwrap_err().to_string();
        assert!(told.contains("a link is not followed"), "{told}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        fs::remove_file(rig.at("done")).unwrap();
        fs::create_dir(rig.at("done")).unwrap();
        symlink(elsewhere.join("x"), rig.at("done/a.jsonl.refused")).unwrap();
        rig.take("a.jsonl").await.unwrap();
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert!(rig.at("done/a.jsonl.1").exists() && rig.at("done/a.jsonl.1.refused").exists());
        assert_eq!(rig.received(), 1, "it is read once");
    }

    #[tokio::test]
    async fn the_longest_name_is_moved_too_however_often_it_comes() {
        let mut rig = rig();
        let name = "n".repeat(NAME_BYTES);
        for _ in 0..3 {
            fs::write(rig.at(&name), format!("{POINT}no point\n")).unwrap();
            rig.take(&name).await.unwrap();
        }
        assert_eq!(fs::read_dir(rig.at("done")).unwrap().count(), 6);
    }

    /// Or what was refused in each would be kept in memory.
    #[tokio::test]
    async fn no_more_is_read_while_nothing_can_be_moved() {
        let mut rig = rig();
        fs::write(rig.at("done"), "no folder").unwrap();
        fs::write(rig.at("refused"), "no folder").unwrap();
        for n in 0..STUCK + 20 {
            fs::write(rig.at(&format!("{n}.jsonl")), POINT).unwrap();
        }
        while rig.folder.taken.len() < STUCK {
            rig.folder.look(&mut rig.desk).await;
        }
        let before = rig.received();
        assert!(before < STUCK as u64 + 20, "{before}");
        for _ in 0..3 {
            rig.folder.look(&mut rig.desk).await;
        }
        assert_eq!(rig.received(), before);
    }
}
