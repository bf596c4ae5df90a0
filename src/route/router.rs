//! The receiving side of routing: a batch in, each point into the fronts of its lanes.
//!
//! A [`Router`] belongs to one receiving task and never waits. The table is loaded afresh for
//! each batch and never kept: a lane lives exactly as long as some table refers to it, so a
//! table held by an idle ingester would keep a removed lane alive for ever. Who sends the points is
//! asked of each table anew, unless a request has shown credentials: then it is decided for as long
//! as the request lasts.

use super::Rules;
use super::crossing::{Crossing, Submitted, Toll};
use super::readings::{Readings, Recollection};
use crate::access::{Access, Denial, Gate, Proof, Refused};
use crate::books::{Counter, ListenerBook, Marks, Offender, Tally};
use crate::clock::Clock;
use crate::lane::{Full, Lane, Level, Receipt, Reservation, Slip, Terms, series_hash};
use crate::origin::Origin;
use arc_swap::{ArcSwap, Guard};
use protocols::timestamp::TimeRange;
use protocols::{Batch, Point};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
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
    /// Who may write what.
    pub access: Access,
    /// Which table it is.
    pub edition: Edition,
}

/// What tells one table from all others of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edition(u64);

impl Default for Edition {
    fn default() -> Self {
        static EDITIONS: AtomicU64 = AtomicU64::new(0);
        Self(EDITIONS.fetch_add(1, Relaxed))
    }
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
    /// What is certain of the sender.
    proof: Proof,
    gate: Gate,
    since: Since,
    /// The same sender, as what is refused of it is told.
    offender: Offender,
    /// Opened when something is.
    tally: OnceLock<Arc<Tally>>,
}

/// How long a router knows its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// It has seen no table yet.
    Never,
    /// It was told by that table.
    Table(Edition),
    /// It was told by a request, and stays.
    Request,
}

/// A request of which nothing was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turned {
    /// A lane that may refuse has no room.
    Full(Full),
    /// Its sender may not write all of it, or not now.
    Refused(Refused),
}

impl Router {
    /// A router for points from `origin`.
    pub fn new(tables: Tables, origin: Origin, book: Arc<ListenerBook>, clock: Clock) -> Self {
        // Shut until a table was asked.
        let (proof, gate, since) = (Proof::default(), Gate::Shut, Since::Never);
        let (offender, tally) = (Offender::default(), OnceLock::new());
        Self { tables, origin, book, clock, worker: 0, proof, gate, since, offender, tally }
    }

    /// The same for what comes by that transport.
    #[must_use]
    pub fn by(self, transport: &'static str) -> Self {
        let offender = Offender { transport: Some(transport), ..self.offender };
        Self { offender, tally: OnceLock::new(), ..self }
    }

    /// What is refused from now on is told with these marks, and not with those before.
    pub fn about(&mut self, marks: Marks) {
        if self.offender.marks != marks {
            (self.offender.marks, self.tally) = (marks, OnceLock::new());
        }
    }

    /// What is refused from now on is of that sender, whom a request has named.
    pub fn of_principal(&mut self, principal: Option<Arc<str>>) {
        if self.offender.principal != principal {
            (self.offender.principal, self.tally) = (principal, OnceLock::new());
        }
    }

    /// Counts lines, items, bodies or connections that are refused.
    pub fn reject(&self, reason: &'static str, count: u64) {
        self.book.rejected.add(reason, count);
        self.tell(reason, count);
    }

    /// Counts points that are denied.
    pub(super) fn deny(&self, denial: Denial, count: u64) {
        self.book.denied.add(denial.label(), count);
        self.tell(denial.label(), count);
    }

    fn tell(&self, reason: &'static str, count: u64) {
        let tallies = &self.book.tallies;
        if count > 0 && tallies.is_asked() {
            self.tally.get_or_init(|| tallies.of(&self.offender)).add(reason, count);
        }
    }

