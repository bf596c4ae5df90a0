//! Requests that may come again: the header `Idempotency-Key`, and what tells them apart.
//!
//! A key is 1 to 255 visible ASCII characters, bare or quoted as a structured field wants it; both
//! spellings are the same key. What makes a request the same is its method, path and query, content
//! type and body, decompressed. The same again is answered as before, marked
//! `Idempotency-Replayed: true` and noticed as `repeated_request`; another one under the same key
//! is 422 (`key_conflict`), and one whose twin is at work for too long is 409 (`key_in_use`).
//! A key belongs to its sender: where senders are known, another one's key of that spelling is
//! another key. A twin whose points are still on their way is at work, even if its sender was
//! answered 504.

use super::answer::{Refusal, Web};
use crate::access::Gate;
use crate::ingest::keys::{Claim, Claimed, Fingerprint, Patience};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use protocols::Answer;
use ring::digest::{Context, SHA256};
use tokio::time::Instant;

/// The key of a request, and its head for the fingerprint.
pub(super) struct Keyed {
    key: String,
    head: Context,
    /// How long it waits for a twin.
    deadline: Instant,
}

/// Whether a request is to be worked on.
pub(super) enum Turn {
    /// It is the first; what came of it belongs to the claim.
    First(Claim),
    /// It is not, and this was the answer.
    Again(Answer),
}

impl Keyed {
    /// What a request says of itself; `None` if it is not to be remembered.
    pub(super) fn of(
        request: &Request,
        gate: &Gate,
        deadline: Instant,
    ) -> Result<Option<Self>, Refusal> {
        let refused = |text: &'static str| Refusal::new(400, "invalid_key", text);
        let Some(key) = key(request.headers()).map_err(refused)? else { return Ok(None) };
        // Neither has a blank in it.
        let key = gate.principal().map_or(key.clone(), |own| format!("{} {key}", own.name));
        Ok(Some(Self { key, head: head(request), deadline }))
    }

    /// Claims the key, with the whole request at hand.
    pub(super) async fn claim(self, body: &[u8], web: &Web) -> Result<Turn, Refusal> {
        let mut all = self.head;
        let finish = || {
            all.update(body);
            all.finish()
        };
        let digest = web.bodies.digest(body.len(), finish).await;
        let mut fingerprint = Fingerprint([0; 32]);
        fingerprint.0.copy_from_slice(digest.as_ref());
        let patience = Patience { deadline: self.deadline, busy: &web.busy, stop: &web.stop };
        match web.keys.claim(&self.key, fingerprint, patience).await {
            Claimed::Mine(claim) => Ok(Turn::First(claim)),
            Claimed::Answered(before) if before.fingerprint == fingerprint => {
                web.book.noticed.add("repeated_request", 1);
                Ok(Turn::Again(before.answer.clone()))
            }
            Claimed::Answered(_) => Err(Refusal::new(422, "key_conflict", Answer::KEY_CONFLICT)),
            Claimed::Busy => Err(Refusal::new(409, "key_in_use", IN_USE)),
        }
    }
}

/// The one key of a request.
fn key(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut values = headers.get_all(NAME).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(SEVERAL);
    }
    let value = value.as_bytes().trim_ascii();
    let key = match value.strip_prefix(b"\"") {
        Some(rest) => unquoted(rest)?,
        None => value.to_vec(),
    };
    if key.is_empty() || key.len() > KEY_BYTES_MAX || !key.iter().all(u8::is_ascii_graphic) {
        return Err(SHAPE);
    }
    String::from_utf8(key).map(Some).map_err(|_| SHAPE)
}

/// The rest of a quoted string (RFC 9651, section 3.3.3) after its first quote.
fn unquoted(mut rest: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut key = Vec::new();
    loop {
        rest = match rest {
            [b'"'] => return Ok(key),
            [b'\\', escaped @ (b'"' | b'\\'), rest @ ..] => {
                key.push(*escaped);
                rest
            }
            [b'"' | b'\\', ..] | [] => return Err(QUOTES),
            [plain, rest @ ..] => {
                key.push(*plain);
                rest
            }
        };
    }
}

