//! Lines of statsd that are routed one by one, as a batch of datagrams has them.
//!
//! A line whose head is known takes the way of the one before it; every other one is parsed and
//! routed, and its head is learnt. Either way points go over in the order in which they came.

use super::intake::{Context, Who};
use crate::net::Peer;
use crate::route::{Crossing, Memo};
use protocols::Batch;
use protocols::statsd::{self, Shape, Split};
use protocols::timestamp::TimeRange;

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
    pub(super) fn take(&mut self, datagram: &[u8], peer: impl Fn() -> Option<Peer>) {
        for split in statsd::splits(datagram) {
            match split {
                Ok(split) => self.take_one(&split, &peer),
                Err(line) => self.parse(line, None, &peer),
            }
        }
    }

    fn take_one(&mut self, split: &Split<'_>, peer: impl Fn() -> Option<Peer>) {
        if self.memo.is_resting() || !self.context.grammar.takes(split.line) {
            self.parse(split.line, None, peer);
        } else if !self.repeat(split) {
            self.parse(split.line, Some(split), peer);
        }
    }

    fn repeat(&mut self, split: &Split<'_>) -> bool {
        let Some(known) = self.memo.find(&split.head) else { return false };
        self.crossing.repeat(known.steps, &known.shape, split)
    }

    fn parse(&mut self, line: &[u8], split: Option<&Split<'_>>, peer: impl Fn() -> Option<Peer>) {
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
            self.learn(split);
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
