//! The file of one backend's letters. Every method blocks.
//!
//! It is bounded by the sum of what the letters hold; the oldest go first. The file is made when
//! the first letter comes and removed with the last. A body has a checksum, and one that is not
//! what was stored is told as missing; its letter can still be looked at and purged.

use super::letter::{Draft, Heading, Letter, Place, Selection};
use crate::database::{Database, Format, checksum};
use bytes::Bytes;
use protocols::UnixNanos;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params, params_from_iter};
use std::path::{Path, PathBuf};

pub(super) use crate::database::Error;

/// The file, and how much is in it.
#[derive(Debug)]
pub(super) struct File {
    database: Database,
    /// `None` until it was first read.
    tally: Option<Tally>,
}

/// How much there is, or was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) letters: u64,
    pub(super) points: u64,
    pub(super) size: u64,
    pub(super) last_id: i64,
}

impl File {
    pub(super) fn new(file: PathBuf) -> Self {
        // Letters are few, and looked at by people: each is worth waiting for the disk.
        Self { database: Database::new(file, &FORMAT, "FULL"), tally: None }
    }

    pub(super) fn path(&self) -> &Path {
        self.database.file()
    }

    /// Learns what is there; answers it the first time.
    pub(super) fn take_up(&mut self) -> Result<Option<Tally>, Error> {
        if self.tally.is_some() {
            return Ok(None);
        }
        let mut found = Tally::default();
        if self.database.exists() {
            let sums = "SELECT count(*), ifnull(sum(points), 0), ifnull(sum(size), 0),
                ifnull(max(id), 0) FROM letters";
            found = self.database.open()?.query_row(sums, [], |row| {
                Ok(Tally {
                    letters: count_at(row, 0)?,
                    points: count_at(row, 1)?,
                    size: count_at(row, 2)?,
                    last_id: row.get(3)?,
                })
            })?;
        }
        self.tally = Some(found);
        Ok(Some(found))
    }

    /// How much there is, as far as is known.
    pub(super) fn tally(&self) -> Tally {
        self.tally.unwrap_or_default()
    }

    /// Stores all or nothing, and makes room by the oldest; answers what went.
    pub(super) fn add(&mut self, drafts: &[Draft], max_size: u64) -> Result<Tally, Error> {
        let size = drafts.iter().map(|draft| draft.size() as u64).sum();
        if !self.database.has_room(size)? {
            return Err(Error::Full);
        }
        let mut tally = self.tally();
        let transaction = self.database.open()?.transaction()?;
        for draft in drafts {
            insert(&transaction, draft)?;
            tally.letters += 1;
            tally.points += u64::from(draft.refused.points);
            tally.size += draft.size() as u64;
        }
        let mut gone = Tally::default();
        while tally.size > max_size {
            let oldest = take_oldest(&transaction)?;
            if oldest.letters == 0 {
                break;
            }
            gone.add(oldest);
            tally.sub(oldest);
        }
        transaction.commit()?;
        self.tally = Some(tally);
        Ok(gone)
    }

    /// Removes what is selected, up to that id; answers what it was.
    pub(super) fn remove(&mut self, which: &Selection, up_to: i64) -> Result<Tally, Error> {
        if !self.database.exists() {
            return Ok(Tally::default());
        }
        let db = self.database.open()?;
        let mut delete = db.prepare(&format!(
            "DELETE FROM letters WHERE {WHICH} AND id <= ?4 RETURNING points, size"
        ))?;
        let gone = sum(delete.query_map(params_of(which, up_to), points_and_size)?)?;
        drop(delete);
        let mut tally = self.tally();
        tally.sub(gone);
        self.tally = Some(tally);
        if tally.letters == 0 {
            self.database.remove()?;
        }
        Ok(gone)
    }

    /// The connection, if there is anything to read.
    pub(super) fn readable(&mut self) -> Result<Option<&Connection>, Error> {
        Ok(if self.database.exists() { Some(self.database.open()?) } else { None })
    }

    /// Lets go of it until it is needed again.
    pub(super) fn close(&mut self) {
        self.database.close();
    }

    pub(super) fn set_aside(&mut self) -> Result<PathBuf, Error> {
        self.tally = Some(Tally::default());
        self.database.set_aside()
    }
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.letters += other.letters;
        self.points += other.points;
        self.size += other.size;
    }

    fn sub(&mut self, other: Self) {
        self.letters = self.letters.saturating_sub(other.letters);
        self.points = self.points.saturating_sub(other.points);
        self.size = self.size.saturating_sub(other.size);
    }
}

/// Opens a file that another process may own.
pub(super) fn open_to_read(file: &Path) -> Result<Connection, Error> {
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let number = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    if (number("application_id")?, number("user_version")?)
        == (FORMAT.application_id, FORMAT.version)
    {
        Ok(db)
    } else {
        Err(Error::Foreign)
    }
}

/// The newest of those that are selected and older than that id.
pub(super) fn headings(
    db: &Connection,
    backend: &str,
    which: &Selection,
    before_id: i64,
    limit: usize,
) -> Result<Vec<Heading>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut select = db.prepare_cached(&format!(
        "SELECT {HEADING} FROM letters WHERE {WHICH} AND id < ?4 ORDER BY id DESC LIMIT {limit}"
    ))?;
    let rows = select.query_map(params_of(which, before_id), |row| heading(row, backend))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// How much is selected.
