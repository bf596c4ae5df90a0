//! One lane per backend, which nobody else can slow down: windows, shaper, queue, shipper.
//!
//! ```text
//! Router ─► Front ─┬─► windows (aggregated in place) ─┐ edge
//!                  └─► inbox (flat batches) ──────────┴─► shaper ─► queue ─► shipper ─► backend
//! ```
//!
//! A [`Lane`] is what the routing table holds. When its last clone is gone, the lane drains:
//! the shaper writes the last window and ends, the shippers empty the queue and end. There is
//! no other stop signal but [`Running::abandon`], for a deadline.
//!
//! What must survive a change of settings (open windows, gauges, the queue, the book) is the
//! [`State`] of the backend's *name*. A lane that is spawned on a state takes windows and queue
//! over from the one before.
//!
//! Modules in reading order, each with what is its own alone in the folder beside it:
//!
//! - what is configured, and what lasts: [`config`], [`settings`], [`state`];
//! - taking in: [`front`], [`series`], [`table`], [`aggregate`] ([`trail`], [`samples`],
//!   [`sketch`]), and the [`windows`] with what of them outlives a process; past them, a
//!   [`parcel`];
//! - giving out: [`layout`], [`timers`], [`shaper`], [`distinct`] ([`newest`]), [`names`];
//! - delivering: the [`queue`] with its line, its spool and its trials, [`shipper`], [`retry`], and
//!   what comes back from there, [`letters`];
//! - telling senders: [`terms`], [`reserve`], [`receipt`], [`riders`].

mod aggregate;
mod config;
mod distinct;
mod front;
mod layout;
mod letters;
mod names;
mod newest;
mod parcel;
mod prefetch;
mod queue;
mod receipt;
mod reserve;
mod retry;
mod riders;
mod samples;
mod series;
mod settings;
mod shaper;
mod shipper;
mod sketch;
mod state;
mod table;
mod terms;
#[cfg(test)]
mod tests;
mod timers;
mod trail;
mod windows;

pub use config::{
    Batch, Config, Durability, Expire, ExpireAfter, Layout, OnDisk, Retry, SpoolConfig, WhenFull,
};
pub use front::{Front, Reading};
pub use layout::{folds, rows_of};
pub use letters::{
    DeadLetters, Heading, Letter, Letters, Page, Place, Refused, Selection, Sum, letter_names,
    letters_file, list_files,
};
pub use queue::{spool_file, spool_names};
pub use receipt::{Fate, Level, Loss, Receipt, Slip};
pub use reserve::{Full, Reservation};
pub use series::{series_hash, table_of};
pub use settings::Settings;
pub use state::State;
pub use terms::Terms;
pub use windows::{Place as WindowPlace, window_end};

use crate::backend::Ship;
use crate::books::BackendBook;
use crate::clock::{Clock, nanos};
use crate::waybill::Sender;
use parcel::Parcel;
use protocols::influxdb::Stencil;
use protocols::statsd::Verbatim;
use protocols::{Encode, UnixNanos};
use shaper::Shaper;
use shipper::Shipper;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A handle to a lane, held by routing tables. The lane ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Lane(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    settings: Arc<Settings>,
    state: Arc<State>,
    inbox: mpsc::Sender<Parcel>,
    /// Which lines need no shaping, if any.
    verbatim: Option<Verbatim>,
    /// How readings of known series are written, if they can be.
    stencil: Option<Stencil>,
}

impl Lane {
    /// The backend's name.
    pub fn name(&self) -> &str {
        &self.0.settings.name
    }

    /// The backend's book.
    pub fn book(&self) -> &Arc<BackendBook> {
        &self.0.state.book
    }

    /// Whether clients are to be told to come back later: `when_full` is `refuse` and the
    /// queue is full (but for the room that what is on its way may need).
    pub fn refusing(&self) -> bool {
        let Handle { settings, state, .. } = &*self.0;
        settings.when_full == WhenFull::Refuse && state.queue.is_nearly_full()
    }

    /// Whether the queue is full, but for the room that what is on its way may need.
    pub fn is_nearly_full(&self) -> bool {
        self.0.state.queue.is_nearly_full()
    }

