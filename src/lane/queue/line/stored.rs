//! What of a line the disk sees: what is to go there, to come from there, and to leave it.
//!
//! Nothing here waits or fails. [`Work`] tells what there is to do; whoever has done it says what
//! became of it, by [`stored`](Line::stored), [`fetched`](Line::fetched),
//! [`put_off`](Line::put_off) or [`forget_stored`](Line::forget_stored).

use super::{Line, SPOOL_DAMAGED};
use crate::lane::queue::slot::{Load, Record, Slot};
use crate::lane::riders::Riders;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is to be done on disk, in this order.
#[derive(Debug, Default)]
pub(in crate::lane::queue) struct Work {
    /// Bodies to be fetched.
    pub(in crate::lane::queue) fetch: Vec<i64>,
    /// Payloads that have found their end.
    pub(in crate::lane::queue) erase: Vec<i64>,
    /// Payloads to be stored, in one transaction with the above.
    pub(in crate::lane::queue) store: Vec<(Record, Load)>,
}

impl Work {
    /// Whether there is nothing to do.
    pub(in crate::lane::queue) fn is_empty(&self) -> bool {
        self.fetch.is_empty() && self.erase.is_empty() && self.store.is_empty()
    }
}

impl Line {
    /// Takes up what was found on disk at the start.
    pub(in crate::lane::queue) fn recover(&mut self, records: Vec<Record>) {
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
    pub(in crate::lane::queue) fn close(&mut self) {
        self.closing = self.limits.disk.is_some();
        self.spilling |= self.closing;
    }

    /// Whether there is a disk to go to.
    pub(in crate::lane::queue) const fn has_disk(&self) -> bool {
        self.limits.disk.is_some()
    }

    /// What to do next on disk, if that can be read and can be written.
    pub(in crate::lane::queue) fn work(&mut self, reads: bool, writes: bool) -> Work {
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
    pub(in crate::lane::queue) fn fetched(&mut self, id: i64, load: Option<Load>) -> u64 {
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
    pub(in crate::lane::queue) fn stored(&mut self, ids: impl IntoIterator<Item = i64>) {
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
    pub(super) fn trim(&mut self) {
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
    pub(in crate::lane::queue) fn put_off(&mut self, erase: Vec<i64>, count: usize) {
        self.store_most /= 2;
        if count <= 1 {
            self.disk_full = Some(self.stored_cost);
        }
        self.erase.extend(erase);
    }

    /// The disk part is gone: what memory still has is to be stored again, if there is to be
    /// another disk part. Answers the points of what memory has not.
    pub(in crate::lane::queue) fn forget_stored(&mut self, anew: bool) -> u64 {
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
    pub(in crate::lane::queue) fn is_settled(&self) -> bool {
        self.erase.is_empty() && (!self.closing || self.stored_points == self.points)
    }

    /// Whether nothing that has left is still to leave the disk.
    pub(in crate::lane::queue) fn is_erased(&self) -> bool {
        self.erase.is_empty()
    }

    /// Whether nothing is on disk, nor will be shortly.
    pub(in crate::lane::queue) fn is_off_disk(&self) -> bool {
        self.stored_cost == 0 && self.erase.is_empty() && !self.spilling
    }

    /// As [`is_off_disk`](Self::is_off_disk), whether or not what comes next will go there.
    pub(in crate::lane::queue) fn holds_no_disk(&self) -> bool {
        self.stored_cost == 0 && self.erase.is_empty()
    }

    /// Gives up what is not on disk; answers its points. Who waits for what is on disk learns
    /// that it stays there.
    pub(in crate::lane::queue) fn abandon(&mut self) -> u64 {
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

/// How many bytes from the disk wait in memory for the shippers.
const AHEAD: usize = 4 << 20;
/// How many bytes go to disk in one transaction.
pub(super) const STORE_BYTES: usize = 4 << 20;
