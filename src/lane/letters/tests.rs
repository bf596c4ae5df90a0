//! Letters against real files, with what a disk can do to them.

use super::*;
use crate::books::Books;
use crate::waybill::{Draft, Source, Via, Waybill};
use protocols::Kind;
use std::fs;

/// All letters of a directory, and the book of backend `b`, which keeps so many bytes.
struct Rig {
    all: Arc<DeadLetters>,
    letters: Arc<Letters>,
    book: Arc<BackendBook>,
}

fn rig(dir: &Path, max_size: Option<usize>) -> Rig {
    let books = Arc::new(Books::default());
    let clock = Clock::System;
    let all = DeadLetters::new(dir.to_owned(), Arc::clone(&books), clock);
    all.find();
    let letters = all.of("b");
    letters.keep_at_most(max_size);
    Rig { all, letters, book: books.backend("b") }
}

impl Rig {
    /// Puts in a letter of so many points, as if they had been handed over before.
    fn put(&self, reason: &'static str, points: u32) {
        self.book.handed.add(points.into());
        self.letters.put("influxdb", refused(reason, points));
    }

    fn page(&self, which: &Selection) -> Page {
        self.all.page(which, None, 100)
    }

    /// What there is, the newest first, as reason and points.
    fn shown(&self) -> Vec<(String, u32)> {
        let page = self.page(&Selection::default());
        page.headings.into_iter().map(|heading| (heading.reason, heading.points)).collect()
    }

    #[track_caller]
    fn balances(&self) {
        let book = &self.book;
        let there = book.handed.get() + book.recovered.get();
        let gone = book.dropped.total() + book.replayed.get() + book.held();
        assert_eq!(there, gone, "{book:?}");
    }
}

fn refused(reason: &'static str, points: u32) -> Refused {
    let body: String = (0..points).map(|n| format!("m v={n} 1\n")).collect();
    let words = format!("400 {reason}");
    let born = UnixNanos::from_secs(7);
    Refused { body: body.into(), points, among: points, reason, words, waybill: waybill(), born }
}

fn waybill() -> Waybill {
    let via = Via { route: "tasks".into(), rewrite: Some(7) };
    let mut draft = Draft::default();
    draft.add(9, Source { kind: Some(Kind::Gauge), origin: None, via: Some(&via) });
    draft.finish()
}

fn of_reason(reason: &str) -> Selection {
    Selection { reason: Some(reason.to_owned()), ..Selection::default() }
}

fn shown(expected: &[(&str, u32)]) -> Vec<(String, u32)> {
    expected.iter().map(|(reason, points)| ((*reason).to_owned(), *points)).collect()
}

#[test]
fn a_letter_tells_all_that_was_known() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), Some(1 << 20));
    rig.put("rejected", 2);
    let heading = rig.page(&Selection::default()).headings.remove(0);
    let letter = rig.all.letter(None, heading.place.id).unwrap().unwrap();
    assert_eq!(letter.heading, heading);
    assert_eq!(letter.body.as_deref(), Some(&b"m v=0 1\nm v=1 1\n"[..]));
    assert_eq!((heading.place.backend.as_str(), heading.kind.as_str()), ("b", "influxdb"));
    assert_eq!((heading.reason.as_str(), heading.words.as_str()), ("rejected", "400 rejected"));
    assert_eq!((heading.points, heading.bytes), (2, 16));
    assert_eq!((heading.born, heading.waybill), (UnixNanos::from_secs(7), waybill()));
    assert!(heading.refused.0 > heading.born.0);
    assert_eq!(rig.all.letter(Some("c"), heading.place.id), Ok(None));
    assert_eq!(rig.book.refused.counts(), [("rejected", 2)]);
    assert_eq!(rig.book.dead_letters.get(), 2);
    rig.balances();
}

#[test]
fn pages_go_back_in_time_and_end() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), Some(1 << 20));
    (1..=5).for_each(|points| rig.put("rejected", points));
    let (mut after, mut points) = (None, Vec::new());
    loop {
        let page = rig.all.page(&Selection::default(), after, 2);
        assert_eq!(page.sum, Sum { letters: 5, points: 15 });
        assert!(page.headings.len() <= 2);
        points.extend(page.headings.iter().map(|heading| heading.points));
        let Some(next) = page.next else { break };
        after = Some(next);
    }
    assert_eq!(points, [5, 4, 3, 2, 1]);
}

