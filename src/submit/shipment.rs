//! One batch on its way: its key, and what became of its lines.

use super::batches::Batch;
use super::totals::Totals;
use crate::client::{Client, Taken, Verdict};
use bytes::Bytes;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Instant;

/// Sends a batch; what is answered is what became of its lines, or why no batch would be taken.
pub(super) async fn ship(
    client: Client,
    key: String,
    mut batch: Batch,
    patience: Duration,
) -> Result<Batch, String> {
    let deadline = Instant::now() + patience;
    let totals = send(&client, key, &mut batch, deadline).await?;
    batch.totals.add(&totals);
    Ok(batch)
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<Totals, String>> + Send + 'a>>;

/// In halves, where the gateway takes no more at once.
fn send<'a>(client: &'a Client, key: String, batch: &'a mut Batch, deadline: Instant) -> Sent<'a> {
    Box::pin(async move {
        let mut totals = Totals::default();
        if batch.lines.is_empty() {
            return Ok(totals);
        }
        let body = Bytes::from(std::mem::take(&mut batch.body));
        match client.put(&key, body.clone(), deadline, |_| ()).await {
            Verdict::Taken(taken) => count(&taken, &batch.lines, &mut totals),
            Verdict::Unsettled(why) => {
                totals.unsettled += batch.lines.len() as u64;
                let (first, last) = (batch.lines.first(), batch.lines.last());
                let last = last.copied().unwrap_or_default();
                let text = format!("and up to line {last}: {why}");
                totals.tell(first.copied().unwrap_or_default(), text);
            }
            Verdict::TooLarge => {
                batch.body = body.into();
                match batch.halves() {
                    Some(halves) => {
                        for (mut half, name) in halves.into_iter().zip(["0", "1"]) {
                            let key = format!("{key}.{name}");
                            totals.add(&send(client, key, &mut half, deadline).await?);
                        }
                    }
                    None => {
                        let line = batch.lines.first().copied().unwrap_or_default();
                        totals.refuse(line, "it is longer than what the gateway takes".into());
                    }
                }
            }
            Verdict::Again { why, .. } => return Err(format!("given up: {why}")),
            Verdict::Never(why) => return Err(why),
        }
        Ok(totals)
    })
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
