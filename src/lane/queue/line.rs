//! Payloads in order, wherever they are: the pure part of the [queue](super::queue).
//!
//! One line holds what is in memory and what is on disk, so that there is one order and one
//! count. A slot is *stored* once its payload is on disk; its body may then leave memory and be
//! fetched again. Memory alone is used only while nothing is stored: when it overflows, or when
//! the gateway stops, the line *spills*, and from then on all of it goes to disk until the disk
//! part is empty again. It spills as well for a payload that a request wants on disk. What there is
//! to do on disk is told as [`Work`], done elsewhere, and its outcome told back.

mod stored;
#[cfg(test)]
mod tests;

pub(super) use stored::Work;

use super::effort::Effort;
use super::slot::{Entry, Load, Record, Slot, cost};
use super::trial::{Failure, Step, Trials};
use crate::backend::Payload;
use crate::lane::WhenFull;
use crate::lane::riders::Riders;
use protocols::UnixNanos;
use std::collections::VecDeque;
use std::sync::Arc;
use stored::STORE_BYTES;

/// How much a line may hold, and what happens beyond.
#[derive(Clone, Copy, Debug)]
pub(in crate::lane) struct Limits {
    /// Bytes in memory.
    pub(in crate::lane) memory: usize,
    /// Bytes on disk; `None` keeps to memory.
    pub(in crate::lane) disk: Option<usize>,
    /// Whether points are to be kept where they survive the process, so that a request that
    /// waits for that has to wait. Without it, to be in line is all there is.
    pub(in crate::lane) keeps: bool,
    /// What a full line does.
    pub(in crate::lane) when_full: WhenFull,
}

/// A payload that a shipper takes in hand.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) id: i64,
    pub(super) payload: Payload,
    pub(super) effort: Arc<Effort>,
}

/// Payloads in order.
#[derive(Debug)]
pub(super) struct Line {
    slots: VecDeque<Slot>,
    limits: Limits,
    /// All points, bytes and costs, and the points and costs of what is stored.
    pub(super) points: u64,
    pub(super) bytes: usize,
    pub(super) cost: usize,
    pub(super) stored_points: u64,
    stored_cost: usize,
    ids: i64,
    order: i64,
    /// Whether all goes to disk.
    spilling: bool,
    /// Whether that is for good, since the gateway stops.
    closing: bool,
    /// How many bytes go to disk at once: less when the disk has refused so much.
    store_most: usize,
    /// What the disk could hold when it last refused to take more.
    disk_full: Option<usize>,
    erase: Vec<i64>,
    pub(super) shapers: u32,
    /// What is in hand: a payload's number and the lane whose shipper has it. Few at a time.
    claims: Vec<(i64, u64)>,
    trials: Trials,
}

impl Default for Line {
    fn default() -> Self {
        let when_full = WhenFull::DropOldest;
        let limits = Limits { memory: usize::MAX, disk: None, keeps: false, when_full };
        Self {
            slots: VecDeque::new(),
            limits,
            points: 0,
            bytes: 0,
            cost: 0,
            stored_points: 0,
            stored_cost: 0,
            ids: 0,
            order: 0,
            spilling: false,
            closing: false,
            store_most: STORE_BYTES,
            disk_full: None,
            erase: Vec::new(),
            shapers: 0,
            claims: Vec::new(),
            trials: Trials::default(),
        }
    }
}

