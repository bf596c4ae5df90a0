//! The dead letters of all backends, for whoever asks about them. Everything here blocks.
//!
//! They belong to a backend's name, and stay when the backend leaves the configuration: files of
//! names that nobody uses any more are opened, too, so that they can be looked at, replayed to
//! others and purged.

use super::file::{self, File, Tally, headings};
use super::{Heading, Letter, Place, Selection};
use super::{Letters, letters_dir, letters_file};
use crate::books::Books;
use crate::clock::Clock;
use crate::database;
use crate::plural::{counted, was};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};

/// All dead letters of a data directory.
#[derive(Debug)]
pub struct DeadLetters {
    data_dir: PathBuf,
    books: Arc<Books>,
    clock: Clock,
    ids: Arc<AtomicI64>,
    /// Never forgotten: there are as many as names were ever configured.
    by_name: Mutex<BTreeMap<String, Arc<Letters>>>,
}

/// Some letters, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Those that follow.
    pub headings: Vec<Heading>,
    /// After which id to go on; `None` if there are no more.
    pub next: Option<i64>,
    /// How much was asked for, on all pages.
    pub sum: Sum,
    /// Which files could not be read, and why; their letters are missing here.
    pub unreadable: Vec<String>,
}

/// How many letters, and points in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Letters.
    pub letters: u64,
    /// Their points that were refused.
    pub points: u64,
}

impl DeadLetters {
    /// Those of that directory; nothing is read or made yet.
    pub fn new(data_dir: PathBuf, books: Arc<Books>, clock: Clock) -> Arc<Self> {
        let (ids, by_name) = (Arc::default(), Mutex::default());
        Arc::new(Self { data_dir, books, clock, ids, by_name })
    }

    /// Those of one backend, with what an earlier run has left.
    pub fn of(&self, backend: &str) -> Arc<Letters> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || {
            let file = File::new(letters_file(&self.data_dir, backend));
            let (book, ids) = (self.books.backend(backend), Arc::clone(&self.ids));
            let letters = Letters::new(backend.to_owned(), book, self.clock, ids, Some(file));
            letters.open();
            letters
        };
        Arc::clone(by_name.entry(backend.to_owned()).or_insert_with(open))
    }

    /// Opens what earlier runs have left, of whatever backend.
    pub fn find(&self) {
        for name in names(&self.data_dir) {
            self.of(&name);
        }
    }

    /// A page of those that are selected: so many at the most, those before that id. A file that
    /// cannot be read costs no other.
    pub fn page(&self, which: &Selection, after: Option<i64>, limit: usize) -> Page {
        let mut part = Part::new(which, after, limit);
        for letters in self.selected(which) {
            let read = letters.reading(|db| part.read(db, &letters.name));
            part.page.unreadable.extend(read.err());
        }
        part.page()
    }

    /// One letter; of any backend if none is named.
    ///
    /// # Errors
    ///
    /// A sentence that says which file cannot be read.
    pub fn letter(&self, backend: Option<&str>, id: i64) -> Result<Option<Letter>, String> {
        let which = Selection { backend: backend.map(str::to_owned), ..Selection::default() };
        let mut unreadable = None;
        for letters in self.selected(&which) {
            match letters.letter(id) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(problem) => unreadable = Some(problem),
            }
        }
        unreadable.map_or(Ok(None), Err)
    }

    /// Removes those that are selected, which drops their points, `purged`.
    ///
    /// # Errors
    ///
    /// A sentence that says which files cannot be written, and what was removed from others.
    pub fn purge(&self, which: &Selection) -> Result<Sum, String> {
        let (mut sum, mut problems) = (Sum::default(), Vec::new());
        for letters in self.selected(which) {
            match letters.remove(which) {
                Ok(gone) => {
                    letters.lose("purged", gone.points);
                    sum.add(gone);
                }
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            return Ok(sum);
        }
        let Sum { letters, points } = sum;
        Err(format!(
            "{}; of others, {} with {} {} purged",
            problems.join("; "),
            counted(letters, "letter"),
            counted(points, "point"),
            was(letters)
        ))
    }

    /// Where those are that are selected, the oldest first; and which files cannot be read.
    pub fn places(&self, which: &Selection) -> (Vec<Place>, Vec<String>) {
        let (mut places, mut unreadable) = (Vec::new(), Vec::new());
        for letters in self.selected(which) {
            let backend = &letters.name;
            match letters.reading(|db| file::ids(db, which)) {
                Ok(ids) => places.extend(
                    ids.into_iter().flatten().map(|id| Place { id, backend: backend.clone() }),
                ),
                Err(problem) => unreadable.push(problem),
            }
        }
        places.sort();
        (places, unreadable)
    }

    /// One letter by its place.
    ///
    /// # Errors
    ///
    /// A sentence that says which file cannot be read.
    pub fn at(&self, place: &Place) -> Result<Option<Letter>, String> {
        self.letter(Some(&place.backend), place.id)
    }

    /// Removes letters whose points were handed to lanes again.
    ///
    /// # Errors
    ///
    /// A sentence that says which file cannot be written; they are then still there.
    pub fn replayed(&self, places: &[Place]) -> Result<Sum, String> {
        let mut sum = Sum::default();
        let mut by_backend: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for place in places {
            by_backend.entry(&place.backend).or_default().push(place.id);
        }
        for (backend, ids) in by_backend {
            let letters = self.of(backend);
            let gone = letters.remove(&Selection { ids: Some(ids), ..Selection::default() })?;
            letters.book.dead_letters.sub(gone.points);
            letters.book.replayed.add(gone.points);
            sum.add(gone);
        }
        Ok(sum)
    }

    fn selected(&self, which: &Selection) -> Vec<Arc<Letters>> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |name: &str| which.backend.as_ref().is_none_or(|meant| meant == name);
        by_name.values().filter(|letters| is_meant(&letters.name)).cloned().collect()
    }
}

