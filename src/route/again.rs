//! Points that a backend has refused, through the table once more.
//!
//! A point that the refusing backend is still named for goes there alone: the others have had it.
//! If the table sends it elsewhere now, it goes to all that it names. Conditions on what is not
//! known of it any more (listener, protocol, what kind of measurement it once was) count as met,
//! those on name and tags are asked of what the backend was sent. A rewrite that was already
//! applied is not applied again.

use super::router::Table;
use super::rules::{LaneSet, Rule};
use crate::lane::{Slip, Terms, series_hash};
use crate::waybill::{Provenance, Sender};
use protocols::{Batch, Point, UnixNanos};

/// Points on their way: first all are planned, then all go.
#[derive(Debug)]
pub struct Errand<'t> {
    table: &'t Table,
    /// The place of the backend that has refused them, if it is still there.
    home: Option<usize>,
    /// One for each point.
    trips: Vec<Trip<'t>>,
    lanes: LaneSet,
}

/// Where one point goes.
#[derive(Debug)]
struct Trip<'t> {
    known: Option<&'t Provenance>,
    ways: Vec<Way<'t>>,
}

/// A rule that takes it, and where that sends it.
#[derive(Clone, Copy, Debug)]
struct Way<'t> {
    place: usize,
    rule: &'t Rule,
    to: LaneSet,
}

impl<'t> Errand<'t> {
    /// With points that the backend of that name has refused.
    pub fn new(table: &'t Table, backend: &str) -> Self {
        let home = table.lanes.iter().position(|lane| lane.name() == backend);
        Self { table, home, trips: Vec::new(), lanes: LaneSet::default() }
    }

    /// Finds out where the next point goes; answers whether any route takes it.
    pub fn plan(&mut self, point: &Point<'_>, known: Option<&'t Provenance>) -> bool {
        let (mut ways, named) = self.ways(point, known);
        let is_taken = !ways.is_empty();
        let home = self.home.map(LaneSet::of).filter(|home| named.has(*home));
        if let Some(home) = home {
            ways.iter_mut().for_each(|way| way.to = way.to.shared(home));
            ways.retain(|way| way.to == home);
        }
        self.lanes = self.lanes.with(home.unwrap_or(named));
        self.trips.push(Trip { known, ways });
        is_taken
    }

    /// The rules that take a point, and all lanes that they name.
    fn ways(&self, point: &Point<'_>, known: Option<&Provenance>) -> (Vec<Way<'t>>, LaneSet) {
        let nothing = Provenance::default();
        let (mut ways, mut named) = (Vec::new(), LaneSet::default());
        for (place, rule) in self.table.rules.iter().enumerate() {
            if !rule.test.may_match(point, known.unwrap_or(&nothing)) {
                continue;
            }
            ways.push(Way { place, rule, to: rule.to.without(named) });
            named = named.with(rule.to);
            if rule.last {
                break;
            }
        }
        (ways, named)
    }

    /// A backend that would get some of them and whose queue has no room.
    pub fn full(&self) -> Option<&'t str> {
        let mut lanes = self.lanes.iter().filter_map(|place| self.table.lanes.get(place));
        lanes.find(|lane| lane.is_nearly_full()).map(|lane| lane.name())
    }

    /// Hands all points over, in the order in which they were planned; who has the slip's receipt
    /// learns what becomes of them.
    pub fn run(self, points: &Batch, now: UnixNanos, slip: &Slip) {
        let mut scratch = Batch::new();
        let mut points = points.iter();
        let terms = || Terms { slip: Some(slip), room: None };
        // A front knows one sender.
        for alike in self.trips.chunk_by(|one, other| one.known == other.known) {
            let known = alike.first().and_then(|trip| trip.known);
            let sender = Sender {
                origin: known.and_then(|known| known.origin.as_ref()),
                kind: known.and_then(|known| known.kind),
            };
            let lanes = self.table.lanes.iter();
            let mut fronts: Vec<_> =
                lanes.map(|lane| lane.front(WORKER, now, sender, terms())).collect();
            for (trip, point) in alike.iter().zip(points.by_ref()) {
                for Way { place, rule, to } in &trip.ways {
                    let sent = match trip.has_had(rule) {
                        true => point,
                        false => rule.sent(point, &mut scratch),
                    };
                    let hash = series_hash(sent.name, sent.tags);
                    for place in to.iter() {
                        if let Some(front) = fronts.get_mut(place) {
                            front.take(&sent, hash, &rule.via);
                        }
                    }
                    if let Some(taken) = self.table.taken.get(*place) {
                        taken.add(1);
                    }
                }
            }
        }
    }
}

impl Trip<'_> {
    /// Whether the rule's rewrite was applied when the point was first sent.
    fn has_had(&self, rule: &Rule) -> bool {
        let applied = self.known.and_then(|known| known.via.as_ref()?.rewrite);
        applied.is_some() && applied == rule.via.rewrite
    }
}

