//! From the queue to the backend: one attempt after the other, and what follows from each.
//!
//! | outcome | what follows |
//! |---|---|
//! | delivered | it leaves the queue |
//! | delivered out of turn, as a [witness](super::queue::trial) | it stays, and is delivered again in its turn |
//! | rejected | it leaves the queue, and what was refused becomes a dead letter |
//! | divide | its halves take its place; a record that cannot be halved becomes a dead letter |
//! | partial | the same, where a repeat does no harm, so that what is refused is known; elsewhere it leaves the queue |
//! | retry | it stays, and the next attempt comes after a delay |
//! | retry, answered | the same; when that goes on, whose fault it is is [tried](super::queue::trial) |
//!
//! Retries are endless: only the queue's bound gives points up, and a backend that fails at the
//! same records while it takes others. One bad record costs about as many attempts as its payload
//! can be halved, and its neighbours a repeat at most; what a payload full of them may cost is bounded by
//! its [effort](super::queue::effort), and a part that is refused when that is spent is given up as
//! it is. The size at which a backend refused is remembered, and nothing larger than half of it is
//! sent again by this lane. Logs say once when a backend falls ill and once when it is well again,
//! and each refusal's reason at most once a minute. Counts `delivered`, `retries`; what is refused
//! is counted by the [letters](super::letters).

use super::State;
use super::letters::Refused;
use super::queue::{Claim, Failure, Step, Ticket};
use super::retry::Backoff;
use super::settings::Settings;
use crate::backend::{Outcome, Payload, Ship, TOO_LARGE};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// One of a lane's shippers.
pub(super) struct Shipper {
    pub(super) settings: Arc<Settings>,
    pub(super) state: Arc<State>,
    pub(super) ship: Box<dyn Ship>,
    /// Which lane this is, among those that the backend's name has had.
    pub(super) lane: u64,
    /// Cancelled when a younger lane takes the queue over.
    pub(super) handed_over: CancellationToken,
}

impl Shipper {
    /// Ships until the lane has ended and the queue is empty, or the queue is handed over.
    pub(super) async fn run(mut self) {
        let state = Arc::clone(&self.state);
        let mut changes = state.queue.changes();
        let mut failures = 0;
        while !self.handed_over.is_cancelled() {
            changes.borrow_and_update();
            match state.queue.claim(self.lane) {
                Claim::Done => return,
                Claim::Wait => {
                    tokio::select! {
                        _ = changes.changed() => {}
                        () = self.handed_over.cancelled() => {}
                    }
                }
                Claim::Take(ticket) => match self.attempt(ticket).await {
                    Next::Well => failures = 0,
                    Next::GoOn => {}
                    Next::Rest(rest) => {
                        failures += 1;
                        self.rest(failures, rest, &mut changes).await;
                    }
                },
            }
        }
    }

    /// Ships one payload.
    async fn attempt(&mut self, ticket: Ticket<'_>) -> Next {
        let Some(payload) = ticket.payload() else { return Next::GoOn };
        if payload.body.len() > self.state.learnt.load(Relaxed)
            && let Some(halves) = halves(payload)
        {
            ticket.replace(halves);
            return Next::Well;
        }
        let attempt = tokio::time::timeout(self.settings.timeout, self.ship.ship(payload));
        let outcome = attempt.await.unwrap_or_else(|_| Outcome::not_now(self.silence()));
        self.settle(ticket, outcome)
    }

    fn settle(&self, ticket: Ticket<'_>, outcome: Outcome) -> Next {
        if let Outcome::Retry { after, answered, detail } = outcome {
            self.state.book.retries.add(1);
            self.fell_ill(&detail);
            return match answered && self.ship.is_idempotent() {
                true => self.failed(ticket, &detail),
                false => Next::Rest(Rest { after, ..Rest::default() }),
            };
        }
        self.recovered();
        let points = ticket.payload().map_or(0, |payload| payload.points);
        if outcome.takes_some_of(points) && ticket.took() {
            // A witness. Once more after what is before it in line, it is the last to arrive.
            self.state.book.retries.add(1);
            return Next::Well;
        }
        match outcome {
            Outcome::Partial { rejected, reason, detail } => {
                self.find(ticket, rejected, Refusal { reason, words: detail });
            }
            Outcome::Rejected { reason, detail } => {
                self.give_up(ticket, u32::MAX, Refusal { reason, words: detail });
            }
            Outcome::Divide { reason, detail } => {
                self.divide(ticket, Refusal { reason, words: detail });
            }
            Outcome::Delivered | Outcome::Retry { .. } => {
                ticket.commit();
                self.state.book.delivered.add(u64::from(points));
            }
        }
        Next::Well
    }

