//! The books: what came in at each listener and what became of it at each backend.
//!
//! Plain relaxed atomics that the workers add to, usually once a batch. The metrics page and
//! `/v1/ledger` are two views of them, so the two never disagree. Books belong to a *name*:
//! a reload keeps them, and nothing ever resets them.
//!
//! Two equations hold at every quiet moment, and tests check them:
//!
//! ```text
//! listener:  received = routed + unmatched + denied
//! backend:   handed + recovered - folded_points + folded_rows = delivered + dropped + replayed + held
//!            held = inbox + windows + open + queued + dead_letters
//! ```
//!
//! What a backend refused for good is *held* as a dead letter, where that is configured. From there
//! it leaves as `replayed` (and is then `handed` to lanes anew) or is dropped: `purged`,
//! `dead_letters_full`, `dead_letters_damaged`. A refusal that cannot be kept is dropped with its
//! own reason. `refused` counts all refusals, kept or not, and is in no equation.
//!
//! What listeners refuse may be told as points ([`crate::errors`]). They come in at a listener of their
//! own, whose book is one like the others, and what they add up to is `rejected` and `denied` together.

mod tallies;

pub use tallies::{Marks, Offender, Tallies, Tally};

use protocols::UnixNanos;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Takes `n` away.
    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Relaxed);
    }

    /// Replaces the value.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One counter for each reason; a reason is a metric label and never changes its spelling.
#[derive(Debug, Default)]
pub struct Reasons(RwLock<BTreeMap<&'static str, Counter>>);

impl Reasons {
    /// Adds `n` to a reason.
    pub fn add(&self, reason: &'static str, n: u64) {
        if n == 0 {
            return;
        }
        if let Some(counter) = read(&self.0).get(reason) {
            return counter.add(n);
        }
        let mut counts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        counts.entry(reason).or_default().add(n);
    }

    /// Each reason met so far and its count, in alphabetical order.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        read(&self.0).iter().map(|(reason, counter)| (*reason, counter.get())).collect()
    }

    /// The sum over all reasons.
    pub fn total(&self) -> u64 {
        self.counts().iter().map(|(_, count)| count).sum()
    }
}

/// What came in at one listener.
#[derive(Debug, Default)]
pub struct ListenerBook {
    /// Points that were parsed.
    pub received: Counter,
    /// Bytes read from sockets (decompressed, for HTTP bodies).
    pub received_bytes: Counter,
    /// Points that at least one route took.
    pub routed: Counter,
    /// Points that no route took.
    pub unmatched: Counter,
    /// Points that the gate refused, by reason.
    pub denied: Reasons,
    /// Lines, items, bodies and connections refused, by reason.
    pub rejected: Reasons,
    /// Things noticed that cost nothing (`unknown_field`), by kind.
    pub noticed: Reasons,
    /// Requests that waited for their points before they were answered.
    pub acks: Counter,
    /// How long they did, together, in microseconds.
    pub ack_micros: Counter,
    /// Datagrams that the kernel threw away because the socket's buffer was full.
    pub kernel_dropped: Counter,
    /// Connections open now.
    pub connections: Gauge,
    /// Keys of requests that are remembered.
    pub keys: Gauge,
    /// When the certificate that it shows ends, in seconds since 1970; 0 without one.
    pub certificate_expires: Gauge,
    /// What `rejected` and `denied` count, by who has sent it.
    pub tallies: Tallies,
}

impl ListenerBook {
    /// Counts something refused that `offender` has sent.
    pub fn reject(&self, reason: &'static str, count: u64, offender: &Offender) {
        self.rejected.add(reason, count);
        if self.tallies.is_asked() {
            self.tallies.of(offender).add(reason, count);
        }
    }
}

/// What became of the points handed to one backend.
#[derive(Debug, Default)]
pub struct BackendBook {
    /// Points that routes handed over.
    pub handed: Counter,
    /// Points of an earlier run that were found in the spool or among the dead letters.
    pub recovered: Counter,
    /// Points the backend took.
    pub delivered: Counter,
    /// Attempts that had to be repeated.
    pub retries: Counter,
    /// Points given up, by reason.
    pub dropped: Reasons,
    /// Points that the backend refused for good, kept or not, by reason.
    pub refused: Reasons,
    /// Dead letters' points that went through the routing table again.
    pub replayed: Counter,
    /// Parts of delivered points that could not be said (a text column, say), by reason.
    pub lost_parts: Reasons,
    /// Things done to points on the way (`time_moved`, `name_collision`), by kind.
    pub noticed: Reasons,
    /// Points that closed windows had folded.
    pub folded_points: Counter,
    /// Rows that closed windows made of them.
    pub folded_rows: Counter,
    /// Points on their way to the lane's shaper.
    pub inbox: Gauge,
    /// Points inside open windows.
    pub windows: Gauge,
    /// Points encoded in the payload that is being filled.
    pub open: Gauge,
    /// Points in the queue, in memory or on disk, the payload in flight among them.
    pub queued: Gauge,
    /// Of these, points on disk.
    pub spooled: Gauge,
    /// Points in dead letters.
    pub dead_letters: Gauge,
    /// Bytes in the queue.
    pub queued_bytes: Gauge,
    /// Birth of the oldest queued payload, nanoseconds since 1970; 0 when there is none.
    pub oldest: Gauge,
    /// Series held by the windows.
    pub series: Gauge,
    /// When the certificate that it shows ends, in seconds since 1970; 0 without one.
    pub certificate_expires: Gauge,
    /// Why the last attempt at the backend has to be repeated, in its own words.
    illness: Mutex<Option<String>>,
    endpoints: Mutex<BTreeMap<String, Weak<EndpointBook>>>,
}

