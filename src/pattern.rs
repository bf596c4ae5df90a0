//! Patterns for names and tag values: exact words, globs and regular expressions.
//!
//! A glob matches the whole text: `*` is any run of characters (slashes and dots too), `?` one
//! character, `{a,b}` either, `\` takes the next character as it is. `/…/` is a regular
//! expression that may match anywhere. The common shapes of a glob need no regular expression.

use regex::Regex;

/// One compiled pattern.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// `*`.
    Any,
    /// No wildcard at all.
    Exact(String),
    /// `build/*`.
    Prefix(String),
    /// `*.count`.
    Suffix(String),
    /// Everything else.
    Regex(Regex),
}

impl Pattern {
    /// Compiles a glob or a `/regex/`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a sentence without a full stop.
    pub fn compile(text: &str) -> Result<Self, String> {
        let regex = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        match regex {
            Some(regex) => regular(regex).map(Self::Regex),
            None => glob(text),
        }
    }

    /// Whether `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(word) => text == word,
            Self::Prefix(start) => text.starts_with(start.as_str()),
            Self::Suffix(end) => text.ends_with(end.as_str()),
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

fn glob(text: &str) -> Result<Pattern, String> {
    let plain = |part: &str| !part.contains(['*', '?', '{', '}', '\\']);
    if text == "*" {
        return Ok(Pattern::Any);
    }
    if plain(text) {
        return Ok(Pattern::Exact(text.to_owned()));
    }
    if let Some(start) = text.strip_suffix('*').filter(|start| plain(start)) {
        return Ok(Pattern::Prefix(start.to_owned()));
    }
    if let Some(end) = text.strip_prefix('*').filter(|end| plain(end)) {
        return Ok(Pattern::Suffix(end.to_owned()));
    }
    let regex =
        glob_to_regex(text).map_err(|problem| format!("`{text}` is not a glob: {problem}"))?;
    regular(&regex).map(Pattern::Regex)
}

fn regular(regex: &str) -> Result<Regex, String> {
    Regex::new(regex).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("`{regex}` is not a regular expression: {reason}")
    })
}

/// Dots match line feeds too: a name from JSON may hold one, and `*` is any run.
fn glob_to_regex(glob: &str) -> Result<String, &'static str> {
    let mut regex = String::from("^(?s:");
    let mut depth = 0_u32;
    let mut chars = glob.chars();
    while let Some(char) = chars.next() {
        match char {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '{' => {
                depth += 1;
                regex.push_str("(?:");
            }
            ',' if depth > 0 => regex.push('|'),
            '}' => {
                depth =
                    depth.checked_sub(1).ok_or("`}` without `{`; write `\\}` for the character")?;
                regex.push(')');
            }
            '\\' => push_literal(&mut regex, chars.next().ok_or("it ends in a backslash")?),
            other => push_literal(&mut regex, other),
        }
    }
    if depth > 0 {
        return Err("`{` without `}`; write `\\{` for the character");
    }
    regex.push_str(")$");
    Ok(regex)
}

fn push_literal(regex: &mut String, char: char) {
    regex.push_str(&regex::escape(char.encode_utf8(&mut [0; 4])));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let compiled = Pattern::compile(pattern).unwrap();
        for text in yes {
            assert!(compiled.matches(text), "{pattern} should match {text:?}");
        }
        for text in no {
            assert!(!compiled.matches(text), "{pattern} should not match {text:?}");
        }
    }

    #[test]
    fn globs() {
        check("*", &["", "a", "a/b.c"], &[]);
        check("a.b", &["a.b"], &["a.bc", "axb"]);
        check("build/*", &["build/", "build/a/b"], &["build", "xbuild/a"]);
        check("*.count", &["a.count", ".count"], &["a.counts"]);
        check("a*c", &["ac", "abc", "a\nc"], &["abcd"]);
        check("a?c", &["abc", "aéc"], &["ac", "abbc"]);
        check("{prod,stag?}-*", &["prod-1", "stage-"], &["prod", "dev-1"]);
        check(r"a\*", &["a*"], &["ab"]);
        check("a+(b)", &["a+(b)"], &["aab"]);
        check("a,b", &["a,b"], &["a", "b"]);
    }

    #[test]
    fn regular_expressions_match_anywhere() {
        check("/^task/", &["task.x"], &["a task"]);
        check("/[0-9]+/", &["a1b"], &["ab"]);
    }

    #[test]
    fn mistakes_are_explained() {
        for (pattern, part) in
            [("/(/", "regular"), ("a{b*", "`{`"), ("a}*b", "`}`"), ("a*b\\", "backslash")]
        {
            let mistake = Pattern::compile(pattern).unwrap_err();
            assert!(mistake.contains(part), "{mistake}");
        }
    }
}
