//! The books at the moment of a scrape, as labelled samples.

use crate::books::{BackendBook, Books, Counter, EndpointBook, ListenerBook, Reasons};
use protocols::UnixNanos;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names of labels and their values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// One value of a metric.
pub(super) type Sample<T> = (Labels, T);

/// The books at the moment of a scrape.
pub(super) struct View {
    listeners: Vec<(String, Arc<ListenerBook>)>,
    backends: Vec<(String, Arc<BackendBook>)>,
    routes: Vec<(String, Arc<Counter>)>,
    pub(super) reloads: u64,
    pub(super) reloads_failed: u64,
    pub(super) started: UnixNanos,
    pub(super) now: UnixNanos,
}

impl View {
    /// Opens the books.
    pub(super) fn of(books: &Books, started: UnixNanos, now: UnixNanos) -> Self {
        Self {
            listeners: books.listeners(),
            backends: books.backends(),
            routes: books.routes(),
            reloads: books.reloads.get(),
            reloads_failed: books.reloads_failed.get(),
            started,
            now,
        }
    }

    /// A sample for each listener.
    pub(super) fn listeners<T>(&self, read: fn(&ListenerBook) -> T) -> Vec<Sample<T>> {
        self.listeners
            .iter()
            .map(|(name, book)| (vec![("listener", name.clone())], read(book)))
            .collect()
    }

    /// When certificates end, of all that show one.
    pub(super) fn certificates(&self) -> Vec<Sample<f64>> {
        let listeners = self.listeners(|book| book.certificate_expires.get());
        let backends = self.backends(|book| book.certificate_expires.get());
        let shown = listeners.into_iter().chain(backends).filter(|(_, ends)| *ends > 0);
        shown.map(|(labels, ends)| (labels, float(ends))).collect()
    }

    /// What each route took.
    pub(super) fn routes(&self) -> Vec<Sample<u64>> {
        let sample =
            |(name, count): &(String, Arc<Counter>)| (vec![("route", name.clone())], count.get());
        self.routes.iter().map(sample).collect()
    }

    /// A sample for each backend.
    pub(super) fn backends<T>(&self, read: impl Fn(&BackendBook) -> T) -> Vec<Sample<T>> {
        self.backends
            .iter()
            .map(|(name, book)| (vec![("backend", name.clone())], read(book)))
            .collect()
    }

    /// A sample for each endpoint of each backend.
    pub(super) fn endpoints<T>(&self, read: fn(&EndpointBook) -> T) -> Vec<Sample<T>> {
        let endpoints = self.backends.iter().flat_map(|(name, book)| {
            let labels = move |endpoint| vec![("backend", name.clone()), ("endpoint", endpoint)];
            book.endpoints().into_iter().map(move |(at, book)| (labels(at), read(&book)))
        });
        endpoints.collect()
    }

    /// A sample for each listener and reason, those that are known with 0 at least.
    pub(super) fn listener_reasons(
        &self,
        label: &'static str,
        read: fn(&ListenerBook) -> &Reasons,
        known: impl IntoIterator<Item = &'static str> + Clone,
    ) -> Vec<Sample<u64>> {
        let books = self.listeners.iter();
        books
            .flat_map(|(name, book)| {
                by_reason(("listener", name), label, read(book), known.clone())
            })
            .collect()
    }

    /// A sample for each backend and reason, those that are known with 0 at least.
    pub(super) fn backend_reasons(
        &self,
        label: &'static str,
        read: fn(&BackendBook) -> &Reasons,
        known: &[&'static str],
    ) -> Vec<Sample<u64>> {
        let books = self.backends.iter();
        books
            .flat_map(|(name, book)| {
                by_reason(("backend", name), label, read(book), known.iter().copied())
            })
            .collect()
    }

    /// How many points of each backend took no longer than each bound from a listener to their payload.
    pub(super) fn inbox_waits(&self) -> Vec<Sample<u64>> {
        let of = |(name, book): &(String, Arc<BackendBook>)| {
            let labels = |bound: &str| vec![("backend", name.clone()), ("le", bound.to_owned())];
            book.inbox_waits.within().map(|(bound, count)| (labels(bound), count)).collect()
        };
        self.backends.iter().flat_map::<Vec<_>, _>(of).collect()
    }

    /// Where the points are that a backend holds.
    pub(super) fn held(&self) -> Vec<Sample<f64>> {
        let at = |place: &str, read: fn(&BackendBook) -> u64| {
            let mut samples = self.backends(|book| float(read(book)));
            for (labels, _) in &mut samples {
                labels.push(("where", place.to_owned()));
            }
            samples
        };
        [
            at("inbox", |book| book.inbox.get()),
            at("windows", |book| book.windows.get()),
            at("open", |book| book.open.get()),
            at("queue", |book| book.queued.get().saturating_sub(book.spooled.get())),
            at("spool", |book| book.spooled.get()),
            at("dead_letters", |book| book.dead_letters.get()),
        ]
        .concat()
    }
}

fn by_reason(
    (kind, name): (&'static str, &str),
    label: &'static str,
    reasons: &Reasons,
    known: impl IntoIterator<Item = &'static str>,
) -> Vec<Sample<u64>> {
    let mut counts: BTreeMap<_, _> = known.into_iter().map(|reason| (reason, 0)).collect();
    counts.extend(reasons.counts());
    let labels = |reason: &str| vec![(kind, name.to_owned()), (label, reason.to_owned())];
    counts.into_iter().map(|(reason, count)| (labels(reason), count)).collect()
}

/// A count as a gauge.
#[allow(clippy::cast_precision_loss)] // Gauges are doubles on the page.
pub(super) const fn float(n: u64) -> f64 {
    n as f64
}

/// Nanoseconds as seconds.
#[allow(clippy::cast_precision_loss)] // A nanosecond more or less.
pub(super) fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}
