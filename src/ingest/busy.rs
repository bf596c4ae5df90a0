//! Which tasks of a listener are at work, and which of them only wait for an answer to give.
//!
//! A stop waits for the first: once nothing is at work, all that was received has been handed over.
//! What the others wait for may need the rest of the stop, such as the end of a window.

use std::sync::Arc;
use tokio::sync::watch;

/// How many tasks of a listener are at work.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy(Arc<watch::Sender<usize>>);

/// A task is at work until this is dropped.
#[derive(Debug)]
pub(super) struct Work(Busy);

/// A task that is at work does nothing but wait, until this is dropped.
#[derive(Debug)]
pub(super) struct Pause(Busy);

impl Busy {
    /// One more task is at work.
    pub(super) fn begin(&self) -> Work {
        self.change(|count| count + 1);
        Work(self.clone())
    }

    /// One of those at work only waits.
    pub(super) fn pause(&self) -> Pause {
        self.change(|count| count - 1);
        Pause(self.clone())
    }

    /// Waits until none is at work.
    pub(super) async fn over(&self) {
        // Its sender is `self`, so there always will be an answer.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) {
        self.0.send_modify(|count| *count = change(*count));
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.change(|count| count - 1);
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.change(|count| count + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[tokio::test]
    async fn who_only_waits_is_not_at_work() {
        let busy = Busy::default();
        busy.over().await;
        let (one, other) = (busy.begin(), busy.begin());
        let pause = busy.pause();
        let mut over = pin!(busy.over());
        assert!(futures_now(over.as_mut()).await.is_none());
        drop(other);
        over.await;
        drop(pause);
        assert!(futures_now(pin!(busy.over())).await.is_none(), "it goes on");
        drop(one);
        busy.over().await;
    }

    /// What a future answers by now.
    async fn futures_now<F: Future>(future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            answer = future => Some(answer),
            () = std::future::ready(()) => None,
        }
    }
}
