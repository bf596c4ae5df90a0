//! Finished tasks: a broker says which have ended, and the artifacts they left are fetched and taken in.
//!
//! ```text
//! broker ─► notice ─► came before? ─► artifact ─► points ─► gate ─► lanes
//!    ▲                                                               │
//!    └──── acknowledged ◄─── remembered, on disk ◄─── queued ◄───────┘
//! ```
//!
//! One task keeps the connection to the broker, and one more works on each message, up to `prefetch`
//! of them. The gate lets the points of an artifact through for the series that the task's routes name,
//! and for no others. A message is acknowledged when its points are where they survive a stop and a
//! kill, and when it is recorded on disk that it was seen ([`keys`](super::keys)). So a message that is
//! delivered again, as any may be, counts once, unless a kill came in between. One that can never lead to
//! points is counted by its reason, remembered and acknowledged as well, so that none comes back for
//! ever. At a stop, messages that are not finished go back to the broker.
//!
//! Limits: `limits.body` for an artifact, packed and unpacked; `limits.line` for a line or a row;
//! `limits.request` for one attempt to fetch one; `prefetch`. Rejected: the reasons of the parsers and
//! `table_refused` (as of files), `artifact_…`, `points_lost`, and of messages `malformed_message`,
//! `message_version`, `message_too_large`, `invalid_task`, `invalid_run`, `invalid_series`. Noticed:
//! `repeated_message`, `no_run`, `other_route`, `other_exchange`, `broker_lost`, `broker_away`,
//! `paused`, and those of files.

mod answer;
mod artifact;
mod broker;
mod carrier;
mod config;
mod content;
mod notice;
mod reason;
mod retry;
mod work;

pub use config::{Broker, Tasks};
pub use retry::Retry;

use super::intake::Context;
use crate::tls::{Keeper, Owner};
use crate::units::Span;
use artifact::Artifacts;
use broker::{Line, Source};
use rand::random;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use work::Desk;

/// Whether an address is one of a broker.
///
/// # Errors
///
/// Why not; nothing of it is repeated.
pub fn check_address(url: &str) -> Result<(), String> {
    broker::address(url).map(drop)
}

/// What a listener of finished tasks talks to.
pub(super) struct Parts {
    source: Source,
    artifacts: Artifacts,
}

impl Parts {
    /// Those of a listener whose configuration was judged; `certificates` keeps theirs renewed.
    pub(super) fn of(context: &Context, certificates: &Keeper) -> Result<Self, String> {
        let config = &context.config;
        let (Some(broker), Some(tasks)) = (&config.broker, &config.tasks) else {
            return Err("`broker` or `tasks` is missing".to_owned());
        };
        let (bytes, patience) = (config.limits.body.bytes(), config.limits.request.0);
        let artifacts = Artifacts::new(tasks, bytes, patience, context.clock)?;
        let source = Source::new(broker, &tasks.route)?;
        let mut shown = [source.tls().renewable(), artifacts.tls().renewable()];
        // The metric of the listener shows the certificate that was looked after last, so one that
        // is there has to come after one that is not.
        shown.sort_by_key(|one| one.expires().is_some());
        for one in shown {
            let owner = Owner::Listener(Arc::clone(&context.listener), Arc::clone(&context.book));
            certificates.look_after(owner, &one);
        }
        Ok(Self { source, artifacts })
    }
}

/// Takes messages until the listener stops, over as many connections as that takes.
pub(super) async fn run(context: Context, parts: Parts) {
    let prefetch = context.config.broker.as_ref().map_or(1, |broker| usize::from(broker.prefetch));
    let Parts { source, artifacts } = parts;
    let (turns, working) = (Arc::new(Semaphore::new(prefetch)), TaskTracker::new());
    let desk = Arc::new(Desk::new(context.clone(), artifacts));
    let post = Post { context, desk, turns, working };
    let mut failures = 0_u32;
    while !post.context.stop.is_cancelled() {
        let began = Instant::now();
        match post.context.stop.run_until_cancelled(source.attach()).await {
            None => break,
            Some(Ok(line)) => post.serve(line).await,
            Some(Err(why)) => post.tell_away(&why),
        }
        failures = if began.elapsed() > STEADY { 0 } else { failures.saturating_add(1) };
        let _ = post.context.stop.run_until_cancelled(sleep(pause(failures, random()))).await;
    }
    post.finish().await;
}

/// Hands messages to those who work on them.
struct Post {
    context: Context,
    desk: Arc<Desk>,
    /// One for each message in hand, those that came over an earlier connection among them.
    turns: Arc<Semaphore>,
    working: TaskTracker,
}

impl Post {
    /// Takes messages until the connection ends or the listener stops.
    async fn serve(&self, mut line: Line) {
        let Context { listener, book, stop, .. } = &self.context;
        let place = self.context.config.places().concat();
        info!(listener = &**listener, place, "the broker sends messages");
        book.connections.add(1);
        let why = loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break None,
                next = self.take(&mut line) => if let Err(why) = next { break Some(why) },
            }
        };
        match why {
            Some(why) => {
                book.noticed.add("broker_lost", 1);
                warn!(listener = &**listener, why, "the broker is lost");
            }
            // Messages that are in hand are acknowledged on the line on which they came.
            None => {
                line.pause().await;
                self.finish().await;
            }
        }
        line.close().await;
        book.connections.sub(1);
    }

    /// Hands on the next message, once there is a turn free for it.
    async fn take(&self, line: &mut Line) -> Result<(), String> {
        // It is never closed.
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|e| e.to_string())?;
        let delivery = match line.next().await {
            Some(Ok(delivery)) => delivery,
            Some(Err(error)) => return Err(error.to_string()),
            None => return Err("it sends no more; has the queue been deleted?".to_owned()),
        };
        let desk = Arc::clone(&self.desk);
        self.context.run(self.working.track_future(async move {
            desk.take(delivery).await;
            drop(turn);
        }));
        Ok(())
    }

    /// Waits for the messages in hand. They mark the listener as busy themselves, so this wait does not.
    async fn finish(&self) {
        let pause = self.context.busy.pause();
        self.working.close();
        self.working.wait().await;
        drop(pause);
    }

    fn tell_away(&self, why: &str) {
        self.context.book.noticed.add("broker_away", 1);
        if self.context.may_warn("broker_away", WARN_EVERY) {
            let listener = &*self.context.listener;
            warn!(listener, why, "the broker cannot be reached; trying again");
        }
    }
}

/// How long to wait after so many connections in a row that came to nothing.
fn pause(failures: u32, random: f64) -> Duration {
    RECONNECT.delay(failures.saturating_sub(1), None, random)
}

/// A connection that lasted for so long was a good one.
const STEADY: Duration = Duration::from_secs(30);
const RECONNECT: Retry = Retry { first: Span::millis(250), max: Span::secs(30) };
/// How often it is told that the broker is away.
const WARN_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_is_away_is_asked_less_and_less_often() {
        let millis = |failures| pause(failures, 1.0).as_millis();
        assert_eq!([0, 1, 2, 3, 8, 90].map(millis), [250, 250, 500, 1000, 30_000, 30_000]);
        assert_eq!(pause(2, 0.0).as_millis(), 250);
    }
}
