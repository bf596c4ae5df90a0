//! Content codings: which are understood, told before a body is touched.

use super::answer::{Refusal, Web};
use crate::net::Peer;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

/// Marks a request whose body is decompressed on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoded;

/// Spells the coding as the decompression knows it, or refuses the request.
pub(super) async fn check(State(web): State<Web>, mut request: Request, next: Next) -> Response {
    match coding(request.headers()) {
        Ok(None) => drop(request.headers_mut().remove(CONTENT_ENCODING)),
        Ok(Some(coding)) => {
            let coding = HeaderValue::from_static(coding);
            request.headers_mut().insert(CONTENT_ENCODING, coding);
            request.extensions_mut().insert(Encoded);
        }
        Err(unknown) => {
            let text = "the content encoding is none of gzip, deflate and zstd";
            let refusal = Refusal::new(415, "unsupported_encoding", text);
            let mut response =
                refusal.answer(&web, unknown.as_bytes(), request.extensions().get::<Peer>());
            let known = HeaderValue::from_static("gzip, deflate, zstd");
            response.headers_mut().insert(ACCEPT_ENCODING, known);
            return response;
        }
    }
    next.run(request).await
}

/// One coding or none; several, one inside the other, are not taken apart.
fn coding(headers: &HeaderMap) -> Result<Option<&'static str>, String> {
    let mut found = None;
    for value in headers.get_all(CONTENT_ENCODING) {
        let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        for word in text.split(',').map(str::trim) {
            let coding = match word {
                "" | "identity" => continue,
                "gzip" | "x-gzip" => "gzip",
                "deflate" => "deflate",
                "zstd" => "zstd",
                _ => return Err(text),
            };
            if found.replace(coding).is_some() {
                return Err(text);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_are_known_in_any_case() {
        let check = |values: &[&'static str], expected| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            assert_eq!(coding(&headers).map_err(drop), expected, "{values:?}");
        };
        check(&[], Ok(None));
        check(&["identity"], Ok(None));
        check(&["GZIP"], Ok(Some("gzip")));
        check(&["x-gzip"], Ok(Some("gzip")));
        check(&["identity, zstd"], Ok(Some("zstd")));
        check(&["gzip, gzip"], Err(()));
        check(&["gzip", "deflate"], Err(()));
        check(&["br"], Err(()));
    }
}
