//! What an answer of InfluxDB means for the points that were sent.
//!
//! | status | meaning here |
//! |---|---|
//! | 2xx | delivered |
//! | 400, 422 and 5xx that tell of a partial write | the rest is stored; which were refused is to be found |
//! | 400, 422 otherwise | refused as a whole, for one point maybe: send halves |
//! | 413 | too large: send halves, and no more than that from now on |
//! | other 4xx | refused for good |
//! | 401, 403, 404 | hold: a person has to mend credentials, rights or the database |
//! | 400 of whoever speaks TLS before the database | hold: likewise, the URL or a certificate |
//! | 408, 429, 3xx, 5xx, no answer | come back later |
//! | 500 that does not say when | the same, and it may be this payload's fault |
//!
//! Sources of the texts: InfluxDB 1.x `services/httpd` and `tsdb`, 2.x `http/write_handler.go`,
//! 3.x `influxdb3_server`. 1.x says no more than "field type conflict" and stores nothing when
//! a new field is float and integer in one body; 2.x refuses a body for one line.

use crate::backend::{Outcome, TOO_LARGE};
use crate::escape;
use std::borrow::Cow;
use std::time::{Duration, SystemTime};

/// The parts of an HTTP answer that matter.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The status code.
    pub status: u16,
    /// The header `Retry-After`.
    pub retry_after: Option<&'a str>,
    /// The body, JSON or text.
    pub body: &'a str,
}

impl Answer<'_> {
    /// What became of the payload. `now` turns a date into a delay.
    pub fn outcome(&self, now: SystemTime) -> Outcome {
        let detail = format!("{} {}", self.status, words(self.body));
        match self.status {
            200..=299 => Outcome::Delivered,
            413 => Outcome::Divide { reason: TOO_LARGE, detail },
            401 | 403 | 404 | 408 | 429 | 300..=399 => self.retry(detail, now),
            400 if is_about_tls(self.body) => self.retry(detail, now),
            400..=499 => match self.refused() {
                Some(rejected) => Outcome::Partial { rejected, reason: PARTIAL, detail },
                None if matches!(self.status, 400 | 422) => {
                    Outcome::Divide { reason: REJECTED, detail }
                }
                None => Outcome::Rejected { reason: REJECTED, detail },
            },
            _ => match self.refused().filter(|_| self.is_partial()) {
                Some(rejected) => Outcome::Partial { rejected, reason: REJECTED_PERMANENT, detail },
                None => self.retry(detail, now),
            },
        }
    }

    fn retry(&self, detail: String, now: SystemTime) -> Outcome {
        let after = self.retry_after.and_then(|text| delay(text, now));
        let answered = self.status == 500 && after.is_none();
        Outcome::Retry { after, answered, detail }
    }

    /// How many points a partial write refused, when the answer says so.
    fn refused(&self) -> Option<u32> {
        if let Some(lines) = refused_lines(self.body) {
            return Some(lines);
        }
        if !self.is_partial() {
            return None;
        }
        // `dropped=0` with lines that could not be parsed is how 1.x tells of those.
        let unparsed = unparsed(&message(self.body));
        let dropped = number_after(self.body, "dropped=").unwrap_or(0);
        Some(dropped.saturating_add(unparsed).max(1))
    }

    fn is_partial(&self) -> bool {
        ["partial write", "beyond retention policy", "outside retention policy"]
            .iter()
            .any(|text| self.body.contains(text))
    }
}

/// Whether a server or a proxy says that a request came without TLS, or without the certificate
/// that it wants. Such words begin the body: within, they could be a quoted line's.
fn is_about_tls(body: &str) -> bool {
    TLS_WORDS.iter().any(|words| body.trim_start().starts_with(words))
}

/// How many lines the message complains of. It quotes them, and a line has no line feed, so what
/// they hold is not taken for a complaint.
fn unparsed(message: &str) -> u32 {
    let complains = |line: &str| line.starts_with("unable to parse '");
    let first =
        |line: &str| line.split_once("partial write: ").is_some_and(|(_, it)| complains(it));
    let lines = message.lines().filter(|line| complains(line) || first(line)).count();
    u32::try_from(lines).unwrap_or(u32::MAX)
}

/// 3.x lists each refused line under `data`.
fn refused_lines(body: &str) -> Option<u32> {
    let json: serde_json::Value = serde_json::from_str(body).ok()?;
    let partial = json.get("error")?.as_str()?.contains("partial write");
    let lines = json.get("data")?.as_array()?.len();
    partial.then(|| u32::try_from(lines).unwrap_or(u32::MAX)).filter(|lines| *lines > 0)
}

