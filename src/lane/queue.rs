//! Payloads on their way to one backend: in order, bounded, claimed while they are shipped.
//!
//! [`Line`] is the pure data structure, [`Queue`] the shared one that wakes shippers and keeps
//! the books. A payload is *claimed* by an attempt and then either *committed* (it leaves) or
//! let go (it stays where it was). So it is shipped at least once, and a second part on disk
//! can come behind this one: `push` would then divert to it as soon as memory is full, and
//! `claim` refill from it when memory has run empty.
//!
//! A full queue does what `when_full` says, and counts what it drops as `queue_full`:
//!
//! - `drop_oldest`: the oldest payloads that are not claimed make room. A payload is claimed
//!   only during an attempt, not while its shipper waits for the next one, so a dead backend
//!   keeps the newest points, not the oldest.
//! - `drop_newest`: the new payload goes.
//! - `refuse`: as `drop_newest`, but the lane says that it is full an eighth earlier, so that
//!   what was accepted before finds room.

use super::WhenFull;
use crate::backend::Payload;
use crate::books::BackendBook;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The queue of one backend; belongs to the backend's name.
#[derive(Debug)]
pub(super) struct Queue {
    line: Mutex<Line>,
    cost: AtomicUsize,
    changes: watch::Sender<u64>,
    book: Arc<BackendBook>,
}

/// What a shipper that asks for work gets.
#[derive(Debug)]
pub(super) enum Claim<'q> {
    /// This.
    Take(Ticket<'q>),
    /// Nothing now; ask again when something changed.
    Wait,
    /// Nothing ever: the queue is empty and nobody fills it any more.
    Done,
}

impl Queue {
    /// An empty queue.
    pub(super) fn new(book: Arc<BackendBook>) -> Self {
        let changes = watch::Sender::new(0);
        Self { line: Mutex::default(), cost: AtomicUsize::new(0), changes, book }
    }

    /// Tells of everything after which a claim may have another answer.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Counts one more shaper that fills the queue.
    pub(super) fn join(&self) {
        self.change(|line| line.shapers += 1);
    }

    /// Counts one less.
    pub(super) fn leave(&self) {
        self.change(|line| line.shapers = line.shapers.saturating_sub(1));
    }

    /// Appends a payload; what has to go for it is counted.
    pub(super) fn push(&self, payload: Payload, memory: usize, when_full: WhenFull) {
        let lost = self.change(|line| line.push(payload, memory, when_full));
        self.book.dropped.add("queue_full", lost);
    }

    /// Claims the oldest payload that nobody has claimed, for the shippers of `lane`.
    pub(super) fn claim(&self, lane: u64) -> Claim<'_> {
        let mut line = self.line();
        match line.claim(lane) {
            Some(slot) => Claim::Take(Ticket {
                queue: self,
                id: slot.id,
                payload: Some(slot.payload),
                divisions: slot.divisions,
            }),
            None if line.slots.is_empty() && line.shapers == 0 => Claim::Done,
            None => Claim::Wait,
        }
    }

    /// Whether HTTP is to be told to come back later.
    pub(super) fn is_nearly_full(&self, memory: usize) -> bool {
        self.cost.load(Relaxed) >= memory - memory / 8
    }

    /// Gives everything up, claimed or not; answers how many points that were.
    pub(super) fn abandon(&self) -> u64 {
        self.change(|line| {
            let points = line.points;
            while line.take(0).is_some() {}
            points
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Line) -> T) -> T {
        let mut line = self.line();
        let answer = change(&mut line);
        self.note(&line);
        drop(line);
        self.changes.send_modify(|version| *version = version.wrapping_add(1));
        answer
    }

    fn note(&self, line: &Line) {
        self.cost.store(line.cost, Relaxed);
        self.book.queued.set(line.points);
        self.book.queued_bytes.set(line.bytes as u64);
        let oldest = line.slots.front().map_or(0, |slot| slot.payload.born.0);
        self.book.oldest.set(oldest.unsigned_abs());
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claim of one attempt. Dropped without a verdict, it lets the payload go back in line.
#[derive(Debug)]
pub(super) struct Ticket<'q> {
    queue: &'q Queue,
    id: u64,
    payload: Option<Payload>,
    divisions: Arc<AtomicU32>,
}

impl Ticket<'_> {
    /// What is to be shipped.
    pub(super) fn payload(&self) -> Option<&Payload> {
        self.payload.as_ref()
    }

    /// The payload has found its end and leaves the queue.
    pub(super) fn commit(mut self) {
        self.payload = None;
        self.queue.change(|line| line.commit(self.id));
    }

    /// How often the payload that this is a part of was divided because of a refusal.
    pub(super) fn divisions(&self) -> u32 {
        self.divisions.load(Relaxed)
    }

    /// As [`replace`](Self::replace), because the backend refused it.
    pub(super) fn divide(self, parts: [Payload; 2]) {
        self.divisions.fetch_add(1, Relaxed);
        self.replace(parts);
    }

    /// These take the payload's place, in this order.
    pub(super) fn replace(mut self, parts: [Payload; 2]) {
        self.payload = None;
        self.queue.change(|line| line.replace(self.id, parts));
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.payload.is_some() {
            self.queue.change(|line| line.let_go(self.id));
        }
    }
}

