//! What a request waits for before it is answered.
//!
//! ```text
//! Slip ─► Hold (one a lane) ─► with the points: inbox, window, payload, queue ─► gone
//!   │                                                                              │
//!   └── gone when all points are handed over ──────────► Receipt resolves ◄────────┘
//! ```
//!
//! A [`Hold`] travels with points. A clone is one more thing to wait for, and dropping it says
//! that they are where the request wants them. What is lost is said before, by
//! [`lose`](Hold::lose). When the [`Slip`] and the last hold are gone, the [`Receipt`] resolves.
//! Pure but for the wait. A request that waits for nothing has none of these.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// How far points have to be when their sender is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Where they survive the process, for every backend that keeps points there; else in its
    /// queue.
    Queued,
    /// At every backend.
    Delivered,
}

/// What became of the points of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All of them are where they should be.
    Kept,
    /// So many are not there yet, by the backend that has the most to do. None is lost so far.
    Late(u64),
    /// Some never will be.
    Lost(Vec<Loss>),
}

/// Points that a backend will not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The backend's name.
    pub backend: String,
    /// The reason under which they are counted.
    pub reason: &'static str,
    /// How many.
    pub points: u64,
    /// What the backend said to the first of them, if it did.
    pub detail: Option<String>,
}

impl Loss {
    /// Whether it may be otherwise in a moment: there was no room, or the gateway was stopping.
    pub fn is_for_now(&self) -> bool {
        matches!(self.reason, "queue_full" | "inbox_full" | "sample_limit" | "shutdown")
    }
}

/// Where holds come from. As long as it is there, the receipt does not resolve.
#[derive(Debug)]
pub struct Slip(Arc<Request>);

/// Something that a request waits for: points on their way to one backend.
#[derive(Clone, Debug)]
pub struct Hold {
    request: Arc<Request>,
    part: Arc<Part>,
}

/// The request's end.
#[derive(Debug)]
pub struct Receipt {
    sheet: Arc<Sheet>,
    gone: oneshot::Receiver<()>,
    is_resolved: bool,
}

#[derive(Debug)]
struct Request {
    level: Level,
    sheet: Arc<Sheet>,
    /// Tells by its end that nobody refers to the request any more.
    _alive: oneshot::Sender<()>,
}

/// What the receipt reads when it resolves, or when time is up.
#[derive(Debug, Default)]
struct Sheet {
    parts: Mutex<Vec<Arc<Part>>>,
    losses: Mutex<Vec<Loss>>,
    deferred: AtomicBool,
}

/// The points on their way to one backend.
#[derive(Debug)]
struct Part {
    backend: String,
    pending: AtomicU64,
}

impl Slip {
    /// A slip, and the receipt for all that is handed out from it.
    pub fn new(level: Level) -> (Self, Receipt) {
        let (alive, gone) = oneshot::channel();
        let sheet = Arc::<Sheet>::default();
        let receipt = Receipt { sheet: Arc::clone(&sheet), gone, is_resolved: false };
        (Self(Arc::new(Request { level, sheet, _alive: alive })), receipt)
    }

    /// A hold for so many points on their way to `backend`.
    pub fn hold(&self, backend: &str, points: u64) -> Hold {
        let part = Part { backend: backend.to_owned(), pending: AtomicU64::new(points) };
        let part = Arc::new(part);
        lock(&self.0.sheet.parts).push(Arc::clone(&part));
        Hold { request: Arc::clone(&self.0), part }
    }
}

impl Hold {
    /// How far the points have to come.
    pub fn level(&self) -> Level {
        self.request.level
    }

    /// So many of the points have arrived.
    pub fn settle(&self, points: u64) {
        let less = |pending: u64| Some(pending.saturating_sub(points));
        // It never fails, since there always is a new value.
        let _ = self.part.pending.fetch_update(Relaxed, Relaxed, less);
    }

    /// So many of the points will never arrive.
    pub fn lose(&self, points: u64, reason: &'static str, detail: Option<&str>) {
        if points == 0 {
            return;
        }
        self.settle(points);
        let backend = &self.part.backend;
        let mut losses = lock(&self.request.sheet.losses);
        match losses.iter_mut().find(|loss| loss.reason == reason && loss.backend == *backend) {
            Some(loss) => loss.points += points,
            None => losses.push(Loss {
                backend: backend.clone(),
                reason,
                points,
                detail: detail.map(str::to_owned),
            }),
        }
    }

