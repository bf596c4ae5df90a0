//! Looks after certificates that may change while they are in use.
//!
//! At every reload, and on a timer, the files of all that is in use are read again. What has
//! changed and can be used is in use from then on, and what is odd about it is told; what cannot is
//! told and counted, and changes nothing.

pub use super::live::Renewal;

use super::files::Problem;
use crate::books::{BackendBook, ListenerBook};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

/// Something that is made of files.
pub trait Renew: Send + Sync {
    /// Reads them again.
    fn renew(&self) -> Renewal;

    /// When the certificate among them ends, in seconds since 1970.
    fn expires(&self) -> Option<u64>;
}

/// Whose certificate it is.
#[derive(Clone, Debug)]
pub enum Owner {
    /// A listener's, by its name.
    Listener(Arc<str>, Arc<ListenerBook>),
    /// A backend's, by its name.
    Backend(Arc<str>, Arc<BackendBook>),
}

/// All that is in use; clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Keeper(Arc<Mutex<Vec<Entry>>>);

#[derive(Clone)]
struct Entry {
    owner: Owner,
    renewable: Weak<dyn Renew>,
}

impl Keeper {
    /// Looks after this one, too, for as long as anybody uses it.
    pub fn look_after(&self, owner: Owner, renewable: &Arc<dyn Renew>) {
        owner.tell_end(renewable.expires());
        self.entries().push(Entry { owner, renewable: Arc::downgrade(renewable) });
    }

    /// Reads all files again, and says whose are new ones. Blocks for as long as that takes.
    pub fn renew(&self) -> Vec<String> {
        let mut renewed = Vec::new();
        for Entry { owner, renewable } in self.in_use() {
            let Some(renewable) = renewable.upgrade() else { continue };
            match renewable.renew() {
                Renewal::Same => {}
                Renewal::New(oddities) => {
                    owner.renewed(&oddities);
                    renewed.push(format!("certificates of {owner} renewed"));
                }
                Renewal::Kept(problem) => owner.kept(&problem.to_string()),
                Renewal::StillKept => owner.notice("certificate_kept"),
            }
            owner.tell_end(renewable.expires());
        }
        renewed
    }

    /// Renews on a timer, until the handle is dropped.
    pub fn watch(&self) -> AbortOnDropHandle<()> {
        let keeper = self.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await; // At once, and all has just been read.
            loop {
                ticks.tick().await;
                keeper.renew_aside().await;
            }
        }))
    }

    /// As [`renew`](Self::renew), where nobody is held up.
    pub async fn renew_aside(&self) -> Vec<String> {
        if self.entries().is_empty() {
            return Vec::new();
        }
        let keeper = self.clone();
        // It is not cancelled, and does not panic.
        tokio::task::spawn_blocking(move || keeper.renew()).await.unwrap_or_default()
    }

    /// What is in use still; of an owner who has nothing any more, that is told.
    fn in_use(&self) -> Vec<Entry> {
        let mut entries = self.entries();
        let (used, gone): (Vec<_>, Vec<_>) =
            entries.drain(..).partition(|entry| entry.renewable.strong_count() > 0);
        for Entry { owner, .. } in gone {
            if !used.iter().any(|entry| entry.owner.is(&owner)) {
                owner.tell_end(None);
            }
        }
        entries.clone_from(&used);
        used
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owner {
    fn notice(&self, kind: &'static str) {
        match self {
            Self::Listener(_, book) => book.noticed.add(kind, 1),
            Self::Backend(_, book) => book.noticed.add(kind, 1),
        }
    }

    fn renewed(&self, oddities: &[Problem]) {
        self.notice("certificate_renewed");
        for odd in oddities {
            match self {
                Self::Listener(name, _) => warn!(listener = %name, "the new certificate: {odd}"),
                Self::Backend(name, _) => warn!(backend = %name, "the new certificates: {odd}"),
            }
        }
        match self {
            Self::Listener(name, _) => {
                info!(listener = %name, "new connections get the new certificate");
            }
            Self::Backend(name, _) => info!(backend = %name, "new certificates are in use"),
        }
    }

    fn kept(&self, problem: &str) {
        self.notice("certificate_kept");
        match self {
            Self::Listener(name, _) => {
                warn!(listener = %name, "the certificate in use is kept: {problem}");
            }
            Self::Backend(name, _) => {
                warn!(backend = %name, "the certificates in use are kept: {problem}");
            }
        }
    }

    fn tell_end(&self, expires: Option<u64>) {
        let expires = expires.unwrap_or(0);
        match self {
            Self::Listener(_, book) => book.certificate_expires.set(expires),
            Self::Backend(_, book) => book.certificate_expires.set(expires),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Listener(one, _), Self::Listener(other, _))
            | (Self::Backend(one, _), Self::Backend(other, _)) => one == other,
            _ => false,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listener(name, _) => write!(f, "listener {name}"),
            Self::Backend(name, _) => write!(f, "backend {name}"),
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.owner).finish()
    }
}

/// Files are small, and whoever renews a certificate does so days before it ends.
const EVERY: Duration = Duration::from_secs(60);