#[test]
fn what_is_selected_is_purged_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), Some(1 << 20));
    for (reason, points) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
        rig.put(reason, points);
    }
    let headings = rig.page(&Selection::default()).headings;
    let ids = Some(vec![headings[0].place.id, 12]);
    let check = |which: Selection, letters, points, left: &[(&str, u32)]| {
        assert_eq!(rig.all.purge(&which), Ok(Sum { letters, points }), "{which:?}");
        assert_eq!(rig.shown(), shown(left), "{which:?}");
        rig.balances();
    };
    let whole = [("c", 4), ("a", 3), ("b", 2), ("a", 1)];
    let elsewhere = Selection { backend: Some("other".into()), ..Selection::default() };
    check(elsewhere, 0, 0, &whole);
    check(Selection { before: Some(UnixNanos(1)), ..Selection::default() }, 0, 0, &whole);
    check(of_reason("a"), 2, 4, &[("c", 4), ("b", 2)]);
    check(Selection { ids, ..Selection::default() }, 1, 4, &[("b", 2)]);
    let before = Some(UnixNanos(i64::MAX));
    check(Selection { before, ..Selection::default() }, 1, 2, &[]);
    assert_eq!(rig.book.dropped.counts(), [("purged", 10)]);
    let file = letters_file(dir.path(), "b");
    assert!(!file.exists(), "an empty file is removed");
    rig.put("rejected", 1);
    assert_eq!(rig.shown().len(), 1, "and made again");
}

#[test]
fn what_an_earlier_run_left_is_taken_up_once() {
    let dir = tempfile::tempdir().unwrap();
    let first = rig(dir.path(), Some(1 << 20));
    first.put("rejected", 3);
    let id = first.page(&Selection::default()).headings[0].place.id;
    drop(first);
    // It is found although nothing is kept any more.
    let second = rig(dir.path(), None);
    second.all.find();
    assert_eq!((second.book.recovered.get(), second.book.dead_letters.get()), (3, 3));
    second.put("rejected", 1);
    assert_eq!(second.shown(), shown(&[("rejected", 3)]));
    assert_eq!(second.book.dropped.counts(), [("rejected", 1)]);
    second.letters.keep_at_most(Some(1 << 20));
    second.put("rejected", 2);
    assert!(second.page(&Selection::default()).headings[0].place.id > id);
    second.balances();
}

#[test]
fn the_oldest_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let size = letter::Draft::new("influxdb", refused("rejected", 9), UnixNanos(0)).size();
    let rig = rig(dir.path(), Some(3 * size));
    for points in [9, 8, 7, 6, 9] {
        rig.put("rejected", points);
        rig.shown();
    }
    assert_eq!(rig.shown(), shown(&[("rejected", 9), ("rejected", 6), ("rejected", 7)]));
    assert_eq!(rig.book.dropped.counts(), [("dead_letters_full", 17)]);
    rig.put("rejected", 900);
    assert_eq!(rig.book.dropped.counts()[1], ("rejected", 900), "what never fits costs no other");
    assert_eq!(rig.shown().len(), 3);
    rig.balances();
}

#[test]
fn replayed_letters_leave_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), Some(1 << 20));
    rig.put("a", 1);
    rig.put("b", 2);
    let places = rig.all.places(&of_reason("b")).0;
    assert_eq!(places.len(), 1);
    assert_eq!(rig.all.at(&places[0]).unwrap().unwrap().heading.points, 2);
    assert_eq!(rig.all.replayed(&places), Ok(Sum { letters: 1, points: 2 }));
    assert_eq!(rig.all.replayed(&places), Ok(Sum::default()), "they have gone");
    assert_eq!((rig.book.replayed.get(), rig.book.dead_letters.get()), (2, 1));
    rig.balances();
}

#[test]
fn a_damaged_file_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let file = letters_file(dir.path(), "b");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "this is no database at all, and longer than its header\n".repeat(99))
        .unwrap();
    let rig = rig(dir.path(), Some(1 << 20));
    assert_eq!(rig.book.noticed.counts(), [("dead_letters_damaged", 1)]);
    assert!(file.with_extension("db.damaged-1").exists());
    rig.put("rejected", 1);
    assert_eq!(rig.shown().len(), 1);
    rig.balances();
}