    /// The points are kept, and will not arrive before this process ends.
    pub fn defer(self) {
        self.request.sheet.deferred.store(true, Relaxed);
    }
}

impl Receipt {
    /// Waits until it resolves, or time is up; may be called again for more time.
    pub async fn by(&mut self, up: impl Future<Output = ()>) -> Fate {
        if !self.is_resolved {
            self.is_resolved = tokio::select! {
                biased;
                // That its sender has gone is what it waits for.
                _ = &mut self.gone => true,
                () = up => false,
            };
        }
        self.fate()
    }

    /// Whether nothing about the fate will change any more.
    pub fn is_resolved(&self) -> bool {
        self.is_resolved
    }

    /// What is known by now.
    pub fn fate(&self) -> Fate {
        self.sheet.fate(self.is_resolved)
    }
}

impl Sheet {
    fn fate(&self, in_time: bool) -> Fate {
        let losses = lock(&self.losses);
        if !losses.is_empty() {
            return Fate::Lost(losses.clone());
        }
        if in_time && !self.deferred.load(Relaxed) {
            return Fate::Kept;
        }
        let pending = |part: &Arc<Part>| part.pending.load(Relaxed);
        Fate::Late(lock(&self.parts).iter().map(pending).max().unwrap_or(0).max(1))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::{Instant, sleep};

    async fn fate(mut receipt: Receipt) -> Fate {
        receipt.by(sleep(Duration::from_secs(1))).await
    }

    #[tokio::test(start_paused = true)]
    async fn it_resolves_when_the_slip_and_the_last_hold_are_gone() {
        let (slip, mut receipt) = Slip::new(Level::Queued);
        let hold = slip.hold("a", 3);
        let other = hold.clone();
        drop(hold);
        let began = Instant::now();
        let waiting = tokio::spawn(async move {
            let early = receipt.by(sleep(Duration::from_millis(500))).await;
            assert_eq!((early, receipt.is_resolved()), (Fate::Late(3), false));
            let fate = receipt.by(sleep(Duration::from_secs(60))).await;
            assert_eq!((&fate, receipt.is_resolved()), (&receipt.fate(), true));
            fate
        });
        sleep(Duration::from_secs(1)).await;
        drop(other);
        sleep(Duration::from_secs(1)).await;
        drop(slip);
        assert_eq!(waiting.await.unwrap(), Fate::Kept);
        assert_eq!(began.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_points_nobody_takes_is_kept_at_once() {
        let (slip, receipt) = Slip::new(Level::Delivered);
        drop(slip);
        assert_eq!(fate(receipt).await, Fate::Kept);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_late_is_counted_by_the_slowest_backend() {
        let (slip, receipt) = Slip::new(Level::Delivered);
        let holds = [slip.hold("a", 10), slip.hold("b", 10)];
        holds[0].settle(10);
        holds[1].settle(4);
        assert_eq!(fate(receipt).await, Fate::Late(6));
        let (slip, receipt) = Slip::new(Level::Delivered);
        slip.hold("a", 5).defer();
        drop(slip);
        assert_eq!(fate(receipt).await, Fate::Late(5), "resolved, but not kept");
    }

    #[tokio::test(start_paused = true)]
    async fn losses_are_told_by_backend_and_reason() {
        let (slip, receipt) = Slip::new(Level::Delivered);
        let (a, b) = (slip.hold("a", 10), slip.hold("b", 10));
        a.lose(1, "rejected", Some("no"));
        a.lose(2, "rejected", Some("no again"));
        b.lose(3, "queue_full", None);
        b.lose(0, "shutdown", None);
        let loss = |backend: &str, reason, points, detail: Option<&str>| {
            let (backend, detail) = (backend.to_owned(), detail.map(str::to_owned));
            Loss { backend, reason, points, detail }
        };
        let losses = vec![loss("a", "rejected", 3, Some("no")), loss("b", "queue_full", 3, None)];
        // Even though the rest is not there yet.
        assert_eq!(fate(receipt).await, Fate::Lost(losses));
        drop((slip, a, b));
    }
}
