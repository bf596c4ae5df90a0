//! Lines of statsd that are routed one by one, as a batch of datagrams has them.
//!
//! A line whose head is known takes the way of the one before it; every other one is parsed and
//! routed, and its head is learnt. Either way points go over in the order in which they came.
//!
//! What is known of a head, and of its series, lies anywhere in memory, and waiting for it would take
//! longer than the work. So heads are looked for a [block](BLOCK) of lines at a time, in loops so
//! short that the processor asks memory for several of them at once.
//!
//! What is known of a head holds for one sender. All that comes by a socket has one, unless it comes by
//! the network and senders are told apart by their addresses: then nothing is remembered, and the
//! datagrams of each principal cross together.

use super::intake::{Context, proof};
use crate::net::Peer;
use crate::route::{Crossing, Found, Memo, Print, Router, Table};
use protocols::Batch;
use protocols::statsd::{self, Shape, Split};
use protocols::timestamp::TimeRange;
use std::collections::BTreeMap;

/// Takes lines in until it is dropped; then what they led to is handed over and counted.
pub(super) struct Lines<'t> {
    pub(super) context: &'t Context,
    pub(super) times: TimeRange,
    pub(super) memo: &'t mut Memo,
    pub(super) batch: &'t mut Batch,
    pub(super) crossing: Crossing<'t>,
    /// How much was refused so far.
    pub(super) refused: u64,
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

/// A line that waits for its turn.
struct Seen<'d> {
    line: Split<'d>,
    /// Which datagram it came in.
    from: usize,
    print: Print,
    /// What is known of its head, and can still be done.
    found: Option<Found>,
}

