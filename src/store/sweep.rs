//! Forgetting: the oldest arrivals leave in steps, and their pages go back to the file system.
//!
//! Each step is a transaction of its own, so a large backlog never holds the file for long and
//! an interruption loses nothing but the rest of the work.

use super::series::SeriesIds;
use super::{Error, Limits};
use crate::clock::nanos;
use protocols::UnixNanos;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::collections::BTreeSet;

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Points that were too old.
    pub expired: u64,
    /// Points that made room.
    pub evicted: u64,
}

/// Forgets what arrived too long ago, then the oldest until the file fits.
pub(super) fn sweep(
    db: &mut Connection,
    ids: &mut SeriesIds,
    limits: Limits,
    now: UnixNanos,
) -> Result<Swept, Error> {
    let before = now.0.saturating_sub(nanos(limits.retention));
    let after = now.0.saturating_add(nanos(limits.retention));
    let expired = expire(db, ids, before, after)?;
    let evicted = if pages(db)?.bytes() > limits.max_size { evict(db, ids, limits)? } else { 0 };
    let pages = pages(db)?;
    if pages.bytes() > limits.max_size || pages.free > SLACK_PAGES.max(pages.all / 4) {
        give_back(db)?;
    }
    Ok(Swept { expired, evicted })
}

/// Forgets what arrived before or after these: nothing can have arrived far in the future but
/// while the clock was wrong, and would stand in the way until then.
fn expire(db: &mut Connection, ids: &mut SeriesIds, before: i64, after: i64) -> Result<u64, Error> {
    let mut expired = 0;
    for _ in 0..STEPS {
        // Ids ascend with arrival, so only the beginning of the table has to be looked at.
        let last: Option<i64> = db
            .prepare_cached(
                "SELECT max(id) FROM (SELECT id, arrived FROM points ORDER BY id LIMIT ?1)
                 WHERE arrived < ?2 OR arrived > ?3",
            )?
            .query_row(params![STEP, before, after], |row| row.get(0))?;
        let Some(last) = last else { break };
        expired += forget_up_to(db, ids, last)?;
    }
    Ok(expired)
}

/// Makes a tenth of the room free, so that not every payload has to make room again.
fn evict(db: &mut Connection, ids: &mut SeriesIds, limits: Limits) -> Result<u64, Error> {
    let mut evicted = 0;
    while pages(db)?.used_bytes() > limits.max_size / 10 * 9 {
        let Some(last) = end_of_oldest(db)? else { break };
        evicted += forget_up_to(db, ids, last)?;
    }
    Ok(evicted)
}

/// The last id of the oldest sixteenth, or of the first [`STEP`] points where that is less.
fn end_of_oldest(db: &Connection) -> Result<Option<i64>, Error> {
    let (first, last): (Option<i64>, Option<i64>) = db.query_row(
        "SELECT (SELECT min(id) FROM points), (SELECT max(id) FROM points)",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(first.zip(last).map(|(first, last)| first + ((last - first) / 16).min(STEP)))
}

fn forget_up_to(db: &mut Connection, ids: &mut SeriesIds, last: i64) -> Result<u64, Error> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut count = 0;
    let mut touched = BTreeSet::new();
    {
        let mut delete =
            transaction.prepare_cached("DELETE FROM points WHERE id <= ?1 RETURNING series")?;
        let mut deleted = delete.query([last])?;
        while let Some(row) = deleted.next()? {
            touched.insert(row.get::<_, i64>(0)?);
            count += 1;
        }
    }
    for series in touched {
        forget_if_empty(&transaction, ids, series)?;
    }
    transaction.commit()?;
    Ok(count)
}

fn forget_if_empty(db: &Connection, ids: &mut SeriesIds, series: i64) -> Result<(), Error> {
    let mut delete = db.prepare_cached(
        "DELETE FROM series
         WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM points WHERE points.series = ?1)
         RETURNING name, tags",
    )?;
    let deleted: Option<(String, String)> =
        delete.query_row([series], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    if let Some((name, tags)) = deleted {
        ids.forget(&name, &tags);
    }
    Ok(())
}

fn give_back(db: &Connection) -> Result<(), Error> {
    // Each row that this statement yields is a page given back.
    let mut vacuum = db.prepare("PRAGMA incremental_vacuum")?;
    let mut pages = vacuum.query([])?;
    while pages.next()?.is_some() {}
    // The file itself shrinks when the log is written back; a reader may delay that.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

struct Pages {
    all: u64,
    free: u64,
    size: u64,
}

impl Pages {
    fn bytes(&self) -> u64 {
        self.all * self.size
    }

    fn used_bytes(&self) -> u64 {
        self.all.saturating_sub(self.free) * self.size
    }
}

fn pages(db: &Connection) -> Result<Pages, Error> {
    let number = |pragma| {
        db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0).map(i64::unsigned_abs))
    };
    Ok(Pages {
        all: number("page_count")?,
        free: number("freelist_count")?,
        size: number("page_size")?,
    })
}

