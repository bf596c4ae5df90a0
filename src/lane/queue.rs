//! The queue of one backend: payloads in order, bounded, claimed while they are shipped.
//!
//! [`Line`] is the pure data structure, [`Spool`] the file; a [`Queue`] ties the two together,
//! wakes shippers and keeps the books. A payload is *claimed* by an attempt and then either
//! *committed* (it leaves) or let go (it stays where it was). So it is shipped at least once.
//!
//! Neither shaper nor shippers wait for the [disk](disk), but a shipper for a body that is there.
//! When the disk takes nothing, the queue is full as far as that goes.
//!
//! A full queue does what `when_full` says, and counts what it drops as `queue_full`:
//!
//! - `drop_oldest`: the oldest payloads that are not claimed make room. A payload is claimed
//!   only during an attempt, not while its shipper waits for the next one, so a dead backend
//!   keeps the newest points, not the oldest.
//! - `drop_newest`: the new payload goes.
//! - `refuse`: as `drop_newest`, but for what was promised room before it was taken; the lane
//!   says that it is full an eighth earlier, for those who are given no promise.

mod disk;

use super::effort::Effort;
use super::line::{Claimed, Entry, Limits, Line, QUEUE_FULL, Record};
use super::spool::Spool;
use super::trial::{Failure, Step};
use crate::backend::Payload;
use crate::books::BackendBook;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;

/// The queue of one backend; belongs to the backend's name.
#[derive(Debug)]
pub(super) struct Queue {
    line: Mutex<Line>,
    desk: Mutex<Desk>,
    /// Locked while the disk is at work; never while [`line`](Self::line) is.
    spool: Mutex<Option<Spool>>,
    cost: AtomicUsize,
    room: AtomicUsize,
    space: AtomicUsize,
    changes: watch::Sender<u64>,
    book: Arc<BackendBook>,
    /// Whether the log's last word was that the disk does not work.
    ill: AtomicBool,
    me: Weak<Self>,
}

/// Whether the disk can be used, and whether it is in use. Locked while the line is.
#[derive(Debug, Default)]
struct Desk {
    open: bool,
    /// What was there when it was opened, until it is taken up.
    found: Vec<Record>,
    busy: bool,
    no_reads: bool,
    no_writes: bool,
    /// Whether somebody will see to it that an empty file goes.
    to_be_tidied: bool,
}

/// What a shipper that asks for work gets.
#[derive(Debug)]
pub(super) enum Claim<'q> {
    /// This.
    Take(Ticket<'q>),
    /// Nothing now; ask again when something changed.
    Wait,
    /// Nothing ever: the queue is empty and nobody fills it any more.
    Done,
}

