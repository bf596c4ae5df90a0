//! The lanes of all backends, and what outlives their settings.
//!
//! A changed backend is prepared first (which may fail and then has changed nothing) and
//! entered afterwards (which cannot fail). Windows and queue belong to the backend's *name*.

use super::grace::Grace;
use crate::backend::{self, Ship};
use crate::books::Books;
use crate::clock::Clock;
use crate::config::Backend;
use crate::lane::{self, DeadLetters, Lane, Running, Settings, State};
use crate::route::Table;
use crate::tls::Keeper;
use protocols::Encode;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Every lane that has not ended, by its backend's name.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    states: BTreeMap<String, (&'static str, Arc<State>)>,
    /// Retired ones too, until they have drained.
    running: Vec<(String, Running)>,
}

/// A lane to be, in the order of the plan.
pub(super) enum Prepared {
    /// Its section is unchanged: the same tasks go on.
    Kept(Lane),
    /// New, or changed and to take over windows and queue.
    Made(Box<Made>),
}

pub(super) struct Made {
    settings: Settings,
    state: Arc<State>,
    encode: Box<dyn Encode>,
    ships: Vec<Box<dyn Ship>>,
}

impl Lanes {
    /// Builds encoders and shippers for all that is new or changed since `before`.
    pub(super) fn prepare(
        &self,
        plan: &BTreeMap<String, Backend>,
        before: &BTreeMap<String, Backend>,
        table: &Table,
        world: &World<'_>,
    ) -> Result<Vec<Prepared>, String> {
        let prepare = |(name, backend): (&String, &Backend)| {
            let running = table.lanes.iter().find(|lane| lane.name() == name);
            match running.filter(|_| before.get(name) == Some(backend)) {
                Some(lane) => Ok(Prepared::Kept(lane.clone())),
                None => self
                    .make(name, backend, world)
                    .map_err(|problem| format!("backend `{name}`: {problem}")),
            }
        };
        plan.iter().map(prepare).collect()
    }

    fn make(&self, name: &str, backend: &Backend, world: &World<'_>) -> Result<Prepared, String> {
        let settings = Settings::new(name, backend.kind.kind(), &backend.lane);
        let book = world.books.backend(name);
        let (data_dir, clock) = (world.data_dir, world.clock);
        let around =
            backend::World { name, data_dir, clock, book: &book, certificates: world.certificates };
        let ships = backend.kind.shippers(settings.concurrency, &around)?;
        let state = match self.states.get(name) {
            Some((kind, state)) if *kind == settings.kind => Arc::clone(state),
            Some((kind, state)) if book.under_way() > 0 || !state.is_at_rest() => {
                return Err(format!(
                    "it still holds points for the kind {kind}, which the kind {} cannot take over; give the new one another name",
                    settings.kind
                ));
            }
            _ => State::with_letters(book, settings.shards, world.letters.of(name)),
        };
        state.open_spool(&settings, world.data_dir)?;
        let encode = backend.kind.encoder();
        Ok(Prepared::Made(Box::new(Made { settings, state, encode, ships })))
    }

    /// Starts what was prepared; answers all lanes in order. What a lane replaces lets go.
    pub(super) fn enter(&mut self, prepared: Vec<Prepared>, world: &World<'_>) -> Vec<Lane> {
        self.forget_ended();
        prepared
            .into_iter()
            .map(|prepared| match prepared {
                Prepared::Kept(lane) => lane,
                Prepared::Made(made) => self.start(*made, world),
            })
            .collect()
    }

    fn start(&mut self, made: Made, world: &World<'_>) -> Lane {
        let Made { settings, state, encode, ships } = made;
        if world.locked {
            state.open_windows(&settings, world.data_dir, world.clock.now());
        }
        let name = settings.name.clone();
        self.states.insert(name.clone(), (settings.kind, Arc::clone(&state)));
        let (lane, running) = lane::spawn_many(settings, state, encode, ships, world.clock);
        self.running.push((name, running));
        lane
    }

    /// Lets go of what earlier reloads replaced or removed, once it has drained.
    fn forget_ended(&mut self) {
        self.running.retain(|(_, running)| !running.has_ended());
        let running: BTreeSet<_> = self.running.iter().map(|(name, _)| name).collect();
        self.states.retain(|name, _| running.contains(name));
    }

    /// From now on all that waits goes to disk, where there is one for it, while it is delivered.
    pub(super) fn secure(&self) {
        self.running.iter().for_each(|(_, running)| running.secure());
    }

    /// Waits until every lane has drained; what has not in time is stopped, and what it held is on
    /// disk or lost. Answers how many points each lost by that, if any. The table that referred to them
    /// must be gone.
    pub(super) async fn drain(&mut self, grace: &Grace) -> BTreeMap<String, u64> {
        let mut lost = BTreeMap::new();
        for (name, mut running) in std::mem::take(&mut self.running) {
            match grace.within(running.drained()).await {
                Some(()) => *lost.entry(name).or_default() += running.settled().await,
                None => *lost.entry(name).or_default() += running.abandon().await,
            }
        }
        lost.retain(|_, points| *points > 0);
        lost
    }
}

#[cfg(test)]
impl Lanes {
    /// How many lanes of those that were replaced or removed have not ended yet.
    pub(super) fn draining(&self) -> usize {
        let ended = self.running.iter().filter(|(_, running)| running.has_ended()).count();
        self.running.len() - ended - 1
    }

    /// The names whose windows and queue are kept.
    pub(super) fn known(&self) -> Vec<&str> {
        self.states.keys().map(String::as_str).collect()
    }
}

/// What lanes find around them.
pub(super) struct World<'a> {
    pub(super) books: &'a Books,
    pub(super) letters: &'a DeadLetters,
    pub(super) data_dir: &'a Path,
    pub(super) certificates: &'a Keeper,
    /// Whether the data directory is ours, so that windows can be remembered there.
    pub(super) locked: bool,
    pub(super) clock: Clock,
}
