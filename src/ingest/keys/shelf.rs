//! What lies on disk and what lies beside it, and what is done when the disk is ill.
//!
//! All that is to be kept lies beside the file first, and goes there in one transaction. If that
//! fails, it stays where it is and is tried again after [`REST`]; requests are served meanwhile.
//! A damaged file is set aside and a new one begun. Both are counted, at the listener that met it.

use super::desk::{Job, Keep};
use super::file::{Error, File};
use super::unwritten::Unwritten;
use super::{Name, Owner, Remembered};
use crate::clock::Clock;
use protocols::UnixNanos;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// All keys that are held. Every method blocks.
#[derive(Debug)]
pub(super) struct Shelf {
    file: File,
    unwritten: Unwritten,
    /// Every listener met so far, as it was configured last.
    owners: BTreeMap<Arc<str>, Arc<Owner>>,
    clock: Clock,
    /// The disk did not do what it was asked; not before then is it asked again.
    ill: Option<Instant>,
    /// When expired keys are next taken away.
    tidy_at: Instant,
}

impl Shelf {
    pub(super) fn new(file: File, clock: Clock) -> Self {
        let (unwritten, owners) = (Unwritten::default(), BTreeMap::new());
        Self { file, unwritten, owners, clock, ill: None, tidy_at: Instant::now() }
    }

    /// Does all of it, what is to be kept in one go.
    pub(super) fn work(&mut self, jobs: Vec<Job>) {
        let now = self.clock.now();
        let (mut keeps, mut is_last) = (Vec::new(), false);
        for job in jobs {
            match job {
                Job::Meet(owner) => self.meet(&owner),
                Job::Find(name, owner, tell) => {
                    // Whoever asked may have gone.
                    let _ = tell.send(self.find(&name, &owner, now));
                }
                Job::Keep(keep) => keeps.push(keep),
                Job::Wake => {}
                Job::Close => is_last = true,
            }
        }
        self.keep(&keeps);
        self.tidy(now);
        self.show();
        keeps.into_iter().for_each(Keep::finish);
        if is_last {
            self.file.close();
        }
    }

    /// When there is something to do again, without anybody asking.
    pub(super) fn rest(&self) -> Option<Duration> {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        if !self.unwritten.is_empty() {
            return Some(self.ill.map_or(REST, until));
        }
        let expires = self.file.next_expiry()?;
        let left = u64::try_from(expires.0.saturating_sub(self.clock.now().0)).unwrap_or(0);
        Some(Duration::from_nanos(left).clamp(until(self.tidy_at), LONGEST_REST))
    }

    fn meet(&mut self, owner: &Arc<Owner>) {
        self.owners.insert(Arc::clone(&owner.listener), Arc::clone(owner));
        if let Err(error) = self.file.look() {
            self.trouble(&error, owner);
        }
    }

    fn find(&mut self, name: &Name, owner: &Owner, now: UnixNanos) -> Option<Arc<Remembered>> {
        if let Some(entry) = self.unwritten.find(name, now) {
            return Some(Arc::clone(&entry.remembered));
        }
        match self.file.find(name, now) {
            Ok(found) => found.map(Arc::new),
            Err(error) => {
                self.trouble(&error, owner);
                None
            }
        }
    }

    fn keep(&mut self, keeps: &[Keep]) {
        for Keep { entry, .. } in keeps {
            let forgotten = self.unwritten.push(entry.clone());
            forgotten.iter().for_each(|entry| entry.owner.book.noticed.add("key_limit", 1));
        }
        if self.unwritten.is_empty() {
            return;
        }
        let written = match self.ill {
            Some(until) if Instant::now() < until => false,
            _ => self.write(),
        };
        if !written {
            keeps.iter().for_each(|Keep { entry, .. }| {
                entry.owner.book.noticed.add("key_disk_failed", 1);
            });
        }
    }

    /// Brings to disk what is not there; says whether it is now.
    fn write(&mut self) -> bool {
        let mut written = self.attempt();
        if let Err(error) = &written
            && error.is_damage()
            && let Some(owner) = self.unwritten.all().first().map(|entry| Arc::clone(&entry.owner))
            && self.replace(error, &owner)
        {
            written = self.attempt();
        }
        match written {
            Ok(()) => {
                if self.ill.take().is_some() {
                    tracing::info!(file = %self.file.path().display(), "keys can be written again");
                }
                true
            }
            Err(error) => {
                self.fall_ill(&error);
                false
            }
        }
    }

    fn attempt(&mut self) -> Result<(), Error> {
        let forgotten = self.file.write(self.unwritten.all())?;
        self.unwritten.clear();
        for (owner, keys) in forgotten {
            owner.book.noticed.add("key_limit", keys);
        }
        Ok(())
    }

    /// Takes away what has expired, now and then.
    fn tidy(&mut self, now: UnixNanos) {
        if Instant::now() < self.tidy_at {
            return;
        }
        self.unwritten.expire(now);
        let has_more = self.file.expire(now).unwrap_or_else(|error| {
            tracing::debug!(%error, "expired keys stay for a while");
            false
        });
        self.tidy_at = Instant::now() + if has_more { Duration::ZERO } else { TIDY_EVERY };
    }

    fn show(&self) {
        for (listener, owner) in &self.owners {
            owner.book.keys.set(self.file.held(listener) + self.unwritten.held(listener));
        }
    }

    /// Counts and logs what somebody who looked for a key has met.
    fn trouble(&mut self, error: &Error, owner: &Owner) {
        match error {
            error if error.is_damage() => drop(self.replace(error, owner)),
            Error::Record => {
                owner.book.noticed.add("keys_damaged", 1);
                tracing::error!(%error, "a request counts again, if it is a repeated one");
            }
            error => {
                owner.book.noticed.add("key_disk_failed", 1);
                self.fall_ill(error);
            }
        }
    }

    /// Sets a damaged file aside; says whether a new one can be begun.
    fn replace(&mut self, error: &Error, owner: &Owner) -> bool {
        owner.book.noticed.add("keys_damaged", 1);
        let file = self.file.path().display().to_string();
        match self.file.set_aside() {
            Ok(aside) => {
                let aside = aside.display();
                tracing::error!(%error, file, set_aside = %aside, "the file of keys is damaged; it was set aside and a new one is begun, so requests that it knew count again when they are repeated");
                true
            }
            Err(problem) => {
                tracing::error!(%error, %problem, file, "the file of keys is damaged and cannot be set aside");
                false
            }
        }
    }

    fn fall_ill(&mut self, error: &Error) {
        if self.ill.replace(Instant::now() + REST).is_none() {
            let file = self.file.path().display();
            tracing::error!(%error, %file, "the disk does not do what keys of requests ask; they are remembered in memory, and tried again");
        }
    }
}

/// How long a disk that refuses is left alone.
const REST: Duration = Duration::from_secs(1);
/// So that keys which expire one by one go together.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// The wall clock may have been moved.
const LONGEST_REST: Duration = Duration::from_secs(60);
