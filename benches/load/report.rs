//! What was sent and what arrived, as text or as JSON.

use crate::mix::Block;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::io::{Write, stdout};
use std::iter::Sum;

/// What a sender sent, exactly.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sent {
    /// Lines, or points of requests.
    pub points: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    pub bytes: u64,
    /// The sum of all counters, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter_sum: Option<u64>,
    /// The sum of all values, in halves, where the sender adds it up.
    #[serde(skip_serializing_if = "is_zero")]
    pub halves: u64,
    /// Lines that the server answered, or requests that it answered with an error.
    pub refused: u64,
    pub seconds: f64,
}

impl Sent {
    /// Counts a block as sent.
    pub fn add(&mut self, block: &Block) {
        self.points += block.points;
        self.bytes += block.bytes.len() as u64;
        self.halves += block.halves;
        self.counter_sum = self.counter_sum.map(|sum| sum + block.counter_sum);
    }

    /// Points a second.
    pub fn rate(&self) -> f64 {
        self.points as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

impl Sum for Sent {
    /// Of senders that worked side by side.
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            points: sum.points + one.points,
            datagrams: plus(sum.datagrams, one.datagrams),
            requests: plus(sum.requests, one.requests),
            bytes: sum.bytes + one.bytes,
            counter_sum: plus(sum.counter_sum, one.counter_sum),
            halves: sum.halves + one.halves,
            refused: sum.refused + one.refused,
            seconds: sum.seconds.max(one.seconds),
        })
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sent {} points", self.points)?;
        if let Some(datagrams) = self.datagrams {
            write!(f, " in {datagrams} datagrams")?;
        }
        if let Some(requests) = self.requests {
            write!(f, " in {requests} requests")?;
        }
        write!(f, ", {} bytes, in {:.2} s: {}/s", self.bytes, self.seconds, short(self.rate()))?;
        if let Some(sum) = self.counter_sum {
            write!(f, "\ncounter sum {sum}")?;
        }
        if self.refused > 0 {
            write!(f, "\nREFUSED: {} answers say so", self.refused)?;
        }
        Ok(())
    }
}

/// What a bare receiver received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, serde::Deserialize)]
pub struct Received {
    pub lines: u64,
    /// Datagrams; over TCP, reads.
    pub reads: u64,
    pub bytes: u64,
    /// Datagrams that the kernel dropped for want of room.
    pub kernel_dropped: u64,
    pub cpu_seconds: f64,
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines, reads, bytes, kernel_dropped, cpu_seconds } = self;
        writeln!(f, "received {lines} lines in {reads} datagrams or reads, {bytes} bytes")?;
        writeln!(f, "kernel dropped {kernel_dropped} datagrams")?;
        let per_million = cpu_seconds * 1e6 / (*lines).max(1) as f64;
        write!(f, "CPU {cpu_seconds:.3} s, {per_million:.3} s per million lines")
    }
}

/// Prints a result in the form that was asked for.
pub fn print(result: &(impl fmt::Display + Serialize), json: bool) -> Result<()> {
    let text = if json { serde_json::to_string(result)? } else { result.to_string() };
    Ok(writeln!(stdout(), "{text}")?)
}

/// A number as people say it: `1.25M`, `300k`, `42`.
pub fn short(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{:.2}M", n / 1e6),
        n if n >= 1e3 => format!("{:.0}k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn plus(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_side_by_side_add_up() {
        let one = Sent { points: 3, requests: Some(1), seconds: 2.0, ..Sent::default() };
        let other = Sent { points: 5, requests: Some(2), seconds: 1.0, ..Sent::default() };
        let both = Sent { points: 8, requests: Some(3), seconds: 2.0, ..Sent::default() };
        assert_eq!([one, other].into_iter().sum::<Sent>(), both);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([1_250_000.0, 300_000.0, 42.0].map(short), ["1.25M", "300k", "42"]);
    }
}
