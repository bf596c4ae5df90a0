//! Opens regular files, and nothing else that may stand where one stood a moment ago.
//!
//! Between the look that finds a file and its opening whoever may write to its folder can put a pipe
//! there, at which one would wait for ever, or a link to what only the gateway may read. So it is
//! opened without waiting, and what was opened is looked at once more.

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Whether a link to a file is as good as the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    Followed,
    Refused,
}

/// Opens a file to read it.
pub(super) fn open(path: &Path, links: Links) -> io::Result<File> {
    let more = if links == Links::Refused { O_NOFOLLOW } else { 0 };
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK | more).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file any more"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_else_is_opened_and_nobody_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(at("pipe"), at("link to pipe")).unwrap();
        for (name, followed, refused) in [
            ("file", true, true),
            ("link", true, false),
            ("pipe", false, false),
            ("link to pipe", false, false),
            ("/dev/zero", false, false),
            (".", false, false),
        ] {
            let opens = |links| open(&at(name), links).is_ok();
            assert_eq!(
                (opens(Links::Followed), opens(Links::Refused)),
                (followed, refused),
                "{name}"
            );
        }
    }
}
