//! How far it is, for a person at a terminal: one line that is written over and over.

use super::report::size;
use crate::plural::counted;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shows how far a file is; nothing where nobody looks.
pub(super) struct Meter {
    name: String,
    whole: Option<u64>,
    read: Arc<AtomicU64>,
    began: Instant,
    shown: Option<Instant>,
    is_seen: bool,
}

impl Meter {
    pub(super) fn new(name: &str, whole: Option<u64>, read: Arc<AtomicU64>) -> Self {
        let (began, is_seen) = (Instant::now(), io::stderr().is_terminal());
        Self { name: name.to_owned(), whole, read, began, shown: None, is_seen }
    }

    /// Shows it, if that was not done just before.
    pub(super) fn show(&mut self, points: u64) {
        if !self.is_seen || self.shown.is_some_and(|shown| shown.elapsed() < EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        let read = self.read.load(Ordering::Relaxed);
        let line = line(&self.name, read, self.whole, points, self.began.elapsed());
        let _ = write!(io::stderr().lock(), "\r{line}\x1b[K");
    }
}

impl Drop for Meter {
    /// Leaves no trace.
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(name: &str, read: u64, whole: Option<u64>, points: u64, took: Duration) -> String {
    let rate = points as f64 / took.as_secs_f64().max(0.001);
    let name: String = name.chars().take(40).collect();
    let read_of = match whole.filter(|whole| *whole > 0) {
        Some(whole) => {
            let percent = read.saturating_mul(100) / whole;
            format!("{:>3}% of {}", percent.min(100), size(whole))
        }
        None => size(read),
    };
    format!("{name}: {read_of}, {}, {rate:.0}/s", counted(points, "point"))
}

const EVERY: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let second = Duration::from_secs(1);
        assert_eq!(line("a", 1, Some(4), 7, second), "a:  25% of 4 B, 7 points, 7/s");
        assert_eq!(line("-", 2048, None, 7, second), "-: 2.0 KiB, 7 points, 7/s");
        assert_eq!(line("a", 5, Some(4), 0, second), "a: 100% of 4 B, 0 points, 0/s");
    }
}
