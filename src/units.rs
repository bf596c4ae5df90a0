//! Durations (`"10s"`), sizes (`"64MiB"`), addresses and secrets as a configuration writes them.

mod address;

pub use address::{Address, HostPort, Transport};

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::time::Duration;

/// A length of time: `"500ms"`, `"10s"`, `"5m"`, `"1h"`, `"7d"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes: `"1432B"`, `"64KiB"`, `"16MiB"`, `"1GiB"`, `"1MB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A text that no log, error or page may show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Span {
    /// From whole seconds.
    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// From milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Reads `"10s"` and the like.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong and how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text);
        let scale = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => {
                return Err(format!(
                    "`{text}` is not a duration; write for example \"500ms\", \"10s\", \"5m\", \"1h\""
                ));
            }
        };
        let secs = number.ok_or_else(|| format!("`{text}` has no number before its unit"))?;
        let span = Duration::try_from_secs_f64(secs * scale)
            .map(Self)
            .map_err(|error| format!("`{text}`: {error}"))?;
        if span > LONGEST {
            return Err(format!("`{text}` is longer than a hundred years"));
        }
        Ok(span)
    }
}

impl Size {
    /// From binary kilobytes.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// From binary megabytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// As a length in memory.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// Reads `"64MiB"` and the like.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong and how to write it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Checked just above.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text);
        let scale: f64 = match unit {
            "B" => 1.0,
            "kB" | "KB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            "KiB" => 1024.0,
            "MiB" => 1_048_576.0,
            "GiB" => 1_073_741_824.0,
            _ => {
                return Err(format!(
                    "`{text}` is not a size; write for example \"1432B\", \"64KiB\", \"16MiB\", \"1GiB\""
                ));
            }
        };
        let number = number.ok_or_else(|| format!("`{text}` has no number before its unit"))?;
        let bytes = number * scale;
        if !(0.0..9.0e18).contains(&bytes) {
            return Err(format!("`{text}` is out of range"));
        }
        Ok(Self(bytes as u64))
    }
}

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the wire and nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"***\"")
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text("a duration such as \"10s\"", Self::parse))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text("a size such as \"64MiB\"", Self::parse))
    }
}

/// What is expected, and how it is read.
struct Text<T>(&'static str, fn(&str) -> Result<T, String>);

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

fn split(text: &str) -> (Option<f64>, &str) {
    let text = text.trim();
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    (number.trim().parse().ok().filter(|n: &f64| *n >= 0.0), unit)
}

/// As good as for ever; what is much longer, no clock can be moved on by.
const LONGEST: Span = Span::secs(36_500 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in [
            ("10s", 10_000),
            ("0s", 0),
            ("1.5h", 5_400_000),
            ("250 ms", 250),
            ("7d", 604_800_000),
            ("36500d", 3_153_600_000_000),
        ] {
            assert_eq!(Span::parse(text), Ok(Span::millis(millis)), "{text}");
        }
        for text in ["10", "s", "-1s", "10 parsecs", "1e999d", "36501d", "1e14d", ""] {
            assert!(Span::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("1432B", 1432), ("64KiB", 65_536), ("1.5MiB", 1_572_864), ("1GB", 1_000_000_000)]
        {
            assert_eq!(Size::parse(text), Ok(Size(bytes)), "{text}");
        }
        for text in ["64", "64kb", "-1B", "9999999999GiB"] {
            assert!(Size::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_secret_does_not_print() {
        assert_eq!(format!("{:?}", Secret::new("S3CR3T")), "\"***\"");
    }
}
