//! Points between the receiving task that hands them over and the shaper that takes them.

use super::State;
use super::riders::Riders;
use crate::waybill::Manifest;
use protocols::influxdb::End;
use protocols::{Batch, Kind, UnixNanos};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

/// What a parcel carries: points to be encoded, lines that go out as they came, and records that
/// are written already. The order of all together is in the manifest.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) batch: Batch,
    /// One point each, and each with its LF; records stand among them.
    pub(super) lines: Vec<u8>,
    /// Of those of the lines that are records.
    pub(super) records: Vec<Record>,
    /// Of the last record.
    pub(super) end: End,
}

/// A point that needs no encoder any more, only a time that its series has for itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Of its series.
    pub(super) hash: u64,
    /// As it is written.
    pub(super) time: UnixNanos,
    /// How many bytes it has, with its LF.
    pub(super) bytes: u32,
    /// Of the point.
    pub(super) kind: Kind,
}

impl Load {
    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.batch.bytes() + self.lines.len() + size_of_val(&*self.records)
    }

    /// Notes the line that begins there as a record; answers how long it is.
    #[inline]
    pub(super) fn record(&mut self, start: usize, hash: u64, time: UnixNanos, kind: Kind) -> usize {
        let length = self.lines.len() - start;
        // A series has less than 64 KiB.
        let bytes = u32::try_from(length).unwrap_or(u32::MAX);
        self.records.push(Record { hash, time, bytes, kind });
        length
    }

    /// Empties it and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.batch.clear();
        self.lines.clear();
        self.records.clear();
    }
}

/// A load on its way to a shaper; what of it never arrives is counted as lost to the shutdown.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) load: Load,
    pub(super) manifest: Manifest,
    pub(super) riders: Riders,
    /// The next point of the batch that the shaper works on.
    pub(super) point: usize,
    /// Where the next line begins.
    pub(super) line: usize,
    /// The next record.
    pub(super) record: usize,
    points: usize,
    /// How many of its points the shaper has accounted for.
    done: usize,
    bytes: usize,
    /// When it was handed over.
    since: Instant,
    state: Arc<State>,
}

impl Parcel {
    /// Wraps a load and counts it.
    pub(super) fn new(load: Load, manifest: Manifest, riders: Riders, state: &Arc<State>) -> Self {
        let (points, bytes) = (load.batch.len() + manifest.lines(), load.bytes());
        state.book.inbox.add(points as u64);
        state.inbox_bytes.fetch_add(bytes, Relaxed);
        let (since, state) = (Instant::now(), Arc::clone(state));
        let (point, line, record, done) = (0, 0, 0, 0);
        Self { load, manifest, riders, point, line, record, points, done, bytes, since, state }
    }

    /// How many points it carries.
    pub(super) const fn len(&self) -> usize {
        self.points
    }

    /// As [`unpack`](Self::unpack), and tells who waits that nothing will come of it.
    pub(super) fn give_up(self, reason: &'static str) -> Load {
        self.riders.lose(self.points as u64, reason, None);
        self.unpack()
    }

    /// The load, of which the caller has to account now for what is not done.
    pub(super) fn unpack(mut self) -> Load {
        self.finish(self.points - self.done);
        std::mem::take(&mut self.load)
    }

    /// The caller has accounted for so many more points.
    pub(super) fn finish(&mut self, points: usize) {
        self.state.book.inbox.sub(points as u64);
        self.done += points;
    }

    /// How long it has waited by now.
    pub(super) fn wait(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether all is accounted for.
    pub(super) const fn is_done(&self) -> bool {
        self.done >= self.points
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        let left = self.points.saturating_sub(self.done);
        self.state.book.inbox.sub(left as u64);
        self.state.book.dropped.add("shutdown", left as u64);
        self.riders.lose(left as u64, "shutdown", None);
        self.state.inbox_bytes.fetch_sub(self.bytes, Relaxed);
    }
}
