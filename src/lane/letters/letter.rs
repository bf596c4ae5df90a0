//! What a dead letter tells, and which of them are meant.

use crate::waybill::Waybill;
use bytes::Bytes;
use protocols::UnixNanos;

/// Records that a backend has refused for good.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The records, in the backend's own bytes.
    pub body: Bytes,
    /// How many of their points were refused.
    pub points: u32,
    /// How many they tell: more, when the backend did not say which it refused.
    pub among: u32,
    /// The metric label.
    pub reason: &'static str,
    /// The backend's own words.
    pub words: String,
    /// Where the records came from.
    pub waybill: Waybill,
    /// When the first of them was encoded.
    pub born: UnixNanos,
}

/// A letter, as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// All but the records.
    pub heading: Heading,
    /// The records, in the backend's own bytes; `None` if they are damaged.
    pub body: Option<Bytes>,
}

/// What a list shows of a letter.
#[derive(Clone, Debug, PartialEq)]
pub struct Heading {
    /// Whose it is.
    pub place: Place,
    /// The kind that the backend had, which tells how the records are written.
    pub kind: String,
    /// The metric label.
    pub reason: String,
    /// The backend's own words.
    pub words: String,
    /// When it was refused.
    pub refused: UnixNanos,
    /// When the first of its records was encoded.
    pub born: UnixNanos,
    /// How many points were refused.
    pub points: u32,
    /// How many the records tell; the others were delivered, and which is not known.
    pub among: u32,
    /// The size of the records.
    pub bytes: u64,
    /// Where the records came from.
    pub waybill: Waybill,
}

/// How a letter is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// No two letters have the same, and a later one has a higher.
    pub id: i64,
    /// The backend's name.
    pub backend: String,
}

/// Which letters are meant: those for which all holds that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this backend.
    pub backend: Option<String>,
    /// Refused for this reason.
    pub reason: Option<String>,
    /// One of these.
    pub ids: Option<Vec<i64>>,
    /// Refused before this.
    pub before: Option<UnixNanos>,
}

impl Selection {
    /// Whether it means every letter there is.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }
}

/// A letter on its way to the disk.
#[derive(Debug)]
pub(super) struct Draft {
    /// 0 until it is put in.
    pub(super) id: i64,
    pub(super) kind: &'static str,
    pub(super) refused_at: UnixNanos,
    pub(super) refused: Refused,
    pub(super) waybill: String,
}

impl Draft {
    pub(super) fn new(kind: &'static str, mut refused: Refused, refused_at: UnixNanos) -> Self {
        // A waybill is numbers and names, which JSON can always say.
        let waybill = serde_json::to_string(&refused.waybill).unwrap_or_default();
        if refused.words.len() > WORDS_MAX {
            refused.words = refused.words.chars().take(WORDS_MAX).collect();
        }
        Self { id: 0, kind, refused_at, refused, waybill }
    }

    /// What it takes of `max_size`.
    pub(super) fn size(&self) -> usize {
        let Refused { body, words, .. } = &self.refused;
        body.len() + words.len() + self.waybill.len() + ROW
    }
}

/// A server that says more says it again with the next letter.
const WORDS_MAX: usize = 2000;
/// What a letter takes beside its texts.
const ROW: usize = 128;
