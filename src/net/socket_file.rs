//! The file of a Unix socket.
//!
//! A file that nobody listens on is replaced; its mode is 0666, because statsd clients run as
//! anybody (protect it by its directory); it is removed at the end, unless another program
//! has put its own there meanwhile.

use crate::file_id::FileId;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};

/// The file of a socket of ours, gone when this is.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    id: FileId,
}

impl SocketFile {
    /// Removes a socket file that nobody listens on.
    pub(super) fn make_way(path: &Path) -> io::Result<()> {
        let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
        if !found.file_type().is_socket() {
            return Err(io::Error::other("there is a file of another sort, which is left alone"));
        }
        let streams = UnixStream::connect(path).map(drop);
        let datagrams = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
        match (streams, datagrams) {
            (Err(streams), Err(datagrams)) if refused(&streams) && refused(&datagrams) => {
                fs::remove_file(path)
            }
            _ => Err(io::Error::from(ErrorKind::AddrInUse)),
        }
    }

    /// Lets everyone write to a socket that was just bound.
    pub(super) fn open_to_all(path: &Path) -> io::Result<Self> {
        let file = Self { path: path.to_owned(), id: FileId::of(&fs::symlink_metadata(path)?) };
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
        Ok(file)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| FileId::of(&found) == self.id);
        if ours {
            // Too late to tell anyone; the next start removes a stale file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn refused(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

const MODE: u32 = 0o666;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{Sockets, Wanted};

    fn bind(sockets: &mut Sockets, address: &str) -> Result<String, crate::net::BindError> {
        let wanted = Wanted {
            listener: "a".into(),
            key: "listeners.a.bind".to_owned(),
            address: address.parse().unwrap(),
            receive_buffer: None,
            sockets: 1,
        };
        Ok(sockets.bind_all(&[wanted])?[0].address.clone())
    }

    #[test]
    fn a_stale_socket_file_is_replaced_and_removed_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        for scheme in ["unix", "unixgram"] {
            let path = directory.path().join(format!("{scheme}.sock"));
            let address = format!("{scheme}://{}", path.display());
            drop(UnixDatagram::bind(&path).unwrap());
            assert!(path.exists());
            let mut sockets = Sockets::new();
            assert_eq!(bind(&mut sockets, &address).unwrap(), address);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
            assert!(bind(&mut Sockets::new(), &address).is_err(), "in use");
            drop(sockets);
            assert!(!path.exists(), "{scheme}");
        }
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        fs::write(&path, "precious").unwrap();
        let address = format!("unix://{}", path.display());
        assert!(bind(&mut Sockets::new(), &address).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
