//! Answers, and refusals that are counted as they are answered.

use crate::ingest::intake::{Context, Who};
use crate::net::Peer;
use crate::origin::Protocol;
use crate::route::Fate;
use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use protocols::influxdb;
use protocols::json::{Answer, Refusals};
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

    /// Of a request that would have had this answer, had its points come so far.
    pub(super) fn unsettled(self, answer: Answer, fate: Fate) -> Self {
        Self { unsettled: Some(Box::new((answer, fate))), ..self }
    }

    /// Lets a protocol that has words of its own for requests whose points did not come so far say
    /// it in these: a status, a body for the message, or one instead of it.
    pub(super) fn reworded(
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
        let mut response = respond(match web.config.protocol {
            _ if self.body.is_some() => Answer { status: self.status, body: self.body },
            Protocol::Influxdb => influxdb::refusal(self.status, &self.message),
            _ => Answer::error(self.status, &self.message, None),
        });
        let headers = response.headers_mut();
        match self.status {
            503 => drop(headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECS))),
            408 => drop(headers.insert(CONNECTION, HeaderValue::from_static("close"))),
            _ => {}
        }
        response
    }
}

/// Answers a request whose points were taken, or refuses it.
pub(super) fn reply(
    taken: Result<Answer, Refusal>,
    web: &Web,
    example: &[u8],
    peer: Option<&Peer>,
) -> Response {
    taken.map_or_else(|refusal| refusal.answer(web, example, peer), respond)
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

pub(super) const JSON: &str = "application/json; charset=utf-8";

/// A queue that moves at all has room after a second.
const RETRY_AFTER_SECS: &str = "1";
