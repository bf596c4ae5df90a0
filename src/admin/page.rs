//! The page: one file without anything from elsewhere, which reads the JSON beside it.
//!
//! Names on it come from strangers. The script only ever sets text, never markup, and the
//! policy lets no other script run than the one that carries this answer's nonce.

use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};

pub(super) async fn show() -> Response {
    let nonce = format!("{:032x}", rand::random::<u128>());
    let mut response = Html(PAGE.replace("{nonce}", &nonce)).into_response();
    let policy = POLICY.replace("{nonce}", &nonce);
    if let Ok(policy) = HeaderValue::try_from(policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

const PAGE: &str = include_str!("page.html");

const POLICY: &str = "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_writes_no_markup() {
        let markup = ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("];
        let elsewhere = ["https:", "src=", "@import", "url(", "style="];
        for word in markup.into_iter().chain(elsewhere) {
            assert!(!PAGE.contains(word), "{word}");
        }
        assert_eq!(PAGE.matches("nonce=\"{nonce}\"").count(), 2);
    }

    #[tokio::test]
    async fn each_answer_has_its_own_nonce() {
        let (one, other) = (show().await, show().await);
        let policy =
            |response: &Response| response.headers()[header::CONTENT_SECURITY_POLICY].clone();
        assert_ne!(policy(&one), policy(&other));
        assert!(!policy(&one).to_str().unwrap().contains("{nonce}"));
    }
}
