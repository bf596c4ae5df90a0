//! Each point of a log counts once, however often the log is read.
//!
//! A log is read again when its reader was killed, when a task's page is fetched once more, or by two
//! readers at a time; and the copy that is read first may be cut off. The key of a request is made of the
//! task, its run and the place in the log where the request begins ([`Log::key`]). Where it *ends* depends
//! on when its lines came, so another reader may send another body. Then the gateway answers that the key
//! is known with another body (`Idempotency-Conflict`), and counts nothing. The reader offers shorter and
//! longer bodies under the same key until it has found the one that was sent before, which is answered
//! as it was then, and begins the next request where that one ended. So all readers find the same cuts,
//! whoever made them.
//!
//! For that, every batch has to begin where another ended. So lines are grouped by their place into blocks
//! of [`BLOCK`], and no batch crosses the end of a block. If a line is dropped because the queue is full,
//! the rest of its block is dropped as well ([`Gaps`]), and a later reader can send it. The gateway does
//! not remember a request of which nothing was kept; so lines that are not points, which every reader
//! sees alike, go in requests of their own.

use super::queue::{Lines, Queue};
use super::sender::Work;
use crate::client::{Client, Verdict};
use protocols::Batch;
use protocols::json::{Limits, parse_json_lines};
use ring::digest::{Context, SHA256};
use std::collections::VecDeque;

/// Which log it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Log(String);

impl Log {
    /// The log of that name of a run of a task, whose series get a prefix.
    pub(super) fn new(task: &str, run: &str, name: &str, prefix: &str) -> Self {
        let mut all = Context::new(&SHA256);
        for part in [task, run, name, prefix] {
            all.update(&(part.len() as u64).to_le_bytes());
            all.update(part.as_bytes());
        }
        Self(all.finish().as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
    }

    /// The key of what begins with that line of its points.
    fn key(&self, start: u64) -> String {
        format!("log-{}-{start}", self.0)
    }
}

/// Which lines are not to be queued, since one before them in their block could not be.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    until: u64,
}

impl Gaps {
    /// Whether the line at this place may be queued.
    pub(super) const fn admit(&self, place: u64) -> bool {
        place >= self.until
    }

    /// It could not.
    pub(super) const fn open(&mut self, place: u64) {
        self.until = end_of_block(place);
    }
}

const fn end_of_block(place: u64) -> u64 {
    (place / BLOCK + 1) * BLOCK
}

/// A log's points on their way.
pub(super) struct Once<'w> {
    work: &'w Work,
    client: &'w Client,
    log: &'w Log,
    /// Lines with their places, none of which is settled.
    waiting: VecDeque<(u64, Vec<u8>)>,
    has_ended: bool,
    /// The length of the last batch that had been sent before: the next one may be as long.
    alike: Option<usize>,
}

/// The search for the length of the batch that begins at some place.
#[derive(Debug, Default)]
struct Search {
    /// Lengths that were answered by a conflict.
    others: Vec<usize>,
    /// The shortest length of which something may be kept.
    least: usize,
    /// The longest length that is not too large.
    most: Option<usize>,
    /// The last answer by which nothing was kept.
    nothing: Option<Verdict>,
}

impl Search {
    /// How many lines to offer next, of those that are there.
    fn next(&self, there: usize, alike: Option<usize>) -> Option<usize> {
        let most = self.most.unwrap_or(there).min(there);
        let least = self.least.max(1);
        if self.others.is_empty() {
            let wish = alike.unwrap_or(most).clamp(1, most.max(1));
            return (least <= most).then_some(wish.max(least));
        }
        (least..=most).find(|len| !self.others.contains(len))
    }
}

impl<'w> Once<'w> {
    pub(super) fn new(work: &'w Work, client: &'w Client, log: &'w Log) -> Self {
        let waiting = VecDeque::new();
        Self { work, client, log, waiting, has_ended: false, alike: None }
    }

