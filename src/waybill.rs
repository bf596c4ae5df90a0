//! Where the records of a payload came from, so that a record which is refused can be traced back.
//!
//! What is known of a point goes with it in three forms, each made from the one before: points on their
//! way to a shaper have a [`Manifest`], which has a [`Source`] for each of them; a payload that is being
//! filled has a [`Draft`]; and a payload has a [`Waybill`], which is cut and stored together with it.
//!
//! Pure. A point from the same source as the one before costs one comparison. Rows of closed windows have
//! a kind but neither origin nor route, since a window folds points of any listener and route. A waybill
//! has at most [`LEGS_MAX`] runs: beyond that, neighbours are merged and lose what they do not share.

use crate::origin::Origin;
use protocols::Kind;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The route that handed a point over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Via {
    /// Its name.
    pub route: Arc<str>,
    /// The fingerprint of the rewrite that it has applied, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<u32>,
}

/// What is known of where a record came from; what is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// What was measured: the kind of the point, or of the series whose window it closes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Where it came in.
    #[serde(flatten)]
    pub origin: Option<Origin>,
    /// Which route handed it over.
    #[serde(flatten)]
    pub via: Option<Via>,
}

/// The same of one point, while whoever knows it is at hand.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The kind of point, or of series; a line that goes out as it came says its own.
    pub kind: Option<Kind>,
    /// Where it came in; of a window's row, and of many a dead letter's point, nobody knows.
    pub origin: Option<&'a Origin>,
    /// By which route; none of a window's row.
    pub via: Option<&'a Via>,
}

/// What is known of all points that one front takes, beside what each of them says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sender<'a> {
    /// Where they came in.
    pub origin: Option<&'a Origin>,
    /// What they once were, of those that are replayed and are told otherwise now.
    pub kind: Option<Kind>,
}

impl<'a> From<&'a Origin> for Sender<'a> {
    fn from(origin: &'a Origin) -> Self {
        Self { origin: Some(origin), kind: None }
    }
}

/// Where the points of one batch, and the lines that go with it, came in, and which routes handed
/// them over, in order.
#[derive(Debug)]
pub struct Manifest {
    origin: Option<Origin>,
    kind: Option<Kind>,
    runs: Vec<Run>,
    /// The hash of each point's series, which was taken to route it.
    hashes: Vec<u64>,
    /// The run of what is to be read next.
    at: usize,
    /// How many lines were noted.
    lines: usize,
}

#[derive(Debug)]
struct Run {
    of: What,
    count: usize,
    /// The length of the lines, with their ends; none of points.
    bytes: usize,
    via: Arc<Via>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Points,
    Lines,
    Records,
}

/// Lines one after the other that go out as they came, or records that are written already.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    /// How many.
    pub count: usize,
    /// Their length, with their ends.
    pub bytes: usize,
    /// Whether they are records.
    pub are_records: bool,
    /// Where all of them came from. A record knows its kind, unless one stands here.
    pub source: Source<'a>,
}

impl Manifest {
    /// Of a batch that is still empty.
    pub fn new(sender: Sender<'_>) -> Self {
        let Sender { origin, kind } = sender;
        let (runs, hashes) = (Vec::new(), Vec::new());
        Self { origin: origin.cloned(), kind, runs, hashes, at: 0, lines: 0 }
    }

    /// Notes who handed the next point over, and the hash of its series.
    pub fn note(&mut self, via: &Arc<Via>, hash: u64) {
        self.hashes.push(hash);
        self.add(What::Points, 0, via);
    }

    /// Notes who handed the next line over, which has so many bytes with its end.
    pub fn note_line(&mut self, bytes: usize, via: &Arc<Via>) {
        self.lines += 1;
        self.add(What::Lines, bytes, via);
    }

    /// Notes who handed the next record over, which has so many bytes with its end.
    pub fn note_record(&mut self, bytes: usize, via: &Arc<Via>) {
        self.lines += 1;
        self.add(What::Records, bytes, via);
    }

    /// How many lines and records were noted.
    pub const fn lines(&self) -> usize {
        self.lines
    }

