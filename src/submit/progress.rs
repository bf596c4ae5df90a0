//! How far a file has been submitted, in a small file beside it.
//!
//! It is written before each request is sent and after the last one was answered. So it says where to
//! resume, and where the batches ended whose fate is not known yet: the next run makes the same batches
//! again, and sends them under the same keys. A file that was submitted to its end is not submitted again;
//! one that has grown is submitted from there on.
//!
//! A last line without a line end is remembered separately ([`Tail`]): if the file grows, it is known
//! whether that line is still what was sent.

use super::batch::Place;
use super::format::Format;
use super::source::{Identity, Known};
use super::totals::Totals;
use crate::file_id::hash;
use crate::small_file;
use crate::whole_file::{self, Lasting, beside};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is remembered of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    version: u32,
    /// The file, as it was last seen.
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
    /// What the file ended with.
    pub(super) tail: Option<Tail>,
    /// What became of it up to `offset`.
    pub(super) totals: Totals,
}

/// What of a command line decides what is sent where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) to: String,
    pub(super) points: Points,
    pub(super) wait: bool,
}

/// What of it decides which points a file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Points {
    pub(super) format: Format,
    pub(super) prefix: String,
    pub(super) series: Option<String>,
}

/// A line that was sent before its end was there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tail {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Of what was sent of it.
    pub(super) hash: String,
    /// What became of it, if that is known.
    pub(super) totals: Option<Totals>,
}

impl Progress {
    /// Of a file of which nothing was sent. The keys follow from the file and from what was asked
    /// for, so that they are the same for whoever asks the same, though this should be lost.
    pub(super) fn new(file: Identity, asked: Asked, salt: Option<[u8; 16]>) -> Self {
        let id = serde_json::to_vec(&(VERSION, &file, &asked.points, salt)).unwrap_or_default();
        Self {
            version: VERSION,
            id: hash(&id),
            file,
            asked,
            offset: 0,
            line: 0,
            pending: Vec::new(),
            tail: None,
            totals: Totals::default(),
        }
    }

    /// What is remembered of a file; none if that was another.
    ///
    /// # Errors
    ///
    /// That what is there cannot be read.
    pub(super) fn read(at: &Path, now: &Known) -> Result<Option<Self>, String> {
        match fs::metadata(at) {
            // A name may be too long for another to stand beside it.
            Err(error) if matches!(error.kind(), NotFound | InvalidFilename) => return Ok(None),
            Err(error) => return Err(format!("{error}; {STATE}")),
            Ok(_) => {}
        }
        // Others may write there, too: a pipe, or a link to a device.
        let text = small_file::read(at, BYTES_MAX).map_err(|what| format!("{what}; {STATE}"))?;
        // After a loss of power there may be a file without its content. The keys are the same without it.
        if text.is_empty() {
            return Ok(None);
        }
        let version = serde_json::from_slice::<Version>(&text).map_err(|_| damaged())?;
        if version.version != VERSION {
            return Err(format!("another version of this program wrote it; {AGAIN}"));
        }
        let progress: Self = serde_json::from_slice(&text).map_err(|_| damaged())?;
        let known = now.continues(&progress.file).then_some(progress);
        Ok(known.map(|known| Self { file: now.identity.clone(), ..known }))
    }

    /// The same for a run with these options, if that is the same submission; none if it is another one
    /// and nothing has come of this one.
    ///
    /// # Errors
    ///
    /// What was asked for before, where something has come of that.
    pub(super) fn asked_for(self, asked: &Asked) -> Result<Option<Self>, String> {
        let differences = self.asked.differences(asked);
        if differences.is_empty() {
            // A request that waits is another request, though it has the same points.
            if self.asked.wait != asked.wait && self.is_waiting() {
                let before = if self.asked.wait { "with" } else { "without" };
                return Err(format!("it was interrupted {before} --wait; say the same again"));
            }
            return Ok(Some(Self { asked: asked.clone(), ..self }));
        }
        if self.known().0 == 0 {
            return Ok(None);
        }
        let differences = differences.join(", ");
        Err(format!("it is of a submission with other options ({differences}); {SAME}"))
    }

    /// Where to go on.
    pub(super) const fn place(&self) -> Place {
        Place { offset: self.offset, line: self.line }
    }

    /// Up to where it is known what became of it, and what that is.
    pub(super) fn known(&self) -> (u64, Totals) {
        let mut totals = self.totals.clone();
        match &self.tail {
            Some(Tail { end, totals: Some(tail), .. }) => {
                totals.add(tail);
                (*end, totals)
            }
            _ => (self.offset, totals),
        }
    }

    /// Whether something was sent of which nothing is known.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.tail.as_ref().is_some_and(|tail| tail.totals.is_none())
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
        self.tail.take_if(|tail| tail.start < place.offset);
        self.totals.add(totals);
    }

    /// It is known what became of the tail.
    pub(super) fn settle_tail(&mut self, totals: &Totals) {
        if let Some(tail) = &mut self.tail {
            tail.totals = Some(totals.clone());
        }
    }

    /// Writes it, in the place of what was there. Two runs at the same time would write the same, but not
    /// at the same moment, so each writes a file of its own first. It does not wait for the disk, which
    /// would take longer than submitting a small file: should it be lost, the keys protect.
    pub(super) fn write(&self, at: &Path) -> io::Result<()> {
        let fresh = beside(at, &format!(".{}", std::process::id()));
        whole_file::replace(at, &fresh, &serde_json::to_vec(self)?, Lasting::Process)
    }
}