pub(super) fn count(db: &Connection, which: &Selection) -> Result<Tally, Error> {
    let mut select =
        db.prepare_cached(&format!("SELECT points, size FROM letters WHERE {WHICH} AND id < ?4"))?;
    Ok(sum(select.query_map(params_of(which, i64::MAX), points_and_size)?)?)
}

/// The ids of those that are selected, the oldest first.
pub(super) fn ids(db: &Connection, which: &Selection) -> Result<Vec<i64>, Error> {
    let mut select = db
        .prepare_cached(&format!("SELECT id FROM letters WHERE {WHICH} AND id < ?4 ORDER BY id"))?;
    let rows = select.query_map(params_of(which, i64::MAX), |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// One letter.
pub(super) fn letter(db: &Connection, backend: &str, id: i64) -> Result<Option<Letter>, Error> {
    let mut select =
        db.prepare_cached(&format!("SELECT {HEADING}, checksum, body FROM letters WHERE id = ?1"))?;
    let letter = select.query_row([id], |row| {
        let (sum, body): (u32, Vec<u8>) = (row.get("checksum")?, row.get("body")?);
        let body = (checksum(&body) == sum).then(|| Bytes::from(body));
        Ok(Letter { heading: heading(row, backend)?, body })
    });
    Ok(letter.optional()?)
}

fn heading(row: &Row<'_>, backend: &str) -> Result<Heading, rusqlite::Error> {
    let waybill: String = row.get("waybill")?;
    Ok(Heading {
        place: Place { id: row.get("id")?, backend: backend.to_owned() },
        kind: row.get("kind")?,
        reason: row.get("reason")?,
        words: row.get("words")?,
        refused: UnixNanos(row.get("refused")?),
        born: UnixNanos(row.get("born")?),
        points: row.get("points")?,
        among: row.get("among")?,
        bytes: count_at(row, "bytes")?,
        // One of another version says nothing, which is what is then assumed.
        waybill: serde_json::from_str(&waybill).unwrap_or_default(),
    })
}

fn insert(db: &Connection, draft: &Draft) -> Result<(), Error> {
    let mut insert = db.prepare_cached(
        "INSERT INTO letters (id, refused, born, kind, reason, words, waybill, points, among, size,
            checksum, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    let Draft { id, kind, refused_at, refused, waybill } = draft;
    let (size, sum, body) = (draft.size(), checksum(&refused.body), &refused.body[..]);
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    let (reason, words, born) = (refused.reason, &refused.words, refused.born.0);
    let (refused_at, points, among) = (refused_at.0, refused.points, refused.among);
    insert.execute(params![
        id, refused_at, born, kind, reason, words, waybill, points, among, size, sum, body
    ])?;
    Ok(())
}

fn take_oldest(db: &Connection) -> Result<Tally, Error> {
    let mut delete = db.prepare_cached(
        "DELETE FROM letters WHERE id = (SELECT min(id) FROM letters) RETURNING points, size",
    )?;
    Ok(sum(delete.query_map([], points_and_size)?)?)
}

fn points_and_size(row: &Row<'_>) -> Result<Tally, rusqlite::Error> {
    Ok(Tally { letters: 1, points: count_at(row, 0)?, size: count_at(row, 1)?, last_id: 0 })
}

/// SQLite's integers have a sign.
fn count_at(row: &Row<'_>, column: impl rusqlite::RowIndex) -> Result<u64, rusqlite::Error> {
    Ok(row.get::<_, i64>(column)?.unsigned_abs())
}

fn sum(
    rows: impl Iterator<Item = Result<Tally, rusqlite::Error>>,
) -> Result<Tally, rusqlite::Error> {
    let mut sum = Tally::default();
    for row in rows {
        sum.add(row?);
    }
    Ok(sum)
}

/// The parameters of [`WHICH`], and the fourth.
fn params_of(which: &Selection, id: i64) -> impl rusqlite::Params + use<> {
    use rusqlite::types::Value;
    let ids = which.ids.as_ref().map(|ids| format!("{ids:?}"));
    let text = |text: Option<String>| text.map_or(Value::Null, Value::Text);
    let before = which.before.map_or(Value::Null, |time| Value::Integer(time.0));
    params_from_iter([text(which.reason.clone()), before, text(ids), Value::Integer(id)])
}

const HEADING: &str =
    "id, refused, born, kind, reason, words, waybill, points, among, length(body) AS bytes";

/// What a selection says; which backend's file it is was decided before.
const WHICH: &str = "(?1 IS NULL OR reason = ?1) AND (?2 IS NULL OR refused < ?2)
    AND (?3 IS NULL OR id IN (SELECT value FROM json_each(?3)))";

/// Most letters are a line or a few. The id is "PMDL".
static FORMAT: Format = Format {
    application_id: 1_347_241_036,
    version: 1,
    page: 4 << 10,
    tables: "CREATE TABLE letters (
        id INTEGER PRIMARY KEY,
        refused INTEGER NOT NULL,
        born INTEGER NOT NULL,
        kind TEXT NOT NULL,
        reason TEXT NOT NULL,
        words TEXT NOT NULL,
        waybill TEXT NOT NULL,
        points INTEGER NOT NULL,
        among INTEGER NOT NULL,
        size INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;",
    upgrades: &[],
};
