//! The way of every request that brings points, whatever it speaks.
//!
//! ```text
//! who sends it? ─► a backend that may refuse is full? ─► body ─► came before? ─► parsed ─► handed to the lanes
//!                                        ─► waited, if it is to ─► remembered, if it has a key ─► answered
//! ```

use super::ack::Ack;
use super::answer::{Refusal, Taken, Web, Words};
use super::body;
use super::credentials::{Admitted, Sender};
use super::repeat::{Keyed, Turn};
use super::waiting::Waiting;
use crate::ingest::intake::Intake;
use crate::ingest::keys::Claim;
use crate::route::{Level, Receipt};
use axum::extract::Request;
use protocols::Answer;
use std::sync::Arc;

/// Reads the body, lets `parse` fill the batch from it and say what to answer, hands the batch
/// over, and waits until the points have come as far as the request wants to know of; if they do
/// not, that is told in `words`. A request that is refused before has left nothing behind. One that
/// has a key and came before is answered as it was then.
pub(super) async fn take(
    request: Request,
    web: &Web,
    words: Words,
    parse: impl FnOnce(&[u8], &mut Intake) -> Result<Answer, Refusal>,
) -> Result<Taken, Refusal> {
    let sender = Sender::of(&request, web)?;
    let admitted = sender.admitted(web).await?;
    let principal = admitted.gate.principal().map(|principal| Arc::clone(&principal.name));
    match take_of(request, admitted, web, words, parse).await {
        Ok(taken) => Ok(taken.of(principal)),
        Err(refusal) => Err(refusal.of(principal)),
    }
}

/// The same of one whose sender is known.
async fn take_of(
    request: Request,
    admitted: Admitted,
    web: &Web,
    words: Words,
    parse: impl FnOnce(&[u8], &mut Intake) -> Result<Answer, Refusal>,
) -> Result<Taken, Refusal> {
    let ack = Ack::asked(request.uri(), web)?;
    let keyed = Keyed::of(&request, &admitted.gate, ack.deadline())?;
    let mut intake = web.intake();
    intake.router.pass_by(admitted.gate.clone());
    // One that came before is answered even now, and whether it did shows only with its body.
    if keyed.is_none() && intake.refusing() {
        return Err(Refusal::overloaded());
    }
    let body = body::read(request, admitted.gate.body_max(), web).await?;
    admitted.check(&body)?;
    let mut claim = match keyed {
        None => None,
        Some(keyed) => match keyed.claim(&body, web).await? {
            Turn::Again(answer) => return Ok(Taken::again(answer)),
            Turn::First(_) if intake.refusing() => return Err(Refusal::overloaded()),
            Turn::First(claim) => Some(claim),
        },
    };
    let digest = || work(&body, &mut intake, ack.level, claim.as_mut(), parse);
    let worked = web.bodies.digest(body.len(), digest).await;
    // What waits takes no memory that others need.
    drop((body, intake));
    let (answer, receipt) = match worked {
        Ok((answer, Some(receipt))) => (answer, receipt),
        Ok((answer, None)) => return Ok(Taken::now(Ok(answer), claim)),
        Err(refusal) => return Ok(Taken::now(Err(refusal), claim)),
    };
    let waiting = Waiting { ack, receipt, answer, words };
    Ok(match claim {
        // From handing over to here there was no wait in which its sender could go away.
        Some(claim) => Taken::settled(waiting.settle(claim, web).await),
        None => Taken::now(waiting.once(web).await, None),
    })
}

/// Parses, hands over, and tells the claim in the same breath if anything is kept, or all is well:
/// nobody who goes away can come in between.
fn work(
    body: &[u8],
    intake: &mut Intake,
    level: Option<Level>,
    claim: Option<&mut Claim>,
    parse: impl FnOnce(&[u8], &mut Intake) -> Result<Answer, Refusal>,
) -> Result<(Answer, Option<Receipt>), Refusal> {
    let answer = parse(body, intake)?;
    let is_kept = intake.len() > 0 || answer.status < 300;
    let receipt = intake.submit_request(level).map_err(Refusal::turned)?;
    if let Some(claim) = claim.filter(|_| is_kept) {
        claim.kept(&answer);
    }
    Ok((answer, receipt))
}
