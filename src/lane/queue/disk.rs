//! What happens on disk, on one blocking thread at a time.
//!
//! The [line](super::line) says what there is to do; it is done here in transactions of as much as
//! has come together, and its outcome told back. When the disk takes nothing, it is tried again
//! after a second. The file goes when nothing has been in it for a second: requests that wait for
//! the disk would have a new one made each time. What is damaged is set aside or given up, counted
//! as `spool_damaged`.

use super::Queue;
use super::line::{Line, SPOOL_DAMAGED, Work};
use super::slot::{Load, Record};
use super::spool::{Error, Spool};
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::runtime::Handle;

impl Queue {
    /// Reads what the spool holds; [`limit`](Self::limit) takes it up. Blocks.
    ///
    /// # Errors
    ///
    /// A sentence for people: it belongs to another kind, or cannot be opened.
    pub(in crate::lane) fn open(&self, mut spool: Spool) -> Result<(), String> {
        let mut place = self.spool();
        if let Some(open) = place.as_mut() {
            open.set_durability(spool.durability());
            return Ok(());
        }
        let records = match spool.recover() {
            Err(error) if error.is_damage() => {
                self.set_aside(&mut spool, &error).map_err(|error| spool.sentence(&error))?;
                Vec::new()
            }
            recovered => recovered.map_err(|error| spool.sentence(&error))?,
        };
        if records.is_empty() {
            shrink(&mut spool);
        } else {
            let (payloads, file) = (records.len(), spool.file().display());
            tracing::info!(payloads, spool = %file, "found what an earlier run has left");
        }
        *place = Some(spool);
        drop(place);
        let mut desk = self.desk();
        (desk.open, desk.found) = (true, records);
        Ok(())
    }

    /// Sends all there is to disk from now on, if that is allowed; it is delivered meanwhile.
    pub(in crate::lane) fn secure(&self) {
        self.desk().no_writes = false;
        self.change(Line::close);
    }

    /// Sends all there is to disk, if that is allowed, and waits until it is there, or the disk
    /// takes no more, or gets no further.
    pub(in crate::lane) async fn close(&self) {
        let mut changes = self.changes();
        self.secure();
        while !self.is_settled() {
            // A slow disk gets its time; one that hangs must not keep the process.
            let step = tokio::time::timeout(STEP_WITHIN, changes.changed()).await;
            if !matches!(step, Ok(Ok(()))) {
                return;
            }
        }
        self.tidy();
    }

    /// Whether what is put in line may go to disk.
    pub(in crate::lane) fn has_disk(&self) -> bool {
        self.line().has_disk()
    }

    /// As [`close`](Self::close) of a queue that was drained: what was delivered leaves the disk.
    fn is_settled(&self) -> bool {
        let line = self.line();
        let desk = self.desk();
        !desk.busy && (!desk.open || desk.no_writes || line.is_settled())
    }

    /// Whether the disk knows of all that has left.
    pub(in crate::lane) fn is_at_rest(&self) -> bool {
        let line = self.line();
        let desk = self.desk();
        !desk.busy && line.is_erased()
    }

    /// Sets somebody to work on disk, if there is something to do and nobody at it.
    pub(super) fn employ(&self, line: &mut Line) {
        let mut desk = self.desk();
        if !desk.open || desk.busy {
            return;
        }
        let (Ok(runtime), Some(me)) = (Handle::try_current(), self.me.upgrade()) else { return };
        let work = line.work(!desk.no_reads, !desk.no_writes);
        if !work.is_empty() {
            desk.busy = true;
            runtime.spawn_blocking(move || me.work_through(work));
        }
    }

    pub(super) fn work_through(&self, mut work: Work) {
        while !work.is_empty() {
            work = self.work(work);
        }
    }

    /// Does some work and answers what comes next.
    fn work(&self, work: Work) -> Work {
        let mut place = self.spool();
        let Some(spool) = place.as_mut() else { return Work::default() };
        let done = Done::of(work, spool);
        if let Some(error) = done.damage() {
            let aside = self.set_aside(spool, error);
            return self.begin_anew(aside.is_ok());
        }
        let (next, tidies) = self.settle(done, spool);
        drop(place);
        if tidies {
            self.tidy_later();
        }
        self.changes.send_modify(|version| *version = version.wrapping_add(1));
        next
    }

    /// Tells the line what came of it. Answers what comes next, and whether the file may go soon.
    fn settle(&self, done: Done, spool: &Spool) -> (Work, bool) {
        let Done { fetched, written, erase, store } = done;
        let mut line = self.line();
        let mut desk = self.desk();
        let mut lost = 0;
        match fetched {
            Ok(loads) => loads.into_iter().for_each(|(id, load)| lost += line.fetched(id, load)),
            Err(error) => desk.no_reads = self.rest(spool, &error),
        }
        match written {
            Ok(()) => {
                self.recovered(!store.is_empty());
                line.stored(store.iter().map(|(record, _)| record.id));
            }
            Err(Failure { error, erased }) => {
                desk.no_writes = store.len() <= 1 && self.rest(spool, &error);
                line.put_off(if erased { Vec::new() } else { erase }, store.len());
            }
        }
        self.damaged(lost);
        let next = line.work(!desk.no_reads, !desk.no_writes);
        let is_idle = next.is_empty();
        desk.busy = !is_idle;
        let off_disk = is_idle && line.is_off_disk();
        let tidies = off_disk && !std::mem::replace(&mut desk.to_be_tidied, off_disk);
        drop(desk);
        self.note(&line);
        (next, tidies)
    }