/// Payloads in order.
#[derive(Debug, Default)]
struct Line {
    slots: VecDeque<Slot>,
    points: u64,
    bytes: usize,
    cost: usize,
    ids: u64,
    shapers: u32,
    /// What is in hand: a payload's number and the lane whose shipper has it. Few at a time.
    claims: Vec<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct Slot {
    id: u64,
    payload: Payload,
    /// Shared by all the parts of what was once one payload.
    divisions: Arc<AtomicU32>,
}

impl Slot {
    fn points(&self) -> u64 {
        u64::from(self.payload.points)
    }

    fn cost(&self) -> usize {
        cost(&self.payload)
    }
}

impl Line {
    /// Answers how many points were dropped.
    fn push(&mut self, payload: Payload, memory: usize, when_full: WhenFull) -> u64 {
        let room = memory.saturating_sub(cost(&payload));
        let mut lost = 0;
        while when_full == WhenFull::DropOldest && self.cost > room {
            let Some(oldest) = self.unclaimed() else { break };
            lost += self.take(oldest).map_or(0, |slot| slot.points());
        }
        if self.cost > room && !self.slots.is_empty() {
            return lost + u64::from(payload.points);
        }
        let end = self.slots.len();
        self.put(end, payload, Arc::default());
        lost
    }

    /// A shipper waits while another lane's has something in hand, so that order survives
    /// the change from one to the other.
    fn claim(&mut self, lane: u64) -> Option<Slot> {
        if self.claims.iter().any(|(_, other)| *other != lane) {
            return None;
        }
        let slot = self.unclaimed().and_then(|at| self.slots.get(at))?;
        self.claims.push((slot.id, lane));
        Some(slot.clone())
    }

    fn unclaimed(&self) -> Option<usize> {
        let is_claimed = |slot: &Slot| self.claims.iter().any(|(id, _)| *id == slot.id);
        self.slots.iter().position(|slot| !is_claimed(slot))
    }

    fn commit(&mut self, id: u64) {
        self.let_go(id);
        if let Some(at) = self.place(id) {
            self.take(at);
        }
    }

    fn let_go(&mut self, id: u64) {
        self.claims.retain(|(claimed, _)| *claimed != id);
    }

    fn replace(&mut self, id: u64, parts: [Payload; 2]) {
        self.let_go(id);
        let Some(at) = self.place(id) else { return };
        let Some(whole) = self.take(at) else { return };
        let [first, second] = parts;
        self.put(at, second, Arc::clone(&whole.divisions));
        self.put(at, first, whole.divisions);
    }

    fn place(&self, id: u64) -> Option<usize> {
        self.slots.iter().position(|slot| slot.id == id)
    }

    fn put(&mut self, at: usize, payload: Payload, divisions: Arc<AtomicU32>) {
        self.points += u64::from(payload.points);
        self.bytes += payload.body.len();
        self.cost += cost(&payload);
        self.ids += 1;
        self.slots.insert(at, Slot { id: self.ids, payload, divisions });
    }

