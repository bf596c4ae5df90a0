//! Refusals by who caused them, where somebody asks for that.
//!
//! The book says how many were refused and why. A tally says the same of one offender, so that its
//! owner can be told ([`crate::errors`]). A receiving task holds the tally of an offender that it refuses
//! again and again, so that this costs one more counter; where nobody asks, there are no tallies.
//!
//! Limit: [`OFFENDERS_MAX`] offenders whose marks are known at a time. Refusals of any others are reported
//! with [`OVERFLOW`] in the place of their marks.

use super::{Reasons, read};
use crate::escape;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Who has sent what is refused, or what it was in, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offender {
    /// How it came: `udp`, `tcp`, `unix`, `unixgram`, `file`, `amqp`.
    pub transport: Option<&'static str>,
    /// Whose it was.
    pub principal: Option<Arc<str>>,
    /// What else tells it apart from others; clients can choose these values.
    pub marks: Marks,
}

/// A file, a task, and the like: pairs of a tag's key and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marks(Vec<(&'static str, Arc<str>)>);

/// What was refused of one offender.
#[derive(Debug, Default)]
pub struct Tally {
    refused: Reasons,
    /// How much of it was reported.
    taken: Mutex<BTreeMap<&'static str, u64>>,
}

/// The tallies of one listener.
#[derive(Debug, Default)]
pub struct Tallies {
    is_asked: AtomicBool,
    known: RwLock<BTreeMap<Offender, Arc<Tally>>>,
}

impl Marks {
    /// Those of these that are not empty, made fit for tags.
    pub fn new(marks: &[(&'static str, &str)]) -> Self {
        let said = marks.iter().filter(|(_, value)| !value.is_empty());
        // The end of a long one tells most: a file's name stands behind those of its folders.
        Self(said.map(|(key, value)| (*key, escape::end(value, MARK_CHARS).into())).collect())
    }

    /// In the order in which they were said.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(key, value)| (*key, &**value))
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Offender {
    /// Whether it stands for all offenders that there was no room for.
    pub fn is_overflow(&self) -> bool {
        self.marks.iter().any(|(key, _)| key == OVERFLOW)
    }

    /// The same without its marks, of which there could be ever more.
    fn unmarked(&self) -> Self {
        Self { marks: Marks::new(&[(OVERFLOW, "true")]), ..self.clone() }
    }
}

impl Tally {
    /// Adds `count` to a reason.
    pub fn add(&self, reason: &'static str, count: u64) {
        self.refused.add(reason, count);
    }

    /// Whether anything was added since it was asked last.
    fn has_news(&self) -> bool {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.refused.counts().iter().any(|(reason, now)| taken.get(reason) != Some(now))
    }

    /// What was added since it was asked last, by reason.
    fn take(&self) -> Vec<(&'static str, u64)> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let news = self.refused.counts().into_iter().map(|(reason, now)| {
            let before = taken.insert(reason, now).unwrap_or(0);
            (reason, now.saturating_sub(before))
        });
        news.filter(|(_, count)| *count > 0).collect()
    }
}

impl Tallies {
    /// From now on somebody asks, or nobody does.
    pub fn ask(&self, is_asked: bool) {
        if self.is_asked.swap(is_asked, Relaxed) != is_asked {
            // What was counted before must not be reported later as if it were new.
            self.take(|_, _, _| {});
        }
    }

    /// Whether anybody asks.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Relaxed)
    }

    /// The tally of an offender, to be held by whoever refuses more than once.
    pub fn of(&self, offender: &Offender) -> Arc<Tally> {
        if let Some(tally) = read(&self.known).get(offender) {
            return Arc::clone(tally);
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_full = known.len() >= OFFENDERS_MAX && !offender.marks.is_empty();
        let offender = if is_full { offender.unmarked() } else { offender.clone() };
        Arc::clone(known.entry(offender).or_default())
    }

    /// Tells what was refused since the last call: of whom, why, and how often.
    pub fn take(&self, mut tell: impl FnMut(&Offender, &'static str, u64)) {
        let known: Vec<_> = read(&self.known)
            .iter()
            .map(|(offender, tally)| (offender.clone(), Arc::clone(tally)))
            .collect();
        for (offender, tally) in known {
            for (reason, count) in tally.take() {
                tell(&offender, reason, count);
            }
        }
    }

    /// Forgets those whom nobody holds and of whom all is told, which makes room.
    pub fn forget_idle(&self) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, tally| Arc::strong_count(tally) > 1 || tally.has_news());
    }
}

