//! `${VAR}`, `${VAR:-default}` and `${file:/path}` inside strings that are parsed already.
//!
//! A comment is therefore never looked at, and a value with quotes and line feeds cannot bring
//! in a key. `$$` is a dollar; a dollar before anything else is itself, so that `/end$/` needs
//! no care. What comes from the environment or a file is not looked through again.

use crate::mistake::Mistake;
use crate::small_file;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Replaces references in all strings under `tree`, except those under the keys `literal`.
///
/// Returns the keys whose values came from elsewhere: those may be secrets, whatever their name.
pub fn substitute(
    tree: &mut Value,
    environment: &BTreeMap<String, String>,
    literal: &dyn Fn(&str) -> bool,
    mistakes: &mut Vec<Mistake>,
) -> BTreeSet<String> {
    let mut walk = Walk { environment, literal, mistakes, replaced: BTreeSet::new() };
    walk.value("", tree);
    walk.replaced
}

struct Walk<'a> {
    environment: &'a BTreeMap<String, String>,
    literal: &'a dyn Fn(&str) -> bool,
    mistakes: &'a mut Vec<Mistake>,
    replaced: BTreeSet<String>,
}

impl Walk<'_> {
    fn value(&mut self, key: &str, value: &mut Value) {
        if (self.literal)(key) {
            return;
        }
        match value {
            Value::String(text) => self.text(key, text),
            Value::Array(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.value(&format!("{key}[{i}]"), item);
                }
            }
            Value::Object(entries) => {
                for (name, entry) in entries {
                    self.value(&super::join(key, name), entry);
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, key: &str, text: &mut String) {
        let keeps_name = key.starts_with("routes[") && key.ends_with("].rewrite.name");
        match expand(text, |name| match name {
            "name" if keeps_name => Ok(None),
            _ => lookup(name, self.environment).map(Some),
        }) {
            Ok((new, replaced)) => {
                *text = new;
                if replaced {
                    self.replaced.insert(key.to_owned());
                }
            }
            Err((message, hint)) => {
                self.mistakes.push(Mistake::new(key, message).hint(hint));
            }
        }
    }
}

/// What is wrong, and how to mend it.
type Complaint = (String, String);

/// The text with each reference resolved, and whether there was any. `resolve` may leave a
/// reference as it stands.
fn expand(
    text: &str,
    resolve: impl Fn(&str) -> Result<Option<String>, Complaint>,
) -> Result<(String, bool), Complaint> {
    let (mut out, mut replaced, mut rest) = (String::new(), false, text);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(after) = after.strip_prefix('{') {
            let (name, after) = after.split_once('}').ok_or_else(unclosed)?;
            match resolve(name)? {
                Some(value) => {
                    out.push_str(&value);
                    replaced = true;
                }
                None => out.extend(["${", name, "}"]),
            }
            rest = after;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    Ok((out, replaced))
}

fn lookup(reference: &str, environment: &BTreeMap<String, String>) -> Result<String, Complaint> {
    if let Some(path) = reference.strip_prefix("file:") {
        return read_trimmed(Path::new(path))
            .map_err(|why| (why, "it is named by `${file:…}`".to_owned()));
    }
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    if !is_variable(name) {
        return Err((
            format!("`${{{name}}}` is not a reference"),
            "write `${VAR}`, `${VAR:-default}` or `${file:/path}`, or `$$` for a dollar".to_owned(),
        ));
    }
    // As in a shell, `:-` also stands in for a variable that is empty.
    match (environment.get(name), default) {
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => Ok(value.clone()),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err((
            format!("the environment variable {name} is not set"),
            format!("set it, or give a default: `${{{name}:-default}}`"),
        )),
    }
}

/// A file's text without the line feed that editors leave at its end.
///
/// # Errors
///
/// A sentence that names the file and never its contents.
pub fn read_trimmed(path: &Path) -> Result<String, String> {
    let wrong = |what: &str| format!("{} {what}", path.display());
    let bytes = small_file::read(path, FILE_BYTES_MAX).map_err(|what| wrong(&what))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("is no text in UTF-8"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

/// No secret is longer.
const FILE_BYTES_MAX: usize = 1 << 20;

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn unclosed() -> Complaint {
    ("a `${` has no `}`".to_owned(), "write `$$` for a dollar that is meant as one".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn environment() -> BTreeMap<String, String> {
        [("HOST", "db.internal"), ("EMPTY", ""), ("EVIL", "x\"\n[admin]\nbind = ${HOST}")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into()
    }

    fn run(text: &str) -> Result<String, String> {
        let mut tree = json!({ "k": text });
        let mut mistakes = Vec::new();
        substitute(&mut tree, &environment(), &|_| false, &mut mistakes);
        match mistakes.pop() {
            Some(mistake) => Err(mistake.message),
            None => Ok(tree["k"].as_str().unwrap().to_owned()),
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let problem = read_trimmed(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(problem, "/dev/zero is a device; a regular file is wanted");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"S3CR3T\xff").unwrap();
        let problem = read_trimmed(file.path()).unwrap_err();
        assert!(problem.ends_with(" is no text in UTF-8"), "{problem}");
    }

    #[test]
    fn references_and_dollars() {
        for (text, expected) in [
            ("plain", "plain"),
            ("http://${HOST}:8086", "http://db.internal:8086"),
            ("${NOT_SET:-fallback}", "fallback"),
            ("${NOT_SET:-}", ""),
            ("${EMPTY:-fallback}", "fallback"),
            ("[${EMPTY}]", "[]"),
            ("${HOST:-x}${HOST}", "db.internaldb.internal"),
            ("pa$$word", "pa$word"),
            ("$${HOST}", "${HOST}"),
            ("/end$/", "/end$/"),
            ("$5 and $", "$5 and $"),
            ("${EVIL}", "x\"\n[admin]\nbind = ${HOST}"),
        ] {
            assert_eq!(run(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_resolved_is_named() {
        for (text, says) in [
            ("${NOT_SET}", "NOT_SET is not set"),
            ("${not closed", "no `}`"),
            ("${two words}", "`${two words}` is not a reference"),
            ("${}", "is not a reference"),
            ("${file:/does/not/exist}", "/does/not/exist cannot be read: No such file"),
        ] {
            let error = run(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_comes_without_its_last_line_feed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (content, expected) in [("S\n", "S"), ("S\r\n", "S"), ("S", "S"), ("S\n\n", "S\n")] {
            std::fs::write(file.path(), content).unwrap();
            assert_eq!(run(&format!("${{file:{}}}", file.path().display())).unwrap(), expected);
        }
    }

    #[test]
    fn the_routers_name_and_literal_keys_are_left_alone() {
        let mut tree = json!({
            "routes": [{ "rewrite": { "name": "${HOST}.${name}" } }],
            "admin": { "bind": "${HOST}" },
        });
        let mut mistakes = Vec::new();
        let replaced =
            substitute(&mut tree, &environment(), &|key| key == "admin.bind", &mut mistakes);
        assert_eq!(mistakes, []);
        assert_eq!(tree["routes"][0]["rewrite"]["name"], "db.internal.${name}");
        assert_eq!(tree["admin"]["bind"], "${HOST}");
        assert_eq!(replaced.into_iter().collect::<Vec<_>>(), ["routes[0].rewrite.name"]);
    }

    proptest! {
        /// Doubling every dollar is enough to write any text.
        #[test]
        fn any_text_can_be_written(text in ".*") {
            prop_assert_eq!(run(&text.replace('$', "$$")), Ok(text));
        }
    }
}
