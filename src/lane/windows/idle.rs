//! Series between the windows in which they are seen: gauges run on, and what is idle is repeated
//! until it expires.

use super::closed::Terms;
use super::pages::{Pages, blank};
use crate::clock::nanos;
use crate::lane::aggregate::Aggregate;
use crate::lane::trail::Trail;
use crate::lane::{Expire, ExpireAfter};
use protocols::Kind;
use serde::{Deserialize, Serialize};

/// What is kept of series between the windows in which they are seen, by their places.
#[derive(Debug, Default)]
pub(super) struct Idles {
    places: Pages<Option<Idle>>,
    count: usize,
}

/// A series between the windows in which it is seen.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Idle {
    /// Where a gauge stands.
    value: f64,
    /// The end of the last window in which it was seen, in nanoseconds since 1970.
    seen: i64,
}

impl Idles {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether something is kept of the series at a place.
    pub(super) fn has(&self, at: u32) -> bool {
        self.get(at).is_some()
    }

    /// What is kept of the series at a place.
    pub(super) fn get(&self, at: u32) -> Option<Idle> {
        self.places.get(at).copied().flatten()
    }

    /// Keeps something of the series at a place.
    pub(super) fn keep(&mut self, at: u32, idle: Idle) {
        let place = self.places.make(at, blank);
        if place.and_then(|place| place.replace(idle)).is_none() {
            self.count += 1;
        }
    }

    /// Lets a gauge run on from where it stood, and notes what is to outlive the window.
    pub(super) fn outlive(
        &mut self,
        at: u32,
        kind: Kind,
        aggregate: &mut Aggregate,
        terms: &Terms,
    ) {
        let idle = self.get(at);
        let value = settle(aggregate, idle.map_or(0.0, |idle| idle.value));
        if idle.is_some() || outlives(&terms.expire, kind) {
            self.keep(at, Idle { value, seen: terms.stamp.0 });
        }
    }

    /// What an idle series says in a window in which it was not seen. One that was idle for too long
    /// is forgotten.
    pub(super) fn repeat(&mut self, at: u32, kind: Kind, terms: &Terms) -> Option<Aggregate> {
        // Of a window that was written in part it may have been seen in that part.
        let idle = self.get(at).filter(|idle| terms.repeats && idle.seen != terms.stamp.0)?;
        if has_expired(kind, idle, terms) {
            self.forget(at);
            return None;
        }
        Some(repeated(kind, idle))
    }

    /// Gives a page back in which nothing is kept.
    pub(super) fn tidy(&mut self, page: usize) {
        if self.places.page(page).is_some_and(|page| page.iter().all(Option::is_none)) {
            drop(self.places.take(page));
        }
    }

    fn forget(&mut self, at: u32) {
        if self.places.get_mut(at).and_then(Option::take).is_some() {
            self.count -= 1;
        }
    }
}

fn has_expired(kind: Kind, idle: Idle, terms: &Terms) -> bool {
    match after(&terms.expire, kind) {
        ExpireAfter::Never => false,
        ExpireAfter::After(span) => terms.stamp.0 - idle.seen > nanos(span.0),
    }
}

/// Replaces an aggregate's trail by the value it leads to; other kinds have none.
fn settle(aggregate: &mut Aggregate, base: f64) -> f64 {
    let Aggregate::Gauge(trail) = aggregate else { return 0.0 };
    let value = trail.end(base);
    *trail = Trail::at(value);
    value
}

fn repeated(kind: Kind, idle: Idle) -> Aggregate {
    match kind {
        Kind::Gauge => Aggregate::Gauge(Trail::at(idle.value)),
        _ => Aggregate::new(kind),
    }
}

const fn after(expire: &Expire, kind: Kind) -> ExpireAfter {
    match kind {
        Kind::Gauge => expire.gauge,
        Kind::Set => expire.set,
        Kind::Timer | Kind::Histogram | Kind::Distribution => expire.timer,
        Kind::Counter | Kind::Sample | Kind::Fields => expire.counter,
    }
}

fn outlives(expire: &Expire, kind: Kind) -> bool {
    match after(expire, kind) {
        ExpireAfter::Never => true,
        ExpireAfter::After(span) => !span.0.is_zero(),
    }
}
