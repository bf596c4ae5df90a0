//! Series between the windows in which they are seen: gauges run on, and what is idle is repeated
//! until it expires.

use super::{Keeper, Tally, Windows, lock};
use crate::clock::nanos;
use crate::lane::aggregate::{Aggregate, Trail};
use crate::lane::table::Table;
use crate::lane::{Expire, ExpireAfter};
use protocols::{Kind, UnixNanos};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;

/// A series between the windows in which it is seen.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Idle {
    /// Where a gauge stands.
    value: f64,
    /// The end of the last window in which it was seen, in nanoseconds since 1970.
    seen: i64,
}

impl Windows {
    /// Lets gauges run on from where they stood, and notes what is to outlive the window.
    pub(super) fn outlive(
        &self,
        keeper: &mut Keeper,
        table: &mut Table<Tally>,
        stamp: UnixNanos,
        expire: &Expire,
    ) {
        table.update(|series, tally| {
            let idle = keeper.idle.find(&series);
            let base = idle.as_ref().map_or(0.0, |idle| idle.value);
            let value = settle(&mut tally.aggregate, base);
            let now = Idle { value, seen: stamp.0 };
            match idle {
                Some(idle) => *idle = now,
                None if outlives(expire, series.kind) => {
                    keeper.idle.insert(&series, now);
                    lock(&self.roster).keep(series.hash);
                }
                None => {}
            }
        });
    }

    /// Adds the series that are idle, and forgets those that were so for too long.
    pub(super) fn repeat(
        &self,
        keeper: &mut Keeper,
        table: &mut Table<Tally>,
        stamp: UnixNanos,
        expire: &Expire,
    ) {
        let expired = |kind, idle: &Idle| match after(expire, kind) {
            ExpireAfter::Never => false,
            ExpireAfter::After(span) => stamp.0 - idle.seen > nanos(span.0),
        };
        let mut forgotten = 0;
        for (series, idle) in keeper.idle.iter().filter(|(_, idle)| idle.seen != stamp.0) {
            if expired(series.kind, idle) {
                forgotten += 1;
            } else {
                table.insert(&series, Tally::new(repeated(series.kind, idle)));
            }
        }
        if forgotten > 0 {
            let old = std::mem::take(&mut keeper.idle);
            let (lost, kept): (Vec<_>, Vec<_>) =
                old.iter().partition(|(series, idle)| expired(series.kind, idle));
            for (series, idle) in kept {
                keeper.idle.insert(&series, *idle);
            }
            let mut roster = lock(&self.roster);
            lost.iter().for_each(|(series, _)| roster.let_go(series.hash));
        }
        self.kept.store(keeper.idle.key_bytes(), Relaxed);
        self.book.series.set(lock(&self.roster).len());
    }
}

/// Replaces an aggregate's trail by the value it leads to; other kinds have none.
fn settle(aggregate: &mut Aggregate, base: f64) -> f64 {
    let Aggregate::Gauge(trail) = aggregate else { return 0.0 };
    let value = trail.end(base);
    *trail = Trail::at(value);
    value
}

fn repeated(kind: Kind, idle: &Idle) -> Aggregate {
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
