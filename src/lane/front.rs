//! What a receiving task sees of a lane: its shard of the windows, and a load to fill.
//!
//! A front lives for one received batch. It never waits, and takes in a point of a known series without
//! an allocation. In an aggregating lane, points of statsd kinds go into the worker's shard, unless they
//! have a time of their own. Everything else is copied and sent to the shaper when the front is closed;
//! where the backend gets a line as it came, the line itself is copied. Counts `handed`, and as dropped
//! `inbox_full` (the shaper is behind by [`super::INBOX`] batches or [`super::INBOX_BYTES_MAX`]),
//! `series_limit`, `sample_limit` and `unrepresentable` (a negative timing in layout `statsd`, and what
//! line protocol has no words for, where windows do not sum it up), and tells the requests that wait of
//! each. Those requests, and the room that was promised to them, go on with the points.

use super::Handle;
use super::Terms;
use super::layout::{family, folds, is_classic_name, make_classic, refuses};
use super::parcel::{Load, Parcel};
use super::receipt::Hold;
use super::reserve::Reservation;
use super::riders::Riders;
use super::series::{of_kind, series_hash};
use super::table::Series;
use super::windows::{Place, Shard, Taken};
use crate::waybill::{Manifest, Sender, Via};
use protocols::form::Figure;
use protocols::influxdb::Stencil;
use protocols::{Kind, Measure, Point, UnixNanos};
use std::sync::{Arc, MutexGuard};
use tokio::sync::mpsc::error::TrySendError;

/// A time and a value.
pub type Reading<'r> = (UnixNanos, &'r Figure);

/// A receiving task's hold on a lane, for one batch of points.
#[derive(Debug)]
pub struct Front<'a> {
    lane: &'a Handle,
    worker: usize,
    received: UnixNanos,
    sender: Sender<'a>,
    shard: Option<MutexGuard<'a, Shard>>,
    turn: u64,
    raw: Option<(Load, Manifest)>,
    handed: u64,
    absorbed: u64,
    no_place: u64,
    no_room: u64,
    unrepresentable: u64,
    terms: Terms<'a>,
}

impl<'a> Front<'a> {
    pub(super) fn new(
        lane: &'a Handle,
        worker: usize,
        received: UnixNanos,
        sender: Sender<'a>,
        terms: Terms<'a>,
    ) -> Self {
        Self {
            lane,
            worker,
            received,
            sender,
            shard: None,
            turn: 0,
            raw: None,
            handed: 0,
            absorbed: 0,
            no_place: 0,
            no_room: 0,
            unrepresentable: 0,
            terms,
        }
    }

    /// Takes a point in; `hash` is [`series_hash`] of its name and tags, `via` the route that
    /// hands it over. Answers where its series stands now, if the window has a place for it.
    pub fn take(&mut self, point: &Point<'_>, hash: u64, via: &Arc<Via>) -> Option<Place> {
        self.handed += 1;
        let settings = &self.lane.settings;
        if !settings.aggregate && !self.says(point) {
            self.unrepresentable += 1;
        } else if !settings.aggregate || !folds(point.measure.kind()) {
            self.pass(point, hash, via);
        } else if refuses(settings.layout, &point.measure) {
            self.unrepresentable += 1;
        } else if point.time.is_some() {
            self.pass(point, hash, via);
        } else {
            return self.absorb(point, hash);
        }
        None
    }

    /// Whether a series still stands where it stood.
    pub fn is_current(&mut self, place: Place) -> bool {
        let lane = self.lane;
        self.shard().is_some_and(|(shard, _)| lane.state.windows.is_current(shard, place))
    }

    /// Takes in a point of the series at a [current](Self::is_current) place, as
    /// [`take`](Self::take) does.
    #[inline]
    pub fn repeat(&mut self, place: Place, measure: &Measure<'_>) {
        self.handed += 1;
        let lane = self.lane;
        if refuses(lane.settings.layout, measure) {
            self.unrepresentable += 1;
            return;
        }
        let Some((shard, turn)) = self.shard() else { return };
        let taken = lane.state.windows.absorb(shard, place, measure, turn);
        self.count(taken.unwrap_or(Taken::NoPlace), "");
    }

