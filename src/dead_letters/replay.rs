//! Dead letters once more through the routing table, the one of now.
//!
//! A letter is replayed whole or not at all: when one of its points finds no route, or a record
//! is no point, or a backend that would get it has no room, then it stays as it is; and so does one
//! of which it is not known what was refused, where a repeat would do harm. Letters leave
//! their file only when all their points are where they survive the process again, or delivered, or
//! in the queue of a backend that keeps nothing on disk; a kill before that has them replayed
//! again. What is refused again becomes a new letter; what a full queue dropped leaves the old one.

use super::decode::{Decoded, decode};
use super::view::DAMAGED;
use crate::clock::Clock;
use crate::lane::{
    DeadLetters, Fate, Heading, Lane, Letter, Level, Loss, Place, Receipt, Selection, Slip,
};
use crate::plural::was;
use crate::route::again::Errand;
use crate::route::{Table, Tables, wait_while};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// What became of the letters that were to be replayed, in points.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// Handed to lanes.
    pub replayed: u64,
    /// Those that no route takes, which therefore stay.
    pub unmatched: u64,
    /// All that stay.
    pub kept: u64,
    /// Why they do, for some of the letters.
    pub problems: Vec<String>,
}

/// Replays what is selected. Ends, too, when a backend has no room, and keeps the rest.
///
/// # Errors
///
/// A sentence that says which file cannot be read or written.
pub async fn replay(
    letters: &Arc<DeadLetters>,
    tables: &Tables,
    clock: Clock,
    which: Selection,
) -> Result<Replayed, String> {
    let mut told = Replayed::default();
    // Those of now: what is refused again meanwhile waits for the next time.
    let (places, unreadable) = on_disk(letters, move |letters| Ok(letters.places(&which))).await?;
    told.problems.extend(unreadable);
    for places in places.chunks(LOT) {
        let mut under_way = Vec::new();
        for places in places.chunks(CHUNK) {
            let read = places.to_vec();
            let read =
                move |letters: &DeadLetters| read.iter().map(|place| letters.at(place)).collect();
            let found: Vec<Option<Letter>> = on_disk(letters, read).await?;
            for letter in found.into_iter().flatten() {
                // What it has no room for would be dropped. No table is held meanwhile.
                let is_behind = || tables.load().lanes.iter().any(Lane::behind);
                wait_while(is_behind, PATIENCE).await;
                let handed_over = hand_over(&tables.load(), &letter, clock);
                match handed_over {
                    Ok(receipt) => under_way.push((letter.heading, receipt)),
                    Err(reason) => told.keep(&letter.heading, &reason),
                }
            }
        }
        let gone = told.arrived(under_way).await;
        told.replayed += on_disk(letters, move |letters| letters.replayed(&gone)).await?.points;
    }
    Ok(told)
}

/// Why a letter stays.
enum Stays {
    /// So many of its points find no route.
    Unmatched(u64),
    /// Another reason.
    Because(String),
}

fn hand_over(table: &Table, letter: &Letter, clock: Clock) -> Result<Receipt, Stays> {
    let because = |problem: String| Stays::Because(problem);
    let heading = &letter.heading;
    if heading.points < heading.among && !REPEATABLE.contains(&&*heading.kind) {
        let (points, among) = (heading.points, heading.among);
        let problem = format!(
            "{points} of its {among} points {} refused, and which is not known; the others would be counted twice",
            was(points)
        );
        return Err(because(problem));
    }
    let body = letter.body.as_ref().ok_or_else(|| because(DAMAGED.to_owned()))?;
    let Decoded { points, lines } = decode(&heading.kind, body).map_err(because)?;
    let mut errand = Errand::new(table, &heading.place.backend);
    let mut unmatched = 0;
    for (point, line) in points.iter().zip(lines) {
        let is_taken = errand.plan(&point, heading.waybill.at(line));
        unmatched += u64::from(!is_taken);
    }
    if unmatched > 0 {
        return Err(Stays::Unmatched(unmatched));
    }
    if let Some(full) = errand.full() {
        return Err(because(format!("the queue of backend `{full}` is full")));
    }
    let (slip, receipt) = Slip::new(Level::Queued);
    errand.run(&points, clock.now(), &slip);
    Ok(receipt)
}

