//! From the queue to the backend: one attempt after the other, and what follows from each.
//!
//! | outcome | what follows |
//! |---|---|
//! | delivered | it leaves the queue |
//! | partial, rejected | it leaves the queue, the refused points are counted by reason |
//! | divide | its halves take its place; a record that cannot be halved is given up and counted |
//! | retry | it stays, and the next attempt comes after a delay |
//!
//! Retries are endless: only the queue's bound gives points up. So one bad record costs about as
//! many attempts as its payload can be halved, and its neighbours nothing. A payload full of
//! them costs no more than twice [`DIVISIONS_MAX`]: after so many divisions, a part that is
//! refused once more is given up whole. The size at which a backend refused is remembered, and
//! nothing larger than half of it is sent again by this lane. Logs say once when a backend falls
//! ill and once when it is well again, and each refusal's reason at most once a minute. Counts
//! `delivered`, `dropped`, `retries`.

use super::State;
use super::queue::{Claim, Ticket};
use super::retry::Backoff;
use super::settings::Settings;
use crate::backend::{Outcome, Payload, Ship, TOO_LARGE};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
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
                    None => failures = 0,
                    Some(after) => {
                        failures += 1;
                        self.rest(failures, after).await;
                    }
                },
            }
        }
    }

    /// Ships one payload. When it has to be tried again, answers when the peer wants it.
    async fn attempt(&mut self, ticket: Ticket<'_>) -> Option<Option<Duration>> {
        let payload = ticket.payload()?;
        if payload.body.len() > self.state.learnt.load(Relaxed)
            && let Some(halves) = halves(payload)
        {
            ticket.replace(halves);
            return None;
        }
        let outcome =
            match tokio::time::timeout(self.settings.timeout, self.ship.ship(payload)).await {
                Ok(outcome) => outcome,
                Err(_) => Outcome::Retry { after: None, detail: self.silence() },
            };
        self.settle(ticket, outcome)
    }

    fn settle(&self, ticket: Ticket<'_>, outcome: Outcome) -> Option<Option<Duration>> {
        let points = ticket.payload().map_or(0, |payload| payload.points);
        let (delivered, refused) = match outcome {
            Outcome::Delivered => (points, None),
            Outcome::Partial { rejected, reason, detail } => {
                (points - rejected.min(points), Some((reason, detail)))
            }
            Outcome::Rejected { reason, detail } => (0, Some((reason, detail))),
            Outcome::Divide { reason, detail } => {
                self.recovered();
                self.divide(ticket, reason, &detail);
                return None;
            }
            Outcome::Retry { after, detail } => {
                self.state.book.retries.add(1);
                self.fell_ill(&detail);
                return Some(after);
            }
        };
        self.recovered();
        if let Some((reason, detail)) = &refused {
            ticket.lose(points - delivered, reason, detail);
        }
        ticket.commit();
        self.state.book.delivered.add(u64::from(delivered));
        if let Some((reason, detail)) = refused {
            self.refuse(points - delivered, reason, &detail);
        }
        None
    }

    fn divide(&self, ticket: Ticket<'_>, reason: &'static str, detail: &str) {
        let Some(payload) = ticket.payload() else { return };
        let (size, points) = (payload.body.len(), payload.points);
        match halves(payload) {
            Some(halves) if ticket.divisions() < DIVISIONS_MAX => {
                if reason == TOO_LARGE {
                    self.state.learnt.fetch_min((size / 2).max(LEARNT_MIN), Relaxed);
                }
                ticket.divide(halves);
            }
            _ => {
                ticket.lose(points, reason, detail);
                ticket.commit();
                self.refuse(points, reason, detail);
            }
        }
    }

    fn refuse(&self, points: u32, reason: &'static str, detail: &str) {
        self.state.book.dropped.add(reason, u64::from(points));
        if self.state.may_log(reason) {
            let backend = &self.settings.name;
            tracing::warn!(%backend, reason, points, "the backend refused points: {detail}");
        }
    }

    /// Said once for each illness; of a backend that falls ill all the time, once a minute.
    fn fell_ill(&self, detail: &str) {
        let ill = &self.state.ill;
        if !ill.load(Relaxed) && self.state.may_log("ill") {
            ill.store(true, Relaxed);
            let backend = &self.settings.name;
            tracing::warn!(%backend, "the backend takes no points, retrying: {detail}");
        }
    }

    fn recovered(&self) {
        if self.state.ill.swap(false, Relaxed) {
            let backend = &self.settings.name;
            tracing::info!(%backend, "the backend takes points again");
        }
    }

    fn silence(&self) -> String {
        format!("no answer within {:?}", self.settings.timeout)
    }

    async fn rest(&mut self, failures: u32, after: Option<Duration>) {
        let backoff = Backoff { first: self.settings.retry_first, max: self.settings.retry_max };
        let delay = backoff.delay(failures, after, rand::random());
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.handed_over.cancelled() => {}
        }
    }
}

/// Two payloads instead of one, cut at the line border nearest to the middle; none of a
/// payload that is a single record. Points are shared out by lines.
fn halves(payload: &Payload) -> Option<[Payload; 2]> {
    let body = &payload.body;
    let cut = middle(body)?;
    let (first, second) = (body.slice(..cut), body.slice(cut..));
    let lines = [lines(&first), lines(&second)];
    let share = u64::from(payload.points) * lines[0] / (lines[0] + lines[1]).max(1);
    let points = u32::try_from(share).unwrap_or(payload.points).min(payload.points);
    let born = payload.born;
    Some([Payload::new(first, points, born), Payload::new(second, payload.points - points, born)])
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

/// Finds five bad records that are spread over a payload of the usual size, or dozens that
/// stand together.
const DIVISIONS_MAX: u32 = 64;

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
