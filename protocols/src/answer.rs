//! What an HTTP client is told, in whatever protocol: a status, and JSON if there is anything to say.

use serde::Serialize;

/// An HTTP answer without the HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// A JSON body; none goes with 204.
    pub body: Option<String>,
}

impl Answer {
    /// What whoever uses one `Idempotency-Key` for two requests is told, and knows it by.
    pub const KEY_CONFLICT: &str =
        "this Idempotency-Key was used for another request; nothing of this one was kept";

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
