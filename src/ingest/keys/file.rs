//! Keys on disk: one SQLite file a gateway, `<data_dir>/keys.db`.
//!
//! The file is made with the first key and goes with the last. Commits survive the death of the
//! process; of the last few before a loss of power the file may know nothing, as memory does not
//! know their points. Every record has a checksum. Knows the bounds of a listener only as an
//! argument. Every method blocks.

use super::{Admit, Entry, Fingerprint, Name, Owner, Remembered, UNIT_BYTES};
use crate::database::{self, Database, Format};
use protocols::Answer;
use protocols::UnixNanos;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file, and what is known of it once it was opened.
pub(super) struct File {
    database: Database,
    admit: Admit,
    contents: Option<Contents>,
}

/// What is in a file.
#[derive(Debug)]
struct Contents {
    /// By listener.
    held: BTreeMap<String, Held>,
    /// When the next key expires, or has expired and is still there.
    next: Option<UnixNanos>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    keys: u64,
    units: u64,
}

/// What can be wrong with it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The file or the disk.
    #[error("{0}")]
    Database(#[from] database::Error),
    /// It may not be touched.
    #[error("{0}")]
    Admission(String),
    /// A key's record is not what was written; the others may well be.
    #[error("the record of a key is damaged")]
    Record,
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.into())
    }
}

impl Error {
    /// Whether the file itself is bad, so that waiting will not help.
    pub(super) fn is_damage(&self) -> bool {
        matches!(self, Self::Database(error) if error.is_damage())
    }
}

impl File {
    /// Nothing is read or made yet.
    pub(super) fn new(path: PathBuf, admit: Admit) -> Self {
        // No key outlives its points by much, and those are in memory.
        Self { database: Database::new(path, &FORMAT, "NORMAL"), admit, contents: None }
    }

    pub(super) fn path(&self) -> &Path {
        self.database.file()
    }

    /// Closes it, until it is needed again.
    pub(super) fn close(&mut self) {
        self.database.close();
        self.contents = None;
    }

    /// Opens it if it is there.
    pub(super) fn look(&mut self) -> Result<(), Error> {
        if self.database.exists() {
            self.open()?;
        }
        Ok(())
    }

    /// What was answered to a key that has not expired.
    pub(super) fn find(
        &mut self,
        name: &Name,
        now: UnixNanos,
    ) -> Result<Option<Remembered>, Error> {
        if !self.database.exists() {
            return Ok(None);
        }
        let (db, _) = self.open()?;
        let mut select = db.prepare_cached(
            "SELECT fingerprint, status, body, checksum FROM keys
             WHERE listener = ?1 AND key = ?2 AND expires > ?3",
        )?;
        let found = select.query_row(params![name.listener, name.key, now.0], read).optional()?;
        // The record may be damaged, and the file not.
        found.map(|found| found.ok_or(Error::Record)).transpose()
    }

    /// Stores all or nothing, the oldest first. What a listener's bound does not leave room for is
    /// forgotten, and answered: how many of whose keys.
    pub(super) fn write(&mut self, entries: &[Entry]) -> Result<Vec<(Arc<Owner>, u64)>, Error> {
        let bytes = entries.iter().map(|entry| entry.units() * UNIT_BYTES).sum();
        self.open()?;
        if !self.database.has_room(bytes)? {
            return Err(database::Error::Full.into());
        }
        let (db, Contents { held, next }) = self.open()?;
        let mut after = held.clone();
        let transaction = db.transaction()?;
        let mut owners = BTreeMap::new();
        for entry in entries {
            let owner = &entry.owner;
            store(&transaction, entry, after.entry(owner.listener.to_string()).or_default())?;
            owners.insert(Arc::clone(&owner.listener), Arc::clone(owner));
        }
        let mut forgotten = Vec::new();
        for (listener, owner) in owners {
            let held = after.entry(listener.to_string()).or_default();
            let keys = bound(&transaction, &listener, owner.units, held)?;
            forgotten.push((owner, keys));
        }
        transaction.commit()?;
        *held = after;
        *next = entries.iter().map(|entry| entry.expires).chain(*next).min();
        Ok(forgotten)
    }

