//! What belongs to a backend's *name* and outlives changes of its settings.

use super::letters::Letters;
use super::parcel::Load;
use super::queue::{Queue, Spool};
use super::settings::Settings;
use super::windows::{Closed, Error, Order, Remembered, Snapshot, Windows};
use super::{INBOX, INBOX_BYTES_MAX};
use crate::books::BackendBook;
use crate::log_limit::LogLimit;
use protocols::UnixNanos;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// What belongs to a backend's name and outlives changes of its settings.
#[derive(Debug)]
pub struct State {
    pub(super) book: Arc<BackendBook>,
    pub(super) windows: Arc<Windows>,
    pub(super) queue: Arc<Queue>,
    pub(super) letters: Arc<Letters>,
    /// How many bytes are on their way to shapers.
    pub(super) inbox_bytes: AtomicUsize,
    /// How many bytes of batches were promised room and are not on their way yet.
    pub(super) reserved: AtomicUsize,
    /// Emptied loads, to be filled again by fronts.
    spare: Mutex<Vec<Load>>,
    /// The largest payload that the backend can be trusted to take.
    pub(super) learnt: AtomicUsize,
    /// Whether the log's last word was that the backend takes no points.
    pub(super) ill: AtomicBool,
    /// Where windows are remembered, if anywhere.
    snapshot: OnceLock<Snapshot>,
    /// Whether windows go on here, not where the snapshot says.
    live: AtomicBool,
    log: LogLimit,
    owner: Mutex<Owner>,
}

/// The youngest lane on a state.
#[derive(Debug, Default)]
struct Owner {
    lane: u64,
    handed_over: CancellationToken,
}

impl State {
    /// Nothing held yet, and no dead letters kept; the windows are shared in so many parts.
    pub fn new(book: Arc<BackendBook>, shards: usize) -> Arc<Self> {
        let letters = Letters::none(Arc::clone(&book));
        Self::with_letters(book, shards, letters)
    }

    /// The same, with a place for dead letters.
    pub fn with_letters(book: Arc<BackendBook>, shards: usize, letters: Arc<Letters>) -> Arc<Self> {
        Arc::new(Self {
            windows: Arc::new(Windows::new(shards, Arc::clone(&book))),
            queue: Queue::new(Arc::clone(&book)),
            letters,
            inbox_bytes: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            spare: Mutex::default(),
            learnt: AtomicUsize::new(usize::MAX),
            ill: AtomicBool::new(false),
            snapshot: OnceLock::new(),
            live: AtomicBool::new(false),
            log: LogLimit::default(),
            owner: Mutex::default(),
            book,
        })
    }

    /// Takes up the points that an earlier run has left on disk, and lets the queue use the disk
    /// if the settings say so. Blocks.
    ///
    /// # Errors
    ///
    /// A sentence for people: the file belongs to another kind, or cannot be opened.
    pub fn open_spool(&self, settings: &Settings, data_dir: &Path) -> Result<(), String> {
        let spool = Spool::new(data_dir, &settings.name, settings.kind, settings.durability);
        if settings.spool.is_none() && !spool.file().exists() {
            return Ok(());
        }
        self.queue.open(spool)
    }

    /// Whether its spool knows of all that has left the queue.
    pub fn is_at_rest(&self) -> bool {
        self.queue.is_at_rest()
    }

    /// Goes on with the windows that an earlier process, or an earlier lane that has ended, has
    /// left in its snapshot, and remembers them there from now on. Blocks.
    pub fn open_windows(&self, settings: &Settings, data_dir: &Path, now: UnixNanos) {
        if !settings.aggregate || self.live.swap(true, Relaxed) {
            return;
        }
        let snapshot = self.snapshot.get_or_init(|| Snapshot::new(data_dir, &settings.name));
        let missing = snapshot.is_missing();
        if missing {
            let backend = &settings.name;
            self.windows.shun(now, settings.flush);
            self.book.noticed.add("snapshot_damaged", 1);
            tracing::warn!(%backend, "the last snapshot of the windows was not finished; the open one begins anew");
        }
        match snapshot.read() {
            Ok(None) => {}
            Ok(Some(memory)) => self.take_up(memory.without_part(missing), settings, now),
            Err(error) => self.set_aside(snapshot, &error, settings, now),
        }
    }

    fn take_up(&self, memory: Remembered, settings: &Settings, now: UnixNanos) {
        self.windows.take_up(memory, now, settings.layout, settings.max_series);
        let (backend, series) = (&settings.name, self.book.series.get());
        tracing::info!(%backend, series, "windows go on where they were left");
    }

    /// Rows of the open window may have been written, and there is nothing to add them to.
    fn set_aside(&self, snapshot: &Snapshot, error: &Error, settings: &Settings, now: UnixNanos) {
        self.windows.shun(now, settings.flush);
        self.book.noticed.add("snapshot_damaged", 1);
        let (backend, file) = (&settings.name, snapshot.path().display());
        match snapshot.set_aside() {
            Ok(aside) => {
                let set_aside = aside.display();
                tracing::error!(%backend, %error, %set_aside, "the snapshot of the windows cannot be used; gauges begin anew");
            }
            Err(stays) => {
                tracing::error!(%backend, %error, %file, %stays, "the snapshot of the windows cannot be used, nor set aside; gauges begin anew");
            }
        }
    }

