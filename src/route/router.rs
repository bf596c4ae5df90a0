//! The receiving side of routing: a batch in, each point into the fronts of its lanes.
//!
//! A [`Router`] belongs to one receiving task and never waits. The table is loaded afresh for
//! each batch and never kept: a lane lives exactly as long as some table refers to it, so a
//! table held by an idle ingester would keep a removed lane alive for ever.

use super::{LaneSet, Origin, Rules};
use crate::books::{Counter, ListenerBook};
use crate::clock::Clock;
use crate::lane::{Front, Lane, series_hash};
use arc_swap::ArcSwap;
use protocols::{Batch, Point};
use std::sync::Arc;

/// Rules and the lanes they name. Immutable: a reload replaces it whole.
#[derive(Debug, Default)]
pub struct Table {
    /// The compiled routes; their lane sets are places in `lanes`.
    pub rules: Rules,
    /// One for each backend. The table's are the only lasting references to lanes.
    pub lanes: Vec<Lane>,
    /// What each route took, in the order of the rules.
    pub taken: Vec<Arc<Counter>>,
}

/// The present table, shared by all routers and swapped by the app alone.
pub type Tables = Arc<ArcSwap<Table>>;

/// Routes the batches of one receiving task.
#[derive(Clone, Debug)]
pub struct Router {
    tables: Tables,
    origin: Origin,
    book: Arc<ListenerBook>,
    clock: Clock,
    /// Which shard of the lanes' windows this task uses.
    worker: usize,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Submitted {
    /// Points that at least one route took.
    pub routed: u64,
    /// Points that no route took.
    pub unmatched: u64,
}

impl Router {
    /// A router for points from `origin`.
    pub fn new(tables: Tables, origin: Origin, book: Arc<ListenerBook>, clock: Clock) -> Self {
        Self { tables, origin, book, clock, worker: 0 }
    }

    /// The same for another receiving task, so that tasks do not share a shard.
    #[must_use]
    pub fn for_worker(&self, worker: usize) -> Self {
        Self { worker, ..self.clone() }
    }

    /// Hands each point to the lanes of the routes that take it, counts it, and empties the batch.
    pub fn submit(&mut self, batch: &mut Batch) -> Submitted {
        if batch.is_empty() {
            return Submitted::default();
        }
        let table = self.tables.load();
        let received = self.clock.now();
        let fronts = table.lanes.iter().map(|lane| lane.front(self.worker, received)).collect();
        let mut delivery =
            Delivery { fronts, taken: vec![0; table.rules.len()], scratch: Batch::new() };
        let mut submitted = Submitted::default();
        for point in batch.iter() {
            if delivery.point(&table.rules, &point, &self.origin) {
                submitted.routed += 1;
            } else {
                submitted.unmatched += 1;
            }
        }
        delivery.close(&table.taken);
        self.count(submitted);
        batch.clear();
        submitted
    }

    /// Whether a backend that points from here could reach is full and wants them refused.
    pub fn refusing(&self) -> bool {
        let table = self.tables.load();
        let reachable = table.rules.reachable(&self.origin);
        reachable.iter().any(|place| table.lanes.get(place).is_some_and(Lane::refusing))
    }

    fn count(&self, submitted: Submitted) {
        self.book.received.add(submitted.routed + submitted.unmatched);
        self.book.routed.add(submitted.routed);
        self.book.unmatched.add(submitted.unmatched);
    }
}

/// One batch on its way: a front for each lane, held for the length of the batch.
struct Delivery<'t> {
    fronts: Vec<Front<'t>>,
    taken: Vec<u64>,
    scratch: Batch,
}

impl Delivery<'_> {
    /// Hands over one point; answers whether any rule took it.
    fn point(&mut self, rules: &Rules, point: &Point<'_>, origin: &Origin) -> bool {
        let Self { fronts, taken, scratch } = self;
        let mut hash = None;
        rules.walk(point, origin, |place, rule, lanes| {
            if let Some(taken) = taken.get_mut(place) {
                *taken += 1;
            }
            if rule.rewrite.is_some() {
                let sent = rule.sent(*point, scratch);
                hand_over(fronts, lanes, &sent, series_hash(sent.name, sent.tags));
            } else {
                let hash = *hash.get_or_insert_with(|| series_hash(point.name, point.tags));
                hand_over(fronts, lanes, point, hash);
            }
        })
    }

    fn close(self, counts: &[Arc<Counter>]) {
        for front in self.fronts {
            front.close();
        }
        for (count, taken) in counts.iter().zip(self.taken) {
            count.add(taken);
        }
    }
}

fn hand_over(fronts: &mut [Front<'_>], lanes: LaneSet, point: &Point<'_>, hash: u64) {
    for place in lanes.iter() {
        if let Some(front) = fronts.get_mut(place) {
            front.take(point, hash);
        }
    }
}
