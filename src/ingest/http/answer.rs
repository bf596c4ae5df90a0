//! Answers, and refusals that are counted as they are answered.

use crate::access::{Denial, Refused};
use crate::books::Offender;
use crate::ingest::intake::{Context, Intake};
use crate::ingest::keys::Claim;
use crate::net::Peer;
use crate::origin::Protocol;
use crate::route::{Fate, Turned};
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use protocols::influxdb;
use protocols::{Answer, Refusals};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What every handler shares.
pub(super) type Web = Arc<Context>;

/// A request that is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: u16,
    reason: &'static str,
    message: Cow<'static, str>,
    /// What would have been answered, and what came in between.
    unsettled: Option<Box<(Answer, Fate)>>,
    /// What is said instead of the message.
    body: Option<Box<str>>,
    /// What the sender is asked to show.
    challenges: Box<[&'static str]>,
    /// When it may come again.
    again: Option<Duration>,
    /// Whose it was, where anybody wants to know.
    offender: Option<Box<Offender>>,
}

impl Refusal {
    pub(super) fn new(
        status: u16,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (unsettled, body, challenges, again) = (None, None, Box::default(), None);
        let (message, offender) = (message.into(), None);
        Self { status, reason, message, unsettled, body, challenges, again, offender }
    }

    /// The same of a request that was found to be his.
    pub(super) fn of(self, offender: Option<Box<Offender>>) -> Self {
        Self { offender, ..self }
    }

    /// The sender has to show who he is, in one of these ways.
    pub(super) fn challenging(self, challenges: Vec<&'static str>) -> Self {
        Self { challenges: challenges.into(), ..self }
    }

    /// For the time being; nothing of the request was kept.
    pub(super) fn overloaded() -> Self {
        Self::new(503, "overloaded", "a backend's queue is full; nothing of the request was kept")
    }

    /// Nothing of the request was kept.
    pub(super) fn turned(turned: Turned) -> Self {
        match turned {
            Turned::Full(_) => Self::overloaded(),
            Turned::Refused(refused) => Self::refused(refused),
        }
    }

    /// Its sender may not write all of it, or not now, or never as much.
    fn refused(refused: Refused) -> Self {
        let Refused { denial, message, again } = refused;
        match (denial, again) {
            (Denial::Quota(_), None) => Self::new(413, denial.label(), message),
            (Denial::Quota(_), again) => Self { again, ..Self::new(429, denial.label(), message) },
            _ => Self::new(403, FORBIDDEN, message),
        }
    }

    /// What is said of it in the listener's protocol, or in words of its own.
    pub(super) fn said(&self, web: &Web) -> Answer {
        match web.config.protocol {
            _ if self.body.is_some() => {
                Answer { status: self.status, body: self.body.as_deref().map(str::to_owned) }
            }
            Protocol::Influxdb => influxdb::refusal(self.status, &self.message),
            _ => Answer::error(self.status, &self.message, None),
        }
    }

    /// Of a request that would have had this answer, had its points come so far.
    pub(super) fn unsettled(self, answer: Answer, fate: Fate) -> Self {
        Self { unsettled: Some(Box::new((answer, fate))), ..self }
    }

    /// Says it in the words of its protocol.
    pub(super) fn reworded(self, words: &Words) -> Self {
        let Some((answer, fate)) = self.unsettled.as_deref() else { return self };
        let (status, body) = (words.0)(&self.message, answer, fate);
        let body = body.map(String::into_boxed_str);
        Self { status: status.unwrap_or(self.status), body, ..self }
    }

    /// Counts it, and answers.
    pub(super) fn answer(self, web: &Web, example: &[u8], peer: Option<&Peer>) -> Response {
        // Where nothing of the request can be shown, or it would not show what is amiss, the log says what
        // its sender is told.
        let is_mute = example.is_empty() || self.reason == FORBIDDEN;
        let example = if is_mute { self.message.as_bytes() } else { example };
        match &self.offender {
            None => web.refuse(self.reason, 1, example, peer.into()),
            Some(offender) => {
                let mut router = web.router.clone();
                router.of_principal(offender.principal.clone());
                router.about(offender.marks.clone());
                web.refuse_of(&router, self.reason, 1, example, peer.into());
            }
        }
        let mut response = respond(self.said(web));
        if let Some(again) = self.again {
            ask_to_come_back(&mut response, again);
        }
        for challenge in &self.challenges {
            let challenge = HeaderValue::from_static(challenge);
            response.headers_mut().append(WWW_AUTHENTICATE, challenge);
        }
        if self.reason == KEY_CONFLICT {
            response.headers_mut().insert(CONFLICT, HeaderValue::from_static("true"));
        }
        response
    }
}

