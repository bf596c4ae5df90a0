//! Payloads on disk: one SQLite file a backend, `<data_dir>/spool/<name>.db`.
//!
//! Knows nothing of order but what it is told, and of no limits; both are the [line's](super::line).
//! The file is made when something is first stored, goes when nothing is, and holds the kind of its backend, and a
//! checksum with each body. A file that SQLite cannot read is set aside as
//! `<name>.db.damaged-N`; a body whose checksum is wrong is told as missing. Every method blocks.
//!
//! Commits survive the death of the process in any case. With `durability = "power"` each waits
//! until the disk has it; with `"process"` the last few may be lost with the power, never the file.

use super::Durability;
use super::line::{Load, Record};
use crate::waybill::Waybill;
use nix::sys::statvfs::statvfs;
use protocols::UnixNanos;
use rusqlite::{Connection, OptionalExtension, params};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// The file of one backend.
#[derive(Debug)]
pub(super) struct Spool {
    file: PathBuf,
    kind: &'static str,
    durability: Durability,
    /// `None` while there is nothing on disk.
    db: Option<Connection>,
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
    /// What is to be stored would take room that erasing needs.
    #[error("the file system is nearly full")]
    Full,
    /// It is not a spool, or one of another version.
    #[error("this is no spool of this version")]
    Foreign,
    /// It holds what another kind of backend was to be sent.
    #[error("it holds points as a {0}")]
    Kind(String),
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
            Self::File(_) | Self::Full | Self::Kind(_) => false,
        }
    }
}

/// Where the spool of a backend is.
pub fn file(data_dir: &Path, name: &str) -> PathBuf {
    data_dir.join("spool").join(format!("{name}.db"))
}

impl Spool {
    /// The spool of a backend; nothing is read or made yet.
    pub(super) fn new(
        data_dir: &Path,
        name: &str,
        kind: &'static str,
        durability: Durability,
    ) -> Self {
        Self { file: file(data_dir, name), kind, durability, db: None }
    }

    /// Changes what a commit waits for.
    pub(super) fn set_durability(&mut self, durability: Durability) {
        if std::mem::replace(&mut self.durability, durability) != durability {
            // It is opened anew when it is next needed.
            self.db = None;
        }
    }

    /// What a commit waits for.
    pub(super) const fn durability(&self) -> Durability {
        self.durability
    }

    /// Says for people what is wrong.
    pub(super) fn sentence(&self, error: &Error) -> String {
        let (file, kind) = (self.file.display(), self.kind);
        match error {
            Error::Kind(_) => format!(
                "the spool {file} cannot be used for a {kind}: {error}; give this backend another name"
            ),
            _ => format!("the spool {file}: {error}"),
        }
    }

    /// Where it is.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// What is on disk from before, in order.
    pub(super) fn recover(&mut self) -> Result<Vec<Record>, Error> {
        if !self.file.exists() {
            return Ok(Vec::new());
        }
        let db = self.open()?;
        let mut select = db.prepare(
            "SELECT id, seq, part, points, length(body), ifnull(length(waybill), 0), born
             FROM payloads ORDER BY seq, part, id",
        )?;
        let size = |bytes: i64| usize::try_from(bytes).unwrap_or(0);
        let records = select.query_map([], |row| {
            Ok(Record {
                id: row.get(0)?,
                order: (row.get(1)?, row.get(2)?),
                points: row.get(3)?,
                bytes: size(row.get(4)?),
                waybill: size(row.get(5)?),
                born: UnixNanos(row.get(6)?),
            })
        })?;
        let records = records.collect::<Result<Vec<_>, _>>()?;
        drop(select);
        let kind: Option<String> =
            db.query_row("SELECT kind FROM backend", [], |row| row.get(0)).optional()?;
        match kind {
            Some(kind) if kind != self.kind && !records.is_empty() => Err(Error::Kind(kind)),
            _ => Ok(records),
        }
    }

