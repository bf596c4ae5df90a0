//! Payloads in order, wherever they are: the pure part of the [queue](super::queue).
//!
//! One line holds what is in memory and what is on disk, so that there is one order and one
//! count. A slot is *stored* once its payload is on disk; its body may then leave memory and be
//! fetched again. Memory alone is used only while nothing is stored: when it overflows, or when
//! the gateway stops, the line *spills*, and from then on all of it goes to disk until the disk
//! part is empty again. It spills as well for a payload that a request wants on disk. What there is
//! to do on disk is told as [`Work`], done elsewhere, and its outcome told back.

use super::WhenFull;
use super::effort::Effort;
use super::riders::Riders;
use super::trial::{Conduct, Failure, Step, Trials};
use crate::backend::Payload;
use crate::waybill::Waybill;
use bytes::Bytes;
use protocols::UnixNanos;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// How much a line may hold, and what happens beyond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes in memory.
    pub(super) memory: usize,
    /// Bytes on disk; `None` keeps to memory.
    pub(super) disk: Option<usize>,
    /// Whether points are to be kept where they survive the process, so that a request that
    /// waits for that has to wait. Without it, to be in line is all there is.
    pub(super) keeps: bool,
    /// What a full line does.
    pub(super) when_full: WhenFull,
}

/// A payload's entry on disk, without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its number, which no other payload of this line has.
    pub(super) id: i64,
    /// Its place in order, and that among the parts of what was one payload.
    pub(super) order: (i64, i64),
    /// How many points it tells.
    pub(super) points: u32,
    /// How many bytes it has.
    pub(super) bytes: usize,
    /// How many bytes its waybill takes, in memory or (of one that was found there) on disk.
    pub(super) waybill: usize,
    /// When its first point was encoded.
    pub(super) born: UnixNanos,
}

/// What of a payload may be on disk alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// The records.
    pub(super) body: Bytes,
    /// Where they came from.
    pub(super) waybill: Waybill,
}

/// What is to be done on disk, in this order.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Bodies to be fetched.
    pub(super) fetch: Vec<i64>,
    /// Payloads that have found their end.
    pub(super) erase: Vec<i64>,
    /// Payloads to be stored, in one transaction with the above.
    pub(super) store: Vec<(Record, Load)>,
}

impl Work {
    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.fetch.is_empty() && self.erase.is_empty() && self.store.is_empty()
    }
}

/// A payload on its way into line, and who rides with it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) payload: Payload,
    pub(super) riders: Riders,
}

impl From<Payload> for Entry {
    fn from(payload: Payload) -> Self {
        Self { payload, riders: Riders::default() }
    }
}

/// One payload in line.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) record: Record,
    riders: Riders,
    /// How much of the order is this one's to share with its parts.
    width: i64,
    load: Option<Load>,
    stored: bool,
    /// How the backend has failed at it, if it has.
    conduct: Option<Box<Conduct>>,
    /// Shared by all the parts of what was once one payload.
    effort: Arc<Effort>,
}

impl Slot {
    /// The payload, if its body is in memory.
    pub(super) fn payload(&self) -> Option<Payload> {
        let Record { points, born, .. } = self.record;
        let Load { body, waybill } = self.load.clone()?;
        Some(Payload::new(body, points, born).with(waybill))
    }

    /// How often the backend has failed at it.
    fn failures(&self) -> u32 {
        self.conduct.as_ref().map_or(0, |conduct| conduct.failures())
    }

    fn points(&self) -> u64 {
        u64::from(self.record.points)
    }

    fn cost(&self) -> usize {
        self.record.bytes + self.record.waybill + size_of::<Self>()
    }
}