/// How a protocol tells a request whose points did not come so far: from the message, what would
/// have been answered and what came in between to a status and a body of its own, if it has them.
pub(super) struct Words(Box<Telling>);

type Telling = dyn Fn(&str, &Answer, &Fate) -> (Option<u16>, Option<String>) + Send + Sync;

impl Words {
    pub(super) fn new(
        words: impl Fn(&str, &Answer, &Fate) -> (Option<u16>, Option<String>) + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(words))
    }
}

impl Default for Words {
    /// None of its own.
    fn default() -> Self {
        Self::new(|_, _, _| (None, None))
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").finish_non_exhaustive()
    }
}

/// A request whose body was read, and what came of it, now or before.
pub(super) struct Taken {
    outcome: Result<Answer, Refusal>,
    /// To be remembered by, if that is still to be done.
    claim: Option<Claim>,
    key: Key,
}

/// What a request's key has to do with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    /// There is none.
    None,
    /// It was new.
    New,
    /// It was answered before.
    Known,
}

impl Taken {
    /// It was worked on just now.
    pub(super) const fn now(outcome: Result<Answer, Refusal>, claim: Option<Claim>) -> Self {
        let key = if claim.is_some() { Key::New } else { Key::None };
        Self { outcome, claim, key }
    }

    /// As [`now`](Self::now), and its key is seen to.
    pub(super) const fn settled(outcome: Result<Answer, Refusal>) -> Self {
        Self { outcome, claim: None, key: Key::New }
    }

    /// It is one that was answered before.
    pub(super) const fn again(answer: Answer) -> Self {
        Self { outcome: Ok(answer), claim: None, key: Key::Known }
    }

    /// What is refused of it was his.
    pub(super) fn of(self, offender: Option<Box<Offender>>) -> Self {
        Self { outcome: self.outcome.map_err(|refusal| refusal.of(offender)), ..self }
    }

    /// Answers, when what has to be remembered is.
    async fn answer(self, web: &Web, example: &[u8], peer: Option<&Peer>) -> Response {
        if let Some(claim) = self.claim {
            claim.record(said(&self.outcome, web)).await;
        }
        let answered = self.outcome.map(respond);
        let mut response = answered.unwrap_or_else(|refusal| refusal.answer(web, example, peer));
        if self.key == Key::Known {
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        }
        // With a key it is safe to ask again what has become of the points.
        if self.key != Key::None && response.status() == StatusCode::GATEWAY_TIMEOUT {
            ask_to_come_back(&mut response, SOON);
        }
        response
    }
}

/// What is said of a request, whether well or ill.
pub(super) fn said(outcome: &Result<Answer, Refusal>, web: &Web) -> Answer {
    match outcome {
        Ok(answer) => answer.clone(),
        Err(refusal) => refusal.said(web),
    }
}

/// Answers a request that was read to its end, or was refused before that.
pub(super) async fn reply(
    taken: Result<Taken, Refusal>,
    web: &Web,
    example: &[u8],
    peer: Option<&Peer>,
) -> Response {
    match taken {
        Ok(taken) => taken.answer(web, example, peer).await,
        Err(refusal) => refusal.answer(web, example, peer),
    }
}

/// Puts an answer of the protocols into HTTP.
pub(super) fn respond(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match answer.body {
        Some(body) => (status, [(CONTENT_TYPE, JSON)], Body::from(body)).into_response(),
        None => status.into_response(),
    };
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::CONFLICT) {
        ask_to_come_back(&mut response, SOON);
    }
    response
}

/// In whole seconds, and not too early.
fn ask_to_come_back(response: &mut Response, after: Duration) {
    let secs = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(secs.max(1)));
}

/// Counts the refused items of a body, and logs one of each reason now and then.
pub(super) fn count(refusals: &Refusals<'_>, intake: &Intake, peer: Option<&Peer>) {
    for (reason, total) in refusals.by_reason() {
        let example = refusals.listed().iter().find(|item| item.reason == reason);
        let example = example.map_or("", |it| it.item.map_or(&*it.message, |item| item.get()));
        intake.refuse(reason.label(), total as u64, example.as_bytes(), peer.into());
    }
}

/// The key of a request is known, and it was another request.
pub(super) const KEY_CONFLICT: &str = "key_conflict";

/// Marks the answer to it, of which there are others with its status.
const CONFLICT: &str = "idempotency-conflict";

/// Marks an answer that was given before.
const REPLAYED: &str = "idempotency-replayed";

pub(super) const JSON: &str = "application/json; charset=utf-8";

/// A queue that moves at all has room after a second.
const SOON: Duration = Duration::from_secs(1);

/// Why a request is refused whose sender may not write all of it.
pub const FORBIDDEN: &str = "forbidden";