impl Lines<'_> {
    /// How many points there were so far.
    pub(super) fn points(&self) -> u64 {
        let strangers = self.strangers.as_ref().map_or(0, |strangers| strangers.points);
        self.crossing.submitted().points() + strangers
    }

    /// Takes the lines of datagrams in, or counts why not; `peer` knows who has sent which.
    pub(super) fn take<'d>(
        &mut self,
        datagrams: impl IntoIterator<Item = &'d [u8]>,
        peer: impl Fn(usize) -> Option<Peer>,
    ) {
        if self.strangers.is_some() {
            return self.take_from_strangers(datagrams, peer);
        }
        let mut block = Vec::with_capacity(BLOCK);
        for (from, datagram) in datagrams.into_iter().enumerate() {
            for line in statsd::splits(datagram) {
                match self.print(&line).zip(line.ok()) {
                    Some((print, line)) => {
                        block.push(Seen { line, from, print, found: None });
                        if block.len() == BLOCK {
                            self.settle(&mut block, &peer);
                        }
                    }
                    None => {
                        self.settle(&mut block, &peer);
                        let line = line.map_or_else(|line| line, |split| split.line);
                        self.parse(line, None, || peer(from));
                    }
                }
            }
        }
        self.settle(&mut block, &peer);
    }

    /// Counts something refused.
    pub(super) fn refuse(&mut self, reason: &'static str, example: &[u8], peer: Option<Peer>) {
        self.refused += 1;
        let router = self.crossing.router();
        self.context.refuse_of(router, reason, 1, example, peer.as_ref().into());
    }

    /// That of a line which may be known, or be learnt.
    #[inline]
    fn print(&mut self, line: &Result<Split<'_>, &[u8]>) -> Option<Print> {
        let split = line.as_ref().ok().filter(|_| !self.memo.is_resting())?;
        let print = self.memo.print(&split.head)?;
        self.context.grammar.takes(split.line).then_some(print)
    }

    /// Takes the lines of a block in.
    fn settle(&mut self, block: &mut Vec<Seen<'_>>, peer: impl Fn(usize) -> Option<Peer>) {
        for seen in &mut *block {
            seen.found = self.memo.seek(seen.print);
        }
        // To be asked for is to be seen in this window, which a line that is refused is not: where
        // that may be for want of quota, each is asked for in its turn.
        let is_metered = self.crossing.is_metered();
        for seen in &mut *block {
            let is_sound = seen.line.has_number();
            let may_stand = |found: &Found| is_sound && (is_metered || self.is_current(found));
            seen.found = seen.found.filter(may_stand);
        }
        for seen in &mut *block {
            let mut is_paid = |found: &Found| self.crossing.can_pay() && self.is_current(found);
            seen.found = seen.found.filter(|found| !is_metered || is_paid(found));
            if !seen.found.as_ref().is_some_and(|found| self.repeat(found, &seen.line)) {
                self.parse(seen.line.line, Some(seen), || peer(seen.from));
            }
        }
        block.clear();
    }

    #[inline]
    fn is_current(&mut self, found: &Found) -> bool {
        let known = self.memo.known(found);
        known.is_some_and(|known| self.crossing.is_current(&known))
    }

    #[inline]
    pub(super) fn repeat(&mut self, found: &Found, line: &Split<'_>) -> bool {
        let Some(known) = self.memo.known(found) else { return false };
        if known.way.keeps == 0 {
            return self.crossing.repeat(&known, line);
        }
        if !known.way.needs.point {
            return self.crossing.repeat_kept(&known, line, None);
        }
        let parsed = self.context.grammar.statsd(line.line, &self.times, self.batch);
        let point = self.batch.point(0).filter(|_| parsed == Ok(0) && self.batch.len() == 1);
        let done = point.is_some_and(|point| self.crossing.repeat_kept(&known, line, Some(&point)));
        self.batch.clear();
        done
    }

    fn parse(&mut self, line: &[u8], seen: Option<&Seen<'_>>, peer: impl Fn() -> Option<Peer>) {
        let Self { context, times, batch, crossing, .. } = self;
        let unknown = cross(line, context, times, batch, (crossing, seen.is_some()), peer);
        self.refused += u64::from(unknown.is_none());
        if let Some(seen) = seen.filter(|_| unknown == Some(0) && self.batch.len() == 1) {
            self.learn(seen.print);
        }
        self.batch.clear();
    }

    /// Datagrams of one principal go together, since a lane has room for few batches, however small.
    fn take_from_strangers<'d>(
        &mut self,
        datagrams: impl IntoIterator<Item = &'d [u8]>,
        peer: impl Fn(usize) -> Option<Peer>,
    ) {
        let Self { context, times, batch, strangers, .. } = self;
        let Some(Strangers { router, table, points }) = strangers else { return };
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for (from, datagram) in datagrams.into_iter().enumerate() {
            let proof = peer(from).as_ref().map(proof).unwrap_or_default();
            router.present(proof.clone());
            router.enter(table);
            groups.entry(router.principal()).or_default().push((from, datagram, proof));
        }
        for group in groups.into_values() {
            let Some((_, _, proof)) = group.first() else { continue };
            router.present(proof.clone());
            router.enter(table);
            let mut crossing = router.cross(table);
            for (from, datagram, _) in &group {
                for line in statsd::splits(datagram) {
                    let line = line.map_or_else(|line| line, |split| split.line);
                    cross(line, context, times, batch, (&mut crossing, false), || peer(*from));
                    batch.clear();
                }
            }
            *points += crossing.submitted().points();
        }
    }

    fn learn(&mut self, print: Print) {
        let shape = self.batch.point(0).and_then(|point| Shape::of(&point));
        if let (Some(shape), Some(done)) = (shape, self.crossing.done()) {
            self.memo.learn(print, shape, done);
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
    (crossing, is_remembered): (&mut Crossing<'_>, bool),
    peer: impl Fn() -> Option<Peer>,
) -> Option<u32> {
    let unknown = match context.grammar.statsd(line, times, batch) {
        Ok(unknown) => unknown,
        Err(reason) => {
            let router = crossing.router();
            context.refuse_of(router, reason.label(), 1, line, peer().as_ref().into());
            return None;
        }
    };
    context.book.noticed.add("unknown_field", u64::from(unknown));
    let alone = Some(line).filter(|_| batch.len() == 1);
    for point in batch.iter() {
        let crossed = match is_remembered {
            true => crossing.remember(&point, alone),
            false => crossing.point(&point, alone),
        };
        if let Err(denial) = crossed {
            context.denied(denial, &point, peer().as_ref().into());
        }
    }
    Some(unknown)
}

/// More than memory is asked for at once, and few enough that what it answers stays in the nearest
/// cache.
const BLOCK: usize = 32;
