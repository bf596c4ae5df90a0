//! Whose fault it is that a backend fails at a payload: its own, or the payload's. Pure.
//!
//! A status like 500 may be an outage, or one bad record for which the backend has no better word.
//! What tells the two apart: that it fails at a payload, takes another, and fails at the first
//! again, is a *proof* against that. So how a payload stands follows from its failures:
//!
//! | it is | if | and what follows |
//! |---|---|---|
//! | trusted | it has not failed for long enough | it rests |
//! | suspect | it has; or it is a part of what was guilty; or another was guilty lately | a *witness* is tried, and then it again: at once if that was taken, or else after a rest |
//! | guilty | it is suspect, and there are proofs enough | it is divided; or refused, if it cannot be |
//!
//! To divide loses nothing, so one proof is enough for that; to refuse takes [`PROOFS`]. Who sends
//! one bad record sends more, so nothing is trusted for a while after one was guilty.
//!
//! The witness is the payload in line at which the backend has failed least often. It is asked out of
//! turn, so it stays where it stands in line even if it is taken, and is delivered once more in its
//! turn: of two values for one point the later is then the last to arrive, whatever comes of the
//! suspect. With several shippers others are taken all the time, and prove as much.
//!
//! A sender of bad records may send one in every payload, and then no witness is taken. So after
//! some in vain the suspect is *explored*: divided without a proof, so that a good part of it can be
//! the witness; or the witness is, if the suspect is a single record.

use std::time::Duration;
use tokio::time::Instant;

/// How a payload has fared with a backend that fails at it.
#[derive(Clone, Debug, Default)]
pub(super) struct Conduct {
    failures: u32,
    /// When the first of them was.
    since: Option<Instant>,
    /// How much the backend had taken at the last of them, or at that of the whole.
    seen: Option<u64>,
    /// Whether it is a part of what was guilty, or explored; or about to be divided for that.
    is_part: bool,
    proofs: u32,
    /// How many witnesses were called since the last proof.
    called: u32,
}

/// A failure of the backend at a payload.
#[derive(Clone, Copy, Debug)]
pub(in crate::lane) struct Failure {
    pub(in crate::lane) now: Instant,
    /// How long a payload may fail before it is suspect.
    pub(in crate::lane) patience: Duration,
    /// Whether the payload can be divided.
    pub(in crate::lane) divisible: bool,
    /// Whether it can be for the mere sake of finding a witness.
    pub(in crate::lane) explorable: bool,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lane) enum Step {
    /// The next attempt comes after a delay, which is not longer than this.
    Rest(Option<Duration>),
    /// The same; but if another payload comes into line, that is a witness, and the rest is over.
    RestAlone,
    /// The witness is tried now.
    Witness,
    /// The payload is to be divided.
    Divide,
    /// The same, and the next attempt comes after a delay.
    Explore,
    /// It is to be refused.
    Refuse,
}

/// How a payload stands after a failure.
enum Standing {
    /// For so long.
    Trusted(Duration),
    Suspect,
    Guilty,
}

/// What was learnt from all payloads, and which of them is tried as a witness.
#[derive(Debug, Default)]
pub(super) struct Trials {
    witness: Option<Witness>,
    /// How often the backend has taken something.
    taken: u64,
    /// When a payload was last found guilty.
    found: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Witness {
    id: i64,
    /// Whether it is explored if it is not taken.
    is_explored: bool,
}

impl Conduct {
    /// That of the parts of a payload that is divided.
    pub(super) fn of_parts(&self) -> Option<Box<Self>> {
        let Self { is_part, seen, .. } = *self;
        is_part.then(|| Box::new(Self { is_part, seen, ..Self::default() }))
    }

    /// How often the backend has failed at it.
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }

    /// Enters a failure. Answers whether that is a proof: whether the backend took something, which
    /// is so much in all by now, after it had failed at this payload.
    fn fail(&mut self, now: Instant, taken: u64) -> bool {
        self.failures += 1;
        self.since.get_or_insert(now);
        self.seen.replace(taken).is_some_and(|seen| taken > seen)
    }

    /// How it stands after a failure. What is watched is never trusted.
    fn judge(&mut self, failure: Failure, is_proof: bool, is_watched: bool) -> Standing {
        let failing = self.since.map_or(Duration::ZERO, |since| failure.now.duration_since(since));
        let left = failure.patience.saturating_sub(failing);
        if !(is_watched || left.is_zero()) {
            return Standing::Trusted(left);
        }
        if is_proof {
            (self.proofs, self.called) = (self.proofs + 1, 0);
        }
        let enough = if failure.divisible { 1 } else { PROOFS };
        if self.proofs >= enough { Standing::Guilty } else { Standing::Suspect }
    }

