//! Lines of statsd that are routed one by one, as a batch of datagrams has them.
//!
//! A line whose head is known takes the way of the one before it; every other one is parsed and
//! routed, and its head is learnt. Either way points go over in the order in which they came.
//!
//! What is known of a head holds for one sender. All that comes by a socket has one, unless senders
//! are told apart by their addresses: then nothing is remembered, and each datagram crosses alone.

use super::intake::{Context, Who, proof};
use crate::net::Peer;
use crate::route::{Crossing, Memo, Router, Table};
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
    /// Where senders are told apart.
    pub(super) strangers: Option<Strangers<'t>>,
}

/// The way of datagrams whose sender is known by his address.
pub(super) struct Strangers<'t> {
    router: Router,
    table: &'t Table,
    points: u64,
}

impl<'t> Strangers<'t> {
    pub(super) fn new(router: &Router, table: &'t Table) -> Self {
        Self { router: router.clone(), table, points: 0 }
    }
}

impl Lines<'_> {
    /// How many points there were so far.
    pub(super) fn points(&self) -> u64 {
        let strangers = self.strangers.as_ref().map_or(0, |strangers| strangers.points);
        self.crossing.submitted().points() + strangers
    }

    /// Takes the lines of a datagram in, or counts why not.
    pub(super) fn take(&mut self, datagram: &[u8], peer: impl Fn() -> Option<Peer>) {
        if self.strangers.is_some() {
            return self.take_from_stranger(datagram, peer);
        }
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
        let unknown = cross(line, context, times, batch, crossing, peer);
        if let Some(split) = split.filter(|_| unknown == Some(0) && self.batch.len() == 1) {
            self.learn(split);
        }
        self.batch.clear();
    }

    fn take_from_stranger(&mut self, datagram: &[u8], peer: impl Fn() -> Option<Peer>) {
        let Self { context, times, batch, strangers, .. } = self;
        let Some(Strangers { router, table, points }) = strangers else { return };
        router.present(peer().as_ref().map(proof).unwrap_or_default());
        router.enter(table);
        let mut crossing = router.cross(table);
        for split in statsd::splits(datagram) {
            let line = split.map_or_else(|line| line, |split| split.line);
            cross(line, context, times, batch, &mut crossing, &peer);
            batch.clear();
        }
        *points += crossing.submitted().points();
    }

    fn learn(&mut self, split: &Split<'_>) {
        let shape = self.batch.point(0).and_then(|point| Shape::of(&point));
        if let (Some(shape), Some(steps)) = (shape, self.crossing.steps()) {
            self.memo.learn(&split.head, shape, steps);
        }
    }
}

/// Parses a line and lets its points cross; answers how many fields nobody knows, if it can be
/// read.
fn cross(
    line: &[u8],
    context: &Context,
    times: &TimeRange,
    batch: &mut Batch,
    crossing: &mut Crossing<'_>,
    peer: impl Fn() -> Option<Peer>,
) -> Option<u32> {
    let unknown = match context.grammar.statsd(line, times, batch) {
        Ok(unknown) => unknown,
        Err(reason) => {
            context.refuse(reason.label(), 1, line, Who(peer().as_ref()));
            return None;
        }
    };
    context.book.noticed.add("unknown_field", u64::from(unknown));
    let alone = Some(line).filter(|_| batch.len() == 1);
    for point in batch.iter() {
        if let Err(denial) = crossing.point(&point, alone) {
            context.denied(denial, point.name, Who(peer().as_ref()));
        }
    }
    Some(unknown)
}