/// All but the body; each part says how long it is, so that none runs into the next.
fn head(request: &Request) -> Context {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let mut head = Context::new(&SHA256);
    for part in [request.method().as_str().as_bytes(), target.as_bytes(), kind] {
        head.update(&(part.len() as u64).to_le_bytes());
        head.update(part);
    }
    head
}

const NAME: &str = "idempotency-key";
const KEY_BYTES_MAX: usize = 255;
const SEVERAL: &str = "there are several headers Idempotency-Key; send one";
const SHAPE: &str = "the Idempotency-Key is not 1 to 255 visible ASCII characters";
const QUOTES: &str = "the Idempotency-Key begins with a quote and is no quoted string; write \"KEY\", \
    with \\\" and \\\\ for a quote and a backslash inside, or KEY without quotes";
const IN_USE: &str = "a request with this Idempotency-Key is still being worked on, or its points \
    are on their way; nothing of this one was kept";

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::HeaderValue;

    #[test]
    fn keys_are_read_bare_and_quoted() {
        let check = |values: &[&[u8]], expected: Result<Option<&str>, &str>| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(NAME, HeaderValue::from_bytes(value).unwrap());
            }
            let key = key(&headers);
            assert_eq!(key.as_ref().map(Option::as_deref).map_err(|text| *text), expected);
        };
        let long = "x".repeat(255);
        check(&[], Ok(None));
        check(
            &[b"8e03978e-40d5-43dd-bc93-6894a57f9324"],
            Ok(Some("8e03978e-40d5-43dd-bc93-6894a57f9324")),
        );
        check(&[b"\"8e03\""], Ok(Some("8e03")));
        check(&[b"  8e03\t"], Ok(Some("8e03")));
        check(&[br#""a\"b\\c""#], Ok(Some(r#"a"b\c"#)));
        check(&[br#"a"b\c"#], Ok(Some(r#"a"b\c"#)));
        check(&[long.as_bytes()], Ok(Some(&long)));
        check(&[format!("\"{long}\"").as_bytes()], Ok(Some(&long)));
        check(&[b""], Err(SHAPE));
        check(&[b"\"\""], Err(SHAPE));
        check(&[format!("{long}x").as_bytes()], Err(SHAPE));
        check(&[b"a b"], Err(SHAPE));
        check(&[b"\"a b\""], Err(SHAPE));
        check(&["ä".as_bytes()], Err(SHAPE));
        check(&[b"\""], Err(QUOTES));
        check(&[b"\"a"], Err(QUOTES));
        check(&[b"\"a\\"], Err(QUOTES));
        check(&[b"\"a\\b\""], Err(QUOTES));
        check(&[b"\"a\"; x=1"], Err(QUOTES));
        check(&[b"a", b"a"], Err(SEVERAL));
    }

    #[test]
    fn every_part_of_a_head_makes_a_request_another() {
        let of = |method: &str, uri: &str, kind: &str| {
            let request = Request::builder().method(method).uri(uri).header(CONTENT_TYPE, kind);
            head(&request.body(Body::empty()).unwrap()).finish().as_ref().to_vec()
        };
        let first = of("POST", "/v1/points?a=1", "text/plain");
        assert_eq!(first, of("POST", "http://host/v1/points?a=1", "text/plain"));
        for (method, uri, kind) in [
            ("PUT", "/v1/points?a=1", "text/plain"),
            ("POST", "/v1/point?a=1", "text/plain"),
            ("POST", "/v1/points?a=2", "text/plain"),
            ("POST", "/v1/points", "text/plain"),
            ("POST", "/v1/points?a=1", "text/plai"),
            ("POST", "/v1/points?a=1t", "ext/plain"),
            ("POST", "/v1/points?a=1", ""),
        ] {
            assert_ne!(first, of(method, uri, kind), "{method} {uri} {kind}");
        }
    }
}