    /// Whether [`relay`](Self::relay) may be given the line instead of its only point, and also lines that
    /// differ from it only in the value; see
    /// [`Verbatim::relays`](protocols::statsd::Verbatim::relays).
    pub fn relays(&self, point: &Point<'_>, line: &[u8]) -> bool {
        self.lane.verbatim.is_some_and(|verbatim| verbatim.relays(point, line))
    }

    /// Takes in a line, without its LF, that goes out as it came and has one point. Answers whether it did:
    /// a line that is too long is not taken, nor is any by a lane that changes lines.
    #[must_use]
    pub fn relay(&mut self, line: &[u8], via: &Arc<Via>) -> bool {
        if !self.fits(line) {
            return false;
        }
        self.handed += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (load, manifest) = self.raw();
        load.lines.extend_from_slice(line);
        load.lines.push(b'\n');
        manifest.note_line(line.len() + 1, via);
        true
    }

    /// Appends what all lines for readings of a series begin with, if [`write`](Self::write) may be given
    /// those readings.
    pub fn head(&self, point: &Point<'_>, out: &mut Vec<u8>) -> Option<()> {
        let stencil = self.lane.stencil?;
        let is_reading = matches!(point.measure, Measure::Reading(_)) && point.rest.is_empty();
        stencil.head(point.name, point.tags, Kind::Sample, out).filter(|()| is_reading)
    }

    /// Whether every point goes the same way, by [`take`](Self::take) and to an encoder: the lane sums
    /// nothing up, and sends no line as it came, which its value would decide.
    pub fn passes(&self) -> bool {
        !self.lane.settings.aggregate && self.lane.verbatim.is_none()
    }

    /// Appends what all lines for points of a series and kind begin with, which come without a time, if
    /// [`keep`](Self::keep) may be given those points; nothing, if it refuses all of them.
    pub fn head_of_kept(&self, point: &Point<'_>, out: &mut Vec<u8>) -> Option<()> {
        let (stencil, settings, kind) =
            (self.lane.stencil?, &self.lane.settings, point.measure.kind());
        if settings.aggregate || !settings.stamp || point.time.is_some() || !folds(kind) {
            return None;
        }
        match kind {
            Kind::Counter | Kind::Gauge => stencil.head(point.name, point.tags, kind, out),
            _ => (!self.says(point)).then_some(()),
        }
    }

    /// Takes in a point of statsd without a time, whose lines begin with `head`, as
    /// [`take`](Self::take) does; `hash` is that of the series. What it is written with is finite.
    #[inline]
    pub fn keep(&mut self, head: &[u8], hash: u64, measure: &Measure<'_>, via: &Arc<Via>) {
        let Some(stencil) = self.lane.stencil else { return };
        self.handed += 1;
        let Some(value) = stencil.value(measure) else {
            self.unrepresentable += 1;
            return;
        };
        let (time, kind) = (self.received, measure.kind());
        let (load, manifest) = self.raw();
        let start = load.lines.len();
        stencil.line_of(head, value, load.end.of(time), &mut load.lines);
        manifest.note_record(load.record(start, hash, time, kind), via);
    }

    /// Takes in a reading of a series whose lines begin with `head`, as [`take`](Self::take) does;
    /// `hash` is that of the series.
    #[inline]
    pub fn write(&mut self, head: &[u8], hash: u64, (time, figure): Reading<'_>, via: &Arc<Via>) {
        let Some(stencil) = self.lane.stencil else { return };
        self.handed += 1;
        let (load, manifest) = self.raw();
        let start = load.lines.len();
        stencil.line(head, figure, load.end.of(time), &mut load.lines);
        manifest.note_record(load.record(start, hash, time, Kind::Sample), via);
    }

    /// Whether the lane hands lines on as they are, and this one is not too long for it.
    pub fn fits(&self, line: &[u8]) -> bool {
        self.lane.verbatim.is_some_and(|verbatim| verbatim.fits(line))
    }

    /// Hands over what was taken. Dropping the front does the same.
    pub fn close(self) {}