    /// The backend failed at this payload. Whether the payload is to blame is tried out.
    fn failed(&self, ticket: Ticket<'_>, words: &str) -> Next {
        let halves = ticket.payload().and_then(halves);
        let failure = Failure {
            now: Instant::now(),
            patience: self.settings.suspect_after,
            divisible: halves.is_some() && ticket.effort().is_left(),
            explorable: halves.is_some() && ticket.effort().may_explore(),
        };
        match (ticket.failed(failure), halves) {
            (Step::Divide, Some(halves)) => {
                self.found_guilty(words);
                ticket.divide(halves);
            }
            (Step::Explore, Some(halves)) => {
                ticket.effort().explore();
                ticket.divide(halves);
                return Next::Rest(Rest::default());
            }
            (Step::Refuse, _) => {
                let (reason, words) = (REJECTED_PERMANENT, words.to_owned());
                self.give_up(ticket, u32::MAX, Refusal { reason, words });
            }
            (Step::Divide | Step::Explore, None) | (Step::Witness, _) => {}
            (Step::Rest(at_most), _) => return Next::Rest(Rest { at_most, ..Rest::default() }),
            (Step::RestAlone, _) => return Next::Rest(Rest { alone: true, ..Rest::default() }),
        }
        Next::GoOn
    }

    fn found_guilty(&self, words: &str) {
        if self.state.may_log("guilty") {
            let backend = &self.settings.name;
            tracing::warn!(%backend, "the backend fails at a batch and takes others, so what it cannot take is looked for: {words}");
        }
    }

    /// Some records were refused, and which is to be found if that does no harm.
    fn find(&self, ticket: Ticket<'_>, refused: u32, refusal: Refusal) {
        let Some(payload) = ticket.payload() else { return };
        // Whoever says that it were all of them needs not be asked again. A number that cannot
        // be right says nothing.
        if self.ship.is_idempotent() && refused != payload.points {
            ticket.effort().grant(refused.min(payload.points), payload.points);
            if let Some(halves) = halves(payload).filter(|_| ticket.effort().is_left()) {
                return ticket.divide(halves);
            }
        }
        self.give_up(ticket, refused, refusal);
    }

    /// The whole was refused; parts may fare better.
    fn divide(&self, ticket: Ticket<'_>, refusal: Refusal) {
        let Some(payload) = ticket.payload() else { return };
        let Some(halves) = halves(payload).filter(|_| ticket.effort().is_left()) else {
            return self.give_up(ticket, u32::MAX, refusal);
        };
        if refusal.reason == TOO_LARGE {
            let smaller = (payload.body.len() / 2).max(LEARNT_MIN);
            self.state.learnt.fetch_min(smaller, Relaxed);
        }
        ticket.divide(halves);
    }

    /// It leaves the queue; all but so many of its points were delivered.
    fn give_up(&self, ticket: Ticket<'_>, count: u32, refusal: Refusal) {
        let count = ticket.payload().map_or(0, |payload| count.min(payload.points));
        ticket.lose(count, refusal.reason, &refusal.words);
        let Some(payload) = ticket.commit() else { return };
        self.state.book.delivered.add(u64::from(payload.points - count));
        self.refuse(refused(payload, count, refusal));
    }

    /// Every record that the backend refused for good ends here.
    fn refuse(&self, refused: Refused) {
        let Refused { points, reason, words, .. } = &refused;
        if self.state.may_log(reason) {
            let backend = &self.settings.name;
            tracing::warn!(%backend, reason, points, "the backend refused points: {words}");
        }
        self.state.letters.put(self.settings.kind, refused);
    }

    /// Said once for each illness; of a backend that falls ill all the time, once a minute.
    fn fell_ill(&self, detail: &str) {
        self.state.book.fell_ill(detail);
        let ill = &self.state.ill;
        if !ill.load(Relaxed) && self.state.may_log("ill") {
            ill.store(true, Relaxed);
            let backend = &self.settings.name;
            tracing::warn!(%backend, "the backend takes no points, retrying: {detail}");
        }
    }

    fn recovered(&self) {
        self.state.book.got_well();
        if self.state.ill.swap(false, Relaxed) {
            let backend = &self.settings.name;
            tracing::info!(%backend, "the backend takes points again");
        }
    }

