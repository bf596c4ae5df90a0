//! The embedded store: the last while of every series, in one SQLite file that needs no server.
//!
//! The file is `store.db` in the data directory, in WAL mode, and any SQLite shell reads it:
//!
//! ```text
//! series   id · name · tags                  tags: a JSON object, keys sorted, a bare tag is "true"
//! points   id · series · time · arrived · fields
//!             time and arrived: nanoseconds since 1970 · fields: a JSON object
//!             id ascends as points arrive; (series, time) is unique
//! readings    a view for people: name · tags · time as ISO 8601 · field · value
//!
//! sqlite3 pointsman-data/store.db "SELECT * FROM readings WHERE name = 'demo.x'"
//! ```
//!
//! A point is one row with its columns in JSON, so it is written whole or not at all, and numbers
//! keep their type and every digit: `1` and `1.0`, `true`, and integers up to 2^64-1.
//! (The view shows those above 2^63-1 as doubles; `fields` itself is exact.)
//!
//! **Two points of a series in one nanosecond**: an identical one is a repeat and changes nothing,
//! which makes shipping a payload twice harmless; a different one is moved on to the next free
//! nanosecond.
//!
//! **What is forgotten** goes by arrival, not by the time that a point tells: whoever tries the
//! gateway with an old timestamp finds the point again. The oldest arrivals leave after
//! `retention`, or earlier when the file would grow past `max_size`; their pages are given back to
//! the file system, and series without points are forgotten with them.
//!
//! **Damage** never stops the gateway: a file that SQLite cannot read, or that is not ours, is
//! renamed to `store.db.damaged-N` (the newest three are kept) and a new one is begun. A full or
//! unwritable disk is a reason to try again later.
//!
//! [`Writer`] is the one who writes, [`Store`] reads; both block, and belong on a blocking thread.

mod query;
mod row;
mod schema;
mod series;
mod sweep;
mod write;

pub use query::{Answer, Question, Row, Series, Store};
pub use sweep::Swept;
pub use write::{Writer, Written};

use crate::units::{Size, Span};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the store of a data directory lies.
pub fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("store.db")
}

/// What the store may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Points that arrived longer ago are forgotten.
    pub retention: Duration,
    /// The file is kept below this many bytes; the log that SQLite writes beside it adds a few MiB.
    pub max_size: u64,
}

impl Limits {
    /// With the defaults for what is not said.
    pub fn new(retention: Option<Span>, max_size: Option<Size>) -> Self {
        Self {
            retention: retention.unwrap_or(DEFAULT_RETENTION).0,
            max_size: max_size.unwrap_or(DEFAULT_MAX_SIZE).max(MAX_SIZE_MIN).0,
        }
    }
}

/// Why the store could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no file, so nothing was ever stored here.
    #[error("there is no store in `{}`", .0.display())]
    Missing(PathBuf),
    /// The directory or the file cannot be made, renamed or opened.
    #[error("`{}`: {}", .0.display(), .1)]
    File(PathBuf, std::io::Error),
    /// SQLite's own words.
    #[error("the store: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The file is another program's, or a later version's.
    #[error("the store's file is not one that this version of Pointsman wrote")]
    Foreign,
    /// The name is a glob or a regular expression that cannot be understood.
    #[error("{0}")]
    Pattern(String),
}

impl Error {
    /// Whether the file itself is bad, so that waiting will not help.
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            Self::Sqlite(error) => {
                matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
            }
            Self::Foreign => true,
            Self::Missing(_) | Self::File(..) | Self::Pattern(_) => false,
        }
    }
}

/// A day: long enough to look at yesterday's surprise, short enough to stay small.
const DEFAULT_RETENTION: Span = Span::secs(86_400);

/// About ten million rows of a few columns.
const DEFAULT_MAX_SIZE: Size = Size::mib(1024);

/// Below this the tables' own pages would leave no room for points.
const MAX_SIZE_MIN: Size = Size::kib(256);
