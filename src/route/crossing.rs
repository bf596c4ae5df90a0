//! The way of one batch's points through a table, with a front for each lane.
//!
//! The gate stands at its beginning, and what comes in has no other way to a lane. A point that its
//! sender may not write is counted as denied. One that may pass is charged to its sender's quota, unless
//! its whole request was, and is given its shape before any route sees it. A line whose point is given
//! another shape is never handed on as it came.
//!
//! A point is either routed, rule by rule, or goes where the last one of its series went, by the
//! [steps](Step) that were noted then. Counts are added up here and written to the books when the
//! batch ends.

use super::forms;
use super::memo;
use super::router::{Router, Table};
use super::script::Script;
use super::way::{Done, LineHead, Step, Way};
use super::{LaneSet, Rule};
use crate::access::{Denial, Gate, Shaped};
use crate::books::ListenerBook;
use crate::lane::{Front, Reading, WindowPlace, series_hash};
use crate::origin::Origin;
use protocols::statsd::{Split, is_plain_number};
use protocols::{Batch, Measure, Point, UnixNanos};

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
    /// Where the series of the last point stands in windows.
    places: Vec<WindowPlace>,
    /// Whether anybody wants to know what its lines begin with.
    is_remembered: bool,
    heads: Vec<LineHead>,
    text: Vec<u8>,
    /// Whether `steps` are all that was done with the last point, and hold for the next of its series.
    lasting: bool,
    script: Script,
}

