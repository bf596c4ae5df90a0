//! What the queue's answers mean that are no artifact: whether asking again may help, and what to tell.

use super::content::Problem;
use super::reason::Reason;
use crate::escape;
use crate::tls::{self, client::Told};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use std::time::Duration;

/// Why a request came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another one would come to nothing, too.
    Final(Problem),
    /// Another one may do better, not before so long.
    Passing(Problem, Option<Duration>),
}

/// What the queue says of where an artifact is kept, or is made up by the task.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    storage_type: Option<String>,
}

/// Whether it was the task who said where an answer leads; `unsaid` if the answer does not say.
pub(super) async fn is_reference(answer: Response, unsaid: bool) -> bool {
    let header = answer.headers().get("x-taskcluster-artifact-storage-type");
    let told = header.and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    let kind = match told {
        Some(kind) => Some(kind),
        None => {
            let body = beginning(answer).await;
            serde_json::from_slice::<Kept>(&body).ok().and_then(|kept| kept.storage_type)
        }
    };
    // A link may be longer than what is read of it, so that its kind is not to be read, either.
    kind.map_or(unsaid, |kind| matches!(kind.trim(), "reference" | "redirect"))
}

/// What an answer means that is neither an artifact nor leads to one. Whether the request was signed
/// tells whether a 401 may pass.
pub(super) async fn refused(answer: Response, is_ours: bool, signed: bool) -> Failure {
    let (status, after) = (answer.status(), retry_after(answer.headers()));
    let reason = match status.as_u16() {
        408 | 425 | 429 | 500..=599 => {
            let text = format!("the queue answers {status}");
            return Failure::Passing(away(text), after);
        }
        401 | 403 => Reason::Forbidden,
        404 => Reason::Missing,
        410 => Reason::Expired,
        424 if is_ours => Reason::Error,
        _ => Reason::Answer,
    };
    let body = beginning(answer).await;
    let said: Said = serde_json::from_slice(&body).unwrap_or_default();
    let words = [said.reason, said.message].into_iter().flatten().collect::<Vec<_>>().join(": ");
    let words = escape::beginning(&words, WORDS);
    let text = if words.is_empty() { status.to_string() } else { format!("{status}: {words}") };
    match status {
        StatusCode::UNAUTHORIZED if signed => Failure::Passing(Problem(reason, text), after),
        _ => Failure::Final(Problem(reason, text)),
    }
}

/// The words of an answer that refuses.
#[derive(Default, Deserialize)]
struct Said {
    reason: Option<String>,
    message: Option<String>,
}

/// The first few KiB of a body; less if it breaks off.
async fn beginning(mut answer: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > BEGINNING {
            break;
        }
    }
    body
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let secs = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(secs))
}

/// A request, or its answer, broke off.
pub(super) fn broken(error: reqwest::Error) -> Failure {
    let text = tls::client::explain(&error, Told::ByGateway)
        .unwrap_or_else(|| innermost(&error.without_url()));
    Failure::Passing(away(text), None)
}

/// The cause, which says more than what it caused.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(cause) = inner.source() {
        inner = cause;
    }
    inner.to_string()
}

/// The queue cannot be asked just now.
pub(super) const fn away(text: String) -> Problem {
    Problem(Reason::Unavailable, text)
}

/// How much is read of a body that is not an artifact.
const BEGINNING: usize = 4 << 10;
/// How much of it is told.
const WORDS: usize = 200;
