//! Whose fault it is that a backend fails at a payload: its own, or the payload's. Pure.
//!
//! A status like 500 may be an outage, or one bad record for which the backend has no better word.
//! A payload at which it has failed for long enough is a *suspect*. It steps aside for a
//! *witness*, which is the next payload in line at which the backend has failed least often:
//!
//! | the witness | what that says |
//! |---|---|
//! | is delivered | the backend is well, and the suspect is the trouble |
//! | is not | nothing: all may be ill. The suspect is back in its place, and tried first |
//!
//! A suspect that can be divided is *guilty* by one witness, since dividing loses nothing. One that
//! cannot is refused for good when it is guilty, which takes [`WITNESSES`]. A part of what was
//! found guilty is a suspect as soon as the backend fails at it, and so is, for a while, any
//! payload: who sends one bad record sends more. A part is divided without a witness if anything
//! was delivered since the last failure, so that a search does not have to wait for fresh points.
//!
//! With several shippers others are delivered all the time: what was delivered between two failures
//! of a suspect is as good as a witness.
//!
//! A sender of bad records may send one in every payload, and then no witness is taken. So after some
//! that were not, the suspect is *explored*: divided, which loses nothing, so that a good part of
//! it can be the witness; or the witness is, if the suspect is a single record.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How a payload has fared with a backend that fails at it.
#[derive(Clone, Debug, Default)]
pub(super) struct Conduct {
    failures: u32,
    /// When the first of them was.
    since: Option<Instant>,
    /// Whether it is a part of what was guilty, or explored.
    is_part: bool,
    /// How many witnesses were called against it.
    called: u32,
    /// How often something was delivered after a failure at it.
    witnesses: u32,
    /// How much had been delivered at its last failure.
    seen: u64,
    /// What the backend said, once it is guilty.
    verdict: Option<Arc<str>>,
}

/// A failure of the backend at a payload.
#[derive(Clone, Copy, Debug)]
pub(in crate::lane) struct Failure<'a> {
    pub(in crate::lane) now: Instant,
    /// How long a payload may fail before it is suspect.
    pub(in crate::lane) patience: Duration,
    /// The backend's own words.
    pub(in crate::lane) words: &'a str,
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

/// The trial that is on, and what was learnt from those before.
#[derive(Debug, Default)]
pub(super) struct Trials {
    on: Option<Trial>,
    /// Whether anything was delivered since the last failure.
    alive: bool,
    /// How many payloads were delivered so far.
    deliveries: u64,
    /// When a payload was last found guilty.
    found: Option<Instant>,
}

#[derive(Debug)]
struct Trial {
    suspect: i64,
    witness: i64,
    words: Arc<str>,
    divisible: bool,
    /// Whether a witness that is not taken is explored.
    explores: bool,
    began: Instant,
}

impl Conduct {
    /// That of the parts of a payload that is divided.
    pub(super) fn of_parts(&self) -> Option<Box<Self>> {
        let is_part = self.is_part || self.verdict.is_some();
        is_part.then(|| Box::new(Self { is_part, ..Self::default() }))
    }

    /// How often the backend has failed at it.
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }

    /// What the backend said, if it is guilty.
    pub(super) const fn verdict(&self) -> Option<&Arc<str>> {
        self.verdict.as_ref()
    }
}

impl Trials {
    /// The backend has failed at a payload. `witness` is who could be asked.
    pub(super) fn failed(
        &mut self,
        id: i64,
        conduct: &mut Conduct,
        failure: Failure<'_>,
        witness: Option<i64>,
    ) -> Step {
        let Failure { now, patience, divisible, explorable, .. } = failure;
        let was_alive = std::mem::take(&mut self.alive);
        conduct.failures += 1;
        // With several shippers others are delivered between two failures, trial or not.
        let spoken = conduct.failures > 1 && self.deliveries > conduct.seen;
        conduct.seen = self.deliveries;
        let since = *conduct.since.get_or_insert(now);
        if let Some(trial) = self.on.take_if(|trial| trial.witness == id) {
            return if trial.explores { explore(conduct, explorable) } else { Step::Rest(None) };
        }
        if conduct.is_part && was_alive && divisible {
            return Step::Divide;
        }
        let is_known = self.found.is_some_and(|found| now < found + patience * MEMORY);
        let is_prejudged = conduct.is_part || is_known;
        let left = patience.saturating_sub(now.duration_since(since));
        if !(is_prejudged || left.is_zero()) {
            return Step::Rest(Some(left));
        }
        conduct.witnesses += u32::from(spoken);
        if spoken && (divisible || conduct.witnesses >= WITNESSES) {
            self.found = Some(now);
            conduct.is_part = true;
            return if divisible { Step::Divide } else { Step::Refuse };
        }
        let Some(witness) = witness else { return Step::RestAlone };
        let most_in_vain = if is_prejudged { 1 } else { IN_VAIN };
        self.call(witness, id, conduct, failure, most_in_vain)
    }

    /// Calls a witness against a suspect; or explores that, if so many were called in vain.
    fn call(
        &mut self,
        witness: i64,
        suspect: i64,
        conduct: &mut Conduct,
        failure: Failure<'_>,
        most_in_vain: u32,
    ) -> Step {
        let Failure { now, words, divisible, explorable, .. } = failure;
        let in_vain = conduct.called.saturating_sub(conduct.witnesses);
        let explores = in_vain >= most_in_vain;
        if explores && explorable {
            return explore(conduct, true);
        }
        conduct.called += 1;
        let words = words.into();
        self.on = Some(Trial { suspect, witness, words, divisible, explores, began: now });
        Step::Witness
    }