    /// The same for points of a sender of whom that much is certain.
    #[must_use]
    pub fn of(&self, proof: Proof) -> Self {
        let mut router = self.clone();
        router.present(proof);
        router
    }

    /// What comes from now on is of another sender.
    pub fn present(&mut self, proof: Proof) {
        if self.proof != proof {
            (self.proof, self.since) = (proof, Since::Never);
        }
    }

    /// What comes from now on has to pass this gate, which a request was found to be for.
    pub fn pass_by(&mut self, gate: Gate) {
        self.enter_by(gate);
        self.since = Since::Request;
    }

    /// What comes from now on is of the gateway itself, to which the gate is open.
    pub fn pass_freely(&mut self) {
        self.pass_by(Gate::Open);
    }

    /// Asks a table who the sender is, unless that is known.
    pub fn enter(&mut self, table: &Table) {
        if self.since == Since::Request || self.since == Since::Table(table.edition) {
            return;
        }
        self.enter_by(table.access.by_connection(&self.origin.listener, &self.proof));
        self.since = Since::Table(table.edition);
    }

    /// Who the sender is, by the table that was entered last.
    pub fn principal(&self) -> Option<Arc<str>> {
        self.origin.principal.clone()
    }

    fn enter_by(&mut self, gate: Gate) {
        self.origin.principal = gate.principal().map(|principal| Arc::clone(&principal.name));
        self.of_principal(self.origin.principal.clone());
        self.gate = gate;
    }

    /// The same for another receiving task, so that tasks do not share a shard.
    #[must_use]
    pub fn for_worker(&self, worker: usize) -> Self {
        Self { worker, ..self.clone() }
    }

    /// Hands each point to the lanes of the routes that take it, counts it, and empties the batch.
    pub fn submit(&mut self, batch: &mut Batch) -> Submitted {
        self.submit_and_tell(None, batch, |_, _| {})
    }

