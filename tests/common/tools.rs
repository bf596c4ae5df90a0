//! Where the servers and clients lie that `scripts/install-test-tools.sh` fetched.

use std::path::{Path, PathBuf};

/// A server's binary: ours in `.test-tools/bin`, else whatever the search path has.
pub fn server(name: &str) -> PathBuf {
    let ours = test_tools().join("bin").join(name);
    if ours.exists() { ours } else { PathBuf::from(name) }
}

/// A file that must be there, by its path inside `.test-tools`.
pub fn installed(path: &str) -> PathBuf {
    let file = test_tools().join(path);
    assert!(file.exists(), "no {}: run scripts/install-test-tools.sh", file.display());
    file
}

/// A driver or helper of ours in `tests/clients`.
pub fn client(name: &str) -> PathBuf {
    repository().join("tests/clients").join(name)
}

fn test_tools() -> PathBuf {
    repository().join(".test-tools")
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
