//! Whether what came out is what went in.

use crate::report::{Sent, short};
use crate::tally::Tally;
use serde::Serialize;
use std::fmt;

/// From the best to the worst, so that the worst of several is the greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every point is there, and the sum of all values is.
    #[default]
    Exact,
    /// Points did not arrive; what did is right as far as can be told.
    Lost { points: u64 },
    /// The generator's own sink was too slow for so many datagrams: the trial says little.
    SinkTooSlow { datagrams: u64 },
    /// So many answers were refusals.
    Refused { answers: u64 },
    /// The gateway's books miss points, or tell of points that were dropped later.
    Books { off: i64, dropped: u64 },
    /// What came out is something else: this much is missing from its sum, or too much in it.
    Sum { off: i64 },
    /// So many lines or bodies could not be read.
    Garbled { pieces: u64 },
}

impl Verdict {
    /// Of counters that were summed up, when the kernel dropped so many points before.
    pub fn of_sums(sent: &Sent, excused: u64, out: &Tally) -> Self {
        let off = difference(sent.counter_sum.unwrap_or(0), out.counter_sum);
        match (off, excused) {
            _ if out.garbled > 0 => Self::Garbled { pieces: out.garbled },
            (0, 0) => Self::Exact,
            // Which lines were lost is not known, so neither is what they were worth.
            (0.., 1..) => Self::of_loss(excused),
            (off, _) => Self::Sum { off },
        }
    }

    /// Of points each of which has to come out.
    pub fn of_points(sent: &Sent, out: &Tally) -> Self {
        match difference(sent.points, out.points) {
            _ if out.garbled > 0 => Self::Garbled { pieces: out.garbled },
            0 if out.halves == sent.halves => Self::Exact,
            0 => Self::Sum { off: difference(sent.halves, out.halves) / 2 },
            lost @ 1.. => Self::of_loss(lost.unsigned_abs()),
            more => Self::Sum { off: more },
        }
    }

    /// Of books that tell of so many points, of which some were dropped later.
    pub const fn of_books(sent: u64, told: u64, dropped: u64) -> Self {
        match (difference(sent, told), dropped) {
            (0, 0) => Self::Exact,
            (off, dropped) => Self::Books { off, dropped },
        }
    }

    /// Of so many points that did not arrive.
    pub const fn of_loss(points: u64) -> Self {
        if points == 0 { Self::Exact } else { Self::Lost { points } }
    }

    /// Of what the kernel dropped in front of the sink.
    pub const fn of_sink(datagrams: u64) -> Self {
        if datagrams == 0 { Self::Exact } else { Self::SinkTooSlow { datagrams } }
    }

    /// Of what the server answered.
    pub const fn of_answers(sent: &Sent) -> Self {
        if sent.refused == 0 { Self::Exact } else { Self::Refused { answers: sent.refused } }
    }

    /// Whether it is explained: nothing is wrong, though something may be lost.
    pub const fn is_explained(self) -> bool {
        matches!(self, Self::Exact | Self::Lost { .. } | Self::SinkTooSlow { .. })
    }
}

const fn difference(sent: u64, out: u64) -> i64 {
    sent.cast_signed() - out.cast_signed()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match *self {
            Self::Exact => "exact".to_owned(),
            Self::Lost { points } => format!("{} lost", short(points as f64)),
            Self::SinkTooSlow { datagrams } => format!("sink lost {}", short(datagrams as f64)),
            Self::Refused { answers } => format!("{answers} REFUSED"),
            Self::Books { off: 0, dropped } => format!("{dropped} DROPPED"),
            Self::Books { off, .. } => format!("BOOKS OFF {off}"),
            Self::Sum { off } => format!("SUM OFF {off}"),
            Self::Garbled { pieces } => format!("{pieces} GARBLED"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_or_lack_what_the_kernel_dropped() {
        let sent = Sent { points: 100, counter_sum: Some(50), ..Sent::default() };
        let check = |counter_sum, excused, expected| {
            let out = Tally { counter_sum, ..Tally::default() };
            assert_eq!(Verdict::of_sums(&sent, excused, &out), expected, "{counter_sum} {excused}");
        };
        check(50, 0, Verdict::Exact);
        check(49, 0, Verdict::Sum { off: 1 });
        check(49, 25, Verdict::Lost { points: 25 });
        check(51, 25, Verdict::Sum { off: -1 });
    }

    #[test]
    fn points_are_exact_by_number_and_by_value() {
        let sent = Sent { points: 100, halves: 900, ..Sent::default() };
        let check = |points, halves, expected| {
            let out = Tally { points, halves, ..Tally::default() };
            assert_eq!(Verdict::of_points(&sent, &out), expected, "{points} {halves}");
        };
        check(100, 900, Verdict::Exact);
        check(100, 898, Verdict::Sum { off: 1 });
        check(99, 890, Verdict::Lost { points: 1 });
        check(101, 910, Verdict::Sum { off: -1 });
        let out = Tally { points: 100, halves: 900, garbled: 1, ..Tally::default() };
        assert_eq!(Verdict::of_points(&sent, &out), Verdict::Garbled { pieces: 1 });
    }

    #[test]
    fn the_worst_is_the_greatest() {
        let lost = Verdict::Lost { points: 7 };
        assert_eq!(Verdict::Exact.max(lost), lost);
        assert_eq!(lost.max(Verdict::Sum { off: 1 }), Verdict::Sum { off: 1 });
        assert_eq!(Verdict::of_books(9, 9, 0), Verdict::Exact);
        assert!(!Verdict::of_books(9, 8, 0).is_explained());
        assert!(!Verdict::of_books(9, 9, 1).is_explained());
        assert!(lost.is_explained() && !Verdict::Sum { off: 1 }.is_explained());
    }
}
