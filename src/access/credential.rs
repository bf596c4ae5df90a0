//! What a request says of its sender: the header `Authorization`, taken apart.

use super::hawk::Signed;
use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use std::fmt;

/// Credentials, right or wrong. They do not print.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// `Bearer`, and InfluxDB's `Token`.
    Bearer(String),
    /// `Basic`.
    Basic {
        /// Whose.
        username: String,
        /// What only he knows.
        password: String,
    },
    /// `Hawk`.
    Hawk(Signed),
}

/// Credentials of a scheme that is not known here, or that are not written as their scheme wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl Credential {
    /// Reads the value of the header.
    ///
    /// # Errors
    ///
    /// It is not to be understood, and so no credentials that anybody has.
    pub fn parse(value: &[u8]) -> Result<Self, Unreadable> {
        let text = str::from_utf8(value).map_err(|_| Unreadable)?.trim();
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim_start();
        let is = |name: &str| scheme.eq_ignore_ascii_case(name);
        if is("bearer") || is("token") {
            return Ok(Self::Bearer(rest.to_owned()));
        }
        if is("hawk") {
            return Signed::parse(rest, text).map(Self::Hawk);
        }
        if !is("basic") {
            return Err(Unreadable);
        }
        let decoded = BASE64.decode(rest).map_err(|_| Unreadable)?;
        let decoded = String::from_utf8(decoded).map_err(|_| Unreadable)?;
        let (username, password) = decoded.split_once(':').ok_or(Unreadable)?;
        Ok(Self::Basic { username: username.to_owned(), password: password.to_owned() })
    }

    /// Whether they are those of somebody who has none, and says so in the form that he always
    /// uses.
    pub fn are_empty(&self) -> bool {
        match self {
            Self::Bearer(token) => matches!(token.as_str(), "" | ":"),
            Self::Basic { username, password } => username.is_empty() && password.is_empty(),
            Self::Hawk(_) => false,
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bearer(_) => "Bearer ***",
            Self::Basic { .. } => "Basic ***",
            Self::Hawk(_) => "Hawk ***",
        })
    }
}

/// Some clients leave the padding out.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn credentials_are_read_as_their_schemes_write_them() {
        let bearer = |token: &str| Ok(Credential::Bearer(token.to_owned()));
        let basic = |username: &str, password: &str| {
            let (username, password) = (username.to_owned(), password.to_owned());
            Ok(Credential::Basic { username, password })
        };
        for (value, expected) in [
            ("Bearer abc", bearer("abc")),
            ("bearer   abc ", bearer("abc")),
            ("Token abc", bearer("abc")),
            ("Basic dXNlcjpwYXNz", basic("user", "pass")),
            ("Basic dXNlcjpwOmE=", basic("user", "p:a")),
            ("Basic dXNlcjpwOmE", basic("user", "p:a")),
            ("Basic Og==", basic("", "")),
            ("Basic dXNlcg==", Err(Unreadable)),
            ("Basic ???", Err(Unreadable)),
            ("Digest username=\"x\"", Err(Unreadable)),
            ("Bearer", bearer("")),
            ("Token ", bearer("")),
            ("Basic", Err(Unreadable)),
            ("Hawk", Err(Unreadable)),
            ("", Err(Unreadable)),
        ] {
            assert_eq!(Credential::parse(value.as_bytes()), expected, "{value}");
        }
        assert_eq!(Credential::parse(b"Bearer \xff"), Err(Unreadable));
    }

    #[test]
    fn empty_ones_are_told_from_wrong_ones() {
        for (value, expected) in [
            ("Token", true),
            ("Token :", true),
            ("Bearer ", true),
            ("Basic Og==", true),
            ("Token a", false),
            ("Basic YTo=", false),
            ("Basic OmE=", false),
        ] {
            let credential = Credential::parse(value.as_bytes()).unwrap();
            assert_eq!(credential.are_empty(), expected, "{value}");
        }
    }

    #[test]
    fn credentials_do_not_print() {
        for value in ["Bearer S3CR3T", "Basic UzNDUjNUOlMzQ1IzVA=="] {
            let shown = format!("{:?}", Credential::parse(value.as_bytes()));
            assert!(!shown.contains("S3CR3T") && shown.contains("***"), "{shown}");
        }
    }

    proptest! {
        /// Whatever a client writes, it is read or refused.
        #[test]
        fn nothing_upsets_the_reader(value: Vec<u8>) {
            let _ = Credential::parse(&value);
        }
    }
}