    fn explore(&mut self, failure: Failure) -> Step {
        self.is_part |= failure.explorable;
        if failure.explorable { Step::Explore } else { Step::Rest(None) }
    }
}

impl Trials {
    /// The backend has failed at a payload. `other` is who could be a witness.
    pub(super) fn failed(
        &mut self,
        id: i64,
        conduct: &mut Conduct,
        failure: Failure,
        other: Option<i64>,
    ) -> Step {
        let Failure { now, patience, divisible, .. } = failure;
        let is_proof = conduct.fail(now, self.taken);
        if let Some(witness) = self.dismiss(id) {
            return if witness.is_explored { conduct.explore(failure) } else { Step::Rest(None) };
        }
        let is_known = self.found.is_some_and(|found| now < found + patience * MEMORY);
        let is_watched = conduct.is_part || is_known;
        match conduct.judge(failure, is_proof, is_watched) {
            Standing::Trusted(left) => Step::Rest(Some(left)),
            Standing::Suspect => {
                let most_in_vain = if is_watched { 1 } else { IN_VAIN };
                self.call(other, conduct, failure, most_in_vain)
            }
            Standing::Guilty => {
                self.found = Some(now);
                conduct.is_part = true;
                if divisible { Step::Divide } else { Step::Refuse }
            }
        }
    }

    /// Calls a witness against a suspect; or explores that, if so many were called in vain.
    fn call(
        &mut self,
        witness: Option<i64>,
        suspect: &mut Conduct,
        failure: Failure,
        most_in_vain: u32,
    ) -> Step {
        let Some(id) = witness else { return Step::RestAlone };
        let is_explored = suspect.called >= most_in_vain;
        if is_explored && failure.explorable {
            return suspect.explore(failure);
        }
        suspect.called += 1;
        self.witness = Some(Witness { id, is_explored });
        Step::Witness
    }

    /// The backend took a payload, or some of it. Answers whether that was the witness, which is
    /// to be delivered again in its turn.
    pub(super) fn took(&mut self, id: i64) -> bool {
        self.taken += 1;
        self.dismiss(id).is_some()
    }

    /// Whom to try now, whoever is first in line.
    pub(super) fn witness(&self) -> Option<i64> {
        self.witness.as_ref().map(|witness| witness.id)
    }

    /// An attempt has ended, or a payload has left the line: if it was the witness, it is so no more.
    pub(super) fn dismiss(&mut self, id: i64) -> Option<Witness> {
        self.witness.take_if(|witness| witness.id == id)
    }
}

