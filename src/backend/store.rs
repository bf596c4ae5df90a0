//! The embedded store, SQLite under the data directory, as a backend.
//!
//! The tables and their rules are [`crate::store`]'s; here a payload gets a blocking thread, and
//! an error of SQLite becomes an outcome. Every error is a reason to try again: a damaged file
//! has been set aside by then, and a full disk waits for a person.
//!
//! Reasons of refusal: `crowded` (no free nanosecond near the point's), `unreadable`. Noticed:
//! `repeated`, `time_moved`.

use super::{Outcome, Payload, Ship, Shipping};
use crate::books::BackendBook;
use crate::clock::Clock;
use crate::plural::counted;
use crate::store::{Limits, Writer, Written};
use crate::units::{Size, Span};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

/// What is particular to this kind of backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long points are kept after they arrived; a day if not said.
    pub retention: Option<Span>,
    /// How large the file may grow, at least 256 KiB; the oldest points make room. 1 GiB if not
    /// said.
    pub max_size: Option<Size>,
}

impl Config {
    fn limits(&self) -> Limits {
        Limits::new(self.retention, self.max_size)
    }
}

/// Writes payloads into the store.
#[derive(Debug)]
pub struct Shipper {
    /// Shared with the blocking thread of the payload in flight and with the sweeper.
    writer: Arc<Mutex<Writer>>,
    clock: Clock,
    book: Arc<BackendBook>,
    sweeper: JoinHandle<()>,
}

impl Shipper {
    /// A shipper for the store in `data_dir`. Must be called inside a runtime, where a task opens
    /// the store at once and forgets old points while none arrive.
    pub fn new(
        data_dir: impl Into<PathBuf>,
        config: &Config,
        clock: Clock,
        book: Arc<BackendBook>,
    ) -> Self {
        let writer = Arc::new(Mutex::new(Writer::new(data_dir, config.limits())));
        let sweeper = tokio::spawn(sweep(Arc::downgrade(&writer), clock));
        Self { writer, clock, book, sweeper }
    }

    /// A cancelled attempt is finished by its thread all the same; shipping the payload again
    /// then finds its points there and changes nothing.
    async fn attempt(&mut self, payload: &Payload) -> Outcome {
        let (writer, payload, now) = (Arc::clone(&self.writer), payload.clone(), self.clock.now());
        let write = move || lock(&writer).write(&payload.body, payload.born, now);
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(written)) => self.note(written),
            Ok(Err(error)) => Outcome::not_now(error.to_string()),
            Err(stopped) => Outcome::not_now(stopped.to_string()),
        }
    }

    fn note(&self, written: Written) -> Outcome {
        self.book.noticed.add("repeated", written.repeated.into());
        self.book.noticed.add("time_moved", written.moved.into());
        match written {
            Written { crowded: 0, unreadable: 0, .. } => Outcome::Delivered,
            Written { crowded, unreadable: 0, .. } => Outcome::Partial {
                rejected: crowded,
                reason: "crowded",
                detail: format!(
                    "{} of one series in the same microsecond",
                    counted(crowded, "point")
                ),
            },
            Written { crowded, unreadable, .. } => Outcome::Partial {
                rejected: crowded + unreadable,
                reason: "unreadable",
                detail: format!("what is no point: {}", counted(unreadable, "line")),
            },
        }
    }
}

impl Ship for Shipper {
    fn ship<'a>(&'a mut self, payload: &'a Payload) -> Shipping<'a> {
        Box::pin(self.attempt(payload))
    }
}

impl Drop for Shipper {
    fn drop(&mut self) {
        self.sweeper.abort();
    }
}

async fn sweep(writer: Weak<Mutex<Writer>>, clock: Clock) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trouble = None;
    loop {
        ticks.tick().await;
        let Some(writer) = writer.upgrade() else { return };
        let now = clock.now();
        let swept = tokio::task::spawn_blocking(move || lock(&writer).sweep(now)).await;
        let found = swept.ok().and_then(Result::err).map(|error| error.to_string());
        if let Some(error) = found.as_ref().filter(|_| found != trouble) {
            tracing::warn!(error, "the store cannot be opened, or cannot forget its old points");
        }
        trouble = found;
    }
}

