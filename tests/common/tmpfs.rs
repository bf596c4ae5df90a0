//! A file system in memory that is as small as a test needs it, and can be made read-only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system, taken away when it is dropped. Mounted [in a network of one's
/// own](super::in_own_network), nobody else sees it.
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Where nothing can be mounted, says so: the test is then to be skipped.
    pub fn mount(place: &Path, size: &str) -> Option<Tmpfs> {
        fs::create_dir_all(place).unwrap();
        let options = format!("size={size}");
        if mount(&["-t", "tmpfs", "-o", &options, "tmpfs"], place) {
            return Some(Tmpfs(place.to_owned()));
        }
        eprintln!("skipped: no file system can be mounted here");
        None
    }

    /// Takes the right to write away. No file may be open for writing.
    pub fn forbid_writing(&self) {
        assert!(mount(&["-o", "remount,ro"], &self.0), "{} becomes read-only", self.0.display());
    }

    /// Gives the right to write back.
    pub fn allow_writing(&self) {
        assert!(mount(&["-o", "remount,rw"], &self.0), "{} becomes writable", self.0.display());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn mount(arguments: &[&str], place: &Path) -> bool {
    let status = Command::new("mount").args(arguments).arg(place).status();
    status.is_ok_and(|status| status.success())
}
