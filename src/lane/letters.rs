//! Dead letters: what a backend refused for good, kept on disk for a person to look at.
//!
//! Each backend's *name* has a file of its own, and in memory this: [`Letters`]. A shipper
//! [puts](Letters::put) a refusal in and goes on; one blocking thread writes what has come
//! together. Points in a letter are held, `dead_letters`, from the moment they are put in until
//! they are replayed or purged, or the oldest leave because there are more than
//! `dead_letters.max_size`.
//!
//! Nothing here may hold up or stop deliveries. So a refusal is dropped, and counted with its own
//! reason, when the backend keeps none (`dead_letters = false`), when [`TRAY_BYTES_MAX`] are still
//! to be written, and when the disk does not take it. A file that SQLite cannot read is set aside
//! as `<name>.db.damaged-N`, which is noticed as `dead_letters_damaged`; what it held is dropped
//! with that reason, as far as it was known.
//!
//! What is asked of the file ([`office`]) blocks, and writes first what still waits in memory.

mod file;
mod letter;
mod office;

pub use letter::{Heading, Letter, Place, Refused, Selection};
pub use office::{DeadLetters, Page, Sum, list_files, names as letter_names};

use crate::books::BackendBook;
use crate::clock::Clock;
use file::{File, Tally};
use letter::Draft;
use protocols::UnixNanos;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// The dead letters of one backend.
#[derive(Debug)]
pub struct Letters {
    name: String,
    book: Arc<BackendBook>,
    clock: Clock,
    /// The last id that any backend's letter was given.
    ids: Arc<AtomicI64>,
    tray: Mutex<Tray>,
    /// Whether there is a place for a file at all.
    keeps: bool,
    /// Locked before the tray where both are. `None` keeps nothing.
    file: Mutex<Option<File>>,
    /// Told when nothing is left to write.
    idle: watch::Sender<()>,
    /// Whether the log's last word was that the disk does not work.
    ill: AtomicBool,
    me: Weak<Self>,
}

/// What is still to be written.
#[derive(Debug, Default)]
struct Tray {
    drafts: Vec<Draft>,
    bytes: usize,
    busy: bool,
    max_size: Option<usize>,
}

impl Letters {
    /// Letters that nobody keeps: refusals are counted and dropped.
    pub(super) fn none(book: Arc<BackendBook>) -> Arc<Self> {
        Self::new(String::new(), book, Clock::System, Arc::default(), None)
    }

