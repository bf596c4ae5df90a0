//! What servers are asked to do, which of them are asked, and how one sees that it is done.

use crate::peer::Peer;
use crate::report::Sent;
use crate::tally::{Format, Tally};
use crate::trial::Load;
use crate::verdict::Verdict;
use std::fmt;
use std::time::Duration;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// statsd over UDP is summed up in windows.
    Aggregate { pack: u64 },
    /// Points of OpenTSDB's `put` over TCP are forwarded over HTTP, each of them.
    Put,
    /// Points of OpenTSDB's `/api/put` are.
    ApiPut,
    /// statsd over UDP is passed on as statsd over UDP.
    Relay { pack: u64 },
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The bare receiver, which forwards nothing.
    Bare,
    Gateway,
    Peer(Peer),
}

/// All tasks, in the order of the table.
pub const TASKS: [Task; 6] = [
    Task::Aggregate { pack: 25 },
    Task::Aggregate { pack: 1 },
    Task::Put,
    Task::ApiPut,
    Task::Relay { pack: 25 },
    Task::Relay { pack: 1 },
];

impl Task {
    /// Who takes part, with the lines a second that each is offered; HTTP is flat out.
    /// The rates of peers are such as they bear without loss on a machine that is not quite idle.
    pub fn entrants(self) -> Vec<(Who, f64)> {
        use Peer::{Collectd, Repeater, Statsd, Statsdproxy, Vmagent};
        let with_floor = |rate, peers: &[_]| [&[(Who::Bare, rate)], peers].concat();
        let peer = |peer, rate| (Who::Peer(peer), rate);
        let gateway = |rate| (Who::Gateway, rate);
        match self {
            Self::Aggregate { pack: 1 } => {
                with_floor(300e3, &[gateway(300e3), peer(Collectd, 100e3), peer(Statsd, 30e3)])
            }
            Self::Aggregate { .. } => {
                with_floor(1.5e6, &[gateway(1.5e6), peer(Collectd, 500e3), peer(Statsd, 100e3)])
            }
            // Flat out the gateway takes more than the generator takes back at the other end.
            Self::Put => with_floor(f64::INFINITY, &[gateway(1.0e6), peer(Vmagent, 1.0e6)]),
            Self::ApiPut => {
                with_floor(f64::INFINITY, &[gateway(f64::INFINITY), peer(Vmagent, f64::INFINITY)])
            }
            Self::Relay { pack: 1 } => {
                vec![gateway(200e3), peer(Statsdproxy, 200e3), peer(Repeater, 15e3)]
            }
            Self::Relay { .. } => {
                vec![gateway(800e3), peer(Statsdproxy, 500e3), peer(Repeater, 100e3)]
            }
        }
    }

    /// Only windows need the time to close; a part of it is enough for the rest.
    pub fn seconds(self, seconds: f64) -> f64 {
        if self.has_windows() { seconds } else { seconds / 3.0 }
    }

    /// What is sent; HTTP is TCP underneath, so its floor is that of `put`.
    pub fn load(self, who: Who, rate: f64) -> Load {
        match self {
            Self::Aggregate { pack } | Self::Relay { pack } => Load::Datagrams { pack, rate },
            Self::ApiPut if who != Who::Bare => Load::ApiPut,
            Self::Put if rate.is_finite() => Load::PutAt { rate },
            Self::Put | Self::ApiPut => Load::Put,
        }
    }

    /// What comes out.
    pub const fn format(self, who: Who) -> Format {
        match (who, self) {
            (Who::Peer(peer), _) => peer.format(),
            (_, Self::Relay { .. }) => Format::Statsd,
            _ => Format::LineProtocol,
        }
    }

    /// How many points reached the server, where windows sum them up, or else the sink, when the
    /// kernel dropped so many in front of the server.
    pub const fn arrived(self, sent: &Sent, excused: u64, out: &Tally) -> u64 {
        if self.has_windows() { sent.points.saturating_sub(excused) } else { out.points }
    }

    /// Whether all that was sent is there, or the kernel tells why it is not.
    pub fn is_done(self, sent: &Sent, excused: u64, out: &Tally) -> bool {
        if self.has_windows() {
            let is_told = out.told > 0 && out.told + excused >= sent.points;
            is_told || Some(out.counter_sum) >= sent.counter_sum
        } else {
            out.points + excused >= sent.points
        }
    }

    /// What changes while there is something new; rows of idle series are not.
    pub const fn progress(self, out: &Tally) -> (u64, u64) {
        if self.has_windows() { (out.counter_sum, out.told) } else { (out.points, out.halves) }
    }

    /// How long nothing new may come before what is there is all.
    pub fn patience(self, window: f64) -> Duration {
        PATIENCE + Duration::from_secs_f64(if self.has_windows() { window } else { 0.0 })
    }

    /// Whether what is there is what was sent.
    pub fn judge(self, sent: &Sent, excused: u64, out: &Tally) -> Verdict {
        if self.has_windows() {
            Verdict::of_sums(sent, excused, out)
        } else {
            Verdict::of_points(sent, out)
        }
    }

    const fn has_windows(self) -> bool {
        matches!(self, Self::Aggregate { .. })
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Self::Aggregate { pack } => format!("statsd summed up, pack {pack}"),
            Self::Put => "put over TCP, forwarded".to_owned(),
            Self::ApiPut => "/api/put, forwarded".to_owned(),
            Self::Relay { pack } => format!("statsd relayed, pack {pack}"),
        })
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bare => f.pad("bare"),
            Self::Gateway => f.pad("gateway"),
            Self::Peer(peer) => peer.fmt(f),
        }
    }
}

/// Servers send what is left in a buffer after a second or two.
const PATIENCE: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_done_when_the_sum_is_there() {
        let sent = Sent { points: 100, counter_sum: Some(40), ..Sent::default() };
        let task = Task::Aggregate { pack: 25 };
        let check = |counter_sum, told, excused, expected| {
            let out = Tally { counter_sum, told, ..Tally::default() };
            assert_eq!(task.is_done(&sent, excused, &out), expected, "{out:?} {excused}");
        };
        check(40, 0, 0, true);
        check(39, 0, 0, false);
        check(39, 0, 25, false); // Who does not tell may have more to come.
        check(39, 75, 25, true);
        check(39, 75, 0, false);
    }

    #[test]
    fn a_relay_is_done_when_every_line_is_there() {
        let sent = Sent { points: 100, ..Sent::default() };
        let task = Task::Relay { pack: 1 };
        let check = |points, excused, expected| {
            let out = Tally { points, ..Tally::default() };
            assert_eq!(task.is_done(&sent, excused, &out), expected, "{points} {excused}");
            assert_eq!(task.arrived(&sent, excused, &out), points);
        };
        check(100, 0, true);
        check(99, 0, false);
        check(99, 1, true);
    }

    #[test]
    fn rows_of_idle_series_are_nothing_new() {
        let task = Task::Aggregate { pack: 1 };
        let before = Tally { points: 10, halves: 10, counter_sum: 5, ..Tally::default() };
        let idle = Tally { points: 20, halves: 20, ..before };
        assert_eq!(task.progress(&before), task.progress(&idle));
        assert_ne!(Task::Put.progress(&before), Task::Put.progress(&idle));
    }

    #[test]
    fn everybody_is_held_against_the_gateway() {
        for task in TASKS {
            assert!(task.entrants().iter().any(|(who, _)| *who == Who::Gateway), "{task}");
        }
    }
}