/// Why a letter stays although its points were handed over.
fn stays(fate: &Fate) -> Option<Stays> {
    let losses = match fate {
        Fate::Kept => return None,
        Fate::Late(points) => {
            return Some(Stays::Because(format!(
                "{points} of its points, handed over by now, {} not on disk in time; replayed again, it would count twice",
                was(*points)
            )));
        }
        Fate::Lost(losses) => losses,
    };
    let loss = losses.iter().find(|loss| loss.is_for_now())?;
    let Loss { backend, reason, points, .. } = loss;
    Some(Stays::Because(format!("backend `{backend}` dropped {points} of its points, {reason}")))
}

impl Replayed {
    /// Waits until points have arrived; answers the letters that may go.
    async fn arrived(&mut self, under_way: Vec<(Heading, Receipt)>) -> Vec<Place> {
        let up = Instant::now() + ARRIVAL;
        let mut gone = Vec::new();
        for (heading, mut receipt) in under_way {
            match stays(&receipt.by(sleep_until(up)).await) {
                None => gone.push(heading.place),
                Some(reason) => self.keep(&heading, &reason),
            }
        }
        gone
    }

    fn keep(&mut self, heading: &Heading, reason: &Stays) {
        let Place { id, backend } = &heading.place;
        self.kept += u64::from(heading.points);
        let problem = match reason {
            Stays::Unmatched(points) => {
                self.unmatched += points;
                format!("no route takes {points} of its points")
            }
            Stays::Because(problem) => problem.clone(),
        };
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(format!("letter {id} of {backend} stays: {problem}"));
        }
    }
}

async fn on_disk<T: Send + 'static>(
    letters: &Arc<DeadLetters>,
    work: impl FnOnce(&DeadLetters) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let letters = Arc::clone(letters);
    let done = tokio::task::spawn_blocking(move || work(&letters)).await;
    done.map_err(|stopped| stopped.to_string())?
}

/// Kinds of backends that hold a point once, however often it comes.
const REPEATABLE: [&str; 2] = ["influxdb", "store"];
/// How many letters are in memory at a time.
const CHUNK: usize = 32;
/// How many letters a kill may have replayed again.
const LOT: usize = 1024;
/// Points of a window are on disk when it has closed, others in about a second.
const ARRIVAL: Duration = Duration::from_secs(60);
/// How many letters that stay are told of one by one.
const PROBLEMS_MAX: usize = 10;
/// A shaper waits for no backend, so it is never behind for long.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::books::Books;
    use crate::lane::Refused;
    use crate::waybill::Waybill;
    use protocols::UnixNanos;

    /// A letter of that kind, of whose two points so many were refused.
    async fn check(kind: &'static str, body: &str, points: u32, expected: (u64, u64, &str)) {
        let dir = tempfile::tempdir().unwrap();
        let books = Arc::new(Books::default());
        let letters = DeadLetters::new(dir.path().to_owned(), Arc::clone(&books), Clock::System);
        let of = letters.of("b");
        of.keep_at_most(Some(1 << 20));
        let (body, words, waybill) = (body.to_owned().into(), String::new(), Waybill::default());
        let (reason, born) = ("rejected", UnixNanos(0));
        of.put(kind, Refused { body, points, among: 2, reason, words, waybill, born });
        let told = replay(&letters, &Tables::default(), Clock::System, Selection::default()).await;
        let told = told.unwrap();
        assert_eq!((told.replayed, told.unmatched, told.kept), (0, expected.0, expected.1));
        assert!(told.problems[0].contains(expected.2), "{told:?}");
        assert_eq!(books.backend("b").dead_letters.get(), expected.1, "it stays");
    }

    #[tokio::test]
    async fn a_letter_that_stays_says_why() {
        let rows = "m value=1 1\nm value=2 2\n";
        check("influxdb", rows, 2, (2, 2, "no route takes 2")).await;
        check("influxdb", rows, 1, (2, 1, "no route takes 2")).await;
        check("influxdb", "m value=1 1\nm\n", 2, (0, 2, "line 2: ")).await;
        let counters = "a:1|c\nb:1|c\n";
        check("statsd", counters, 2, (2, 2, "no route takes 2")).await;
        check("statsd", counters, 1, (0, 1, "1 of its 2 points was refused")).await;
    }
}
