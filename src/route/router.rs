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
use std::time::Duration;

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
        self.reaches(Lane::refusing)
    }

    /// Waits, at most for a moment, while a lane that points from here could reach is behind.
    /// For inputs whose senders can wait (streams and requests): what they are spared would be
    /// dropped at a full inbox. No table is held meanwhile.
    pub async fn ease(&self) {
        let mut left = PATIENCE;
        while !left.is_zero() && self.reaches(Lane::behind) {
            tokio::time::sleep(GLANCE).await;
            left = left.saturating_sub(GLANCE);
        }
    }

    fn reaches(&self, state: impl Fn(&Lane) -> bool) -> bool {
        let table = self.tables.load();
        let reachable = table.rules.reachable(&self.origin);
        reachable.iter().any(|place| table.lanes.get(place).is_some_and(&state))
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

/// Long enough for a shaper to get through its inbox, short enough that a lane which is closing
/// a huge window holds up nobody for long.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often to look again: a few batches' worth of shaping.
const GLANCE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Config as Kind, Place};
    use crate::books::Books;
    use crate::ingest::Protocol;
    use crate::lane::{self, Settings, State};
    use protocols::{Measure, Number, UnixNanos};
    use std::collections::BTreeMap;

    /// A router before a table with one blackhole lane called `a`, and the lane's tasks.
    fn rig(routes: serde_json::Value, books: &Books) -> (Router, lane::Running) {
        let clock = Clock::starting_at(UnixNanos::from_secs(1_000));
        let kind = Kind::Blackhole(crate::backend::blackhole::Config {});
        let book = books.backend("a");
        let place = Place { data_dir: std::path::Path::new("."), clock, book: &book };
        let (encode, ship) = (kind.encoder(), kind.shipper(&place).unwrap());
        let settings = Settings::new("a", kind.kind(), &lane::Config::default());
        let state = State::new(Arc::clone(&book), settings.shards);
        let (lane, running) = lane::spawn(settings, state, encode, ship, clock);
        let routes: Vec<super::super::Config> = serde_json::from_value(routes).unwrap();
        let rules = Rules::compile(&routes, &BTreeMap::from([("a".to_owned(), 0)])).unwrap();
        let taken = rules.iter().map(|rule| books.route(&rule.name)).collect();
        let tables = Tables::from(Arc::new(ArcSwap::from_pointee(Table {
            rules,
            lanes: vec![lane],
            taken,
        })));
        let origin = Origin { listener: "statsd".into(), protocol: Protocol::Statsd };
        (Router::new(tables, origin, books.listener("statsd"), clock), running)
    }

    fn batch(names: &[&str]) -> Batch {
        let mut batch = Batch::new();
        for name in names {
            batch.begin(name).finish(Measure::Reading(Number::I64(1)), None, "");
        }
        batch
    }

    #[tokio::test(start_paused = true)]
    async fn each_point_is_counted_where_it_went() {
        let books = Books::default();
        let (mut router, mut running) = rig(
            serde_json::json!([
                {"name": "kept", "match": {"name": "k*"}, "to": ["a"]},
                {"name": "dropped", "match": {"name": "d"}, "to": []},
            ]),
            &books,
        );
        let submitted = router.submit(&mut batch(&["k1", "k2", "d", "u"]));
        assert_eq!(submitted, Submitted { routed: 3, unmatched: 1 });
        let listener = books.listener("statsd");
        assert_eq!(
            (listener.received.get(), listener.routed.get(), listener.unmatched.get()),
            (4, 3, 1)
        );
        assert_eq!((books.route("kept").get(), books.route("dropped").get()), (2, 1));
        drop(router);
        running.drained().await;
        assert_eq!(books.backend("a").delivered.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_can_wait_is_spared_a_full_inbox() {
        let books = Books::default();
        let (mut router, mut running) = rig(serde_json::json!([{"to": ["a"]}]), &books);
        for _ in 0..1_000 {
            router.ease().await;
            router.submit(&mut batch(&["x"]));
        }
        drop(router);
        running.drained().await;
        let book = books.backend("a");
        assert_eq!((book.delivered.get(), book.dropped.total()), (1_000, 0));
    }
}
