//! Payloads into tables: one transaction each, so a payload is stored whole or not at all.

use super::row::{self, Row};
use super::series::SeriesIds;
use super::sweep::{self, Swept};
use super::{Error, Limits, schema};
use crate::file_id::FileId;
use protocols::{Batch, UnixNanos};
use rusqlite::{Connection, TransactionBehavior, params};
use std::path::PathBuf;

/// The one who writes. Every method blocks.
#[derive(Debug)]
pub struct Writer {
    data_dir: PathBuf,
    limits: Limits,
    /// `None` until there is something to do, and after the file was set aside.
    open: Option<Open>,
}

/// What became of a payload's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Points that are in the store now, repeats included.
    pub stored: u32,
    /// Of these, points that were there already, identical.
    pub repeated: u32,
    /// Of these, points that were moved on to a free nanosecond.
    pub moved: u32,
    /// Points for which no free nanosecond was near.
    pub crowded: u32,
    /// Lines that are no points.
    pub unreadable: u32,
}

#[derive(Debug)]
struct Open {
    db: Connection,
    file: Option<FileId>,
    series: SeriesIds,
    /// Changes when somebody else has written, who may have taken series away.
    version: i64,
    scratch: Batch,
}

impl Writer {
    /// A writer for the store in `data_dir`, which it opens when there is something to do.
    pub fn new(data_dir: impl Into<PathBuf>, limits: Limits) -> Self {
        Self { data_dir: data_dir.into(), limits, open: None }
    }

    /// Stores a payload; points without a time get `born`, and retention begins at `now`.
    ///
    /// # Errors
    ///
    /// Why nothing of it was stored. Try again: a damaged file was set aside, and whatever
    /// else is wrong somebody may mend.
    pub fn write(
        &mut self,
        body: &[u8],
        born: UnixNanos,
        now: UnixNanos,
    ) -> Result<Written, Error> {
        let limits = self.limits;
        self.with_open(|open| {
            let written = open.write(body, born, now)?;
            sweep::sweep(&mut open.db, &mut open.series, limits, now)?;
            Ok(written)
        })
    }

    /// Forgets what is too old or too much, which [`write`](Self::write) does too; for the
    /// times when nothing is written.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn sweep(&mut self, now: UnixNanos) -> Result<Swept, Error> {
        let limits = self.limits;
        self.with_open(|open| sweep::sweep(&mut open.db, &mut open.series, limits, now))
    }

    fn with_open<T>(
        &mut self,
        act: impl FnOnce(&mut Open) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut open = match self.open.take().filter(|open| self.is_in_place(open)) {
            Some(open) => open,
            None => self.open_or_begin_anew()?,
        };
        let result = act(&mut open);
        match &result {
            Err(error) if error.is_damage() => {
                drop(open);
                self.set_aside(error)?;
            }
            Err(_) => {
                // What was rolled back may have had ids.
                open.series.clear();
                self.open = Some(open);
            }
            Ok(_) => self.open = Some(open),
        }
        result
    }

    fn open_or_begin_anew(&self) -> Result<Open, Error> {
        let db = match schema::open_to_write(&self.data_dir) {
            Err(error) if error.is_damage() => {
                self.set_aside(&error)?;
                schema::open_to_write(&self.data_dir)?
            }
            other => other?,
        };
        let file = FileId::at(&super::path(&self.data_dir));
        Ok(Open { db, file, series: SeriesIds::default(), version: 0, scratch: Batch::new() })
    }

    /// Whether the open file is the one that readers find. One that was taken away takes
    /// points in without complaint, and they are gone when it is closed.
    fn is_in_place(&self, open: &Open) -> bool {
        let in_place = FileId::at(&super::path(&self.data_dir)) == open.file;
        if !in_place {
            tracing::error!("the store's file was taken away under way; a new one is begun");
        }
        in_place
    }

    fn set_aside(&self, error: &Error) -> Result<(), Error> {
        let aside = schema::set_aside(&self.data_dir)?;
        tracing::error!(
            %error,
            set_aside = %aside.display(),
            "the store's file is damaged; it was set aside and a new one is begun"
        );
        Ok(())
    }
}

