//! Answers in JSON, each a line; refusals are all of one shape:
//! `{"error":{"code":…,"message":"…"}}`.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

/// JSON that ends its line, as a terminal wants it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.0) {
            Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
            Err(problem) => {
                (StatusCode::INTERNAL_SERVER_ERROR, problem.to_string()).into_response()
            }
        }
    }
}

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Refusal {
    /// The question makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: "bad_request", message: message.into() }
    }

    /// A foreign web page may be behind it.
    pub(super) fn from_a_page() -> Self {
        let message = "a request with an Origin comes from a web page, and none may do this";
        Self { status: StatusCode::FORBIDDEN, code: "forbidden", message: message.to_owned() }
    }

    /// A part of the gateway is not up yet, or not any more.
    pub(super) fn not_ready(message: String) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, code: "not_ready", message }
    }

    /// The configuration has mistakes.
    pub(super) fn not_applied(message: String) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, code: "invalid_configuration", message }
    }

    /// No backend of kind `store` has written anything.
    pub(super) fn no_store(message: String) -> Self {
        Self { status: StatusCode::NOT_FOUND, code: "no_store", message }
    }

    /// There is no such dead letter.
    pub(super) fn no_letter(message: String) -> Self {
        Self { status: StatusCode::NOT_FOUND, code: "no_letter", message }
    }

    /// The dead letters are there and cannot be read, or not written.
    pub(super) fn letters_unreadable(message: String) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { status, code: "dead_letters_unreadable", message }
    }

    /// The store is there and cannot be read.
    pub(super) fn unreadable(message: String) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, code: "store_unreadable", message }
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        let text = rejection.body_text();
        Self::bad_request(text.trim_start_matches("Failed to deserialize query string: "))
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code, "message": self.message } });
        (self.status, Json(body)).into_response()
    }
}

pub(super) async fn not_found(uri: Uri) -> Refusal {
    let message = format!("there is nothing at {}; the page at / shows what there is", uri.path());
    Refusal { status: StatusCode::NOT_FOUND, code: "not_found", message }
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    let message = format!("{} does not take {method}", uri.path());
    Refusal { status: StatusCode::METHOD_NOT_ALLOWED, code: "method_not_allowed", message }
}
