//! Judges folders that whole files are taken from: nobody else reads there, or points count twice.

use super::Findings;
use crate::config::Sections;
use std::path::{Path, PathBuf};

pub(super) fn judge(sections: &Sections, findings: &mut Findings) {
    let listeners = || {
        let all = sections.listeners.iter();
        all.filter_map(|(name, listener)| Some((name, listener.as_ref()?)))
    };
    let mut folders: Vec<(PathBuf, &str)> = Vec::new();
    for (name, listener) in listeners() {
        let Some(drop) = &listener.drop else { continue };
        let key = format!("listeners.{name}.drop");
        // However many slashes stand where.
        let folder: PathBuf = drop.components().collect();
        findings.wrong_unless(
            folder.is_absolute(),
            &key,
            format!("`{}` does not begin with a slash", drop.display()),
        );
        if let Some((_, other)) = folders.iter().find(|(known, _)| *known == folder) {
            let message = format!("listener `{other}` takes the files of this folder already");
            findings.wrong(key, message);
        }
        folders.push((folder, name));
    }
    for (name, listener) in listeners() {
        for (i, path) in listener.paths.iter().flatten().enumerate() {
            let within = Path::new(path).parent().unwrap_or(Path::new("/"));
            if let Some((_, other)) = folders.iter().find(|(folder, _)| is_of(folder, within)) {
                let message = format!(
                    "listener `{other}` takes files from there (`drop`): what is read here, too, \
                     counts twice"
                );
                findings.odd(format!("listeners.{name}.paths[{i}]"), message);
            }
        }
    }
}

/// Whether files in `within` are, or were, files of that folder.
fn is_of(folder: &Path, within: &Path) -> bool {
    within == folder || ["done", "refused"].iter().any(|name| within == folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{plan_of, refused, warned};

    fn with(listeners: &[&str]) -> String {
        let sections = listeners
            .iter()
            .zip('a'..)
            .map(|(keys, name)| format!("[listeners.{name}]\nprotocol = 'file'\n{keys}\n"));
        let routes = "[backends.b]\nkind = 'blackhole'\n[[routes]]\nto = ['b']\n";
        sections.collect::<String>() + routes
    }

    #[test]
    fn a_folder_has_one_listener() {
        assert!(plan_of(&with(&["drop = '/spool/a'", "drop = '/spool/b'"])).is_ok());
        let twice = ["drop = '/spool/a'", "drop = '/spool//a/'"];
        refused(&with(&twice), &["listeners.b.drop: listener `a` takes the files of this folder"]);
        refused(&with(&["drop = 'spool'"]), &["drop: `spool` does not begin with a slash"]);
    }

    #[test]
    fn what_is_taken_is_not_followed() {
        let says = &["paths[0]: listener `a` takes files from there"][..];
        for path in ["/spool/*.csv", "/spool/done/*", "/spool//refused/x.csv"] {
            warned(&with(&[&format!("drop = '/spool'\npaths = ['{path}']")]), says);
            warned(&with(&["drop = '/spool/'", &format!("paths = ['{path}']")]), says);
        }
        let apart = with(&["drop = '/spool'", "paths = ['/spool/log/*.csv']"]);
        warned(&apart, &[]);
    }
}
