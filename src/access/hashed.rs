//! Secrets that are only ever compared, and so are kept as their hashes.

use ring::digest::{SHA256, digest};
use serde::de::{Deserialize, Deserializer, Error};
use std::fmt;
use std::hint::black_box;

/// The SHA-256 of a token or a password. It does not print.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hashed([u8; 32]);

impl Hashed {
    /// The hash of a secret.
    pub fn of(secret: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.iter_mut().zip(digest(&SHA256, secret).as_ref()).for_each(|(to, from)| *to = *from);
        Self(hash)
    }

    /// Whether both are of one secret; how long that takes says nothing about either.
    pub fn is(&self, other: &Self) -> bool {
        let differing =
            self.0.iter().zip(&other.0).fold(0, |all, (one, other)| all | (one ^ other));
        black_box(differing) == 0
    }
}

/// What is wrong with a secret that can be told without showing anything of it.
pub const EMPTY_SECRET: &str = "a secret is empty";

impl fmt::Debug for Hashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for Hashed {
    /// The text is hashed as it is read, so that no configuration keeps it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Err(D::Error::custom(EMPTY_SECRET));
        }
        Ok(Self::of(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_tell_secrets_apart_and_do_not_print() {
        let (one, other) = (Hashed::of(b"S3CR3T"), Hashed::of(b"S3CR3U"));
        assert!(one.is(&Hashed::of(b"S3CR3T")));
        assert!(!one.is(&other) && !one.is(&Hashed::of(b"")));
        assert_eq!(format!("{one:?} {:?}", Some(other)), "*** Some(***)");
        let empty = serde_json::from_str::<Hashed>("\"\"");
        assert!(empty.is_err());
    }
}
