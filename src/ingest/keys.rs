//! Keys of requests that may come again, and what was answered to each.
//!
//! ```text
//! claim ─► at work already? ─► wait for its answer
//!       └► on the shelf?    ─► that answer
//!       └► neither          ─► Claim ─► kept ─► record: on disk, then told to all who wait
//!                                        └► stay_open: its points are on their way
//! ```
//!
//! A key is claimed by one request at a time, in memory ([`claims`]). What was answered lies on
//! the [`shelf`]: a [file](file) of SQLite, `<data_dir>/keys.db`, and beside it what the disk does
//! not take just now ([`unwritten`]). One blocking thread works there on whatever has come together
//! ([`desk`]), so that requests share transactions. An answer is sent when its key is on disk: who
//! gets no answer because of a kill asks again.
//!
//! A kill between the points and their key counts them twice, when the request is repeated: at
//! least once. Bounds: `window` and `max_keys` of the listener on disk, one key a connection at
//! work and [`OPEN_UNITS_MAX`] that stay open, [`unwritten::UNITS_MAX`] in memory. Metrics: the
//! gauge of keys held, and noticed `key_limit`, `key_disk_failed` and `keys_damaged`.

mod claims;
mod desk;
mod file;
mod shelf;
mod unwritten;

use super::busy::Busy;
use super::config::{Config, Idempotency};
use crate::books::ListenerBook;
use crate::clock::{Clock, nanos};
use claims::{Claims, Entered, Place};
use desk::{Desk, Keep};
use protocols::Answer;
use protocols::UnixNanos;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// The keys of one gateway.
#[derive(Debug)]
pub struct Keys {
    claims: Arc<Claims>,
    desk: Arc<Desk>,
    clock: Clock,
    /// A permit for each unit of claims that stay open.
    open: Arc<Semaphore>,
}

/// Asked before anything in the data directory is touched; the error says why it may not be.
pub type Admit = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Where the keys are kept.
pub fn keys_file(data_dir: &Path) -> PathBuf {
    data_dir.join("keys.db")
}

impl Keys {
    /// Those in a data directory; nothing is read or made yet.
    pub fn new(data_dir: &Path, admit: Admit, clock: Clock) -> Arc<Self> {
        let desk = Desk::new(file::File::new(keys_file(data_dir), admit), clock);
        let open = Arc::new(Semaphore::new(OPEN_UNITS_MAX));
        Arc::new(Self { claims: Arc::default(), desk, clock, open })
    }

    /// Waits until the disk has all that was to be remembered, and closes the file. Not for ever.
    pub async fn close(&self) {
        self.desk.close().await;
    }

    /// Those of one listener.
    pub(super) fn of(
        self: &Arc<Self>,
        listener: Arc<str>,
        config: &Config,
        book: Arc<ListenerBook>,
    ) -> Keyring {
        let Idempotency { window, max_keys: units } = config.idempotency();
        let owner = Arc::new(Owner { listener, window: window.0, units, book });
        if config.protocol.remembers() {
            self.desk.meet(&owner);
        }
        Keyring { keys: Arc::clone(self), owner }
    }
}

/// The keys of one listener.
#[derive(Clone, Debug)]
pub(super) struct Keyring {
    keys: Arc<Keys>,
    owner: Arc<Owner>,
}

/// What came of asking for a key.
pub(super) enum Claimed {
    /// Nobody has used it yet.
    Mine(Claim),
    /// A request with this key was answered before.
    Answered(Arc<Remembered>),
    /// A request with this key was at work the whole time.
    Busy,
}

/// How a request waits for another one with its key: until when, as a task that is not at work
/// meanwhile, and not to begin anything once the listener has stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience<'a> {
    pub(super) deadline: Instant,
    pub(super) busy: &'a Busy,
    pub(super) stop: &'a CancellationToken,
}

impl Keyring {
    /// Claims a key for a request; while another request has it, waits for its answer.
    pub(super) async fn claim(
        &self,
        key: &str,
        fingerprint: Fingerprint,
        patience: Patience<'_>,
    ) -> Claimed {
        let Patience { deadline, busy, stop } = patience;
        let name = Name { listener: Arc::clone(&self.owner.listener), key: key.into() };
        loop {
            match self.keys.claims.enter(&name) {
                Entered::First(place) => return self.look_up(name, fingerprint, place).await,
                Entered::Behind(mut told) => {
                    let pause = busy.pause();
                    let told = timeout_at(deadline, told.wait_for(Option::is_some)).await;
                    drop(pause);
                    match told.map(|told| told.ok().and_then(|told| told.clone())) {
                        Ok(Some(remembered)) => return Claimed::Answered(remembered),
                        // It left nothing behind; perhaps it is our turn now, but a stop that saw
                        // nobody at work waits for nobody.
                        Ok(None) if !stop.is_cancelled() => {}
                        Ok(None) | Err(_) => return Claimed::Busy,
                    }
                }
            }
        }
    }

