//! A request's body, whole, decompressed and within the limits of size, time and memory.
//!
//! Decompression streams, so a small body that unfolds to a huge one costs no more than the
//! limit before it is refused.

use super::answer::{Refusal, Web};
use super::encoding::Encoded;
use crate::ingest::bodies::{Bodies, Whole};
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::error::Error;
use tokio::time::timeout;

/// Reads the body, when the lanes have got through what came before; its sender's quota may allow
/// less than the listener.
pub(super) async fn read(
    request: Request,
    quota: Option<usize>,
    web: &Web,
) -> Result<Whole, Refusal> {
    let limits = web.config.limits;
    let (limit, quota) = (limits.body.bytes(), quota.unwrap_or(usize::MAX));
    let most = limit.min(quota);
    let too_large = |most| too_large(most, quota < limit);
    let encoded = request.extensions().get::<Encoded>().is_some();
    if !encoded && declared(&request) > most {
        return Err(too_large(most));
    }
    web.router.ease().await;
    let whole = match timeout(limits.request.0, collect(request, most, &web.bodies)).await {
        Ok(Ok(whole)) => whole,
        Ok(Err(Broken::NoMemory)) => {
            let text = "too many large bodies at a time; nothing of the request was kept";
            return Err(Refusal::new(503, "overloaded", text));
        }
        Ok(Err(Broken::Body(error))) if is_limit(&*error) => return Err(too_large(most)),
        Ok(Err(Broken::Body(_))) if encoded => {
            let text = "the body is not what its content encoding says";
            return Err(Refusal::new(400, "bad_encoding", text));
        }
        // The sender has gone, or does not keep to HTTP.
        Ok(Err(Broken::Body(_))) => {
            return Err(Refusal::new(400, "broken_body", "the body broke off"));
        }
        Err(_) => {
            let text = format!("the body took longer than {:?}", limits.request.0);
            return Err(Refusal::new(408, "request_timeout", text));
        }
    };
    web.book.received_bytes.add(whole.len() as u64);
    Ok(whole)
}

/// Why a body is not whole.
enum Broken {
    NoMemory,
    Body(Box<dyn Error + Send + Sync>),
}

async fn collect(request: Request, most: usize, bodies: &Bodies) -> Result<Whole, Broken> {
    let mut body = Limited::new(request.into_body(), most);
    let mut whole = Whole::default();
    while let Some(frame) = body.frame().await {
        // Trailers are of no interest.
        let Ok(data) = frame.map_err(Broken::Body)?.into_data() else { continue };
        if !whole.grow(&data, bodies) {
            return Err(Broken::NoMemory);
        }
    }
    Ok(whole)
}

fn declared(request: &Request) -> usize {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

fn too_large(most: usize, by_quota: bool) -> Refusal {
    let text = format!("the body is larger than {most} bytes, decompressed; send it in parts");
    let reason = if by_quota { "quota_body" } else { "body_too_large" };
    Refusal::new(413, reason, text)
}

/// Layers wrap the error of the limit in errors of their own.
fn is_limit(error: &(dyn Error + 'static)) -> bool {
    let mut chain = Some(error);
    while let Some(error) = chain {
        if error.is::<LengthLimitError>() {
            return true;
        }
        chain = error.source();
    }
    false
}