    /// Takes away some of what has expired, and the file when nothing is left; says whether
    /// there is more.
    pub(super) fn expire(&mut self, now: UnixNanos) -> Result<bool, Error> {
        if self.contents.is_none() {
            return Ok(false);
        }
        let (db, Contents { held, next }) = self.open()?;
        let mut after = held.clone();
        let transaction = db.transaction()?;
        let mut has_more = false;
        for (listener, held) in &mut after {
            let mut select = transaction.prepare_cached(
                "SELECT id, units FROM keys WHERE listener = ?1 AND expires <= ?2
                 ORDER BY expires LIMIT ?3",
            )?;
            let old = select.query_map(params![listener, now.0, AT_ONCE], id_and_units)?;
            let old = old.collect::<Result<Vec<_>, _>>()?;
            has_more |= old.len() == AT_ONCE as usize;
            erase(&transaction, &old, held)?;
        }
        transaction.commit()?;
        *held = after;
        *next = earliest(db, held)?;
        if held.values().all(|held| held.keys == 0) {
            self.contents = None;
            self.database.remove()?;
        }
        Ok(has_more)
    }

    /// When the next key expires.
    pub(super) fn next_expiry(&self) -> Option<UnixNanos> {
        self.contents.as_ref()?.next
    }

    /// How many keys of a listener are on disk, as far as is known.
    pub(super) fn held(&self, listener: &str) -> u64 {
        let held = self.contents.as_ref().and_then(|contents| contents.held.get(listener));
        held.map_or(0, |held| held.keys)
    }

    /// Renames a file that cannot be used; the next [`write`](Self::write) begins a new one.
    pub(super) fn set_aside(&mut self) -> Result<PathBuf, Error> {
        self.contents = None;
        Ok(self.database.set_aside()?)
    }

    /// The file is made if it is not there.
    fn open(&mut self) -> Result<(&mut Connection, &mut Contents), Error> {
        let contents = match self.contents.take() {
            Some(contents) => contents,
            None => {
                (self.admit)().map_err(Error::Admission)?;
                Contents::of(self.database.open()?)?
            }
        };
        Ok((self.database.open()?, self.contents.insert(contents)))
    }
}

impl Contents {
    fn of(db: &Connection) -> Result<Self, Error> {
        let mut select =
            db.prepare("SELECT listener, count(*), sum(units) FROM keys GROUP BY listener")?;
        let held = select.query_map([], |row| {
            Ok((row.get(0)?, Held { keys: number(row, 1)?, units: number(row, 2)? }))
        })?;
        let held = held.collect::<Result<_, _>>()?;
        let next = earliest(db, &held)?;
        Ok(Self { held, next })
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("database", &self.database).finish_non_exhaustive()
    }
}

fn store(transaction: &Transaction<'_>, entry: &Entry, held: &mut Held) -> Result<(), Error> {
    let Entry { name, remembered, expires, .. } = entry;
    let Remembered { fingerprint, answer } = &**remembered;
    let mut select = transaction
        .prepare_cached("SELECT id, units FROM keys WHERE listener = ?1 AND key = ?2")?;
    let before = select.query_row(params![name.listener, name.key], id_and_units).optional()?;
    erase(transaction, before.as_slice(), held)?;
    let units = entry.units();
    let mut insert = transaction.prepare_cached(
        "INSERT INTO keys (listener, key, expires, units, fingerprint, status, body, checksum)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    insert.execute(params![
        name.listener,
        name.key,
        expires.0,
        i64::try_from(units).unwrap_or(i64::MAX),
        fingerprint.0,
        answer.status,
        answer.body,
        checksum(remembered)
    ])?;
    held.keys += 1;
    held.units += units;
    Ok(())
}

