//! One batch on its way: its key, and what became of its lines.
//!
//! The key says where in the file the batch begins. A batch that is too large for the gateway goes in
//! halves, which are batches of their own: where the first ends is written down before it is sent, so
//! that a run that resumes makes the same halves.

use super::batch::Batch;
use super::book::{Begun, Book};
use super::totals::Totals;
use crate::client::{Client, Pause, Taken, Verdict};
use bytes::Bytes;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Why a file was not gone through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// It is the file's own fault.
    File(String),
    /// No other file would fare better.
    All(String),
}

/// Sends a batch; answers what became of its lines, or why no batch would be taken.
pub(super) async fn ship(
    client: Client,
    book: Arc<Mutex<Book>>,
    mut batch: Batch,
    begun: Begun,
    patience: Duration,
) -> Result<Batch, Stopped> {
    match begun {
        Begun::Known(totals) => batch.totals = totals,
        Begun::Send(key) => {
            let deadline = Instant::now() + patience;
            let totals = send(&client, &book, key, &mut batch, deadline).await?;
            batch.totals.add(&totals);
        }
    }
    Ok(batch)
}

/// Sends a batch under its key; in halves, where the gateway takes no more at once.
async fn send(
    client: &Client,
    book: &Mutex<Book>,
    key: String,
    batch: &mut Batch,
    deadline: Instant,
) -> Result<Totals, Stopped> {
    let mut totals = Totals::default();
    if batch.lines.is_empty() {
        return Ok(totals);
    }
    let body = Bytes::from(std::mem::take(&mut batch.body));
    let rest = async |_: &str, pause: Pause| sleep(pause.whole()).await;
    match client.put(&key, body.clone(), deadline, rest).await {
        Verdict::Taken(taken) => count(&taken, &batch.lines, &mut totals),
        Verdict::Unsettled(why) => {
            totals.unsettled += batch.lines.len() as u64;
            let (first, last) = (first_line(batch), batch.lines.last().copied());
            totals.tell(first, format!("and up to line {}: {why}", last.unwrap_or_default()));
        }
        Verdict::TooLarge => {
            batch.body = body.into();
            match batch.halves() {
                Some(halves) => return send_halves(client, book, halves, deadline).await,
                None => totals.refuse(first_line(batch), TOO_LONG.to_owned()),
            }
        }
        Verdict::Conflict(why) => return Err(Stopped::File(format!("{why}; {CONFLICT}"))),
        Verdict::Again { why, .. } => {
            return Err(Stopped::All(format!("{}: given up: {why}", client.shown())));
        }
        Verdict::Never(why) => return Err(Stopped::All(format!("{}: {why}", client.shown()))),
    }
    Ok(totals)
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<Totals, Stopped>> + Send + 'a>>;

/// One half after the other, each of which may itself go in halves.
fn send_halves<'a>(
    client: &'a Client,
    book: &'a Mutex<Book>,
    halves: [Batch; 2],
    deadline: Instant,
) -> Sent<'a> {
    Box::pin(async move {
        let mut totals = Totals::default();
        for mut half in halves {
            let begun = Book::lock(book).begin(&half);
            totals.add(&match begun {
                Begun::Known(known) => known,
                Begun::Send(key) => send(client, book, key, &mut half, deadline).await?,
            });
        }
        Ok(totals)
    })
}

fn first_line(batch: &Batch) -> u64 {
    batch.lines.first().copied().unwrap_or_default()
}

fn count(taken: &Taken, lines: &[u64], totals: &mut Totals) {
    let refused = taken.refused.len() as u64 + taken.unlisted;
    // One line may hold several points; without a word about it each line is one.
    let usual = (lines.len() as u64).saturating_sub(refused);
    totals.accepted += taken.accepted.unwrap_or(usual);
    for (index, why) in &taken.refused {
        totals.refuse(lines.get(*index).copied().unwrap_or_default(), why.clone());
    }
    totals.refused += taken.unlisted;
}

const TOO_LONG: &str = "it is longer than what the gateway takes";

const CONFLICT: &str = "it was submitted before with other options or by another version of this \
    program: say the same again, or --again to submit all of the file once more";
