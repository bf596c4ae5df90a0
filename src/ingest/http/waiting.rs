//! Requests that wait for what becomes of their points, and their keys while they do.
//!
//! ```text
//! no key ─► its sender's patience ─► answered
//! a key  ─► its sender's patience ─┬► known ─► remembered ─► answered
//!                                  └► open: answered 504 ─► waits on ─► known ─► remembered
//! ```
//!
//! What is remembered is what became of the points, so one with a key waits in a task of its own,
//! which ends neither with its sender's patience nor with its connection. (A connection whose
//! sender has gone stays until it is answered, so up to then there is one such task for each.) A
//! repeated one meets a key that is at work until its fate is known. When the listener ends first,
//! or when there are too many such keys, the 504 is what is remembered: it says that nothing is
//! known.

use super::ack::Ack;
use super::answer::{Refusal, Web, Words, said};
use crate::ingest::keys::Claim;
use crate::route::{Fate, Receipt};
use protocols::Answer;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A request whose points were handed over.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) ack: Ack,
    pub(super) receipt: Receipt,
    /// Its answer, if all goes well.
    pub(super) answer: Answer,
    pub(super) words: Words,
}

type Outcome = Result<Answer, Refusal>;

impl Waiting {
    /// Waits for as long as its sender does.
    pub(super) async fn once(mut self, web: &Web) -> Outcome {
        let fate = self.ack.wait(&mut self.receipt, web).await;
        self.outcome(fate)
    }

    /// The same for one with a key, which is remembered when its fate is known.
    pub(super) fn settle(
        self,
        mut claim: Claim,
        web: &Web,
    ) -> impl Future<Output = Outcome> + use<> {
        let so_far = self.outcome(self.receipt.fate());
        claim.amend(said(&so_far, web));
        let (tell, told) = oneshot::channel();
        web.run(self.follow(claim, Arc::clone(web), tell));
        // It goes without a word only when the listener ends, and then nothing more is known.
        async move { told.await.unwrap_or(so_far) }
    }

    async fn follow(mut self, mut claim: Claim, web: Web, tell: oneshot::Sender<Outcome>) {
        let fate = self.ack.wait(&mut self.receipt, &web).await;
        let outcome = self.outcome(fate);
        claim.amend(said(&outcome, &web));
        let is_open = !self.receipt.is_resolved() && !web.hurry.is_cancelled();
        if !(is_open && claim.stay_open()) {
            claim.record(said(&outcome, &web)).await;
            // Its sender may have gone.
            let _ = tell.send(outcome);
            return;
        }
        let _ = tell.send(outcome);
        let pause = web.busy.pause();
        let fate = self.receipt.by(web.hurry.cancelled()).await;
        drop(pause);
        claim.record(said(&self.outcome(fate), &web)).await;
    }

    fn outcome(&self, fate: Fate) -> Outcome {
        self.ack.outcome(&self.answer, fate).map_err(|refusal| refusal.reworded(&self.words))
    }
}