fn lock(writer: &Mutex<Writer>) -> std::sync::MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Between two looks for old points while no payload arrives.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Question, Store, path};
    use protocols::UnixNanos;
    use std::path::Path;

    const EPOCH: UnixNanos = UnixNanos::from_secs(1_700_000_000);

    fn payload(lines: &[&str]) -> Payload {
        let body =
            lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect::<Vec<_>>();
        Payload::new(body, u32::try_from(lines.len()).unwrap(), EPOCH)
    }

    fn shipper(data_dir: &Path, clock: Clock) -> (Shipper, Arc<BackendBook>) {
        let book = Arc::new(BackendBook::default());
        let config = Config { retention: Some(Span::secs(60)), max_size: None };
        (Shipper::new(data_dir, &config, clock, Arc::clone(&book)), book)
    }

    fn rows(data_dir: &Path, name: &str) -> usize {
        let question = Question { name: name.to_owned(), ..Question::default() };
        let answer = Store::open_read_only(data_dir).unwrap().query(&question).unwrap();
        answer.series.iter().map(|series| series.rows.len()).sum()
    }

    #[tokio::test]
    async fn what_is_shipped_can_be_read_while_the_shipper_lives() {
        let dir = tempfile::tempdir().unwrap();
        let (mut shipper, book) = shipper(dir.path(), Clock::System);
        let payload = payload(&[
            r#"{"name":"a","kind":"gauge","value":1.0}"#,
            r#"{"name":"a","kind":"gauge","value":2.0}"#,
        ]);
        assert_eq!(shipper.ship(&payload).await, Outcome::Delivered);
        assert_eq!(shipper.ship(&payload).await, Outcome::Delivered);
        assert_eq!(rows(dir.path(), "a"), 2);
        assert_eq!(book.noticed.counts(), [("repeated", 2), ("time_moved", 1)]);
    }

    #[tokio::test]
    async fn a_line_that_is_no_point_is_refused_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (mut shipper, _) = shipper(dir.path(), Clock::System);
        let outcome =
            shipper.ship(&payload(&["?", r#"{"name":"a","kind":"gauge","value":1.0}"#])).await;
        assert!(matches!(outcome, Outcome::Partial { rejected: 1, reason: "unreadable", .. }));
        assert_eq!(rows(dir.path(), "a"), 1);
    }

    #[tokio::test]
    async fn a_disk_error_is_a_reason_to_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let blocked = dir.path().join("data");
        std::fs::write(&blocked, "").unwrap();
        let (mut shipper, _) = shipper(&blocked, Clock::System);
        let payload = payload(&[r#"{"name":"a","kind":"gauge","value":1.0}"#]);
        assert!(matches!(shipper.ship(&payload).await, Outcome::Retry { .. }));
        std::fs::remove_file(&blocked).unwrap();
        assert_eq!(shipper.ship(&payload).await, Outcome::Delivered);
    }

    #[tokio::test]
    async fn a_file_that_is_damaged_while_it_is_used_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let (mut shipper, _) = shipper(dir.path(), Clock::System);
        let lines: Vec<_> = (0..3_000)
            .map(|n| format!(r#"{{"name":"a{n}","kind":"gauge","value":1.0}}"#))
            .collect();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        shipper.ship(&payload(&lines)).await;
        let db = rusqlite::Connection::open(path(dir.path())).unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        // Another writer overwrote the tables' roots.
        let pages = [0xa5; 4096 * 16];
        let mut bytes = std::fs::read(path(dir.path())).unwrap();
        bytes[4096..4096 * 17].copy_from_slice(&pages);
        std::fs::write(path(dir.path()), bytes).unwrap();
        drop(db);
        let again = payload(&[r#"{"name":"fresh","kind":"gauge","value":1.0}"#]);
        // The first attempts may still find the old pages in SQLite's memory.
        for _ in 0..3 {
            shipper.ship(&again).await;
        }
        drop(shipper);
        let (mut shipper, _) = self::shipper(dir.path(), Clock::System);
        assert_eq!(shipper.ship(&again).await, Outcome::Delivered);
        assert_eq!(rows(dir.path(), "fresh"), 1);
        assert!(dir.path().join("store.db.damaged-1").exists());
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_store_forgets_too() {
        let dir = tempfile::tempdir().unwrap();
        let (mut shipper, _) = shipper(dir.path(), Clock::starting_at(EPOCH));
        shipper.ship(&payload(&[r#"{"name":"a","kind":"gauge","value":1.0}"#])).await;
        assert_eq!(rows(dir.path(), "a"), 1);
        tokio::time::sleep(Duration::from_secs(55)).await;
        assert_eq!(rows(dir.path(), "a"), 1);
        // Time stands still while the sweeper's thread works, and leaps when all are idle.
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            if rows(dir.path(), "a") == 0 {
                return;
            }
        }
        panic!("the point is still there");
    }
}
