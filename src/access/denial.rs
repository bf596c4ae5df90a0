//! Why a point is denied, and how its sender is told.

use super::quota::{Exceeded, Kind};
use super::scope::put_points;
use crate::plural::counted;
use protocols::{Measure, Point};
use std::fmt::Write;
use std::time::Duration;

/// Where in a point it says what it may not: the first of its tags, or else of its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The tag in this place.
    Tag(usize),
    /// The column in this place.
    Column(usize),
}

/// Why a point is denied; each has a label that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Nobody is known to be its sender.
    NoPrincipal,
    /// Its sender has no scope for the series.
    Scope,
    /// No scope can be made of its name.
    Name,
    /// It has a tag that clients may not say, or a column of its name.
    ReservedTag(Reserved),
    /// Its sender has written enough for now.
    Quota(Kind),
}

impl Denial {
    /// All of them, each once.
    pub const ALL: [Self; 7] = [
        Self::NoPrincipal,
        Self::Scope,
        Self::Name,
        Self::ReservedTag(Reserved::Tag(0)),
        Self::Quota(Kind::Points),
        Self::Quota(Kind::Series),
        Self::Quota(Kind::NewSeries),
    ];

    /// As metrics call it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoPrincipal => "no_principal",
            Self::Scope => "scope",
            Self::Name => "name",
            Self::ReservedTag(_) => "reserved_tag",
            Self::Quota(Kind::Points) => "quota_points_per_second",
            Self::Quota(Kind::Series) => "quota_series",
            Self::Quota(Kind::NewSeries) => "quota_new_series_per_hour",
        }
    }

    /// A sentence for the sender of the point.
    pub fn message(self, point: &Point<'_>) -> String {
        match self {
            Self::NoPrincipal => "nobody who is known here sends this".to_owned(),
            Self::Scope => format!("the scope {} is missing", put_points(point.name)),
            Self::Name => "who may write a series is asked by its name, which therefore has to be \
                           printable ASCII and must not end with `*`"
                .to_owned(),
            Self::ReservedTag(reserved) => reserved.message(point),
            Self::Quota(kind) => used_up(kind).to_owned(),
        }
    }
}

impl Reserved {
    /// What nobody may say, as it was said: some key that is like it may be the one that is configured.
    fn message(self, point: &Point<'_>) -> String {
        let (what, key) = match (self, &point.measure) {
            (Self::Tag(place), _) => ("tag", point.tags.iter().nth(place).map(|tag| tag.key)),
            (Self::Column(place), Measure::Fields(fields)) => {
                ("column", fields.iter().nth(place).map(|(key, _)| key))
            }
            (Self::Column(_), _) => ("column", None),
        };
        let key = key.unwrap_or_default().chars().take(KEY_CHARS_MAX);
        let key: String = key.flat_map(char::escape_debug).collect();
        format!("the {what} `{key}` is reserved")
    }
}

const fn used_up(kind: Kind) -> &'static str {
    match kind {
        Kind::Points => "the quota of points a second is used up",
        Kind::Series => "the quota of series is used up",
        Kind::NewSeries => "the quota of new series an hour is used up",
    }
}

/// A request that is denied as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub denial: Denial,
    /// The same for its sender, with all that is missing, within reason.
    pub message: String,
    /// When it may come again, of one for which there is no room now.
    pub again: Option<Duration>,
}

impl From<Exceeded> for Refused {
    fn from(exceeded: Exceeded) -> Self {
        let Exceeded { kind, again } = exceeded;
        let denial = Denial::Quota(kind);
        let message = match again {
            Some(_) => used_up(kind).to_owned(),
            None => format!("it has more than {} allows at once; send it in parts", kind.key()),
        };
        Self { denial, message: format!("{message}; {NOTHING}"), again }
    }
}

/// What a request is found to lack, as its points are looked at.
#[derive(Debug, Default)]
pub(super) struct Lacks {
    first: Option<(Denial, String)>,
    scopes: Vec<String>,
    bytes: usize,
    more: u64,
}

