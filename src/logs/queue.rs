//! Objects on their way from the log to the sender, no more than fit.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Lines that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    news: Notify,
    /// Cancelled when the log has ended.
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Line after line, with their ends.
    bytes: Vec<u8>,
    /// Of each of them, which of the log's points it is.
    places: VecDeque<u64>,
}

/// Lines for one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
    pub(super) places: Vec<u64>,
}

impl Queue {
    /// Adds a line, if there is room: the point of the log at that place.
    pub(super) fn push(&self, place: u64, line: &[u8]) -> bool {
        let mut waiting = self.lock();
        let fits = waiting.bytes.len() + line.len() < BYTES_MAX;
        if fits {
            waiting.bytes.extend_from_slice(line);
            waiting.bytes.push(b'\n');
            waiting.places.push_back(place);
            self.news.notify_one();
        }
        fits
    }

    /// Nothing is added any more.
    pub(super) fn close(&self) {
        self.closed.cancel();
        self.news.notify_one();
    }

    /// Waits so long, until the log ends: whoever waits for the rest to be sent gives it little time.
    pub(super) async fn rest(&self, pause: Duration) {
        if self.closed.is_cancelled() {
            return sleep(pause.min(LAST_PAUSE)).await;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = self.closed.cancelled() => {}
        }
    }

    /// The oldest lines, as many as make a good request; none once the queue is closed and empty.
    pub(super) async fn take(&self) -> Option<Lines> {
        loop {
            {
                let mut waiting = self.lock();
                if !waiting.places.is_empty() {
                    return Some(waiting.take());
                }
                if self.closed.is_cancelled() {
                    return None;
                }
            }
            self.news.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// One of them, counted from 0.
    pub(super) fn line(&self, index: usize) -> Option<&[u8]> {
        self.bytes.split_inclusive(|byte| *byte == b'\n').nth(index)
    }

    /// In two, where one is too large for the gateway; a lone line cannot be cut.
    pub(super) fn halves(&self) -> Option<[Self; 2]> {
        let middle = usize::try_from(self.count / 2).ok()?;
        let end = memchr::memchr_iter(b'\n', &self.bytes).nth(middle.checked_sub(1)?)? + 1;
        let (first, second) = self.bytes.split_at_checked(end)?;
        let count = middle as u64;
        let (places, others) = self.places.split_at_checked(middle).unwrap_or_default();
        Some([
            Self { bytes: first.to_vec(), count, places: places.to_vec() },
            Self { bytes: second.to_vec(), count: self.count - count, places: others.to_vec() },
        ])
    }
}

impl Waiting {
    fn take(&mut self) -> Lines {
        let limit = self.bytes.len().min(REQUEST_MAX);
        let room = self.bytes.get(..limit).unwrap_or_default();
        // A line is never longer than a request.
        let end = memchr::memrchr(b'\n', room).map_or(self.bytes.len(), |end| end + 1);
        let rest = self.bytes.split_off(end);
        let bytes = std::mem::replace(&mut self.bytes, rest);
        let count = memchr::memchr_iter(b'\n', &bytes).count();
        let places = self.places.drain(..count.min(self.places.len())).collect();
        Lines { bytes, count: count as u64, places }
    }
}

/// What waits at the most: some ten thousand usual points.
pub(super) const BYTES_MAX: usize = 4 << 20;

/// Of one request.
const REQUEST_MAX: usize = 256 << 10;

/// Between attempts once the log has ended.
const LAST_PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test]
    async fn lines_come_in_order_and_in_requests_of_a_good_size() {
        let queue = Queue::default();
        let line = vec![b'x'; 100 << 10];
        let pushed = (0..100).filter(|place| queue.push(*place, &line)).count();
        assert_eq!(pushed, BYTES_MAX / (line.len() + 1));
        queue.close();
        let (mut taken, mut places) = (0, Vec::new());
        while let Some(lines) = queue.take().await {
            assert!(lines.bytes.len() <= REQUEST_MAX && lines.bytes.ends_with(b"x\n"));
            taken += lines.count;
            places.extend(lines.places);
        }
        assert_eq!(taken, pushed as u64);
        assert!(places.into_iter().eq(0..taken));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_log_ends_a_rest_and_makes_the_others_short() {
        let (queue, began) = (Queue::default(), Instant::now());
        queue.rest(Duration::from_secs(2)).await;
        assert_eq!(began.elapsed(), Duration::from_secs(2));
        let ends = async {
            sleep(Duration::from_secs(1)).await;
            queue.close();
        };
        tokio::join!(queue.rest(Duration::from_secs(3600)), ends);
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        queue.rest(Duration::from_secs(3600)).await;
        assert_eq!(began.elapsed(), Duration::from_secs(3) + LAST_PAUSE);
        queue.rest(Duration::from_millis(1)).await;
        assert_eq!(began.elapsed(), Duration::from_millis(3001) + LAST_PAUSE);
    }

    #[test]
    fn lines_are_cut_in_two() {
        let lines = Lines { bytes: b"1\n2\n3\n".to_vec(), count: 3, places: vec![5, 6, 7] };
        let [first, second] = lines.halves().unwrap();
        assert_eq!(first, Lines { bytes: b"1\n".to_vec(), count: 1, places: vec![5] });
        assert_eq!(second, Lines { bytes: b"2\n3\n".to_vec(), count: 2, places: vec![6, 7] });
        assert!(first.halves().is_none());
    }
}
