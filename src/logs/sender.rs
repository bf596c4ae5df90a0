//! The thread that sends what is queued, and the only one that waits for the gateway.

use super::queue::{Lines, Queue};
use crate::client::{Client, Place, Taken, Verdict};
use bytes::Bytes;
use protocols::json::write_prefixed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The thread.
pub(super) struct Sender {
    queue: Arc<Queue>,
    sent: Arc<Mutex<Sent>>,
    over: Arc<Over>,
}

/// Whether the thread has ended, for one who waits for it, but not for ever.
#[derive(Debug, Default)]
struct Over {
    ended: Mutex<bool>,
    news: Condvar,
}

/// Tells it, however the thread ends.
struct Telling(Arc<Over>);

impl Drop for Telling {
    fn drop(&mut self) {
        *self.0.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.news.notify_all();
    }
}

/// What became of the lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Points.
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) unsettled: u64,
    /// Lines of which all of this is known.
    pub(super) lines: u64,
    /// Why, of the first of them.
    pub(super) words: Vec<String>,
    /// What keeps the others waiting.
    pub(super) away: Option<String>,
}

impl Sender {
    /// Starts it. What is wrong with the address or the token is told at the end: it is no reason
    /// to hold up a log.
    pub(super) fn start(place: Place, prefix: String, queue: Arc<Queue>) -> Self {
        let over = Arc::<Over>::default();
        let telling = Telling(Arc::clone(&over));
        let sent = Arc::<Mutex<Sent>>::default();
        let work = Work { place, prefix, queue: Arc::clone(&queue), sent: Arc::clone(&sent) };
        let thread = std::thread::Builder::new().name("sender".to_owned());
        let started = thread.spawn(move || {
            work.run();
            drop(telling);
        });
        if let Err(error) = started {
            note(&sent, |sent| sent.tell(error.to_string()));
        }
        Self { queue, sent, over }
    }

    /// The log has ended: waits for what is queued, but not longer than `grace`.
    pub(super) fn end(self, grace: Duration) -> Sent {
        self.queue.close();
        let ended = self.over.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // Either is fine: it has ended, or there is no more time.
        drop(self.over.news.wait_timeout_while(ended, grace, |ended| !*ended));
        note(&self.sent, |sent| sent.clone())
    }
}

struct Work {
    place: Place,
    prefix: String,
    queue: Arc<Queue>,
    sent: Arc<Mutex<Sent>>,
}

impl Work {
    fn run(&self) {
        let client = Client::new(&self.place, false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match (client, runtime) {
            (Ok(client), Ok(runtime)) => runtime.block_on(self.send(&client)),
            (Err(why), _) => note(&self.sent, |sent| sent.tell(why)),
            (_, Err(error)) => note(&self.sent, |sent| sent.tell(error.to_string())),
        }
    }

    /// Sends until the queue is closed and empty, or the gateway will never take anything.
    async fn send(&self, client: &Client) {
        let run: String = rand::random::<[u8; 16]>().iter().map(|b| format!("{b:02x}")).collect();
        let mut count = 0_u64;
        while let Some(lines) = self.queue.take().await {
            // The last of them goes next.
            let mut parts = vec![lines];
            while let Some(lines) = parts.pop() {
                let key = format!("{run}-{count}");
                count += 1;
                match (self.settle(client, &key, &lines).await, lines.halves()) {
                    (Verdict::Never(why), _) => return note(&self.sent, |sent| sent.tell(why)),
                    (Verdict::TooLarge, Some([first, second])) => parts.extend([second, first]),
                    (known, _) => note(&self.sent, |sent| sent.count(known, lines.count)),
                }
            }
        }
    }

    /// Sends them until it is known what became of them.
    async fn settle(&self, client: &Client, key: &str, lines: &Lines) -> Verdict {
        let body = self.body(lines);
        loop {
            let deadline = Instant::now() + ROUND;
            match client.put(key, body.clone(), deadline, |why| self.away(why)).await {
                Verdict::Again { why, .. } => self.away(&why),
                known => return known,
            }
        }
    }

    /// Notes what keeps the lines waiting; forgotten when it is over.
    fn away(&self, why: &str) {
        note(&self.sent, |sent| sent.away = Some(format!("{}: {why}", self.place.to())));
    }

    fn body(&self, lines: &Lines) -> Bytes {
        if self.prefix.is_empty() {
            return Bytes::copy_from_slice(&lines.bytes);
        }
        let mut body = Vec::with_capacity(lines.bytes.len());
        for line in lines.bytes.split_inclusive(|byte| *byte == b'\n') {
            write_prefixed(line, &self.prefix, &mut body);
        }
        body.into()
    }
}

impl Sent {
    fn count(&mut self, verdict: Verdict, lines: u64) {
        self.lines += lines;
        self.away = None;
        match verdict {
            Verdict::Taken(Taken { accepted, refused, unlisted }) => {
                let refusals = refused.len() as u64 + unlisted;
                self.accepted += accepted.unwrap_or(lines.saturating_sub(refusals));
                self.refused += refusals;
                refused.into_iter().for_each(|(_, why)| self.tell(why));
            }
            Verdict::TooLarge => {
                self.refused += lines;
                self.tell("it is longer than what the gateway takes".to_owned());
            }
            Verdict::Unsettled(why)
            | Verdict::Conflict(why)
            | Verdict::Never(why)
            | Verdict::Again { why, .. } => {
                self.unsettled += lines;
                self.tell(why);
            }
        }
    }

    fn tell(&mut self, why: String) {
        if self.words.len() < WORDS_MAX && !self.words.contains(&why) {
            self.words.push(why);
        }
    }
}

fn note<T>(sent: &Mutex<Sent>, change: impl FnOnce(&mut Sent) -> T) -> T {
    change(&mut sent.lock().unwrap_or_else(PoisonError::into_inner))
}

/// There is no end to trying but that of the log.
const ROUND: Duration = Duration::from_secs(3600);

/// How many reasons are told.
const WORDS_MAX: usize = 5;
