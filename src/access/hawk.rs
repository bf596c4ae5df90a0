//! Hawk: requests that are signed with a key which never travels.
//!
//! ```abnf
//! normal = "hawk.1.header" LF ts LF nonce LF METHOD LF resource LF host LF port LF [hash] LF [ext] LF
//! hash   = base64(SHA-256("hawk.1.payload" LF media-type LF payload LF))
//! ```
//!
//! A signature holds for one method, resource, host and port, and for [`SKEW`] around its time.
//! What comes twice within that is not noticed, so it takes TLS to keep others from repeating what
//! they overhear. `ext` may limit what a request may do, as Taskcluster's clients say it: base64 of
//! `{"authorizedScopes": […]}`; anything else there is refused, since a limit that is not
//! understood is none. A payload's hash is looked at where there is one.

use super::credential::{BASE64, Unreadable};
use super::scope::satisfies;
use crate::units::Secret;
use base64::Engine;
use protocols::UnixNanos;
use ring::digest::{Context, SHA256};
use ring::hmac::{HMAC_SHA256, Key, sign, verify};
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What a principal's section says of Hawk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hawk {
    /// A Taskcluster whose credentials are good, and say what they are good for.
    pub root_url: Option<String>,
    /// Credentials of our own.
    pub credentials: Vec<HawkCredentials>,
    /// Whether `X-Forwarded-Host`, `-Port` and `-Proto` say what was signed.
    pub trust_forwarded: bool,
}

/// Whose key is what.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HawkCredentials {
    /// The name of the key.
    pub id: String,
    /// The key; better `key_file`.
    pub key: Option<Secret>,
    /// The file that has it.
    pub key_file: Option<PathBuf>,
}

/// What of a request is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `POST`.
    pub method: String,
    /// Path and query, as sent.
    pub resource: String,
    /// In lower case, without its port.
    pub host: String,
    /// Of the server, as the client sees it.
    pub port: u16,
}

/// What requests of our own are signed with.
pub struct SigningKey {
    id: String,
    key: Key,
}

impl SigningKey {
    /// Of these credentials.
    pub fn new(id: &str, secret: &Secret) -> Self {
        Self { id: id.to_owned(), key: key(secret) }
    }

    /// The header `Authorization` of a request without a payload; no two have the same nonce.
    pub fn sign(&self, target: &Target, now: UnixNanos, nonce: &str) -> String {
        let Self { id, key } = self;
        let (ts, nonce) = (now.secs().to_string(), nonce.to_owned());
        let (mac, hash, ext, header) = (Vec::new(), None, None, String::new());
        let signed = Signed { id: id.clone(), ts, nonce, mac, hash, ext, header };
        let mac = BASE64.encode(sign(key, signed.normal(target).as_bytes()));
        let Signed { ts, nonce, .. } = signed;
        format!("Hawk id=\"{id}\", ts=\"{ts}\", nonce=\"{nonce}\", mac=\"{mac}\"")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The header of a signed request. It does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Signed {
    /// Whose key has signed it.
    pub id: String,
    ts: String,
    nonce: String,
    mac: Vec<u8>,
    hash: Option<String>,
    ext: Option<String>,
    /// All of it, as sent.
    pub(super) header: String,
}

impl Signed {
    /// Reads what follows `Hawk `; `header` is the whole value.
    pub(super) fn parse(rest: &str, header: &str) -> Result<Self, Unreadable> {
        let mut parts = Parts::default();
        let mut rest = rest.trim();
        while !rest.is_empty() {
            let (name, after) = rest.split_once("=\"").ok_or(Unreadable)?;
            let (value, after) = after.split_once('"').ok_or(Unreadable)?;
            parts.set(name.trim(), value)?;
            rest = after.trim_start();
            rest = match rest.strip_prefix(',') {
                Some(more) => more.trim_start(),
                None if rest.is_empty() => rest,
                None => return Err(Unreadable),
            };
        }
        let Parts { id, ts, nonce, mac, hash, ext } = parts;
        let owned = |text: &str| text.to_owned();
        let ts = ts.filter(|ts| is_time(ts)).ok_or(Unreadable)?;
        Ok(Self {
            id: owned(id.ok_or(Unreadable)?),
            ts: owned(ts),
            nonce: owned(nonce.ok_or(Unreadable)?),
            mac: BASE64.decode(mac.ok_or(Unreadable)?).map_err(|_| Unreadable)?,
            hash: hash.map(owned),
            ext: ext.map(owned),
            header: owned(header),
        })
    }

    /// When it was signed, as its sender says.
    pub fn time(&self) -> UnixNanos {
        UnixNanos::from_secs(self.ts.parse().unwrap_or(0))
    }

    /// The hash of the payload, if it was signed.
    pub fn hash(&self) -> Option<&str> {
        self.hash.as_deref()
    }

    /// Whether this key has signed it, for this target, just now.
    pub(super) fn is_by(&self, key: &Key, target: &Target, UnixNanos(now): UnixNanos) -> bool {
        let skew = now.saturating_sub(self.time().0).unsigned_abs();
        let normal = self.normal(target);
        // Its time is looked at whether or not the rest is right.
        verify(key, normal.as_bytes(), &self.mac).is_ok() & (u128::from(skew) <= SKEW.as_nanos())
    }

    fn normal(&self, target: &Target) -> String {
        let Self { ts, nonce, .. } = self;
        let (hash, ext) = (self.hash.as_deref().unwrap_or(""), self.ext.as_deref().unwrap_or(""));
        let Target { method, resource, host, port } = target;
        let method = method.to_ascii_uppercase();
        format!(
            "hawk.1.header\n{ts}\n{nonce}\n{method}\n{resource}\n{host}\n{port}\n{hash}\n{ext}\n"
        )
    }

    /// To which scopes its sender has limited it, out of those that he has; none if he has not.
    pub(super) fn limits(&self, has: &[String]) -> Result<Option<Vec<String>>, Unreadable> {
        let Some(ext) = self.ext.as_deref().filter(|ext| !ext.is_empty()) else { return Ok(None) };
        let json = BASE64.decode(ext).map_err(|_| Unreadable)?;
        let ext: Ext = serde_json::from_slice(&json).map_err(|_| Unreadable)?;
        match ext.authorized_scopes {
            Some(limits) if limits.iter().all(|limit| satisfies(has, limit)) => Ok(Some(limits)),
            Some(_) => Err(Unreadable),
            None => Ok(None),
        }
    }
}

impl fmt::Debug for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hawk ***")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ext {
    #[serde(rename = "authorizedScopes")]
    authorized_scopes: Option<Vec<String>>,
}

#[derive(Default)]
struct Parts<'a> {
    id: Option<&'a str>,
    ts: Option<&'a str>,
    nonce: Option<&'a str>,
    mac: Option<&'a str>,
    hash: Option<&'a str>,
    ext: Option<&'a str>,
}

