//! What was sent as an artifact: whether it is intact, and what it contains once unpacked. Pure.
//!
//! A queue may say how many bytes there have to be and what their SHA-256 is, packed
//! (`…-transfer-…`) and unpacked (`…-content-…`). gzip is recognised by the header or by its first
//! bytes. An artifact that is a `.gz` file may have been packed a second time by its storage, so it is
//! unpacked up to twice.

use super::reason::Reason;
use crate::gzip;
use crate::plural::counted;
use reqwest::header::HeaderMap;
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;
use std::io::Read;

/// What the queue says of an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Claims {
    packed: Claim,
    unpacked: Claim,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Claim {
    length: Option<u64>,
    sha256: Option<String>,
}

impl Claims {
    /// Those in the headers of an answer.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |what: &str| {
            let value = headers.get(format!("x-taskcluster-location-{what}"))?;
            Some(value.to_str().ok()?.trim().to_ascii_lowercase())
        };
        let claim = |which: &str| Claim {
            length: text(&format!("{which}-length")).and_then(|length| length.parse().ok()),
            sha256: text(&format!("{which}-sha256")),
        };
        Self { packed: claim("transfer"), unpacked: claim("content") }
    }

    /// These, and where nothing is said, those.
    pub(super) fn or(self, other: Self) -> Self {
        let either = |own: Claim, other: Claim| Claim {
            length: own.length.or(other.length),
            sha256: own.sha256.or(other.sha256),
        };
        Self {
            packed: either(self.packed, other.packed),
            unpacked: either(self.unpacked, other.unpacked),
        }
    }
}

impl Claim {
    fn check(&self, bytes: &[u8], which: &str) -> Result<(), Problem> {
        if let Some(length) = self.length.filter(|length| *length != bytes.len() as u64) {
            let text = format!(
                "{which} it has {}, and should have {length}",
                counted(bytes.len() as u64, "byte")
            );
            return Err(Problem(Reason::Length, text));
        }
        if let Some(sha256) = self.sha256.as_ref().filter(|sha256| **sha256 != hex_sha256(bytes)) {
            let text = format!("{which} its SHA-256 is not {sha256}");
            return Err(Problem(Reason::Hash, text));
        }
        Ok(())
    }
}

/// Why it cannot be taken, and the details for a person.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem(pub(super) Reason, pub(super) String);

/// Checks what came and unpacks it, up to `max` bytes.
///
/// # Errors
///
/// It is not what was announced, is too large, or is packed in another way.
pub(super) fn open(
    packed: Vec<u8>,
    encoding: Option<&str>,
    claims: &Claims,
    max: usize,
) -> Result<Vec<u8>, Problem> {
    claims.packed.check(&packed, "packed")?;
    let plain = match encoding.map(str::trim).unwrap_or("identity") {
        "" | "identity" => packed,
        "gzip" | "x-gzip" => gunzip(&packed, max)?,
        other => {
            let other: String = other.chars().take(ENCODING_SAMPLE).collect();
            let text = format!("its encoding is {other:?}, and gzip is the only one known");
            return Err(Problem(Reason::Encoding, text));
        }
    };
    claims.unpacked.check(&plain, "unpacked")?;
    if gzip::is_begun(&plain) { gunzip(&plain, max) } else { Ok(plain) }
}

fn gunzip(packed: &[u8], max: usize) -> Result<Vec<u8>, Problem> {
    let mut plain = Vec::new();
    // One byte more tells those that are too large.
    let mut decoder = gzip::Unpacked::new(packed).take(max as u64 + 1);
    let read = decoder.read_to_end(&mut plain);
    read.map_err(|error| Problem(Reason::Encoding, format!("it is no gzip: {error}")))?;
    if plain.len() > max {
        let text = format!("unpacked it has more than {max} bytes");
        return Err(Problem(Reason::TooLarge, text));
    }
    Ok(plain)
}