    /// Remembers what outlives the windows, in case the process is killed. Waits for no disk, and
    /// does not queue up behind one that hangs.
    pub(super) fn remember(self: &Arc<Self>, settings: &Arc<Settings>) {
        let Some(snapshot) = self.snapshot.get().filter(|snapshot| !snapshot.is_busy()) else {
            return;
        };
        if !self.windows.has_memory() && !snapshot.path().exists() {
            return;
        }
        let (state, settings, order) = (Arc::clone(self), Arc::clone(settings), snapshot.order());
        tokio::task::spawn_blocking(move || {
            let bytes = state.windows.remembered(None, settings.layout);
            if let Err(problem) = state.write(bytes, &order) {
                state.forgot(&settings.name, &problem);
            }
        });
    }

    /// Remembers the windows at their end, with the open one as far as it was written. Answers
    /// whether a later process will know; waits for the disk, but not for ever.
    pub(super) async fn keep(self: &Arc<Self>, settings: &Settings, part: Option<&Closed>) -> bool {
        let Some(order) = self.snapshot.get().map(Snapshot::order) else { return false };
        let bytes = self.windows.remembered(part, settings.layout);
        let (state, placed) = (Arc::clone(self), Arc::clone(&order));
        let write = tokio::task::spawn_blocking(move || state.write(bytes, &placed));
        let written = match timeout(KEEP_WITHIN, write).await {
            Ok(Ok(written)) => written,
            Ok(Err(stopped)) => Err(stopped.to_string()),
            Err(_) if order.give_up() => Ok(true),
            Err(_) => Err(format!("the disk has not taken it within {KEEP_WITHIN:?}")),
        };
        if let Err(problem) = &written {
            self.forgot(&settings.name, problem);
        }
        let kept = written == Ok(true);
        self.live.store(!kept, Relaxed);
        kept
    }

    fn write(&self, bytes: Option<Vec<u8>>, order: &Order) -> Result<bool, String> {
        let Some((snapshot, bytes)) = self.snapshot.get().zip(bytes) else { return Ok(false) };
        snapshot.write(&bytes, order).map_err(|error| error.to_string())
    }

    /// Lets nobody go on from an earlier snapshot, whose window has rows with more in them now.
    pub(super) fn spoil(&self) {
        // A file that is not there does no harm; of one that cannot be emptied the log has told.
        let _ = self.snapshot.get().map(Snapshot::spoil);
    }

    /// Says that a snapshot is to come which knows of the rows that are written now. Answers
    /// whether a later process will learn that.
    pub(super) async fn announce(self: &Arc<Self>, settings: &Settings) -> bool {
        let state = Arc::clone(self);
        let announced =
            tokio::task::spawn_blocking(move || state.snapshot.get().map(Snapshot::announce));
        match timeout(ANNOUNCE_WITHIN, announced).await {
            Ok(Ok(Some(Ok(())))) => return true,
            Ok(Ok(Some(Err(error)))) => self.forgot(&settings.name, &error.to_string()),
            Ok(_) => {}
            Err(_) => self.forgot(&settings.name, "the disk hangs"),
        }
        false
    }

    fn forgot(&self, backend: &str, problem: &str) {
        self.book.noticed.add("snapshot_failed", 1);
        if self.may_log("snapshot_failed") {
            let file = self.snapshot.get().map(|snapshot| snapshot.path().display().to_string());
            let file = file.unwrap_or_default();
            tracing::warn!(%backend, %file, "the windows cannot be remembered, a restart will begin anew: {problem}");
        }
    }

    /// Makes a new lane the owner of windows and queue; the one before lets go of them.
    pub(super) fn adopt(&self) -> (u64, CancellationToken) {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        owner.handed_over.cancel();
        *owner = Owner { lane: owner.lane + 1, handed_over: CancellationToken::new() };
        self.learnt.store(usize::MAX, Relaxed);
        (owner.lane, owner.handed_over.clone())
    }

    /// Whether a line about this trouble is due; if so, the next one is in a minute.
    pub(super) fn may_log(&self, trouble: &'static str) -> bool {
        self.log.pass(trouble, LOG_EVERY).is_some()
    }

    /// Whether a batch may go to the shaper; one alone always may.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let waiting = self.inbox_bytes.load(Relaxed);
        waiting == 0 || waiting.saturating_add(bytes) <= INBOX_BYTES_MAX
    }

    /// An empty load, one that was given back if possible.
    pub(super) fn spare(&self) -> Load {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Takes a load's memory back.
    pub(super) fn give_back(&self, mut load: Load) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if load.bytes() <= SPARE_BYTES && spare.len() < INBOX {
            load.clear();
            spare.push(load);
        }
    }
}

/// Nothing waits for it but the end, which has its own deadline; a disk that hangs is told of.
const KEEP_WITHIN: Duration = Duration::from_secs(30);
/// Far longer than a disk that works needs to make a file, far shorter than a stop's grace.
const ANNOUNCE_WITHIN: Duration = Duration::from_secs(2);

/// A load that grew beyond this is freed instead of filled again.
const SPARE_BYTES: usize = 1 << 20;

/// Often enough to see that a trouble lasts, seldom enough that it fills no disk.
const LOG_EVERY: Duration = Duration::from_secs(60);
