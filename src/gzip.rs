//! gzip, known by its first bytes, whatever a file is called.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Whether these bytes begin as gzip does.
pub(crate) fn is_begun(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Whether a file begins as gzip does; where somebody reads in it stays as it is.
pub(crate) fn is_in(file: &File) -> bool {
    let mut head = MAGIC.map(|_| 0);
    file.read_exact_at(&mut head, 0).is_ok() && is_begun(&head)
}

/// RFC 1952, section 2.3.1.
const MAGIC: [u8; 2] = [0x1f, 0x8b];