    /// As [`submit`](Self::submit), with readings that were known again among the points; tells
    /// which points were denied.
    pub fn submit_and_tell(
        &mut self,
        readings: Option<Readings>,
        batch: &mut Batch,
        denied: impl FnMut(&Point<'_>, Denial),
    ) -> Submitted {
        let table = match &readings {
            Some(readings) => Arc::clone(&readings.table),
            None => self.tables.load_full(),
        };
        self.enter(&table);
        let toll = Toll::Each(self.clock.now());
        self.hand_out(&table, batch, (readings, toll), |_| Terms::default(), denied)
    }

    /// A list for readings of one batch that are known again, to be handed over with it; it keeps
    /// the present table for so long. What is known of a reading holds for every sender, so there
    /// is none where it matters who that is.
    pub fn recall(&self, recollection: &Recollection, times: TimeRange) -> Option<Readings> {
        let table = self.tables.load_full();
        let is_guarded = self.since == Since::Request && !matches!(self.gate, Gate::Open);
        let is_open = table.access.is_open() && !is_guarded;
        is_open.then(|| recollection.begin(table, times))?
    }

    /// As [`submit`](Self::submit) for a request, whose sender can be told what becomes of it: at
    /// once when he may not write all of it or a backend that may refuse has no room for it, and
    /// later by the receipt, when its points have come as far as `level`. Without a level there is
    /// none.
    ///
    /// # Errors
    ///
    /// Nothing of it was kept. Where he may not write all of it, all of it is counted as denied.
    pub fn submit_request(
        &mut self,
        mut readings: Option<Readings>,
        batch: &mut Batch,
        level: Option<Level>,
    ) -> Result<Option<Receipt>, Turned> {
        let table = match &readings {
            Some(readings) => Arc::clone(&readings.table),
            None => self.tables.load_full(),
        };
        self.enter(&table);
        self.gate.check_all(batch).map_err(|refused| self.turn_away(batch, refused))?;
        let more = readings.as_mut().map_or(0, Readings::bytes);
        let rooms = self.reserve(&table, batch.bytes() + more);
        let mut rooms = rooms.map_err(Turned::Full)?;
        let series = batch.iter().map(|point| series_hash(point.name, point.tags));
        let paid = self.gate.spend_all(batch.len(), series, self.clock.now());
        paid.map_err(|refused| self.turn_away(batch, refused))?;
        let (slip, receipt) = level.map(Slip::new).unzip();
        let terms = |place: usize| Terms {
            slip: slip.as_ref(),
            room: rooms.get_mut(place).and_then(Option::take),
        };
        self.hand_out(&table, batch, (readings, Toll::Paid), terms, |_, _| {});
        Ok(receipt)
    }

    /// As [`submit_and_tell`](Self::submit_and_tell) for one who waits for his points by the receipt of
    /// that slip, and can come again: where a backend that may refuse has no room for the batch, it is
    /// left as it is.
    ///
    /// # Errors
    ///
    /// There is no room for it.
    pub fn submit_on(
        &mut self,
        slip: &Slip,
        batch: &mut Batch,
        denied: impl FnMut(&Point<'_>, Denial),
    ) -> Result<Submitted, Full> {
        let table = self.tables.load_full();
        self.enter(&table);
        let mut rooms = self.reserve(&table, batch.bytes())?;
        let terms = |place: usize| Terms {
            slip: Some(slip),
            room: rooms.get_mut(place).and_then(Option::take),
        };
        let toll = Toll::Each(self.clock.now());
        Ok(self.hand_out(&table, batch, (None, toll), terms, denied))
    }

    fn turn_away(&self, batch: &mut Batch, refused: Refused) -> Turned {
        let points = batch.len() as u64;
        self.book.received.add(points);
        self.deny(refused.denial, points);
        batch.clear();
        Turned::Refused(refused)
    }

    /// Room for the batch in every lane that it may reach and that may refuse.
    fn reserve(&self, table: &Table, bytes: usize) -> Result<Vec<Option<Reservation>>, Full> {
        let reachable = table.rules.reachable(&self.origin);
        let mut rooms = Vec::new();
        for place in reachable.iter().filter(|_| bytes > 0) {
            let Some(lane) = table.lanes.get(place) else { continue };
            if let Some(room) = lane.reserve(bytes)? {
                rooms.resize_with(place.max(rooms.len()), || None);
                rooms.push(Some(room));
            }
        }
        Ok(rooms)
    }

    fn hand_out<'t>(
        &'t self,
        table: &'t Table,
        batch: &mut Batch,
        (readings, toll): (Option<Readings>, Toll),
        terms: impl FnMut(usize) -> Terms<'t>,
        mut denied: impl FnMut(&Point<'_>, Denial),
    ) -> Submitted {
        if batch.is_empty() && readings.as_ref().is_none_or(Readings::is_empty) {
            return Submitted::default();
        }
        let mut crossing = self.cross_on(table, toll, terms);
        let mut tell = |point: &Point<'_>, crossed: Result<(), Denial>| {
            if let Err(denial) = crossed {
                denied(point, denial);
            }
        };
        match readings {
            Some(readings) => readings.cross(batch, &mut crossing, tell),
            None => batch.iter().for_each(|point| tell(&point, crossing.point(&point, None))),
        }
        let submitted = crossing.submitted();
        drop(crossing);
        batch.clear();
        submitted
    }

    /// The present table, for the length of one batch.
    pub fn table(&self) -> Guard<Arc<Table>> {
        self.tables.load()
    }

    /// A way through a table that was [entered](Self::enter), for points that come one by one; they
    /// are handed over and counted when it ends.
    pub fn cross<'t>(&'t self, table: &'t Table) -> Crossing<'t> {
        self.cross_on(table, Toll::Each(self.clock.now()), |_| Terms::default())
    }

    fn cross_on<'t>(
        &'t self,
        table: &'t Table,
        toll: Toll,
        mut terms: impl FnMut(usize) -> Terms<'t>,
    ) -> Crossing<'t> {
        let received = self.clock.now();
        let lanes = table.lanes.iter().enumerate();
        let front =
            |(place, lane)| Lane::front(lane, self.worker, received, &self.origin, terms(place));
        let sender = (&self.origin, &self.gate, toll);
        Crossing::new(table, sender, (self, &self.book), lanes.map(front).collect())
    }

    /// Whether a backend that points from here could reach is full and wants them refused.
    pub fn refusing(&self) -> bool {
        self.reaches(Lane::refusing)
    }

    /// Waits, at most for a moment, while a lane that points from here could reach is behind.
    /// For inputs whose senders can wait (streams and requests): what they are spared would be
    /// dropped at a full inbox. No table is held meanwhile.
    pub async fn ease(&self) {
        wait_while(|| self.reaches(Lane::behind), PATIENCE).await;
    }

    fn reaches(&self, state: impl Fn(&Lane) -> bool) -> bool {
        let table = self.tables.load();
        let reachable = table.rules.reachable(&self.origin);
        reachable.iter().any(|place| table.lanes.get(place).is_some_and(&state))
    }
}

