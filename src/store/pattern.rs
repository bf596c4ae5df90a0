//! Names that stand for many: globs and `/regular expressions/`, as in routes.

use regex::Regex;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Reads `build/*`, `host-?`, `{cpu,mem}.*` or `/^build/`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        let regex = match inner {
            Some(inner) => inner.to_owned(),
            None => from_glob(text)?,
        };
        Regex::new(&regex).map(Self).map_err(|error| error.to_string())
    }

    /// Whether a name is meant.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

/// Whether a text can stand for more than itself.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '{'])
        || (text.len() > 1 && text.starts_with('/') && text.ends_with('/'))
}

fn from_glob(glob: &str) -> Result<String, String> {
    let mut regex = String::from(r"(?s)\A");
    let mut depth = 0_u32;
    for c in glob.chars() {
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '{' => {
                depth += 1;
                regex.push_str("(?:");
            }
            ',' if depth > 0 => regex.push('|'),
            '}' if depth > 0 => {
                depth -= 1;
                regex.push(')');
            }
            other => regex.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    if depth > 0 {
        return Err(format!("`{glob}` opens a `{{` that it never closes"));
    }
    regex.push_str(r"\z");
    Ok(regex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_and_regular_expressions() {
        for (pattern, good, bad) in [
            ("build/*", &["build/", "build/a/b", "build/a\nb"][..], &["build", "a build/x"][..]),
            ("h?st", &["host", "hést"][..], &["hst", "hooost"][..]),
            ("{cpu,mem}.*", &["cpu.a", "mem."][..], &["disk.a", "cpu"][..]),
            ("a.b(c)[d]+", &["a.b(c)[d]+"][..], &["aXb(c)[d]+"][..]),
            ("/^b.*s$/", &["builds", "bs"][..], &["builds2"][..]),
            ("a,b}", &["a,b}"][..], &["a"][..]),
        ] {
            let compiled = Pattern::parse(pattern).unwrap();
            for name in good {
                assert!(compiled.matches(name), "{pattern} {name}");
            }
            for name in bad {
                assert!(!compiled.matches(name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn what_is_no_pattern_says_so() {
        for pattern in ["{a,b", "/(/", "/a{100000000}/"] {
            assert!(Pattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