/// A backend may fail by chance; so often in a row, when it takes others in between, it does not.
const PROOFS: u32 = 3;
/// So many witnesses in vain say that one is to be made.
const IN_VAIN: u32 = 2;
/// For how many times the patience it is remembered that there was a guilty one.
const MEMORY: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Payloads by their numbers, tried as this table says: `f1` fails at payload 1, `d2` takes
    /// payload 2, `+60` lets seconds pass, `i` and `w` say whether payloads can be divided (`w`
    /// at first), `p1` makes payload 1 a part of what was guilty just now, `x2` takes payload 2
    /// away. `>` stands before what is to follow: from a failure, or whether what was taken leaves
    /// the line or stays as a witness.
    fn check(script: &str) {
        let start = Instant::now();
        let (mut trials, mut elapsed, mut divisible) = (Trials::default(), 0, true);
        let mut conducts: BTreeMap<i64, Conduct> = BTreeMap::new();
        let mut said = String::new();
        let mut line: Vec<i64> = vec![1, 2, 3];
        for word in script.split_whitespace() {
            let id = || word[1..].parse::<i64>().unwrap();
            match word.as_bytes()[0] {
                b'+' => elapsed += word[1..].parse::<u64>().unwrap(),
                b'w' => divisible = true,
                b'i' => divisible = false,
                b'p' => {
                    let seen = Some(trials.taken);
                    conducts.insert(id(), Conduct { is_part: true, seen, ..Conduct::default() });
                }
                b'x' => {
                    line.retain(|other| *other != id());
                    trials.dismiss(id());
                }
                b'f' => {
                    let now = start + Duration::from_secs(elapsed);
                    let patience = Duration::from_secs(60);
                    let failure = Failure { now, patience, divisible, explorable: divisible };
                    let others = line.iter().filter(|other| **other != id()).copied();
                    let failures = |other: &i64| conducts.get(other).map_or(0, |one| one.failures);
                    let witness = others.min_by_key(failures);
                    let conduct = conducts.entry(id()).or_default();
                    said = match trials.failed(id(), conduct, failure, witness) {
                        Step::Rest(None) => "rest".to_owned(),
                        Step::Rest(Some(left)) => format!("rest{}", left.as_secs()),
                        Step::RestAlone => "alone".to_owned(),
                        Step::Witness => format!("try{}", trials.witness().unwrap()),
                        Step::Divide => "divide".to_owned(),
                        Step::Explore => "explore".to_owned(),
                        Step::Refuse => "refuse".to_owned(),
                    };
                }
                b'd' if trials.took(id()) => "stays".clone_into(&mut said),
                b'd' => {
                    line.retain(|other| *other != id());
                    "leaves".clone_into(&mut said);
                }
                b'>' => assert_eq!(said, word[1..], "{word} in {script}"),
                _ => panic!("{word}"),
            }
        }
    }

    #[test]
    fn a_suspect_is_guilty_when_a_witness_is_taken_and_it_is_not() {
        check("f1 >rest60 +20 f1 >rest40 +40 f1 >try2 d2 >stays f1 >divide");
    }

    #[test]
    fn a_backend_that_gets_well_before_the_witness_takes_the_suspect_next() {
        check("f1 +60 f1 >try2 d2 >stays d1 >leaves d2 >leaves f3 >rest60");
    }

    #[test]
    fn in_an_outage_nobody_is_guilty_and_the_witness_is_another_each_time() {
        check("i f1 +60 f1 >try2 f2 >rest f1 >try3 f3 >rest f1 >try2 f2 >rest +999 f1 >try3 d1");
    }

    #[test]
    fn when_no_witness_is_taken_one_is_made() {
        check("f1 +60 f1 >try2 f2 >rest f1 >try3 f3 >rest f1 >explore");
        check("p1 f1 >try2 f2 >rest f1 >explore");
        check("p1 i f1 >try2 f2 >rest f1 >try3 w f3 >explore i f1 >try2 f2 >rest");
    }

    #[test]
    fn who_fails_with_the_first_does_not_hide_it() {
        check("f1 +60 f1 >try2 f2 >rest f1 >try3 d3 f1 >divide");
    }

    #[test]
    fn alone_in_line_there_is_no_witness() {
        check("x2 x3 f1 >rest60 +60 f1 >alone +999 f1 >alone");
    }

    #[test]
    fn what_cannot_be_divided_takes_three_proofs() {
        check("i f1 +60 f1 >try2 d2 f1 >try2 d2 f1 >try2 d2 f1 >refuse");
        check("p1 i f1 >try2 d2 f1 >try2 f2 >rest f1 >try3 d3 f1 >try3 d3 f1 >refuse");
        check("p1 i f1 >try2 d2 f1 >try2 f2 >rest f1 >try3 f3 >rest f1 >try2");
    }

    #[test]
    fn a_part_is_divided_if_anything_was_taken_since_the_whole_was() {
        check("p1 f1 >try2 d2 f1 >divide");
        check("p1 d2 f1 >divide");
        check("d2 p1 f1 >try3 f3 >rest");
        check("p1 d2 i f1 >try3 d3 f1 >try3 d3 f1 >refuse");
    }

    #[test]
    fn who_comes_after_a_guilty_one_is_suspect_at_once_for_a_while() {
        check("f1 +60 f1 d2 f1 >divide x1 f3 >try2 f2 >rest");
        check("f1 +60 f1 d2 f1 >divide x1 +600 f3 >rest60");
    }

    #[test]
    fn what_others_deliver_between_two_failures_is_a_proof_too() {
        check("f1 d2 >leaves +60 f1 >divide");
        check("p1 i f1 >try2 x2 d3 f1 >alone d3 f1 >alone d3 f1 >refuse");
        check("i f1 d2 f1 d2 f1 d2 f1 >rest60");
    }

    #[test]
    fn a_witness_that_leaves_says_nothing() {
        check("f1 +60 f1 >try2 x2 f1 >try3 d3 f1 >divide");
    }
}