impl<'a> Parts<'a> {
    /// Each once, and none that nobody knows.
    fn set(&mut self, name: &str, value: &'a str) -> Result<(), Unreadable> {
        let part = match name {
            "id" => &mut self.id,
            "ts" => &mut self.ts,
            "nonce" => &mut self.nonce,
            "mac" => &mut self.mac,
            "hash" => &mut self.hash,
            "ext" => &mut self.ext,
            _ => return Err(Unreadable),
        };
        match part.replace(value) {
            None => Ok(()),
            Some(_) => Err(Unreadable),
        }
    }
}

/// The key of some credentials.
pub(super) fn key(secret: &Secret) -> Key {
    Key::new(HMAC_SHA256, secret.expose().as_bytes())
}

/// Whether a payload has this hash.
pub fn is_payload(hash: &str, media_type: &str, payload: &[u8]) -> bool {
    let media_type = media_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let mut own = Context::new(&SHA256);
    for part in [b"hawk.1.payload\n", media_type.as_bytes(), b"\n", payload, b"\n"] {
        own.update(part);
    }
    BASE64.decode(hash).is_ok_and(|hash| hash == own.finish().as_ref())
}

fn is_time(text: &str) -> bool {
    (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// How far the clocks of sender and server may be apart.
const SKEW: Duration = Duration::from_secs(60);
/// Seconds, as far as times go here.
const DIGITS_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use hawk::{Credentials, DigestAlgorithm, RequestBuilder};
    use proptest::prelude::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    const NOW: u64 = 1_700_000_000;

    fn target() -> Target {
        Target {
            method: "PUT".to_owned(),
            resource: "/v1/points?a=b%20c".to_owned(),
            host: "stats.example.com".to_owned(),
            port: 443,
        }
    }

    fn at(secs: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(secs)
    }

    /// A header by another implementation, for a request of its own.
    fn header(change: impl FnOnce(RequestBuilder<'_>) -> hawk::Header) -> Signed {
        let builder = RequestBuilder::new("PUT", "stats.example.com", 443, "/v1/points?a=b%20c");
        let header = format!("Hawk {}", change(builder));
        Signed::parse(header.strip_prefix("Hawk ").unwrap(), &header).unwrap()
    }

    fn sign(request: &hawk::Request<'_>, key: &str, secs: u64) -> hawk::Header {
        let key = hawk::Key::new(key, DigestAlgorithm::Sha256).unwrap();
        let credentials = Credentials { id: "ci".to_owned(), key };
        request.make_header_full(&credentials, at(secs), "n0nce").unwrap()
    }

    fn is_by(signed: &Signed, change: impl FnOnce(&mut Target)) -> bool {
        let mut target = target();
        change(&mut target);
        let now = UnixNanos::from_secs(NOW as i64);
        signed.is_by(&key(&Secret::new("no-secret")), &target, now)
    }

    #[test]
    fn a_signature_holds_for_what_was_signed() {
        let signed = header(|builder| sign(&builder.request(), "no-secret", NOW));
        assert!(is_by(&signed, |_| {}));
        assert!(is_by(&signed, |target| target.method = "put".to_owned()));
        assert!(!is_by(&signed, |target| target.method = "POST".to_owned()));
        assert!(!is_by(&signed, |target| target.resource = "/v1/points".to_owned()));
        assert!(!is_by(&signed, |target| target.host = "other.example.com".to_owned()));
        assert!(!is_by(&signed, |target| target.port = 80));
        let other = header(|builder| sign(&builder.request(), "other", NOW));
        assert!(!is_by(&other, |_| {}));
    }

    /// As another implementation would.
    #[test]
    fn requests_of_our_own_are_signed() {
        let now = UnixNanos::from_secs(NOW as i64);
        let own = SigningKey::new("ci", &Secret::new("no-secret")).sign(&target(), now, "n0nce");
        let theirs = header(|builder| sign(&builder.request(), "no-secret", NOW));
        let ours = Signed::parse(own.strip_prefix("Hawk ").unwrap(), "").unwrap();
        assert_eq!((&ours.id, &ours.ts, &ours.nonce), (&theirs.id, &theirs.ts, &theirs.nonce));
        assert_eq!(ours.mac, theirs.mac);
        assert!(is_by(&ours, |_| {}));
    }

    #[test]
    fn a_signature_holds_for_a_minute() {
        for (secs, expected) in
            [(NOW - 61, false), (NOW - 60, true), (NOW + 60, true), (NOW + 61, false), (0, false)]
        {
            let signed = header(|builder| sign(&builder.request(), "no-secret", secs));
            assert_eq!(is_by(&signed, |_| {}), expected, "{secs}");
        }
    }

    #[test]
    fn payloads_have_their_hash() {
        let hash = hawk::PayloadHasher::hash("application/json", DigestAlgorithm::Sha256, "[]");
        let hash = hash.unwrap();
        let signed = header(|builder| sign(&builder.hash(&hash[..]).request(), "no-secret", NOW));
        assert!(is_by(&signed, |_| {}));
        let hash = signed.hash().unwrap();
        assert!(is_payload(hash, "Application/JSON; charset=utf-8", b"[]"));
        assert!(!is_payload(hash, "application/json", b"[1]"));
        assert!(!is_payload(hash, "text/plain", b"[]"));
        assert!(!is_payload("", "application/json", b"[]"));
    }

    #[test]
    fn a_request_may_be_limited_to_less_than_its_sender_may() {
        let has = ["stats:put-points:a*".to_owned(), "queue:x".to_owned()];
        let limits = |ext: &str| {
            let signed = header(|builder| sign(&builder.ext(ext).request(), "no-secret", NOW));
            assert!(is_by(&signed, |_| {}), "{ext}");
            signed.limits(&has)
        };
        let coded = |json: &str| limits(&base64::prelude::BASE64_STANDARD.encode(json));
        let some = |limits: &[&str]| Ok(Some(limits.iter().map(|it| (*it).to_owned()).collect()));
        assert_eq!(
            coded(r#"{"authorizedScopes":["stats:put-points:ab"]}"#),
            some(&["stats:put-points:ab"])
        );
        assert_eq!(
            coded(r#"{"authorizedScopes":["stats:put-points:a*"]}"#),
            some(&["stats:put-points:a*"])
        );
        assert_eq!(coded(r#"{"authorizedScopes":[]}"#), some(&[]));
        assert_eq!(coded("{}"), Ok(None));
        for (json, why) in [
            (r#"{"authorizedScopes":["stats:put-points:b"]}"#, "he has not got that"),
            (r#"{"authorizedScopes":["stats:put-points:*"]}"#, "nor that"),
            (r#"{"certificate":{}}"#, "nobody here can look at it"),
            ("[]", "no limits"),
        ] {
            assert_eq!(coded(json), Err(Unreadable), "{why}");
        }
        assert_eq!(limits("plain"), Err(Unreadable));
    }

    #[test]
    fn headers_are_read_or_not() {
        let good = r#"id="a", ts="1700000000", nonce="n", mac="AAAA""#;
        assert!(Signed::parse(good, "").is_ok());
        for bad in [
            "",
            r#"id="a""#,
            r#"id="a", ts="-1", nonce="n", mac="AAAA""#,
            r#"id="a", ts="18446744073709551615", nonce="n", mac="AAAA""#,
            r#"id="a", ts="1700000000", nonce="n", mac="A?""#,
            r#"id="a", ts="1700000000", nonce="n", mac="AAAA", app="x""#,
            r#"id="a", id="b", ts="1700000000", nonce="n", mac="AAAA""#,
            r#"id="a" ts="1700000000" nonce="n" mac="AAAA""#,
            r#"id=a, ts="1700000000", nonce="n", mac="AAAA""#,
        ] {
            assert!(Signed::parse(bad, "").is_err(), "{bad}");
        }
        assert_eq!(format!("{:?}", Signed::parse(good, "").unwrap()), "Hawk ***");
    }

    proptest! {
        /// Whatever stands there, it is read or refused.
        #[test]
        fn nothing_upsets_the_reader(text in "(id|ts|mac|nonce|ext|,|=|\"| |[0-9])*") {
            let _ = Signed::parse(&text, "").map(|signed| signed.time());
        }
    }
}
