//! When a request is answered, and what it is told whose points did not come so far.
//!
//! | `ack` | answered when its points are |
//! |---|---|
//! | `accepted` | in memory |
//! | `queued` | on disk or delivered, for every backend that keeps points there; else in its queue |
//! | `delivered` | at every backend |
//!
//! The listener's `ack` holds unless the query has another one, higher or lower: whoever sends
//! points knows what they are worth. `?timeout=2s` shortens the wait, which is `limits.request`
//! from the request's head on. OpenTSDB's `?sync` is `delivered`, and `sync_timeout` is in
//! milliseconds. On `/v1/point/<series>` the query is the point, and only `ack` is set aside.
//!
//! Counts as rejected `invalid_ack`, `invalid_timeout`, and requests that were answered with an
//! error though their points were taken: `ack_timeout`, `ack_lost`, `ack_refused`.

use super::answer::{Refusal, Web};
use super::query;
use crate::ingest::Ack as Asked;
use crate::plural::counted;
use crate::route::{Fate, Level, Loss, Receipt};
use crate::units::Span;
use axum::http::Uri;
use protocols::Answer;
use std::fmt::Write;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// What a request waits for, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    /// None when it is answered at once.
    pub(super) level: Option<Level>,
    began: Instant,
    patience: Duration,
}

impl Ack {
    /// What the listener says, or the query.
    pub(super) fn asked(uri: &Uri, web: &Web) -> Result<Self, Refusal> {
        let (text, began) = (uri.query().unwrap_or(""), Instant::now());
        let asked = match query::value(text, "ack") {
            Some(word) => Asked::named(word).ok_or_else(|| invalid_ack(word))?,
            None => web.config.ack,
        };
        let (mut level, mut patience) = (level(asked), web.config.limits.request.0);
        // Who waits for nothing may have his own parameter of that name.
        if level.is_some() && !uri.path().starts_with(POINT) {
            patience = timeout(text)?.map_or(patience, |asked| asked.min(patience));
        }
        if syncs(uri) {
            level = Some(Level::Delivered);
            patience = sync_timeout(text).map_or(patience, |asked| asked.min(patience));
        }
        Ok(Self { level, began, patience })
    }

    /// When it is answered at the latest.
    pub(super) fn deadline(&self) -> Instant {
        self.began + self.patience
    }

    /// Waits for the points for as long as their sender does.
    pub(super) async fn wait(&self, receipt: &mut Receipt, web: &Web) -> Fate {
        let pause = web.busy.pause();
        let up = async {
            tokio::select! {
                () = sleep_until(self.deadline()) => {}
                () = web.hurry.cancelled() => {}
            }
        };
        let fate = receipt.by(up).await;
        drop(pause);
        web.book.acks.add(1);
        web.book.ack_micros.add(u64::try_from(self.began.elapsed().as_micros()).unwrap_or(0));
        fate
    }

    /// What is told of points with this fate, which would otherwise be `answer`.
    pub(super) fn outcome(&self, answer: &Answer, fate: Fate) -> Result<Answer, Refusal> {
        let refusal = match &fate {
            Fate::Kept => return Ok(answer.clone()),
            Fate::Late(points) => Refusal::new(504, "ack_timeout", self.late(*points)),
            Fate::Lost(losses) => lost(losses),
        };
        Err(refusal.unsettled(answer.clone(), fate))
    }

    /// Says no more than is so at a stop and before a kill as well.
    fn late(&self, points: u64) -> String {
        let there = match self.level {
            Some(Level::Delivered) => "delivered",
            Some(Level::Queued) | None => "on disk",
        };
        format!(
            "after {:?}, {} not {there} yet, though taken; nothing is lost so far, and what becomes of \
             it is open: only a request with an Idempotency-Key is safe to repeat",
            Duration::from_millis(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(0)),
            counted(points, "point")
        )
    }
}

/// Whether a request asks to be answered as OpenTSDB's `sync` is.
pub(super) fn syncs(uri: &Uri) -> bool {
    let is_put = uri.path().starts_with("/api/") && uri.path().ends_with("/put");
    is_put && query::has(uri.query().unwrap_or(""), "sync")
}

fn level(asked: Asked) -> Option<Level> {
    match asked {
        Asked::Accepted => None,
        Asked::Queued => Some(Level::Queued),
        Asked::Delivered => Some(Level::Delivered),
    }
}

fn invalid_ack(word: &str) -> Refusal {
    let word: String = word.chars().take(WORD_SAMPLE).collect();
    let text = format!("`ack={word}` is none of accepted, queued and delivered");
    Refusal::new(400, "invalid_ack", text)
}

fn timeout(text: &str) -> Result<Option<Duration>, Refusal> {
    let Some(word) = query::value(text, "timeout") else { return Ok(None) };
    let span = Span::parse(word).map_err(|problem| {
        Refusal::new(400, "invalid_timeout", format!("the timeout of the query: {problem}"))
    })?;
    Ok(Some(span.0))
}

/// Zero is none, as in OpenTSDB.
fn sync_timeout(text: &str) -> Option<Duration> {
    let millis = query::value(text, "sync_timeout")?.parse().ok()?;
    (millis > 0).then(|| Duration::from_millis(millis))
}

/// Points that a backend had no room for may be sent again; what it refused may not.
fn lost(losses: &[Loss]) -> Refusal {
    let mut told = String::new();
    for Loss { backend, reason, points, detail } in losses {
        // Writing to a text does not fail.
        let _ = write!(told, "; backend `{backend}`: {}, {reason}", counted(*points, "point"));
        if let Some(detail) = detail {
            let _ = write!(told, " ({detail})");
        }
    }
    if losses.iter().any(Loss::is_for_now) {
        let text = format!("not all points were kept, though some may have been{told}");
        Refusal::new(503, "ack_lost", text)
    } else {
        let text = format!("not all points can be delivered, and the others are not undone{told}");
        Refusal::new(422, "ack_refused", text)
    }
}

/// Where the query is the point.
const POINT: &str = "/v1/point/";
/// How much of a word that nobody knows is said back.
const WORD_SAMPLE: usize = 32;
