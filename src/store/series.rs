//! Series and their ids in the table.

use super::Error;
use super::row::Row;
use hashbrown::HashMap;
use rusqlite::{Connection, OptionalExtension};

/// The ids of series met lately, so that a known series costs no query.
#[derive(Debug, Default)]
pub(super) struct SeriesIds {
    ids: HashMap<(String, String), i64>,
    /// What their names and tags come to.
    pub(super) bytes: usize,
}

impl SeriesIds {
    /// The id of a row's series, which is added to the table if it is new.
    pub(super) fn id(&mut self, db: &Connection, row: &Row) -> Result<i64, Error> {
        if let Some(id) = self.ids.get(&Key(&row.name, &row.tags)) {
            return Ok(*id);
        }
        let id = find_or_add(db, row)?;
        if self.ids.len() >= IDS_MAX || self.bytes >= BYTES_MAX {
            self.clear();
        }
        self.bytes += row.name.len() + row.tags.len();
        self.ids.insert((row.name.clone(), row.tags.clone()), id);
        Ok(id)
    }

    /// Forgets one series that has left the table.
    pub(super) fn forget(&mut self, name: &str, tags: &str) {
        if self.ids.remove(&Key(name, tags)).is_some() {
            self.bytes -= name.len() + tags.len();
        }
    }

    /// Forgets all, after a transaction that may have made some was rolled back.
    pub(super) fn clear(&mut self) {
        self.ids.clear();
        self.bytes = 0;
    }
}

fn find_or_add(db: &Connection, row: &Row) -> Result<i64, Error> {
    let mut find = db.prepare_cached("SELECT id FROM series WHERE name = ?1 AND tags = ?2")?;
    let found = find.query_row([&row.name, &row.tags], |found| found.get(0)).optional()?;
    if let Some(id) = found {
        return Ok(id);
    }
    db.prepare_cached("INSERT INTO series (name, tags) VALUES (?1, ?2)")?
        .execute([&row.name, &row.tags])?;
    Ok(db.last_insert_rowid())
}

/// A key that is looked up without copying it.
#[derive(Hash)]
struct Key<'a>(&'a str, &'a str);

impl hashbrown::Equivalent<(String, String)> for Key<'_> {
    fn equivalent(&self, key: &(String, String)) -> bool {
        self.0 == key.0 && self.1 == key.1
    }
}

/// About 20 MiB of names and tags of usual length.
const IDS_MAX: usize = 100_000;

/// The same where names and tags are as long as senders like.
pub(super) const BYTES_MAX: usize = 64 << 20;
