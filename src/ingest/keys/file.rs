//! Keys on disk: one SQLite file a gateway, `<data_dir>/keys.db`.
//!
//! The file is made with the first key and goes with the last. Commits survive the death of the
//! process; of the last few before a loss of power the file may know nothing, as memory does not
//! know their points. Every record has a checksum. Knows the bounds of a listener only as an
//! argument. Every method blocks.

use super::{Admit, Entry, Fingerprint, Name, Owner, Remembered, UNIT_BYTES};
use nix::sys::statvfs::statvfs;
use protocols::UnixNanos;
use protocols::json::Answer;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

/// The file, open or not.
pub(super) struct File {
    path: PathBuf,
    admit: Admit,
    open: Option<Open>,
}

/// An open file, and what is in it by listener.
struct Open {
    db: Connection,
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
    /// SQLite said so.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The file system said so.
    #[error("{0}")]
    File(#[from] io::Error),
    /// It may not be touched.
    #[error("{0}")]
    Admission(String),
    /// What is to be stored would take room that erasing needs.
    #[error("the file system is nearly full")]
    Full,
    /// It is not a file of keys, or one of another version.
    #[error("this is no file of keys of this version")]
    Foreign,
    /// A key's record is not what was written; the others may well be.
    #[error("the record of a key is damaged")]
    Record,
}

impl Error {
    /// Whether the file itself is bad, so that waiting will not help.
    pub(super) fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, Unknown};
        match self {
            // Without a code, a value is not what its column should hold; an unknown one is said
            // of tables that are not there.
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                None | Some(DatabaseCorrupt | NotADatabase | Unknown)
            ),
            Self::Foreign => true,
            Self::File(_) | Self::Admission(_) | Self::Full | Self::Record => false,
        }
    }
}

impl File {
    /// Nothing is read or made yet.
    pub(super) fn new(path: PathBuf, admit: Admit) -> Self {
        Self { path, admit, open: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Closes it, until it is needed again.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Opens it if it is there.
    pub(super) fn look(&mut self) -> Result<(), Error> {
        self.existing().map(drop)
    }

    /// What was answered to a key that has not expired.
    pub(super) fn find(
        &mut self,
        name: &Name,
        now: UnixNanos,
    ) -> Result<Option<Remembered>, Error> {
        let Some(Open { db, .. }) = self.existing()? else { return Ok(None) };
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
        if !self.has_room(bytes)? {
            return Err(Error::Full);
        }
        let Open { db, held, next } = self.made()?;
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
        let Some(Open { db, held, next }) = &mut self.open else { return Ok(false) };
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
            self.remove()?;
        }
        Ok(has_more)
    }

    /// When the next key expires.
    pub(super) fn next_expiry(&self) -> Option<UnixNanos> {
        self.open.as_ref()?.next
    }

    /// How many keys of a listener are on disk, as far as is known.
    pub(super) fn held(&self, listener: &str) -> u64 {
        let held = self.open.as_ref().and_then(|open| open.held.get(listener));
        held.map_or(0, |held| held.keys)
    }

    /// Renames a file that cannot be used; the next [`write`](Self::write) begins a new one.
    pub(super) fn set_aside(&mut self) -> Result<PathBuf, Error> {
        self.open = None;
        let is_free = |n: &u32| !self.beside(&format!(".damaged-{n}")).exists();
        let n = (1..=u32::MAX).find(is_free).unwrap_or(u32::MAX);
        let aside = self.beside(&format!(".damaged-{n}"));
        fs::rename(&self.path, &aside)?;
        for log in ["-wal", "-shm"] {
            // SQLite would apply a log that was left behind to the new file.
            if self.beside(log).exists() {
                fs::rename(self.beside(log), self.beside(&format!(".damaged-{n}{log}")))?;
            }
        }
        Ok(aside)
    }

    fn remove(&mut self) -> Result<(), Error> {
        // Closing it moves the log into the file. Were the log to stay, it must not be applied
        // to the next file.
        self.open = None;
        for part in ["-wal", "-shm", ""] {
            match fs::remove_file(self.beside(part)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether so much can be stored and erased again. A full file system would not let even
    /// that happen, since the log of changes comes first and the file itself second.
    fn has_room(&mut self, bytes: u64) -> Result<bool, Error> {
        self.made()?;
        let disk = statvfs(&self.path).map_err(io::Error::from)?;
        Ok(2 * bytes + RESERVE <= disk.blocks_available() * disk.fragment_size())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    }

    fn existing(&mut self) -> Result<Option<&mut Open>, Error> {
        if self.open.is_none() && !self.path.exists() {
            return Ok(None);
        }
        self.made().map(Some)
    }

    fn made(&mut self) -> Result<&mut Open, Error> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                (self.admit)().map_err(Error::Admission)?;
                connect(&self.path)?
            }
        };
        Ok(self.open.insert(open))
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish_non_exhaustive()
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
fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Remembered>> {
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

fn id_and_units(row: &rusqlite::Row<'_>) -> rusqlite::Result<(i64, u64)> {
    Ok((row.get(0)?, number(row, 1)?))
}

/// What is below nothing was not written by us.
fn number(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0))
}

fn connect(path: &Path) -> Result<Open, Error> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let db = Connection::open(path)?;
    db.busy_timeout(BUSY)?;
    // First of all, since what follows would change a file that is not ours.
    let is_new = is_new(&db)?;
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    if is_new {
        db.execute_batch(TABLES)?;
    }
    let mut select =
        db.prepare("SELECT listener, count(*), sum(units) FROM keys GROUP BY listener")?;
    let held = select
        .query_map([], |row| {
            Ok((row.get(0)?, Held { keys: number(row, 1)?, units: number(row, 2)? }))
        })?
        .collect::<Result<_, _>>()?;
    drop(select);
    let next = earliest(&db, &held)?;
    Ok(Open { db, held, next })
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

fn is_new(db: &Connection) -> Result<bool, Error> {
    let number = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION_ID, VERSION) => Ok(false),
        (0, 0) => {
            let tables: u32 =
                db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            if tables == 0 { Ok(true) } else { Err(Error::Foreign) }
        }
        _ => Err(Error::Foreign),
    }
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

/// "PMKY" and the version are what tells a file of keys from any other. The index `oldest` is all
/// that counting needs.
const TABLES: &str = "BEGIN;
    CREATE TABLE keys (
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
    CREATE INDEX oldest ON keys (listener, expires, units);
    PRAGMA application_id = 1347242841;
    PRAGMA user_version = 1;
    COMMIT;";
const APPLICATION_ID: i64 = 1_347_242_841;
const VERSION: i64 = 1;
/// What the log of changes may keep of the disk.
const LOG_BYTES: u32 = 4 << 20;
/// Left free, so that a full disk can be erased.
const RESERVE: u64 = 2 << 20;
/// How much of what has expired goes in one transaction.
const AT_ONCE: u32 = 10_000;
/// For whoever looks at the file with a shell.
const BUSY: Duration = Duration::from_secs(1);
