//! A batch between the receiving task that filled it and the shaper that empties it.

use super::State;
use super::riders::Riders;
use crate::waybill::Manifest;
use protocols::Batch;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A batch on its way to a shaper; what of it never arrives is counted as lost to the shutdown.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) batch: Batch,
    pub(super) manifest: Manifest,
    pub(super) riders: Riders,
    /// How many of its points the shaper has worked on.
    pub(super) done: usize,
    bytes: usize,
    state: Arc<State>,
}

impl Parcel {
    /// Wraps a batch and counts it.
    pub(super) fn new(
        batch: Batch,
        manifest: Manifest,
        riders: Riders,
        state: &Arc<State>,
    ) -> Self {
        let bytes = batch.bytes();
        state.book.inbox.add(batch.len() as u64);
        state.inbox_bytes.fetch_add(bytes, Relaxed);
        Self { batch, manifest, riders, done: 0, bytes, state: Arc::clone(state) }
    }

    /// As [`unpack`](Self::unpack), and tells who waits that nothing will come of it.
    pub(super) fn give_up(self, reason: &'static str) -> Batch {
        self.riders.lose(self.batch.len() as u64, reason, None);
        self.unpack()
    }

    /// The batch, of which the caller has to account now for what is not done.
    pub(super) fn unpack(mut self) -> Batch {
        self.finish(self.batch.len());
        std::mem::take(&mut self.batch)
    }

    /// The caller has accounted for the points up to this one.
    pub(super) fn finish(&mut self, done: usize) {
        self.state.book.inbox.sub((done - self.done) as u64);
        self.done = done;
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        let left = self.batch.len().saturating_sub(self.done);
        self.state.book.inbox.sub(left as u64);
        self.state.book.dropped.add("shutdown", left as u64);
        self.riders.lose(left as u64, "shutdown", None);
        self.state.inbox_bytes.fetch_sub(self.bytes, Relaxed);
    }
}
