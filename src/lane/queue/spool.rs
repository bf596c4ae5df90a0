//! Payloads on disk: one SQLite file a backend, `<data_dir>/spool/<name>.db`.
//!
//! Knows nothing of order but what it is told, and of no limits; both are the
//! [line's](super::line). The file is made when something is first stored, goes when nothing is,
//! and holds the kind of its backend, and a checksum with each body. A file that SQLite cannot read
//! is set aside as `<name>.db.damaged-N`; a body whose checksum is wrong is told as missing. Every
//! method blocks.
//!
//! Commits survive the death of the process in any case. With `durability = "power"` each waits
//! until the disk has it; with `"process"` the last few may be lost with the power, never the file.

use super::slot::{Load, Record};
use crate::database::{self, Database, Format, checksum};
use crate::lane::Durability;
use crate::waybill::Waybill;
use protocols::UnixNanos;
use rusqlite::{OptionalExtension, Transaction, params};
use std::path::{Path, PathBuf};

/// The file of one backend.
#[derive(Debug)]
pub(in crate::lane) struct Spool {
    database: Database,
    kind: &'static str,
    durability: Durability,
}

/// What can be wrong with it.
#[derive(Debug, thiserror::Error)]
pub(in crate::lane) enum Error {
    /// The file or the disk.
    #[error("{0}")]
    Database(#[from] database::Error),
    /// It holds what another kind of backend was to be sent.
    #[error("it holds points for the kind {0}")]
    Kind(String),
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

/// Where the spool of a backend is.
pub fn file(data_dir: &Path, name: &str) -> PathBuf {
    dir(data_dir).join(format!("{name}.db"))
}

/// The backends that have one, in order.
pub fn names(data_dir: &Path) -> Vec<String> {
    database::names(&dir(data_dir))
}

fn dir(data_dir: &Path) -> PathBuf {
    data_dir.join("spool")
}

impl Spool {
    /// The spool of a backend; nothing is read or made yet.
    pub(in crate::lane) fn new(
        data_dir: &Path,
        name: &str,
        kind: &'static str,
        durability: Durability,
    ) -> Self {
        let database = Database::new(file(data_dir, name), &FORMAT, durability.pragma());
        Self { database, kind, durability }
    }

    /// Changes what a commit waits for.
    pub(super) fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
        self.database.set_synchronous(durability.pragma());
    }

    /// What a commit waits for.
    pub(super) const fn durability(&self) -> Durability {
        self.durability
    }

    /// Says for people what is wrong.
    pub(super) fn sentence(&self, error: &Error) -> String {
        let (file, kind) = (self.file().display(), self.kind);
        match error {
            Error::Kind(_) => format!(
                "the spool {file} cannot be used for the kind {kind}: {error}; give this backend another name"
            ),
            _ => format!("the spool {file}: {error}"),
        }
    }

    /// Where it is.
    pub(in crate::lane) fn file(&self) -> &Path {
        self.database.file()
    }

    /// What is on disk from before, in order.
    pub(super) fn recover(&mut self) -> Result<Vec<Record>, Error> {
        if !self.database.exists() {
            return Ok(Vec::new());
        }
        let db = self.database.open()?;
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
        if store.is_empty() && !self.database.exists() {
            return Ok(());
        }
        let sizes = store.iter().map(|(record, _)| (record.bytes + record.waybill) as u64);
        if !store.is_empty() && !self.database.has_room(sizes.sum())? {
            return Err(database::Error::Full.into());
        }
        let kind = self.kind;
        let transaction = self.database.open()?.transaction()?;
        let mut delete = transaction.prepare_cached("DELETE FROM payloads WHERE id = ?1")?;
        for id in erase {
            delete.execute([id])?;
        }
        drop(delete);
        if !store.is_empty() {
            insert(&transaction, kind, store)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// A body with its waybill; `None` if it is not there, or not what was stored. A waybill that
    /// nobody can read says nothing.
    pub(super) fn read(&mut self, id: i64) -> Result<Option<Load>, Error> {
        let mut select = self
            .database
            .open()?
            .prepare_cached("SELECT checksum, body, waybill FROM payloads WHERE id = ?1")?;
        let found = select.query_row([id], |row| {
            let (sum, body): (u32, Vec<u8>) = (row.get(0)?, row.get(1)?);
            Ok((sum, body, row.get::<_, Option<Vec<u8>>>(2)?))
        });
        let whole = found.optional()?.filter(|(sum, body, _)| checksum(body) == *sum);
        Ok(whole.map(|(_, body, waybill)| Load { body: body.into(), waybill: parsed(waybill) }))
    }

    /// Gives the disk back what an outage took. For when nothing is stored any more.
    pub(super) fn shrink(&mut self) -> Result<(), Error> {
        Ok(self.database.remove()?)
    }

    /// Renames a file that cannot be used; the next [`write`](Self::write) begins a new one.
    pub(super) fn set_aside(&mut self) -> Result<PathBuf, Error> {
        Ok(self.database.set_aside()?)
    }
}

/// Inserts the records, and notes the kind of backend that they are for.
fn insert(
    transaction: &Transaction<'_>,
    kind: &str,
    store: &[(Record, Load)],
) -> Result<(), rusqlite::Error> {
    transaction.execute("INSERT OR REPLACE INTO backend (one, kind) VALUES (1, ?1)", [kind])?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO payloads (id, seq, part, born, points, checksum, body, waybill)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    for (Record { id, order, points, born, .. }, Load { body, waybill }) in store {
        let (sum, waybill) = (checksum(body), written(waybill));
        let (seq, part) = order;
        insert.execute(params![id, seq, part, born.0, points, sum, &body[..], waybill])?;
    }
    Ok(())
}

fn written(waybill: &Waybill) -> Option<Vec<u8>> {
    if waybill.legs().is_empty() { None } else { serde_json::to_vec(waybill).ok() }
}

fn parsed(waybill: Option<Vec<u8>>) -> Waybill {
    waybill.and_then(|waybill| serde_json::from_slice(&waybill).ok()).unwrap_or_default()
}

/// Bodies are large, and so are pages. The id is "PMSP". A waybill is JSON in a blob, whose length
/// can be told without reading the body that lies before it.
static FORMAT: Format = Format {
    application_id: 1_347_244_880,
    version: 2,
    page: 16 << 10,
    tables: "CREATE TABLE backend (one INTEGER PRIMARY KEY, kind TEXT NOT NULL) STRICT;
    CREATE TABLE payloads (
        id INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        part INTEGER NOT NULL,
        born INTEGER NOT NULL,
        points INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        body BLOB NOT NULL,
        waybill BLOB
    ) STRICT;",
    // The first version had no waybills.
    upgrades: &[(1, "ALTER TABLE payloads ADD COLUMN waybill BLOB;")],
};