    /// The backend took a payload; answers the suspect against whom that speaks.
    pub(super) fn delivered(&mut self, id: i64) -> Option<Finding> {
        self.alive = true;
        self.deliveries += 1;
        let trial = self.on.take_if(|trial| trial.witness == id)?;
        Some(Finding(trial))
    }

    /// Whom to try now, if a trial is on.
    pub(super) fn witness(&self) -> Option<i64> {
        self.on.as_ref().map(|trial| trial.witness)
    }

    /// An attempt has ended, and nothing was learnt from it.
    pub(super) fn let_go(&mut self, id: i64) {
        self.on.take_if(|trial| trial.witness == id);
    }

    /// A payload has left the line.
    pub(super) fn left(&mut self, id: i64) {
        self.on.take_if(|trial| trial.witness == id || trial.suspect == id);
    }

    /// Enters a finding into the suspect's conduct.
    pub(super) fn convict(&mut self, Finding(trial): Finding, conduct: &mut Conduct) {
        conduct.witnesses += 1;
        conduct.seen = self.deliveries;
        if trial.divisible || conduct.witnesses >= WITNESSES {
            conduct.verdict = Some(trial.words);
            self.found = Some(trial.began);
        }
    }
}

fn explore(conduct: &mut Conduct, explorable: bool) -> Step {
    conduct.is_part |= explorable;
    if explorable { Step::Explore } else { Step::Rest(None) }
}

/// What a witness has shown.
#[derive(Debug)]
pub(super) struct Finding(Trial);

impl Finding {
    /// The suspect.
    pub(super) const fn suspect(&self) -> i64 {
        self.0.suspect
    }
}

/// A backend may fail by chance; so often in a row, with a delivery after each failure, it does
/// not.
const WITNESSES: u32 = 3;
/// So many witnesses in vain say that one is to be made.
const IN_VAIN: u32 = 2;
/// For how many times the patience it is remembered that there was a guilty one.
const MEMORY: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Payloads by their numbers, tried as this table says: `f1` fails at payload 1, `d2` delivers
    /// payload 2, `+60` lets seconds pass, `i` and `w` say whether payloads can be divided (`w`
    /// at first), `x2` takes payload 2 away. `>` stands before what is to follow from a failure, or
    /// who is then guilty.
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
                    conducts.insert(id(), Conduct { is_part: true, ..Conduct::default() });
                }
                b'x' => {
                    line.retain(|other| *other != id());
                    trials.left(id());
                }
                b'f' => {
                    let now = start + Duration::from_secs(elapsed);
                    let patience = Duration::from_secs(60);
                    let explorable = divisible;
                    let failure = Failure { now, patience, words: "500", divisible, explorable };
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
                b'd' => {
                    let found = trials.delivered(id());
                    line.retain(|other| *other != id());
                    said = "nothing".to_owned();
                    if let Some(finding) = found {
                        let suspect = finding.suspect();
                        let conduct = conducts.get_mut(&suspect).unwrap();
                        trials.convict(finding, conduct);
                        if conduct.verdict().is_some() {
                            said = format!("guilty{suspect}");
                        }
                    }
                }
                b'>' => assert_eq!(said, word[1..], "{word} in {script}"),
                _ => panic!("{word}"),
            }
        }
    }

    #[test]
    fn a_suspect_is_guilty_when_a_witness_is_delivered() {
        check("f1 >rest60 +20 f1 >rest40 +40 f1 >try2 d2 >guilty1");
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
        check("f1 +60 f1 >try2 f2 >rest f1 >try3 d3 >guilty1");
    }

    #[test]
    fn alone_in_line_there_is_no_witness() {
        check("x2 x3 f1 >rest60 +60 f1 >alone +999 f1 >alone");
    }

    #[test]
    fn what_cannot_be_divided_takes_three_witnesses() {
        check("i f1 +60 f1 >try2 d2 >nothing f1 >try3 d3 >nothing f1 >alone");
        check("p1 i f1 >try2 d2 >nothing f1 >try3 f3 >rest f1 >try3 d3 >nothing");
    }

    #[test]
    fn a_part_is_divided_while_the_backend_is_known_to_live() {
        check("p1 f1 >try2 d2 >guilty1");
        check("p1 d2 f1 >divide");
        check("p1 p2 d3 f1 >divide f2 >try1 f1 >rest");
        check("p1 d2 i f1 >try3 d3 >nothing");
    }

    #[test]
    fn who_comes_after_a_guilty_one_is_suspect_at_once_for_a_while() {
        check("f1 +60 f1 d2 >guilty1 x1 f3 >alone");
        check("f1 +60 f1 d2 >guilty1 x1 +600 f3 >rest60");
    }

    #[test]
    fn what_others_deliver_between_two_failures_speaks_too() {
        check("f1 d2 +60 f1 >divide");
        check("p1 i f1 >try2 x2 d3 f1 >alone d3 f1 >alone d3 f1 >refuse");
        check("i f1 d2 f1 d2 f1 d2 f1 >rest60");
    }

    #[test]
    fn a_witness_that_leaves_says_nothing() {
        check("f1 +60 f1 >try2 x2 f1 >try3 d3 >guilty1");
    }
}