impl Open {
    fn write(&mut self, body: &[u8], born: UnixNanos, now: UnixNanos) -> Result<Written, Error> {
        let Self { db, series, version, scratch, .. } = self;
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found = transaction.pragma_query_value(None, "data_version", |row| row.get(0))?;
        if std::mem::replace(version, found) != found {
            series.clear();
        }
        let mut written = Written::default();
        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Some(row) = row::read(line, born, scratch) else {
                written.unreadable += 1;
                continue;
            };
            let id = series.id(&transaction, &row)?;
            written.count(insert(&transaction, id, &row, now)?);
        }
        transaction.commit()?;
        Ok(written)
    }
}

impl Written {
    fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Stored => {}
            Fate::Repeated => self.repeated += 1,
            Fate::Moved => self.moved += 1,
            Fate::Crowded => self.crowded += 1,
        }
        self.stored += u32::from(fate != Fate::Crowded);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stored,
    Repeated,
    Moved,
    Crowded,
}

fn insert(db: &Connection, series: i64, row: &Row, now: UnixNanos) -> Result<Fate, Error> {
    if row.again {
        replace(db, series, row, now)?;
        return Ok(Fate::Stored);
    }
    if insert_at(db, series, row.time.0, row, now)? {
        return Ok(Fate::Stored);
    }
    match next_free(db, series, row)? {
        Free::Repeated => Ok(Fate::Repeated),
        Free::At(time) => {
            insert_at(db, series, time, row, now)?;
            Ok(Fate::Moved)
        }
        Free::None => Ok(Fate::Crowded),
    }
}

/// Where a window was written in part before, this is the whole.
fn replace(db: &Connection, series: i64, row: &Row, now: UnixNanos) -> Result<(), Error> {
    let mut replace = db.prepare_cached(
        "INSERT INTO points (series, time, arrived, fields) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (series, time) DO UPDATE SET fields = excluded.fields",
    )?;
    replace.execute(params![series, row.time.0, now.0, row.fields])?;
    Ok(())
}

fn insert_at(
    db: &Connection,
    series: i64,
    time: i64,
    row: &Row,
    now: UnixNanos,
) -> Result<bool, Error> {
    let mut insert = db.prepare_cached(
        "INSERT INTO points (series, time, arrived, fields) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (series, time) DO NOTHING",
    )?;
    Ok(insert.execute(params![series, time, now.0, row.fields])? == 1)
}

enum Free {
    At(i64),
    Repeated,
    None,
}

/// Walks the run of taken nanoseconds that begins at the row's time.
fn next_free(db: &Connection, series: i64, row: &Row) -> Result<Free, Error> {
    let mut taken = db.prepare_cached(
        "SELECT time, fields FROM points WHERE series = ?1 AND time BETWEEN ?2 AND ?3 ORDER BY time",
    )?;
    let last = row.time.0.saturating_add(MOVE_NANOS_MAX);
    let mut taken = taken.query(params![series, row.time.0, last])?;
    let mut free = row.time.0;
    while let Some(other) = taken.next()? {
        if other.get::<_, i64>(0)? != free {
            break;
        }
        if other.get_ref(1)?.as_str().is_ok_and(|fields| fields == row.fields) {
            return Ok(Free::Repeated);
        }
        match free.checked_add(1) {
            Some(next) => free = next,
            None => return Ok(Free::None),
        }
    }
    Ok(if free <= last { Free::At(free) } else { Free::None })
}

