//! What our SQLite files in the data directory have in common: how one is made and told from any
//! other file, what is wrong with one that is damaged, and how it leaves.
//!
//! A file is made when it is first written to. It is opened only by its owner, since what opens
//! it may change it; the lock on the data directory sees to that. One that is taken away while it
//! is in use is written anew from what is still open, since what was stored in it was promised to
//! last. Every method blocks.

use crate::file_id::FileId;
use nix::sys::statvfs::statvfs;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// A SQLite file of ours, opened when it is needed.
#[derive(Debug)]
pub(crate) struct Database {
    file: PathBuf,
    format: &'static Format,
    synchronous: &'static str,
    /// With what tells the file from any other that may come to lie in its place.
    db: Option<(Connection, Option<FileId>)>,
}

/// What makes a file one of its sort.
#[derive(Debug)]
pub(crate) struct Format {
    /// Tells it from any other file.
    pub(crate) application_id: i64,
    /// Tells it from those of other versions.
    pub(crate) version: i64,
    /// The size of a page.
    pub(crate) page: u32,
    /// The statements that make its tables.
    pub(crate) tables: &'static str,
    /// Earlier versions, each with the statements that make this one of it.
    pub(crate) upgrades: &'static [(i64, &'static str)],
}

/// What can be wrong with it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// SQLite said so.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The file system said so.
    #[error("{0}")]
    File(#[from] io::Error),
    /// What is to be stored would take room that erasing needs.
    #[error("the file system is nearly full")]
    Full,
    /// It is another sort of file, or one of another version.
    #[error("this is no such file of this version")]
    Foreign,
}

impl Error {
    /// Whether the file itself is bad, so that waiting will not help.
    pub(crate) fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, Unknown};
        match self {
            // Without a code, a value is not what its column should hold; an unknown one is said
            // of tables that are not there.
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                None | Some(DatabaseCorrupt | NotADatabase | Unknown)
            ),
            Self::Foreign => true,
            Self::File(_) | Self::Full => false,
        }
    }
}

impl Database {
    /// The database in that file; nothing is read or made yet.
    pub(crate) fn new(file: PathBuf, format: &'static Format, synchronous: &'static str) -> Self {
        Self { file, format, synchronous, db: None }
    }

    /// Where it is.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Whether there is anything to read.
    pub(crate) fn exists(&self) -> bool {
        self.db.is_some() || self.file.exists()
    }

    /// Changes what a commit waits for.
    pub(crate) fn set_synchronous(&mut self, synchronous: &'static str) {
        if std::mem::replace(&mut self.synchronous, synchronous) != synchronous {
            // It is opened anew when it is next needed.
            self.db = None;
        }
    }

    /// The connection; the file is made if it is not there.
    pub(crate) fn open(&mut self) -> Result<&mut Connection, Error> {
        if self.db.is_some() && !self.is_in_place() {
            self.put_back()?;
        }
        let db = match self.db.take() {
            Some((db, _)) => db,
            None => connect(&self.file, self.format, self.synchronous)?,
        };
        let (db, _) = self.db.insert((db, FileId::at(&self.file)));
        Ok(db)
    }

    /// Whether the file that is open is the one that the next process would find.
    fn is_in_place(&self) -> bool {
        self.db.as_ref().is_some_and(|(_, opened)| *opened == FileId::at(&self.file))
    }

    /// Writes a file that somebody took away anew. Another that lies in its place is set aside.
    fn put_back(&mut self) -> Result<(), Error> {
        let Some((db, _)) = &self.db else { return Ok(()) };
        let copy = self.beside(".again");
        make_dir_of(&copy)?;
        remove_if_there(&copy)?;
        db.execute("VACUUM INTO ?1", [copy.to_string_lossy()])?;
        let file = self.file.display();
        tracing::error!(%file, "the file was taken away while it was in use; what it held is written anew");
        if self.file.exists() {
            self.set_aside()?;
        } else {
            self.remove()?;
        }
        Ok(fs::rename(copy, &self.file)?)
    }

    /// Closes it until it is needed again, which moves the log of changes into the file.
    pub(crate) fn close(&mut self) {
        self.db = None;
    }

    /// Whether so much can be stored and erased again. A full file system would not let even
    /// that happen, since the log of changes comes first and the file itself second.
    pub(crate) fn has_room(&mut self, size: u64) -> Result<bool, Error> {
        let page = u64::from(self.format.page);
        let free: u64 = self
            .open()?
            .pragma_query_value(None, "freelist_count", |row| row.get::<_, u32>(0))?
            .into();
        let disk = statvfs(&self.file).map_err(io::Error::from)?;
        let room = disk.blocks_available() * disk.fragment_size() + free * page;
        Ok(2 * size + RESERVE <= room)
    }

    /// Gives the disk back. For when nothing is stored any more.
    pub(crate) fn remove(&mut self) -> Result<(), Error> {
        // Closing it moves the log into the file. Were the log to stay, it must not be applied
        // to the next file.
        self.db = None;
        for part in ["-wal", "-shm", ""] {
            remove_if_there(&self.beside(part))?;
        }
        Ok(())
    }

