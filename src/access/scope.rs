//! Scopes, as Taskcluster has them: texts of which one that ends in `*` stands for all that begin
//! like it.
//!
//! ```text
//! scope = *( %x20-7E )
//! ```
//!
//! To write the series S takes the scope `stats:put-points:S`. A `*` anywhere else is a character
//! like any other, in what is asked for as well, so names that end with one are refused before a
//! scope is made of them: they would look like many.

use std::collections::BTreeSet;

/// The series that may be written, compiled from scopes of any sort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    all: bool,
    exact: BTreeSet<String>,
    /// In order, and none begins with another: of those before a name only the last can match.
    prefixes: Vec<String>,
}

impl Scopes {
    /// Those among the scopes that are about series.
    pub fn new<S: AsRef<str>>(scopes: impl IntoIterator<Item = S>) -> Self {
        let mut compiled = Self::default();
        for scope in scopes {
            compiled.add(scope.as_ref());
        }
        compiled.prefixes.sort();
        compiled.prefixes.dedup_by(|later, kept| later.starts_with(&**kept));
        compiled
    }

    /// Those for every series.
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// Those for each of these series, and for all that are under one: `build.times` and `build/times`
    /// of `build`.
    pub fn under_any<'s>(series: impl IntoIterator<Item = &'s str>) -> Self {
        Self::new(series.into_iter().flat_map(|series| {
            let stem = put_points(series);
            let parted = !series.ends_with(PARTING);
            let under = PARTING.map(|mark| match parted {
                true => format!("{stem}{mark}*"),
                false => format!("{stem}*"),
            });
            under.into_iter().chain([stem])
        }))
    }

    fn add(&mut self, scope: &str) {
        let Some(stem) = scope.strip_suffix('*') else {
            self.exact.extend(scope.strip_prefix(PUT_POINTS).map(str::to_owned));
            return;
        };
        self.all |= PUT_POINTS.starts_with(stem);
        self.prefixes.extend(stem.strip_prefix(PUT_POINTS).map(str::to_owned));
    }

    /// Whether they allow to write this series, whose name is [fit](is_fit).
    pub fn allow(&self, name: &str) -> bool {
        let begins = || {
            let before = self.prefixes.partition_point(|prefix| prefix.as_str() <= name);
            let last = before.checked_sub(1).and_then(|last| self.prefixes.get(last));
            last.is_some_and(|prefix| name.starts_with(&**prefix))
        };
        self.all || begins() || self.exact.contains(name)
    }

    /// Whether they allow nothing at all.
    pub fn are_empty(&self) -> bool {
        !self.all && self.exact.is_empty() && self.prefixes.is_empty()
    }
}

/// Whether one of the scopes is the one that is asked for, or stands for it.
pub(super) fn satisfies(scopes: &[String], asked: &str) -> bool {
    scopes.iter().any(|scope| match scope.strip_suffix('*') {
        Some(stem) => asked.starts_with(stem),
        None => scope == asked,
    })
}

/// The scope that it takes to write a series.
pub(super) fn put_points(name: &str) -> String {
    format!("{PUT_POINTS}{name}")
}

/// Whether a scope can be made of a name: it is printable ASCII, and does not end with a `*`.
pub fn is_fit(name: &str) -> bool {
    name.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !name.ends_with('*')
}

/// What is wrong with a scope in a configuration, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// A sentence.
    pub message: String,
    /// What to write.
    pub hint: String,
}

/// Judges a scope in a configuration.
///
/// # Errors
///
/// It is none, or does not mean what it looks like.
pub fn check(scope: &str) -> Result<(), Trouble> {
    let trouble = |message: String, hint: String| Err(Trouble { message, hint });
    if !scope.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        let message = "a scope is made of printable ASCII and blanks".to_owned();
        return trouble(message, format!("for example \"{PUT_POINTS}build/*\""));
    }
    let stem = scope.strip_suffix('*').unwrap_or(scope);
    if stem.ends_with('*') {
        let stem = stem.trim_end_matches('*');
        let message = format!("`{scope}` ends with more than one `*`");
        return trouble(message, format!("one stands for anything: \"{stem}*\""));
    }
    if stem.contains('*') {
        let message = format!("`{scope}` has a `*` inside, which stands for nothing but itself");
        let hint =
            "only a `*` at the end stands for anything; name what you mean in several scopes";
        return trouble(message, hint.to_owned());
    }
    Ok(())
}

