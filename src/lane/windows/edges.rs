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
//!
//! A window whose rows are written *in part*, because the gateway ends before the window does,
//! gets its end's stamp, and the same once more when it is closed: then the rows of the whole
//! window take the place of those of the part.

use crate::clock::nanos;
use protocols::UnixNanos;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When the window that is open at `now` ends.
pub fn window_end(now: UnixNanos, length: Duration) -> UnixNanos {
    let length = nanos(length).max(1);
    UnixNanos((now.0.div_euclid(length) + 1) * length)
}

/// The edges of one backend's windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Edges {
    length: i64,
    next: i64,
    latest: i64,
    steps_back: i64,
    /// The edge of a window that was written in part, and the stamp of its rows.
    part: Option<(i64, i64)>,
    /// An edge whose stamp rows may have that are not to be replaced.
    shunned: Option<i64>,
}

impl Edges {
    /// Starts, or goes on with another length of window: the open one ends at the next multiple.
    pub(super) fn align(&mut self, now: UnixNanos, length: i64) {
        self.length = length.max(1);
        self.next = self.before(now) + self.length;
    }

    /// Goes on, before it is aligned, where an earlier process stopped. Answers the stamp of the
    /// window that was written in part, if that window is still open.
    pub(super) fn resume(&mut self, earlier: Self, now: UnixNanos) -> Option<UnixNanos> {
        *self = Self { shunned: self.shunned, ..earlier };
        self.part = self.part.filter(|(edge, _)| *edge > now.0);
        if self.is_far_ahead(now) {
            self.steps_back += 1;
        }
        self.part.map(|(_, stamp)| UnixNanos(stamp))
    }

    /// The same, with no window written in part.
    pub(super) const fn without_part(self) -> Self {
        Self { part: None, ..self }
    }

    /// Gives no row the stamp that the open window's end would give it: rows which are not to be
    /// replaced may have it.
    pub(super) fn shun(&mut self, now: UnixNanos, length: Duration) {
        self.shunned = Some(window_end(now, length).0);
    }

    /// How long until the open window may end, at most one window's length. Not at all when the
    /// clock was set back far: who asks again and again would wait for ever.
    pub(super) fn wait(&self, now: UnixNanos) -> u64 {
        if self.is_far_ahead(now) {
            return 0;
        }
        (self.next - now.0).clamp(0, self.length).unsigned_abs()
    }

    /// The stamp of the window that ends now, if one does.
    pub(super) fn close(&mut self, now: UnixNanos) -> Option<UnixNanos> {
        if now.0 >= self.next {
            let edge = self.before(now);
            self.next = edge + self.length;
            return Some(self.stamp(edge));
        }
        if self.is_far_ahead(now) {
            self.steps_back += 1;
            self.next = self.before(now) + self.length;
        }
        None
    }

    /// The stamp of the open window when it is written in part; it stays open.
    pub(super) fn part(&mut self) -> UnixNanos {
        if let Some((edge, _)) = self.part.filter(|(edge, _)| *edge != self.next) {
            // Windows were of another length then. Nobody goes on with that one any more, and its
            // rows are to stay.
            self.latest = self.latest.max(edge);
            self.steps_back += 1;
        }
        let stamp = self.due(self.next);
        self.part = Some((self.next, stamp));
        UnixNanos(stamp)
    }

    /// The stamp of a window that ends before its time, because the lane ends.
    pub(super) fn end(&mut self, now: UnixNanos) -> UnixNanos {
        let end = now.0.max(self.latest + 1);
        self.latest = end;
        self.part = None;
        UnixNanos(end)
    }

    fn stamp(&mut self, edge: i64) -> UnixNanos {
        let stamp = self.due(edge);
        self.part = self.part.filter(|(part, _)| *part > edge);
        self.latest = self.latest.max(edge);
        UnixNanos(stamp)
    }

    fn due(&self, edge: i64) -> i64 {
        match self.part {
            Some((part, stamp)) if part == edge => stamp,
            _ if edge <= self.latest => edge + self.steps_back,
            _ if self.shunned == Some(edge) => edge + 1,
            _ => edge,
        }
    }