    /// Whether its shaper is behind: half of the inbox is full, by batches or by bytes. A shaper
    /// waits for no backend, so this says that processors are short, never that a peer is slow.
    pub fn behind(&self) -> bool {
        let Handle { state, inbox, .. } = &*self.0;
        let full = inbox.capacity() < INBOX / 2 || !state.has_room(INBOX_BYTES_MAX / 2);
        full && !inbox.is_closed()
    }

    /// Whether windows aggregate statsd kinds.
    pub fn aggregates(&self) -> bool {
        self.0.settings.aggregate
    }

    /// Which lines of statsd it takes as they are, if any; see [`Front::relay`].
    pub fn verbatim(&self) -> Option<&Verbatim> {
        self.0.verbatim.as_ref()
    }

    /// Whether it takes readings of known series as lines; see [`Front::write`].
    pub fn writes(&self) -> bool {
        self.0.stencil.is_some()
    }

    /// Keeps room for a batch of so many bytes, if its senders are to be told when there is none;
    /// `Err` then says so.
    ///
    /// # Errors
    ///
    /// There is no room, now.
    pub fn reserve(&self, bytes: usize) -> Result<Option<Reservation>, Full> {
        if self.0.settings.when_full != WhenFull::Refuse {
            return Ok(None);
        }
        Reservation::of(&self.0, bytes).map(Some).ok_or(Full)
    }

    /// A receiving task's hold on the lane for one batch, received at that time.
    pub fn front<'a>(
        &'a self,
        worker: usize,
        received: UnixNanos,
        sender: impl Into<Sender<'a>>,
        terms: Terms<'a>,
    ) -> Front<'a> {
        Front::new(&self.0, worker, received, sender.into(), terms)
    }
}

impl Handle {
    /// Says now and then that there are too many series, and what one of them begins with.
    #[cold]
    fn warn_of_series(&self, name: &str) {
        if !self.state.may_log("series_limit") {
            return;
        }
        let (backend, max_series) = (&self.settings.name, self.settings.max_series);
        let prefix: String = name.chars().take(NAME_SAMPLE).collect();
        tracing::warn!(%backend, max_series, %prefix, "more series than max_series; new ones are dropped");
    }
}

/// Starts a lane with one shipper.
pub fn spawn(
    settings: Settings,
    state: Arc<State>,
    encode: Box<dyn Encode>,
    ship: Box<dyn Ship>,
    clock: Clock,
) -> (Lane, Running) {
    spawn_many(settings, state, encode, vec![ship], clock)
}

/// Starts a lane with several shippers, whose attempts run side by side and out of order.
pub fn spawn_many(
    settings: Settings,
    state: Arc<State>,
    encode: Box<dyn Encode>,
    ships: Vec<Box<dyn Ship>>,
    clock: Clock,
) -> (Lane, Running) {
    let settings = Arc::new(settings);
    let (lane, handed_over) = state.adopt();
    state.queue.limit(settings.limits());
    state.letters.keep_at_most(settings.dead_letters);
    state.windows.align(clock.now(), nanos(settings.flush));
    state.windows.keep_exact(settings.timer_samples);
    let (inbox, parcels) = mpsc::channel(INBOX);
    // A point that is stamped says more than its line.
    let verbatim = encode.verbatim().filter(|_| !settings.aggregate && !settings.stamp);
    let stencil = encode.stencil();
    let (shaped, is_on_disk) = (CancellationToken::new(), settings.is_on_disk());
    let shaping = Shaping::new(&state, shaped.clone());
    let shaper = Shaper::new(
        Arc::clone(&settings),
        Arc::clone(&state),
        encode,
        parcels,
        clock,
        handed_over.clone(),
    );
    let mut tasks = vec![tokio::spawn(async move {
        shaper.run().await;
        drop(shaping);
    })];
    tasks.extend(ships.into_iter().map(|ship| {
        let (settings, state) = (Arc::clone(&settings), Arc::clone(&state));
        let handed_over = handed_over.clone();
        let shipper = Shipper { settings, state, ship, lane, handed_over };
        tokio::spawn(shipper.run())
    }));
    let running = Running { tasks, shaped, is_on_disk, handed_over, state: Arc::clone(&state) };
    (Lane(Arc::new(Handle { settings, state, inbox, verbatim, stencil })), running)
}

/// Keeps shippers from ending as long as a shaper may still push, and tells when it has ended.
struct Shaping {
    state: Arc<State>,
    over: CancellationToken,
}

