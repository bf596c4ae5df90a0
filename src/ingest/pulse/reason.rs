//! Why nothing, or not all, of a finished task could be taken.

/// Why; each has a label that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// There is no artifact of any of the names.
    Missing,
    /// It is not there any more.
    Expired,
    /// We may not have it.
    Forbidden,
    /// The task has left an error in its place.
    Error,
    /// It is only a link, which is not followed unless that is said.
    Reference,
    /// It leads to where nothing is fetched, or on and on.
    Redirect,
    /// It has more bytes than may be.
    TooLarge,
    /// It is packed in a way that is not known, or broken.
    Encoding,
    /// Its bytes are not those that were announced,
    Hash,
    /// or not as many.
    Length,
    /// The queue gives another answer that cannot be meant.
    Answer,
    /// The queue cannot be asked, or its answer does not come, again and again.
    Unavailable,
    /// The task names a series of which no scope can be made.
    Series,
    /// A backend has lost some of the points, or refused them.
    Lost,
}

impl Reason {
    /// As metrics call it.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Missing => "artifact_missing",
            Self::Expired => "artifact_expired",
            Self::Forbidden => "artifact_forbidden",
            Self::Error => "artifact_error",
            Self::Reference => "artifact_reference",
            Self::Redirect => "artifact_redirect",
            Self::TooLarge => "artifact_too_large",
            Self::Encoding => "artifact_encoding",
            Self::Hash => "artifact_hash",
            Self::Length => "artifact_length",
            Self::Answer => "artifact_answer",
            Self::Unavailable => "artifact_unavailable",
            Self::Series => "invalid_series",
            Self::Lost => "points_lost",
        }
    }
}