impl Asked {
    /// What was asked for before, and is not now.
    fn differences(&self, now: &Self) -> Vec<String> {
        let (before, points) = (&self.points, &now.points);
        let series = |points: &Points| points.series.clone().unwrap_or_default();
        let formats = [before, points].map(|points| format!("{:?}", points.format).to_lowercase());
        [
            ("to", &self.to, &now.to),
            ("format", &formats[0], &formats[1]),
            ("prefix", &before.prefix, &points.prefix),
            ("series", &series(before), &series(points)),
        ]
        .into_iter()
        .filter(|(_, before, now)| before != now)
        .map(|(option, before, _)| format!("--{option} {before:?}"))
        .collect()
    }
}

/// What every version writes.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

fn damaged() -> String {
    format!("it is damaged; {AGAIN}")
}

/// Where the progress of a file is: beside it, or under `state`.
pub(super) fn place_of(path: &Path, state: Option<&Path>) -> PathBuf {
    match state {
        None => beside(path, ENDING),
        Some(state) => {
            let name = path.file_name().unwrap_or_default();
            let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let hash = hash(whole.as_os_str().as_encoded_bytes());
            beside(&state.join(name), &format!("-{hash}{ENDING}"))
        }
    }
}

/// Whether a file is one of these, as it may be where all files of a folder are meant.
pub(super) fn is_progress(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(ENDING))
}

use io::ErrorKind::{InvalidFilename, NotFound};

const ENDING: &str = ".pointsman-progress";

/// What mends it.
const SAME: &str = "say the same again, or --again to submit all of the file once more";
const AGAIN: &str = "say --again to submit all of the file once more";
const STATE: &str = "say --state DIR to keep it somewhere else";

/// Far more than a hundred refusals and all that is on its way.
const BYTES_MAX: usize = 16 << 20;

/// Of the file, and of how batches are made, since these are made again from it.
const VERSION: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::source::open;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    fn asked(prefix: &str) -> Asked {
        let points = Points { format: Format::Csv, prefix: prefix.into(), series: None };
        Asked { to: "http://h".into(), points, wait: false }
    }

    fn known(path: &Path) -> Known {
        open(path).unwrap().known.unwrap()
    }

    fn progress(path: &Path) -> Progress {
        Progress::new(known(path).identity, asked(""), None)
    }

    #[test]
    fn what_is_written_is_read_while_the_file_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let at = place_of(&path, None);
        assert_eq!(at, dir.path().join("a.csv.pointsman-progress"));
        fs::write(&path, "a\n1\n").unwrap();
        let read = || Progress::read(&at, &known(&path)).unwrap();
        assert_eq!(read(), None);
        let mut progress = progress(&path);
        [9, 4, 9].into_iter().for_each(|end| progress.begin(end));
        assert_eq!(progress.pending, [4, 9]);
        progress.settle(Place { offset: 4, line: 2 }, &Totals { accepted: 1, ..Totals::default() });
        assert_eq!(progress.pending, [9]);
        progress.write(&at).unwrap();
        assert_eq!(read(), Some(progress.clone()));

        fs::write(&path, "a\n1\n2\n").unwrap();
        let grown = read().unwrap();
        assert_eq!((grown.place(), &grown.id), (progress.place(), &progress.id), "it has grown");
        fs::write(&path, "b\n1\n2\n").unwrap();
        assert_eq!(read(), None, "it says something else");
        fs::write(&path, "a\n").unwrap();
        assert_eq!(read(), None, "it was cut");
        fs::write(&at, "{").unwrap();
        assert!(Progress::read(&at, &known(&path)).is_err());
        fs::write(&at, r#"{"version":1}"#).unwrap();
        let says = Progress::read(&at, &known(&path)).unwrap_err();
        assert!(says.contains("another version"), "{says}");
        fs::write(&at, "").unwrap();
        assert_eq!(read(), None, "it was lost");
    }

    /// A table of the next day begins with the same names of columns.
    #[test]
    fn a_file_that_was_written_anew_and_longer_has_not_grown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let rows = |first: u64, count: u64| {
            let rows = (first..first + count).map(|n| format!("{n:09}\n"));
            format!("{}\n{}", "long".repeat(2000), rows.collect::<String>())
        };
        fs::write(&path, rows(0, 1000)).unwrap();
        let at = place_of(&path, None);
        progress(&path).write(&at).unwrap();
        fs::write(&path, rows(0, 1001)).unwrap();
        assert!(Progress::read(&at, &known(&path)).unwrap().is_some(), "it has grown");
        fs::write(&path, rows(5000, 1001)).unwrap();
        assert_eq!(Progress::read(&at, &known(&path)), Ok(None));
    }

    #[test]
    fn keys_follow_from_the_file_and_from_what_was_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        fs::write(&path, "a\n1\n").unwrap();
        let id = |asked, salt| Progress::new(known(&path).identity, asked, salt).id;
        assert_eq!(id(asked("p/"), None), id(asked("p/"), None));
        assert_ne!(id(asked("p/"), None), id(asked("q/"), None));
        assert_ne!(id(asked("p/"), None), id(asked("p/"), Some([1; 16])));
        let elsewhere = Asked { to: "http://other".into(), wait: true, ..asked("p/") };
        assert_eq!(id(asked("p/"), None), id(elsewhere, None), "these are the same points");
    }

    #[test]
    fn another_directory_keeps_files_apart() {
        let state = Some(Path::new("/s"));
        let [a, b] = ["/x/a.csv", "/y/a.csv"].map(|path| place_of(Path::new(path), state));
        assert_ne!(a, b);
        assert!(a.to_str().unwrap().starts_with("/s/a.csv-"), "{a:?}");
        assert!(is_progress(&a) && !is_progress(Path::new("/x/a.csv")));
        let [a, b] = [b"\xfe.csv", b"\xff.csv"].map(|name| Path::new(OsStr::from_bytes(name)));
        assert_ne!(place_of(a, None), place_of(b, None));
    }
}