    /// Erases and stores, all or nothing.
    pub(super) fn write(&mut self, erase: &[i64], store: &[(Record, Load)]) -> Result<(), Error> {
        if self.db.is_none() && store.is_empty() && !self.file.exists() {
            return Ok(());
        }
        let (kind, size) = (
            self.kind,
            store.iter().map(|(record, _)| (record.bytes + record.waybill) as u64).sum(),
        );
        if !store.is_empty() && !self.has_room(size)? {
            return Err(Error::Full);
        }
        let transaction = self.open()?.transaction()?;
        let mut delete = transaction.prepare_cached("DELETE FROM payloads WHERE id = ?1")?;
        for id in erase {
            delete.execute([id])?;
        }
        drop(delete);
        if !store.is_empty() {
            transaction
                .execute("INSERT OR REPLACE INTO backend (one, kind) VALUES (1, ?1)", [kind])?;
        }
        let mut insert = transaction.prepare_cached(
            "INSERT INTO payloads (id, seq, part, born, points, checksum, body, waybill)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?;
        for (Record { id, order, points, born, .. }, Load { body, waybill }) in store {
            let (sum, waybill) = (checksum(body), written(waybill));
            insert.execute(params![
                id,
                order.0,
                order.1,
                born.0,
                points,
                sum,
                &body[..],
                waybill
            ])?;
        }
        drop(insert);
        transaction.commit()?;
        Ok(())
    }

    /// A body with its waybill; `None` if it is not there, or not what was stored. A waybill that
    /// nobody can read says nothing.
    pub(super) fn read(&mut self, id: i64) -> Result<Option<Load>, Error> {
        let mut select = self
            .open()?
            .prepare_cached("SELECT checksum, body, waybill FROM payloads WHERE id = ?1")?;
        let found = select.query_row([id], |row| {
            let (sum, body): (u32, Vec<u8>) = (row.get(0)?, row.get(1)?);
            Ok((sum, body, row.get::<_, Option<Vec<u8>>>(2)?))
        });
        let whole = found.optional()?.filter(|(sum, body, _)| checksum(body) == *sum);
        Ok(whole.map(|(_, body, waybill)| Load { body: body.into(), waybill: parsed(waybill) }))
    }

    /// Whether so much can be stored and erased again. A full file system would not let even
    /// that happen, since the log of changes comes first and the file itself second.
    fn has_room(&mut self, size: u64) -> Result<bool, Error> {
        let free: u64 = self
            .open()?
            .pragma_query_value(None, "freelist_count", |row| row.get::<_, u32>(0))?
            .into();
        let disk = statvfs(&self.file).map_err(io::Error::from)?;
        let room = disk.blocks_available() * disk.fragment_size() + free * u64::from(PAGE);
        Ok(2 * size + RESERVE <= room)
    }

    /// Gives the disk back what an outage took. For when nothing is stored any more.
    pub(super) fn shrink(&mut self) -> Result<(), Error> {
        // Closing it moves the log into the file. Were the log to stay, it must not be applied
        // to the next file.
        self.db = None;
        for part in ["-wal", "-shm", ""] {
            match fs::remove_file(self.beside(part)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.file.clone().into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    }

    /// Renames a file that cannot be used; the next [`write`](Self::write) begins a new one.
    pub(super) fn set_aside(&mut self) -> Result<PathBuf, Error> {
        self.db = None;
        let beside = |suffix: &str| self.beside(suffix);
        let is_free = |n: &u32| !beside(&format!(".damaged-{n}")).exists();
        let n = (1..=u32::MAX).find(is_free).unwrap_or(u32::MAX);
        let aside = beside(&format!(".damaged-{n}"));
        fs::rename(&self.file, &aside)?;
        for log in ["-wal", "-shm"] {
            // SQLite would apply a log that was left behind to the new file.
            if beside(log).exists() {
                fs::rename(beside(log), beside(&format!(".damaged-{n}{log}")))?;
            }
        }
        Ok(aside)
    }

    fn open(&mut self) -> Result<&mut Connection, Error> {
        let db = match self.db.take() {
            Some(db) => db,
            None => connect(&self.file, self.durability)?,
        };
        Ok(self.db.insert(db))
    }
}

fn connect(file: &Path, durability: Durability) -> Result<Connection, Error> {
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir)?;
    }
    let db = Connection::open(file)?;
    db.busy_timeout(BUSY)?;
    // First of all, since what follows would change a file that is not ours.
    let age = age(&db)?;
    db.pragma_update(None, "page_size", PAGE)?;
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    db.pragma_update(None, "synchronous", durability.pragma())?;
    db.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    db.pragma_update_and_check(None, "wal_autocheckpoint", LOG_BYTES / PAGE, |_| Ok(()))?;
    match age {
        Age::New => db.execute_batch(TABLES)?,
        Age::First => db.execute_batch(FROM_FIRST)?,
        Age::Present => {}
    }
    Ok(db)
}

/// Which version wrote a file.
enum Age {
    New,
    First,
    Present,
}

fn age(db: &Connection) -> Result<Age, Error> {
    let number = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION_ID, VERSION) => Ok(Age::Present),
        (APPLICATION_ID, FIRST) => Ok(Age::First),
        (0, 0) => {
            let tables: u32 =
                db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            if tables == 0 { Ok(Age::New) } else { Err(Error::Foreign) }
        }
        _ => Err(Error::Foreign),
    }
}

fn written(waybill: &Waybill) -> Option<Vec<u8>> {
    if waybill.legs().is_empty() { None } else { serde_json::to_vec(waybill).ok() }
}

fn parsed(waybill: Option<Vec<u8>>) -> Waybill {
    waybill.and_then(|waybill| serde_json::from_slice(&waybill).ok()).unwrap_or_default()
}

fn checksum(body: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(body);
    sum.sum()
}

/// "PMSP" and the version are what tells a spool from any other file. A waybill is JSON in a blob,
/// whose length can be told without reading the body that lies before it.
const TABLES: &str = "BEGIN;
    CREATE TABLE backend (one INTEGER PRIMARY KEY, kind TEXT NOT NULL) STRICT;
    CREATE TABLE payloads (
        id INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        part INTEGER NOT NULL,
        born INTEGER NOT NULL,
        points INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        body BLOB NOT NULL,
        waybill BLOB
    ) STRICT;
    PRAGMA application_id = 1347244880;
    PRAGMA user_version = 2;
    COMMIT;";
/// The first version had no waybills.
const FROM_FIRST: &str = "BEGIN;
    ALTER TABLE payloads ADD COLUMN waybill BLOB;
    PRAGMA user_version = 2;
    COMMIT;";
const APPLICATION_ID: i64 = 1_347_244_880;
const VERSION: i64 = 2;
const FIRST: i64 = 1;
/// Bodies are large.
const PAGE: u32 = 16 << 10;
/// When the log of changes goes into the file.
const LOG_BYTES: u32 = 4 << 20;
/// Left free, so that a full disk can be erased.
const RESERVE: u64 = 2 << 20;
/// For whoever looks at the file with a shell.
const BUSY: Duration = Duration::from_secs(1);