/// Forgets the oldest keys of a listener that has too many; answers how many.
fn bound(
    transaction: &Transaction<'_>,
    listener: &str,
    units: u64,
    held: &mut Held,
) -> Result<u64, Error> {
    let mut excess = held.units.saturating_sub(units);
    if excess == 0 {
        return Ok(0);
    }
    let mut select = transaction
        .prepare_cached("SELECT id, units FROM keys WHERE listener = ?1 ORDER BY expires, id")?;
    let mut rows = select.query([listener])?;
    let mut oldest = Vec::new();
    while excess > 0
        && let Some(row) = rows.next()?
    {
        let (id, units) = id_and_units(row)?;
        excess = excess.saturating_sub(units);
        oldest.push((id, units));
    }
    drop(rows);
    erase(transaction, &oldest, held)?;
    Ok(oldest.len() as u64)
}

fn erase(transaction: &Transaction<'_>, rows: &[(i64, u64)], held: &mut Held) -> Result<(), Error> {
    let mut delete = transaction.prepare_cached("DELETE FROM keys WHERE id = ?1")?;
    for (id, units) in rows {
        delete.execute([id])?;
        held.keys = held.keys.saturating_sub(1);
        held.units = held.units.saturating_sub(*units);
    }
    Ok(())
}

/// A record; `None` if it is not what was stored.
fn read(row: &Row<'_>) -> rusqlite::Result<Option<Remembered>> {
    let bytes = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_bytes_or_null()?);
    let Ok(fingerprint) = bytes(0)?.unwrap_or_default().try_into() else { return Ok(None) };
    let Ok(body) = bytes(2)?.map(|body| String::from_utf8(body.to_vec())).transpose() else {
        return Ok(None);
    };
    let answer = Answer { status: row.get(1)?, body };
    let remembered = Remembered { fingerprint: Fingerprint(fingerprint), answer };
    let sum: u32 = row.get(3)?;
    Ok(Some(remembered).filter(|remembered| checksum(remembered) == sum))
}

fn id_and_units(row: &Row<'_>) -> rusqlite::Result<(i64, u64)> {
    Ok((row.get(0)?, number(row, 1)?))
}

/// What is below nothing was not written by us.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0))
}

/// When the first of all keys expires.
fn earliest(db: &Connection, held: &BTreeMap<String, Held>) -> Result<Option<UnixNanos>, Error> {
    let mut select = db.prepare_cached("SELECT min(expires) FROM keys WHERE listener = ?1")?;
    let mut earliest = None;
    for listener in held.keys() {
        let first = select.query_row([listener], |row| row.get::<_, Option<i64>>(0))?;
        earliest = earliest.into_iter().chain(first).min();
    }
    Ok(earliest.map(UnixNanos))
}

fn checksum(remembered: &Remembered) -> u32 {
    let Remembered { fingerprint, answer } = remembered;
    let mut sum = flate2::Crc::new();
    sum.update(&fingerprint.0);
    sum.update(&answer.status.to_le_bytes());
    sum.update(&[u8::from(answer.body.is_some())]);
    sum.update(answer.body.as_deref().unwrap_or("").as_bytes());
    sum.sum()
}

/// "PMKY" is what tells a file of keys from any other. The index `oldest` is all that counting
/// needs.
static FORMAT: Format = Format {
    application_id: 1_347_242_841,
    version: 1,
    page: 4 << 10,
    tables: "CREATE TABLE keys (
            id INTEGER PRIMARY KEY,
            listener TEXT NOT NULL,
            key TEXT NOT NULL,
            expires INTEGER NOT NULL,
            units INTEGER NOT NULL,
            fingerprint BLOB NOT NULL,
            status INTEGER NOT NULL,
            body TEXT,
            checksum INTEGER NOT NULL,
            UNIQUE (listener, key)
        ) STRICT;
        CREATE INDEX oldest ON keys (listener, expires, units);",
    upgrades: &[],
};
/// How much of what has expired goes in one transaction.
const AT_ONCE: u32 = 10_000;