/// What is known of one of a backend's endpoints, for as long as it is one.
#[derive(Debug, Default)]
pub struct EndpointBook {
    /// 1 while the last attempt there failed.
    pub ill: Gauge,
    /// Points it took.
    pub delivered: Counter,
}

impl BackendBook {
    /// How long the oldest queued payload has waited; 0 when there is none.
    #[allow(clippy::cast_precision_loss)] // A nanosecond more or less.
    pub fn oldest_seconds(&self, now: UnixNanos) -> f64 {
        match i64::try_from(self.oldest.get()).unwrap_or(0) {
            0 => 0.0,
            born => (now.0.saturating_sub(born) as f64 / 1e9).max(0.0),
        }
    }

    /// The last attempt at the backend has to be repeated.
    pub fn fell_ill(&self, words: &str) {
        let words = words.chars().take(ILLNESS_MAX).collect();
        *self.illness.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
    }

    /// The backend answers as one that is well.
    pub fn got_well(&self) {
        *self.illness.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Why it takes nothing; none while it is well, or was never asked.
    pub fn illness(&self) -> Option<String> {
        self.illness.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Points that are neither delivered nor dropped yet, nor dead letters.
    pub fn under_way(&self) -> u64 {
        self.inbox.get() + self.windows.get() + self.open.get() + self.queued.get()
    }

    /// Points that are neither delivered nor dropped yet.
    pub fn held(&self) -> u64 {
        self.under_way() + self.dead_letters.get()
    }

    /// The book of an endpoint, opened when it is first asked for and closed when nobody has it.
    pub fn endpoint(&self, name: &str) -> Arc<EndpointBook> {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.retain(|_, book| book.strong_count() > 0);
        if let Some(book) = endpoints.get(name).and_then(Weak::upgrade) {
            return book;
        }
        let book = Arc::default();
        endpoints.insert(name.to_owned(), Arc::downgrade(&book));
        book
    }

    /// Every endpoint's book, by name.
    pub fn endpoints(&self) -> Vec<(String, Arc<EndpointBook>)> {
        let endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let open = endpoints.iter();
        open.filter_map(|(name, book)| Some((name.clone(), book.upgrade()?))).collect()
    }
}

/// All the books, by name.
#[derive(Debug, Default)]
pub struct Books {
    listeners: Shelf<ListenerBook>,
    backends: Shelf<BackendBook>,
    routes: Shelf<Counter>,
    /// Reloads that were applied, and those that were refused.
    pub reloads: Counter,
    /// Reloads that were refused.
    pub reloads_failed: Counter,
}

type Shelf<T> = Mutex<BTreeMap<String, Arc<T>>>;

impl Books {
    /// The book of a listener, opened when it is first asked for.
    pub fn listener(&self, name: &str) -> Arc<ListenerBook> {
        open(&self.listeners, name)
    }

    /// The book of a backend, opened when it is first asked for.
    pub fn backend(&self, name: &str) -> Arc<BackendBook> {
        open(&self.backends, name)
    }

    /// The count of points that a route took.
    pub fn route(&self, name: &str) -> Arc<Counter> {
        open(&self.routes, name)
    }

    /// Every listener's book, by name.
    pub fn listeners(&self) -> Vec<(String, Arc<ListenerBook>)> {
        all(&self.listeners)
    }

    /// Every backend's book, by name.
    pub fn backends(&self) -> Vec<(String, Arc<BackendBook>)> {
        all(&self.backends)
    }

    /// Every route's count, by name.
    pub fn routes(&self) -> Vec<(String, Arc<Counter>)> {
        all(&self.routes)
    }
}

fn open<T: Default>(shelf: &Shelf<T>, name: &str) -> Arc<T> {
    let mut books = shelf.lock().unwrap_or_else(PoisonError::into_inner);
    books.entry(name.to_owned()).or_default().clone()
}

fn all<T>(shelf: &Shelf<T>) -> Vec<(String, Arc<T>)> {
    let books = shelf.lock().unwrap_or_else(PoisonError::into_inner);
    books.iter().map(|(name, book)| (name.clone(), Arc::clone(book))).collect()
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Enough for a status and a sentence.
const ILLNESS_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoints_book_is_shared_and_closes_with_its_last_holder() {
        let book = BackendBook::default();
        let (one, other) = (book.endpoint("a"), book.endpoint("b"));
        let again = book.endpoint("a");
        again.delivered.add(7);
        drop((again, other));
        let open = |book: &BackendBook| {
            let books = book.endpoints().into_iter();
            books.map(|(name, book)| (name, book.delivered.get())).collect::<Vec<_>>()
        };
        assert_eq!(open(&book), [("a".to_owned(), 7)]);
        drop(one);
        assert_eq!(open(&book), []);
    }
}