    fn take(&mut self, at: usize) -> Option<Slot> {
        let slot = self.slots.remove(at)?;
        self.points -= slot.points();
        self.bytes -= slot.payload.body.len();
        self.cost -= slot.cost();
        Some(slot)
    }
}

/// A payload's bytes, and what it takes to keep them in line.
fn cost(payload: &Payload) -> usize {
    payload.body.len() + size_of::<Slot>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use protocols::UnixNanos;

    /// Room for three payloads of one byte and not for four.
    const MEMORY: usize = 3 * (size_of::<Slot>() + 1);

    fn payload(points: u32) -> Payload {
        Payload { body: Bytes::from_static(b"\n"), points, born: UnixNanos(i64::from(points)) }
    }

    /// Payloads are named by their points. Claims the first `claimed` of a full line, then
    /// pushes number 4.
    fn check(when_full: WhenFull, claimed: usize, kept: &[u32], lost: u64) {
        let mut line = Line::default();
        for points in 1..=3 {
            assert_eq!(line.push(payload(points), MEMORY, when_full), 0);
        }
        (0..claimed).for_each(|_| assert!(line.claim(1).is_some()));
        assert_eq!(line.push(payload(4), MEMORY, when_full), lost);
        let points: Vec<_> = line.slots.iter().map(|slot| slot.payload.points).collect();
        assert_eq!(points, kept, "{when_full:?} {claimed}");
        assert_eq!(line.points, u64::from(kept.iter().sum::<u32>()));
        assert_eq!((line.bytes, line.cost), (kept.len(), kept.len() * (size_of::<Slot>() + 1)));
    }

    #[test]
    fn a_full_queue_does_what_it_was_told() {
        check(WhenFull::DropOldest, 0, &[2, 3, 4], 1);
        check(WhenFull::DropOldest, 1, &[1, 3, 4], 2);
        check(WhenFull::DropOldest, 3, &[1, 2, 3], 4);
        check(WhenFull::DropNewest, 0, &[1, 2, 3], 4);
        check(WhenFull::Refuse, 1, &[1, 2, 3], 4);
    }

    #[test]
    fn a_payload_larger_than_the_memory_is_taken_alone() {
        let mut line = Line::default();
        assert_eq!(line.push(payload(1), 0, WhenFull::DropOldest), 0);
        assert_eq!(line.push(payload(2), 0, WhenFull::DropOldest), 1);
        assert_eq!(line.push(payload(3), 0, WhenFull::DropNewest), 3);
    }

    #[test]
    fn parts_take_the_place_of_the_whole() {
        let mut line = Line::default();
        line.push(payload(9), usize::MAX, WhenFull::DropOldest);
        line.push(payload(3), usize::MAX, WhenFull::DropOldest);
        let id = line.claim(1).unwrap().id;
        line.replace(id, [payload(1), payload(2)]);
        let mut next = || line.claim(1).map(|slot| slot.payload.points);
        assert_eq!([next(), next(), next(), next()], [Some(1), Some(2), Some(3), None]);
    }

    #[test]
    fn parts_share_the_count_of_divisions() {
        let queue = Queue::new(Arc::default());
        let claim = || match queue.claim(1) {
            Claim::Take(ticket) => ticket,
            nothing => panic!("{nothing:?}"),
        };
        queue.push(payload(9), usize::MAX, WhenFull::DropOldest);
        queue.push(payload(1), usize::MAX, WhenFull::DropOldest);
        claim().divide([payload(4), payload(5)]);
        claim().divide([payload(2), payload(2)]);
        claim().replace([payload(1), payload(1)]);
        for (points, divisions) in [(1, 2), (1, 2), (2, 2), (5, 2), (1, 0)] {
            let ticket = claim();
            assert_eq!(ticket.payload().unwrap().points, points);
            assert_eq!(ticket.divisions(), divisions);
            ticket.commit();
        }
    }

    #[test]
    fn a_younger_lane_waits_for_what_the_older_has_in_hand() {
        let queue = Queue::new(Arc::default());
        queue.join();
        queue.push(payload(1), usize::MAX, WhenFull::DropOldest);
        queue.push(payload(2), usize::MAX, WhenFull::DropOldest);
        let Claim::Take(old) = queue.claim(1) else { panic!("nothing to claim") };
        assert!(matches!(queue.claim(2), Claim::Wait));
        drop(old);
        let Claim::Take(young) = queue.claim(2) else { panic!("nothing to claim") };
        assert_eq!(young.payload().unwrap().points, 1);
        young.commit();
        queue.leave();
        let Claim::Take(last) = queue.claim(2) else { panic!("nothing to claim") };
        last.commit();
        assert!(matches!(queue.claim(2), Claim::Done));
    }
}