/// What is asked of one file; what waits in memory is written first.
impl Letters {
    /// Takes up what an earlier run has left. A file that cannot be opened is tried again when
    /// there is something to write, and keeps nobody from starting.
    fn open(&self) {
        let mut place = self.file();
        let Some(file) = place.as_mut() else { return };
        let outcome = match self.take_up(file) {
            Err(error) if error.is_damage() => self.set_aside(file, &error),
            outcome => outcome,
        };
        if let Err(error) = outcome {
            self.complain(file, &error);
        }
    }

    fn letter(&self, id: i64) -> Result<Option<Letter>, String> {
        Ok(self.reading(|db| file::letter(db, &self.name, id))?.flatten())
    }

    fn reading<T>(
        &self,
        read: impl FnOnce(&rusqlite::Connection) -> Result<T, file::Error>,
    ) -> Result<Option<T>, String> {
        self.with(|file| file.readable()?.map(read).transpose())
    }

    fn remove(&self, which: &Selection) -> Result<Tally, String> {
        self.with(|file| file.remove(which, i64::MAX))
    }

    fn with<T: Default>(
        &self,
        act: impl FnOnce(&mut File) -> Result<T, file::Error>,
    ) -> Result<T, String> {
        let mut place = self.file();
        self.write(&mut place);
        let Some(file) = place.as_mut() else { return Ok(T::default()) };
        let done = self.take_up(file).and_then(|()| act(file));
        let done = match done {
            // As when it is written: what is damaged is no more to be had, and told of.
            Err(error) if error.is_damage() => self.set_aside(file, &error).map(|()| T::default()),
            done => done,
        };
        done.map_err(|error| sentence(file.path(), &error))
    }
}

/// A page of what lies in a data directory, without a gateway, or beside one.
pub fn list_files(data_dir: &Path, which: &Selection, after: Option<i64>, limit: usize) -> Page {
    let mut part = Part::new(which, after, limit);
    let is_meant = |name: &String| which.backend.as_ref().is_none_or(|meant| meant == name);
    for name in names(data_dir).into_iter().filter(is_meant) {
        let path = letters_file(data_dir, &name);
        let read = |db: rusqlite::Connection| part.read(&db, &name);
        let read = file::open_to_read(&path).and_then(read);
        part.page.unreadable.extend(read.err().map(|error| sentence(&path, &error)));
    }
    part.page()
}

fn sentence(path: &Path, error: &file::Error) -> String {
    format!("the dead letters {}: {error}", path.display())
}

/// The backends that have a file in a data directory, in order.
pub fn names(data_dir: &Path) -> Vec<String> {
    database::names(&letters_dir(data_dir))
}

/// A page that is being put together from the files of several backends.
struct Part<'a> {
    which: &'a Selection,
    before_id: i64,
    limit: usize,
    page: Page,
}

impl<'a> Part<'a> {
    fn new(which: &'a Selection, after: Option<i64>, limit: usize) -> Self {
        Self { which, before_id: after.unwrap_or(i64::MAX), limit, page: Page::default() }
    }

    fn read(&mut self, db: &rusqlite::Connection, backend: &str) -> Result<(), file::Error> {
        self.page.sum.add(file::count(db, self.which)?);
        // One more than wanted tells whether there is a next page.
        let found =
            headings(db, backend, self.which, self.before_id, self.limit.saturating_add(1))?;
        self.page.headings.extend(found);
        Ok(())
    }

    fn page(mut self) -> Page {
        let headings = &mut self.page.headings;
        headings.sort_by_key(|heading| std::cmp::Reverse(heading.place.id));
        if headings.len() > self.limit {
            headings.truncate(self.limit);
            self.page.next = headings.last().map(|heading| heading.place.id);
        }
        self.page
    }
}

impl Sum {
    fn add(&mut self, tally: Tally) {
        self.letters += tally.letters;
        self.points += tally.points;
    }
}