/// Replays share the first worker's part of the windows.
const WORKER: usize = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Outcome, Payload, Ship, Shipping};
    use crate::books::Books;
    use crate::clock::Clock;
    use crate::lane::{self, Lane, Level, Running, Settings, State};
    use crate::origin::{Origin, Protocol};
    use crate::route::Rules;
    use crate::waybill::Via;
    use protocols::{Kind, jsonl};
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};

    /// Names of points, and what is then known of each.
    type Told = Vec<(String, Option<Provenance>)>;

    #[derive(Clone, Default)]
    struct Keep(Arc<Mutex<Told>>);

    impl Ship for Keep {
        fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a> {
            let lines = str::from_utf8(&payload.body).unwrap().lines();
            let name = |line| serde_json::from_str::<Value>(line).unwrap()["name"].to_string();
            let told = (0..).zip(lines).map(|(place, line)| {
                (name(line).replace('"', ""), payload.waybill.at(place).cloned())
            });
            self.0.lock().unwrap().extend(told);
            Box::pin(async { Outcome::Delivered })
        }
    }

    /// A table with the lanes `a` and `b`, and what each has been sent.
    fn table(routes: Value) -> (Table, Vec<Running>, [Keep; 2]) {
        let (books, kept) = (Books::default(), <[Keep; 2]>::default());
        let clock = Clock::starting_at(UnixNanos(0));
        let lane = |(name, keep): (&&str, &Keep)| -> (Lane, Running) {
            let settings = Settings::new(name, "stdout", &lane::Config::default());
            let state = State::new(books.backend(name), settings.shards);
            let encoder = Box::new(jsonl::Encoder::new());
            lane::spawn(settings, state, encoder, Box::new(keep.clone()), clock)
        };
        let (lanes, running) = NAMES.iter().zip(&kept).map(lane).unzip();
        let places = NAMES.iter().zip(0..).map(|(name, place)| ((*name).to_owned(), place));
        let routes: Vec<crate::route::Config> = serde_json::from_value(routes).unwrap();
        let rules = Rules::compile(&routes, &places.collect()).unwrap();
        let taken = rules.iter().map(|rule| books.route(&rule.name)).collect();
        (Table { rules, lanes, taken, ..Table::default() }, running, kept)
    }

    /// Sends one row called `x` that `a` has refused, and answers who got it under which name.
    async fn check(routes: Value, known: Option<Provenance>, expected: Option<[&[&str]; 2]>) {
        let shown = format!("{routes} {known:?}");
        let (table, running, kept) = table(routes);
        let mut batch = Batch::new();
        let mut row = batch.begin("x");
        row.field("n", protocols::FieldValue::Bool(true));
        row.finish_fields(Some(UnixNanos(7)));
        drop(row);
        let mut errand = Errand::new(&table, "a");
        let is_taken = errand.plan(&batch.point(0).unwrap(), known.as_ref());
        assert_eq!(is_taken, expected.is_some(), "{shown}");
        assert_eq!(errand.full(), None);
        errand.run(&batch, UnixNanos(9), &Slip::new(Level::Queued).0);
        drop(table);
        for mut running in running {
            running.drained().await;
        }
        let names = kept.each_ref().map(|kept| {
            let told = kept.0.lock().unwrap();
            for (_, now) in &*told {
                let then = known.clone().unwrap_or_default();
                let now = now.as_ref().unwrap();
                assert_eq!(now.origin, then.origin, "{shown}");
                assert_eq!(now.kind, then.kind.or(Some(Kind::Fields)), "{shown}");
                assert!(now.via.is_some(), "{shown}");
            }
            told.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        });
        assert_eq!(names, expected.unwrap_or_default(), "{shown}");
    }

    fn timer_of(listener: &str) -> Option<Provenance> {
        let origin = Origin::new(listener, Protocol::Statsd);
        Some(Provenance { kind: Some(Kind::Timer), origin: Some(origin), via: None })
    }

    #[tokio::test(start_paused = true)]
    async fn who_refused_it_gets_it_alone() {
        let both = json!([{ "to": ["a", "b"] }]);
        check(both, None, Some([&["x"], &[]])).await;
        let one_each = json!([{ "to": ["b"] }, { "to": ["a"] }]);
        check(one_each, None, Some([&["x"], &[]])).await;
        let first_rewrites = json!([
            { "to": ["a"], "rewrite": { "name": "y" } }, { "to": ["a", "b"] },
        ]);
        check(first_rewrites, None, Some([&["y"], &[]])).await;
    }

    #[tokio::test(start_paused = true)]
    async fn others_get_it_when_that_one_is_not_named() {
        check(json!([{ "to": ["b"] }]), None, Some([&[], &["x"]])).await;
        check(json!([{ "to": ["b"], "final": true }, { "to": ["a"] }]), None, Some([&[], &["x"]]))
            .await;
        check(json!([{ "to": [] }]), None, Some([&[], &[]])).await;
        check(json!([{ "match": { "name": "y" }, "to": ["a"] }]), None, None).await;
    }

    #[tokio::test(start_paused = true)]
    async fn conditions_on_what_is_not_known_count_as_met() {
        let asks = |key: &str, value: &str| json!([{ "match": { key: value }, "to": ["a"] }]);
        let taken = Some([&["x"][..], &[]]);
        for (key, met, unmet) in [
            ("kind", "timer", "set"),
            ("listener", "edge", "inner"),
            ("protocol", "statsd", "http"),
        ] {
            check(asks(key, met), timer_of("edge"), taken).await;
            check(asks(key, unmet), timer_of("edge"), None).await;
            check(asks(key, unmet), None, taken).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_rewrite_is_applied_once() {
        let routes = |name: &str| json!([{ "to": ["a"], "rewrite": { "name": name } }]);
        let (applied, ..) = table(routes("p.${name}"));
        let rewrite = applied.rules.iter().next().unwrap().via.rewrite;
        let via = Some(Via { route: "elsewhere".into(), rewrite });
        let known = Some(Provenance { via, ..Provenance::default() });
        check(routes("p.${name}"), known.clone(), Some([&["x"], &[]])).await;
        check(routes("q.${name}"), known, Some([&["q.x"], &[]])).await;
        check(routes("p.${name}"), None, Some([&["p.x"], &[]])).await;
    }

    const NAMES: [&str; 2] = ["a", "b"];
}
