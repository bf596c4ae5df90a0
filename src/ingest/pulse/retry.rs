//! How long to wait before something is tried again. Pure: the random number is an argument.

use crate::units::Span;
use serde::Deserialize;
use std::time::Duration;

/// Delays that double.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// The first.
    pub first: Span,
    /// The longest.
    pub max: Span,
}

impl Default for Retry {
    /// Five repetitions last for a minute together.
    fn default() -> Self {
        Self { first: Span::secs(2), max: Span::secs(60) }
    }
}

impl Retry {
    /// The delay after a failure, and so many others before it: half of it for certain, and the rest by
    /// the dice, so that those who failed together do not come back together. Who says when to come
    /// back is not asked earlier, within reason.
    pub(super) fn delay(&self, others: u32, after: Option<Duration>, random: f64) -> Duration {
        let doubled = self.first.0.saturating_mul(1 << others.min(16)).min(self.max.0);
        let jittered = doubled.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0);
        after.map_or(jittered, |after| after.min(self.max.0).max(jittered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_a_wish_is_kept() {
        let retry = Retry::default();
        let secs = |failures, after: Option<u64>, random| {
            retry.delay(failures, after.map(Duration::from_secs), random).as_secs_f64()
        };
        assert_eq!(
            (0..7).map(|n| secs(n, None, 1.0)).sum::<f64>(),
            2. + 4. + 8. + 16. + 32. + 120.
        );
        assert_eq!(secs(1, None, 0.0), 2.0);
        assert_eq!(secs(0, Some(7), 0.5), 7.0);
        assert_eq!(secs(0, Some(3600), 0.5), 60.0);
        assert_eq!(secs(5, Some(1), 1.0), 60.0);
    }
}
