//! How far a file has been submitted, in a small file beside it.
//!
//! It is written before a request is sent and after the last one was answered. So it tells where to
//! go on, and where the batches ended that nobody knows about yet: whoever goes on makes the same
//! batches again, and sends them under the same keys. A file that was submitted to its end is not
//! submitted again; one that has grown is from there on.

use super::batches::Place;
use super::source::{Identity, hash};
use super::totals::Totals;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is remembered of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    version: u32,
    /// The file, when it was first seen.
    file: Identity,
    /// The beginning of the keys of its requests.
    pub(super) id: String,
    /// What would make it another submission.
    pub(super) asked: Asked,
    /// Up to where it is known what became of it, decompressed.
    offset: u64,
    line: u64,
    /// Where the batches end that were sent after that.
    pub(super) pending: Vec<u64>,
    /// What became of it up to there.
    pub(super) totals: Totals,
}

/// What of a command line decides what is sent where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) to: String,
    pub(super) format: String,
    pub(super) prefix: String,
    pub(super) series: Option<String>,
    pub(super) wait: bool,
}

impl Progress {
    /// Of a file of which nothing was sent.
    pub(super) fn new(file: Identity, asked: Asked, id: String) -> Self {
        let (pending, totals) = (Vec::new(), Totals::default());
        Self { version: VERSION, file, id, asked, offset: 0, line: 0, pending, totals }
    }

    /// What is remembered of the file at `path`, which looks like `now`; none if that was another.
    ///
    /// # Errors
    ///
    /// That what is there cannot be read.
    pub(super) fn read(at: &Path, path: &Path, now: &Identity) -> Result<Option<Self>, String> {
        let text = match fs::read(at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
            Ok(text) => text,
        };
        let progress: Self =
            serde_json::from_slice(&text).map_err(|_| "it is damaged".to_owned())?;
        if progress.version != VERSION {
            return Err("another version of this program wrote it".to_owned());
        }
        Ok(now.continues(&progress.file, path).then_some(progress))
    }

    pub(super) const fn place(&self) -> Place {
        Place { offset: self.offset, line: self.line }
    }

    /// A batch that ends there is sent.
    pub(super) fn begin(&mut self, end: u64) {
        if let Err(place) = self.pending.binary_search(&end) {
            self.pending.insert(place, end);
        }
    }

    /// It is known now what became of all before `place`.
    pub(super) fn settle(&mut self, place: Place, totals: &Totals) {
        (self.offset, self.line) = (place.offset, place.line);
        self.pending.retain(|end| *end > place.offset);
        self.totals.add(totals);
    }

    /// Writes it, in place of what was there.
    pub(super) fn write(&self, at: &Path) -> io::Result<()> {
        let fresh = at.with_extension("pointsman-progress-new");
        fs::write(&fresh, serde_json::to_vec(self)?)?;
        fs::rename(&fresh, at)
    }
}

/// Where the progress of a file is: beside it, or under `state`.
pub(super) fn place_of(path: &Path, state: Option<&Path>) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match state {
        None => path.with_file_name(format!("{name}.{ENDING}")),
        Some(state) => {
            let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let hash = hash(whole.as_os_str().as_encoded_bytes());
            state.join(format!("{name}-{hash}.{ENDING}"))
        }
    }
}

const ENDING: &str = "pointsman-progress";
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::source::open;

    fn asked() -> Asked {
        let (to, format, prefix) = ("http://h".into(), "csv".into(), String::new());
        Asked { to, format, prefix, series: None, wait: false }
    }

    fn identity(path: &Path) -> Identity {
        open(path).unwrap().identity.unwrap()
    }

    #[test]
    fn what_is_written_is_read_while_the_file_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let at = place_of(&path, None);
        assert_eq!(at, dir.path().join("a.csv.pointsman-progress"));
        fs::write(&path, "a\n1\n").unwrap();
        let first = identity(&path);
        assert_eq!(Progress::read(&at, &path, &first), Ok(None));
        let mut progress = Progress::new(first.clone(), asked(), first.id());
        [9, 4, 9].into_iter().for_each(|end| progress.begin(end));
        assert_eq!(progress.pending, [4, 9]);
        progress.settle(Place { offset: 4, line: 2 }, &Totals { accepted: 1, ..Totals::default() });
        assert_eq!(progress.pending, [9]);
        progress.write(&at).unwrap();
        assert_eq!(Progress::read(&at, &path, &first), Ok(Some(progress.clone())));

        let read = || Progress::read(&at, &path, &identity(&path)).unwrap();
        fs::write(&path, "a\n1\n2\n").unwrap();
        assert_eq!(read(), Some(progress), "it has grown");
        fs::write(&path, "b\n1\n2\n").unwrap();
        assert_eq!(read(), None, "it says something else");
        fs::write(&path, "a\n").unwrap();
        assert_eq!(read(), None, "it was cut");
        fs::write(&at, "{").unwrap();
        assert!(Progress::read(&at, &path, &first).is_err());
    }

    #[test]
    fn another_directory_keeps_files_apart() {
        let state = Some(Path::new("/s"));
        let [a, b] = ["/x/a.csv", "/y/a.csv"].map(|path| place_of(Path::new(path), state));
        assert_ne!(a, b);
        assert!(a.to_str().unwrap().starts_with("/s/a.csv-"), "{a:?}");
    }
}
