//! The way of points through a table, for the length of one batch: a front for each lane.
//!
//! The gate stands at its beginning, and there is no other way to a lane for what comes in: a point
//! that its sender may not write is counted as denied, and one that may pass is given its shape
//! before any route sees it, and pays for its passage out of its sender's quota, unless the request
//! that it belongs to has paid. A line whose point is given another shape is never handed on as it is.
//!
//! A point is either routed, rule by rule, or goes where the last one of its kind went, by the
//! [steps](Step) that were noted then. What is counted is added up here and told when the batch
//! ends.

use super::forms;
use super::memo;
use super::router::{Router, Table};
use super::script::Script;
use super::{LaneSet, Rule};
use crate::access::{Denial, Gate, Shaped};
use crate::books::ListenerBook;
use crate::lane::{Front, Reading, WindowPlace, series_hash};
use crate::origin::Origin;
use protocols::statsd::{Split, is_plain_number};
use protocols::{Batch, Point, UnixNanos};

/// One batch on its way.
pub struct Crossing<'t> {
    table: &'t Table,
    origin: &'t Origin,
    gate: &'t Gate,
    toll: Toll,
    router: &'t Router,
    book: &'t ListenerBook,
    fronts: Vec<Front<'t>>,
    taken: Vec<u64>,
    submitted: Submitted,
    /// Points denied, by the place of the reason in [`Denial::ALL`].
    denied: [u64; Denial::ALL.len()],
    scratch: Batch,
    shaped: Shaped,
    steps: Vec<Step>,
    /// Whether `steps` are all that was done with the last point.
    lasting: bool,
    script: Script,
}

/// What points pay out of their sender's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toll {
    /// Each for itself, at this time.
    Each(UnixNanos),
    /// All have paid together.
    Paid,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Submitted {
    /// Points that at least one route took.
    pub routed: u64,
    /// Points that no route took.
    pub unmatched: u64,
    /// Points that their sender may not write.
    pub denied: u64,
}

/// A part of what is done with a point, and is done alike with the next one of its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The route at this place takes it.
    Take(u16),
    /// The lane at this place adds it to a series of the open window.
    Absorb {
        /// In the table.
        lane: u16,
        /// In the window.
        place: WindowPlace,
    },
    /// The lane at this place hands the line on as it is, for the route at that.
    Relay {
        /// In the table.
        lane: u16,
        /// In the table, too.
        route: u16,
    },
}

/// What steps need of a line that they have not seen before.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Its number: some lane adds it up, or none hands it on and it may be none.
    number: bool,
    /// That it can go out as it is.
    plain: bool,
}

impl Needs {
    /// Those of the steps.
    pub fn of(steps: &[Step]) -> Self {
        let plain = steps.iter().any(|step| matches!(step, Step::Relay { .. }));
        let is_absorbed = steps.iter().any(|step| matches!(step, Step::Absorb { .. }));
        // What nobody adds up needs not be read, if it is certain that it can be.
        Self { number: is_absorbed || !plain, plain }
    }
}

impl Submitted {
    /// All of them.
    pub const fn points(&self) -> u64 {
        self.routed + self.unmatched + self.denied
    }
}

impl<'t> Crossing<'t> {
    pub(super) fn new(
        table: &'t Table,
        (origin, gate, toll): (&'t Origin, &'t Gate, Toll),
        (router, book): (&'t Router, &'t ListenerBook),
        fronts: Vec<Front<'t>>,
    ) -> Self {
        Self {
            table,
            origin,
            gate,
            toll,
            router,
            book,
            fronts,
            taken: vec![0; table.rules.len()],
            submitted: Submitted::default(),
            denied: Default::default(),
            scratch: Batch::new(),
            shaped: Shaped::default(),
            steps: Vec::new(),
            lasting: true,
            script: Script::default(),
        }
    }