    /// Sends until the queue is closed and empty, or the gateway will never take anything.
    pub(super) async fn run(mut self, queue: &Queue) {
        loop {
            match self.fill(queue).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => return self.work.tell(why),
            }
            while let Some(&(start, _)) = self.waiting.front() {
                if let Err(why) = self.settle(start, queue).await {
                    return self.work.tell(why);
                }
            }
        }
    }

    /// Takes what is queued, or waits for it; answers whether there was anything. The error is that
    /// nothing will ever be taken.
    async fn fill(&mut self, queue: &Queue) -> Result<bool, String> {
        let Some(lines) = queue.take().await else {
            self.has_ended = true;
            return Ok(false);
        };
        let (points, others) = sorted(lines, self.work.prefix());
        self.waiting.extend(points);
        if others.count > 0 {
            self.work.send_alone(self.client, others).await?;
        }
        Ok(true)
    }

    /// Sends what begins at this place, or finds out what was sent of it before.
    async fn settle(&mut self, start: u64, queue: &Queue) -> Result<(), String> {
        let key = self.log.key(start);
        let mut search = Search::default();
        loop {
            let there = self.waiting.iter().take_while(|(place, _)| *place < end_of_block(start));
            let there = there.count();
            let Some(len) = search.next(there, self.alike) else {
                let may_grow = there == self.waiting.len() && search.most.is_none();
                if may_grow && !self.has_ended && self.fill(queue).await? {
                    continue;
                }
                let lines = self.first(there);
                self.waiting.drain(..there);
                let other = || Verdict::Conflict(OTHER.to_owned());
                self.work.count(search.nothing.unwrap_or_else(other), &lines);
                return Ok(());
            };
            let lines = self.first(len);
            match self.work.settle(self.client, &key, &lines).await {
                Verdict::Never(why) => return Err(why),
                Verdict::Conflict(_) => search.others.push(len),
                Verdict::TooLarge if len > 1 => {
                    (search.most, self.alike) = (Some(len / 2), None);
                }
                // The gateway does not remember this; it will with the next line that is kept.
                Verdict::Taken(taken) if taken.is_nothing() => {
                    (search.least, search.nothing) = (len + 1, Some(Verdict::Taken(taken)));
                }
                known => {
                    let is_known = matches!(&known, Verdict::Taken(taken) if taken.repeated);
                    self.alike = is_known.then_some(len);
                    self.waiting.drain(..len);
                    self.work.count(known, &lines);
                    return Ok(());
                }
            }
        }
    }

    fn first(&self, len: usize) -> Lines {
        let lines = self.waiting.iter().take(len);
        let bytes = lines.flat_map(|(_, line)| line.iter().copied()).collect();
        Lines { bytes, count: len as u64, places: Vec::new() }
    }
}

/// The lines that are points, with their places, and those that are not.
fn sorted(lines: Lines, prefix: &str) -> (Vec<(u64, Vec<u8>)>, Lines) {
    let (mut points, mut others) = (Vec::new(), Lines::default());
    let mut scratch = Batch::new();
    let each = lines.bytes.split_inclusive(|byte| *byte == b'\n');
    for (line, place) in each.zip(lines.places) {
        let named = super::sender::prefixed(line, prefix);
        let outcome = parse_json_lines(&named, Limits::default(), &mut scratch);
        scratch.clear();
        if outcome.accepted > 0 {
            points.push((place, line.to_vec()));
        } else {
            others.bytes.extend_from_slice(line);
            others.count += 1;
        }
    }
    (points, others)
}

/// Lines that belong together. Of what is sent again, one block at the most is looked through for cuts.
pub(super) const BLOCK: u64 = 128;

const OTHER: &str = "from some point on, a longer log or another one was sent before as this one; \
                     if it is another, tell it from that with --log";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_logs_and_places_apart() {
        let log = |task, run, name, prefix| Log::new(task, run, name, prefix).key(0);
        let one = log("T", "0", "", "");
        assert_eq!(one, Log::new("T", "0", "", "").key(0));
        assert_ne!(one, Log::new("T", "0", "", "").key(1));
        for other in
            [("T", "1", "", ""), ("T0", "", "", ""), ("T", "0", "x", ""), ("T", "0", "", "x")]
        {
            assert_ne!(one, log(other.0, other.1, other.2, other.3), "{other:?}");
        }
        assert!(one.len() < 100 && one.bytes().all(|byte| byte.is_ascii_graphic()));
    }

    #[test]
    fn a_gap_reaches_to_the_end_of_its_block() {
        let mut gaps = Gaps::default();
        assert!(gaps.admit(0));
        gaps.open(BLOCK + 5);
        assert!(!gaps.admit(BLOCK + 6) && !gaps.admit(2 * BLOCK - 1) && gaps.admit(2 * BLOCK));
    }

    #[test]
    fn cuts_are_looked_for_from_short_to_long() {
        let mut search = Search::default();
        assert_eq!((search.next(5, None), search.next(5, Some(2))), (Some(5), Some(2)));
        assert_eq!((search.next(1, Some(9)), search.next(0, None)), (Some(1), None));
        search.others = vec![5];
        assert_eq!(search.next(5, None), Some(1));
        search.others = vec![5, 1, 2, 3, 4];
        assert_eq!((search.next(5, None), search.next(6, None)), (None, Some(6)));
        let large = Search { most: Some(2), ..Search::default() };
        assert_eq!(large.next(5, None), Some(2));
        let nothing = Search { least: 3, ..Search::default() };
        assert_eq!((nothing.next(5, Some(1)), nothing.next(2, None)), (Some(3), None));
    }

    #[test]
    fn lines_that_are_no_points_go_alone() {
        let bytes =
            b"{\"name\":\"a\",\"value\":1}\n{\"name\":1}\n{\"name\":\"b\",\"value\":2}\n".to_vec();
        let lines = Lines { bytes, count: 3, places: vec![7, 8, 9] };
        let (points, others) = sorted(lines, "p/");
        assert_eq!(points.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [7, 9]);
        assert_eq!((others.bytes.as_slice(), others.count), (&b"{\"name\":1}\n"[..], 1));
    }
}
