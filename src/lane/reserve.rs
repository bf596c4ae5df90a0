//! Room that a request is promised before any of its points is taken.
//!
//! A backend with `when_full = "refuse"` lets its senders know that it is full, and then nothing of
//! a request may have been kept. So there must be room for all of it at every such backend that it
//! may reach, in the inbox and in the queue, beside what is on its way there already: batches in
//! the inbox and what others have just been promised. How much a batch comes to once it is encoded
//! is not known yet; the memory it takes stands for that, and is rather more. Where it is less, the
//! queue takes what was promised nevertheless.

use super::Handle;
use super::parcel::Parcel;
use super::state::State;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc::OwnedPermit;

/// A backend has no room for a request, and wants it refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Room for a batch in one lane, until it is dropped.
#[derive(Debug)]
pub struct Reservation {
    state: Arc<State>,
    bytes: usize,
    place: Option<OwnedPermit<Parcel>>,
}

impl Reservation {
    /// Room for so many bytes of batch, if there is.
    pub(super) fn of(lane: &Handle, bytes: usize) -> Option<Self> {
        let state = Arc::clone(&lane.state);
        let before = state.reserved.fetch_add(bytes, Relaxed);
        // From here on its drop gives the room back.
        let mut reservation = Self { state, bytes, place: None };
        let state = &reservation.state;
        let waiting = before.saturating_add(state.inbox_bytes.load(Relaxed));
        let more = before.saturating_add(bytes);
        let all = waiting.saturating_add(bytes);
        // Else what is larger than the queue would never be taken.
        let is_alone = waiting == 0 && state.queue.is_empty();
        let fits = state.queue.has_space(all) && state.has_room(more);
        if !is_alone && !fits {
            return None;
        }
        reservation.place = Some(lane.inbox.clone().try_reserve_owned().ok()?);
        Some(reservation)
    }

    /// Its place in the inbox.
    pub(super) fn place(&mut self) -> Option<OwnedPermit<Parcel>> {
        self.place.take()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.state.reserved.fetch_sub(self.bytes, Relaxed);
    }
}
