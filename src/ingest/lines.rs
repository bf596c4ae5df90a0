//! Lines of statsd that are routed one by one, as a batch of datagrams has them.
//!
//! A line whose head is known takes the way of the one before it; every other one is parsed and
//! routed, and its head is learnt. Either way points go over in the order in which they came.

use super::intake::{Context, Who};
use crate::net::Peer;
use crate::route::{Crossing, Line, Memo, Spot};
use protocols::Batch;
use protocols::statsd::{self, Shape, Split};
use protocols::timestamp::TimeRange;
use smallvec::SmallVec;

/// A line, and where its head may be known.
struct Sight<'l> {
    line: &'l [u8],
    split: Option<Split<'l>>,
    spot: Option<Spot>,
}

impl<'l> Sight<'l> {
    const fn of(&self, split: &Split<'l>) -> Line<'l> {
        Line { text: self.line, value: split.value }
    }
}

/// Takes lines in until it is dropped; then what they led to is handed over and counted.
pub(super) struct Lines<'t> {
    pub(super) context: &'t Context,
    pub(super) times: TimeRange,
    pub(super) memo: &'t mut Memo,
    pub(super) batch: &'t mut Batch,
    pub(super) crossing: Crossing<'t>,
}

impl Lines<'_> {
    /// How many points there were so far.
    pub(super) const fn points(&self) -> u64 {
        self.crossing.submitted().points()
    }

    /// Takes the lines of a datagram in, or counts why not.
    ///
    /// Known heads are looked for in several lines before the first of them is taken in: their
    /// waits for memory then overlap.
    pub(super) fn take(&mut self, datagram: &[u8], peer: impl Fn() -> Option<Peer>) {
        let mut lines = statsd::lines(datagram);
        loop {
            let ahead = lines.by_ref().take(AHEAD);
            let mut sights: SmallVec<[Sight<'_>; AHEAD]> =
                ahead.map(|line| self.look(line)).collect();
            if sights.is_empty() {
                return;
            }
            sights.iter_mut().for_each(|sight| self.check(sight));
            sights.iter().for_each(|sight| self.take_one(sight, &peer));
        }
    }

    fn look<'l>(&mut self, line: &'l [u8]) -> Sight<'l> {
        let usual = !self.memo.is_resting() && self.context.grammar.takes(line);
        let split = if usual { statsd::split(line) } else { None };
        let spot = split.and_then(|split| self.memo.look(&split.head));
        Sight { line, split, spot }
    }

    /// Forgets what was only alike, and what has passed.
    fn check(&mut self, sight: &mut Sight<'_>) {
        let (Some(split), Some(spot)) = (sight.split, sight.spot) else { return };
        let known = self.memo.known(spot, &split.head);
        if !known.is_some_and(|known| self.crossing.can_repeat(&known, sight.of(&split))) {
            sight.spot = None;
        }
    }

    fn take_one(&mut self, sight: &Sight<'_>, peer: impl Fn() -> Option<Peer>) {
        if self.repeat(sight) {
            self.memo.served();
        } else {
            self.parse(sight.line, sight.split, peer);
        }
    }

    /// Asks once more, because a line before this one may have changed what is known.
    fn repeat(&mut self, sight: &Sight<'_>) -> bool {
        let (Some(split), Some(spot)) = (sight.split, sight.spot) else { return false };
        let Some(known) = self.memo.known(spot, &split.head) else { return false };
        let measure = known.shape.measure(split.value);
        measure.is_some_and(|measure| self.crossing.repeat(&known, &measure, sight.of(&split)))
    }

    fn parse(&mut self, line: &[u8], split: Option<Split<'_>>, peer: impl Fn() -> Option<Peer>) {
        let Self { context, times, batch, crossing, .. } = self;
        let unknown = match context.grammar.statsd(line, times, batch) {
            Ok(unknown) => unknown,
            Err(reason) => {
                return context.refuse(reason.label(), 1, line, Who(peer().as_ref()));
            }
        };
        context.book.noticed.add("unknown_field", u64::from(unknown));
        let alone = Some(line).filter(|_| batch.len() == 1);
        batch.iter().for_each(|point| crossing.point(&point, alone));
        if let Some(split) = split.filter(|_| unknown == 0 && self.batch.len() == 1) {
            self.learn(&split);
        }
        self.batch.clear();
    }

    fn learn(&mut self, split: &Split<'_>) {
        let shape = self.batch.point(0).and_then(|point| Shape::of(&point));
        if let (Some(shape), Some(steps)) = (shape, self.crossing.steps()) {
            self.memo.learn(&split.head, shape, steps);
        }
    }
}

/// As many lines as a usual datagram holds; what they need fits into the nearest cache.
const AHEAD: usize = 32;
