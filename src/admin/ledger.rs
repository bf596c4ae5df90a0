//! The books as JSON, and whether they balance.
//!
//! ```text
//! listener:  received = routed + unmatched + denied
//! backend:   handed + recovered - folded_points + folded_rows = delivered + dropped + replayed + held
//! ```
//!
//! Points of dead letters are held; those that were replayed are counted as handed once more.
//!
//! Workers go on while the books are read, so a busy book may look unbalanced for a moment; at
//! any quiet moment it is not.

use crate::books::{BackendBook, Books, ListenerBook, Reasons};
use protocols::UnixNanos;
use serde::Serialize;
use std::collections::BTreeMap;

/// All the books.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ledger {
    /// What came in, by listener.
    pub listeners: BTreeMap<String, Listener>,
    /// What became of it, by backend.
    pub backends: BTreeMap<String, Backend>,
    /// Points that each route took.
    pub routes: BTreeMap<String, u64>,
    /// Changes of configuration.
    pub reloads: Reloads,
}

/// Counts by reason.
pub type Counts = BTreeMap<&'static str, u64>;

/// One listener's book; the fields are those of [`ListenerBook`].
#[allow(missing_docs)] // Explained there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listener {
    pub received: u64,
    pub received_bytes: u64,
    pub routed: u64,
    pub unmatched: u64,
    pub denied: u64,
    /// The same by reason.
    pub denials: Counts,
    pub rejected: Counts,
    pub noticed: Counts,
    pub kernel_dropped: u64,
    pub connections: u64,
    /// Keys of requests that are remembered.
    pub keys: u64,
    /// Whether the equation holds.
    pub balanced: bool,
}

/// One backend's book; the fields are those of [`BackendBook`].
#[allow(missing_docs)] // Explained there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Backend {
    pub handed: u64,
    pub recovered: u64,
    pub folded_points: u64,
    pub folded_rows: u64,
    pub delivered: u64,
    pub dropped: Counts,
    pub replayed: u64,
    pub held: Held,
    pub refused: Counts,
    pub retries: u64,
    pub lost_parts: Counts,
    pub noticed: Counts,
    pub queued_bytes: u64,
    /// Age of the oldest payload in the queue.
    pub oldest_seconds: f64,
    pub series: u64,
    /// Why the backend takes nothing at present; none while it is well, or was never asked.
    pub ill: Option<String>,
    /// Whether the equation holds.
    pub balanced: bool,
}

/// Where the points are that are neither delivered nor dropped yet.
#[allow(missing_docs)] // Explained at [`BackendBook`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    pub inbox: u64,
    pub windows: u64,
    pub open: u64,
    /// In memory.
    pub queue: u64,
    /// On disk.
    pub spool: u64,
    pub dead_letters: u64,
    pub total: u64,
}

/// Changes of configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reloads {
    /// Those that were applied.
    pub applied: u64,
    /// Those that were refused.
    pub refused: u64,
}

impl Ledger {
    /// Reads the books.
    pub fn of(books: &Books, now: UnixNanos) -> Self {
        let listeners = books.listeners().into_iter();
        let backends = books.backends().into_iter();
        Self {
            listeners: listeners.map(|(name, book)| (name, Listener::of(&book))).collect(),
            backends: backends.map(|(name, book)| (name, Backend::of(&book, now))).collect(),
            routes: books.routes().into_iter().map(|(name, count)| (name, count.get())).collect(),
            reloads: Reloads { applied: books.reloads.get(), refused: books.reloads_failed.get() },
        }
    }
}

impl Listener {
    fn of(book: &ListenerBook) -> Self {
        let mut listener = Self {
            received: book.received.get(),
            received_bytes: book.received_bytes.get(),
            routed: book.routed.get(),
            unmatched: book.unmatched.get(),
            denied: book.denied.total(),
            denials: counts(&book.denied),
            rejected: counts(&book.rejected),
            noticed: counts(&book.noticed),
            kernel_dropped: book.kernel_dropped.get(),
            connections: book.connections.get(),
            keys: book.keys.get(),
            balanced: false,
        };
        listener.balanced =
            listener.received == listener.routed + listener.unmatched + listener.denied;
        listener
    }
}

impl Backend {
    fn of(book: &BackendBook, now: UnixNanos) -> Self {
        let mut backend = Self {
            handed: book.handed.get(),
            recovered: book.recovered.get(),
            folded_points: book.folded_points.get(),
            folded_rows: book.folded_rows.get(),
            delivered: book.delivered.get(),
            dropped: counts(&book.dropped),
            replayed: book.replayed.get(),
            held: Held::of(book),
            refused: counts(&book.refused),
            retries: book.retries.get(),
            lost_parts: counts(&book.lost_parts),
            noticed: counts(&book.noticed),
            queued_bytes: book.queued_bytes.get(),
            oldest_seconds: book.oldest_seconds(now),
            series: book.series.get(),
            ill: book.illness(),
            balanced: false,
        };
        let gone = backend.delivered + backend.dropped.values().sum::<u64>() + backend.replayed;
        backend.balanced = backend.handed + backend.recovered + backend.folded_rows
            == gone + backend.held.total + backend.folded_points;
        backend
    }
}

impl Held {
    fn of(book: &BackendBook) -> Self {
        let (inbox, windows, open, queued) =
            (book.inbox.get(), book.windows.get(), book.open.get(), book.queued.get());
        let (spool, dead_letters) = (book.spooled.get().min(queued), book.dead_letters.get());
        // A gauge that is caught between two workers may wrap below zero for a moment.
        let places = [inbox, windows, open, queued, dead_letters];
        let total = places.into_iter().fold(0_u64, u64::wrapping_add);
        Self { inbox, windows, open, queue: queued - spool, spool, dead_letters, total }
    }
}

fn counts(reasons: &Reasons) -> Counts {
    reasons.counts().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_balances_when_every_point_has_a_fate() {
        let book = ListenerBook::default();
        book.received.add(6);
        book.routed.add(3);
        book.unmatched.add(2);
        assert!(!Listener::of(&book).balanced);
        book.denied.add("scope", 1);
        assert!(Listener::of(&book).balanced);
    }

    #[test]
    fn a_backend_balances_when_every_point_is_somewhere() {
        let book = BackendBook::default();
        // Ten points, six of them folded into two rows; a row is delivered, the rest is about.
        book.handed.add(10);
        book.folded_points.add(6);
        book.folded_rows.add(2);
        book.delivered.add(1);
        book.dropped.add("queue_full", 1);
        for gauge in [&book.inbox, &book.windows, &book.open] {
            gauge.add(1);
        }
        assert!(!Backend::of(&book, UnixNanos(0)).balanced);
        book.queued.add(1);
        let backend = Backend::of(&book, UnixNanos(0));
        assert!(backend.balanced, "{backend:?}");
        assert_eq!(backend.held.total, 4);
        // Two are refused and kept, and one of them is replayed: handed once more.
        book.queued.sub(1);
        book.open.sub(1);
        book.dead_letters.add(2);
        assert_eq!(Backend::of(&book, UnixNanos(0)).held.total, 4);
        book.dead_letters.sub(1);
        assert!(!Backend::of(&book, UnixNanos(0)).balanced);
        book.replayed.add(1);
        assert!(Backend::of(&book, UnixNanos(0)).balanced);
    }

    #[test]
    fn a_book_that_is_caught_in_motion_does_not_panic() {
        let book = BackendBook::default();
        book.inbox.sub(1);
        book.queued.add(1);
        assert_eq!(Backend::of(&book, UnixNanos(0)).held.total, 0);
    }
}