    /// Who knows whose points these are.
    pub const fn router(&self) -> &'t Router {
        self.router
    }

    /// What has become of the points so far.
    pub const fn submitted(&self) -> Submitted {
        self.submitted
    }

    /// Hands a point to the lanes of the routes that take it, and in its place the line that has
    /// no other one to those that would write that line.
    ///
    /// # Errors
    ///
    /// Its sender may not write it; that is counted.
    pub fn point(&mut self, point: &Point<'_>, line: Option<&[u8]>) -> Result<(), Denial> {
        self.script.begin(false);
        self.pass(point, line)
    }

    fn pass(&mut self, point: &Point<'_>, line: Option<&[u8]>) -> Result<(), Denial> {
        let gate = self.gate;
        if matches!(gate, Gate::Open) {
            self.route(point, line);
            return Ok(());
        }
        gate.check(point).and_then(|()| self.pay(point)).inspect_err(|why| self.deny(*why))?;
        let Some(shape) = gate.shape() else {
            self.route(point, line);
            return Ok(());
        };
        let mut shaped = std::mem::take(&mut self.shaped);
        if let Some(point) = shape.give(point, &mut shaped) {
            self.route(&point, None);
        }
        self.shaped = shaped;
        Ok(())
    }

    fn pay(&self, point: &Point<'_>) -> Result<(), Denial> {
        match self.toll {
            Toll::Each(now) => self.gate.spend(|| series_hash(point.name, point.tags), now),
            Toll::Paid => Ok(()),
        }
    }

    /// As [`point`](Self::point); answers what was done, if the same can be
    /// [written](Self::write) of the next reading of its form.
    pub(super) fn learn(&mut self, point: &Point<'_>) -> Option<&Script> {
        self.script.begin(true);
        self.pass(point, None).ok()?;
        self.script.whole()
    }

    /// Does with a reading what was done with an earlier one of its form.
    #[inline]
    pub(super) fn write(&mut self, known: &forms::Known<'_>, reading: Reading<'_>) {
        for route in known.takes {
            self.taken(usize::from(*route));
        }
        for write in known.writes {
            let front = self.fronts.get_mut(usize::from(write.lane));
            let rule = self.table.rules.get(usize::from(write.route));
            let head = known.text.get(write.head.0 as usize..write.head.1 as usize);
            if let (Some(front), Some(rule), Some(head)) = (front, rule, head) {
                front.write(head, write.hash, reading, &rule.via);
            }
        }
        self.arrived(!known.takes.is_empty());
    }

    /// What was done with it says nothing about the next of its series.
    #[cold]
    fn deny(&mut self, denial: Denial) {
        self.steps.clear();
        self.lasting = false;
        self.submitted.denied += 1;
        let place = Denial::ALL.iter().position(|known| *known == denial);
        if let Some(count) = place.and_then(|place| self.denied.get_mut(place)) {
            *count += 1;
        }
    }

    fn route(&mut self, point: &Point<'_>, line: Option<&[u8]>) {
        self.steps.clear();
        // Each point of a series has to be seen where series are counted.
        self.lasting = !self.gate.counts_series();
        let (rules, origin, mut hash) = (&self.table.rules, self.origin, None);
        let routed = rules.walk(point, origin, |place, rule, lanes| {
            self.taken(place);
            self.note(u16::try_from(place).ok().map(Step::Take));
            self.script.take(place);
            if rule.rewrite.is_some() {
                let mut scratch = std::mem::take(&mut self.scratch);
                let sent = rule.sent(*point, &mut scratch);
                self.hand_over(lanes, &sent, series_hash(sent.name, sent.tags), (place, rule));
                self.scratch = scratch;
                return;
            }
            let left = line.map_or(lanes, |line| self.relay(lanes, point, line, place));
            if left != LaneSet::default() {
                let hash = *hash.get_or_insert_with(|| series_hash(point.name, point.tags));
                self.hand_over(left, point, hash, (place, rule));
            }
        });
        self.arrived(routed);
    }

    /// What was done with the last point, if it can be done alike with the next of its series.
    pub fn steps(&self) -> Option<&[Step]> {
        self.lasting.then_some(&self.steps)
    }

    /// Whether each point pays for itself.
    pub fn is_metered(&self) -> bool {
        matches!(self.toll, Toll::Each(_)) && self.gate.is_metered()
    }

    /// Whether a point could be paid for just now.
    pub fn can_pay(&self) -> bool {
        match self.toll {
            Toll::Each(now) => self.gate.can_spend(now),
            Toll::Paid => true,
        }
    }

    /// Whether the series of all these steps still stand where they stood. If so they do until the
    /// end of the batch. To be asked for is to be seen in this window.
    pub fn is_current(&mut self, steps: &[Step]) -> bool {
        steps.iter().all(|step| match *step {
            Step::Absorb { lane, place } => {
                let front = self.fronts.get_mut(usize::from(lane));
                front.is_some_and(|front| front.is_current(place))
            }
            Step::Take(_) | Step::Relay { .. } => true,
        })
    }

    /// Does with a point what was done with an earlier one of its series, by steps that are
    /// [current](Self::is_current), unless that cannot be done alike any more; then nothing has
    /// happened.
    #[inline]
    pub fn repeat(&mut self, known: &memo::Known<'_>, line: &Split<'_>) -> bool {
        let memo::Known { shape, steps, needs } = known;
        if needs.plain && !self.relays_all(steps, line) {
            return false;
        }
        let measure = if needs.number { shape.measure(line) } else { None };
        if measure.is_some() != needs.number {
            return false;
        }
        // Whoever asks again is told why; a series that is known has no need of its hash.
        if let Toll::Each(now) = self.toll
            && self.gate.spend(|| 0, now).is_err()
        {
            return false;
        }
        for step in *steps {
            match *step {
                Step::Take(route) => self.taken(route.into()),
                Step::Absorb { lane, place } => {
                    let front = self.fronts.get_mut(usize::from(lane));
                    if let Some((front, measure)) = front.zip(measure.as_ref()) {
                        front.repeat(place, measure);
                    }
                }
                Step::Relay { lane, route } => {
                    self.relay_to(lane.into(), line.line, route.into());
                }
            }
        }
        self.arrived(!steps.is_empty());
        true
    }

    /// Whether each lane that would get the line as it is takes this one, too.
    fn relays_all(&self, steps: &[Step], line: &Split<'_>) -> bool {
        let takes = |step: &Step| match step {
            Step::Take(_) | Step::Absorb { .. } => true,
            Step::Relay { lane, .. } => {
                let front = self.fronts.get(usize::from(*lane));
                front.is_some_and(|front| front.fits(line.line))
            }
        };
        is_plain_number(line.value) && steps.iter().all(takes)
    }

    /// Hands a line to those of the lanes that would write it for its point; answers the others.
    fn relay(&mut self, lanes: LaneSet, point: &Point<'_>, line: &[u8], route: usize) -> LaneSet {
        let mut left = lanes;
        for lane in lanes.iter() {
            let relays = self.fronts.get(lane).is_some_and(|front| front.relays(point, line));
            if relays && self.relay_to(lane, line, route) {
                left = left.without(LaneSet::of(lane));
                let places = u16::try_from(lane).ok().zip(u16::try_from(route).ok());
                self.note(places.map(|(lane, route)| Step::Relay { lane, route }));
            }
        }
        left
    }

    fn relay_to(&mut self, lane: usize, line: &[u8], route: usize) -> bool {
        let (front, rule) = (self.fronts.get_mut(lane), self.table.rules.get(route));
        front.zip(rule).is_some_and(|(front, rule)| front.relay(line, &rule.via))
    }

    fn taken(&mut self, route: usize) {
        if let Some(taken) = self.taken.get_mut(route) {
            *taken += 1;
        }
    }

    fn hand_over(
        &mut self,
        lanes: LaneSet,
        point: &Point<'_>,
        hash: u64,
        (route, rule): (usize, &Rule),
    ) {
        for lane in lanes.iter() {
            let Some(front) = self.fronts.get_mut(lane) else { continue };
            self.script.write(front, (lane, route), point, hash);
            let place = front.take(point, hash, &rule.via);
            let lane = u16::try_from(lane).ok();
            self.note(place.zip(lane).map(|(place, lane)| Step::Absorb { lane, place }));
        }
    }

    fn note(&mut self, step: Option<Step>) {
        self.lasting &= step.is_some();
        self.steps.extend(step);
    }

    const fn arrived(&mut self, routed: bool) {
        if routed {
            self.submitted.routed += 1;
        } else {
            self.submitted.unmatched += 1;
        }
    }
}

impl Drop for Crossing<'_> {
    fn drop(&mut self) {
        self.fronts.clear();
        for (count, taken) in self.table.taken.iter().zip(&self.taken) {
            count.add(*taken);
        }
        self.book.received.add(self.submitted.points());
        self.book.routed.add(self.submitted.routed);
        self.book.unmatched.add(self.submitted.unmatched);
        for (denial, count) in Denial::ALL.iter().zip(self.denied) {
            self.router.deny(*denial, count);
        }
    }
}
