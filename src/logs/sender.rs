//! The thread that sends what is queued, and the only one that waits for the gateway.

use super::once::{Log, Once};
use super::queue::{Lines, Queue};
use crate::client::{Client, Pause, Place, RUN, TASK, Taken, Verdict};
use crate::escape;
use bytes::Bytes;
use protocols::json::write_prefixed;
use std::borrow::Cow;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

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
    /// Of them, those that were counted when they were sent before.
    pub(super) repeated: u64,
    pub(super) refused: u64,
    pub(super) unsettled: u64,
    /// Lines of which all of this is known.
    pub(super) lines: u64,
    /// Why, each reason once; with the first line that was refused for it.
    pub(super) words: Vec<(String, Option<String>)>,
    /// What keeps the others waiting.
    pub(super) away: Option<String>,
}

impl Sender {
    /// Starts it. What is wrong with the address or the token is told at the end: it is no reason
    /// to hold up a log.
    pub(super) fn start(errand: Errand, queue: Arc<Queue>) -> Self {
        let over = Arc::<Over>::default();
        let telling = Telling(Arc::clone(&over));
        let sent = Arc::<Mutex<Sent>>::default();
        let (waiting, noted) = (Arc::clone(&queue), Arc::clone(&sent));
        let work = Work { errand, queue: waiting, sent: noted };
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

/// What the thread has to do.
pub(super) struct Work {
    errand: Errand,
    queue: Arc<Queue>,
    sent: Arc<Mutex<Sent>>,
}

/// What is to be sent where.
#[derive(Clone, Debug, Default)]
pub(super) struct Errand {
    pub(super) place: Place,
    /// Before the name of every series.
    pub(super) prefix: String,
    /// The task, and its run, as far as they are known.
    pub(super) task: String,
    pub(super) run: String,
    /// Which log it is, whose points are to count once.
    pub(super) log: Option<Log>,
}

impl Work {
    fn run(&self) {
        let Errand { place, task, run, log, .. } = &self.errand;
        let client = Client::new(place, false);
        let client = client.map(|client| client.about(&[(TASK, task), (RUN, run)]));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match (client, runtime) {
            (Ok(client), Ok(runtime)) => runtime.block_on(async {
                match log {
                    Some(log) => Once::new(self, &client, log).run(&self.queue).await,
                    None => self.send(&client).await,
                }
            }),
            (Err(why), _) => note(&self.sent, |sent| sent.tell(why)),
            (_, Err(error)) => note(&self.sent, |sent| sent.tell(error.to_string())),
        }
    }

    /// Sends until the queue is closed and empty, or the gateway will never take anything.
    async fn send(&self, client: &Client) {
        while let Some(lines) = self.queue.take().await {
            if let Err(why) = self.send_alone(client, lines).await {
                return self.tell(why);
            }
        }
    }

    /// Sends lines under keys that nobody else has; the error is that nothing will ever be taken.
    pub(super) async fn send_alone(&self, client: &Client, lines: Lines) -> Result<(), String> {
        let run: String = rand::random::<[u8; 16]>().iter().map(|b| format!("{b:02x}")).collect();
        let mut count = 0_u64;
        // The last of them goes next.
        let mut parts = vec![lines];
        while let Some(lines) = parts.pop() {
            let key = format!("{run}-{count}");
            count += 1;
            match (self.settle(client, &key, &lines).await, lines.halves()) {
                (Verdict::Never(why), _) => return Err(why),
                (Verdict::TooLarge, Some([first, second])) => parts.extend([second, first]),
                (known, _) => self.count(known, &lines),
            }
        }
        Ok(())
    }

    /// What stands before the name of every series.
    pub(super) fn prefix(&self) -> &str {
        &self.errand.prefix
    }

    /// Notes what became of lines.
    pub(super) fn count(&self, verdict: Verdict, lines: &Lines) {
        note(&self.sent, |sent| sent.count(verdict, lines));
    }

    /// Notes what a person should know.
    pub(super) fn tell(&self, why: String) {
        note(&self.sent, |sent| sent.tell(why));
    }

    /// Sends them until it is known what became of them.
    pub(super) async fn settle(&self, client: &Client, key: &str, lines: &Lines) -> Verdict {
        let body = self.body(lines);
        loop {
            let deadline = Instant::now() + ROUND;
            let rest = async |why: &str, pause: Pause| {
                self.away(why);
                sleep(pause.asked).await;
                self.queue.rest(pause.own).await;
            };
            match client.put(key, body.clone(), deadline, rest).await {
                Verdict::Again { why, .. } => self.away(&why),
                known => return known,
            }
        }
    }

    /// Notes what keeps the lines waiting; forgotten when it is over.
    fn away(&self, why: &str) {
        note(&self.sent, |sent| sent.away = Some(format!("{}: {why}", self.errand.place.shown())));
    }

    fn body(&self, lines: &Lines) -> Bytes {
        prefixed(&lines.bytes, self.prefix()).into_owned().into()
    }
}

/// Lines, with a prefix before the names in them.
pub(super) fn prefixed<'l>(lines: &'l [u8], prefix: &str) -> Cow<'l, [u8]> {
    if prefix.is_empty() {
        return lines.into();
    }
    let mut body = Vec::with_capacity(lines.len());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        write_prefixed(line, prefix, &mut body);
    }
    body.into()
}

impl Sent {
    fn count(&mut self, verdict: Verdict, lines: &Lines) {
        let count = lines.count;
        self.lines += count;
        self.away = None;
        match verdict {
            Verdict::Taken(Taken { accepted, refused, unlisted, repeated }) => {
                let refusals = refused.len() as u64 + unlisted;
                let accepted = accepted.unwrap_or(count.saturating_sub(refusals));
                self.accepted += accepted;
                self.repeated += if repeated { accepted } else { 0 };
                self.refused += refusals;
                for (index, why) in refused {
                    self.tell_of(why, lines.line(index).map(shown));
                }
            }
            Verdict::TooLarge => {
                self.refused += count;
                self.tell("it is longer than what the gateway takes".to_owned());
            }
            Verdict::Unsettled(why)
            | Verdict::Conflict(why)
            | Verdict::Never(why)
            | Verdict::Again { why, .. } => {
                self.unsettled += count;
                self.tell(why);
            }
        }
    }

    fn tell(&mut self, why: String) {
        self.tell_of(why, None);
    }

    fn tell_of(&mut self, why: String, line: Option<String>) {
        if self.words.len() < WORDS_MAX && !self.words.iter().any(|(other, _)| *other == why) {
            self.words.push((why, line));
        }
    }
}

/// Enough of a line to find it in the log.
fn shown(line: &[u8]) -> String {
    escape::beginning(String::from_utf8_lossy(line).trim_end(), LINE_SHOWN)
}

fn note<T>(sent: &Mutex<Sent>, change: impl FnOnce(&mut Sent) -> T) -> T {
    change(&mut sent.lock().unwrap_or_else(PoisonError::into_inner))
}

/// There is no end to trying but that of the log. Longer than a gateway can wish to be left alone, or
/// it would be asked at once, again and again.
const ROUND: Duration = Duration::from_secs(24 * 3600);

const LINE_SHOWN: usize = 100;

/// How many reasons are told.
const WORDS_MAX: usize = 5;