    /// Renames a file that cannot be used; the next [`open`](Self::open) begins a new one.
    pub(crate) fn set_aside(&mut self) -> Result<PathBuf, Error> {
        self.db = None;
        let beside = |suffix: &str| self.beside(suffix);
        let is_free = |n: &u32| !beside(&format!(".damaged-{n}")).exists();
        let n = (1..=u32::MAX).find(is_free).unwrap_or(u32::MAX);
        let aside = beside(&format!(".damaged-{n}"));
        if self.file.exists() {
            fs::rename(&self.file, &aside)?;
        }
        for log in ["-wal", "-shm"] {
            // SQLite would apply a log that was left behind to the new file.
            if beside(log).exists() {
                fs::rename(beside(log), beside(&format!(".damaged-{n}{log}")))?;
            }
        }
        Ok(aside)
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.file.clone().into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    }
}

fn connect(file: &Path, format: &Format, synchronous: &str) -> Result<Connection, Error> {
    make_dir_of(file)?;
    let db = Connection::open(file)?;
    db.busy_timeout(BUSY)?;
    // First of all, since what follows would change a file that is not ours.
    let to_do = statements(&db, format)?;
    db.pragma_update(None, "page_size", format.page)?;
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    db.pragma_update(None, "synchronous", synchronous)?;
    db.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    db.pragma_update_and_check(None, "wal_autocheckpoint", LOG_BYTES / format.page, |_| Ok(()))?;
    if let Some(statements) = to_do {
        let Format { application_id, version, .. } = format;
        db.execute_batch(&format!(
            "BEGIN; {statements}
             PRAGMA application_id = {application_id}; PRAGMA user_version = {version}; COMMIT;"
        ))?;
    }
    Ok(db)
}

fn make_dir_of(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), fs::create_dir_all)
}

fn remove_if_there(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// What makes a file that was just opened one of the present version; `None` if it is one.
fn statements(db: &Connection, format: &Format) -> Result<Option<&'static str>, Error> {
    let number = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let (application_id, version) = (number("application_id")?, number("user_version")?);
    if (application_id, version) == (0, 0) {
        let tables: u32 =
            db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        return if tables == 0 { Ok(Some(format.tables)) } else { Err(Error::Foreign) };
    }
    if application_id != format.application_id {
        return Err(Error::Foreign);
    }
    if version == format.version {
        return Ok(None);
    }
    let upgrade = format.upgrades.iter().find(|(from, _)| *from == version);
    upgrade.map(|(_, statements)| Some(*statements)).ok_or(Error::Foreign)
}

/// What the databases in a directory are called, in order.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let name =
        |file: fs::DirEntry| Some(file.file_name().to_str()?.strip_suffix(".db")?.to_owned());
    let mut names: Vec<_> = files.filter_map(name).collect();
    names.sort();
    names
}

/// What tells a body that is still as it was stored.
pub(crate) fn checksum(body: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(body);
    sum.sum()
}

/// When the log of changes goes into the file.
const LOG_BYTES: u32 = 4 << 20;
/// Left free, so that a full disk can be erased.
const RESERVE: u64 = 2 << 20;
/// For whoever looks at the file with a shell.
const BUSY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    static FORMAT: Format = Format {
        application_id: 7,
        version: 1,
        page: 4 << 10,
        tables: "CREATE TABLE t (n INTEGER PRIMARY KEY) STRICT;",
        upgrades: &[],
    };

    fn numbers(dir: &Path) -> Database {
        Database::new(dir.join("inner/numbers.db"), &FORMAT, "NORMAL")
    }

    fn add(database: &mut Database, number: i64) {
        database.open().unwrap().execute("INSERT INTO t VALUES (?1)", [number]).unwrap();
    }

    fn all(database: &mut Database) -> Vec<i64> {
        let mut select = database.open().unwrap().prepare("SELECT n FROM t ORDER BY n").unwrap();
        select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    /// What the next process finds when the file is treated so while it is in use.
    fn check(treat: impl FnOnce(&Path, &Path)) {
        let dir = tempfile::tempdir().unwrap();
        let mut database = numbers(dir.path());
        add(&mut database, 1);
        let file = database.file().to_owned();
        treat(dir.path(), &file);
        add(&mut database, 2);
        assert_eq!(all(&mut database), [1, 2]);
        // As after a kill: nobody closes it.
        std::mem::forget(database);
        assert_eq!(all(&mut numbers(dir.path())), [1, 2]);
    }

    #[test]
    fn a_file_that_is_taken_away_is_written_anew() {
        check(|_, file| fs::remove_file(file).unwrap());
        check(|dir, _| fs::remove_dir_all(dir.join("inner")).unwrap());
        check(|dir, file| fs::rename(file, dir.join("elsewhere")).unwrap());
    }

    #[test]
    fn a_file_that_lies_in_the_place_of_ours_is_set_aside() {
        check(|dir, file| {
            let mut other = numbers(&dir.join("other"));
            add(&mut other, 9);
            other.close();
            fs::rename(other.file(), file).unwrap();
        });
    }
}