/// The key of the mark that stands for all marks that there was no room for.
const OVERFLOW: &str = "overflow";

/// How many offenders with marks are told apart. Those without are bounded by the configuration.
const OFFENDERS_MAX: usize = 1000;

/// The longest value of a mark, from its end.
const MARK_CHARS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> Offender {
        Offender {
            transport: Some("file"),
            marks: Marks::new(&[("file", name)]),
            ..Offender::default()
        }
    }

    fn taken(tallies: &Tallies) -> Vec<(Vec<String>, &'static str, u64)> {
        let mut all = Vec::new();
        tallies.take(|offender, reason, count| {
            let marks = offender.marks.iter().map(|(key, value)| format!("{key}={value}"));
            all.push((marks.collect(), reason, count));
        });
        all
    }

    #[test]
    fn each_refusal_is_told_once() {
        let tallies = Tallies::default();
        let one = tallies.of(&file("a"));
        one.add("bad", 2);
        tallies.of(&file("b")).add("bad", 1);
        one.add("worse", 1);
        let marks = |name: &str| vec![format!("file={name}")];
        assert_eq!(
            taken(&tallies),
            [(marks("a"), "bad", 2), (marks("a"), "worse", 1), (marks("b"), "bad", 1)]
        );
        one.add("bad", 1);
        assert_eq!(taken(&tallies), [(marks("a"), "bad", 1)]);
        assert_eq!(taken(&tallies), []);
    }

    #[test]
    fn too_many_are_told_as_one_until_others_are_forgotten() {
        let tallies = Tallies::default();
        let held = tallies.of(&file("held"));
        for number in 1..OFFENDERS_MAX + 5 {
            tallies.of(&file(&number.to_string())).add("bad", 1);
        }
        tallies.of(&Offender::default()).add("bad", 1);
        let all = taken(&tallies);
        assert_eq!(all.iter().map(|(_, _, count)| count).sum::<u64>(), OFFENDERS_MAX as u64 + 5);
        let over = all.iter().find(|(marks, _, _)| *marks == ["overflow=true"]);
        assert_eq!(over.map(|(_, _, count)| *count), Some(5));
        tallies.of(&file("1")).add("bad", 1);
        tallies.forget_idle();
        assert_eq!(taken(&tallies), [(vec!["file=1".to_owned()], "bad", 1)], "it was not told yet");
        held.add("bad", 1);
        tallies.of(&file("new")).add("bad", 1);
        let marks = |name: &str| vec![format!("file={name}")];
        assert_eq!(taken(&tallies), [(marks("held"), "bad", 1), (marks("new"), "bad", 1)]);
    }

    #[test]
    fn what_nobody_asked_for_is_not_told_later() {
        let tallies = Tallies::default();
        tallies.of(&file("a")).add("bad", 1);
        tallies.ask(true);
        assert_eq!(taken(&tallies), []);
        tallies.ask(true);
        tallies.of(&file("a")).add("bad", 1);
        assert_eq!(taken(&tallies).len(), 1);
    }

    #[test]
    fn values_are_made_fit() {
        for (value, expected) in [
            ("/a/b.csv", "/a/b.csv".to_owned()),
            ("a\nb\u{7f}", "a\\nb\\u{7f}".to_owned()),
            (&"é".repeat(500), "é".repeat(MARK_CHARS)),
        ] {
            assert_eq!(Marks::new(&[("file", value)]).iter().next(), Some(("file", &*expected)));
        }
        assert!(Marks::new(&[("file", "")]).is_empty());
    }
}
