//! Paths with wildcards, and the files that they mean.

use super::packed::{is_gzip, is_packed};
use crate::pattern::Pattern;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A path in which `*`, `?` and `{a,b}` stand for parts of names, never for a slash.
#[derive(Clone, Debug)]
pub struct Glob {
    root: PathBuf,
    parts: Vec<Pattern>,
    /// Whether it speaks of compressed files.
    takes_gzip: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Files, in the order of their names.
    pub(super) files: Vec<(PathBuf, Metadata)>,
    /// Folders in which others may come up.
    pub(super) folders: BTreeSet<PathBuf>,
    /// What is there and cannot be looked at.
    pub(super) failed: Vec<(PathBuf, io::Error)>,
}

impl Glob {
    /// Reads an absolute path.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn compile(path: &str) -> Result<Self, String> {
        let Some(relative) = path.strip_prefix('/') else {
            return Err(format!("`{path}` does not begin with a slash"));
        };
        if relative.split('/').any(|part| part.contains("**")) {
            return Err(format!("`{path}`: `**` stands for no more than `*`; name each depth"));
        }
        let parts = relative.split('/').filter(|part| !part.is_empty());
        let parts = parts.map(Pattern::compile).collect::<Result<Vec<_>, _>>()?;
        if parts.is_empty() {
            return Err(format!("`{path}` names no file"));
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        Ok(Self { root: PathBuf::from("/"), parts, takes_gzip: name.contains(".gz") })
    }

    /// Adds the files there are, until there are `max`.
    pub(super) fn find(&self, max: usize, found: &mut Found) {
        self.walk(&self.root, &self.parts, max, found);
    }

    fn walk(&self, place: &Path, parts: &[Pattern], max: usize, found: &mut Found) {
        let Some((part, rest)) = parts.split_first() else {
            if !self.takes(place) {
                return;
            }
            match fs::metadata(place) {
                Ok(meta) if meta.is_file() && found.files.len() < max => {
                    found.files.push((place.to_owned(), meta));
                }
                Ok(_) => {}
                Err(error) => found.fail(place, error),
            }
            return;
        };
        if rest.is_empty() {
            found.folders.insert(place.to_owned());
        }
        if let Pattern::Exact(name) = part {
            return self.walk(&place.join(name), rest, max, found);
        }
        found.folders.insert(place.to_owned());
        match names(place, part) {
            Ok(names) => {
                names.iter().for_each(|name| self.walk(&place.join(name), rest, max, found))
            }
            Err(error) => found.fail(place, error),
        }
    }

    /// Whether it means what is called so: what a rotation has compressed was read before.
    fn takes(&self, place: &Path) -> bool {
        !is_packed(place) || self.takes_gzip && is_gzip(place)
    }
}

/// The names in a folder that a pattern means. What is no text is matched as it is shown.
fn names(folder: &Path, part: &Pattern) -> io::Result<Vec<OsString>> {
    let names = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.file_name()));
    // As a shell has it, what begins with a dot is not meant.
    let mut names: Vec<_> = names
        .filter(|name| !name.as_encoded_bytes().starts_with(b"."))
        .filter(|name| part.matches(&name.to_string_lossy()))
        .collect();
    names.sort_unstable();
    Ok(names)
}

impl Found {
    /// What is not there may come.
    fn fail(&mut self, place: &Path, error: io::Error) {
        if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
            self.failed.push((place.to_owned(), error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    fn found(dir: &Path, glob: &str, max: usize) -> Found {
        let mut found = Found::default();
        Glob::compile(&format!("{}/{glob}", dir.display())).unwrap().find(max, &mut found);
        found
    }

    fn names<'a>(dir: &Path, paths: impl Iterator<Item = &'a PathBuf>) -> String {
        let inside = |path: &'a PathBuf| path.strip_prefix(dir).unwrap().to_string_lossy();
        paths.map(inside).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn wildcards_stand_for_parts_of_names() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a/x.log", "a/y.log", "a/y.txt", "b/x.log", "b/.x.log", "b/c/x.log"] {
            fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            fs::write(dir.path().join(path), "").unwrap();
        }
        std::os::unix::fs::symlink("loop.log", dir.path().join("a/loop.log")).unwrap();
        for (glob, max, files, folders) in [
            ("a/x.log", 9, "a/x.log", "a"),
            ("a/no.log", 9, "", "a"),
            ("no/x.log", 9, "", "no"),
            ("*/x.log", 9, "a/x.log b/x.log", " a b"),
            ("a/*", 9, "a/x.log a/y.log a/y.txt", "a"),
            ("{a,b}/?.log", 9, "a/x.log a/y.log b/x.log", " a b"),
            ("a/*", 2, "a/x.log a/y.log", "a"),
        ] {
            let found = found(dir.path(), glob, max);
            assert_eq!(
                names(dir.path(), found.files.iter().map(|(path, _)| path)),
                files,
                "{glob}"
            );
            assert_eq!(names(dir.path(), found.folders.iter()), folders, "{glob}");
        }
        assert_eq!(found(dir.path(), "a/*", 9).failed.len(), 1, "one that leads to itself");
        for wrong in ["a/b", "/", "/a/**/b", "/a/b**"] {
            assert!(Glob::compile(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_that_are_no_text_are_meant_too() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(OsStr::from_bytes(b"\xff.log")), "").unwrap();
        for glob in ["*.log", "?.log"] {
            assert_eq!(found(dir.path(), glob, 9).files.len(), 1, "{glob}");
        }
    }
}