fn number_after(text: &str, label: &str) -> Option<u32> {
    let (_, rest) = text.rsplit_once(label)?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

/// Seconds or an HTTP date.
fn delay(text: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(secs) = text.trim().parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// The message inside a JSON error, or the text.
fn message(body: &str) -> Cow<'_, str> {
    let json: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let text = |json: &serde_json::Value| {
        let texts =
            ["message", "error"].map(|key| json.get(key).and_then(serde_json::Value::as_str));
        texts.into_iter().flatten().next().map(str::to_owned)
    };
    json.as_ref().and_then(text).map_or(Cow::Borrowed(body), Cow::Owned)
}

/// The same, or its start, on one line and of a bounded length.
pub(super) fn words(body: &str) -> String {
    escape::beginning(message(body).trim(), DETAIL_MAX)
}

/// Of Go's servers, among them InfluxDB 1.x and 2.x; of nginx; of ourselves.
const TLS_WORDS: &[&str] = &[
    "Client sent an HTTP request to an HTTPS server",
    "<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port",
    "<html>\r\n<head><title>400 The SSL certificate error",
    "<html>\r\n<head><title>400 No required SSL certificate was sent",
    "{\"error\":{\"code\":\"tls_handshake\"",
];

const PARTIAL: &str = "partial_write";
const REJECTED: &str = "rejected";
/// A refusal for good whose status says that it is none.
const REJECTED_PERMANENT: &str = "rejected_permanent";

/// Enough for a sentence of the server and the start of the line it complains about.
const DETAIL_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: u16, retry_after: Option<&str>, body: &str) -> Outcome {
        Answer { status, retry_after, body }.outcome(SystemTime::UNIX_EPOCH)
    }

    fn short(outcome: Outcome) -> String {
        match outcome {
            Outcome::Delivered => "delivered".into(),
            Outcome::Partial { rejected, reason: PARTIAL, .. } => format!("partial {rejected}"),
            Outcome::Partial { rejected, reason, .. } => format!("{reason} {rejected}"),
            Outcome::Rejected { reason, .. } => reason.into(),
            Outcome::Divide { reason, .. } => format!("divide {reason}"),
            Outcome::Retry { answered: true, .. } => "fault".into(),
            Outcome::Retry { after, .. } => {
                format!("retry {}", after.unwrap_or_default().as_secs())
            }
        }
    }

    #[test]
    fn each_answer_has_one_meaning() {
        let table = [
            (204, "", "delivered"),
            (200, "", "delivered"),
            (
                400,
                r#"{"error":"partial write: field type conflict: input field \"f\" on measurement \"m\" is type float, already exists as type integer dropped=3"}"#,
                "partial 3",
            ),
            (
                400,
                "{\"error\":\"partial write: unable to parse 'a': missing fields\\nunable to parse 'b': missing fields dropped=0\"}",
                "partial 2",
            ),
            (400, r#"{"error":"unable to parse 'a': missing fields"}"#, "divide rejected"),
            (400, r#"{"error":"field type conflict"}"#, "divide rejected"),
            (
                400,
                r#"{"error":"partial write of line protocol occurred","data":[{"original_line":"a","line_number":1,"error_message":"x"}]}"#,
                "partial 1",
            ),
            (400, r#"{"code":"invalid","message":"unable to parse 'a'"}"#, "divide rejected"),
            (422, r#"{"code":"unprocessable entity","message":"no"}"#, "divide rejected"),
            (
                422,
                r#"{"code":"unprocessable entity","message":"failure writing points to database: partial write: points beyond retention policy dropped=139"}"#,
                "partial 139",
            ),
            (
                500,
                r#"{"code":"internal error","message":"points beyond retention policy dropped=7"}"#,
                "rejected_permanent 7",
            ),
            (
                400,
                "{\"error\":\"partial write: unable to parse 'a s=\\\"unable to parse 'b\\\"': missing fields dropped=0\"}",
                "partial 1",
            ),
            (400, "Client sent an HTTP request to an HTTPS server.\n", "retry 0"),
            (
                400,
                "<html>\r\n<head><title>400 No required SSL certificate was sent</title></head>\r\n",
                "retry 0",
            ),
            (
                400,
                r#"{"error":"unable to parse 'Client sent an HTTP request to an HTTPS server'"}"#,
                "divide rejected",
            ),
            (401, r#"{"error":"authorization failed"}"#, "retry 0"),
            (403, "", "retry 0"),
            (404, r#"{"error":"database not found: \"x\""}"#, "retry 0"),
            (406, "", "rejected"),
            (413, "Request Entity Too Large", "divide too_large"),
            (307, "", "retry 0"),
            (500, r#"{"error":"timeout"}"#, "fault"),
            (502, "Bad Gateway", "retry 0"),
            (503, "request throttled, queue full", "retry 0"),
        ];
        for (status, body, expected) in table {
            assert_eq!(short(outcome(status, None, body)), expected, "{status} {body}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        for (text, expected) in [
            ("2", "retry 2"),
            (" 2 ", "retry 2"),
            ("Thu, 01 Jan 1970 00:00:09 GMT", "retry 9"),
            ("soon", "retry 0"),
        ] {
            assert_eq!(short(outcome(429, Some(text), "")), expected, "{text}");
        }
        assert_eq!(short(outcome(500, Some("2"), "busy")), "retry 2");
    }

    #[test]
    fn the_detail_is_one_line_of_the_servers_words() {
        let Outcome::Retry { detail, .. } =
            outcome(404, None, "{\"error\":\"database\\nnot found\"}")
        else {
            panic!("a missing database is held");
        };
        assert_eq!(detail, "404 database\\nnot found");
    }
}
