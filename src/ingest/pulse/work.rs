//! One message: claimed, its artifact fetched, its points handed over, waited for, and acknowledged.

use super::artifact::{Artifact, Artifacts};
use super::content::Problem;
use super::notice::{Envelope, Notice, Void};
use super::reason::Reason;
use crate::access::Scopes;
use crate::ingest::file::Decoder;
use crate::ingest::intake::{Context, Intake};
use crate::ingest::keys::{Claim, Claimed, Fingerprint, Patience};
use crate::plural::counted;
use crate::route::{Fate, Level, Loss, Receipt, Slip};
use lapin::message::Delivery;
use lapin::options::BasicAckOptions;
use protocols::{Answer, Point};
use std::fmt::Write as _;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Where messages are worked on.
pub(super) struct Desk {
    context: Context,
    artifacts: Artifacts,
}

/// Work on a message ended early, because the listener stops; the broker gives it to somebody else.
struct Left;

impl Desk {
    pub(super) const fn new(context: Context, artifacts: Artifacts) -> Self {
        Self { context, artifacts }
    }

    /// Works on a message, and acknowledges it unless it is left to somebody else.
    pub(super) async fn take(&self, delivery: Delivery) {
        let done = match self.read(&delivery) {
            Ok(notice) => self.once(&notice).await,
            Err(void) => {
                self.pass_over(&void);
                Ok(())
            }
        };
        if done.is_ok() {
            // If the connection is gone the message comes again, and is recognised then.
            let _ = delivery.acker.ack(BasicAckOptions::default()).await;
        }
    }

    fn read(&self, delivery: &Delivery) -> Result<Notice, Void> {
        let config = &self.context.config;
        let exchanges = config.broker.as_ref().map_or(&[][..], |broker| &broker.exchanges);
        let route = config.tasks.as_ref().map_or("", |tasks| &tasks.route);
        Envelope::of(delivery).open(route, exchanges)
    }

    fn pass_over(&self, void: &Void) {
        match void {
            Void::Refused(reason, marks, why) => {
                self.context.refuse_about(marks.clone(), reason, why.as_bytes());
            }
            Void::Passed(kind) => self.context.book.noticed.add(kind, 1),
        }
    }

    /// Works on it unless that was done before.
    async fn once(&self, notice: &Notice) -> Result<(), Left> {
        let Some(mut claim) = self.claim(notice).await? else {
            self.context.book.noticed.add("repeated_message", 1);
            return Ok(());
        };
        if let Err(Problem(reason, why)) = self.work(notice).await? {
            self.refuse(notice, reason, &why);
        }
        let answer = Answer { status: 200, body: None };
        claim.kept(&answer);
        claim.record(answer).await;
        Ok(())
    }

    /// Claims the message's key; none if it was dealt with before. Waits while the same message is in hand
    /// elsewhere.
    async fn claim(&self, notice: &Notice) -> Result<Option<Claim>, Left> {
        let Context { busy, stop, keys, .. } = &self.context;
        let key = notice.key();
        loop {
            let patience = Patience { deadline: Instant::now() + TWIN, busy, stop };
            match keys.claim(&key, FINGERPRINT, patience).await {
                Claimed::Mine(claim) => return Ok(Some(claim)),
                Claimed::Answered(_) => return Ok(None),
                Claimed::Busy if stop.is_cancelled() => return Err(Left),
                Claimed::Busy => {}
            }
        }
    }

    /// Fetches its artifact, hands over the points, and waits for what becomes of them.
    async fn work(&self, notice: &Notice) -> Result<Result<(), Problem>, Left> {
        let mut intake = self.context.intake();
        intake.about(notice.marks());
        self.pass_gate(&mut intake, notice);
        self.until_room(&intake).await?;
        let finding = self.artifacts.find(&notice.task, notice.run);
        let found = self.context.stop.run_until_cancelled(finding).await.ok_or(Left)?;
        let artifact = match found {
            Ok(artifact) => artifact,
            Err(problem) => return Ok(Err(problem)),
        };
        self.context.book.received_bytes.add(artifact.content.len() as u64);
        let (slip, receipt) = Slip::new(Level::Queued);
        self.hand_over(notice, &artifact, intake, &slip).await?;
        // While it waits it must not hold memory that others need.
        drop((artifact, slip));
        self.settled(receipt).await
    }

