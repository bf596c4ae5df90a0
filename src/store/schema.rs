//! The tables, opening their file, and setting a bad one aside.

use super::{Error, path};
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Opens the file for writing and makes it and its tables when they are missing.
pub(super) fn open_to_write(data_dir: &Path) -> Result<Connection, Error> {
    fs::create_dir_all(data_dir).map_err(|error| Error::File(data_dir.to_owned(), error))?;
    let mut db = Connection::open(path(data_dir))?;
    db.busy_timeout(BUSY)?;
    // First of all, since what follows would change a file that is not ours.
    let is_new = is_new(&db)?;
    // Before the first table and before WAL, which both settle it for good.
    db.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // The last transactions may be lost with the power, never the file.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update_and_check(None, "journal_size_limit", 8 << 20, |_| Ok(()))?;
    db.set_prepared_statement_cache_capacity(32);
    if is_new {
        make_tables(&mut db)?;
    }
    check(&db)?;
    Ok(db)
}

/// Opens the file for reading; `None` while its tables are not there yet.
pub(super) fn open_to_read(data_dir: &Path) -> Result<Option<Connection>, Error> {
    let file = path(data_dir);
    if !file.exists() {
        return Err(Error::Missing(data_dir.to_owned()));
    }
    let db = Connection::open_with_flags(&file, READ_ONLY)?;
    db.busy_timeout(BUSY)?;
    match version(&db)? {
        (0, 0) => Ok(None),
        (APPLICATION_ID, VERSION) => Ok(Some(db)),
        _ => Err(Error::Foreign),
    }
}

/// Renames a file that cannot be used, and keeps the newest few of such.
pub(super) fn set_aside(data_dir: &Path) -> Result<PathBuf, Error> {
    let file = path(data_dir);
    let aside = |n: u32| data_dir.join(format!("store.db.damaged-{n}"));
    let mut kept: Vec<u32> = damaged(data_dir);
    kept.sort_unstable();
    let next = kept.last().map_or(1, |last| last.saturating_add(1));
    fs::rename(&file, aside(next)).map_err(|error| Error::File(file.clone(), error))?;
    for log in ["-wal", "-shm"] {
        // SQLite would apply a log that was left behind to the new file.
        let from = data_dir.join(format!("store.db{log}"));
        let to = data_dir.join(format!("store.db.damaged-{next}{log}"));
        if from.exists() {
            fs::rename(&from, to).map_err(|error| Error::File(from.clone(), error))?;
        }
    }
    for old in kept.iter().rev().skip(DAMAGED_KEPT - 1) {
        for log in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(data_dir.join(format!("store.db.damaged-{old}{log}")));
        }
    }
    Ok(aside(next))
}

fn damaged(data_dir: &Path) -> Vec<u32> {
    let names = fs::read_dir(data_dir).into_iter().flatten().flatten();
    names
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_prefix("store.db.damaged-")?.parse().ok()
        })
        .collect()
}

/// Whether the tables are yet to be made.
fn is_new(db: &Connection) -> Result<bool, Error> {
    match version(db)? {
        (APPLICATION_ID, VERSION) => Ok(false),
        (0, 0) if !has_tables(db)? => Ok(true),
        _ => Err(Error::Foreign),
    }
}

fn make_tables(db: &mut Connection) -> Result<(), Error> {
    let transaction = db.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(transaction.commit()?)
}

/// Reads the whole file once, so that damage is found now and not in the middle of a query.
fn check(db: &Connection) -> Result<(), Error> {
    let verdict: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        return Ok(());
    }
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(corrupt, Some(verdict)).into())
}

fn version(db: &Connection) -> Result<(i32, i32), Error> {
    let number = |pragma| db.pragma_query_value(None, pragma, |row| row.get(0));
    Ok((number("application_id")?, number("user_version")?))
}