impl Queue {
    /// An empty queue, in memory.
    pub(super) fn new(book: Arc<BackendBook>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            line: Mutex::default(),
            desk: Mutex::default(),
            spool: Mutex::default(),
            cost: AtomicUsize::new(0),
            room: AtomicUsize::new(usize::MAX),
            space: AtomicUsize::new(usize::MAX),
            changes: watch::Sender::new(0),
            book,
            ill: AtomicBool::new(false),
            me: Weak::clone(me),
        })
    }

    /// Tells of everything after which a claim may have another answer.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Holds to these limits from now on; without an open spool, to memory. What was found in
    /// the spool is taken up when this is first said, which is when there is a lane.
    pub(super) fn limit(&self, limits: Limits) {
        let mut desk = self.desk();
        let (disk, found) = (limits.disk.filter(|_| desk.open), std::mem::take(&mut desk.found));
        drop(desk);
        let points = found.iter().map(|record| u64::from(record.points)).sum();
        self.book.recovered.add(points);
        self.change(|line| {
            line.recover(found);
            line.limit(Limits { disk, ..limits });
        });
    }

    /// Counts one more shaper that fills the queue.
    pub(super) fn join(&self) {
        self.change(|line| line.shapers += 1);
    }

    /// Counts one less.
    pub(super) fn leave(&self) {
        self.change(|line| line.shapers = line.shapers.saturating_sub(1));
    }

    /// Appends a payload; what has to go for it is counted.
    pub(super) fn push(&self, entry: impl Into<Entry>) {
        let lost = self.change(|line| line.push(entry));
        if lost > 0 {
            // What went may have made room on a full disk.
            self.desk().no_writes = false;
        }
        self.book.dropped.add(QUEUE_FULL, lost);
    }

    /// Claims the oldest payload that nobody has claimed, for the shippers of `lane`.
    pub(super) fn claim(&self, lane: u64) -> Claim<'_> {
        let mut line = self.line();
        match line.claim(lane) {
            Some(Claimed { id, payload, effort, verdict }) => {
                Claim::Take(Ticket { queue: self, id, payload: Some(payload), effort, verdict })
            }
            None if line.is_empty() && line.shapers == 0 => Claim::Done,
            None => Claim::Wait,
        }
    }

    /// Whether anything is there that nobody has in hand and the backend has not failed at.
    pub(super) fn has_fresh(&self) -> bool {
        self.line().has_fresh()
    }

    /// Whether HTTP is to be told to come back later.
    pub(super) fn is_nearly_full(&self) -> bool {
        let room = self.room.load(Relaxed);
        self.cost.load(Relaxed) >= room - room / 8
    }

    /// Whether so many bytes more find room.
    pub(super) fn has_space(&self, size: usize) -> bool {
        size <= self.space.load(Relaxed)
    }

    /// Whether it holds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.cost.load(Relaxed) == 0
    }

    /// Gives up what is not on disk, claimed or not; answers how many points that were.
    pub(super) fn abandon(&self) -> u64 {
        self.change(Line::abandon)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Line) -> T) -> T {
        let mut line = self.line();
        let answer = change(&mut line);
        self.employ(&mut line);
        self.note(&line);
        drop(line);
        self.changes.send_modify(|version| *version = version.wrapping_add(1));
        answer
    }

    fn note(&self, line: &Line) {
        self.cost.store(line.cost, Relaxed);
        self.room.store(line.room(), Relaxed);
        self.space.store(line.space(), Relaxed);
        self.book.queued.set(line.points);
        self.book.spooled.set(line.stored_points);
        self.book.queued_bytes.set(line.bytes as u64);
        self.book.oldest.set(line.oldest().map_or(0, |born| born.0.unsigned_abs()));
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spool(&self) -> MutexGuard<'_, Option<Spool>> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claim of one attempt. Dropped without a verdict, it lets the payload go back in line.
#[derive(Debug)]
pub(super) struct Ticket<'q> {
    queue: &'q Queue,
    id: i64,
    payload: Option<Payload>,
    effort: Arc<Effort>,
    verdict: Option<Arc<str>>,
}

