//! Where work on keys gathers, and the one thread that does it.
//!
//! Requests leave jobs here; while one lot is on its way to the disk the next one comes together.
//! Whoever brings a job to an idle desk sets a blocking thread to work, which ends when nothing is
//! left. A timer wakes it for keys that expire and for a disk that may work again.

use super::claims::Place;
use super::file::File;
use super::shelf::Shelf;
use super::{Entry, Name, Owner, Remembered};
use crate::clock::Clock;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// The jobs that wait, and the shelf on which they are done.
#[derive(Debug)]
pub(super) struct Desk {
    me: Weak<Self>,
    jobs: Mutex<Jobs>,
    /// Whether nothing is under way.
    idle: watch::Sender<bool>,
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Jobs {
    waiting: Vec<Job>,
    busy: bool,
    timer: Option<AbortHandle>,
}

/// One thing to do.
#[derive(Debug)]
pub(super) enum Job {
    /// Counts the keys of a listener.
    Meet(Arc<Owner>),
    /// Looks for a key.
    Find(Name, Arc<Owner>, oneshot::Sender<Option<Arc<Remembered>>>),
    /// Remembers a key.
    Keep(Keep),
    /// Looks after what time does.
    Wake,
    /// Closes the file, so that it is whole without its log.
    Close,
}

/// An answer to be remembered, and who is to be told when it is.
#[derive(Debug)]
pub(super) struct Keep {
    pub(super) entry: Entry,
    pub(super) place: Place,
    pub(super) done: oneshot::Sender<()>,
}

impl Keep {
    /// Tells everybody, and frees the key.
    pub(super) fn finish(self) {
        self.place.tell(&self.entry.remembered);
        drop(self.place);
        // Whoever asked may have gone.
        let _ = self.done.send(());
    }
}

impl Desk {
    pub(super) fn new(file: File, clock: Clock) -> Arc<Self> {
        let shelf = Mutex::new(Shelf::new(file, clock));
        let (jobs, idle) = (Mutex::default(), watch::Sender::new(true));
        Arc::new_cyclic(|me| Self { me: Weak::clone(me), jobs, idle, shelf })
    }

    /// Shows what an earlier run has left for a listener.
    pub(super) fn meet(&self, owner: &Arc<Owner>) {
        self.push(Job::Meet(Arc::clone(owner)));
    }

    /// What was answered to this key, if it is still remembered.
    pub(super) async fn find(&self, name: &Name, owner: &Arc<Owner>) -> Option<Arc<Remembered>> {
        let (tell, found) = oneshot::channel();
        self.push(Job::Find(name.clone(), Arc::clone(owner), tell));
        found.await.ok().flatten()
    }

    /// Remembers; `keep` is finished when that is done.
    pub(super) fn keep(&self, keep: Keep) {
        self.push(Job::Keep(keep));
    }

    /// Waits until nothing is under way and the file is closed, or too long.
    pub(super) async fn close(&self) {
        self.push(Job::Close);
        let mut idle = self.idle.subscribe();
        // A disk that hangs must not keep the process.
        let _ = timeout(SETTLE_WITHIN, idle.wait_for(|idle| *idle)).await;
    }

    fn push(&self, job: Job) {
        let mut jobs = self.jobs();
        jobs.waiting.push(job);
        let (Ok(runtime), Some(me)) = (Handle::try_current(), self.me.upgrade()) else { return };
        if !jobs.busy {
            jobs.busy = true;
            self.idle.send_replace(false);
            runtime.spawn_blocking(move || me.work_through());
        }
    }

    fn work_through(&self) {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(jobs) = self.take(&shelf) {
            shelf.work(jobs);
        }
    }

    /// All that waits; if that is nothing, the thread is dismissed.
    fn take(&self, shelf: &Shelf) -> Option<Vec<Job>> {
        let mut jobs = self.jobs();
        let waiting = std::mem::take(&mut jobs.waiting);
        if waiting.is_empty() {
            jobs.busy = false;
            self.idle.send_replace(true);
            let timer = shelf.rest().and_then(|rest| self.wake_after(rest));
            if let Some(before) = std::mem::replace(&mut jobs.timer, timer) {
                before.abort();
            }
            return None;
        }
        Some(waiting)
    }

    fn wake_after(&self, rest: Duration) -> Option<AbortHandle> {
        let me = Weak::clone(&self.me);
        let task = Handle::try_current().ok()?.spawn(async move {
            sleep(rest).await;
            if let Some(me) = me.upgrade() {
                me.push(Job::Wake);
            }
        });
        Some(task.abort_handle())
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a stop waits for the disk.
const SETTLE_WITHIN: Duration = Duration::from_secs(5);
