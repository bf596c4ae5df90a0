//! How long points have waited, sorted by bounds that never change.

use super::Counter;
use std::array;
use std::time::Duration;

/// Points, by how long they have waited.
#[derive(Debug)]
pub struct Waits {
    /// Those that waited no longer than each bound, but longer than the one before; last the rest.
    counts: [Counter; BOUNDS.len() + 1],
    /// All waits together.
    micros: Counter,
}

impl Default for Waits {
    fn default() -> Self {
        Self { counts: array::from_fn(|_| Counter::default()), micros: Counter::default() }
    }
}

impl Waits {
    /// So many points have waited so long.
    pub fn add(&self, wait: Duration, points: u64) {
        let place = BOUNDS.iter().position(|(bound, _)| wait <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = self.counts.get(place) {
            count.add(points);
        }
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        self.micros.add(micros.saturating_mul(points));
    }

    /// How many points have waited no longer than each bound, which is told in seconds.
    pub fn within(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let bounds = BOUNDS.iter().map(|(_, seconds)| *seconds).chain(["+Inf"]);
        let counts = self.counts.iter().scan(0, |sum, count| {
            *sum += count.get();
            Some(*sum)
        });
        bounds.zip(counts)
    }

    /// How many points there were.
    pub fn points(&self) -> u64 {
        self.counts.iter().map(Counter::get).sum()
    }

    /// How long they waited together.
    pub fn total(&self) -> Duration {
        Duration::from_micros(self.micros.get())
    }
}

/// From what nobody notices to what a person does.
const BOUNDS: [(Duration, &str); 8] = [
    (Duration::from_micros(100), "0.0001"),
    (Duration::from_micros(250), "0.00025"),
    (Duration::from_millis(1), "0.001"),
    (Duration::from_micros(2500), "0.0025"),
    (Duration::from_millis(10), "0.01"),
    (Duration::from_millis(100), "0.1"),
    (Duration::from_secs(1), "1"),
    (Duration::from_secs(10), "10"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_sorted_by_their_wait() {
        let waits = Waits::default();
        waits.add(Duration::from_micros(100), 3);
        waits.add(Duration::from_micros(101), 2);
        waits.add(Duration::from_secs(11), 1);
        let within: Vec<_> = waits.within().collect();
        assert_eq!(within.first(), Some(&("0.0001", 3)));
        assert_eq!(within.get(1), Some(&("0.00025", 5)));
        assert_eq!(within.get(7), Some(&("10", 5)));
        assert_eq!(within.last(), Some(&("+Inf", 6)));
        assert_eq!((waits.points(), waits.total()), (6, Duration::from_micros(11_000_502)));
    }
}
