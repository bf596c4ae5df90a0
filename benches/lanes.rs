//! A lane on a runtime of one thread whose clock stands still, so that the same is done each time.

use anyhow::Result;
use pointsman::backend::{Outcome, Payload, Ship, Shipping};
use pointsman::clock::Clock;
use pointsman::lane::{Config, Lane, Running, Settings, State, spawn};
use protocols::{Encode, UnixNanos};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// A lane, and a backend that takes all and keeps nothing.
pub struct Yard {
    pub runtime: Runtime,
    pub lane: Lane,
    pub running: Running,
    pub clock: Clock,
    /// Whether the backend answers.
    open: watch::Sender<bool>,
    delivered: watch::Receiver<usize>,
}

impl Yard {
    /// A lane to a backend of that kind; its spool is in `dir`.
    pub fn new(
        kind: &'static str,
        config: &Config,
        encode: impl Encode + 'static,
        dir: Option<&Path>,
    ) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let entered = runtime.enter();
        let settings = Settings::new("bench", kind, config);
        let state = State::new(Arc::default(), settings.shards);
        if let Some(dir) = dir {
            state.open_spool(&settings, dir).map_err(anyhow::Error::msg)?;
        }
        let (open, opened) = watch::channel(true);
        let (delivering, delivered) = watch::channel(0);
        let ship = Box::new(Sink { open: opened, delivered: delivering });
        let clock = Clock::starting_at(UnixNanos::from_secs(1_700_000_000));
        let (lane, running) = spawn(settings, state, Box::new(encode), ship, clock);
        drop(entered);
        Ok(Self { runtime, lane, running, clock, open, delivered })
    }

    /// Makes the backend answer, or not.
    pub fn answer(&self, answers: bool) {
        self.open.send_replace(answers);
    }

    /// Lets the lane work until the backend has so many points in all; answers how many it has.
    pub fn deliver(&mut self, points: usize) -> usize {
        let Self { runtime, delivered, .. } = self;
        runtime.block_on(async { delivered.wait_for(|all| *all >= points).await.map_or(0, |n| *n) })
    }
}

struct Sink {
    open: watch::Receiver<bool>,
    delivered: watch::Sender<usize>,
}

impl Ship for Sink {
    fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a> {
        Box::pin(async move {
            self.open.wait_for(|open| *open).await.ok();
            self.delivered.send_modify(|all| *all += payload.points as usize);
            Outcome::Delivered
        })
    }
}
