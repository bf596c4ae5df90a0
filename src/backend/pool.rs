//! Which of several endpoints gets the next payload. Pure: time is an argument.
//!
//! The endpoints of one backend are replicas of one database, or the front ends of one cluster, so
//! it does not matter which of them takes a payload, and each payload goes to one. Those that are
//! well take turns: the load is shared, and a dead one is found by the next payload, not in the
//! hour of need. One that fails is set aside and asked again after a delay that doubles. When it
//! answers it is on trial: it gets the next payload, and only if it takes that it is well again.
//! When none is well the one is tried that would be asked next, for there is nothing to lose.

use std::time::Duration;
use tokio::time::Instant;

/// The health of a backend's endpoints, which are known by their places.
#[derive(Debug)]
pub(super) struct Pool {
    members: Vec<Health>,
    /// Whose turn it is.
    next: usize,
    longest: Duration,
}

/// Who gets a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The endpoint's place.
    pub(super) at: usize,
    /// Whether it is on trial, so that it need not be given much time while others are well.
    pub(super) on_trial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Well,
    OnTrial { failures: u32 },
    SetAside { failures: u32, due: Instant },
}

impl Pool {
    /// So many endpoints, all of them well; one that is not is asked at least so often.
    pub(super) fn new(members: usize, longest: Duration) -> Self {
        Self { members: vec![Health::Well; members], next: 0, longest }
    }

    /// Who gets a payload.
    pub(super) fn choose(&mut self, now: Instant) -> Choice {
        let last_hope = Choice { at: self.due_soonest().unwrap_or(0), on_trial: false };
        self.another(now).unwrap_or(last_hope)
    }

    /// Who may get it now that others have failed: none, unless one is well or on trial.
    pub(super) fn another(&mut self, now: Instant) -> Option<Choice> {
        let on_trial = |health: &Health| matches!(health, Health::OnTrial { .. });
        if let Some(at) = self.members.iter().position(on_trial) {
            // One payload is trial enough: until its verdict, no other goes there.
            self.set_aside(at, now);
            return Some(Choice { at, on_trial: self.members.contains(&Health::Well) });
        }
        let count = self.members.len();
        let mut turns = (0..count).map(|turn| (self.next + turn) % count);
        let at = turns.find(|at| self.members.get(*at) == Some(&Health::Well))?;
        self.next = at + 1;
        Some(Choice { at, on_trial: false })
    }

    /// It took a payload, or refused it as only somebody can who is well. Answers whether that
    /// is news.
    pub(super) fn succeeded(&mut self, at: usize) -> bool {
        let Some(health) = self.members.get_mut(at) else { return false };
        std::mem::replace(health, Health::Well) != Health::Well
    }

    /// It took nothing, or did not answer. Answers whether that is news.
    pub(super) fn failed(&mut self, at: usize, now: Instant) -> bool {
        let was_well = self.members.get(at) == Some(&Health::Well);
        self.set_aside(at, now);
        was_well
    }

    /// It was set aside and has answered a question.
    pub(super) fn answered(&mut self, at: usize) {
        if let Some(health @ Health::SetAside { .. }) = self.members.get_mut(at) {
            *health = Health::OnTrial { failures: health.failures() };
        }
    }

    /// When it is to be asked; none unless it is set aside.
    pub(super) fn due(&self, at: usize) -> Option<Instant> {
        match self.members.get(at)? {
            Health::SetAside { due, .. } => Some(*due),
            Health::Well | Health::OnTrial { .. } => None,
        }
    }

    fn set_aside(&mut self, at: usize, now: Instant) {
        let Some(health) = self.members.get_mut(at) else { return };
        let failures = health.failures().saturating_add(1);
        let delay = FIRST.saturating_mul(1 << (failures - 1).min(16)).min(self.longest);
        *health = Health::SetAside { failures, due: now + delay };
    }

    fn due_soonest(&self) -> Option<usize> {
        let due = |at: usize| Some((self.due(at)?, at));
        (0..self.members.len()).filter_map(due).min().map(|(_, at)| at)
    }
}

impl Health {
    const fn failures(self) -> u32 {
        match self {
            Self::Well => 0,
            Self::OnTrial { failures } | Self::SetAside { failures, .. } => failures,
        }
    }
}

