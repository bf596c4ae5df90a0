//! Log lines about what happens again and again, few enough that nobody can fill a disk with them.
//!
//! One line for each reason in a while, which can tell how many were kept back since the last.
//! The counters are complete; this is only for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The limit for one listener or backend.
#[derive(Debug, Default)]
pub struct LogLimit {
    reasons: Mutex<BTreeMap<&'static str, Seen>>,
}

#[derive(Debug)]
struct Seen {
    logged: Instant,
    suppressed: u64,
}

impl LogLimit {
    /// Whether a line about `reason` may be written now; then how many were kept back.
    pub fn pass(&self, reason: &'static str, every: Duration) -> Option<u64> {
        let now = Instant::now();
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = reasons.get_mut(reason) else {
            reasons.insert(reason, Seen { logged: now, suppressed: 0 });
            return Some(0);
        };
        if now.duration_since(seen.logged) < every {
            seen.suppressed += 1;
            return None;
        }
        seen.logged = now;
        Some(std::mem::take(&mut seen.suppressed))
    }
}

/// Input as a log may show it: control characters escaped, cut after 200 characters:
/// room for the name of what it stands in, and for what is wrong with it.
pub fn excerpt(input: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in input.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => shown.push_str("\\\\"),
                plain if !plain.is_control() => shown.push(plain),
                other => shown.extend(other.escape_default()),
            }
            if shown.len() >= EXCERPT_BYTES_MAX {
                return cut(shown);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    cut(shown)
}

fn cut(mut shown: String) -> String {
    if let Some((end, _)) = shown.char_indices().nth(EXCERPT_CHARS) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

const EXCERPT_CHARS: usize = 200;

/// No need to look at more of a line than this: a character has at most four bytes.
const EXCERPT_BYTES_MAX: usize = 4 * EXCERPT_CHARS + 1;

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn one_line_in_ten_seconds_for_each_reason() {
        let limit = LogLimit::default();
        assert_eq!(limit.pass("a", EVERY), Some(0));
        assert_eq!(limit.pass("b", EVERY), Some(0));
        for _ in 0..1000 {
            assert_eq!(limit.pass("a", EVERY), None);
        }
        tokio::time::advance(EVERY).await;
        assert_eq!(limit.pass("a", EVERY), Some(1000));
        assert_eq!(limit.pass("a", EVERY), None);
        tokio::time::advance(EVERY).await;
        assert_eq!(limit.pass("a", EVERY), Some(1));
        assert_eq!(limit.pass("b", EVERY), Some(0));
    }

    #[test]
    fn excerpts_are_short_and_harmless() {
        let check = |input: &[u8], expected: &str| assert_eq!(excerpt(input), expected);
        check(b"a:1|c", "a:1|c");
        check("größe:1|c".as_bytes(), "größe:1|c");
        check(b"a\r\nb\x1b[2J\0", "a\\r\\nb\\u{1b}[2J\\u{0}");
        check(b"a\xff\xfe:1", "a\\xff\\xfe:1");
        check(b"a\\nb", "a\\\\nb");
        check(b"", "");
        check(&[b'x'; 500], &format!("{}…", "x".repeat(200)));
        check("œ".repeat(500).as_bytes(), &format!("{}…", "œ".repeat(200)));
        check(&[b'x'; 200], &"x".repeat(200));
    }
}
