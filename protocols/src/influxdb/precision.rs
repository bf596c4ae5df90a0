//! The unit of the times in a body, which a client names beside it.

/// How long one tick of a client's times is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// What a client means that says nothing.
    #[default]
    Nanoseconds,
    /// `u` in 1.x, `us` in 2.x.
    Microseconds,
    /// `ms`.
    Milliseconds,
    /// `s`.
    Seconds,
    /// `m`, in 1.x only.
    Minutes,
    /// `h`, in 1.x only.
    Hours,
}

impl Precision {
    /// The words of 1.x and 2.x, which nowhere contradict each other. `None` for any other:
    /// whoever guesses a unit stores points where nobody looks for them.
    pub fn named(word: &str) -> Option<Self> {
        Some(match word {
            "" | "n" | "ns" => Self::Nanoseconds,
            "u" | "us" => Self::Microseconds,
            "ms" => Self::Milliseconds,
            "s" => Self::Seconds,
            "m" => Self::Minutes,
            "h" => Self::Hours,
            _ => return None,
        })
    }

    /// Nanoseconds in one tick.
    pub(super) const fn nanos(self) -> i64 {
        match self {
            Self::Nanoseconds => 1,
            Self::Microseconds => 1_000,
            Self::Milliseconds => 1_000_000,
            Self::Seconds => 1_000_000_000,
            Self::Minutes => 60_000_000_000,
            Self::Hours => 3_600_000_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_their_ticks() {
        for (word, nanos) in [
            ("", Some(1)),
            ("n", Some(1)),
            ("ns", Some(1)),
            ("u", Some(1_000)),
            ("us", Some(1_000)),
            ("ms", Some(1_000_000)),
            ("s", Some(1_000_000_000)),
            ("m", Some(60_000_000_000)),
            ("h", Some(3_600_000_000_000)),
            ("parsec", None),
            ("S", None),
            ("d", None),
        ] {
            assert_eq!(Precision::named(word).map(Precision::nanos), nanos, "{word:?}");
        }
    }
}