    async fn look_up(&self, name: Name, fingerprint: Fingerprint, place: Place) -> Claimed {
        match self.keys.desk.find(&name, &self.owner).await {
            Some(remembered) => {
                place.tell(&remembered);
                Claimed::Answered(remembered)
            }
            None => {
                let ring = self.clone();
                let at_work = Some((name, place));
                Claimed::Mine(Claim { ring, fingerprint, at_work, kept: None, open: None })
            }
        }
    }
}

/// A key that a request has for itself. Dropped, it is free again, unless something of the request
/// was kept: then its answer is remembered even though nobody may be there any more to hear it.
pub(super) struct Claim {
    ring: Keyring,
    fingerprint: Fingerprint,
    at_work: Option<(Name, Place)>,
    kept: Option<Answer>,
    /// Its share of what may stay open.
    open: Option<OwnedSemaphorePermit>,
}

impl Claim {
    /// Something of the request was kept; as it stands, this is its answer.
    pub(super) fn kept(&mut self, answer: &Answer) {
        self.kept = Some(answer.clone());
    }

    /// If something was kept, this is what is so should nobody ever know better.
    pub(super) fn amend(&mut self, answer: Answer) {
        self.kept = self.kept.take().map(|_| answer);
    }

    /// Whether the key may stay at work though its request was answered: there are not too many.
    pub(super) fn stay_open(&mut self) -> bool {
        let Some(answer) = &self.kept else { return false };
        let units = u32::try_from(units(answer)).unwrap_or(u32::MAX);
        self.open = Arc::clone(&self.ring.keys.open).try_acquire_many_owned(units).ok();
        self.open.is_some()
    }

    /// The request is answered so. If something was kept, waits until that is on disk, or the disk
    /// has failed.
    pub(super) async fn record(mut self, answer: Answer) {
        self.amend(answer);
        if let Some(done) = self.hand_over() {
            // It is dropped only when the gateway ends.
            let _ = done.await;
        }
    }

    fn hand_over(&mut self) -> Option<oneshot::Receiver<()>> {
        let ((name, place), kept) = (self.at_work.take()?, self.kept.take()?);
        let Keyring { keys, owner } = &self.ring;
        let expires = UnixNanos(keys.clock.now().0.saturating_add(nanos(owner.window)));
        let remembered = Remembered { fingerprint: self.fingerprint, answer: kept };
        let (owner, remembered) = (Arc::clone(owner), Arc::new(remembered));
        let entry = Entry { name, owner, remembered, expires };
        let (done, recorded) = oneshot::channel();
        keys.desk.keep(Keep { entry, place, done });
        Some(recorded)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// A key; each listener has its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    listener: Arc<str>,
    key: Arc<str>,
}

/// What tells one request from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(pub(super) [u8; 32]);

/// What is known of a request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) fingerprint: Fingerprint,
    pub(super) answer: Answer,
}

/// A listener, as far as keys go.
#[derive(Debug)]
struct Owner {
    listener: Arc<str>,
    /// How long a key is remembered.
    window: Duration,
    /// How many are, each counted by its [`units`](Entry::units).
    units: u64,
    book: Arc<ListenerBook>,
}

/// A key and all that is kept with it.
#[derive(Clone, Debug)]
struct Entry {
    name: Name,
    owner: Arc<Owner>,
    remembered: Arc<Remembered>,
    expires: UnixNanos,
}

impl Entry {
    /// What it counts for: 1, and 1 more for each whole KiB of a long answer.
    fn units(&self) -> u64 {
        units(&self.remembered.answer)
    }
}

fn units(answer: &Answer) -> u64 {
    1 + answer.body.as_ref().map_or(0, String::len) as u64 / UNIT_BYTES
}

/// Hardly an answer is as long, but for those that quote much of what they refuse.
const UNIT_BYTES: u64 = 1024;
/// How many keys may be at work after their request was answered, in the whole gateway.
const OPEN_UNITS_MAX: usize = 10_000;

#[cfg(test)]
mod tests;
