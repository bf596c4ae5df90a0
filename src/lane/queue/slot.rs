//! One payload in line: what is told of it, what of it may be on disk alone, and who rides with it.

use super::effort::Effort;
use super::trial::Conduct;
use crate::backend::Payload;
use crate::lane::riders::Riders;
use crate::waybill::Waybill;
use bytes::Bytes;
use protocols::UnixNanos;
use std::sync::Arc;

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

/// A payload on its way into line, and who rides with it.
#[derive(Debug)]
pub(in crate::lane) struct Entry {
    pub(in crate::lane) payload: Payload,
    pub(in crate::lane) riders: Riders,
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
    pub(super) riders: Riders,
    /// How much of the order is this one's to share with its parts.
    pub(super) width: i64,
    pub(super) load: Option<Load>,
    pub(super) stored: bool,
    /// How the backend has failed at it, if it has.
    pub(super) conduct: Option<Box<Conduct>>,
    /// Shared by all the parts of what was once one payload.
    pub(super) effort: Arc<Effort>,
}

impl Slot {
    /// The payload, if its body is in memory.
    pub(super) fn payload(&self) -> Option<Payload> {
        let Record { points, born, .. } = self.record;
        let Load { body, waybill } = self.load.clone()?;
        Some(Payload::new(body, points, born).with(waybill))
    }

    /// How often the backend has failed at it.
    pub(super) fn failures(&self) -> u32 {
        self.conduct.as_ref().map_or(0, |conduct| conduct.failures())
    }

    pub(super) fn points(&self) -> u64 {
        u64::from(self.record.points)
    }

    pub(super) fn cost(&self) -> usize {
        self.record.bytes + self.record.waybill + size_of::<Self>()
    }
}

/// A payload's bytes, and what it takes to keep them in line.
pub(super) fn cost(payload: &Payload) -> usize {
    payload.body.len() + payload.waybill.bytes() + size_of::<Slot>()
}
