//! What was made of files, and is made anew when they change.

use super::files::{self, File, Problem};
use arc_swap::ArcSwap;
use ring::digest::{Context, Digest, SHA256};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// What is made of a `tls` block whose files may change.
pub(super) trait Source: Send + Sync + 'static {
    /// What is made.
    type Made: Send + Sync;

    /// The files, each with its key in the block.
    fn files(&self) -> Vec<(&'static str, &Path)>;

    /// Makes it of their contents.
    fn make(&self, files: &[File<'_>], now: u64) -> Result<Made<Self::Made>, Problem>;
}

/// What was made, and what is to be said about it.
pub(super) struct Made<T> {
    pub(super) value: T,
    /// When the certificate in it ends, in seconds since 1970.
    pub(super) expires: Option<u64>,
    pub(super) oddities: Vec<Problem>,
}

/// What became of a look at the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// They are as they were.
    Same,
    /// They are new and in use; so much is odd about them.
    New(Vec<Problem>),
    /// They cannot be used; what was made of earlier ones is kept. Told once for each problem.
    Kept(Problem),
    /// So it is still.
    StillKept,
}

/// The present value of what a source makes.
pub(super) struct Live<S: Source> {
    source: S,
    value: ArcSwap<S::Made>,
    seen: Mutex<Seen>,
}

struct Seen {
    print: Digest,
    expires: Option<u64>,
    /// What is wrong with the files of now.
    problem: Option<Problem>,
}

impl<S: Source> Live<S> {
    /// Makes it for the first time; answers what is odd about the files, too.
    pub(super) fn load(source: S) -> Result<(Arc<Self>, Vec<Problem>), Problem> {
        let (made, print) = make(&source)?;
        let seen = Mutex::new(Seen { print, expires: made.expires, problem: None });
        let value = ArcSwap::from_pointee(made.value);
        Ok((Arc::new(Self { source, value, seen }), made.oddities))
    }

    /// What it is made of.
    pub(super) const fn source(&self) -> &S {
        &self.source
    }

    /// The present value.
    pub(super) fn now(&self) -> Arc<S::Made> {
        self.value.load_full()
    }

    /// When the certificate in it ends.
    pub(super) fn expires(&self) -> Option<u64> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).expires
    }

    /// Looks at the files, and makes the value anew if they have changed. Reads them whole: a
    /// change that keeps size and time is seen, too.
    pub(super) fn renew(&self) -> Renewal {
        // Locked before it reads, so that of two who renew at a time the later one has the newer.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match make(&self.source) {
            Ok((_, print)) if print.as_ref() == seen.print.as_ref() => {
                seen.problem = None;
                Renewal::Same
            }
            Ok((made, print)) => {
                self.value.store(Arc::new(made.value));
                *seen = Seen { print, expires: made.expires, problem: None };
                Renewal::New(made.oddities)
            }
            Err(problem) if seen.problem.as_ref() == Some(&problem) => Renewal::StillKept,
            Err(problem) => {
                seen.problem = Some(problem.clone());
                Renewal::Kept(problem)
            }
        }
    }
}

fn make<S: Source>(source: &S) -> Result<(Made<S::Made>, Digest), Problem> {
    let paths = source.files();
    let files: Vec<_> =
        paths.into_iter().map(|(key, path)| files::read(key, path)).collect::<Result<_, _>>()?;
    let mut print = Context::new(&SHA256);
    for file in &files {
        print.update(&(file.content.len() as u64).to_le_bytes());
        print.update(&file.content);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    Ok((source.make(&files, now)?, print.finish()))
}

/// Never what it is made of.
impl<S: Source> fmt::Debug for Live<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

/// The file under a key, which the source has asked for.
pub(super) fn file<'f, 'p>(files: &'f [File<'p>], key: &'static str) -> Option<&'f File<'p>> {
    files.iter().find(|file| file.key == key)
}
