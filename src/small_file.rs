//! Small files that somebody names: secrets, certificates, configurations.
//!
//! They are read while a gateway starts or reloads, and nobody may keep it from that: a pipe, at
//! which one would wait for somebody to write, a device or a folder is refused, and so is what is
//! absurdly large. A link to a file is as good as the file. What comes from a pipe could be read
//! only once, so it would be lost to the next reload; whoever has it there writes it into a file
//! first. Only the configuration itself may come from one at the start, where it is waited for.

use protocols::frame::without_byte_order_mark;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Reads a file of at most so many bytes.
///
/// # Errors
///
/// What is wrong, to be put behind the file's name; never a word of what is in it.
pub fn read(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    // A pipe is opened at once, whether or not somebody writes to it.
    let open = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
    let file = open.map_err(unreadable)?;
    let kind = file.metadata().map_err(unreadable)?.file_type();
    if !kind.is_file() {
        return Err(format!("is {}; a regular file is wanted", word(kind)));
    }
    read_at_most(file, most)
}

/// The same for a command, and for the configuration at the start: what is read once may come from a
/// pipe, and be waited for.
///
/// # Errors
///
/// As [`read`].
pub fn read_once(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    read_at_most(File::open(path).map_err(unreadable)?, most)
}

fn read_at_most(file: File, most: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > most {
        return Err(format!("is larger than {most} bytes, which none of its sort is"));
    }
    // What some editors write before a text is no part of a password.
    let marked = bytes.len() - without_byte_order_mark(&bytes).len();
    Ok(bytes.split_off(marked))
}

#[allow(clippy::needless_pass_by_value)] // As `map_err` hands it over.
fn unreadable(error: io::Error) -> String {
    format!("cannot be read: {error}")
}

fn word(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "no file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_small_files_are_read_and_none_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "12345").unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for name in ["file", "pipe"] {
            symlink(at(name), at(&format!("link to {name}"))).unwrap();
        }
        for (path, expected) in [
            (at("file"), Ok("12345")),
            (at("link to file"), Ok("12345")),
            (at("directory"), Err("is a directory; a regular file is wanted")),
            (at("pipe"), Err("is a pipe; a regular file is wanted")),
            (at("link to pipe"), Err("is a pipe; a regular file is wanted")),
            ("/dev/zero".into(), Err("is a device; a regular file is wanted")),
            (at("socket"), Err("cannot be read: No such device or address (os error 6)")),
            (at("none"), Err("cannot be read: No such file or directory (os error 2)")),
        ] {
            let expected = expected.map(|text| text.as_bytes().to_vec()).map_err(str::to_owned);
            assert_eq!(read(&path, 5), expected, "{}", path.display());
        }
        std::fs::write(at("marked"), "\u{feff}12\u{feff}").unwrap();
        assert_eq!(
            read(&at("marked"), 9),
            Ok("12\u{feff}".into()),
            "an editor's mark is none of it"
        );
        let large = "is larger than 4 bytes, which none of its sort is".to_owned();
        assert_eq!(read(&at("file"), 4), Err(large.clone()));
        assert_eq!(read_once(Path::new("/dev/zero"), 4), Err(large));
    }
}