    fn is_far_ahead(&self, now: UnixNanos) -> bool {
        self.next - now.0 > 3 * self.length
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
    fn nobody_waits_for_an_edge_that_is_hours_away() {
        let mut edges = Edges::default();
        edges.align(UnixNanos(1013), 10);
        assert_eq!(edges.wait(UnixNanos(1013)), 7);
        assert_eq!(edges.wait(UnixNanos(993)), 10, "a small step back");
        assert_eq!(edges.wait(UnixNanos(13)), 0);
        assert_eq!(edges.close(UnixNanos(13)), None);
        assert_eq!(edges.wait(UnixNanos(13)), 7);
    }

    #[test]
    fn the_last_window_ends_when_the_lane_does() {
        let mut edges = Edges::default();
        edges.align(UnixNanos(15), 10);
        assert_eq!(edges.close(UnixNanos(20)), Some(UnixNanos(20)));
        assert_eq!(edges.end(UnixNanos(20)), UnixNanos(21));
        assert_eq!(edges.end(UnixNanos(27)), UnixNanos(27));
    }

    #[test]
    fn rows_of_a_part_stay_when_windows_of_another_length_are_written_in_part() {
        let mut edges = Edges::default();
        edges.align(UnixNanos(115), 70);
        assert_eq!(edges.part(), UnixNanos(140));
        let mut second = Edges::default();
        assert_eq!(second.resume(edges, UnixNanos(116)), Some(UnixNanos(140)));
        second.align(UnixNanos(116), 20);
        assert_eq!(second.part(), UnixNanos(121));
        let mut third = Edges::default();
        third.resume(second, UnixNanos(125));
        third.align(UnixNanos(125), 20);
        assert_eq!(third.close(UnixNanos(140)), Some(UnixNanos(141)), "140 is taken");
        assert_eq!(third.close(UnixNanos(160)), Some(UnixNanos(160)));
    }

    /// Stops at one time and starts at another, with windows of ten.
    fn restarted(stopped: i64, started: i64) -> (Edges, UnixNanos, Option<UnixNanos>) {
        let mut edges = Edges::default();
        edges.align(UnixNanos(stopped - 10), 10);
        edges.close(UnixNanos(stopped));
        let part = edges.part();
        let mut after = Edges::default();
        let open = after.resume(edges, UnixNanos(started));
        after.align(UnixNanos(started), 10);
        (after, part, open)
    }

    #[test]
    fn a_window_written_in_part_is_closed_with_the_same_stamp() {
        let (mut edges, part, open) = restarted(13, 17);
        assert_eq!((part, open), (UnixNanos(20), Some(UnixNanos(20))));
        assert_eq!(edges.part(), UnixNanos(20), "and a second stop in it, too");
        assert_eq!(edges.close(UnixNanos(20)), Some(UnixNanos(20)));
        assert_eq!(edges.close(UnixNanos(30)), Some(UnixNanos(30)));
        assert_eq!(edges.part, None);
    }

    #[test]
    fn a_window_that_ended_while_nobody_was_there_is_over() {
        for started in [20, 27, 500] {
            let (mut edges, _, open) = restarted(13, started);
            assert_eq!(open, None, "{started}");
            let next = started - started % 10 + 10;
            assert_eq!(edges.close(UnixNanos(next)), Some(UnixNanos(next)));
        }
    }

    #[test]
    fn a_clock_set_back_far_between_two_processes_repeats_no_stamp() {
        let (mut edges, part, open) = restarted(1013, 903);
        assert_eq!((part, open), (UnixNanos(1020), Some(UnixNanos(1020))));
        assert_eq!(edges.close(UnixNanos(910)), Some(UnixNanos(911)));
        assert_eq!(edges.close(UnixNanos(1020)), Some(UnixNanos(1020)), "its turn comes again");
        assert_eq!(edges.close(UnixNanos(1030)), Some(UnixNanos(1030)));
    }

    #[test]
    fn a_stamp_that_may_be_taken_is_shunned_once() {
        let mut edges = Edges::default();
        edges.shun(UnixNanos(13), Duration::from_nanos(10));
        edges.align(UnixNanos(13), 10);
        assert_eq!(edges.close(UnixNanos(20)), Some(UnixNanos(21)));
        assert_eq!(edges.close(UnixNanos(30)), Some(UnixNanos(30)));
    }
}
