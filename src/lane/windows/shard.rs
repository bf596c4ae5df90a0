//! One worker's part of the open window: what it has seen of each series, by place.

use super::directory::{Place, Standing};
use super::pages::{Page, Pages};
use crate::lane::aggregate::Aggregate;
use crate::lane::riders::Riders;
use protocols::Measure;

/// One worker's part of the open window.
#[derive(Debug, Default)]
pub(in crate::lane) struct Shard {
    states: Pages<State>,
    /// Series of names that are several kinds, in the order in which they were seen.
    twins: Vec<u32>,
    /// The number of the open window.
    pub(super) window: u32,
    /// What samples, members and gauge shifts take, as far as all shards know of it.
    pub(super) told: usize,
    /// The rest of it.
    pub(super) fresh: usize,
    /// Who rides with the points in it.
    pub(in crate::lane) riders: Riders,
    /// A name that had to be made fit; here so that its memory is kept.
    pub(in crate::lane) scratch: String,
}

/// What a window holds of one series: half a cache line.
#[derive(Debug, Default)]
pub(super) struct State {
    /// That of the [`Place`]; 0 as long as the series was not seen in this window.
    pub(super) born: u32,
    pub(super) points: u32,
    pub(super) aggregate: Aggregate,
}

impl Shard {
    /// What the window holds of a series that was seen in it.
    #[inline]
    pub(super) fn known(&mut self, place: Place) -> Option<&mut State> {
        self.states.get_mut(place.at).filter(|state| state.born == place.born && state.born != 0)
    }

    /// Begins with a series that was not seen in this window.
    pub(super) fn begin(
        &mut self,
        at: u32,
        series: Standing,
        fresh: impl FnOnce() -> Page<State>,
    ) -> Option<&mut State> {
        if series.twin {
            self.twins.push(at);
        }
        let state = self.states.make(at, fresh)?;
        *state = State { born: series.born, points: 0, aggregate: Aggregate::new(series.kind) };
        Some(state)
    }

    /// Begins a window, and answers what the one before has left.
    pub(super) fn turn(&mut self) -> (Seen, Riders, usize) {
        self.window = self.window.wrapping_add(1);
        let (states, twins) = (std::mem::take(&mut self.states), std::mem::take(&mut self.twins));
        let riders = std::mem::take(&mut self.riders);
        self.fresh = 0;
        (Seen { states, twins }, riders, std::mem::take(&mut self.told))
    }
}

/// What a shard has seen in a window.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) states: Pages<State>,
    pub(super) twins: Vec<u32>,
}

impl State {
    /// Whether the series was seen in the window.
    pub(super) const fn is_seen(&self) -> bool {
        self.born != 0
    }

    /// Asks memory for what the next measurement changes, without waiting for it.
    #[inline]
    pub(super) fn ask_for(&self) {
        if let Aggregate::Samples(samples) = &self.aggregate {
            samples.ask_for();
        }
    }

    /// Takes a measurement in; answers how many bytes were needed for it.
    #[inline]
    pub(super) fn take(&mut self, measure: &Measure<'_>, turn: u64, exact: usize) -> usize {
        self.points += 1;
        self.aggregate.absorb(measure, turn, exact)
    }

    /// Takes in what another worker has seen. Answers how many points it could not count.
    pub(super) fn unite(&mut self, other: Self) -> u32 {
        if !self.is_seen() {
            *self = other;
            return 0;
        }
        self.aggregate.merge(other.aggregate);
        let both = self.points.checked_add(other.points);
        self.points = both.unwrap_or(self.points);
        if both.is_none() { other.points } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_half_a_cache_line() {
        assert_eq!(size_of::<State>(), 32);
    }
}
