//! A folder that whole files are taken from, and moved out of when their points are accepted.
//!
//! A file is taken when it has not changed between two looks; one whose name begins with a dot, or
//! ends with `.tmp` or `.part`, never is, so that it can be written there and renamed. It goes to
//! `done`, or to `refused` if no point could be taken of it; beside it goes a list of what was
//! refused in it, if anything was.

use super::follow::{Open, open};
use super::{Desk, Step, blocking};
use crate::ingest::intake::Who;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The folder.
pub(super) struct Folder {
    path: PathBuf,
    /// What was there at the last look: size, and when it was changed.
    seen: BTreeMap<PathBuf, (u64, Option<SystemTime>)>,
}

impl Folder {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, seen: BTreeMap::new() }
    }

    /// Takes the files that are whole.
    pub(super) async fn look(&mut self, desk: &mut Desk) {
        let max = desk.context.config.limits.connections as usize;
        let now = blocking(|| list(&self.path, max));
        let before = std::mem::replace(&mut self.seen, now);
        let still = self.seen.iter().filter(|(path, state)| before.get(*path) == Some(*state));
        for path in still.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            if desk.context.stop.is_cancelled() {
                return;
            }
            if let Err(error) = self.take(path.clone(), desk).await {
                let text = format!("{}: {error}", path.display());
                desk.context.refuse("file_failed", 1, text.as_bytes(), Who(None));
            }
        }
    }

    async fn take(&self, path: PathBuf, desk: &mut Desk) -> io::Result<()> {
        let (file, id) = open(&path)?;
        let mut taken = blocking(|| Open::new(id, path, file, desk))?;
        loop {
            match desk.read(&mut taken.file, &mut taken.decoder).await {
                Step::More => taken.note(desk),
                Step::End => break,
                Step::Halt => return Ok(()),
            }
        }
        taken.decoder.end(&mut desk.intake);
        desk.intake.submit();
        // Should it not be moved, it is not read again.
        taken.note(desk);
        desk.positions.keep(&desk.context);
        blocking(|| self.move_away(&taken))?;
        desk.positions.forget(id);
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

/// A name in the folder that nobody has.
fn free(folder: &Path, path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = folder.join(&*name);
    let others = (1_u32..).map(|n| folder.join(format!("{name}.{n}")));
    std::iter::once(plain).chain(others).find(|place| !place.exists()).unwrap_or_default()
}