/// A payload that a shipper takes in hand.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) id: i64,
    pub(super) payload: Payload,
    pub(super) effort: Arc<Effort>,
    /// What the backend said, if the payload was found to be what it fails at.
    pub(super) verdict: Option<Arc<str>>,
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
            // When the disk is too slow, or is only read any more, what is on it makes no room in memory.
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
        let verdict = slot.conduct.as_ref().and_then(|conduct| conduct.verdict()).cloned();
        self.claims.push((id, lane));
        Some(Claimed { id, payload, effort, verdict })
    }

    /// The backend has failed at a payload that is in hand, and may have had it to blame.
    pub(super) fn failed(&mut self, id: i64, failure: Failure<'_>) -> Step {
        let others = self.slots.iter().filter(|slot| self.could_witness(slot, id));
        let witness = others.min_by_key(|slot| slot.failures()).map(|slot| slot.record.id);
        let Some(slot) = self.place(id).and_then(|at| self.slots.get_mut(at)) else {
            return Step::Rest(None);
        };
        self.trials.failed(id, slot.conduct.get_or_insert_default(), failure, witness)
    }

    /// The backend took a payload that is in hand, or some of it.
    pub(super) fn vouch(&mut self, id: i64) {
        let Some(finding) = self.trials.delivered(id) else { return };
        let at = self.place(finding.suspect());
        if let Some(slot) = at.and_then(|at| self.slots.get_mut(at)) {
            self.trials.convict(finding, slot.conduct.get_or_insert_default());
        }
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
        self.trials.let_go(id);
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

/// What the disk sees.
impl Line {
    /// Takes up what was found on disk at the start.
    pub(super) fn recover(&mut self, records: Vec<Record>) {
        for record in records {
            self.ids = self.ids.max(record.id);
            self.order = self.order.max(record.order.0);
            let slot = Slot {
                record,
                riders: Riders::default(),
                width: 0,
                load: None,
                stored: true,
                conduct: None,
                effort: Arc::default(),
            };
            self.stored_points += slot.points();
            self.stored_cost += slot.cost();
            self.enter(self.slots.len(), slot);
        }
        self.limit(self.limits);
    }

    /// From now on everything goes to disk: the gateway stops.
    pub(super) fn close(&mut self) {
        self.closing = self.limits.disk.is_some();
        self.spilling |= self.closing;
    }

    /// What to do next on disk, if that can be read and can be written.
    pub(super) fn work(&mut self, reads: bool, writes: bool) -> Work {
        let fetch = if reads { self.missing_ahead() } else { Vec::new() };
        if !writes {
            return Work { fetch, ..Work::default() };
        }
        if !self.closing && self.stored_cost == 0 && self.cost <= self.limits.memory / 2 {
            self.spilling &= self.slots.iter().any(|slot| slot.riders.want_disk());
            if !self.spilling {
                // The next outage is to find out anew.
                self.disk_full = None;
            }
        }
        let store = if self.spilling { self.next_to_store() } else { Vec::new() };
        Work { fetch, erase: std::mem::take(&mut self.erase), store }
    }

    /// Bodies that shippers will ask for next.
    fn missing_ahead(&self) -> Vec<i64> {
        let ahead = self.ahead();
        let is_missing = |slot: &&Slot| slot.load.is_none();
        // A witness may stand far behind.
        let witness = self.slot(self.trials.witness()).filter(is_missing);
        if witness.is_none() && !self.first(ahead / 2).any(|slot| slot.load.is_none()) {
            return Vec::new();
        }
        let next = self.first(ahead).filter(is_missing);
        let missing: BTreeSet<_> = witness.into_iter().chain(next).map(|s| s.record.id).collect();
        missing.into_iter().collect()
    }

    /// The slots at the front whose bodies make so many bytes, and one in any case.
    fn first(&self, bytes: usize) -> impl Iterator<Item = &Slot> {
        let mut before = 0;
        self.slots.iter().take_while(move |slot| {
            let within = before == 0 || before + slot.record.bytes <= bytes;
            before += slot.record.bytes.max(1);
            within
        })
    }

    fn ahead(&self) -> usize {
        AHEAD.min(self.limits.memory / 2)
    }

    fn next_to_store(&self) -> Vec<(Record, Load)> {
        if self.stored_cost == self.cost {
            return Vec::new();
        }
        let most = self.store_most;
        let mut bytes = 0;
        let unstored = self.slots.iter().filter(|slot| !slot.stored);
        let next = unstored.filter_map(|slot| Some((slot.record, slot.load.clone()?)));
        next.take_while(|(record, _)| {
            let within = bytes == 0 || bytes + record.bytes <= most;
            bytes += record.bytes.max(1);
            within
        })
        .collect()
    }

    /// A body came from disk; one that is missing or damaged is given up. Answers its points.
    pub(super) fn fetched(&mut self, id: i64, load: Option<Load>) -> u64 {
        let Some(at) = self.place(id) else { return 0 };
        let Some(slot) = self.slots.get_mut(at).filter(|slot| slot.load.is_none()) else {
            return 0;
        };
        match load {
            Some(load) => {
                slot.load = Some(load);
                0
            }
            None => self.drop_at(at, SPOOL_DAMAGED),
        }
    }

    /// These are on disk now. What has meanwhile left the line must leave the disk, too.
    pub(super) fn stored(&mut self, ids: impl IntoIterator<Item = i64>) {
        for id in ids {
            self.store_most = (self.store_most * 2).clamp(1, STORE_BYTES);
            let Some(at) = self.slots.iter().rposition(|slot| slot.record.id == id) else {
                self.erase.push(id);
                continue;
            };
            let Some(slot) = self.slots.get_mut(at) else { continue };
            slot.stored = true;
            slot.riders.stored();
            self.stored_points += slot.points();
            self.stored_cost += slot.cost();
            self.disk_full = None;
        }
        self.trim();
    }

    /// Bodies on disk that nobody will ask for soon leave memory. That of the first never does:
    /// a shipper may have sent a part of it and know it by its address.
    fn trim(&mut self) {
        let kept = self.first(self.ahead()).count();
        for slot in self.slots.iter_mut().skip(kept) {
            let id = slot.record.id;
            let is_wanted = self.trials.witness() == Some(id)
                || self.claims.iter().any(|(claimed, _)| *claimed == id);
            if slot.stored && !is_wanted {
                slot.load = None;
            }
        }
    }

    /// The disk did not take so many. If it takes no single one, it is full for now.
    pub(super) fn put_off(&mut self, erase: Vec<i64>, count: usize) {
        self.store_most /= 2;
        if count <= 1 {
            self.disk_full = Some(self.stored_cost);
        }
        self.erase.extend(erase);
    }

    /// The disk part is gone: what memory still has is to be stored again, if there is to be
    /// another disk part. Answers the points of what memory has not.
    pub(super) fn forget_stored(&mut self, anew: bool) -> u64 {
        (self.stored_points, self.stored_cost) = (0, 0);
        self.erase.clear();
        self.limits.disk = self.limits.disk.filter(|_| anew);
        self.spilling &= anew;
        self.closing &= anew;
        for slot in &mut self.slots {
            slot.stored = false;
        }
        let mut lost = 0;
        while let Some(at) = self.slots.iter().position(|slot| slot.load.is_none()) {
            lost += self.drop_at(at, SPOOL_DAMAGED);
        }
        lost
    }

    /// Whether all that should be on disk is there.
    pub(super) fn is_settled(&self) -> bool {
        self.erase.is_empty() && (!self.closing || self.stored_points == self.points)
    }

    /// Whether nothing that has left is still to leave the disk.
    pub(super) fn is_erased(&self) -> bool {
        self.erase.is_empty()
    }

    /// Whether nothing is on disk, nor will be shortly.
    pub(super) fn is_off_disk(&self) -> bool {
        self.stored_cost == 0 && self.erase.is_empty() && !self.spilling
    }

    /// As [`is_off_disk`](Self::is_off_disk), whether or not what comes next will go there.
    pub(super) fn holds_no_disk(&self) -> bool {
        self.stored_cost == 0 && self.erase.is_empty()
    }

    /// Gives up what is not on disk; answers its points. Who waits for what is on disk learns
    /// that it stays there.
    pub(super) fn abandon(&mut self) -> u64 {
        let before = self.points;
        for slot in &mut self.slots {
            if slot.stored {
                slot.riders.defer();
            } else {
                slot.riders.lose(slot.points(), "shutdown", None);
            }
        }
        for slot in self.slots.iter().filter(|slot| !slot.stored) {
            self.points -= slot.points();
            self.bytes -= slot.record.bytes;
            self.cost -= slot.cost();
        }
        self.slots.retain(|slot| slot.stored);
        before - self.points
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
        self.trials.left(slot.record.id);
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

/// A payload's bytes, and what it takes to keep them in line.
pub(super) fn cost(payload: &Payload) -> usize {
    payload.body.len() + payload.waybill.bytes() + size_of::<Slot>()
}

pub(super) const QUEUE_FULL: &str = "queue_full";
pub(super) const SPOOL_DAMAGED: &str = "spool_damaged";
/// Halved at each division of a payload, of which there are fewer.
const WIDTH: i64 = 1 << 62;
/// How many bytes from the disk wait in memory for the shippers.
const AHEAD: usize = 4 << 20;
/// How many bytes may wait for the disk in any case.
const BEHIND: usize = 8 << 20;
/// How many bytes go to disk in one transaction.
const STORE_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::receipt::{Fate, Level, Receipt, Slip};

    /// Room for three payloads of one byte and not for four.
    const MEMORY: usize = 3 * (size_of::<Slot>() + 1);

    fn payload(points: u32) -> Payload {
        Payload::new("\n", points, UnixNanos(i64::from(points)))
    }

    fn line(memory: usize, disk: Option<usize>, when_full: WhenFull) -> Line {
        let mut line = Line::default();
        line.limit(Limits { memory, disk, keeps: disk.is_some(), when_full });
        line
    }

    fn points(line: &Line) -> Vec<u32> {
        line.slots.iter().map(|slot| slot.record.points).collect()
    }

    /// Payloads are named by their points. Claims the first `claimed` of a full line, then
    /// pushes number 4.
    fn check(when_full: WhenFull, claimed: usize, kept: &[u32], lost: u64) {
        let mut line = line(MEMORY, None, when_full);
        for points in 1..=3 {
            assert_eq!(line.push(payload(points)), 0);
        }
        (0..claimed).for_each(|_| assert!(line.claim(1).is_some()));
        assert_eq!(line.push(payload(4)), lost);
        assert_eq!(points(&line), kept, "{when_full:?} {claimed}");
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
        let mut line = line(0, None, WhenFull::DropOldest);
        assert_eq!(line.push(payload(1)), 0);
        assert_eq!(line.push(payload(2)), 1);
        line.limits.when_full = WhenFull::DropNewest;
        assert_eq!(line.push(payload(3)), 3);
    }

    #[test]
    fn parts_take_the_place_of_the_whole() {
        let mut line = Line::default();
        line.push(payload(9));
        line.push(payload(3));
        let Claimed { id, .. } = line.claim(1).unwrap();
        line.replace(id, [payload(1), payload(2)]);
        let orders: Vec<_> = line.slots.iter().map(|slot| slot.record.order).collect();
        assert!(orders.is_sorted() && orders[0] < orders[1], "{orders:?}");
        let mut next = || line.claim(1).map(|claimed| claimed.payload.points);
        assert_eq!([next(), next(), next(), next()], [Some(1), Some(2), Some(3), None]);
    }

    #[test]
    fn a_witness_is_fetched_from_wherever_it_stands() {
        let mut line = line(MEMORY, Some(usize::MAX), WhenFull::DropOldest);
        (1..=9).for_each(|points| assert_eq!(line.push(payload(points)), 0));
        let stored = line.work(true, true).store;
        line.stored(stored.iter().map(|(record, _)| record.id));
        let now = tokio::time::Instant::now();
        let (divisible, explorable, patience) = (false, false, std::time::Duration::ZERO);
        let failure = Failure { now, patience, words: "500", divisible, explorable };
        let mut witnesses = Vec::new();
        for _ in 2..=9 {
            let suspect = line.claim(1).unwrap().id;
            assert_eq!((suspect, line.failed(suspect, failure)), (1, Step::Witness));
            line.let_go(suspect);
            let witness = line.trials.witness().unwrap();
            for id in line.work(true, false).fetch {
                line.fetched(id, Some(Load { body: Bytes::from_static(b"\n"), ..Load::default() }));
            }
            line.trim();
            assert_eq!(line.claim(1).unwrap().id, witness);
            assert!(line.claim(1).is_none(), "nobody else is tried meanwhile");
            assert_eq!(line.failed(witness, failure), Step::Rest(None));
            line.let_go(witness);
            witnesses.push(witness);
        }
        assert_eq!(witnesses, [2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn all_of_memory_goes_to_disk_when_it_overflows() {
        let mut line = line(MEMORY, Some(usize::MAX), WhenFull::DropOldest);
        (1..=3).for_each(|points| assert_eq!(line.push(payload(points)), 0));
        assert!(line.work(true, true).is_empty(), "memory is enough");
        assert_eq!(line.push(payload(4)), 0);
        let stored: Vec<_> = line.work(true, true).store.iter().map(|(r, _)| r.points).collect();
        assert_eq!(stored, [1, 2, 3, 4]);
    }

    /// A payload of so many points that somebody wants on disk.
    fn wanted(points: u32) -> (Entry, Receipt) {
        let (slip, receipt) = Slip::new(Level::Queued);
        let riders = Riders::new(Some(slip.hold("b", points.into())), false);
        (Entry { payload: payload(points), riders }, receipt)
    }

    async fn is_kept(receipt: Receipt) -> bool {
        receipt.by(std::future::ready(())).await == Fate::Kept
    }

    #[tokio::test]
    async fn what_somebody_wants_on_disk_goes_there_and_all_that_is_before_it() {
        let mut line = line(usize::MAX >> 1, Some(usize::MAX), WhenFull::DropOldest);
        line.push(payload(1));
        assert!(line.work(true, true).is_empty());
        let ((entry, receipt), (_, early)) = (wanted(2), wanted(2));
        line.push(entry);
        assert!(is_kept(early).await, "its slip and hold are gone");
        let stored = line.work(true, true).store;
        assert_eq!(stored.iter().map(|(record, _)| record.points).collect::<Vec<_>>(), [1, 2]);
        line.stored(stored.iter().map(|(record, _)| record.id));
        assert!(is_kept(receipt).await);
    }

    #[tokio::test]
    async fn what_is_delivered_before_the_disk_has_it_is_kept_as_well() {
        let mut line = line(usize::MAX >> 1, Some(usize::MAX), WhenFull::DropOldest);
        let (entry, receipt) = wanted(1);
        line.push(entry);
        let Claimed { id, .. } = line.claim(1).unwrap();
        line.commit(id);
        assert!(is_kept(receipt).await);
        let (entry, receipt) = wanted(1);
        line.push(entry);
        assert!(!is_kept(receipt).await);
    }

    #[test]
    fn memory_alone_is_used_again_when_the_disk_part_is_empty() {
        let mut line = line(MEMORY, Some(usize::MAX), WhenFull::DropOldest);
        (1..=4).for_each(|points| assert_eq!(line.push(payload(points)), 0));
        let stored = line.work(true, true).store;
        line.stored(stored.iter().map(|(record, _)| record.id));
        while let Some(Claimed { id, .. }) = line.claim(1) {
            line.commit(id);
            let fetch = line.work(true, false).fetch;
            fetch.into_iter().for_each(|id| {
                line.fetched(id, Some(Load::default()));
            });
        }
        assert_eq!(line.work(true, true).erase, [1, 2, 3, 4]);
        line.push(payload(5));
        assert!(line.work(true, true).is_empty());
    }

    /// As after a reload to `spool = false`: dropping what is on disk would free no memory.
    #[test]
    fn what_is_on_disk_makes_no_room_in_memory() {
        let mut line = line(MEMORY, Some(usize::MAX), WhenFull::DropOldest);
        (1..=4).for_each(|points| assert_eq!(line.push(payload(points)), 0));
        let stored = line.work(true, true).store;
        line.stored(stored.iter().map(|(record, _)| record.id));
        let when_full = WhenFull::DropOldest;
        line.limit(Limits { memory: MEMORY, disk: None, keeps: false, when_full });
        let lost: u64 = (5..=9).map(|points| line.push(payload(points))).sum();
        assert_eq!((points(&line), lost), (vec![1, 2, 3, 4, 7, 8, 9], 5 + 6));
    }

    #[test]
    fn a_disk_that_was_full_is_asked_again_before_anything_is_dropped() {
        let mut line = line(MEMORY, Some(usize::MAX), WhenFull::DropOldest);
        (1..=4).for_each(|points| assert_eq!(line.push(payload(points)), 0));
        assert_eq!(line.work(true, true).store.len(), 4);
        line.put_off(Vec::new(), 1);
        while let Some(Claimed { id, .. }) = line.claim(1) {
            line.commit(id);
        }
        assert!(line.work(true, true).is_empty(), "all went to the backend");
        let lost: u64 = (5..=8).map(|points| line.push(payload(points))).sum();
        assert_eq!((lost, line.work(true, true).store.len()), (0, 4));
    }

    #[test]
    fn a_full_disk_is_a_full_queue() {
        for (when_full, kept) in [
            (WhenFull::DropOldest, vec![4, 5, 6, 7, 8, 9, 10]),
            (WhenFull::DropNewest, vec![1, 2, 3, 4, 5, 6, 7]),
        ] {
            let mut line = line(MEMORY, Some(usize::MAX), when_full);
            (1..=4).for_each(|points| assert_eq!(line.push(payload(points)), 0));
            let stored = line.work(true, true).store;
            line.stored(stored.iter().map(|(record, _)| record.id));
            line.put_off(Vec::new(), 1);
            let lost: u64 = (5..=10).map(|points| line.push(payload(points))).sum();
            assert_eq!(points(&line), kept, "{when_full:?}");
            assert_eq!(lost, 55 - kept.iter().sum::<u32>() as u64);
        }
    }
}