#[test]
fn a_file_that_is_damaged_meanwhile_costs_what_it_held() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), Some(1 << 20));
    rig.put("rejected", 5);
    let db = rusqlite::Connection::open(letters_file(dir.path(), "b")).unwrap();
    db.execute_batch("DROP TABLE letters").unwrap();
    rig.put("rejected", 1);
    assert_eq!(rig.shown(), shown(&[("rejected", 1)]));
    assert_eq!(rig.book.dropped.counts(), [("dead_letters_damaged", 5)]);
    rig.balances();
}

#[test]
fn a_body_that_is_not_what_was_stored_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), Some(1 << 20));
    rig.put("rejected", 5);
    let place = rig.all.places(&Selection::default()).0.remove(0);
    let db = rusqlite::Connection::open(letters_file(dir.path(), "b")).unwrap();
    db.execute_batch("UPDATE letters SET body = x'00'").unwrap();
    assert_eq!(rig.all.at(&place).unwrap().unwrap().body, None);
    assert_eq!(rig.all.purge(&Selection::default()), Ok(Sum { letters: 1, points: 5 }));
}

#[test]
fn what_the_disk_does_not_take_is_dropped_for_its_own_reason() {
    let dir = tempfile::tempdir().unwrap();
    // A file where the directory would be.
    fs::write(letters_dir(dir.path()), "").unwrap();
    let rig = rig(dir.path(), Some(1 << 20));
    rig.put("rejected", 5);
    assert_eq!(
        (rig.book.dropped.counts(), rig.book.dead_letters.get()),
        (vec![("rejected", 5)], 0)
    );
    fs::remove_file(letters_dir(dir.path())).unwrap();
    rig.put("rejected", 1);
    assert_eq!(rig.shown().len(), 1, "the disk works again");
    rig.balances();
}

#[test]
fn a_list_can_be_read_beside_a_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let which = Selection::default();
    assert_eq!(list_files(dir.path(), &which, None, 10), Page::default());
    let rig = rig(dir.path(), Some(1 << 20));
    rig.put("rejected", 5);
    assert_eq!(list_files(dir.path(), &which, None, usize::MAX), rig.page(&which));
}

#[tokio::test]
async fn nothing_that_was_put_in_is_missing_after_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let first = rig(dir.path(), Some(64 << 20));
    (0..2000).for_each(|_| first.put("rejected", 1));
    assert_eq!(first.letters.close().await, 0);
    first.balances();
    let kept = first.book.dead_letters.get();
    assert_eq!(kept + first.book.dropped.total(), 2000);
    drop(first);
    assert_eq!(rig(dir.path(), None).book.recovered.get(), kept);
}

#[test]
fn one_file_that_cannot_be_read_costs_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), Some(1 << 20));
    rig.put("rejected", 5);
    // No file at all, so that it cannot even be set aside as one.
    let blocked = letters_file(dir.path(), "blocked");
    fs::create_dir(&blocked).unwrap();
    let blocked_letters = rig.all.of("blocked");
    blocked_letters.keep_at_most(Some(1 << 20));
    let which = Selection::default();
    for page in [rig.page(&which), list_files(dir.path(), &which, None, 10)] {
        assert_eq!(page.sum, Sum { letters: 1, points: 5 });
        assert!(page.unreadable[0].contains("blocked.db"), "{page:?}");
    }
    let (places, unreadable) = rig.all.places(&which);
    assert_eq!((places.len(), unreadable.len()), (1, 1));
    assert_eq!(rig.all.letter(None, places[0].id).unwrap().unwrap().heading.points, 5);
    assert!(rig.all.letter(None, 1).is_err(), "it may be in there");
    let problem = rig.all.purge(&which).unwrap_err();
    assert!(problem.contains("blocked.db") && problem.contains("1 letter with 5"), "{problem}");
    rig.balances();
}

#[test]
fn damage_that_is_found_by_reading_is_set_aside_too() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), Some(1 << 20));
    rig.put("rejected", 5);
    let db = rusqlite::Connection::open(letters_file(dir.path(), "b")).unwrap();
    db.execute_batch("DROP TABLE letters").unwrap();
    assert_eq!(rig.page(&Selection::default()), Page::default());
    assert_eq!(rig.book.dropped.counts(), [("dead_letters_damaged", 5)]);
    rig.balances();
}
