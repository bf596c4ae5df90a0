//! The queue of one backend: payloads in order, bounded, claimed while they are shipped.
//!
//! [`Line`] is the pure data structure, [`Spool`] the file; a [`Queue`] ties the two together,
//! wakes shippers and keeps the books. A payload is *claimed* by an attempt and then either
//! *committed* (it leaves) or let go (it stays where it was). So it is shipped at least once.
//!
//! Neither shaper nor shippers wait for the [disk](disk), but a shipper for a body that is there.
//! When the disk takes nothing, the queue is full as far as that goes.
//!
//! A full queue does what `when_full` says, and counts what it drops as `queue_full`:
//!
//! - `drop_oldest`: the oldest payloads that are not claimed make room. A payload is claimed
//!   only during an attempt, not while its shipper waits for the next one, so a dead backend
//!   keeps the newest points, not the oldest.
//! - `drop_newest`: the new payload goes.
//! - `refuse`: as `drop_newest`, but for what was promised room before it was taken; the lane
//!   says that it is full an eighth earlier, for those who are given no promise.

mod disk;
mod effort;
mod line;
mod slot;
mod spool;
#[cfg(test)]
mod tests;
mod trial;

pub(super) use line::Limits;
pub(super) use slot::Entry;
pub(super) use spool::Spool;
pub use spool::{file as spool_file, names as spool_names};
pub(super) use trial::{Failure, Step};

use crate::backend::Payload;
use crate::books::BackendBook;
use effort::Effort;
use line::{Claimed, Line, QUEUE_FULL};
use slot::Record;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;

/// The queue of one backend; belongs to the backend's name.
#[derive(Debug)]
pub(super) struct Queue {
    line: Mutex<Line>,
    desk: Mutex<Desk>,
    /// Locked while the disk is at work; never while [`line`](Self::line) is.
    spool: Mutex<Option<Spool>>,
    cost: AtomicUsize,
    room: AtomicUsize,
    space: AtomicUsize,
    changes: watch::Sender<u64>,
    book: Arc<BackendBook>,
    /// Whether the log's last word was that the disk does not work.
    ill: AtomicBool,
    me: Weak<Self>,
}

/// Whether the disk can be used, and whether it is in use. Locked while the line is.
#[derive(Debug, Default)]
struct Desk {
    open: bool,
    /// What was there when it was opened, until it is taken up.
    found: Vec<Record>,
    busy: bool,
    no_reads: bool,
    no_writes: bool,
    /// Whether somebody will see to it that an empty file goes.
    to_be_tidied: bool,
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
    /// An empty queue, in memory.
    pub(super) fn new(book: Arc<BackendBook>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            line: Mutex::default(),
            desk: Mutex::default(),
            spool: Mutex::default(),
            cost: AtomicUsize::new(0),
            room: AtomicUsize::new(usize::MAX),
            space: AtomicUsize::new(usize::MAX),
            changes: watch::Sender::new(0),
            book,
            ill: AtomicBool::new(false),
            me: Weak::clone(me),
        })
    }

    /// Tells of everything after which a claim may have another answer.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Holds to these limits from now on; without an open spool, to memory. What was found in
    /// the spool is taken up when this is first said, which is when there is a lane.
    pub(super) fn limit(&self, limits: Limits) {
        let mut desk = self.desk();
        let (disk, found) = (limits.disk.filter(|_| desk.open), std::mem::take(&mut desk.found));
        drop(desk);
        let points = found.iter().map(|record| u64::from(record.points)).sum();
        self.book.recovered.add(points);
        self.change(|line| {
            line.recover(found);
            line.limit(Limits { disk, ..limits });
        });
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
    pub(super) fn push(&self, entry: impl Into<Entry>) {
        let lost = self.change(|line| line.push(entry));
        if lost > 0 {
            // What went may have made room on a full disk.
            self.desk().no_writes = false;
        }
        self.book.dropped.add(QUEUE_FULL, lost);
    }

    /// Claims the oldest payload that nobody has claimed, for the shippers of `lane`.
    pub(super) fn claim(&self, lane: u64) -> Claim<'_> {
        let mut line = self.line();
        match line.claim(lane) {
            Some(Claimed { id, payload, effort }) => {
                Claim::Take(Ticket { queue: self, id, payload: Some(payload), effort })
            }
            None if line.is_empty() && line.shapers == 0 => Claim::Done,
            None => Claim::Wait,
        }
    }

    /// Whether anything is there that nobody has in hand and the backend has not failed at.
    pub(super) fn has_fresh(&self) -> bool {
        self.line().has_fresh()
    }

    /// Whether HTTP is to be told to come back later.
    pub(super) fn is_nearly_full(&self) -> bool {
        let room = self.room.load(Relaxed);
        self.cost.load(Relaxed) >= room - room / 8
    }

    /// Whether so many bytes more find room.
    pub(super) fn has_space(&self, size: usize) -> bool {
        size <= self.space.load(Relaxed)
    }

    /// Whether it holds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.cost.load(Relaxed) == 0
    }

    /// Gives up what is not on disk, claimed or not; answers how many points that were.
    pub(super) fn abandon(&self) -> u64 {
        self.change(Line::abandon)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Line) -> T) -> T {
        let mut line = self.line();
        let answer = change(&mut line);
        self.employ(&mut line);
        self.note(&line);
        drop(line);
        self.changes.send_modify(|version| *version = version.wrapping_add(1));
        answer
    }

    fn note(&self, line: &Line) {
        self.cost.store(line.cost, Relaxed);
        self.room.store(line.room(), Relaxed);
        self.space.store(line.space(), Relaxed);
        self.book.queued.set(line.points);
        self.book.spooled.set(line.stored_points);
        self.book.queued_bytes.set(line.bytes as u64);
        self.book.oldest.set(line.oldest().map_or(0, |born| born.0.unsigned_abs()));
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spool(&self) -> MutexGuard<'_, Option<Spool>> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claim of one attempt. Dropped without a verdict, it lets the payload go back in line.
#[derive(Debug)]
pub(super) struct Ticket<'q> {
    queue: &'q Queue,
    id: i64,
    payload: Option<Payload>,
    effort: Arc<Effort>,
}

impl Ticket<'_> {
    /// What is to be shipped.
    pub(super) fn payload(&self) -> Option<&Payload> {
        self.payload.as_ref()
    }

    /// The payload has found its end and leaves the queue.
    pub(super) fn commit(mut self) -> Option<Payload> {
        let payload = self.payload.take();
        self.queue.change(|line| line.commit(self.id));
        payload
    }

    /// The backend has failed at this payload, and may have had it to blame.
    pub(super) fn failed(&self, failure: Failure) -> Step {
        self.queue.change(|line| line.failed(self.id, failure))
    }

    /// The backend took the payload, or some of it. Answers whether that was before its turn, as a
    /// witness, so that it has to stay.
    pub(super) fn took(&self) -> bool {
        self.queue.line().took(self.id)
    }

    /// The backend will never take so many of its points; said before the verdict.
    pub(super) fn lose(&self, points: u32, reason: &'static str, detail: &str) {
        self.queue.line().lose(self.id, points.into(), reason, detail);
    }

    /// What is spent on finding what is refused of the payload that this is a part of.
    pub(super) fn effort(&self) -> &Effort {
        &self.effort
    }

    /// As [`replace`](Self::replace), because the backend refused it.
    pub(super) fn divide(self, parts: [Payload; 2]) {
        self.effort.spend();
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