/// Points forgotten in one transaction: some ten milliseconds of work.
const STEP: i64 = 5_000;

/// Steps of one sweep; more than a payload brings, so that a backlog melts.
const STEPS: usize = 8;

/// Free pages below this (4 MiB) are kept for the points to come.
const SLACK_PAGES: u64 = 1_024;

#[cfg(test)]
mod tests {
    use crate::store::{Limits, Writer, path};
    use protocols::UnixNanos;
    use rusqlite::Connection;
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    fn at(secs: i64) -> UnixNanos {
        UnixNanos::from_secs(1_700_000_000 + secs)
    }

    fn body(series: &str, times: std::ops::Range<i64>) -> Vec<u8> {
        let lines = times.map(|time| {
            format!(
                "{{\"name\":\"{series}\",\"time\":{time},\"kind\":\"gauge\",\"value\":{time}.0}}\n"
            )
        });
        lines.collect::<String>().into_bytes()
    }

    fn counts(data_dir: &Path) -> (i64, i64) {
        let db = Connection::open(path(data_dir)).unwrap();
        let count = "SELECT (SELECT count(*) FROM points), (SELECT count(*) FROM series)";
        db.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    #[test]
    fn points_leave_by_arrival_and_empty_series_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { retention: Duration::from_secs(60), max_size: 1 << 30 };
        let mut writer = Writer::new(dir.path(), limits);
        // Points of 1970 that arrive now are kept as long as any other.
        writer.write(&body("old", 0..12_000), at(0), at(0)).unwrap();
        writer.write(&body("young", 0..3), at(30), at(30)).unwrap();
        assert_eq!(writer.sweep(at(60)).unwrap().expired, 0);
        assert_eq!(counts(dir.path()), (12_003, 2));
        assert_eq!(writer.sweep(at(61)).unwrap().expired, 12_000);
        assert_eq!(counts(dir.path()), (3, 1));
        // The series that was forgotten can come back.
        writer.write(&body("old", 0..2), at(62), at(62)).unwrap();
        assert_eq!(counts(dir.path()), (5, 2));
    }

    #[test]
    fn a_clock_that_was_wrong_does_not_keep_points_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { retention: Duration::from_secs(60), max_size: 1 << 30 };
        let mut writer = Writer::new(dir.path(), limits);
        let far = 100 * 365 * 86_400;
        writer.write(&body("a", 0..6_000), at(far), at(far)).unwrap();
        writer.write(&body("b", 0..5), at(0), at(0)).unwrap();
        assert_eq!(counts(dir.path()), (5, 1));
        writer.sweep(at(61)).unwrap();
        assert_eq!(counts(dir.path()), (0, 0));
    }

    #[test]
    fn the_file_never_outgrows_its_limit_and_shrinks() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { retention: Duration::from_secs(3600), max_size: 512 << 10 };
        let mut writer = Writer::new(dir.path(), limits);
        let size = || fs::metadata(path(dir.path())).unwrap().len();
        for step in 0..20 {
            writer.write(&body("a", step * 1_000..(step + 1) * 1_000), at(step), at(step)).unwrap();
            assert!(size() <= limits.max_size, "{} after {step}", size());
        }
        let (points, _) = counts(dir.path());
        assert!((1_000..20_000).contains(&points), "{points}");
        // The newest are the ones that stay.
        let db = Connection::open(path(dir.path())).unwrap();
        let last: i64 = db.query_row("SELECT max(time) FROM points", [], |row| row.get(0)).unwrap();
        assert_eq!(last, 19_999);
    }

    #[test]
    fn a_large_file_that_empties_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { retention: Duration::from_secs(60), max_size: 1 << 30 };
        let mut writer = Writer::new(dir.path(), limits);
        writer.write(&body("a", 0..200_000), at(0), at(0)).unwrap();
        writer.sweep(at(1)).unwrap();
        let db = Connection::open(path(dir.path())).unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let size = || fs::metadata(path(dir.path())).unwrap().len();
        assert!(size() > 8 << 20, "{}", size());
        for _ in 0..10 {
            writer.sweep(at(100)).unwrap();
        }
        assert_eq!(counts(dir.path()), (0, 0));
        assert!(size() < 8 << 20, "{}", size());
    }
}