impl Lacks {
    /// Notes why a point is denied.
    pub(super) fn note(&mut self, denial: Denial, point: &Point<'_>) {
        if denial != Denial::Scope {
            self.first.get_or_insert_with(|| (denial, denial.message(point)));
            return;
        }
        let scope = put_points(point.name);
        if self.scopes.contains(&scope) {
            return;
        }
        if self.scopes.len() < SCOPES_MAX && self.bytes + scope.len() <= BYTES_MAX {
            self.bytes += scope.len();
            self.scopes.push(scope);
        } else {
            self.more += 1;
        }
    }

    /// What becomes of the request; missing scopes are told before anything else.
    pub(super) fn refused(self) -> Option<Refused> {
        let Self { first, scopes, more, .. } = self;
        if scopes.is_empty() {
            let (denial, message) = first?;
            let message = format!("{message}; {NOTHING}");
            return Some(Refused { denial, message, again: None });
        }
        let what = if scopes.len() > 1 || more > 0 { "these scopes are" } else { "this scope is" };
        let mut message = format!("{what} missing: {}", scopes.join(", "));
        if more > 0 {
            // Writing to a text does not fail.
            let _ = write!(message, ", and those of {}", counted(more, "more point"));
        }
        let message = format!("{message}; {NOTHING}");
        Some(Refused { denial: Denial::Scope, message, again: None })
    }
}

/// Enough to recognise a key: how long one may be is not for us to say.
const KEY_CHARS_MAX: usize = 100;
const NOTHING: &str = "nothing of the request was kept";
/// How many missing scopes are named, and how much of them: a name may have 1024 bytes.
const SCOPES_MAX: usize = 32;
const BYTES_MAX: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::Batch;

    const RESERVED: Denial = Denial::ReservedTag(Reserved::Tag(1));

    fn told(points: &[(Denial, &str)]) -> Option<String> {
        let mut lacks = Lacks::default();
        for (denial, name) in points {
            let mut batch = Batch::new();
            let mut writer = batch.begin(name);
            writer.tag("os", None);
            writer.tag("Host\n", None);
            writer.finish(Measure::Gauge(1.0), None, "");
            drop(writer);
            lacks.note(*denial, &batch.point(0).unwrap());
        }
        lacks.refused().map(|refused| refused.message)
    }

    #[test]
    fn a_request_is_told_each_scope_once() {
        let scope = |name| (Denial::Scope, name);
        assert_eq!(told(&[]), None);
        assert_eq!(
            told(&[scope("a")]).unwrap(),
            "this scope is missing: stats:put-points:a; nothing of the request was kept"
        );
        let several = told(&[scope("a"), (RESERVED, "c"), scope("b"), scope("a")]).unwrap();
        assert!(several.contains("missing: stats:put-points:a, stats:put-points:b;"), "{several}");
        let other = told(&[(RESERVED, "c"), (Denial::Name, "d")]).unwrap();
        assert!(other.starts_with("the tag `Host\\n` is reserved; nothing"), "{other}");
    }

    #[test]
    fn the_list_is_bounded() {
        let names: Vec<_> = (0..1000).map(|n| format!("{n}{}", "x".repeat(1000))).collect();
        let points: Vec<_> = names.iter().map(|name| (Denial::Scope, name.as_str())).collect();
        let message = told(&points).unwrap();
        assert!(message.len() < BYTES_MAX + 200, "{}", message.len());
        assert!(message.contains("and those of 99"), "{}", &message[message.len() - 100..]);
        let short: Vec<_> = (0..40).map(|n| n.to_string()).collect();
        let points: Vec<_> = short.iter().map(|name| (Denial::Scope, name.as_str())).collect();
        assert!(told(&points).unwrap().contains("and those of 8 more points"));
    }

    #[test]
    fn labels_differ() {
        let labels: std::collections::BTreeSet<_> =
            Denial::ALL.iter().map(|denial| denial.label()).collect();
        assert_eq!(labels.len(), Denial::ALL.len());
    }
}
