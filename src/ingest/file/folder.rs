//! A folder that whole files are taken from, and moved out of when their points are accepted.
//!
//! A file is taken when it has not changed between two looks; one whose name begins with a dot, or
//! ends with `.tmp` or `.part`, never is, so that it can be written there and renamed. It goes to
//! `done`, or to `refused` if no point could be taken of it; beside it goes a list of what was
//! refused in it, if anything was.

use super::follow::{Open, is_gzip, is_packed};
use super::packed::Packed;
use super::{Desk, EVERY, Step, blocking, mark};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::time::Instant;

/// The folder.
pub(super) struct Folder {
    path: PathBuf,
    /// What was there at the last look: size, and when it was changed.
    seen: BTreeMap<PathBuf, (u64, Option<SystemTime>)>,
    /// One that was too long for one look.
    taking: Option<Open>,
}

impl Folder {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, seen: BTreeMap::new(), taking: None }
    }

    /// Takes the files that are whole.
    pub(super) async fn look(&mut self, desk: &mut Desk) {
        let max = desk.context.config.limits.connections as usize;
        let now = blocking(|| list(&self.path, max));
        let before = std::mem::replace(&mut self.seen, now);
        let still = self.seen.iter().filter(|(path, state)| before.get(*path) == Some(*state));
        let mut still: Vec<_> = still.map(|(path, _)| path.clone()).collect();
        // What was begun comes first.
        if let Some(open) = &self.taking {
            still.retain(|path| *path != open.path);
            still.insert(0, open.path.clone());
        }
        let until = Instant::now() + EVERY;
        for path in still {
            if desk.context.stop.is_cancelled() || Instant::now() >= until {
                return;
            }
            if let Err(error) = self.take(path.clone(), until, desk).await {
                let text = format!("{}: {error}", path.display());
                desk.context.refuse_about(mark(&path), "file_failed", text.as_bytes());
            }
        }
    }

    /// Takes a file, unless it is too long for now: then it is gone on with at the next look.
    async fn take(&mut self, path: PathBuf, until: Instant, desk: &mut Desk) -> io::Result<()> {
        let mut taken = match self.taking.take() {
            Some(taken) => taken,
            None => blocking(|| open(path, desk))?,
        };
        if is_packed(&taken.path) && taken.packed.is_none() {
            let text = format!("{} is compressed", taken.path.display());
            desk.context.refuse_about(mark(&taken.path), "file_failed", text.as_bytes());
            let what = "it is compressed, and not by gzip; unpack it first";
            taken.decoder.refused_whole(what.to_owned());
            return blocking(|| self.move_away(&taken));
        }
        loop {
            match desk.read_some(&mut taken).await {
                Step::More if Instant::now() >= until => {
                    self.taking = Some(taken);
                    return Ok(());
                }
                Step::More => {}
                Step::End => break,
                Step::Halt => return Ok(()),
            }
        }
        // Should it not be moved, it is not read again.
        if taken.packed.as_ref().is_none_or(Packed::is_whole) {
            desk.end(&mut taken);
        } else {
            taken.decoder.give_up(&desk.context);
            taken.note(desk);
        }
        desk.positions.keep(&desk.context);
        blocking(|| self.move_away(&taken))?;
        desk.positions.forget(taken.id);
        Ok(())
    }

    fn move_away(&self, taken: &Open) -> io::Result<()> {
        let decoder = &taken.decoder;
        let nothing = decoder.accepted == 0 && decoder.refusals > 0;
        let folder = self.path.join(if nothing { "refused" } else { "done" });
        fs::create_dir_all(&folder)?;
        let place = free(&folder, &taken.path);
        if decoder.refusals > 0 {
            let mut text = String::new();
            for what in &decoder.refused {
                let _ = writeln!(text, "{what}");
            }
            let _ = writeln!(text, "{} refused, {} accepted", decoder.refusals, decoder.accepted);
            let name = place.file_name().unwrap_or_default().to_string_lossy();
            fs::write(place.with_file_name(format!("{name}.refused")), text)?;
        }
        fs::rename(&taken.path, place)
    }
}

fn list(folder: &Path, max: usize) -> BTreeMap<PathBuf, (u64, Option<SystemTime>)> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let files = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let whole = !name.starts_with('.') && !name.ends_with(".tmp") && !name.ends_with(".part");
        whole.then(|| (entry.path(), (meta.len(), meta.modified().ok())))
    });
    files.take(max).collect()
}

/// What is compressed by gzip, whatever it is called, is unpacked.
fn open(path: PathBuf, desk: &mut Desk) -> io::Result<Open> {
    let mut head = [0; 2];
    let read = fs::File::open(&path)?.read_exact_at(&mut head, 0);
    let is_packed = read.is_ok() && head == GZIP || is_gzip(&path);
    let mut open = Open::new(path, is_packed, desk)?;
    if let Err(flaw) = open.begin() {
        desk.refuse_rest(&mut open, &flaw);
    }
    Ok(open)
}

/// A name in the folder that nobody has.
fn free(folder: &Path, path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = folder.join(&*name);
    let others = (1_u32..).map(|n| folder.join(format!("{name}.{n}")));
    std::iter::once(plain).chain(others).find(|place| !place.exists()).unwrap_or_default()
}

/// How such a file begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];
