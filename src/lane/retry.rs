//! How long to wait between two attempts. Pure: the random number is an argument.

use std::time::Duration;

/// Delays that double, drawn with full jitter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    /// The bound of the first delay.
    pub(super) first: Duration,
    /// The bound that no delay exceeds.
    pub(super) max: Duration,
}

impl Backoff {
    /// The delay after so many failures in a row; `random` lies in [0, 1).
    ///
    /// A peer that said when to come back is not asked earlier, unless that is later than
    /// `max`; the jitter then comes on top, so that a fleet does not return in one instant.
    pub(super) fn delay(&self, failures: u32, after: Option<Duration>, random: f64) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(30));
        let jitter = doubled.min(self.max).mul_f64(random.clamp(0.0, 1.0));
        after.map_or(jitter, |after| after.saturating_add(jitter)).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(100), max: Duration::from_secs(5) };

    #[test]
    fn delays_double_up_to_the_longest() {
        for (failures, millis) in [(1, 100), (2, 200), (3, 400), (6, 3200), (7, 5000), (900, 5000)]
        {
            assert_eq!(BACKOFF.delay(failures, None, 1.0), Duration::from_millis(millis));
            assert_eq!(BACKOFF.delay(failures, None, 0.5), Duration::from_millis(millis / 2));
            assert_eq!(BACKOFF.delay(failures, None, 0.0), Duration::ZERO);
        }
    }

    #[test]
    fn a_wish_to_be_left_alone_is_kept_within_reason() {
        let two = Some(Duration::from_secs(2));
        assert_eq!(BACKOFF.delay(1, two, 0.0), Duration::from_secs(2));
        assert_eq!(BACKOFF.delay(1, two, 1.0), Duration::from_millis(2100));
        assert_eq!(BACKOFF.delay(1, Some(Duration::MAX), 0.3), Duration::from_secs(5));
    }
}
