//! Keys that the disk has not taken: until the next transaction, or for as long as it is ill.

use super::{Entry, Name};
use protocols::UnixNanos;
use std::collections::VecDeque;

/// The oldest first.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    entries: VecDeque<Entry>,
    units: u64,
}

impl Unwritten {
    /// Adds one. What memory does not hold any more is handed back.
    pub(super) fn push(&mut self, entry: Entry) -> Vec<Entry> {
        self.remove(|held| held.name == entry.name);
        self.units += entry.units();
        self.entries.push_back(entry);
        let mut forgotten = Vec::new();
        while self.units > UNITS_MAX {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.units -= oldest.units();
            forgotten.push(oldest);
        }
        forgotten
    }

    pub(super) fn find(&self, name: &Name, now: UnixNanos) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == *name && entry.expires > now)
    }

    pub(super) fn all(&mut self) -> &[Entry] {
        self.entries.make_contiguous()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many belong to a listener.
    pub(super) fn held(&self, listener: &str) -> u64 {
        self.entries.iter().filter(|entry| &*entry.name.listener == listener).count() as u64
    }

    pub(super) fn expire(&mut self, now: UnixNanos) {
        self.remove(|entry| entry.expires <= now);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn remove(&mut self, is_old: impl Fn(&Entry) -> bool) {
        self.entries.retain(|entry| !is_old(entry));
        self.units = self.entries.iter().map(Entry::units).sum();
    }
}

/// At the most 20 MiB of answers and their keys.
pub(super) const UNITS_MAX: u64 = 10_000;
