//! What a receiving task sees of a lane: its shard of the windows, and a batch to fill.
//!
//! A front lives for one received batch. It never waits, and takes a point of a known series
//! in without an allocation. Statsd kinds of an aggregating lane go into the worker's shard,
//! unless the point has a time of its own; whatever else comes is copied and sent to the
//! shaper when the front is closed. Counts `handed`, and as dropped `inbox_full` (the shaper
//! is behind by [`super::INBOX`] batches or [`super::INBOX_BYTES_MAX`]), `series_limit`, `sample_limit` and
//! `unrepresentable` (a negative timing in layout `statsd`).

use super::Handle;
use super::layout::{family, folds, is_classic_name, make_classic, refuses};
use super::series::{of_kind, series_hash};
use super::shaper::Parcel;
use super::table::Series;
use super::windows::{Shard, Taken};
use crate::origin::Origin;
use crate::waybill::{Manifest, Via};
use protocols::{Batch, Point, UnixNanos};
use std::sync::{Arc, MutexGuard};
use tokio::sync::mpsc::error::TrySendError;

/// A receiving task's hold on a lane, for one batch of points.
#[derive(Debug)]
pub struct Front<'a> {
    lane: &'a Handle,
    worker: usize,
    received: UnixNanos,
    origin: &'a Origin,
    shard: Option<MutexGuard<'a, Shard>>,
    turn: u64,
    raw: Option<(Batch, Manifest)>,
    handed: u64,
    absorbed: u64,
    no_place: u64,
    no_room: u64,
    unrepresentable: u64,
}

impl<'a> Front<'a> {
    pub(super) fn new(
        lane: &'a Handle,
        worker: usize,
        received: UnixNanos,
        origin: &'a Origin,
    ) -> Self {
        Self {
            lane,
            worker,
            received,
            origin,
            shard: None,
            turn: 0,
            raw: None,
            handed: 0,
            absorbed: 0,
            no_place: 0,
            no_room: 0,
            unrepresentable: 0,
        }
    }

    /// Takes a point in; `hash` is [`series_hash`] of its name and tags, `via` the route that
    /// hands it over.
    pub fn take(&mut self, point: &Point<'_>, hash: u64, via: &Arc<Via>) {
        self.handed += 1;
        let settings = &self.lane.settings;
        if !settings.aggregate || !folds(point.measure.kind()) {
            self.pass(point, via);
        } else if refuses(settings.layout, &point.measure) {
            self.unrepresentable += 1;
        } else if point.time.is_some() {
            self.pass(point, via);
        } else {
            self.absorb(point, hash);
        }
    }

    /// Hands over what was taken. Dropping the front does the same.
    pub fn close(self) {}

    fn pass(&mut self, point: &Point<'_>, via: &Arc<Via>) {
        let lane = self.lane;
        let stamp = lane.settings.stamp.then_some(self.received);
        let origin = self.origin;
        let (raw, manifest) =
            self.raw.get_or_insert_with(|| (lane.state.spare(), Manifest::new(origin.clone())));
        manifest.note(via);
        raw.push(&Point { time: point.time.or(stamp), ..*point });
    }

    fn absorb(&mut self, point: &Point<'_>, hash: u64) {
        let lane = self.lane;
        if self.shard.is_none() {
            self.shard = lane.state.windows.shard(self.worker);
            self.turn = lane.state.windows.turn();
        }
        let Some(shard) = self.shard.as_deref_mut() else { return };
        match take(lane, shard, point, hash, self.turn) {
            Taken::In => self.absorbed += 1,
            Taken::NoRoom => self.no_room += 1,
            Taken::NoPlace => {
                self.no_place += 1;
                lane.warn_of_series(point.name);
            }
        }
    }

    fn send(&mut self) {
        let Some((batch, manifest)) = self.raw.take() else { return };
        let state = &self.lane.state;
        if !state.has_room(batch.bytes()) {
            return self.give_up(batch, "inbox_full");
        }
        let (refused, reason) = match self.lane.inbox.try_send(Parcel::new(batch, manifest, state))
        {
            Ok(()) => return,
            Err(TrySendError::Full(parcel)) => (parcel, "inbox_full"),
            Err(TrySendError::Closed(parcel)) => (parcel, "shutdown"),
        };
        self.give_up(refused.unpack(), reason);
    }

    fn give_up(&self, batch: Batch, reason: &'static str) {
        let state = &self.lane.state;
        state.book.dropped.add(reason, batch.len() as u64);
        state.give_back(batch);
    }
}

impl Drop for Front<'_> {
    fn drop(&mut self) {
        let book = &self.lane.state.book;
        book.handed.add(self.handed);
        // While the shard is still locked: the shaper must not take points away that are
        // not there yet.
        book.windows.add(self.absorbed);
        self.shard = None;
        book.dropped.add("series_limit", self.no_place);
        book.dropped.add("sample_limit", self.no_room);
        book.dropped.add("unrepresentable", self.unrepresentable);
        self.send();
    }
}

fn take(lane: &Handle, shard: &mut Shard, point: &Point<'_>, hash: u64, turn: u64) -> Taken {
    let settings = &lane.settings;
    let kind = family(settings.layout, point.measure.kind());
    let windows = &lane.state.windows;
    let take = |shard: &mut Shard, name: &str, hash: u64| {
        let series = Series { hash: of_kind(hash, kind), kind, name, tags: point.tags };
        windows.take(shard, &series, &point.measure, turn, settings.max_series)
    };
    if settings.layout == super::Layout::Fields || is_classic_name(point.name) {
        return take(shard, point.name, hash);
    }
    // Names are made fit before series are told apart, as statsd/statsd does it.
    let mut name = std::mem::take(&mut shard.scratch);
    name.clear();
    make_classic(point.name, &mut name);
    let taken = take(shard, &name, series_hash(&name, point.tags));
    shard.scratch = name;
    taken
}