    fn silence(&self) -> String {
        format!("no answer within {:?}", self.settings.timeout)
    }

    async fn rest(&mut self, failures: u32, rest: Rest, changes: &mut watch::Receiver<u64>) {
        let Rest { after, at_most, alone } = rest;
        let backoff = Backoff { first: self.settings.retry_first, max: self.settings.retry_max };
        let delay = backoff.delay(failures, after, rand::random());
        let others = async {
            if !alone {
                std::future::pending::<()>().await;
            }
            while !self.state.queue.has_fresh() && changes.changed().await.is_ok() {}
        };
        tokio::select! {
            () = tokio::time::sleep(at_most.map_or(delay, |most| delay.min(most))) => {}
            () = others => {}
            () = self.handed_over.cancelled() => {}
        }
    }
}

/// What a shipper does after an attempt.
enum Next {
    /// The next one; the backend has its wits together.
    Well,
    /// The next one, of which nothing is expected.
    GoOn,
    /// Nothing for a while.
    Rest(Rest),
}

#[derive(Default)]
struct Rest {
    /// When the peer said to come back.
    after: Option<Duration>,
    /// No longer than this.
    at_most: Option<Duration>,
    /// No longer than the payload stays the only one.
    alone: bool,
}

/// Why, and in which words.
struct Refusal {
    reason: &'static str,
    words: String,
}

/// So many points of a payload, as a dead letter tells it.
fn refused(payload: Payload, points: u32, Refusal { reason, words }: Refusal) -> Refused {
    let Payload { body, points: among, born, waybill } = payload;
    let words = match points < among {
        true => format!("{points} of these {among} records: {words}"),
        false => words,
    };
    Refused { body, points, among, reason, words, waybill, born }
}

/// Two payloads instead of one, cut at the line border nearest to the middle; none of a
/// payload that is a single record. Points are shared out by lines.
fn halves(payload: &Payload) -> Option<[Payload; 2]> {
    let body = &payload.body;
    let cut = middle(body)?;
    let (first, second) = (body.slice(..cut), body.slice(cut..));
    let (above, below) = (lines(&first), lines(&second));
    let share = u64::from(payload.points) * above / (above + below).max(1);
    let points = u32::try_from(share).unwrap_or(payload.points).min(payload.points);
    let [mine, others] = payload.waybill.split(u32::try_from(above).unwrap_or(u32::MAX));
    let (born, rest) = (payload.born, payload.points - points);
    Some([
        Payload::new(first, points, born).with(mine),
        Payload::new(second, rest, born).with(others),
    ])
}

fn middle(body: &Bytes) -> Option<usize> {
    let half = body.len() / 2;
    let (before, behind) = body.split_at_checked(half)?;
    let before = memchr::memrchr(b'\n', before).map(|at| at + 1);
    let behind = memchr::memchr(b'\n', behind).map(|at| half + at + 1);
    let behind = behind.filter(|cut| *cut < body.len());
    match (before, behind) {
        (Some(before), Some(behind)) if behind - half < half - before => Some(behind),
        (before, behind) => before.or(behind),
    }
}

fn lines(body: &Bytes) -> u64 {
    memchr::memchr_iter(b'\n', body).count() as u64
}

/// Why a record is given up at which a backend fails, when it fails at nothing else.
const REJECTED_PERMANENT: &str = "rejected_permanent";

/// A backend that refuses even this much is not asked in smaller pieces beforehand.
const LEARNT_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::UnixNanos;

    fn check(body: &'static str, points: u32, expected: Option<[(&str, u32); 2]>) {
        let payload = Payload::new(body, points, UnixNanos(1));
        let halves = halves(&payload);
        let halves = halves.as_ref().map(|halves| {
            halves.each_ref().map(|half| (str::from_utf8(&half.body).unwrap(), half.points))
        });
        assert_eq!(halves, expected, "{body:?}");
    }

    #[test]
    fn a_payload_is_cut_between_records() {
        check("a\nb\n", 2, Some([("a\n", 1), ("b\n", 1)]));
        check("a\nb\nc\n", 3, Some([("a\n", 1), ("b\nc\n", 2)]));
        check("long record\nb\n", 2, Some([("long record\n", 1), ("b\n", 1)]));
        check("a\nlong record\n", 2, Some([("a\n", 1), ("long record\n", 1)]));
        check("a\nb\n", 1, Some([("a\n", 0), ("b\n", 1)]));
        check("alone\n", 1, None);
        check("", 0, None);
    }
}