impl Shaping {
    fn new(state: &Arc<State>, over: CancellationToken) -> Self {
        state.queue.join();
        Self { state: Arc::clone(state), over }
    }
}

impl Drop for Shaping {
    fn drop(&mut self) {
        self.state.queue.leave();
        self.over.cancel();
    }
}

/// The tasks of a lane, for whoever has to see them end.
#[derive(Debug)]
pub struct Running {
    tasks: Vec<JoinHandle<()>>,
    /// Cancelled when the shaper has ended.
    shaped: CancellationToken,
    /// Whether what is delivered goes to disk here.
    is_on_disk: bool,
    handed_over: CancellationToken,
    state: Arc<State>,
}

impl Running {
    /// Leaves windows and queue to a successor on the same [`State`]: this lane writes what is
    /// in its inbox and ends, without closing its window; its shippers end after the present
    /// attempt at the latest. Spawning the successor does the same.
    pub fn hand_over(&self) {
        self.handed_over.cancel();
    }

    /// Waits until the lane has ended, which it does when all its handles are gone and, unless
    /// it was handed over, the queue is empty. May be cancelled and called again.
    pub async fn drained(&mut self) {
        while let Some(task) = self.tasks.first_mut() {
            if let Err(error) = task.await
                && error.is_panic()
            {
                tracing::error!("a task of a lane died: {error}");
            }
            self.tasks.remove(0);
        }
    }

    /// Whether it has ended, and its disk too knows of all that it delivered: whoever opens the
    /// spool anew must not find that there. A successor sees to the disk that it has taken over.
    pub fn has_ended(&self) -> bool {
        let is_at_rest = || self.handed_over.is_cancelled() || self.state.is_at_rest();
        self.tasks.iter().all(JoinHandle::is_finished) && is_at_rest()
    }

    /// Waits until the disk has learnt of all that was delivered or refused, which it does a
    /// moment later; answers how many refused points it did not take in time.
    pub async fn settled(&self) -> u64 {
        if self.handed_over.is_cancelled() {
            return 0;
        }
        self.state.queue.close().await;
        self.state.letters.close().await
    }

    /// From now on what waits goes to disk, if it may, while it is being delivered: a stop may be cut
    /// short. What a successor has taken over is left to it.
    pub fn secure(&self) {
        if !self.handed_over.is_cancelled() {
            self.state.queue.secure();
        }
    }

    /// Stops at once. What is still held goes to the spool, or is counted as dropped, `shutdown`;
    /// answers how many points were dropped. What a successor has taken over is left alone.
    pub async fn abandon(&mut self) -> u64 {
        let before = self.lost();
        // Whether or not it comes to an end.
        let _ = tokio::time::timeout(ON_DISK_WITHIN, self.on_its_way_to_disk()).await;
        self.tasks.iter().for_each(JoinHandle::abort);
        self.drained().await;
        if !self.handed_over.is_cancelled() {
            drop(self.state.windows.end(UnixNanos(0), &Expire::default()));
            self.state.queue.close().await;
            self.state.letters.close().await;
            self.state.book.dropped.add("shutdown", self.state.queue.abandon());
        }
        self.lost() - before
    }

    /// Waits for what goes to disk by itself, and so for nobody but processor and disk.
    async fn on_its_way_to_disk(&mut self) {
        if self.is_on_disk {
            self.drained().await;
        } else if self.state.queue.has_disk() {
            // What is not in line yet has no place there.
            self.shaped.cancelled().await;
        }
    }

    fn lost(&self) -> u64 {
        let counts = self.state.book.dropped.counts();
        counts.iter().find(|(reason, _)| *reason == "shutdown").map_or(0, |(_, count)| *count)
    }
}

/// How many batches may be on their way to a shaper.
const INBOX: usize = 64;
/// How many bytes these may have: a body whose rows repeat many tags unfolds to as much.
const INBOX_BYTES_MAX: usize = 256 << 20;
/// How long a stop that has no more time waits for what is on its way to disk: what a shaper has in its
/// inbox and its windows is written in less.
const ON_DISK_WITHIN: Duration = Duration::from_secs(5);
/// How much of a name goes into a log line.
const NAME_SAMPLE: usize = 32;
