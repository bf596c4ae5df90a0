//! The payload that a shaper is filling.

use crate::backend::Payload;
use crate::books::BackendBook;
use crate::lane::queue::Entry;
use crate::lane::riders::Riders;
use crate::waybill::{Draft, Source};
use protocols::UnixNanos;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Its points are counted as lost to the shutdown if it is dropped.
pub(super) struct Open {
    pub(super) body: Vec<u8>,
    pub(super) points: u32,
    /// How many of them the book knows of.
    told: u32,
    draft: Draft,
    born: UnixNanos,
    pub(super) due: Instant,
    riders: Riders,
    /// Whether those of the points that come now are among the riders.
    pub(super) joined: bool,
    book: Arc<BackendBook>,
}

impl Open {
    pub(super) fn new(book: Arc<BackendBook>) -> Self {
        Self {
            body: Vec::new(),
            points: 0,
            told: 0,
            draft: Draft::default(),
            born: UnixNanos(0),
            due: Instant::now(),
            riders: Riders::default(),
            joined: true,
            book,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.points == 0
    }

    pub(super) fn begin(&mut self, now: UnixNanos, wait: Duration) {
        self.born = now;
        self.due = Instant::now() + wait;
    }

    /// Notes so many points, whose lines are in the body by now.
    pub(super) fn add(&mut self, points: usize, lines: usize, source: Source<'_>, riders: &Riders) {
        let bounded = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.points = self.points.saturating_add(bounded(points));
        self.draft.add(bounded(lines), source);
        if !std::mem::replace(&mut self.joined, true) {
            self.join(riders);
        }
    }

    /// Lets the book know what has come in since the last time: not at each point, of which there
    /// are too many for that.
    pub(super) fn tell(&mut self) {
        self.book.open.add(u64::from(self.points - self.told));
        self.told = self.points;
    }

    /// How many points the book knows of.
    pub(super) fn told(&self) -> u64 {
        u64::from(self.told)
    }

    /// Who waits is not kept waiting for the batch to fill, but for long enough that requests
    /// which come together share it.
    fn join(&mut self, riders: &Riders) {
        self.riders.join(riders);
        if riders.wait() {
            self.due = self.due.min(Instant::now() + LINGER);
        }
    }

    pub(super) fn take(&mut self) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        // The next one will be about as long, and what grows to its length is copied often.
        let length = self.body.len() + self.body.len() / SLACK;
        let mut body = std::mem::replace(&mut self.body, Vec::with_capacity(length));
        body.shrink_to(length);
        let points = std::mem::take(&mut self.points);
        self.told = 0;
        let payload = Payload::new(body, points, self.born).with(self.draft.finish());
        Some(Entry { payload, riders: std::mem::take(&mut self.riders) })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.book.open.sub(self.told());
        self.book.dropped.add("shutdown", u64::from(self.points));
        self.riders.lose(self.points.into(), "shutdown", None);
    }
}

/// A payload may take so many parts of its length more than the queue counts.
const SLACK: usize = 8;
/// How long a payload that somebody waits for is held open.
const LINGER: Duration = Duration::from_millis(5);
