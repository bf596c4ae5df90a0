//! Which keys are at work just now, and who waits for them.

use super::{Name, Remembered};
use hashbrown::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The keys at work: one for each connection at the most, and those that stay open.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<HashMap<Name, watch::Receiver<Told>>>);

/// What was answered, once that is known.
pub(super) type Told = Option<Arc<Remembered>>;

/// What became of an attempt to put a key to work.
pub(super) enum Entered {
    /// Nobody had it.
    First(Place),
    /// Somebody has it; here it will be told, or closed without a word when nothing was kept.
    Behind(watch::Receiver<Told>),
}

impl Claims {
    pub(super) fn enter(self: &Arc<Self>, name: &Name) -> Entered {
        let mut at_work = self.lock();
        if let Some(told) = at_work.get(name) {
            return Entered::Behind(told.clone());
        }
        let (tell, told) = watch::channel(None);
        at_work.insert(name.clone(), told);
        Entered::First(Place { claims: Arc::clone(self), name: name.clone(), tell })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, watch::Receiver<Told>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key at work; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    claims: Arc<Claims>,
    name: Name,
    tell: watch::Sender<Told>,
}

impl Place {
    /// Tells those who wait.
    pub(super) fn tell(&self, remembered: &Arc<Remembered>) {
        self.tell.send_replace(Some(Arc::clone(remembered)));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.name);
    }
}