    fn add(&mut self, of: What, bytes: usize, via: &Arc<Via>) {
        // What is looked at as one is bounded.
        let has_room =
            of != What::Records || self.runs.last().is_some_and(|run| run.count < RECORDS);
        match self.runs.last_mut() {
            Some(run) if run.of == of && has_room && Arc::ptr_eq(&run.via, via) => {
                run.count += 1;
                run.bytes += bytes;
            }
            _ => self.runs.push(Run { of, count: 1, bytes, via: Arc::clone(via) }),
        }
    }

    /// The hash of the series of the point at `index`, lines not counted.
    pub fn hash(&self, index: usize) -> Option<u64> {
        self.hashes.get(index).copied()
    }

    /// The lines or records that come next, if they come before the next point; asked for once.
    pub fn next_lines(&mut self) -> Option<Lines<'_>> {
        let Self { origin, kind, runs, at, .. } = self;
        let Run { of, count, bytes, via } = runs.get(*at).filter(|run| run.of != What::Points)?;
        *at += 1;
        let are_records = *of == What::Records;
        let source = Source { kind: *kind, origin: origin.as_ref(), via: Some(via) };
        Some(Lines { count: *count, bytes: *bytes, are_records, source })
    }

    /// Of the next point, which is of that kind; points are asked for once each, in the order of
    /// the batch.
    pub fn next_source(&mut self, kind: Kind) -> Source<'_> {
        let kind = Some(self.kind.unwrap_or(kind));
        let Some(run) = self.runs.get_mut(self.at) else {
            return Source { kind, origin: self.origin.as_ref(), via: None };
        };
        run.count = run.count.saturating_sub(1);
        if run.count == 0 {
            self.at += 1;
        }
        Source { kind, origin: self.origin.as_ref(), via: Some(&run.via) }
    }
}

impl Provenance {
    fn of(source: Source<'_>) -> Self {
        let Source { kind, origin, via } = source;
        Self { kind, origin: origin.cloned(), via: via.cloned() }
    }

    fn is(&self, source: Source<'_>) -> bool {
        let Source { kind, origin, via } = source;
        self.kind == kind && self.origin.as_ref() == origin && self.via.as_ref() == via
    }

    /// What both say.
    fn shared(&self, other: &Self) -> Self {
        fn alike<T: Clone + PartialEq>(one: &Option<T>, other: &Option<T>) -> Option<T> {
            one.clone().filter(|_| one == other)
        }
        Self {
            kind: alike(&self.kind, &other.kind),
            origin: alike(&self.origin, &other.origin),
            via: alike(&self.via, &other.via),
        }
    }
}

/// Consecutive lines of a body that came the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// How many.
    pub lines: u32,
    /// From where; `None` when that is not known.
    pub origin: Option<Arc<Provenance>>,
}

impl Leg {
    fn is_from(&self, source: Source<'_>) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.is(source))
    }

    /// Both as one.
    fn with(self, other: &Self) -> Self {
        let lines = self.lines.saturating_add(other.lines);
        let origin = match (self.origin, &other.origin) {
            (Some(one), Some(other)) if one == *other => Some(one),
            (Some(one), Some(other)) => Some(one.shared(other)).filter(is_something).map(Arc::new),
            _ => None,
        };
        Self { lines, origin }
    }
}

fn is_something(provenance: &Provenance) -> bool {
    *provenance != Provenance::default()
}

/// The waybill of a payload that is being filled.
#[derive(Debug, Default)]
pub struct Draft {
    legs: Vec<Leg>,
    /// What was met lately, so that points alike share it.
    known: Vec<Arc<Provenance>>,
}

impl Draft {
    /// Notes that so many lines follow, which came from there.
    pub fn add(&mut self, lines: u32, source: Source<'_>) {
        if let Some(last) = self.legs.last_mut()
            && last.is_from(source)
        {
            last.lines = last.lines.saturating_add(lines);
            return;
        }
        if self.legs.len() >= LEGS_MAX {
            self.legs = merged(&self.legs);
        }
        let origin = Some(self.known(source));
        self.legs.push(Leg { lines, origin });
    }

