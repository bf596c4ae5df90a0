//! What a line keeps, drops and sends to disk; payloads are named by their points.

use super::*;
use crate::lane::receipt::{Fate, Level, Receipt, Slip};
use bytes::Bytes;

/// Room for three payloads of one byte and not for four.
const MEMORY: usize = 3 * (size_of::<Slot>() + 1);

fn payload(points: u32) -> Payload {
    Payload::new("\n", points, UnixNanos(i64::from(points)))
}

fn line(memory: usize, disk: Option<usize>, when_full: WhenFull) -> Line {
    let mut line = Line::default();
    line.limit(Limits { memory, disk, keeps: disk.is_some(), when_full });
    line
}

fn points(line: &Line) -> Vec<u32> {
    line.slots.iter().map(|slot| slot.record.points).collect()
}

/// Payloads are named by their points. Claims the first `claimed` of a full line, then
/// pushes number 4.
fn check(when_full: WhenFull, claimed: usize, kept: &[u32], lost: u64) {
    let mut line = line(MEMORY, None, when_full);
    for points in 1..=3 {
        assert_eq!(line.push(payload(points)), 0);
    }
    (0..claimed).for_each(|_| assert!(line.claim(1).is_some()));
    assert_eq!(line.push(payload(4)), lost);
    assert_eq!(points(&line), kept, "{when_full:?} {claimed}");
    assert_eq!(line.points, u64::from(kept.iter().sum::<u32>()));
    assert_eq!((line.bytes, line.cost), (kept.len(), kept.len() * (size_of::<Slot>() + 1)));
}

#[test]
fn a_full_queue_does_what_it_was_told() {
    check(WhenFull::DropOldest, 0, &[2, 3, 4], 1);
    check(WhenFull::DropOldest, 1, &[1, 3, 4], 2);
    check(WhenFull::DropOldest, 3, &[1, 2, 3], 4);
    check(WhenFull::DropNewest, 0, &[1, 2, 3], 4);
    check(WhenFull::Refuse, 1, &[1, 2, 3], 4);
}

#[test]
fn a_payload_larger_than_the_memory_is_taken_alone() {
    let mut line = line(0, None, WhenFull::DropOldest);
    assert_eq!(line.push(payload(1)), 0);
    assert_eq!(line.push(payload(2)), 1);
    line.limits.when_full = WhenFull::DropNewest;
    assert_eq!(line.push(payload(3)), 3);
}

#[test]
fn parts_take_the_place_of_the_whole() {
    let mut line = Line::default();
    line.push(payload(9));
    line.push(payload(3));
    let Claimed { id, .. } = line.claim(1).unwrap();
    line.replace(id, [payload(1), payload(2)]);
    let orders: Vec<_> = line.slots.iter().map(|slot| slot.record.order).collect();
    assert!(orders.is_sorted() && orders[0] < orders[1], "{orders:?}");
    let mut next = || line.claim(1).map(|claimed| claimed.payload.points);
    assert_eq!([next(), next(), next(), next()], [Some(1), Some(2), Some(3), None]);
}