/// How far a point is moved at the most, in nanoseconds; bounds the work for one point.
const MOVE_NANOS_MAX: i64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Limits, path};
    use std::fs;
    use std::time::Duration;

    const LIMITS: Limits = Limits { retention: Duration::from_secs(3600), max_size: 1 << 30 };
    const NOW: UnixNanos = UnixNanos::from_secs(1_700_000_000);

    fn line(name: &str, time: i64, value: f64) -> String {
        format!("{{\"name\":\"{name}\",\"time\":{time},\"kind\":\"gauge\",\"value\":{value:?}}}\n")
    }

    fn rows(data_dir: &std::path::Path) -> Vec<(String, i64, String)> {
        let db = Connection::open(path(data_dir)).unwrap();
        let mut rows = db
            .prepare(
                "SELECT name, time, fields FROM points JOIN series ON series.id = series ORDER BY 1, 2",
            )
            .unwrap();
        rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    #[test]
    fn a_payload_shipped_twice_is_stored_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), LIMITS);
        let body = [line("a", 1, 1.0), line("a", 1, 2.0), line("b", 1, 1.0)].concat();
        let first = writer.write(body.as_bytes(), NOW, NOW).unwrap();
        assert_eq!(first, Written { stored: 3, moved: 1, ..Written::default() });
        let before = rows(dir.path());
        let second = writer.write(body.as_bytes(), NOW, NOW).unwrap();
        assert_eq!(second, Written { stored: 3, repeated: 3, ..Written::default() });
        assert_eq!(rows(dir.path()), before);
        let times: Vec<_> = before.iter().map(|(name, time, _)| (name.as_str(), *time)).collect();
        assert_eq!(times, [("a", 1), ("a", 2), ("b", 1)]);
    }

    #[test]
    fn the_row_of_a_whole_window_takes_the_place_of_its_parts() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), LIMITS);
        let again = |line: String| line.replace("}\n", ",\"again\":true}\n");
        writer.write(line("a", 1, 1.0).as_bytes(), NOW, NOW).unwrap();
        let whole = [again(line("a", 1, 5.0)), again(line("b", 1, 2.0))].concat();
        for _ in 0..2 {
            let written = writer.write(whole.as_bytes(), NOW, NOW).unwrap();
            assert_eq!(written, Written { stored: 2, ..Written::default() });
        }
        let expected = |name: &str, time, value| (name.to_owned(), time, value);
        let [a, b] = ["{\"value\":5.0}", "{\"value\":2.0}"].map(str::to_owned);
        assert_eq!(rows(dir.path()), [expected("a", 1, a), expected("b", 1, b)]);
    }

    #[test]
    fn remembered_names_are_counted_until_they_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), LIMITS);
        let bytes = |writer: &Writer| writer.open.as_ref().unwrap().series.bytes;
        let body = [line("a", 1, 1.0), line("bb", 1, 1.0), line("a", 2, 1.0)].concat();
        writer.write(body.as_bytes(), NOW, NOW).unwrap();
        assert_eq!(bytes(&writer), "a".len() + "bb".len() + 2 * "{}".len());
        writer.open.as_mut().unwrap().series.bytes = super::super::series::BYTES_MAX;
        writer.write(line("c", 1, 1.0).as_bytes(), NOW, NOW).unwrap();
        assert_eq!(bytes(&writer), "c".len() + "{}".len(), "too much was forgotten");
        let later = UnixNanos(NOW.0 + 2 * crate::clock::nanos(LIMITS.retention));
        writer.sweep(later).unwrap();
        assert_eq!(bytes(&writer), 0);
    }

    #[test]
    fn a_file_that_was_taken_away_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        let mut writer = Writer::new(&data_dir, LIMITS);
        writer.write(line("a", 1, 1.0).as_bytes(), NOW, NOW).unwrap();
        fs::remove_dir_all(&data_dir).unwrap();
        writer.write(line("b", 1, 1.0).as_bytes(), NOW, NOW).unwrap();
        writer.write(line("c", 1, 1.0).as_bytes(), NOW, NOW).unwrap();
        let names: Vec<_> = rows(&data_dir).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["b", "c"]);
    }

    #[test]
    fn the_search_for_a_free_nanosecond_ends() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), LIMITS);
        let body: String = (0..1_003_u32).map(|n| line("a", 7, f64::from(n))).collect();
        let written = writer.write(body.as_bytes(), NOW, NOW).unwrap();
        assert_eq!((written.stored, written.moved, written.crowded), (1_001, 1_000, 2));
        let end = [line("z", i64::MAX, 1.0), line("z", i64::MAX, 2.0)].concat();
        let written = writer.write(end.as_bytes(), NOW, NOW).unwrap();
        assert_eq!((written.stored, written.crowded), (1, 1));
    }

    #[test]
    fn two_writers_do_not_mix_up_series() {
        // As it happens for a moment when a reload shortens the retention.
        let dir = tempfile::tempdir().unwrap();
        let [mut old, mut new] = [3600, 1].map(|secs| {
            Writer::new(dir.path(), Limits { retention: Duration::from_secs(secs), ..LIMITS })
        });
        let later = UnixNanos(NOW.0 + 5_000_000_000);
        old.write(line("a", 1, 1.0).as_bytes(), NOW, NOW).unwrap();
        new.sweep(later).unwrap();
        new.write(line("b", 1, 1.0).as_bytes(), later, later).unwrap();
        old.write(line("a", 2, 1.0).as_bytes(), later, later).unwrap();
        let rows = rows(dir.path());
        let rows: Vec<_> = rows.iter().map(|(name, time, _)| (name.as_str(), *time)).collect();
        assert_eq!(rows, [("a", 2), ("b", 1)]);
    }

    #[test]
    fn a_bad_line_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), LIMITS);
        let body = format!("{}nonsense\n{}", line("a", 1, 1.0), line("b", 1, 1.0));
        let written = writer.write(body.as_bytes(), NOW, NOW).unwrap();
        assert_eq!((written.stored, written.unreadable), (2, 1));
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_a_new_one_begun() {
        for damage in [b"this is not a database at all, but long enough".repeat(100), vec![0; 4096]]
        {
            let dir = tempfile::tempdir().unwrap();
            fs::write(path(dir.path()), &damage).unwrap();
            let mut writer = Writer::new(dir.path(), LIMITS);
            writer.write(line("a", 1, 1.0).as_bytes(), NOW, NOW).unwrap();
            assert_eq!(rows(dir.path()).len(), 1);
            assert_eq!(fs::read(dir.path().join("store.db.damaged-1")).unwrap(), damage);
        }
    }

    #[test]
    fn damage_in_the_middle_is_found_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), LIMITS);
        let body: String = (0..5_000).map(|n| line("a", n, 1.0)).collect();
        writer.write(body.as_bytes(), NOW, NOW).unwrap();
        drop(writer);
        let mut bytes = fs::read(path(dir.path())).unwrap();
        let middle = bytes.len() / 2 / 4096 * 4096;
        bytes[middle..middle + 4096].fill(0xa5);
        fs::write(path(dir.path()), bytes).unwrap();
        let mut writer = Writer::new(dir.path(), LIMITS);
        writer.write(line("b", 1, 1.0).as_bytes(), NOW, NOW).unwrap();
        assert_eq!(rows(dir.path()).len(), 1);
        assert!(dir.path().join("store.db.damaged-1").exists());
    }

    #[test]
    fn a_disk_that_cannot_be_written_is_no_damage_and_may_be_mended() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        fs::write(&data_dir, "a file where the directory should be").unwrap();
        let mut writer = Writer::new(&data_dir, LIMITS);
        let error = writer.write(line("a", 1, 1.0).as_bytes(), NOW, NOW).unwrap_err();
        assert!(!error.is_damage(), "{error}");
        fs::remove_file(&data_dir).unwrap();
        assert_eq!(writer.write(line("a", 1, 1.0).as_bytes(), NOW, NOW).unwrap().stored, 1);
    }

    #[test]
    fn a_failed_transaction_leaves_no_trace_in_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), LIMITS);
        writer.write(line("a", 1, 1.0).as_bytes(), NOW, NOW).unwrap();
        // A full disk, in small: SQLite may not add a page.
        let limit = |writer: &Writer, pages: i64| {
            let db = &writer.open.as_ref().unwrap().db;
            db.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
        };
        limit(&writer, 1);
        let body: String = (0..5_000).map(|n| line(&format!("new{n}"), 1, 1.0)).collect();
        let error = writer.write(body.as_bytes(), NOW, NOW).unwrap_err();
        assert!(!error.is_damage(), "{error}");
        assert_eq!(rows(dir.path()).len(), 1);
        limit(&writer, 1 << 20);
        assert_eq!(writer.write(body.as_bytes(), NOW, NOW).unwrap().stored, 5_000);
        assert_eq!(rows(dir.path()).len(), 5_001);
    }
}