    fn new(
        name: String,
        book: Arc<BackendBook>,
        clock: Clock,
        ids: Arc<AtomicI64>,
        file: Option<File>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            name,
            book,
            clock,
            ids,
            tray: Mutex::default(),
            keeps: file.is_some(),
            file: Mutex::new(file),
            idle: watch::Sender::new(()),
            ill: AtomicBool::new(false),
            me: Weak::clone(me),
        })
    }

    /// Keeps so many bytes from now on, or none.
    pub fn keep_at_most(&self, max_size: Option<usize>) {
        self.tray().max_size = max_size.filter(|_| self.keeps);
    }

    /// Counts a refusal of a backend of that kind, and keeps it if that can be. Never blocks.
    pub fn put(&self, kind: &'static str, refused: Refused) {
        let (reason, points) = (refused.reason, u64::from(refused.points));
        self.book.refused.add(reason, points);
        let mut draft = Draft::new(kind, refused, self.clock.now());
        let mut tray = self.tray();
        if !tray.has_room(draft.size()) {
            return self.book.dropped.add(reason, points);
        }
        draft.id = self.next_id(draft.refused_at);
        self.book.dead_letters.add(points);
        tray.bytes += draft.size();
        tray.drafts.push(draft);
        if !std::mem::replace(&mut tray.busy, true) {
            drop(tray);
            self.employ();
        }
    }

    /// Sets a blocking thread to work.
    fn employ(&self) {
        match (Handle::try_current(), self.me.upgrade()) {
            (Ok(runtime), Some(me)) => drop(runtime.spawn_blocking(move || me.write_all())),
            _ => self.write_all(),
        }
    }

    fn write_all(&self) {
        loop {
            let mut file = self.file();
            self.write(&mut file);
            let mut tray = self.tray();
            if tray.drafts.is_empty() {
                tray.busy = false;
                break;
            }
        }
        self.idle.send_modify(|()| ());
    }

    /// Writes what has come together.
    fn write(&self, file: &mut Option<File>) {
        let mut tray = self.tray();
        let (drafts, max_size) = (std::mem::take(&mut tray.drafts), tray.max_size);
        tray.bytes = 0;
        drop(tray);
        if drafts.is_empty() {
            return;
        }
        // It may have been switched off a moment ago.
        let (Some(file), Some(max_size)) = (file, max_size) else { return self.give_up(&drafts) };
        match self.add(file, &drafts, max_size) {
            Ok(crowded_out) => {
                self.ill.store(false, Relaxed);
                self.lose("dead_letters_full", crowded_out.points);
            }
            Err(error) => {
                self.complain(file, &error);
                self.give_up(&drafts);
            }
        }
    }

    /// Stores them, in a new file if the present one is damaged; answers what had to go for them.
    fn add(
        &self,
        file: &mut File,
        drafts: &[Draft],
        max_size: usize,
    ) -> Result<Tally, file::Error> {
        let attempt = |file: &mut File| {
            self.take_up(file)?;
            file.add(drafts, max_size as u64)
        };
        match attempt(file) {
            Err(error) if error.is_damage() => {
                self.set_aside(file, &error)?;
                attempt(file)
            }
            outcome => outcome,
        }
    }

    /// Takes what an earlier run has left into the books, once.
    fn take_up(&self, file: &mut File) -> Result<(), file::Error> {
        let Some(found) = file.take_up()? else { return Ok(()) };
        self.book.recovered.add(found.points);
        self.book.dead_letters.add(found.points);
        self.ids.fetch_max(found.last_id, Relaxed);
        if found.letters > 0 {
            let (backend, letters, points) = (&self.name, found.letters, found.points);
            tracing::info!(backend, letters, points, "found dead letters of an earlier run");
        }
        Ok(())
    }

    fn set_aside(&self, file: &mut File, error: &file::Error) -> Result<(), file::Error> {
        let known = file.tally();
        let aside = file.set_aside()?;
        self.book.noticed.add("dead_letters_damaged", 1);
        self.lose("dead_letters_damaged", known.points);
        let (file, aside) = (file.path().display(), aside.display());
        tracing::error!(%error, %file, set_aside = %aside, points = known.points, "the dead letters are damaged; the file was set aside and a new one is begun");
        Ok(())
    }

    /// Points leave, as dropped.
    fn lose(&self, reason: &'static str, points: u64) {
        self.book.dead_letters.sub(points);
        self.book.dropped.add(reason, points);
    }

    fn give_up(&self, drafts: &[Draft]) {
        for draft in drafts {
            self.lose(draft.refused.reason, u64::from(draft.refused.points));
        }
    }

    fn complain(&self, file: &File, error: &file::Error) {
        if !self.ill.swap(true, Relaxed) {
            let file = file.path().display();
            tracing::error!(%error, %file, "refused points cannot be kept as dead letters, and are dropped");
        }
    }

    /// The microsecond of a refusal, or the next that no letter has: so ids tell the order of all
    /// letters, and an id that is gone is never given again.
    fn next_id(&self, refused: UnixNanos) -> i64 {
        let next = |last: i64| (refused.0 / 1000).max(last + 1);
        let last = self.ids.fetch_update(Relaxed, Relaxed, |last| Some(next(last)));
        next(last.unwrap_or_default())
    }

    /// Waits until all is written and the file is whole without its log, but not for ever: a disk
    /// that hangs must not keep the process. Answers how many points were dropped, `shutdown`.
    pub(super) async fn close(&self) -> u64 {
        let mut idle = self.idle.subscribe();
        let me = self.me.upgrade();
        let settled = async {
            while self.tray().busy && idle.changed().await.is_ok() {}
            let close = move || me.and_then(|me| me.file().as_mut().map(File::close));
            let _ = tokio::task::spawn_blocking(close).await;
        };
        // What was not written by then is counted below.
        let _ = tokio::time::timeout(CLOSE_WITHIN, settled).await;
        let left = std::mem::take(&mut self.tray().drafts);
        let points = left.iter().map(|draft| u64::from(draft.refused.points)).sum();
        self.lose("shutdown", points);
        points
    }

    fn tray(&self) -> MutexGuard<'_, Tray> {
        self.tray.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tray {
    /// Whether a letter of this size may come in; one alone may be larger than the tray.
    fn has_room(&self, size: usize) -> bool {
        self.max_size.is_some_and(|max| size <= max)
            && (self.drafts.is_empty() || self.bytes + size <= TRAY_BYTES_MAX)
    }
}

/// Where the dead letters of a backend are.
pub fn letters_file(data_dir: &Path, name: &str) -> std::path::PathBuf {
    letters_dir(data_dir).join(format!("{name}.db"))
}

/// Where those of all backends are.
fn letters_dir(data_dir: &Path) -> std::path::PathBuf {
    data_dir.join("dead-letters")
}

/// How much may wait to be written.
const TRAY_BYTES_MAX: usize = 8 << 20;
/// How long a stop waits for the disk.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
