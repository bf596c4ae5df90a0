//! Answers, and refusals that are counted as they are answered.

use crate::ingest::intake::{Context, Who};
use crate::ingest::keys::Claim;
use crate::net::Peer;
use crate::origin::Protocol;
use crate::route::Fate;
use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use protocols::influxdb;
use protocols::{Answer, Refusals};
use std::borrow::Cow;
use std::sync::Arc;

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
    body: Option<String>,
}

impl Refusal {
    pub(super) fn new(
        status: u16,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, reason, message: message.into(), unsettled: None, body: None }
    }

    /// For the time being; nothing of the request was kept.
    pub(super) fn overloaded() -> Self {
        Self::new(503, "overloaded", "a backend's queue is full; nothing of the request was kept")
    }

    /// What is said of it in the listener's protocol, or in words of its own.
    fn said(&self, web: &Web) -> Answer {
        match web.config.protocol {
            _ if self.body.is_some() => Answer { status: self.status, body: self.body.clone() },
            Protocol::Influxdb => influxdb::refusal(self.status, &self.message),
            _ => Answer::error(self.status, &self.message, None),
        }
    }

    /// Of a request that would have had this answer, had its points come so far.
    pub(super) fn unsettled(self, answer: Answer, fate: Fate) -> Self {
        Self { unsettled: Some(Box::new((answer, fate))), ..self }
    }

    /// Lets a protocol that has words of its own for requests whose points did not come so far say
    /// it in these: a status, a body for the message, or one instead of it.
    fn reworded(
        self,
        words: impl FnOnce(&str, &Answer, &Fate) -> (Option<u16>, Option<String>),
    ) -> Self {
        let Some((answer, fate)) = self.unsettled.as_deref() else { return self };
        let (status, body) = words(&self.message, answer, fate);
        Self { status: status.unwrap_or(self.status), body, ..self }
    }

    /// Counts it, and answers.
    pub(super) fn answer(self, web: &Web, example: &[u8], peer: Option<&Peer>) -> Response {
        web.refuse(self.reason, 1, example, Who(peer));
        let mut response = respond(self.said(web));
        let headers = response.headers_mut();
        match self.status {
            503 | 409 => {
                drop(headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECS)))
            }
            408 => drop(headers.insert(CONNECTION, HeaderValue::from_static("close"))),
            _ => {}
        }
        response
    }
}

/// A request whose body was read, and what came of it, now or before.
pub(super) struct Taken {
    pub(super) outcome: Result<Answer, Refusal>,
    /// To be remembered by, once it is certain what is answered.
    claim: Option<Claim>,
    is_repeated: bool,
}

impl Taken {
    /// It was worked on just now.
    pub(super) const fn now(outcome: Result<Answer, Refusal>, claim: Option<Claim>) -> Self {
        Self { outcome, claim, is_repeated: false }
    }

    /// It is one that was answered before.
    pub(super) const fn again(answer: Answer) -> Self {
        Self { outcome: Ok(answer), claim: None, is_repeated: true }
    }

    /// See [`Refusal::reworded`].
    pub(super) fn reworded(
        self,
        words: impl FnOnce(&str, &Answer, &Fate) -> (Option<u16>, Option<String>),
    ) -> Self {
        Self { outcome: self.outcome.map_err(|refusal| refusal.reworded(words)), ..self }
    }

    /// Answers, when what has to be remembered is.
    async fn answer(self, web: &Web, example: &[u8], peer: Option<&Peer>) -> Response {
        if let Some(claim) = self.claim {
            let answer = match &self.outcome {
                Ok(answer) => answer.clone(),
                Err(refusal) => refusal.said(web),
            };
            claim.record(answer).await;
        }
        let answered = self.outcome.map(respond);
        let mut response = answered.unwrap_or_else(|refusal| refusal.answer(web, example, peer));
        if self.is_repeated {
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        }
        response
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
    match answer.body {
        Some(body) => (status, [(CONTENT_TYPE, JSON)], Body::from(body)).into_response(),
        None => status.into_response(),
    }
}

/// Counts the refused items of a body, and logs one of each reason now and then.
pub(super) fn count(refusals: &Refusals<'_>, web: &Context, peer: Option<&Peer>) {
    for (reason, total) in refusals.by_reason() {
        let example = refusals.listed().iter().find(|item| item.reason == reason);
        let example = example.and_then(|item| item.item).map_or("", |item| item.get());
        web.refuse(reason.label(), total as u64, example.as_bytes(), Who(peer));
    }
}

/// Marks an answer that was given before.
const REPLAYED: &str = "idempotency-replayed";

pub(super) const JSON: &str = "application/json; charset=utf-8";

/// A queue that moves at all has room after a second.
const RETRY_AFTER_SECS: &str = "1";