fn hex_sha256(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in digest(&SHA256, bytes).as_ref() {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// How much of an encoding's name is told.
const ENCODING_SAMPLE: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gzip::packed as gzip;

    const TEXT: &[u8] = b"time,value\n1414000000,1\n";

    fn opened(bytes: &[u8], encoding: Option<&str>, claims: &Claims) -> Result<Vec<u8>, Reason> {
        open(bytes.to_vec(), encoding, claims, 1000).map_err(|Problem(reason, _)| reason)
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let (none, text) = (Claims::default(), Ok(TEXT.to_vec()));
        assert_eq!(opened(TEXT, None, &none), text);
        assert_eq!(opened(TEXT, Some("identity"), &none), text);
        assert_eq!(opened(&gzip(TEXT), Some("gzip"), &none), text);
        assert_eq!(opened(&gzip(TEXT), None, &none), text, "nobody said so");
        assert_eq!(
            opened(&gzip(&gzip(TEXT)), Some("x-gzip"), &none),
            text,
            "a.csv.gz, stored packed"
        );
        let twice = [gzip(TEXT), gzip(TEXT)].concat();
        assert_eq!(opened(&twice, Some("gzip"), &none), Ok([TEXT, TEXT].concat()));
        assert_eq!(opened(TEXT, Some("gzip"), &none), Err(Reason::Encoding));
        assert_eq!(opened(TEXT, Some("zstd"), &none), Err(Reason::Encoding));
        let padded = [gzip(TEXT), vec![0; 600]].concat();
        assert_eq!(opened(&padded, Some("gzip"), &none), text, "a block is filled up");
        let cut = gzip(TEXT);
        assert_eq!(opened(&cut[..cut.len() - 9], Some("gzip"), &none), Err(Reason::Encoding));
    }

    #[test]
    fn a_small_file_that_unpacks_to_a_large_one_is_not() {
        let fits = gzip(&[b'x'; 1000]);
        assert_eq!(opened(&fits, Some("gzip"), &Claims::default()).unwrap().len(), 1000);
        let bomb = gzip(&[b'x'; 1001]);
        assert_eq!(opened(&bomb, Some("gzip"), &Claims::default()), Err(Reason::TooLarge));
        assert_eq!(opened(&gzip(&bomb), Some("gzip"), &Claims::default()), Err(Reason::TooLarge));
    }

    #[test]
    fn what_is_announced_has_to_come() {
        let claims = |pairs: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                let name = format!("x-taskcluster-location-{name}");
                let name = reqwest::header::HeaderName::from_bytes(name.as_bytes()).unwrap();
                headers.insert(name, value.parse().unwrap());
            }
            Claims::of(&headers)
        };
        let packed = gzip(TEXT);
        let (right, whole) = (hex_sha256(TEXT), TEXT.len().to_string());
        let upper = right.to_ascii_uppercase();
        let (sent, size) = (hex_sha256(&packed), packed.len().to_string());
        let all = [
            ("content-sha256", upper.as_str()),
            ("content-length", &whole),
            ("transfer-sha256", &sent),
            ("transfer-length", &size),
        ];
        assert_eq!(opened(&packed, Some("gzip"), &claims(&all)), Ok(TEXT.to_vec()));
        for (name, value, reason) in [
            ("content-sha256", sent.as_str(), Reason::Hash),
            ("content-sha256", "", Reason::Hash),
            ("content-length", "23", Reason::Length),
            ("transfer-sha256", &right, Reason::Hash),
            ("transfer-length", "1", Reason::Length),
        ] {
            let wrong = claims(&[(name, value)]);
            assert_eq!(opened(&packed, Some("gzip"), &wrong), Err(reason), "{name}");
        }
        assert_eq!(claims(&[("content-length", "many")]), Claims::default());
        let both = claims(&[("content-length", "1")]).or(claims(&all));
        assert_eq!(both.unpacked.length, Some(1));
        assert_eq!(both.unpacked.sha256, Some(right));
    }
}
