//! Small files that are only ever there as a whole: written beside, and then renamed.
//!
//! Whoever reads one finds what was there before or what is there now, whenever the process was
//! killed. How long that holds without power is the [`Lasting`] of each.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};

/// What a file outlives once it is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// The process; without power it may be found empty.
    Process,
    /// A loss of power, which costs a wait for the disk.
    Power,
}

/// Puts `bytes` in the place of what was at `at`, by way of `fresh`, of which nothing stays where
/// that fails.
///
/// # Errors
///
/// What the system says; then what was there is there still.
pub(crate) fn replace(at: &Path, fresh: &Path, bytes: &[u8], lasting: Lasting) -> io::Result<()> {
    let written = write(fresh, bytes, lasting).and_then(|()| fs::rename(fresh, at));
    if written.is_err() {
        // Gives a full disk its room back; if that fails, too, the next one is written over it.
        let _ = fs::remove_file(fresh);
    }
    written
}

/// Writes a file that is to be renamed, and makes its folder.
pub(crate) fn write(fresh: &Path, bytes: &[u8], lasting: Lasting) -> io::Result<()> {
    if let Some(folder) = fresh.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::create(fresh)?;
    file.write_all(bytes)?;
    match lasting {
        Lasting::Process => Ok(()),
        Lasting::Power => file.sync_all(),
    }
}

/// From now on a file that the process may not make any longer (`RLIMIT_FSIZE`) is an error of its
/// write, as a disk that is full, and does not end the process. Within a runtime.
pub(crate) fn outlive_file_limit() {
    // A handler stays for as long as the process, and where none can be had nothing is worse than before.
    let _ = signal(SignalKind::from_raw(nix::libc::SIGXFSZ));
}

/// The same path with something at its end, whatever it ends with.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(suffix);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("folder/a.json");
        let fresh = beside(&at, ".new");
        for (text, lasting) in [("one", Lasting::Power), ("two", Lasting::Process)] {
            replace(&at, &fresh, text.as_bytes(), lasting).unwrap();
            assert_eq!(fs::read_to_string(&at).unwrap(), text);
        }
        // Nothing can be put in the place of a folder that is not empty.
        let folder = dir.path().join("folder");
        assert!(replace(&folder, &fresh, b"three", Lasting::Process).is_err());
        assert!(!fresh.exists() && at.exists());
    }

    #[test]
    fn what_stands_beside_has_the_whole_name() {
        assert_eq!(beside(Path::new("/a/b.csv"), ".new"), Path::new("/a/b.csv.new"));
    }
}