fn has_tables(db: &Connection) -> Result<bool, Error> {
    Ok(db.query_row("SELECT count(*) > 0 FROM sqlite_schema", [], |row| row.get(0))?)
}

const TABLES: &str = "
CREATE TABLE series (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  tags TEXT NOT NULL,
  UNIQUE (name, tags)
) STRICT;

CREATE TABLE points (
  id      INTEGER PRIMARY KEY,
  series  INTEGER NOT NULL,
  time    INTEGER NOT NULL,
  arrived INTEGER NOT NULL,
  fields  TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX points_by_series ON points (series, time);

CREATE VIEW readings AS
SELECT series.name AS name,
       series.tags AS tags,
       strftime('%Y-%m-%dT%H:%M:%S', (points.time - nanos) / 1000000000, 'unixepoch')
         || printf('.%09dZ', nanos) AS time,
       field.key AS field,
       field.value AS value
FROM (SELECT *, ((time % 1000000000) + 1000000000) % 1000000000 AS nanos FROM points) AS points
JOIN series ON series.id = points.series
JOIN json_each(points.fields) AS field;
";

/// `pman` in ASCII: tells our file from any other.
const APPLICATION_ID: i32 = 0x706d_616e;

/// Raised when the tables change.
const VERSION: i32 = 1;

/// A reader holds the file for milliseconds; longer is trouble worth a retry.
const BUSY: Duration = Duration::from_secs(5);

const READ_ONLY: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Enough to look at what happened, few enough not to fill the disk.
const DAMAGED_KEPT: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_ours_and_gives_pages_back() {
        let dir = tempfile::tempdir().unwrap();
        let db = open_to_write(dir.path()).unwrap();
        let text = |pragma| {
            db.pragma_query_value(None, pragma, |row| row.get::<_, rusqlite::types::Value>(0))
                .unwrap()
        };
        assert_eq!(text("auto_vacuum"), rusqlite::types::Value::Integer(2));
        assert_eq!(text("journal_mode"), rusqlite::types::Value::Text("wal".to_owned()));
        drop(db);
        open_to_write(dir.path()).unwrap();
        assert!(open_to_read(dir.path()).unwrap().is_some());
    }

    #[test]
    fn the_view_shows_iso_times_before_and_after_1970() {
        let dir = tempfile::tempdir().unwrap();
        let db = open_to_write(dir.path()).unwrap();
        db.execute_batch(
            r#"INSERT INTO series VALUES (1, 'm', '{}');
               INSERT INTO points VALUES (1, 1, -1, 0, '{"a":true}'), (2, 1, 1500000000, 0, '{"b":2.5}')"#,
        )
        .unwrap();
        let mut rows =
            db.prepare("SELECT time, field, value FROM readings ORDER BY field").unwrap();
        let rows: Vec<(String, String, f64)> = rows
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let expected = [
            ("1969-12-31T23:59:59.999999999Z", "a", 1.0),
            ("1970-01-01T00:00:01.500000000Z", "b", 2.5),
        ];
        let expected = expected.map(|(time, field, value)| (time.into(), field.into(), value));
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_foreign_database_is_neither_read_nor_changed() {
        let dir = tempfile::tempdir().unwrap();
        let theirs = Connection::open(path(dir.path())).unwrap();
        theirs.execute_batch("CREATE TABLE holiday_photos (id)").unwrap();
        assert!(matches!(open_to_write(dir.path()), Err(Error::Foreign)));
        let count: i64 =
            theirs.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 1);
    }

    #[test]
    fn the_newest_three_damaged_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for n in 1..=5 {
            fs::write(path(dir.path()), format!("{n}")).unwrap();
            set_aside(dir.path()).unwrap();
        }
        let mut kept = damaged(dir.path());
        kept.sort_unstable();
        assert_eq!(kept, [3, 4, 5]);
        assert_eq!(fs::read_to_string(dir.path().join("store.db.damaged-5")).unwrap(), "5");
        assert!(!path(dir.path()).exists());
    }
}