    fn tidy_later(&self) {
        let Ok(runtime) = Handle::try_current() else { return self.tidy() };
        let me = Weak::clone(&self.me);
        runtime.spawn(async move {
            tokio::time::sleep(REST).await;
            if let Some(me) = me.upgrade() {
                // It ends by itself, and nobody waits for it.
                drop(tokio::task::spawn_blocking(move || me.tidy()));
            }
        });
    }

    /// Gives the disk back, if nothing is on it.
    fn tidy(&self) {
        let mut place = self.spool();
        let Some(spool) = place.as_mut() else { return };
        let line = self.line();
        let mut desk = self.desk();
        desk.to_be_tidied = false;
        // Who comes while the file goes waits for its place, and makes a new one.
        let is_empty = !desk.busy && line.holds_no_disk();
        drop((line, desk));
        if is_empty {
            shrink(spool);
        }
    }

    /// Goes on with a new file, after the old one was set aside or could not even be.
    fn begin_anew(&self, is_aside: bool) -> Work {
        let lost = self.line().forget_stored(is_aside);
        self.damaged(lost);
        let mut desk = self.desk();
        desk.busy = false;
        desk.open &= is_aside;
        drop(desk);
        self.change(|_| ());
        Work::default()
    }

    fn set_aside(&self, spool: &mut Spool, error: &Error) -> Result<(), Error> {
        self.book.noticed.add(SPOOL_DAMAGED, 1);
        let file = spool.file().display().to_string();
        match spool.set_aside() {
            Ok(aside) => {
                let aside = aside.display();
                tracing::error!(%error, %file, set_aside = %aside, "the spool is damaged; it was set aside and a new one is begun");
                Ok(())
            }
            Err(problem) => {
                tracing::error!(%error, %problem, %file, "the spool is damaged and cannot be set aside");
                Err(problem)
            }
        }
    }

    fn damaged(&self, points: u64) {
        if points > 0 {
            self.book.dropped.add(SPOOL_DAMAGED, points);
            tracing::error!(points, "the spool has lost points that it should hold");
        }
    }

    /// Leaves the disk alone for a while; answers that it does.
    fn rest(&self, spool: &Spool, error: &Error) -> bool {
        if !self.ill.swap(true, Relaxed) {
            let file = spool.file().display();
            tracing::error!(%error, spool = %file, "the disk does not do what the spool asks; trying again");
        }
        let me = Weak::clone(&self.me);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(REST).await;
                if let Some(me) = me.upgrade() {
                    me.rested();
                }
            });
        }
        true
    }

    fn recovered(&self, has_stored: bool) {
        if has_stored && self.ill.swap(false, Relaxed) {
            tracing::info!("the disk works again");
        }
    }

    fn rested(&self) {
        let mut desk = self.desk();
        (desk.no_reads, desk.no_writes) = (false, false);
        drop(desk);
        self.change(|_| ());
    }
}

fn shrink(spool: &mut Spool) {
    if let Err(error) = spool.shrink() {
        tracing::debug!(%error, "the spool stays as large as it is");
    }
}

/// Some work, and what came of it.
struct Done {
    fetched: Result<Vec<(i64, Option<Load>)>, Error>,
    written: Result<(), Failure>,
    erase: Vec<i64>,
    store: Vec<(Record, Load)>,
}

impl Done {
    fn of(work: Work, spool: &mut Spool) -> Self {
        let Work { fetch, erase, store } = work;
        let fetched = fetch.into_iter().map(|id| Ok((id, spool.read(id)?))).collect();
        let written = write(spool, &erase, &store);
        Self { fetched, written, erase, store }
    }

    /// What shows that the file is damaged, if it is.
    fn damage(&self) -> Option<&Error> {
        let written = self.written.as_ref().err().map(|failure| &failure.error);
        let errors = [self.fetched.as_ref().err(), written];
        errors.into_iter().flatten().find(|error| error.is_damage())
    }
}

/// What the disk refused, and whether payloads have left it nevertheless.
struct Failure {
    error: Error,
    erased: bool,
}

/// A full disk may still have room to erase, which makes room to store.
fn write(spool: &mut Spool, erase: &[i64], store: &[(Record, Load)]) -> Result<(), Failure> {
    if erase.is_empty() && store.is_empty() {
        return Ok(());
    }
    spool.write(erase, store).map_err(|error| {
        let erased = !store.is_empty() && !error.is_damage() && spool.write(erase, &[]).is_ok();
        Failure { error, erased }
    })
}

/// How long a stop waits for the disk to get a transaction further, which is 4 MiB at the most.
const STEP_WITHIN: Duration = Duration::from_secs(5);
/// How long a disk that refuses is left alone.
const REST: Duration = Duration::from_secs(1);
