//! Waiting for the outside world: look again and again, and give up loudly at a deadline.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Looks until `probe` finds what it is after, and returns it; panics with `what` after
/// [`PATIENCE`].
///
/// A probe answers with a `bool` or with an `Option` of what it found:
/// `eventually("influxd answers", async || server.ping().await).await`.
pub async fn eventually<S: Sign>(what: &str, probe: impl AsyncFnMut() -> S) -> S::Found {
    eventually_within(PATIENCE, what, probe).await
}

/// As [`eventually`], with a deadline of one's own.
pub async fn eventually_within<S: Sign>(
    patience: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> S,
) -> S::Found {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = probe().await.found() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {patience:?}: {what}");
        sleep(PAUSE).await;
    }
}

/// What a probe may answer with.
pub trait Sign {
    /// What the wait is for.
    type Found;

    /// The thing waited for, if it is there.
    fn found(self) -> Option<Self::Found>;
}

impl Sign for bool {
    type Found = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Sign for Option<T> {
    type Found = T;

    fn found(self) -> Option<T> {
        self
    }
}

/// Long enough for a server to start while every core is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(10);