const PUT_POINTS: &str = "stats:put-points:";
/// What parts the names of series.
const PARTING: [char; 2] = ['.', '/'];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn allow(scopes: &[&str], name: &str) -> bool {
        Scopes::new(scopes).allow(name)
    }

    #[test]
    fn a_scope_allows_what_it_says() {
        for (scopes, name, expected) in [
            (&["stats:put-points:a"][..], "a", true),
            (&["stats:put-points:a"], "ab", false),
            (&["stats:put-points:a*"], "ab", true),
            (&["stats:put-points:a*"], "a", true),
            (&["stats:put-points:a*"], "b", false),
            (&["stats:put-points:*"], "any thing", true),
            (&["stats:*"], "x", true),
            (&["*"], "x", true),
            (&["stats:put-points*"], "x", true),
            (&["stats:put-points"], "x", false),
            (&["stats:put-pointsx*"], "x", false),
            (&["queue:*", "stats:put-points:b"], "b", true),
            (&["stats:put-points:build/*", "stats:put-points:bu*"], "bus", true),
            (&["stats:put-points:a/*", "stats:put-points:c/*"], "b/x", false),
            (&["stats:put-points:a*b"], "a*b", true),
            (&["stats:put-points:a*b"], "axb", false),
            (&[], "x", false),
        ] {
            assert_eq!(allow(scopes, name), expected, "{scopes:?} {name}");
        }
    }

    #[test]
    fn a_series_has_others_under_it() {
        for (series, name, expected) in [
            ("build", "build", true),
            ("build", "build.times", true),
            ("build", "build/times/x", true),
            ("build", "builds", false),
            ("build", "build-times", false),
            ("build", "bui", false),
            ("build.times", "build", false),
            ("build/", "build/times", true),
            ("build/", "build/", true),
            ("build/", "build", false),
            ("b*d", "bud", false),
            ("b*d", "b*d.x", true),
        ] {
            assert_eq!(Scopes::under_any([series]).allow(name), expected, "{series} {name}");
        }
    }

    #[test]
    fn names_of_which_no_scope_can_be_made() {
        for (name, expected) in [
            ("a", true),
            ("a b~", true),
            ("a*b", true),
            ("a*", false),
            ("é", false),
            ("a\u{7f}", false),
        ] {
            assert_eq!(is_fit(name), expected, "{name:?}");
        }
    }

    #[test]
    fn odd_scopes_get_a_hint() {
        for scope in ["", "stats:put-points:a", "stats:put-points:*", "*"] {
            assert_eq!(check(scope), Ok(()), "{scope}");
        }
        for (scope, hint) in [
            ("a:**", "one stands for anything: \"a:*\""),
            (
                "a:*:b",
                "only a `*` at the end stands for anything; name what you mean in several scopes",
            ),
            ("ä", "for example \"stats:put-points:build/*\""),
        ] {
            assert_eq!(check(scope).unwrap_err().hint, hint, "{scope}");
        }
    }

    proptest! {
        /// Compiled scopes allow what one of them satisfies by the definition.
        #[test]
        fn compiled_scopes_are_the_scopes(
            scopes in prop::collection::vec("(stats:put-points:)?[ab/]{0,3}[*]?", 0..6),
            name in "[ab/]{0,4}",
        ) {
            let allowed = satisfies(&scopes, &put_points(&name));
            prop_assert_eq!(Scopes::new(&scopes).allow(&name), allowed);
        }
    }
}
