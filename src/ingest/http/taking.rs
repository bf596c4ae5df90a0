//! The way of every request that brings points, whatever it speaks.
//!
//! ```text
//! a backend that may refuse is full? ─► body ─► parsed ─► handed to the lanes ─► waited ─► answered
//! ```

use super::ack::Ack;
use super::answer::{Refusal, Web};
use super::body;
use crate::ingest::intake::Intake;
use axum::extract::Request;
use protocols::json::Answer;

/// Reads the body, lets `parse` fill the batch from it and say what to answer, hands the batch
/// over, and waits until the points have come as far as the request wants to know of. A request
/// that is refused before that has left nothing behind.
pub(super) async fn take(
    request: Request,
    web: &Web,
    parse: impl FnOnce(&[u8], &mut Intake) -> Result<Answer, Refusal>,
) -> Result<Answer, Refusal> {
    let ack = Ack::asked(request.uri(), web)?;
    let mut intake = web.intake();
    if intake.refusing() {
        return Err(Refusal::overloaded());
    }
    let body = body::read(request, web).await?;
    let digest = || {
        let answer = parse(&body, &mut intake)?;
        let receipt = intake.submit_request(ack.level).map_err(|_| Refusal::overloaded())?;
        Ok((answer, receipt))
    };
    let (answer, receipt) = web.bodies.digest(body.len(), digest).await?;
    // What waits takes no memory that others need.
    drop((body, intake));
    match receipt {
        Some(receipt) => ack.wait(receipt, answer, web).await,
        None => Ok(answer),
    }
}
