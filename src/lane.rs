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
//! Modules in reading order: [`settings`] and [`series`]; taking in, [`front`], [`windows`],
//! [`table`], [`roster`], [`aggregate`]; giving out, [`edges`], [`layout`], [`timers`],
//! [`shaper`], [`distinct`]; delivering, [`queue`] with its [`line`] and [`spool`], [`shipper`],
//! [`retry`], [`quiet`].

mod aggregate;
mod distinct;
mod edges;
mod front;
mod layout;
mod line;
mod names;
mod queue;
mod quiet;
mod retry;
mod roster;
mod series;
mod settings;
mod shaper;
mod shipper;
mod spool;
mod table;
#[cfg(test)]
mod tests;
mod timers;
mod windows;

pub use edges::window_end;
pub use front::Front;
pub use layout::{folds, rows_of};
pub use series::series_hash;
pub use settings::Settings;
pub use spool::file as spool_file;

use crate::backend::Ship;
use crate::books::BackendBook;
use crate::clock::{Clock, nanos};
use crate::units::{Size, Span};
use protocols::{Encode, UnixNanos};
use queue::Queue;
use quiet::Quiet;
use serde::Deserialize;
use shaper::{Parcel, Shaper};
use shipper::Shipper;
use spool::Spool;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windows::Windows;

/// The keys that every backend shares, whatever its kind.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Whether windows aggregate statsd kinds; by default as the kind of backend needs.
    pub aggregate: Option<bool>,
    /// The aggregation window; without aggregation, the longest a point waits for its batch.
    pub flush: Option<Span>,
    /// The percentiles of timers, in percent.
    pub percentiles: Option<Vec<f64>>,
    /// What a window's rows look like.
    pub layout: Layout,
    /// When idle series are forgotten.
    pub expire: Expire,
    /// How many series the windows hold at the most.
    pub max_series: Option<u64>,
    /// When a payload is full.
    pub batch: Batch,
    /// How many bytes the queue holds in memory.
    pub memory: Option<Size>,
    /// How much of it is kept on disk when memory is full, and at a stop.
    pub spool: Option<OnDisk>,
    /// What the disk part survives.
    pub durability: Durability,
    /// What a full queue does.
    pub when_full: WhenFull,
    /// How long one attempt may take.
    pub timeout: Option<Span>,
    /// How attempts are spaced.
    pub retry: Retry,
    /// How many attempts run side by side; 1 keeps order.
    pub concurrency: Option<u32>,
}

/// What a window's rows look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One row a series, statistics as its fields, samples weighed by their rate.
    #[default]
    Fields,
    /// The names and values of statsd/statsd 0.9, its unweighted timers included.
    Statsd,
}

/// When idle series are forgotten; zero sends a series only in windows in which it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expire {
    /// Idle counters are sent as 0 until then.
    pub counter: ExpireAfter,
    /// Idle timers are sent with count 0 until then.
    pub timer: ExpireAfter,
    /// Idle sets are sent as 0 until then.
    pub set: ExpireAfter,
    /// Idle gauges repeat their value until then.
    pub gauge: ExpireAfter,
}

/// A time, or `"never"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireAfter {
    /// After this long without a point.
    After(Span),
    /// Not at all.
    Never,
}

/// When a payload is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// At this many points.
    pub points: Option<u32>,
    /// At this many bytes.
    pub bytes: Option<Size>,
}

/// What a full queue does with the next payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// The oldest that is not in flight makes room.
    #[default]
    DropOldest,
    /// The new one is dropped.
    DropNewest,
    /// HTTP answers 503 with `Retry-After` before it takes anything.
    Refuse,
}

/// The disk part of a queue: `false`, or a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisk {
    /// Memory only.
    Off,
    /// This much.
    On(SpoolConfig),
}

/// How much of a queue is kept on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpoolConfig {
    /// How many bytes the queue holds on disk.
    pub max_size: Option<Size>,
}

/// What the disk part of a queue survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The death of the process.
    #[default]
    Process,
    /// That of the machine, too: every commit waits until the disk has it.
    Power,
}

impl Durability {
    const fn pragma(self) -> &'static str {
        match self {
            Self::Process => "NORMAL",
            Self::Power => "FULL",
        }
    }
}

/// How attempts are spaced: full jitter between zero and a delay that doubles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// The first delay.
    pub first: Option<Span>,
    /// The longest delay; caps `Retry-After` too.
    pub max: Option<Span>,
}

impl Default for Expire {
    fn default() -> Self {
        let at_once = ExpireAfter::After(Span::secs(0));
        Self { counter: at_once, timer: at_once, set: at_once, gauge: ExpireAfter::Never }
    }
}

impl<'de> Deserialize<'de> for ExpireAfter {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "never" {
            return Ok(Self::Never);
        }
        Span::parse(&text).map(Self::After).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for OnDisk {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = OnDisk;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("`false`, or a table such as { max_size = \"1GiB\" }")
            }

