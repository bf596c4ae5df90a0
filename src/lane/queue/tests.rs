//! The queue with a spool: what survives a kill, a full disk, damage and another kind.

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
    serde_json::from_str(r#"{"origins":[{"kind":"gauge","route":"all"}],"legs":[[1,0]]}"#).unwrap()
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
    db.execute_batch("ALTER TABLE payloads DROP COLUMN waybill; PRAGMA user_version = 1").unwrap();
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
    assert!(problem.contains("holds points for the kind influxdb"), "{problem}");
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