    /// The gate is that of the listener, for the series of the task's routes alone.
    fn pass_gate(&self, intake: &mut Intake, notice: &Notice) {
        let scopes = Scopes::under_any(notice.series.iter().map(String::as_str));
        let gate = intake.table().access.by_series(&self.context.listener, scopes);
        intake.router.pass_by(gate);
    }

    /// Takes all that is in an artifact.
    async fn hand_over(
        &self,
        notice: &Notice,
        artifact: &Artifact<'_>,
        mut intake: Intake,
        slip: &Slip,
    ) -> Result<(), Left> {
        let (name, max) = (artifact.name, self.context.config.limits.line.bytes());
        let series = notice.series.first().map_or("", |series| series);
        let mut decoder = Decoder::whole(&format!("{notice}: {name}"), name, series, max);
        for chunk in artifact.content.chunks(CHUNK) {
            decoder.feed(chunk, &mut intake);
            self.submit(notice, &mut intake, &mut decoder, slip).await?;
        }
        decoder.end(&mut intake);
        self.submit(notice, &mut intake, &mut decoder, slip).await
    }

    async fn submit(
        &self,
        notice: &Notice,
        intake: &mut Intake,
        decoder: &mut Decoder,
        slip: &Slip,
    ) -> Result<(), Left> {
        if let Some(time) = notice.ended.resolved {
            // So that the same message always makes the same points.
            intake.date(time);
        }
        loop {
            let tell = |point: &Point<'_>, denial| decoder.denied(point, denial);
            if intake.submit_on(slip, tell).is_ok() {
                break;
            }
            self.until_room(intake).await?;
            sleep(PAUSE).await;
        }
        intake.ease().await;
        Ok(())
    }

    /// Waits while a backend that may refuse has no room.
    async fn until_room(&self, intake: &Intake) -> Result<(), Left> {
        let stop = &self.context.stop;
        if intake.refusing() {
            self.context.book.noticed.add("paused", 1);
        }
        while intake.refusing() && !stop.is_cancelled() {
            sleep(PAUSE).await;
        }
        if stop.is_cancelled() { Err(Left) } else { Ok(()) }
    }

    /// Waits for the points until they are where they should be, or the listener has to end.
    async fn settled(&self, mut receipt: Receipt) -> Result<Result<(), Problem>, Left> {
        let Context { busy, hurry, .. } = &self.context;
        let pause = busy.pause();
        let fate = receipt.by(hurry.cancelled()).await;
        drop(pause);
        match fate {
            Fate::Kept => Ok(Ok(())),
            Fate::Late(_) => Err(Left),
            // What a stop has lost comes again. Lanes may give up before anybody is hurried.
            Fate::Lost(losses) if hurry.is_cancelled() || by_stop(&losses) => Err(Left),
            Fate::Lost(losses) => {
                let mut told = String::new();
                for loss in losses {
                    // Writing to a text does not fail.
                    let points = counted(loss.points, "point");
                    let _ = write!(told, "{}: {points}, {}; ", loss.backend, loss.reason);
                }
                Ok(Err(Problem(Reason::Lost, told)))
            }
        }
    }

    /// Counts what can never be taken.
    fn refuse(&self, notice: &Notice, reason: Reason, why: &str) {
        let text = format!("{notice}: {why}");
        self.context.refuse_about(notice.marks(), reason.label(), text.as_bytes());
    }
}

/// Whether it is the stop that has lost some of the points, and not a backend.
fn by_stop(losses: &[Loss]) -> bool {
    losses.iter().any(|loss| loss.reason == "shutdown")
}

/// A message is identified by its key alone.
const FINGERPRINT: Fingerprint = Fingerprint([0; 32]);
/// How much of an artifact is handed over at once.
const CHUNK: usize = 64 << 10;
/// How often to look whether there is room.
const PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for the same message elsewhere before asking again.
const TWIN: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stop_has_lost_is_not_lost_for_good() {
        let loss = |reason| Loss { backend: "b".into(), reason, points: 1, detail: None };
        assert!(by_stop(&[loss("shutdown")]) && by_stop(&[loss("queue_full"), loss("shutdown")]));
        assert!(!by_stop(&[loss("queue_full"), loss("rejected")]) && !by_stop(&[]));
    }
}