impl Ticket<'_> {
    /// What is to be shipped.
    pub(super) fn payload(&self) -> Option<&Payload> {
        self.payload.as_ref()
    }

    /// The backend took the payload, which leaves the queue.
    pub(super) fn deliver(self) -> Option<Payload> {
        self.queue.line().vouch(self.id);
        self.commit()
    }

    /// The payload has found its end and leaves the queue.
    pub(super) fn commit(mut self) -> Option<Payload> {
        let payload = self.payload.take();
        self.queue.change(|line| line.commit(self.id));
        payload
    }

    /// What the backend said, if this was found to be what it fails at.
    pub(super) const fn verdict(&self) -> Option<&Arc<str>> {
        self.verdict.as_ref()
    }

    /// The backend has failed at this payload, and may have had it to blame.
    pub(super) fn failed(&self, failure: Failure<'_>) -> Step {
        self.queue.change(|line| line.failed(self.id, failure))
    }

    /// The backend took some of the payload, so it is well.
    pub(super) fn vouch(&self) {
        self.queue.change(|line| line.vouch(self.id));
    }

    /// The backend will never take so many of its points; said before the verdict.
    pub(super) fn lose(&self, points: u32, reason: &'static str, detail: &str) {
        self.queue.line().lose(self.id, points.into(), reason, detail);
    }

    /// What is spent on finding what is refused of the payload that this is a part of.
    pub(super) fn effort(&self) -> &Effort {
        &self.effort
    }

    /// As [`replace`](Self::replace), because the backend refused it.
    pub(super) fn divide(self, parts: [Payload; 2]) {
        self.effort.spend();
        self.replace(parts);
    }

    /// These take the payload's place, in this order.
    pub(super) fn replace(mut self, parts: [Payload; 2]) {
        self.payload = None;
        self.queue.change(|line| line.replace(self.id, parts));
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.payload.is_some() {
            self.queue.change(|line| line.let_go(self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::{Durability, WhenFull};
    use crate::waybill::Waybill;
    use bytes::Bytes;
    use proptest::prelude::*;
    use protocols::UnixNanos;
    use std::path::Path;
    use std::time::Duration;

    fn payload(points: u32) -> Payload {
        Payload::new("\n", points, UnixNanos(i64::from(points)))
    }

    fn claim(queue: &Queue) -> Option<Ticket<'_>> {
        match queue.claim(1) {
            Claim::Take(ticket) => Some(ticket),
            Claim::Wait | Claim::Done => None,
        }
    }

    #[test]
    fn parts_share_what_may_be_spent() {
        let queue = Queue::new(Arc::default());
        let claim = || claim(&queue).unwrap();
        queue.push(payload(9));
        queue.push(payload(1));
        claim().divide([payload(4), payload(5)]);
        claim().divide([payload(2), payload(2)]);
        claim().replace([payload(1), payload(1)]);
        while claim().effort().is_left() {
            claim().effort().spend();
        }
        for (points, is_left) in [(1, false), (1, false), (2, false), (5, false), (1, true)] {
            let ticket = claim();
            assert_eq!(ticket.payload().unwrap().points, points);
            assert_eq!(ticket.effort().is_left(), is_left);
            ticket.commit();
        }
    }

    #[test]
    fn a_younger_lane_waits_for_what_the_older_has_in_hand() {
        let queue = Queue::new(Arc::default());
        queue.join();
        queue.push(payload(1));
        queue.push(payload(2));
        let Claim::Take(old) = queue.claim(1) else { panic!("nothing to claim") };
        assert!(matches!(queue.claim(2), Claim::Wait));
        drop(old);
        let Claim::Take(young) = queue.claim(2) else { panic!("nothing to claim") };
        assert_eq!(young.payload().unwrap().points, 1);
        young.commit();
        queue.leave();
        let Claim::Take(last) = queue.claim(2) else { panic!("nothing to claim") };
        last.commit();
        assert!(matches!(queue.claim(2), Claim::Done));
    }

    const MEMORY: usize = 2000;
    const DISK: usize = 6000;

    /// A queue on the spool of this directory.
    fn open(dir: &Path, kind: &'static str, when_full: WhenFull) -> Result<Arc<Queue>, String> {
        let queue = Queue::new(Arc::default());
        queue.open(Spool::new(dir, "b", kind, Durability::Process))?;
        queue.limit(Limits { memory: MEMORY, disk: Some(DISK), keeps: true, when_full });
        Ok(queue)
    }

    /// Does all there is to do on disk, here and now.
    fn work(queue: &Queue) {
        let work = queue.line().work(true, true);
        queue.work_through(work);
    }

    /// Payload number `n`, which tells it in a body of about 200 bytes, and is one point.
    fn numbered(n: u64) -> Payload {
        let body = Bytes::from(format!("{n:0199}\n"));
        Payload::new(body, 1, UnixNanos(1))
    }

    fn number(payload: &Payload) -> u64 {
        str::from_utf8(&payload.body).unwrap().trim_end().parse().unwrap()
    }

    /// Delivers so many, and answers their numbers.
    fn deliver(queue: &Queue, most: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.len() < most {
            let Some(ticket) = claim(queue) else { break };
            numbers.push(number(ticket.payload().unwrap()));
            ticket.commit();
            work(queue);
        }
        numbers
    }

    #[test]
    fn a_queue_rests_when_the_disk_knows_what_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        (0..20).for_each(|n| queue.push(numbered(n)));
        work(&queue);
        assert!(queue.book.spooled.get() > 0 && queue.is_at_rest());
        claim(&queue).unwrap().commit();
        assert!(!queue.is_at_rest(), "a new queue would find it there");
        work(&queue);
        assert!(queue.is_at_rest());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(usize),
        Work,
        Deliver(usize),
        LetGo,
        Kill,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1_usize..8).prop_map(Step::Push),
            3 => Just(Step::Work),
            2 => (1_usize..8).prop_map(Step::Deliver),
            1 => Just(Step::LetGo),
            1 => Just(Step::Kill),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever happens in whatever order, and however often the process is killed: payloads
        /// are delivered in order and once, the bounds hold, no point is unaccounted for, and a
        /// kill costs nothing that was on disk.
        #[test]
        fn nothing_that_is_on_disk_is_lost(steps in prop::collection::vec(step(), 1..60)) {
            let dir = tempfile::tempdir().unwrap();
            let mut queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
            let (mut pushed, mut delivered) = (0, Vec::new());
            let mut here = 0;
            for step in steps {
                match step {
                    Step::Push(count) => for _ in 0..count {
                        pushed += 1;
                        here += 1;
                        queue.push(numbered(pushed));
                    },
                    Step::Work => work(&queue),
                    Step::Deliver(most) => {
                        let numbers = deliver(&queue, most);
                        queue.book.delivered.add(numbers.len() as u64);
                        delivered.extend(numbers);
                    }
                    Step::LetGo => drop(claim(&queue)),
                    Step::Kill => {
                        let on_disk = queue.book.spooled.get();
                        drop(queue);
                        queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
                        here = 0;
                        // What left the line since the last work is still there: at least once.
                        prop_assert!(queue.book.recovered.get() >= on_disk);
                        prop_assert_eq!(queue.book.queued.get(), queue.book.recovered.get());
                    }
                }
                let book = &queue.book;
                prop_assert_eq!(
                    here + book.recovered.get(),
                    book.delivered.get() + book.dropped.total() + book.held()
                );
                prop_assert!(queue.line().cost <= DISK);
            }
            work(&queue);
            delivered.extend(deliver(&queue, usize::MAX));
            prop_assert!(queue.line().is_empty());
            prop_assert!(delivered.is_sorted_by(|a, b| a < b), "{:?}", delivered);
        }
    }

    #[test]
    fn what_is_on_disk_survives_the_process_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        (1..=20).for_each(|n| queue.push(numbered(n)));
        let lost = queue.book.dropped.total();
        work(&queue);
        claim(&queue).unwrap().divide([numbered(1001), numbered(1002)]);
        work(&queue);
        drop(queue);
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        work(&queue);
        let expected: Vec<_> = [1001, 1002].into_iter().chain(lost + 2..=20).collect();
        assert_eq!(deliver(&queue, usize::MAX), expected);
        drop(queue);
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        assert_eq!(queue.book.recovered.get(), 0, "nothing is delivered twice");
    }

    fn waybill() -> Waybill {
        serde_json::from_str(r#"{"origins":[{"kind":"gauge","route":"all"}],"legs":[[1,0]]}"#)
            .unwrap()
    }

    #[test]
    fn a_waybill_survives_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        queue.push(numbered(1).with(waybill()));
        queue.line().close();
        work(&queue);
        drop(queue);
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        work(&queue);
        assert_eq!(claim(&queue).unwrap().payload().unwrap().waybill, waybill());
    }

    #[test]
    fn a_file_of_the_first_version_is_taken_up() {
        let dir = tempfile::tempdir().unwrap();
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        (1..=2).for_each(|n| queue.push(numbered(n).with(waybill())));
        queue.line().close();
        work(&queue);
        drop(queue);
        let db = rusqlite::Connection::open(dir.path().join("spool/b.db")).unwrap();
        db.execute_batch("ALTER TABLE payloads DROP COLUMN waybill; PRAGMA user_version = 1")
            .unwrap();
        drop(db);
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        assert_eq!(queue.book.recovered.get(), 2);
        work(&queue);
        queue.push(numbered(3).with(waybill()));
        queue.line().close();
        work(&queue);
        assert_eq!(claim(&queue).unwrap().payload().unwrap().waybill, Waybill::default());
        assert_eq!(deliver(&queue, usize::MAX), [1, 2, 3]);
    }

    #[test]
    fn what_another_kind_left_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        queue.push(numbered(1));
        queue.line().close();
        work(&queue);
        drop(queue);
        let problem = open(dir.path(), "statsd", WhenFull::DropOldest).unwrap_err();
        assert!(problem.contains("holds points as a influxdb"), "{problem}");
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        work(&queue);
        assert_eq!(deliver(&queue, 2), [1]);
        drop(queue);
        assert!(open(dir.path(), "statsd", WhenFull::DropOldest).is_ok(), "it is empty now");
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_the_next_one_too() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("spool/b.db");
        for n in 1..=2 {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "This is no database, but long enough to look at.".repeat(99))
                .unwrap();
            let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
            assert_eq!(queue.book.noticed.counts(), [("spool_damaged", 1)]);
            assert!(dir.path().join(format!("spool/b.db.damaged-{n}")).exists());
            queue.push(numbered(1));
            queue.line().close();
            work(&queue);
            assert_eq!(queue.book.spooled.get(), 1, "a new one is in use");
        }
    }

    #[test]
    fn a_damaged_record_costs_itself_alone() {
        let dir = tempfile::tempdir().unwrap();
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        (1..=3).for_each(|n| queue.push(numbered(n)));
        queue.line().close();
        work(&queue);
        drop(queue);
        let db = rusqlite::Connection::open(dir.path().join("spool/b.db")).unwrap();
        db.execute("UPDATE payloads SET body = zeroblob(200) WHERE seq = 2", []).unwrap();
        drop(db);
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        work(&queue);
        assert_eq!(deliver(&queue, usize::MAX), [1, 3]);
        assert_eq!(queue.book.dropped.counts(), [("spool_damaged", 1)]);
        assert_eq!(queue.book.held(), 0);
    }

    /// Closes a queue whose disk is blocked for 20 seconds; answers how long that took and how many
    /// points are on disk. If it moves, it gets a step further every 4 seconds.
    async fn close_slowly(moves: bool) -> (u64, u64) {
        let dir = tempfile::tempdir().unwrap();
        let queue = open(dir.path(), "influxdb", WhenFull::DropOldest).unwrap();
        (1..=5).for_each(|n| queue.push(numbered(n)));
        let disk = Arc::clone(&queue);
        let (let_go, released) = tokio::sync::oneshot::channel::<()>();
        let (taken, is_taken) = tokio::sync::oneshot::channel();
        let holder = std::thread::spawn(move || {
            let _busy = disk.spool();
            taken.send(()).unwrap();
            // Its sender is dropped.
            let _ = released.blocking_recv();
        });
        is_taken.await.unwrap();
        let began = tokio::time::Instant::now();
        let mut close = std::pin::pin!(queue.close());
        for _ in 0..5 {
            // The clock does not move by itself while something blocks.
            let is_closed = tokio::select! {
                biased;
                () = close.as_mut() => true,
                () = tokio::time::advance(Duration::from_secs(4)) => false,
            };
            if is_closed {
                drop(let_go);
                holder.join().unwrap();
                return (began.elapsed().as_secs(), queue.book.spooled.get());
            }
            if moves {
                queue.changes.send_modify(|version| *version += 1);
            }
        }
        drop(let_go);
        holder.join().unwrap();
        close.await;
        (began.elapsed().as_secs(), queue.book.spooled.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_a_disk_that_is_slow_but_not_for_one_that_hangs() {
        assert_eq!(close_slowly(true).await, (20, 5));
        assert_eq!(close_slowly(false).await, (8, 0), "5 seconds, in steps of 4");
    }

    #[test]
    fn the_file_is_small_again_when_all_is_delivered() {
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::new(Arc::default());
        queue.open(Spool::new(dir.path(), "b", "influxdb", Durability::Power)).unwrap();
        let when_full = WhenFull::DropOldest;
        let limits = Limits { memory: 1 << 20, disk: Some(1 << 30), keeps: true, when_full };
        queue.limit(limits);
        let body = Bytes::from(vec![b'x'; 1 << 19]);
        for n in 0..20 {
            queue.push(Payload::new(body.clone(), 1, UnixNanos(n)));
            work(&queue);
        }
        let size = || std::fs::metadata(dir.path().join("spool/b.db")).map_or(0, |file| file.len());
        assert!(size() > 8 << 20);
        while let Some(ticket) = claim(&queue) {
            ticket.commit();
            work(&queue);
        }
        assert_eq!(size(), 0);
    }
}
