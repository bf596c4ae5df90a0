//! What a gateway's answer means for the points that were sent.

use crate::escape;
use serde::Deserialize;
use std::time::Duration;

/// What became of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is known for every line.
    Taken(Taken),
    /// Nothing is known, or nothing was kept; the same may be sent again.
    Again {
        /// What went wrong.
        why: String,
        /// When the gateway wishes to hear of it again.
        after: Option<Duration>,
    },
    /// It will never be known for all of it, or some backend will never have all of it; to send it
    /// again would count points twice.
    Unsettled(String),
    /// Another body was sent under this key before, and nothing came of this one.
    Conflict(String),
    /// The body is larger than the gateway takes.
    TooLarge,
    /// No body would be taken: a person has to mend something.
    Never(String),
}

/// What became of the lines of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Points that were accepted, if the answer says so.
    pub accepted: Option<u64>,
    /// Refused lines, from 0, and why; the first of them.
    pub refused: Vec<(usize, String)>,
    /// How many more were refused.
    pub unlisted: u64,
    /// Whether all of this was so before: the same body was sent under the same key.
    pub repeated: bool,
}

impl Taken {
    /// Whether nothing was accepted, as far as is known.
    pub fn is_nothing(&self) -> bool {
        self.accepted == Some(0) && !self.repeated
    }
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) status: u16,
    pub(super) after: Option<Duration>,
    /// It is the answer of an earlier request with the same key.
    pub(super) replayed: bool,
    /// An earlier request with the same key was another one.
    pub(super) conflict: bool,
    pub(super) body: Vec<u8>,
}

impl Told {
    pub(super) fn verdict(&self) -> Verdict {
        let (status, after) = (self.status, self.after);
        match status {
            204 => Verdict::Taken(Taken { repeated: self.replayed, ..Taken::default() }),
            200..=299 | 400 => self.counts(),
            401 => Verdict::Never(self.why("the gateway asks for credentials (--token-file)")),
            403 => Verdict::Never(self.why("the gateway does not allow it")),
            404 | 405 | 415 => Verdict::Never(self.why(NO_GATEWAY)),
            413 => Verdict::TooLarge,
            422 if self.conflict => Verdict::Conflict(self.why("something else was sent before")),
            422 => Verdict::Unsettled(self.why("not all of it can be delivered")),
            // It will be the same for ever under this key.
            500..=599 if self.replayed => Verdict::Unsettled(self.why("not all of it was kept")),
            408 | 409 | 425 | 429 | 500..=599 => Verdict::Again { why: self.why(""), after },
            _ => Verdict::Never(self.why(NO_GATEWAY)),
        }
    }

    /// The answer to `?details`.
    fn counts(&self) -> Verdict {
        #[derive(Deserialize)]
        struct Body {
            accepted: u64,
            rejected: Vec<Item>,
            #[serde(default)]
            unlisted: u64,
        }
        #[derive(Deserialize)]
        struct Item {
            index: usize,
            error: String,
        }
        let Ok(body) = serde_json::from_slice::<Body>(&self.body) else {
            return Verdict::Never(self.why(NO_GATEWAY));
        };
        if body.accepted.max(body.unlisted) > POINTS_MAX {
            return Verdict::Never(self.why(NO_GATEWAY));
        }
        let refused = body
            .rejected
            .into_iter()
            .map(|item| (item.index, escape::beginning(&item.error, WORDS_MAX)));
        Verdict::Taken(Taken {
            accepted: Some(body.accepted),
            refused: refused.collect(),
            unlisted: body.unlisted,
            repeated: self.replayed,
        })
    }

    /// The gateway's words, and ours before them.
    fn why(&self, what: &str) -> String {
        #[derive(Deserialize)]
        struct Body {
            error: Error,
        }
        #[derive(Deserialize)]
        struct Error {
            message: String,
        }
        let said = serde_json::from_slice::<Body>(&self.body).ok();
        let said = said.map(|said| escape::beginning(&said.error.message, WORDS_MAX));
        match (what, said) {
            ("", Some(said)) => format!("{}: {said}", self.status),
            ("", None) => format!("{} without a word", self.status),
            (what, Some(said)) => format!("{what}: {} {said}", self.status),
            (what, None) => format!("{what}: {}", self.status),
        }
    }
}

const NO_GATEWAY: &str = "that is no answer of a gateway's listener `http`";
const WORDS_MAX: usize = 500;
/// No request holds so many.
const POINTS_MAX: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(status: u16, replayed: bool, body: &str) -> Verdict {
        let after = Some(Duration::from_secs(1));
        Told { status, after, replayed, conflict: false, body: body.into() }.verdict()
    }

    #[test]
    fn every_answer_means_something() {
        let error = r#"{"error":{"code":1,"message":"so\u001b so"}}"#;
        let again =
            |why: &str| Verdict::Again { why: why.into(), after: Some(Duration::from_secs(1)) };
        let taken = |accepted, refused: &[(usize, &str)], unlisted, repeated| {
            let refused = refused.iter().map(|(line, why)| (*line, (*why).to_owned())).collect();
            Verdict::Taken(Taken { accepted, refused, unlisted, repeated })
        };
        for (status, replayed, body, expected) in [
            (204, false, "", taken(None, &[], 0, false)),
            (204, true, "", taken(None, &[], 0, true)),
            (200, false, r#"{"accepted":7,"rejected":[]}"#, taken(Some(7), &[], 0, false)),
            (
                400,
                true,
                r#"{"accepted":1,"rejected":[{"index":3,"error":"no"}],"unlisted":5}"#,
                taken(Some(1), &[(3, "no")], 5, true),
            ),
            (400, false, error, Verdict::Never(format!("{NO_GATEWAY}: 400 so\\u{{1b}} so"))),
            (200, false, "<html>", Verdict::Never(format!("{NO_GATEWAY}: 200"))),
            (
                400,
                false,
                r#"{"accepted":1,"rejected":[],"unlisted":18446744073709551615}"#,
                Verdict::Never(format!("{NO_GATEWAY}: 400")),
            ),
            (
                200,
                false,
                r#"{"accepted":18446744073709551615,"rejected":[]}"#,
                Verdict::Never(format!("{NO_GATEWAY}: 200")),
            ),
            (413, false, error, Verdict::TooLarge),
            (503, false, error, again("503: so\\u{1b} so")),
            (429, false, "", again("429 without a word")),
            (409, false, "", again("409 without a word")),
            (
                503,
                true,
                error,
                Verdict::Unsettled("not all of it was kept: 503 so\\u{1b} so".into()),
            ),
            (422, false, "", Verdict::Unsettled("not all of it can be delivered: 422".into())),
            (
                401,
                false,
                "",
                Verdict::Never("the gateway asks for credentials (--token-file): 401".into()),
            ),
            (403, false, "", Verdict::Never("the gateway does not allow it: 403".into())),
            (302, false, "", Verdict::Never(format!("{NO_GATEWAY}: 302"))),
        ] {
            assert_eq!(verdict(status, replayed, body), expected, "{status} {body}");
        }
        let told = Told { status: 422, conflict: true, body: error.into(), ..Told::default() };
        let expected = "something else was sent before: 422 so\\u{1b} so";
        assert_eq!(told.verdict(), Verdict::Conflict(expected.to_owned()));
    }
}
