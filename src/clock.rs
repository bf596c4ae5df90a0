//! The wall clock as an argument, so that windows can be tested without waiting.

use protocols::UnixNanos;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Where the present time comes from.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The system's clock, steps and all.
    System,
    /// `epoch` at the moment `start`, then as tokio's clock goes, which tests can pause.
    Tokio {
        /// The wall time at `start`.
        epoch: UnixNanos,
        /// The moment of `epoch`.
        start: Instant,
    },
}

impl Clock {
    /// A clock that shows `epoch` now and follows tokio's clock from here on.
    pub fn starting_at(epoch: UnixNanos) -> Self {
        Self::Tokio { epoch, start: Instant::now() }
    }

    /// The present time.
    pub fn now(&self) -> UnixNanos {
        match self {
            Self::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(UnixNanos(0), |since| UnixNanos(nanos(since))),
            Self::Tokio { epoch, start } => UnixNanos(epoch.0 + nanos(start.elapsed())),
        }
    }
}

/// A duration in nanoseconds, saturating after 292 years.
pub fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
