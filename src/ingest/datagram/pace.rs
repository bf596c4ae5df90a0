//! When to look at a socket again: at once while little comes, by the clock while much does.
//!
//! To fall asleep and be woken costs several times what a small datagram does, and a steady stream
//! of them wakes for nearly each. So after [`WAKES`] in [`LATELY`] the socket is looked at once in
//! a [`TICK`], until there was nothing for a while. Points come a millisecond or two later then,
//! and the kernel's buffer has to hold what comes meanwhile: only [where it is large](BUFFER_MIN).

use std::time::Duration;
use tokio::time::Instant;

/// How a socket is looked at.
#[derive(Debug)]
pub(super) struct Pace {
    /// Whether the buffer is large enough for the clock.
    may_wait: bool,
    /// Wakes since that time.
    wakes: u32,
    since: Instant,
    /// Looks in a row that found nothing.
    in_vain: u32,
    by_clock: bool,
}

impl Pace {
    /// That of a socket whose buffer has so many bytes.
    pub(super) fn new(buffer: usize, now: Instant) -> Self {
        let may_wait = buffer >= BUFFER_MIN;
        Self { may_wait, wakes: 0, since: now, in_vain: 0, by_clock: false }
    }

    /// Whether the socket is looked at by the clock.
    pub(super) const fn is_by_clock(&self) -> bool {
        self.by_clock
    }

    /// The socket has woken its task, or the clock has, and there was something or not.
    pub(super) fn looked(&mut self, found: bool, now: Instant) {
        if self.by_clock {
            self.in_vain = if found { 0 } else { self.in_vain + 1 };
            if self.in_vain == IN_VAIN_MAX {
                *self = Self { may_wait: self.may_wait, ..Self::new(0, now) };
            }
            return;
        }
        if now.duration_since(self.since) >= LATELY {
            (self.since, self.wakes) = (now, 0);
        }
        self.wakes += 1;
        self.by_clock = self.may_wait && self.wakes >= WAKES;
    }
}

/// The shortest time that the runtime's clock knows.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// So often in so long, which takes some hundredths of a processor's time.
const WAKES: u32 = 16;
const LATELY: Duration = Duration::from_millis(10);

/// After so many looks in vain it is quiet.
const IN_VAIN_MAX: u32 = 20;

/// As the kernel counts, which takes a kilobyte for the smallest datagram: some milliseconds of
/// half a million of them each second.
const BUFFER_MIN: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn woken(pace: &mut Pace, times: u32, every: Duration, mut now: Instant) -> Instant {
        for _ in 0..times {
            now += every;
            pace.looked(true, now);
        }
        now
    }

    #[tokio::test]
    async fn a_stream_is_looked_at_by_the_clock_until_it_ends() {
        let now = Instant::now();
        let mut pace = Pace::new(BUFFER_MIN, now);
        let now = woken(&mut pace, 1000, 1000 * US, now);
        assert!(!pace.is_by_clock(), "a thousand a second are few");
        let mut now = woken(&mut pace, 100, 200 * US, now);
        assert!(pace.is_by_clock());
        for found in [false, true, false] {
            for _ in 1..IN_VAIN_MAX {
                pace.looked(found, now);
                assert!(pace.is_by_clock(), "the stream may just pause");
            }
        }
        now += TICK;
        pace.looked(false, now);
        assert!(!pace.is_by_clock());
        pace.looked(true, now);
        assert!(!pace.is_by_clock(), "what was before is forgotten");
    }

    #[tokio::test]
    async fn a_small_buffer_is_emptied_at_once() {
        let now = Instant::now();
        let mut pace = Pace::new(BUFFER_MIN - 1, now);
        woken(&mut pace, 1000, 10 * US, now);
        assert!(!pace.is_by_clock());
    }
}
