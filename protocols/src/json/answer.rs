//! What the JSON points API answers about a body.

use super::Outcome;
use super::body::BodyError;
use crate::answer::Answer;
use crate::refusals::ItemError;
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};

impl BodyError {
    /// The answer of the JSON points API.
    pub fn answer(self) -> Answer {
        Answer::error(400, &self.to_string(), None)
    }
}

impl Outcome<'_> {
    /// 204 if all was accepted, 200 with the counts if `details` were asked for, and 400 with
    /// every refusal otherwise. A list that was cut says in `unlisted` by how many.
    pub fn answer(&self, details: bool) -> Answer {
        #[derive(Serialize)]
        struct Body<'t> {
            accepted: usize,
            rejected: Rejected<'t>,
            #[serde(skip_serializing_if = "is_zero")]
            unlisted: usize,
        }
        let listed = self.refusals.listed();
        let body = Body {
            accepted: self.accepted,
            rejected: Rejected(listed),
            unlisted: self.refusals.total() - listed.len(),
        };
        match (listed.is_empty(), details) {
            (true, false) => Answer { status: 204, body: None },
            (true, true) => Answer::json(200, &body),
            (false, _) => Answer::json(400, &body),
        }
    }
}

struct Rejected<'t>(&'t [ItemError<'t>]);

impl Serialize for Rejected<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Item<'t> {
            index: usize,
            error: &'t str,
        }
        let mut list = json.serialize_seq(Some(self.0.len()))?;
        for ItemError { index, message, .. } in self.0 {
            list.serialize_element(&Item { index: *index, error: message })?;
        }
        list.end()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde's signature.
fn is_zero(count: &usize) -> bool {
    *count == 0
}