/// What shippers see.
impl Line {
    /// Holds to these limits from now on.
    pub(super) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
        self.spilling = limits.disk.is_some() && (self.spilling || self.stored_cost > 0);
    }

    /// Answers how many points were dropped. A payload that somebody wants on disk goes there,
    /// and so does all that is before it.
    pub(super) fn push(&mut self, entry: impl Into<Entry>) -> u64 {
        let Entry { payload, mut riders } = entry.into();
        let Limits { memory, disk, keeps, when_full } = self.limits;
        let size = cost(&payload);
        let overflows = !self.slots.is_empty() && self.cost + size > memory;
        self.spilling |= disk.is_some() && (overflows || riders.want_disk());
        let mut lost = 0;
        while when_full == WhenFull::DropOldest && !self.has_room(size) {
            // When the disk is too slow, or is only read any more, what is on it makes no room in
            // memory.
            let overtaken = disk.is_none() || self.cost + size <= self.room();
            let Some(oldest) = self.unclaimed(overtaken) else { break };
            lost += self.drop_at(oldest, QUEUE_FULL);
        }
        if !self.has_room(size) && !self.slots.is_empty() && !riders.promised {
            riders.lose(payload.points.into(), QUEUE_FULL, None);
            return lost + u64::from(payload.points);
        }
        if !keeps {
            riders.stored();
        }
        self.order += 1;
        let order = (self.order, 0);
        self.put(self.slots.len(), payload, riders, order, WIDTH, Arc::default());
        lost
    }

    /// How many bytes may be held in all.
    pub(super) fn room(&self) -> usize {
        let Limits { memory, disk, .. } = self.limits;
        let full = self.disk_full.map_or(usize::MAX, |stored| stored.saturating_add(memory));
        disk.map_or(memory.saturating_add(self.stored_cost), |disk| disk.min(full))
    }

    /// How many more bytes may be held. Beside the room in all, what waits for the disk must not
    /// fill memory without bound.
    pub(super) fn space(&self) -> usize {
        let Limits { memory, disk, .. } = self.limits;
        let waiting = self.cost - self.stored_cost;
        let behind = if disk.is_some() { memory.max(BEHIND) } else { 0 };
        let in_memory = memory.saturating_add(behind).saturating_sub(waiting);
        self.room().saturating_sub(self.cost).min(in_memory)
    }

    fn has_room(&self, size: usize) -> bool {
        size <= self.space()
    }

    /// A shipper waits while another lane's has something in hand, so that order survives
    /// the change from one to the other; and while the body of the next is on disk.
    pub(super) fn claim(&mut self, lane: u64) -> Option<Claimed> {
        if self.claims.iter().any(|(_, other)| *other != lane) {
            return None;
        }
        let next = match self.trials.witness() {
            Some(witness) => self.place(witness).filter(|_| !self.is_claimed(witness)),
            None => self.unclaimed(false),
        };
        let slot = next.and_then(|at| self.slots.get(at))?;
        let (id, payload) = (slot.record.id, slot.payload()?);
        let effort = Arc::clone(&slot.effort);
        self.claims.push((id, lane));
        Some(Claimed { id, payload, effort })
    }

    /// The backend has failed at a payload that is in hand, and may have had it to blame.
    pub(super) fn failed(&mut self, id: i64, failure: Failure) -> Step {
        let others = self.slots.iter().filter(|slot| self.could_witness(slot, id));
        let witness = others.min_by_key(|slot| slot.failures()).map(|slot| slot.record.id);
        let Some(slot) = self.place(id).and_then(|at| self.slots.get_mut(at)) else {
            return Step::Rest(None);
        };
        self.trials.failed(id, slot.conduct.get_or_insert_default(), failure, witness)
    }

    /// The backend took a payload that is in hand, or some of it. Answers whether that was before
    /// its turn, as a witness, so that it has to stay.
    pub(super) fn took(&mut self, id: i64) -> bool {
        self.trials.took(id)
    }

    /// Whether anything is there that nobody has in hand and the backend has not failed at.
    pub(super) fn has_fresh(&self) -> bool {
        self.slots.iter().any(|slot| slot.failures() == 0 && !self.is_claimed(slot.record.id))
    }

    fn could_witness(&self, slot: &Slot, suspect: i64) -> bool {
        slot.record.id != suspect && !self.is_claimed(slot.record.id)
    }

    pub(super) fn commit(&mut self, id: i64) {
        self.let_go(id);
        if let Some(slot) = self.place(id).and_then(|at| self.take(at)) {
            slot.riders.settle(slot.points());
        }
    }

    /// So many points of what is in hand will never be delivered.
    pub(super) fn lose(&self, id: i64, points: u64, reason: &'static str, detail: &str) {
        if let Some(slot) = self.place(id).and_then(|at| self.slots.get(at)) {
            slot.riders.lose(points, reason, Some(detail));
        }
    }

    pub(super) fn let_go(&mut self, id: i64) {
        self.claims.retain(|(claimed, _)| *claimed != id);
        self.trials.dismiss(id);
    }

    pub(super) fn replace(&mut self, id: i64, parts: [Payload; 2]) {
        self.let_go(id);
        let Some(at) = self.place(id) else { return };
        let Some(whole) = self.take(at) else { return };
        let [first, second] = parts;
        let ((order, part), half) = (whole.record.order, whole.width / 2);
        let (riders, effort) = (whole.riders.clone(), Arc::clone(&whole.effort));
        self.put(at, second, riders, (order, part + half), half, effort);
        self.put(at, first, whole.riders, (order, part), half, whole.effort);
        for slot in self.slots.iter_mut().skip(at).take(2) {
            slot.conduct = whole.conduct.as_ref().and_then(|conduct| conduct.of_parts());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The birth of the oldest.
    pub(super) fn oldest(&self) -> Option<UnixNanos> {
        self.slots.front().map(|slot| slot.record.born)
    }
}

/// How the line itself is kept.
impl Line {
    fn unclaimed(&self, in_memory: bool) -> Option<usize> {
        let is_claimed = |slot: &Slot| self.is_claimed(slot.record.id);
        self.slots.iter().position(|slot| !(is_claimed(slot) || in_memory && slot.stored))
    }

    fn is_claimed(&self, id: i64) -> bool {
        self.claims.iter().any(|(claimed, _)| *claimed == id)
    }

    fn slot(&self, id: Option<i64>) -> Option<&Slot> {
        self.slots.get(self.place(id?)?)
    }

    fn place(&self, id: i64) -> Option<usize> {
        self.slots.iter().position(|slot| slot.record.id == id)
    }

    fn put(
        &mut self,
        at: usize,
        payload: Payload,
        riders: Riders,
        order: (i64, i64),
        width: i64,
        effort: Arc<Effort>,
    ) {
        self.ids += 1;
        let Payload { body, points, born, waybill } = payload;
        let (id, bytes) = (self.ids, body.len());
        let record = Record { id, order, points, bytes, waybill: waybill.bytes(), born };
        let load = Some(Load { body, waybill });
        self.enter(at, Slot { record, riders, width, load, stored: false, conduct: None, effort });
    }

    fn enter(&mut self, at: usize, slot: Slot) {
        self.points += slot.points();
        self.bytes += slot.record.bytes;
        self.cost += slot.cost();
        self.slots.insert(at, slot);
    }

    fn drop_at(&mut self, at: usize, reason: &'static str) -> u64 {
        let Some(slot) = self.take(at) else { return 0 };
        slot.riders.lose(slot.points(), reason, None);
        slot.points()
    }

    fn take(&mut self, at: usize) -> Option<Slot> {
        let slot = self.slots.remove(at)?;
        self.trials.dismiss(slot.record.id);
        self.points -= slot.points();
        self.bytes -= slot.record.bytes;
        self.cost -= slot.cost();
        if slot.stored {
            self.stored_points -= slot.points();
            self.stored_cost -= slot.cost();
            self.erase.push(slot.record.id);
        }
        Some(slot)
    }
}

pub(super) const QUEUE_FULL: &str = "queue_full";
pub(super) const SPOOL_DAMAGED: &str = "spool_damaged";
/// Halved at each division of a payload, of which there are fewer.
const WIDTH: i64 = 1 << 62;
/// How many bytes may wait for the disk in any case.
const BEHIND: usize = 8 << 20;
