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
    /// As tokio's clock, and put on or back by a test.
    #[cfg(test)]
    Stepped {
        /// The moment of 0.
        start: Instant,
        /// What it shows then.
        offset: &'static std::sync::atomic::AtomicI64,
    },
}

impl Clock {
    /// A clock that shows `epoch` now and follows tokio's clock from here on.
    pub fn starting_at(epoch: UnixNanos) -> Self {
        Self::Tokio { epoch, start: Instant::now() }
    }

    /// A clock that shows `epoch` now and, from here on, what the test makes of it.
    #[cfg(test)]
    pub(crate) fn stepped(epoch: UnixNanos) -> Self {
        let offset = Box::leak(Box::new(std::sync::atomic::AtomicI64::new(epoch.0)));
        Self::Stepped { start: Instant::now(), offset }
    }

    /// Puts the clock on by so many seconds, or back.
    #[cfg(test)]
    pub(crate) fn step(&self, secs: i64) {
        if let Self::Stepped { offset, .. } = self {
            offset.fetch_add(secs * 1_000_000_000, std::sync::atomic::Ordering::SeqCst);
        }
    }

    /// The present time.
    pub fn now(&self) -> UnixNanos {
        match self {
            Self::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(UnixNanos(0), |since| UnixNanos(nanos(since))),
            Self::Tokio { epoch, start } => UnixNanos(epoch.0 + nanos(start.elapsed())),
            #[cfg(test)]
            Self::Stepped { start, offset } => {
                let shown = offset.load(std::sync::atomic::Ordering::SeqCst);
                UnixNanos(shown + nanos(start.elapsed()))
            }
        }
    }
}

/// A duration in nanoseconds, saturating after 292 years.
pub fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