/// The delay after a first failure: a restart takes about as long.
const FIRST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// What befalls a pool of three, at a second since its start.
    enum Step {
        /// Payloads come, and go to these.
        Chosen(&'static [usize]),
        /// A payload comes, and goes there for a trial, or with nobody to turn to but this one.
        Tried(usize, bool),
        /// A payload that has failed elsewhere goes there.
        Another(Option<usize>),
        Succeeds(usize, News),
        Fails(usize, News),
        Answers(usize),
        /// This is when it is asked next.
        Due(usize, Option<u64>),
    }
    use Step::{Another, Answers, Chosen, Due, Fails, Succeeds, Tried};

    type News = bool;

    fn check(story: &[(u64, Step)]) {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let mut pool = Pool::new(3, Duration::from_secs(10));
        for (i, (second, step)) in story.iter().enumerate() {
            let now = at(*second);
            match step {
                Chosen(expected) => {
                    let chosen: Vec<_> = expected.iter().map(|_| pool.choose(now).at).collect();
                    assert_eq!(&chosen, expected, "step {i}");
                }
                Tried(at, on_trial) => {
                    let expected = Choice { at: *at, on_trial: *on_trial };
                    assert_eq!(pool.choose(now), expected, "step {i}");
                }
                Another(expected) => {
                    let another = pool.another(now).map(|choice| choice.at);
                    assert_eq!(another, *expected, "step {i}");
                }
                Succeeds(member, news) => assert_eq!(pool.succeeded(*member), *news, "step {i}"),
                Fails(member, news) => assert_eq!(pool.failed(*member, now), *news, "step {i}"),
                Answers(member) => pool.answered(*member),
                Due(member, due) => assert_eq!(pool.due(*member), due.map(at), "step {i}"),
            }
        }
    }

    #[test]
    fn those_that_are_well_take_turns() {
        check(&[
            (0, Chosen(&[0, 1, 2, 0, 1])),
            (0, Succeeds(0, false)),
            (0, Fails(1, true)),
            (0, Another(Some(2))),
            (0, Chosen(&[0, 2, 0, 2])),
        ]);
    }

    #[test]
    fn one_that_is_set_aside_is_on_trial_before_it_is_well() {
        check(&[
            (0, Fails(0, true)),
            (1, Chosen(&[1, 2, 1])),
            (1, Answers(0)),
            (1, Due(0, None)),
            (1, Chosen(&[0, 2, 1])),
            (2, Succeeds(0, true)),
            (2, Chosen(&[2, 0, 1])),
            (2, Fails(0, true)),
            (2, Due(0, Some(3))),
        ]);
    }

    #[test]
    fn delays_double_until_a_payload_is_taken() {
        let mut story = Vec::new();
        let mut now = 0;
        for delay in [1, 2, 4, 8, 10, 10] {
            story.push((now, Fails(0, now == 0)));
            story.push((now, Due(0, Some(now + delay))));
            now += delay;
        }
        check(&story);
        check(&[
            (0, Fails(0, true)),
            (1, Answers(0)),
            // It only answers questions.
            (1, Chosen(&[0])),
            (2, Fails(0, false)),
            (2, Due(0, Some(6))),
        ]);
    }

    #[test]
    fn when_none_is_well_the_one_due_soonest_is_tried() {
        check(&[
            (0, Fails(1, true)),
            (0, Fails(2, true)),
            (0, Fails(2, false)),
            (0, Another(Some(0))),
            (3, Fails(0, true)),
            (3, Another(None)),
            (3, Chosen(&[1, 1])),
            (3, Fails(1, false)),
            (3, Chosen(&[2])),
            (3, Succeeds(2, true)),
            (3, Chosen(&[2, 2])),
        ]);
    }

    #[test]
    fn a_trial_is_one_only_while_there_is_somebody_else() {
        check(&[
            (0, Fails(0, true)),
            (1, Answers(0)),
            (1, Tried(0, true)),
            (1, Tried(1, false)),
            (1, Fails(0, false)),
            (1, Fails(1, true)),
            (1, Fails(2, true)),
            (2, Answers(2)),
            (2, Tried(2, false)),
        ]);
    }

    #[test]
    fn an_answer_of_one_that_is_well_changes_nothing() {
        check(&[(0, Answers(0)), (0, Chosen(&[0, 1, 2])), (0, Due(0, None)), (0, Due(7, None))]);
    }
}