/// Looks now and then, for so long at the most, whether it is still so.
pub async fn wait_while(is_so: impl Fn() -> bool, patience: Duration) {
    let mut left = patience;
    while !left.is_zero() && is_so() {
        tokio::time::sleep(GLANCE).await;
        left = left.saturating_sub(GLANCE);
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
    use crate::backend::{Outcome, Payload, Ship, Shipping};
    use crate::books::Books;
    use crate::lane::{self, Running, Settings, State, WhenFull};
    use crate::origin::Protocol;
    use protocols::statsd::{self, TagDialect};
    use protocols::{Measure, UnixNanos};
    use serde_json::{Value, json};
    use std::sync::Mutex;

    type Lines = Arc<Mutex<Vec<String>>>;

    /// Keeps what it is given, or never takes anything.
    struct Keep {
        lines: Lines,
        takes: bool,
    }

    impl Ship for Keep {
        fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a> {
            Box::pin(async move {
                if !self.takes {
                    return Outcome::not_now("never");
                }
                let text = String::from_utf8_lossy(&payload.body);
                self.lines.lock().unwrap().extend(text.lines().map(str::to_owned));
                Outcome::Delivered
            })
        }
    }

    /// A table with the lanes `a`, `b`, and `full`, which takes nothing and wants points refused.
    struct Yard {
        books: Books,
        tables: Tables,
        running: Vec<Running>,
        lines: [Lines; 3],
        clock: Clock,
    }

    impl Yard {
        fn new(routes: Value) -> Self {
            let clock = Clock::starting_at(UnixNanos::from_secs(1_700_000_000));
            let (books, lines) = (Books::default(), <[Lines; 3]>::default());
            let made =
                NAMES.iter().zip(&lines).map(|(name, lines)| lane(name, lines, &books, clock));
            let (lanes, running) = made.unzip();
            let places = NAMES.iter().zip(0..).map(|(name, place)| ((*name).to_owned(), place));
            let routes: Vec<super::super::Config> = serde_json::from_value(routes).unwrap();
            let rules = Rules::compile(&routes, &places.collect()).unwrap();
            let taken = rules.iter().map(|rule| books.route(&rule.name)).collect();
            let tables =
                Arc::new(ArcSwap::from_pointee(Table { rules, lanes, taken, ..Table::default() }));
            Self { books, tables, running, lines, clock }
        }

        fn router(&self, listener: &str) -> Router {
            let origin = Origin::new(listener, Protocol::Statsd);
            Router::new(self.tables.clone(), origin, self.books.listener(listener), self.clock)
        }

        /// Takes the table away; answers what `a` and `b` have been given once they have drained.
        async fn finish(&mut self) -> [Vec<String>; 2] {
            self.tables.store(Arc::default());
            for running in &mut self.running[..2] {
                running.drained().await;
            }
            let [a, b, _] = &self.lines;
            [a, b].map(|lines| lines.lock().unwrap().clone())
        }
    }

    fn lane(name: &str, lines: &Lines, books: &Books, clock: Clock) -> (Lane, Running) {
        let mut settings = Settings::new(name, "statsd", &lane::Config::default());
        let takes = name != "full";
        if !takes {
            (settings.memory, settings.when_full) = (1, WhenFull::Refuse);
        }
        let state = State::new(books.backend(name), settings.shards);
        let encoder = Box::new(statsd::Encoder::new(TagDialect::Dogstatsd, 1000));
        let keep = Keep { lines: Arc::clone(lines), takes };
        lane::spawn(settings, state, encoder, Box::new(keep), clock)
    }

    fn counters(names: &[&str]) -> Batch {
        let mut batch = Batch::new();
        for name in names {
            batch.begin(name).finish(Measure::Count { delta: 1.0, rate: 1.0 }, None, "");
        }
        batch
    }

    #[tokio::test(start_paused = true)]
    async fn each_point_goes_once_to_a_lane_and_is_counted_where_it_went() {
        let mut yard = Yard::new(json!([
            { "name": "first", "match": { "name": "x*" }, "to": ["a"],
              "rewrite": { "name": "new.${name}" } },
            { "name": "second", "match": { "name": ["x1", "y"] }, "to": ["a", "b"], "final": true },
            { "name": "third", "match": { "name": ["?1", "y"] }, "to": ["b"] },
            { "name": "dropped", "match": { "name": "d" }, "to": [] },
        ]));
        let mut router = yard.router("statsd");
        let mut batch = counters(&["x1", "x2", "y", "z1", "z2", "d"]);
        assert_eq!(router.submit(&mut batch), Submitted { routed: 5, unmatched: 1, denied: 0 });
        assert!(batch.is_empty());
        let book = yard.books.listener("statsd");
        let counts = [&book.received, &book.routed, &book.unmatched].map(Counter::get);
        assert_eq!(counts, [6, 5, 1]);
        let taken =
            ["first", "second", "third", "dropped"].map(|name| yard.books.route(name).get());
        assert_eq!(taken, [2, 2, 1, 1]);
        let expected = [&["new.x1:1|c", "new.x2:1|c", "y:1|c"][..], &["x1:1|c", "y:1|c", "z1:1|c"]];
        assert_eq!(yard.finish().await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_router_keeps_no_lane_alive() {
        let mut yard = Yard::new(json!([{ "to": ["a"] }]));
        let mut router = yard.router("statsd");
        router.submit(&mut counters(&["x"]));
        assert_eq!(yard.finish().await, [&["x:1|c"][..], &[]]);
        let submitted = router.submit(&mut counters(&["y"]));
        assert_eq!(
            submitted,
            Submitted { routed: 0, unmatched: 1, denied: 0 },
            "by the table of now"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn only_those_who_can_reach_a_full_backend_are_refused() {
        let yard = Yard::new(json!([
            { "match": { "listener": "one" }, "to": ["full"] },
            { "to": ["a"] },
        ]));
        let (mut one, other) = (yard.router("one"), yard.router("other"));
        assert!(!one.refusing());
        one.submit(&mut counters(&["x"]));
        // Longer than a point waits for its batch; then the queue has more than it may hold.
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        assert!(one.refusing() && !other.refusing());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_can_wait_is_spared_a_full_inbox() {
        let mut yard = Yard::new(json!([{ "to": ["a"] }]));
        let mut router = yard.router("statsd");
        for _ in 0..1_000 {
            router.ease().await;
            router.submit(&mut counters(&["x"]));
        }
        assert_eq!(yard.finish().await[0].len(), 1_000);
    }

    const NAMES: [&str; 3] = ["a", "b", "full"];
}
