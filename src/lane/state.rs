//! What belongs to a backend's *name* and outlives changes of its settings.

use super::queue::Queue;
use super::settings::Settings;
use super::spool::Spool;
use super::windows::Windows;
use super::{INBOX, INBOX_BYTES_MAX};
use crate::books::BackendBook;
use crate::log_limit::LogLimit;
use protocols::Batch;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What belongs to a backend's name and outlives changes of its settings.
#[derive(Debug)]
pub struct State {
    pub(super) book: Arc<BackendBook>,
    pub(super) windows: Arc<Windows>,
    pub(super) queue: Arc<Queue>,
    /// How many bytes are on their way to shapers.
    pub(super) inbox_bytes: AtomicUsize,
    /// How many bytes of batches were promised room and are not on their way yet.
    pub(super) reserved: AtomicUsize,
    /// Emptied batches, to be filled again by fronts.
    spare: Mutex<Vec<Batch>>,
    /// The largest payload that the backend can be trusted to take.
    pub(super) learnt: AtomicUsize,
    /// Whether the log's last word was that the backend takes no points.
    pub(super) ill: AtomicBool,
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
    /// Nothing held yet; the windows are shared in so many parts.
    pub fn new(book: Arc<BackendBook>, shards: usize) -> Arc<Self> {
        Arc::new(Self {
            windows: Arc::new(Windows::new(shards, Arc::clone(&book))),
            queue: Queue::new(Arc::clone(&book)),
            inbox_bytes: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            spare: Mutex::default(),
            learnt: AtomicUsize::new(usize::MAX),
            ill: AtomicBool::new(false),
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

    /// An empty batch, one that was given back if possible.
    pub(super) fn spare(&self) -> Batch {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Takes a batch's memory back.
    pub(super) fn give_back(&self, mut batch: Batch) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if batch.bytes() <= SPARE_BYTES && spare.len() < INBOX {
            batch.clear();
            spare.push(batch);
        }
    }
}

/// A batch that grew beyond this is freed instead of filled again.
const SPARE_BYTES: usize = 1 << 20;

/// Often enough to see that a trouble lasts, seldom enough that it fills no disk.
const LOG_EVERY: Duration = Duration::from_secs(60);
