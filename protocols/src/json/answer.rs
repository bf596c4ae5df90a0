//! What an HTTP client is told about its body: a status, and JSON if there is anything to say.

use super::Outcome;
use super::body::BodyError;
use super::refusals::ItemError;
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};

/// An HTTP answer without the HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// A JSON body; none goes with 204.
    pub body: Option<String>,
}

impl Answer {
    pub(crate) fn json(status: u16, body: &impl Serialize) -> Self {
        // These are maps with text keys and finite numbers, which always can be written.
        Self { status, body: Some(serde_json::to_string(body).unwrap_or_default()) }
    }

    /// `{"error":{"code":…,"message":…}}`, with `details` where there are any.
    pub fn error(status: u16, message: &str, details: Option<&str>) -> Self {
        #[derive(Serialize)]
        struct Outer<'t> {
            error: Inner<'t>,
        }
        #[derive(Serialize)]
        struct Inner<'t> {
            code: u16,
            message: &'t str,
            #[serde(skip_serializing_if = "Option::is_none")]
            details: Option<&'t str>,
        }
        Self::json(status, &Outer { error: Inner { code: status, message, details } })
    }
}

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
