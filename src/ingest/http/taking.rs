//! The way of every request that brings points, whatever it speaks.
//!
//! ```text
//! a backend that may refuse is full? ─► body ─► parsed ─► handed to the lanes ─► answered
//! ```

use super::answer::{Refusal, Web};
use super::body;
use crate::ingest::intake::Intake;
use axum::extract::Request;
use protocols::json::Answer;

/// Reads the body, lets `parse` fill the batch from it and say what to answer, and hands the
/// batch over. A request that is refused on the way has left nothing behind.
pub(super) async fn take(
    request: Request,
    web: &Web,
    parse: impl FnOnce(&[u8], &mut Intake) -> Result<Answer, Refusal>,
) -> Result<Answer, Refusal> {
    let mut intake = web.intake();
    if intake.refusing() {
        return Err(Refusal::overloaded());
    }
    let body = body::read(request, web).await?;
    let digest = || {
        let answer = parse(&body, &mut intake)?;
        intake.submit();
        Ok(answer)
    };
    web.bodies.digest(body.len(), digest).await
}