            fn visit_bool<E: serde::de::Error>(self, on: bool) -> Result<OnDisk, E> {
                Ok(if on { OnDisk::On(SpoolConfig::default()) } else { OnDisk::Off })
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<OnDisk, A::Error> {
                let table = serde::de::value::MapAccessDeserializer::new(map);
                SpoolConfig::deserialize(table).map(OnDisk::On)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A handle to a lane, held by routing tables. The lane ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Lane(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    settings: Arc<Settings>,
    state: Arc<State>,
    inbox: mpsc::Sender<Parcel>,
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

    /// Whether its shaper is behind: half of the inbox is full. A shaper waits for no backend,
    /// so this says that processors are short, never that a peer is slow.
    pub fn behind(&self) -> bool {
        self.0.inbox.capacity() < INBOX / 2 && !self.0.inbox.is_closed()
    }

    /// Whether windows aggregate statsd kinds.
    pub fn aggregates(&self) -> bool {
        self.0.settings.aggregate
    }

    /// A receiving task's hold on the lane for one batch, received at that time.
    pub fn front(&self, worker: usize, received: UnixNanos) -> Front<'_> {
        Front::new(&self.0, worker, received)
    }
}

impl Handle {
    /// Says once a minute that there are too many series, and what one of them begins with.
    #[cold]
    fn warn_of_series(&self, name: &str, now: UnixNanos) {
        if !self.state.quiet.may_say("series_limit", now) {
            return;
        }
        let (backend, max_series) = (&self.settings.name, self.settings.max_series);
        let prefix: String = name.chars().take(NAME_SAMPLE).collect();
        tracing::warn!(%backend, max_series, %prefix, "more series than max_series; new ones are dropped");
    }
}

/// What belongs to a backend's name and outlives changes of its settings.
#[derive(Debug)]
pub struct State {
    book: Arc<BackendBook>,
    windows: Arc<Windows>,
    queue: Arc<Queue>,
    /// Emptied batches, to be filled again by fronts.
    spare: Mutex<Vec<protocols::Batch>>,
    /// The largest payload that the backend can be trusted to take.
    learnt: AtomicUsize,
    /// Whether the log's last word was that the backend takes no points.
    ill: AtomicBool,
    quiet: Quiet,
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
            spare: Mutex::default(),
            learnt: AtomicUsize::new(usize::MAX),
            ill: AtomicBool::new(false),
            quiet: Quiet::default(),
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
    fn adopt(&self) -> (u64, CancellationToken) {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        owner.handed_over.cancel();
        *owner = Owner { lane: owner.lane + 1, handed_over: CancellationToken::new() };
        self.learnt.store(usize::MAX, std::sync::atomic::Ordering::Relaxed);
        (owner.lane, owner.handed_over.clone())
    }

    fn spare(&self) -> protocols::Batch {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_back(&self, mut batch: protocols::Batch) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if batch.bytes() <= SPARE_BYTES && spare.len() < INBOX {
            batch.clear();
            spare.push(batch);
        }
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
    state.windows.align(clock.now(), nanos(settings.flush));
    let (inbox, parcels) = mpsc::channel(INBOX);
    let shaping = Shaping::new(&state);
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
        let shipper = Shipper { settings, state, ship, clock, lane, handed_over };
        tokio::spawn(shipper.run())
    }));
    let running = Running { tasks, handed_over, state: Arc::clone(&state) };
    (Lane(Arc::new(Handle { settings, state, inbox })), running)
}

/// Keeps shippers from ending as long as a shaper may still push.
struct Shaping(Arc<State>);

impl Shaping {
    fn new(state: &Arc<State>) -> Self {
        state.queue.join();
        Self(Arc::clone(state))
    }
}

impl Drop for Shaping {
    fn drop(&mut self) {
        self.0.queue.leave();
    }
}

/// The tasks of a lane, for whoever has to see them end.
#[derive(Debug)]
pub struct Running {
    tasks: Vec<JoinHandle<()>>,
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

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
    }

    /// Waits until the disk has learnt of all that was delivered, which it does a moment later.
    pub async fn settled(&self) {
        if !self.handed_over.is_cancelled() {
            self.state.queue.close().await;
        }
    }

    /// Stops at once. What is still held goes to the spool, or is counted as dropped, `shutdown`;
    /// answers how many points were dropped. What a successor has taken over is left alone.
    pub async fn abandon(&mut self) -> u64 {
        let before = self.lost();
        self.tasks.iter().for_each(JoinHandle::abort);
        self.drained().await;
        if !self.handed_over.is_cancelled() {
            drop(self.state.windows.end(UnixNanos(0), &Expire::default()));
            self.state.queue.close().await;
            self.state.book.dropped.add("shutdown", self.state.queue.abandon());
        }
        self.lost() - before
    }

    fn lost(&self) -> u64 {
        let counts = self.state.book.dropped.counts();
        counts.iter().find(|(reason, _)| *reason == "shutdown").map_or(0, |(_, count)| *count)
    }
}

/// How many batches may be on their way to a shaper.
const INBOX: usize = 64;
/// A batch that grew beyond this is freed instead of filled again.
const SPARE_BYTES: usize = 1 << 20;
/// How much of a name goes into a log line.
const NAME_SAMPLE: usize = 32;
