//! Series of names that are several kinds, which a window writes in the order in which they were seen.
//!
//! Their rows are one in a database, and are told apart by nanoseconds, the first of them first. So
//! they are not written in the order of places, as all others, but behind these: what was seen in the
//! window in the order of arrival, and then what is idle in the order in which it once came. After a
//! restart this is still so, while places are others then.

use super::shard::State;
use hashbrown::{HashMap, HashSet};

/// The twins of a window that is being settled.
#[derive(Debug, Default)]
pub(super) struct Twins {
    /// By places, and these in their order.
    seen: HashMap<u32, State, foldhash::fast::RandomState>,
    places: Vec<u32>,
    idle: Vec<(u32, State)>,
}

impl Twins {
    /// Takes one that was seen in the window.
    pub(super) fn seen(&mut self, at: u32, state: State) {
        self.places.push(at);
        self.seen.insert(at, state);
    }

    /// Takes one that is idle.
    pub(super) fn idle(&mut self, at: u32, state: State) {
        self.idle.push((at, state));
    }

    /// All of them, with their places. Who is not on the list of arrivals came before his name was
    /// another kind's, too, and therefore first.
    pub(super) fn in_order(&mut self, arrivals: Vec<u32>) -> (Vec<u32>, Vec<State>) {
        let Self { mut seen, places, mut idle } = std::mem::take(self);
        let listed: HashSet<u32, foldhash::fast::RandomState> = arrivals.iter().copied().collect();
        let first = places.into_iter().filter(|at| !listed.contains(at));
        let order: Vec<_> = first.chain(arrivals).collect();
        let seen = order.into_iter().filter_map(|at| Some((at, seen.remove(&at)?)));
        idle.sort_unstable_by_key(|(_, state)| state.born);
        seen.chain(idle).unzip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_who_is_not_listed_then_arrivals_then_who_is_idle() {
        let mut twins = Twins::default();
        let state = |born| State { born, ..State::default() };
        [1, 2, 3].into_iter().for_each(|at| twins.seen(at, state(at)));
        twins.idle(4, state(9));
        twins.idle(5, state(8));
        let (places, states) = twins.in_order(vec![3, 1, 3]);
        assert_eq!(places, [2, 3, 1, 5, 4]);
        assert_eq!(states.iter().map(|state| state.born).collect::<Vec<_>>(), [2, 3, 1, 8, 9]);
        assert!(twins.in_order(vec![1]).0.is_empty());
    }
}