/// How points are charged to their sender's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toll {
    /// Each by itself, at this time.
    Each(UnixNanos),
    /// All together, before.
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
            places: Vec::new(),
            is_remembered: false,
            heads: Vec::new(),
            text: Vec::new(),
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

    /// Hands a point to the lanes of the routes that take it. `line` is the line that it came in, if that
    /// has no other point; lanes that would write just that line are handed it instead.
    ///
    /// # Errors
    ///
    /// Its sender may not write it; that is counted.
    pub fn point(&mut self, point: &Point<'_>, line: Option<&[u8]>) -> Result<(), Denial> {
        self.script.begin(false);
        self.pass(point, line)
    }

    /// As [`point`](Self::point), if it may be asked what was [done](Self::done).
    ///
    /// # Errors
    ///
    /// As for [`point`](Self::point).
    pub fn remember(&mut self, point: &Point<'_>, line: Option<&[u8]>) -> Result<(), Denial> {
        self.is_remembered = true;
        let passed = self.point(point, line);
        self.is_remembered = false;
        passed
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

    /// Counts a denied point. What was done with it says nothing about the next of its series.
    #[cold]
    fn deny(&mut self, denial: Denial) {
        self.forget();
        self.lasting = false;
        self.submitted.denied += 1;
        let place = Denial::ALL.iter().position(|known| known.label() == denial.label());
        if let Some(count) = place.and_then(|place| self.denied.get_mut(place)) {
            *count += 1;
        }
    }

    fn route(&mut self, point: &Point<'_>, line: Option<&[u8]>) {
        self.forget();
        // Where a quota counts series, each point of a series has to be seen.
        self.lasting = !self.gate.counts_series();
        let (rules, origin, mut hash) = (&self.table.rules, self.origin, None);
        let routed = rules.walk(point, origin, |place, rule, lanes| {
            self.taken(place);
            self.note(u16::try_from(place).ok().map(Step::Take));
            self.script.take(place);
            if rule.rewrite.is_some() {
                let mut scratch = std::mem::take(&mut self.scratch);
                let sent = rule.sent(*point, &mut scratch);
                let hash = series_hash(sent.name, sent.tags);
                self.hand_over(lanes, (&sent, None), hash, (place, rule));
                self.scratch = scratch;
                return;
            }
            let left = line.map_or(lanes, |line| self.relay(lanes, point, line, place));
            if left != LaneSet::default() {
                let hash = *hash.get_or_insert_with(|| series_hash(point.name, point.tags));
                self.hand_over(left, (point, line), hash, (place, rule));
            }
        });
        self.arrived(routed);
    }

    /// What was done with the last point, if the same can be done with the next of its series.
    pub fn done(&self) -> Option<Done<'_>> {
        let Self { steps, places, heads, text, .. } = self;
        self.lasting.then_some(Done { steps, places, heads, text })
    }

    fn forget(&mut self) {
        self.steps.clear();
        self.places.clear();
        self.heads.clear();
        self.text.clear();
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

    /// Whether the series of a head still stands where it stood; if so, it does until the end of the
    /// batch. Asking counts as having seen the series in this window.
    #[inline]
    pub fn is_current(&mut self, known: &memo::Known<'_>) -> bool {
        known.way.lanes.iter().zip(known.places).all(|(lane, place)| {
            let front = self.fronts.get_mut(usize::from(*lane));
            front.is_some_and(|front| front.is_current(*place))
        })
    }

    /// Does with a line what was done with an earlier one of its head, which is
    /// [current](Self::is_current), where only windows take such lines, or lanes that hand them on. Answers
    /// whether that could be done; if not, nothing has happened.
    #[inline]
    pub fn repeat(&mut self, known: &memo::Known<'_>, line: &Split<'_>) -> bool {
        let Some(measure) = self.measure(known.way, line).filter(|_| self.pays()) else {
            return false;
        };
        let mut places = known.places.iter();
        for step in &known.way.steps {
            self.step(*step, &mut places, measure.as_ref(), line);
        }
        self.arrived(!known.way.steps.is_empty());
        true
    }

    /// As [`repeat`](Self::repeat), where lanes keep or copy points; `point` is the one of this line, if
    /// the way [needs](super::way::Needs) it.
    pub fn repeat_kept(
        &mut self,
        known: &memo::Known<'_>,
        line: &Split<'_>,
        point: Option<&Point<'_>>,
    ) -> bool {
        let Way { steps, needs, .. } = known.way;
        let Some(measure) = self.measure(known.way, line) else { return false };
        let can_be_said = measure.is_some_and(is_finite) && (point.is_some() || !needs.point);
        if !can_be_said || !self.pays() {
            return false;
        }
        let (mut places, mut heads) = (known.places.iter(), known.heads.iter());
        for step in steps {
            match *step {
                Step::Keep { lane, route } => {
                    if let Some((head, measure)) = heads.next().zip(measure.as_ref()) {
                        let known = (head.of(known.text), head.hash);
                        self.keep((lane.into(), route.into()), known, measure);
                    }
                }
                Step::Copy { lane, route } => {
                    if let Some((head, point)) = heads.next().zip(point) {
                        self.copy((lane.into(), route.into()), head.hash, point);
                    }
                }
                step => self.step(step, &mut places, measure.as_ref(), line),
            }
        }
        self.arrived(!steps.is_empty());
        true
    }

    /// The measure of a line that may go that way, if any is needed.
    #[inline]
    fn measure<'l>(&self, way: &Way, line: &Split<'l>) -> Option<Option<Measure<'l>>> {
        let Way { shape, steps, needs, .. } = way;
        if needs.plain && !self.relays_all(steps, line) {
            return None;
        }
        let measure = if needs.number { shape.measure(line) } else { None };
        (measure.is_some() == needs.number).then_some(measure)
    }

    /// Charges a point of a known series, which has no need of its hash, to its sender; whoever asks again
    /// is told why that cannot be.
    #[inline]
    fn pays(&self) -> bool {
        match self.toll {
            Toll::Each(now) => self.gate.spend(|| 0, now).is_ok(),
            Toll::Paid => true,
        }
    }

    /// A step that needs nothing but the line.
    #[inline]
    fn step<'p>(
        &mut self,
        step: Step,
        places: &mut impl Iterator<Item = &'p WindowPlace>,
        measure: Option<&Measure<'_>>,
        line: &Split<'_>,
    ) {
        match step {
            Step::Take(route) => self.taken(route.into()),
            Step::Absorb(lane) => {
                let front = self.fronts.get_mut(usize::from(lane)).zip(places.next());
                if let Some(((front, place), measure)) = front.zip(measure) {
                    front.repeat(*place, measure);
                }
            }
            Step::Relay { lane, route } => {
                self.relay_to(lane.into(), line.line, route.into());
            }
            Step::Keep { .. } | Step::Copy { .. } => {}
        }
    }

    /// Whether every lane that was handed the earlier line as it came can take this one, too.
    fn relays_all(&self, steps: &[Step], line: &Split<'_>) -> bool {
        let takes = |step: &Step| match step {
            Step::Take(_) | Step::Absorb(_) | Step::Keep { .. } | Step::Copy { .. } => true,
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

    #[inline]
    fn keep(
        &mut self,
        (lane, route): (usize, usize),
        (head, hash): (&[u8], u64),
        measure: &Measure<'_>,
    ) {
        let (front, rule) = (self.fronts.get_mut(lane), self.table.rules.get(route));
        if let Some((front, rule)) = front.zip(rule) {
            front.keep(head, hash, measure, &rule.via);
        }
    }

    fn copy(&mut self, (lane, route): (usize, usize), hash: u64, point: &Point<'_>) {
        let (front, rule) = (self.fronts.get_mut(lane), self.table.rules.get(route));
        if let Some((front, rule)) = front.zip(rule) {
            front.take(point, hash, &rule.via);
        }
    }

    /// Notes how a lane can be given the next point of the series that is none of a window: by
    /// [keeping](Front::keep) it, or, if the point is just what the line says, by a copy.
    fn kept(
        &mut self,
        (lane, route): (usize, usize),
        (point, line): (&Point<'_>, Option<&[u8]>),
        hash: u64,
    ) -> Option<Step> {
        let front = self.fronts.get(lane).filter(|_| self.is_remembered)?;
        let (lane, route) = (u16::try_from(lane).ok()?, u16::try_from(route).ok()?);
        let start = u32::try_from(self.text.len()).ok()?;
        let step = match front.head_of_kept(point, &mut self.text) {
            Some(()) => Step::Keep { lane, route },
            None if line.is_some() && front.passes() => Step::Copy { lane, route },
            None => return None,
        };
        let text = (start, u32::try_from(self.text.len()).ok()?);
        self.heads.push(LineHead { hash, text });
        Some(step)
    }

    fn taken(&mut self, route: usize) {
        if let Some(taken) = self.taken.get_mut(route) {
            *taken += 1;
        }
    }

    fn hand_over(
        &mut self,
        lanes: LaneSet,
        (point, line): (&Point<'_>, Option<&[u8]>),
        hash: u64,
        (route, rule): (usize, &Rule),
    ) {
        for lane in lanes.iter() {
            let Some(front) = self.fronts.get_mut(lane) else { continue };
            self.script.write(front, (lane, route), point, hash);
            let place = front.take(point, hash, &rule.via);
            let step = match place {
                Some(_) => u16::try_from(lane).ok().map(Step::Absorb),
                None => self.kept((lane, route), (point, line), hash),
            };
            self.note(step);
            self.places.extend(place);
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

/// Whether what it says is; the smallest rates make of the largest numbers what is none.
#[inline]
const fn is_finite(measure: Measure<'_>) -> bool {
    match measure {
        Measure::Count { delta, rate } => (delta / rate).is_finite(),
        _ => true,
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