    /// What was noted; the next payload begins.
    pub fn finish(&mut self) -> Waybill {
        Waybill(self.legs.drain(..).collect())
    }

    fn known(&mut self, source: Source<'_>) -> Arc<Provenance> {
        if let Some(known) = self.known.iter().find(|known| known.is(source)) {
            return Arc::clone(known);
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let provenance = Arc::new(Provenance::of(source));
        self.known.push(Arc::clone(&provenance));
        provenance
    }
}

/// Pairs of neighbours become one, and so do neighbours that are then alike.
fn merged(legs: &[Leg]) -> Vec<Leg> {
    let mut merged: Vec<Leg> = Vec::with_capacity(LEGS_MAX);
    for pair in legs.chunks(2) {
        let Some(leg) = pair.iter().cloned().reduce(|one, other| one.with(&other)) else {
            continue;
        };
        match merged.last_mut() {
            Some(last) if last.origin == leg.origin => {
                last.lines = last.lines.saturating_add(leg.lines)
            }
            _ => merged.push(leg),
        }
    }
    merged
}

/// Where the lines of a body came from, in order. Of lines beyond its last leg nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Waybill(Arc<[Leg]>);

impl Waybill {
    /// The runs, in the order of the body.
    pub fn legs(&self) -> &[Leg] {
        &self.0
    }

    /// Where that line came from, counted from 0.
    pub fn at(&self, line: u32) -> Option<&Provenance> {
        let mut before = line;
        for leg in self.legs() {
            match before.checked_sub(leg.lines) {
                Some(left) => before = left,
                None => return leg.origin.as_deref(),
            }
        }
        None
    }

    /// The routes that its records came by, each once.
    pub fn routes(&self) -> Vec<Arc<str>> {
        let origins = self.legs().iter().filter_map(|leg| leg.origin.as_ref());
        let mut routes = Vec::new();
        for via in origins.filter_map(|origin| origin.via.as_ref()) {
            if !routes.contains(&via.route) {
                routes.push(Arc::clone(&via.route));
            }
        }
        routes
    }

    /// How many bytes it takes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Two instead of one: of so many lines, and of what follows.
    pub fn split(&self, lines: u32) -> [Self; 2] {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let mut left = lines;
        for leg in &*self.0 {
            let here = leg.lines.min(left);
            left -= here;
            for (part, lines) in [(&mut first, here), (&mut second, leg.lines - here)] {
                if lines > 0 {
                    part.push(Leg { lines, origin: leg.origin.clone() });
                }
            }
        }
        [first, second].map(|legs| Self(legs.into()))
    }
}

/// A waybill as it is written down: each provenance once, and runs that name it by its place.
#[derive(Serialize, Deserialize)]
struct Written {
    origins: Vec<Provenance>,
    legs: Vec<(u32, Option<usize>)>,
}

impl From<Waybill> for Written {
    fn from(waybill: Waybill) -> Self {
        let mut origins: Vec<Provenance> = Vec::new();
        let mut place = |origin: &Provenance| {
            let found = origins.iter().position(|known| known == origin);
            found.unwrap_or_else(|| {
                origins.push(origin.clone());
                origins.len() - 1
            })
        };
        let legs = waybill.0.iter();
        let legs = legs.map(|leg| (leg.lines, leg.origin.as_deref().map(&mut place))).collect();
        Self { origins, legs }
    }
}

impl From<Written> for Waybill {
    fn from(Written { origins, legs }: Written) -> Self {
        let origins: Vec<_> = origins.into_iter().map(Arc::new).collect();
        let origin = |place: Option<usize>| place.and_then(|place| origins.get(place)).cloned();
        Self(legs.into_iter().map(|(lines, place)| Leg { lines, origin: origin(place) }).collect())
    }
}

/// Enough for a body whose points come in bursts of one kind; 4 KiB of memory.
pub const LEGS_MAX: usize = 256;
/// How many records one run has at the most: about 100 µs of shaping.
const RECORDS: usize = 2048;
/// How many provenances a draft remembers: some routes of some listeners, with all their kinds.
const KNOWN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Protocol;
    use proptest::prelude::*;

