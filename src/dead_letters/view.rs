//! The shape in which letters are shown: in JSON by the admin listener, and read back by the
//! command.

use super::decode::{decode, json_lines};
use crate::lane::{Heading, Letter, Page, Sum};
use crate::when;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Some letters, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct List {
    /// These.
    pub letters: Vec<View>,
    /// How many were asked for, on all pages.
    pub sum: Sum,
    /// What `after` has to be for the next page; `None` if this was the last.
    pub next: Option<i64>,
    /// Which files could not be read, and why; their letters are missing here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// A letter without its records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// No two letters have the same, and a later one has a higher.
    pub id: i64,
    /// The backend that refused.
    pub backend: String,
    /// Its kind.
    pub kind: String,
    /// The metric label.
    pub reason: String,
    /// The backend's own words.
    pub words: String,
    /// When it refused.
    pub refused: String,
    /// When the first record was encoded.
    pub born: String,
    /// How many points were refused.
    pub points: u32,
    /// How many the records tell.
    pub among: u32,
    /// The size of the records.
    pub bytes: u64,
    /// The routes that handed its points over, as far as that is known.
    pub routes: Vec<String>,
}

/// A letter.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// What a list shows of it.
    #[serde(flatten)]
    pub view: View,
    /// What is in it.
    #[serde(flatten)]
    pub content: Content,
}

/// What is in a letter.
#[derive(Debug, Serialize, Deserialize)]
pub struct Content {
    /// The records in the backend's own bytes, as far as they are UTF-8; `None` if they are
    /// damaged.
    pub records: Option<String>,
    /// The records as points.
    pub decoded: Vec<Box<RawValue>>,
    /// Why there are no points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl From<Page> for List {
    fn from(page: Page) -> Self {
        let letters = page.headings.into_iter().map(View::from).collect();
        Self { letters, sum: page.sum, next: page.next, unreadable: page.unreadable }
    }
}

impl From<Heading> for View {
    fn from(heading: Heading) -> Self {
        Self {
            id: heading.place.id,
            backend: heading.place.backend,
            kind: heading.kind,
            reason: heading.reason,
            words: heading.words,
            refused: when::show(heading.refused),
            born: when::show(heading.born),
            points: heading.points,
            among: heading.among,
            bytes: heading.bytes,
            routes: heading.waybill.routes().iter().map(|route| route.to_string()).collect(),
        }
    }
}

impl From<Letter> for Shown {
    fn from(Letter { heading, body }: Letter) -> Self {
        let read = body.as_ref().ok_or_else(|| DAMAGED.to_owned());
        let decoded = read.and_then(|body| decode(&heading.kind, body));
        let (points, problem) = match decoded {
            Ok(decoded) => (json_lines(&decoded.points), None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        let content = Content {
            records: body.map(|body| String::from_utf8_lossy(&body).into_owned()),
            decoded: points
                .into_iter()
                .filter_map(|line| RawValue::from_string(line).ok())
                .collect(),
            problem,
        };
        Self { view: heading.into(), content }
    }
}

/// Of a body whose checksum is wrong.
pub(super) const DAMAGED: &str = "the records are damaged";