#[test]
fn a_witness_is_fetched_from_wherever_it_stands() {
    let mut line = line(MEMORY, Some(usize::MAX), WhenFull::DropOldest);
    (1..=9).for_each(|points| assert_eq!(line.push(payload(points)), 0));
    let stored = line.work(true, true).store;
    line.stored(stored.iter().map(|(record, _)| record.id));
    let now = tokio::time::Instant::now();
    let (divisible, explorable, patience) = (false, false, std::time::Duration::ZERO);
    let failure = Failure { now, patience, divisible, explorable };
    let mut witnesses = Vec::new();
    for _ in 2..=9 {
        let suspect = line.claim(1).unwrap().id;
        assert_eq!((suspect, line.failed(suspect, failure)), (1, Step::Witness));
        line.let_go(suspect);
        let witness = line.trials.witness().unwrap();
        for id in line.work(true, false).fetch {
            line.fetched(id, Some(Load { body: Bytes::from_static(b"\n"), ..Load::default() }));
        }
        line.trim();
        assert_eq!(line.claim(1).unwrap().id, witness);
        assert!(line.claim(1).is_none(), "nobody else is tried meanwhile");
        assert_eq!(line.failed(witness, failure), Step::Rest(None));
        line.let_go(witness);
        witnesses.push(witness);
    }
    assert_eq!(witnesses, [2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn all_of_memory_goes_to_disk_when_it_overflows() {
    let mut line = line(MEMORY, Some(usize::MAX), WhenFull::DropOldest);
    (1..=3).for_each(|points| assert_eq!(line.push(payload(points)), 0));
    assert!(line.work(true, true).is_empty(), "memory is enough");
    assert_eq!(line.push(payload(4)), 0);
    let stored: Vec<_> = line.work(true, true).store.iter().map(|(r, _)| r.points).collect();
    assert_eq!(stored, [1, 2, 3, 4]);
}

/// A payload of so many points that somebody wants on disk.
fn wanted(points: u32) -> (Entry, Receipt) {
    let (slip, receipt) = Slip::new(Level::Queued);
    let riders = Riders::new(Some(slip.hold("b", points.into())), false);
    (Entry { payload: payload(points), riders }, receipt)
}

async fn is_kept(mut receipt: Receipt) -> bool {
    receipt.by(std::future::ready(())).await == Fate::Kept
}

#[tokio::test]
async fn what_somebody_wants_on_disk_goes_there_and_all_that_is_before_it() {
    let mut line = line(usize::MAX >> 1, Some(usize::MAX), WhenFull::DropOldest);
    line.push(payload(1));
    assert!(line.work(true, true).is_empty());
    let ((entry, receipt), (_, early)) = (wanted(2), wanted(2));
    line.push(entry);
    assert!(is_kept(early).await, "its slip and hold are gone");
    let stored = line.work(true, true).store;
    assert_eq!(stored.iter().map(|(record, _)| record.points).collect::<Vec<_>>(), [1, 2]);
    line.stored(stored.iter().map(|(record, _)| record.id));
    assert!(is_kept(receipt).await);
}

#[tokio::test]
async fn what_is_delivered_before_the_disk_has_it_is_kept_as_well() {
    let mut line = line(usize::MAX >> 1, Some(usize::MAX), WhenFull::DropOldest);
    let (entry, receipt) = wanted(1);
    line.push(entry);
    let Claimed { id, .. } = line.claim(1).unwrap();
    line.commit(id);
    assert!(is_kept(receipt).await);
    let (entry, receipt) = wanted(1);
    line.push(entry);
    assert!(!is_kept(receipt).await);
}

#[test]
fn memory_alone_is_used_again_when_the_disk_part_is_empty() {
    let mut line = line(MEMORY, Some(usize::MAX), WhenFull::DropOldest);
    (1..=4).for_each(|points| assert_eq!(line.push(payload(points)), 0));
    let stored = line.work(true, true).store;
    line.stored(stored.iter().map(|(record, _)| record.id));
    while let Some(Claimed { id, .. }) = line.claim(1) {
        line.commit(id);
        let fetch = line.work(true, false).fetch;
        fetch.into_iter().for_each(|id| {
            line.fetched(id, Some(Load::default()));
        });
    }
    assert_eq!(line.work(true, true).erase, [1, 2, 3, 4]);
    line.push(payload(5));
    assert!(line.work(true, true).is_empty());
}

/// As after a reload to `spool = false`: dropping what is on disk would free no memory.
#[test]
fn what_is_on_disk_makes_no_room_in_memory() {
    let mut line = line(MEMORY, Some(usize::MAX), WhenFull::DropOldest);
    (1..=4).for_each(|points| assert_eq!(line.push(payload(points)), 0));
    let stored = line.work(true, true).store;
    line.stored(stored.iter().map(|(record, _)| record.id));
    let when_full = WhenFull::DropOldest;
    line.limit(Limits { memory: MEMORY, disk: None, keeps: false, when_full });
    let lost: u64 = (5..=9).map(|points| line.push(payload(points))).sum();
    assert_eq!((points(&line), lost), (vec![1, 2, 3, 4, 7, 8, 9], 5 + 6));
}

#[test]
fn a_disk_that_was_full_is_asked_again_before_anything_is_dropped() {
    let mut line = line(MEMORY, Some(usize::MAX), WhenFull::DropOldest);
    (1..=4).for_each(|points| assert_eq!(line.push(payload(points)), 0));
    assert_eq!(line.work(true, true).store.len(), 4);
    line.put_off(Vec::new(), 1);
    while let Some(Claimed { id, .. }) = line.claim(1) {
        line.commit(id);
    }
    assert!(line.work(true, true).is_empty(), "all went to the backend");
    let lost: u64 = (5..=8).map(|points| line.push(payload(points))).sum();
    assert_eq!((lost, line.work(true, true).store.len()), (0, 4));
}

#[test]
fn a_full_disk_is_a_full_queue() {
    for (when_full, kept) in [
        (WhenFull::DropOldest, vec![4, 5, 6, 7, 8, 9, 10]),
        (WhenFull::DropNewest, vec![1, 2, 3, 4, 5, 6, 7]),
    ] {
        let mut line = line(MEMORY, Some(usize::MAX), when_full);
        (1..=4).for_each(|points| assert_eq!(line.push(payload(points)), 0));
        let stored = line.work(true, true).store;
        line.stored(stored.iter().map(|(record, _)| record.id));
        line.put_off(Vec::new(), 1);
        let lost: u64 = (5..=10).map(|points| line.push(payload(points))).sum();
        assert_eq!(points(&line), kept, "{when_full:?}");
        assert_eq!(lost, 55 - kept.iter().sum::<u32>() as u64);
    }
}
