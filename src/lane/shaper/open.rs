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

    pub(super) fn add_point(&mut self, lines: usize, source: Source<'_>, riders: &Riders) {
        self.points += 1;
        self.draft.add(u32::try_from(lines).unwrap_or(u32::MAX), source);
        self.book.open.add(1);
        if !std::mem::replace(&mut self.joined, true) {
            self.join(riders);
        }
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
        let mut body = std::mem::take(&mut self.body);
        body.shrink_to_fit();
        let points = std::mem::take(&mut self.points);
        let payload = Payload::new(body, points, self.born).with(self.draft.finish());
        Some(Entry { payload, riders: std::mem::take(&mut self.riders) })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.book.open.sub(u64::from(self.points));
        self.book.dropped.add("shutdown", u64::from(self.points));
        self.riders.lose(self.points.into(), "shutdown", None);
    }
}

/// How long a payload that somebody waits for is held open.
const LINGER: Duration = Duration::from_millis(5);
