//! How long the parts of a stop are waited for: until a deadline, or until whoever stops us says
//! that it is enough.

use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// The time that is left.
#[derive(Clone, Debug)]
pub(super) struct Grace {
    until: Instant,
    hurry: CancellationToken,
}

impl Grace {
    /// So long from now, or until it is over by word.
    pub(super) fn new(grace: Duration, hurry: CancellationToken) -> Self {
        Self { until: Instant::now() + grace, hurry }
    }

    /// What a future comes to, if that is in time.
    pub(super) async fn within<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            answer = timeout_at(self.until, future) => answer.ok(),
            () = self.hurry.cancelled() => None,
        }
    }
}

impl From<Duration> for Grace {
    fn from(grace: Duration) -> Self {
        Self::new(grace, CancellationToken::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_its_time_or_when_it_is_told_to() {
        let began = Instant::now();
        let hurry = CancellationToken::new();
        let grace = Grace::new(Duration::from_secs(10), hurry.clone());
        assert_eq!(grace.within(ready(1)).await, Some(1));
        let told = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            hurry.cancel();
        };
        assert_eq!(tokio::join!(grace.within(pending::<()>()), told).0, None);
        assert_eq!(began.elapsed().as_secs(), 3);
        assert_eq!(grace.within(pending::<()>()).await, None, "nothing is waited for any more");
        assert_eq!(grace.within(ready(1)).await, Some(1), "what is done is done");

        let grace = Grace::from(Duration::from_secs(5));
        assert_eq!(grace.within(pending::<()>()).await, None);
        assert_eq!(began.elapsed().as_secs(), 8);
    }
}