    fn origin() -> Origin {
        Origin::new("edge", Protocol::Statsd)
    }

    fn via(route: &str) -> Via {
        Via { route: route.into(), rewrite: None }
    }

    /// Notes lines of these routes and kinds; the route `-` stands for a window's row.
    fn waybill(lines: &[(u32, &str, Kind)]) -> Waybill {
        let (mut draft, origin) = (Draft::default(), origin());
        for (lines, route, kind) in lines {
            let via = via(route);
            let known = *route != "-";
            let (origin, via) = (known.then_some(&origin), known.then_some(&via));
            draft.add(*lines, Source { kind: Some(*kind), origin, via });
        }
        draft.finish()
    }

    fn text(waybill: &Waybill) -> String {
        let name = |leg: &Leg| {
            let Some(known) = &leg.origin else { return format!("{}?", leg.lines) };
            let route = known.via.as_ref().map_or("-", |via| &*via.route);
            let kind = known.kind.map_or("any", Kind::name);
            format!("{}{route}:{kind}", leg.lines)
        };
        waybill.legs().iter().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lines_alike_are_one_run() {
        use Kind::{Gauge, Timer};
        for (lines, expected) in [
            (&[][..], ""),
            (&[(1, "a", Gauge), (2, "a", Gauge)], "3a:gauge"),
            (&[(1, "a", Gauge), (1, "b", Gauge), (1, "a", Gauge)], "1a:gauge 1b:gauge 1a:gauge"),
            (&[(1, "a", Gauge), (1, "a", Timer)], "1a:gauge 1a:timer"),
            (&[(4, "-", Timer), (1, "-", Timer), (1, "a", Timer)], "5-:timer 1a:timer"),
        ] {
            assert_eq!(text(&waybill(lines)), expected, "{lines:?}");
        }
    }

    #[test]
    fn it_is_cut_where_the_body_is() {
        let whole = waybill(&[(3, "a", Kind::Gauge), (2, "b", Kind::Gauge)]);
        for (at, first, second) in [
            (0, "", "3a:gauge 2b:gauge"),
            (2, "2a:gauge", "1a:gauge 2b:gauge"),
            (3, "3a:gauge", "2b:gauge"),
            (4, "3a:gauge 1b:gauge", "1b:gauge"),
            (9, "3a:gauge 2b:gauge", ""),
        ] {
            assert_eq!(whole.split(at).each_ref().map(text), [first, second], "{at}");
        }
    }

    #[test]
    fn it_tells_of_each_line_and_names_the_routes() {
        let whole = waybill(&[(2, "a", Kind::Gauge), (1, "-", Kind::Set), (2, "a", Kind::Timer)]);
        let kinds: Vec<_> = (0..6).map(|line| whole.at(line).and_then(|at| at.kind)).collect();
        let known = [Kind::Gauge, Kind::Gauge, Kind::Set, Kind::Timer, Kind::Timer].map(Some);
        assert_eq!(kinds, [&known[..], &[None]].concat());
        assert_eq!(whole.routes(), ["a".into()]);
    }

    #[test]
    fn too_many_runs_forget_what_they_do_not_share() {
        let kinds = [Kind::Gauge, Kind::Timer];
        let mixed: Vec<_> = (0..=LEGS_MAX).map(|n| (1, "a", kinds[n % 2])).collect();
        assert_eq!(text(&waybill(&mixed)), format!("{LEGS_MAX}a:any 1a:gauge"));
        let strangers: Vec<_> =
            (0..=LEGS_MAX).map(|n| (1, ["a", "-"][n % 2], kinds[n % 2])).collect();
        assert_eq!(text(&waybill(&strangers)), format!("{LEGS_MAX}? 1a:gauge"));
    }

    #[test]
    fn a_manifest_tells_each_points_route_once() {
        let [a, b] = ["a", "b"].map(|route| Arc::new(via(route)));
        let from = origin();
        let mut manifest = Manifest::new(Sender { origin: Some(&from), kind: None });
        [&a, &a, &b, &a].into_iter().for_each(|via| manifest.note(via, 0));
        let mut routes = Vec::new();
        while let Source { via: Some(via), kind, origin } = manifest.next_source(Kind::Set) {
            routes.push(via.route.to_string());
            assert_eq!((kind, origin), (Some(Kind::Set), Some(&from)));
        }
        assert_eq!(routes, ["a", "a", "b", "a"]);
        let mut once = Manifest::new(Sender { origin: None, kind: Some(Kind::Timer) });
        assert_eq!(once.next_source(Kind::Fields).kind, Some(Kind::Timer));
    }

    #[test]
    fn a_manifest_tells_points_and_lines_apart_in_order() {
        let [a, b] = ["a", "b"].map(|route| Arc::new(via(route)));
        let mut manifest = Manifest::new(Sender::default());
        manifest.note_line(6, &a);
        manifest.note_line(7, &a);
        manifest.note_line(8, &b);
        manifest.note(&b, 0);
        manifest.note_line(9, &b);
        assert_eq!(manifest.lines(), 4);
        let mut told = Vec::new();
        for _ in 0..4 {
            match manifest.next_lines() {
                Some(Lines { count, bytes, source, .. }) => {
                    assert_eq!(source.kind, None);
                    told.push((count, bytes, source.via.map(|via| via.route.to_string())));
                }
                None => {
                    let source = manifest.next_source(Kind::Set);
                    told.push((1, 0, source.via.map(|via| via.route.to_string())));
                }
            }
        }
        let expected = [(2, 13, "a"), (1, 8, "b"), (1, 0, "b"), (1, 9, "b")];
        let expected = expected.map(|(count, bytes, via)| (count, bytes, Some(via.to_owned())));
        assert_eq!(told, expected);
        assert!(manifest.next_lines().is_none());
    }

    #[test]
    fn it_is_written_briefly() {
        let mut draft = Draft::default();
        let (origin, via) = (origin(), Via { rewrite: Some(7), ..via("tasks") });
        let source = |kind| Source { kind: Some(kind), origin: Some(&origin), via: Some(&via) };
        draft.add(2, source(Kind::Gauge));
        draft.add(1, Source { kind: Some(Kind::Set), origin: None, via: None });
        draft.add(1, source(Kind::Gauge));
        assert_eq!(
            serde_json::to_string(&draft.finish()).unwrap(),
            r#"{"origins":[{"kind":"gauge","listener":"edge","protocol":"statsd","route":"tasks","rewrite":7},{"kind":"set"}],"legs":[[2,0],[1,1],[1,0]]}"#
        );
    }

    proptest! {
        /// Whatever is noted: no line is forgotten, the bound holds, the parts of a cut make the
        /// whole, and what is written down is read back.
        #[test]
        fn no_line_is_forgotten(
            lines in prop::collection::vec((1u32..4, 0usize..3, 0usize..8), 0..600),
            cut in 0u32..1000,
        ) {
            let routes = ["a", "b", "-"];
            let lines: Vec<_> = lines
                .into_iter()
                .map(|(lines, route, kind)| (lines, routes[route], Kind::ALL[kind]))
                .collect();
            let count = |waybill: &Waybill| waybill.legs().iter().map(|leg| leg.lines).sum::<u32>();
            let total: u32 = lines.iter().map(|(lines, ..)| lines).sum();
            let waybill = waybill(&lines);
            prop_assert_eq!(count(&waybill), total);
            prop_assert!(waybill.legs().len() <= LEGS_MAX);
            let parts = waybill.split(cut);
            prop_assert_eq!(count(&parts[0]), cut.min(total));
            prop_assert_eq!(count(&parts[0]) + count(&parts[1]), total);
            let written = serde_json::to_string(&waybill).unwrap();
            prop_assert_eq!(serde_json::from_str::<Waybill>(&written).unwrap(), waybill);
        }
    }
}
