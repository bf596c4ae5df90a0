//! When the next bytes are due.

use std::time::{Duration, Instant};

/// A number of points a second, or as many as go through.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    began: Instant,
    ends: Instant,
    per_second: Option<f64>,
}

impl Pace {
    pub fn new(per_second: Option<f64>, length: Duration) -> Self {
        let began = Instant::now();
        Self { began, ends: began + length, per_second }
    }

    /// Whether the time is up.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.ends
    }

    /// How long it has gone on.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until the point after the first `sent` is due; flat out that is now.
    pub fn wait(&self, sent: u64) {
        let Some(per_second) = self.per_second else { return };
        let due = self.began + Duration::from_secs_f64(sent as f64 / per_second);
        rest(due.saturating_duration_since(Instant::now()));
    }
}

/// Lets time pass.
#[allow(clippy::disallowed_methods)] // These are plain threads; there is no runtime to block.
pub fn rest(duration: Duration) {
    if !duration.is_zero() {
        std::thread::sleep(duration);
    }
}

/// A rate as it is typed: `50000`, `300k/s`, `1.5M/s`.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (number, scale) = match number.strip_suffix(['k', 'K']) {
        Some(thousands) => (thousands, 1e3),
        None => number.strip_suffix('M').map_or((number, 1.0), |millions| (millions, 1e6)),
    };
    let rate =
        number.parse::<f64>().map_err(|_| "wanted a rate such as 300k/s".to_owned())? * scale;
    if rate >= 1.0 && rate.is_finite() { Ok(rate) } else { Err("at least 1/s".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::parse_rate;

    #[test]
    fn rates_are_read_as_typed() {
        let check = |text, expected| assert_eq!(parse_rate(text).ok(), expected, "{text}");
        check("50000", Some(50_000.0));
        check("300k/s", Some(300_000.0));
        check("1.5M/s", Some(1_500_000.0));
        check("0", None);
        check("inf", None);
        check("fast", None);
        check("", None);
    }
}
