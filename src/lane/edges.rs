//! When windows end, by a wall clock that may be set back or forth.
//!
//! Windows end at multiples of their length since 1970, so that gateways and restarts agree
//! on them. No two closings ever get the same stamp:
//!
//! - A clock that jumps ahead closes the window at once, at the last multiple before the
//!   present time; the multiples in between stay empty.
//! - A clock set back by up to two windows makes the open window last until its edge comes.
//! - A clock set back further would silence the lane for that long. Windows then end at the
//!   clock's new multiples, and rows whose edge was used before carry as many nanoseconds more
//!   as there were such steps, so that they overwrite nothing.

use crate::clock::nanos;
use protocols::UnixNanos;
use std::time::Duration;

/// When the window that is open at `now` ends.
pub fn window_end(now: UnixNanos, length: Duration) -> UnixNanos {
    let length = nanos(length).max(1);
    UnixNanos((now.0.div_euclid(length) + 1) * length)
}

/// The edges of one backend's windows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Edges {
    length: i64,
    next: i64,
    latest: i64,
    steps_back: i64,
}

impl Edges {
    /// Starts, or goes on with another length of window: the open one ends at the next multiple.
    pub(super) fn align(&mut self, now: UnixNanos, length: i64) {
        self.length = length.max(1);
        self.next = self.before(now) + self.length;
    }

    /// How long until the open window may end, at most one window's length.
    pub(super) fn wait(&self, now: UnixNanos) -> u64 {
        (self.next - now.0).clamp(0, self.length).unsigned_abs()
    }

    /// The stamp of the window that ends now, if one does.
    pub(super) fn close(&mut self, now: UnixNanos) -> Option<UnixNanos> {
        if now.0 >= self.next {
            let edge = self.before(now);
            self.next = edge + self.length;
            return Some(self.stamp(edge));
        }
        if self.next - now.0 > 3 * self.length {
            self.steps_back += 1;
            self.next = self.before(now) + self.length;
        }
        None
    }

    /// The stamp of a window that ends before its time, because the lane ends.
    pub(super) fn end(&mut self, now: UnixNanos) -> UnixNanos {
        let end = now.0.max(self.latest + 1);
        self.latest = end;
        UnixNanos(end)
    }

    fn stamp(&mut self, edge: i64) -> UnixNanos {
        if edge > self.latest {
            self.latest = edge;
            UnixNanos(edge)
        } else {
            UnixNanos(edge + self.steps_back)
        }
    }

    fn before(&self, now: UnixNanos) -> i64 {
        now.0 - now.0.rem_euclid(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a clock that shows these seconds one after the other, with windows of ten seconds.
    fn stamps(clock: &[i64]) -> Vec<i64> {
        let mut edges = Edges::default();
        edges.align(UnixNanos::from_secs(clock[0]), 10_000_000_000);
        let now = clock.iter().map(|secs| UnixNanos::from_secs(*secs));
        now.filter_map(|now| edges.close(now)).map(|stamp| stamp.0).collect()
    }

    fn secs(stamps: &[i64]) -> Vec<i64> {
        stamps.iter().map(|secs| secs * 1_000_000_000).collect()
    }

    #[test]
    fn windows_end_at_multiples() {
        assert_eq!(stamps(&[103, 109, 110, 111, 120, 131]), secs(&[110, 120, 130]));
    }

    #[test]
    fn a_jump_ahead_closes_at_the_last_multiple() {
        assert_eq!(stamps(&[103, 3617, 3620]), secs(&[3610, 3620]));
    }

    #[test]
    fn a_small_step_back_makes_one_window_longer() {
        assert_eq!(stamps(&[103, 110, 105, 110, 119, 120]), secs(&[110, 120]));
    }

    #[test]
    fn a_large_step_back_goes_on_without_a_second_row_for_an_edge() {
        let stamps = stamps(&[1000, 1010, 1020, 955, 960, 1010, 1020, 1030, 910, 1010]);
        let mut expected = secs(&[1010, 1020, 960, 1010, 1020, 1030, 1010]);
        expected[2] += 1;
        expected[3] += 1;
        expected[4] += 1;
        expected[6] += 2;
        assert_eq!(stamps, expected);
    }

    #[test]
    fn the_last_window_ends_when_the_lane_does() {
        let mut edges = Edges::default();
        edges.align(UnixNanos(15), 10);
        assert_eq!(edges.close(UnixNanos(20)), Some(UnixNanos(20)));
        assert_eq!(edges.end(UnixNanos(20)), UnixNanos(21));
        assert_eq!(edges.end(UnixNanos(27)), UnixNanos(27));
    }
}