    /// Whether the backend can be told a point; if not, nobody needs to try. What has no name is
    /// refused for that.
    fn says(&self, point: &Point<'_>) -> bool {
        let says = |stencil: Stencil| stencil.says(&point.measure);
        self.lane.stencil.is_none_or(says) || point.name.is_empty()
    }

    fn pass(&mut self, point: &Point<'_>, hash: u64, via: &Arc<Via>) {
        let stamp = self.lane.settings.stamp.then_some(self.received);
        let (load, manifest) = self.raw();
        manifest.note(via, hash);
        load.batch.push(&Point { time: point.time.or(stamp), ..*point });
    }

    fn raw(&mut self) -> &mut (Load, Manifest) {
        let (lane, sender) = (self.lane, self.sender);
        self.raw.get_or_insert_with(|| (lane.state.spare(), Manifest::new(sender)))
    }

    fn absorb(&mut self, point: &Point<'_>, hash: u64) -> Option<Place> {
        let lane = self.lane;
        let (shard, turn) = self.shard()?;
        let taken = take(lane, shard, point, hash, turn);
        self.count(taken, point.name)
    }

    /// The worker's shard, held from the first point on that goes there, and the batch's turn.
    #[inline]
    fn shard(&mut self) -> Option<(&mut Shard, u64)> {
        if self.shard.is_none() {
            self.shard = self.lane.state.windows.shard(self.worker);
            self.turn = self.lane.state.windows.turn();
        }
        let turn = self.turn;
        self.shard.as_deref_mut().map(|shard| (shard, turn))
    }

    #[inline]
    fn count(&mut self, taken: Taken, name: &str) -> Option<Place> {
        match taken {
            Taken::In(place) => {
                self.absorbed += 1;
                return Some(place);
            }
            Taken::NoRoom => self.no_room += 1,
            Taken::NoPlace => {
                self.no_place += 1;
                self.lane.warn_of_series(name);
            }
        }
        None
    }

    fn send(&mut self, riders: Riders) {
        let Some((load, manifest)) = self.raw.take() else { return };
        let state = &self.lane.state;
        let has_room = self.terms.room.is_some() || state.has_room(load.bytes());
        let parcel = Parcel::new(load, manifest, riders, state);
        if !has_room {
            return self.give_up(parcel, "inbox_full");
        }
        if let Some(place) = self.terms.room.as_mut().and_then(Reservation::place) {
            place.send(parcel);
            return;
        }
        match self.lane.inbox.try_send(parcel) {
            Ok(()) => {}
            Err(TrySendError::Full(parcel)) => self.give_up(parcel, "inbox_full"),
            Err(TrySendError::Closed(parcel)) => self.give_up(parcel, "shutdown"),
        }
    }

    fn give_up(&self, parcel: Parcel, reason: &'static str) {
        let state = &self.lane.state;
        state.book.dropped.add(reason, parcel.len() as u64);
        state.give_back(parcel.give_up(reason));
    }

    /// Counts what was not taken, and tells who waits for it.
    fn drop_points(&self, count: u64, reason: &'static str, hold: Option<&Hold>) {
        self.lane.state.book.dropped.add(reason, count);
        if let Some(hold) = hold {
            hold.lose(count, reason, None);
        }
    }
}

impl Drop for Front<'_> {
    fn drop(&mut self) {
        let book = &self.lane.state.book;
        if self.handed == 0 {
            return;
        }
        book.handed.add(self.handed);
        let hold = self.terms.slip.map(|slip| slip.hold(&self.lane.settings.name, self.handed));
        let riders = Riders::new(hold.clone(), self.terms.room.is_some());
        // While the shard is still locked: the shaper must not take points away that are
        // not there yet.
        book.windows.add(self.absorbed);
        if let Some(shard) = self.shard.as_deref_mut().filter(|_| self.absorbed > 0) {
            self.lane.state.windows.tell(shard);
            shard.riders.join(&riders);
        }
        self.shard = None;
        self.drop_points(self.no_place, "series_limit", hold.as_ref());
        self.drop_points(self.no_room, "sample_limit", hold.as_ref());
        self.drop_points(self.unrepresentable, "unrepresentable", hold.as_ref());
        self.send(riders);
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
