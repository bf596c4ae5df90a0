//! Who rides with points through a lane: the requests that wait for them, and a promise.
//!
//! Riders ride on a batch, on a window, on the payload that is being filled and on a slot of the
//! queue, and are handed from one to the next. A *promise* is what a request was given whose
//! points a `refuse` backend had room for: the queue takes these, whatever has come meanwhile.

use super::receipt::{Hold, Level};

/// Who rides with points.
#[derive(Clone, Debug, Default)]
pub(super) struct Riders {
    holds: Vec<Hold>,
    pub(super) promised: bool,
}

impl Riders {
    pub(super) fn new(hold: Option<Hold>, promised: bool) -> Self {
        Self { holds: hold.into_iter().collect(), promised }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty() && !self.promised
    }

    /// Whether a request waits for these points.
    pub(super) fn wait(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Whether a request waits until they are on disk.
    pub(super) fn want_disk(&self) -> bool {
        self.holds.iter().any(|hold| hold.level() == Level::Queued)
    }

    /// Whether a request wants to know what becomes of its points and nobody else's.
    pub(super) fn want_delivery(&self) -> bool {
        self.holds.iter().any(|hold| hold.level() == Level::Delivered)
    }

    /// These ride along.
    pub(super) fn join(&mut self, others: &Self) {
        self.holds.extend_from_slice(&others.holds);
        self.promised |= others.promised;
    }

    /// The points are where they survive the process.
    pub(super) fn stored(&mut self) {
        self.holds.retain(|hold| hold.level() > Level::Queued);
    }

    /// So many points have arrived.
    pub(super) fn settle(&self, points: u64) {
        self.holds.iter().for_each(|hold| hold.settle(points));
    }

    /// So many points never will.
    pub(super) fn lose(&self, points: u64, reason: &'static str, detail: Option<&str>) {
        self.holds.iter().for_each(|hold| hold.lose(points, reason, detail));
    }

    /// The points stay on disk when this process ends.
    pub(super) fn defer(&mut self) {
        self.holds.drain(..).for_each(Hold::defer);
    }
}
