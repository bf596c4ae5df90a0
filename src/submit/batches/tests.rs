//! Where batches end, and what is in them.

use super::*;
use crate::submit::batch::{BODY_MAX, SPAN_MAX};
use crate::submit::form::LINE_MAX;
use crate::submit::source::open;
use std::fs;
use std::io::Write as _;
use std::path::Path;

fn batches(path: &Path, form: Form, place: Place) -> Batches {
    Batches::new(open(path).unwrap().source, form, place).unwrap()
}

fn all(mut batches: Batches) -> Vec<Batch> {
    std::iter::from_fn(|| batches.next(Cut::Full).unwrap()).collect()
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn table() -> Form {
    Form::table("", Some("s".to_owned()))
}

#[test]
fn json_lines_go_as_they_are() {
    let long = "x".repeat(LINE_MAX + 1);
    let text = format!("\u{feff}{{\"name\":\"a\"}}\n\n  \r\nnonsense\n{long}\n{{}}");
    let file = file(text.as_bytes());
    let [batch, last] = &all(batches(file.path(), Form::lines(""), Place::default()))[..] else {
        panic!()
    };
    assert_eq!(String::from_utf8_lossy(&batch.body), "{\"name\":\"a\"}\nnonsense\n");
    assert_eq!((&*batch.lines, &*last.lines), (&[1, 4][..], &[6][..]));
    assert_eq!(last.end, Place { offset: text.len() as u64, line: 6 });
    assert_eq!((batch.totals.refused, batch.totals.errors[0].line), (1, 5));
    let [batch, _] = &all(batches(file.path(), Form::lines("p/"), Place::default()))[..] else {
        panic!()
    };
    assert!(batch.body.starts_with(b"{\"name\":\"p/a\"}\nnonsense\n"));
}

#[test]
fn rows_become_json_lines() {
    let file = file(b"a,b\n1,\n,\n\"x\ny\",2,3\n\"q\"q,1\n5\n");
    let [batch] = &all(batches(file.path(), table(), Place::default()))[..] else { panic!() };
    let expected = "{\"name\":\"s\",\"fields\":{\"a\":1}}\n\
                    {\"name\":\"s\",\"fields\":{\"a\":\"x\\ny\",\"b\":2}}\n\
                    {\"name\":\"s\",\"fields\":{\"a\":5}}\n";
    assert_eq!(String::from_utf8_lossy(&batch.body), expected);
    assert_eq!(batch.lines, [2, 4, 7]);
    let totals = &batch.totals;
    assert_eq!((totals.empty, totals.surplus, totals.refused), (1, 1, 1));
    assert_eq!(totals.errors[0].line, 6);
}

/// Whoever goes on at the end of any batch makes the batches that follow it, byte by byte; in a
/// compressed file, too.
#[test]
fn batches_follow_from_where_they_begin() {
    let mut text = "n,text\n".to_owned();
    for n in 0..60_000 {
        text += &format!("{n},\"some text, and more of it\"\n");
    }
    let plain = file(text.as_bytes());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    let packed = file(&packed.finish().unwrap());
    for path in [plain.path(), packed.path()] {
        let whole = all(batches(path, table(), Place::default()));
        assert!(whole.len() > 5);
        assert_eq!(whole.iter().map(|batch| batch.lines.len()).sum::<usize>(), 60_000);
        assert!(whole.iter().all(|batch| batch.body.len() < BODY_MAX + 100));
        for at in 1..whole.len() {
            let rest = all(batches(path, table(), whole[at - 1].end));
            assert_eq!(rest.len(), whole.len() - at);
            for (again, before) in rest.iter().zip(&whole[at..]) {
                assert!(again.body == before.body && again.lines == before.lines);
                assert_eq!((again.start, again.end), (before.start, before.end));
            }
        }
    }
}

/// Halves are the batches of one who reads the file again and cuts it there.
#[test]
fn halves_are_batches_that_are_cut_where_they_end() {
    for (text, form) in [
        ("a,b\n1,\n,\n\"x\ny\",2\n\n3,4\r\n5,6\n", table as fn() -> Form),
        ("\u{feff}{\"a\":1}\n\n{\"b\":2}\nx\n{\"c\":3}\n", || Form::lines("p/")),
    ] {
        let file = file(text.as_bytes());
        let whole =
            batches(file.path(), form(), Place::default()).next(Cut::Full).unwrap().unwrap();
        let halves = whole.halves().unwrap();
        let mut again = batches(file.path(), form(), Place::default());
        for half in halves {
            let batch = again.next(Cut::At(half.end.offset)).unwrap().unwrap();
            assert_eq!((batch.start, batch.end), (half.start, half.end));
            assert!(batch.body == half.body && batch.lines == half.lines, "{text}");
        }
    }
}

/// A file that has grown since: the batch that was sent ends where it did then.
#[test]
fn a_batch_that_was_begun_ends_as_it_did() {
    let file = file(b"{\"a\":1}\n{\"b\":2}\n");
    let path = file.path();
    let [before] = &all(batches(path, Form::lines(""), Place::default()))[..] else { panic!() };
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"{}\n").unwrap();
    let mut now = batches(path, Form::lines(""), Place::default());
    let again = now.next(Cut::At(before.end.offset)).unwrap().unwrap();
    assert!(again.body == before.body && again.end == before.end);
    let rest = now.next(Cut::Full).unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&rest.body), "{}\n");
    assert!(now.next(Cut::Full).unwrap().is_none());
}

/// What has no end yet goes alone, since it may be written on; what comes meanwhile belongs to it.
#[test]
fn what_a_file_ends_with_goes_alone() {
    for (text, form, expected) in [
        (
            "{\"a\":1}\n{\"b\":2}",
            (|| Form::lines("")) as fn() -> Form,
            &[("{\"a\":1}\n", false), ("{\"b\":2}\n", true)][..],
        ),
        ("{\"a\":1}  \r", || Form::lines(""), &[("{\"a\":1}\n", true)]),
        ("{\"a\":1}\n", || Form::lines(""), &[("{\"a\":1}\n", false)]),
        ("{\"a\":1}\n\n", || Form::lines(""), &[("{\"a\":1}\n", false)]),
        (
            "a\n1\n2",
            table,
            &[
                ("{\"name\":\"s\",\"fields\":{\"a\":1}}\n", false),
                ("{\"name\":\"s\",\"fields\":{\"a\":2}}\n", true),
            ],
        ),
        (
            "a\n1\n\"2\n3\n",
            table,
            &[("{\"name\":\"s\",\"fields\":{\"a\":1}}\n", false), ("", true)],
        ),
        ("a,b", table, &[("", true)]),
        ("a\n", table, &[("", true)]),
        ("", table, &[]),
    ] {
        let file = file(text.as_bytes());
        let mut now = batches(file.path(), form(), Place::default());
        let mut seen = Vec::new();
        while let Some(batch) = now.next(Cut::Full).unwrap() {
            seen.push((String::from_utf8(batch.body).unwrap(), batch.is_open));
            if batch.is_open {
                let mut file = fs::OpenOptions::new().append(true).open(file.path()).unwrap();
                file.write_all(b"more\n").unwrap();
            }
        }
        let seen: Vec<_> = seen.iter().map(|(body, is_open)| (&**body, *is_open)).collect();
        assert_eq!(seen, expected, "{text:?}");
    }
}

/// Whoever goes on there asks for just this line, to see whether it is what was sent.
#[test]
fn a_line_can_be_asked_for_alone() {
    let file = file(b"a\n1\n2\n3\n");
    let mut now = batches(file.path(), table(), Place { offset: 4, line: 2 });
    let batch = now.next(Cut::Line).unwrap().unwrap();
    assert_eq!((&*batch.lines, batch.end), (&[3][..], Place { offset: 6, line: 3 }));
    assert_eq!(now.next(Cut::Full).unwrap().unwrap().lines, [4]);
}

/// No batch ends in the middle of a line, however long it is.
#[test]
fn a_line_that_is_longer_than_a_batch_is_one_line() {
    let long = "x".repeat(2 * SPAN_MAX as usize);
    let file = file(format!("{long}\n{{}}\n").as_bytes());
    let [batch, last] = &all(batches(file.path(), Form::lines(""), Place::default()))[..] else {
        panic!()
    };
    assert_eq!((batch.totals.refused, batch.end.line, &*batch.body), (1, 1, &b""[..]));
    assert_eq!(last.lines, [2]);
}

/// Zeros fill up the last block of a tape.
#[test]
fn zeros_after_a_compressed_file_are_its_end() {
    let mut packed = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    packed.write_all(b"{}\n").unwrap();
    let file = file(&[packed.finish().unwrap(), vec![0; 10_000]].concat());
    let [batch] = &all(batches(file.path(), Form::lines(""), Place::default()))[..] else {
        panic!()
    };
    assert_eq!((&*batch.body, batch.is_open), (&b"{}\n"[..], false));
}

/// Of a file that breaks off, what can be read is sent.
#[test]
fn what_was_read_before_a_file_breaks_off_is_sent() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    packed.write_all(&b"{}\n".repeat(1000)).unwrap();
    let mut packed = packed.finish().unwrap();
    packed.truncate(2000);
    let file = file(&packed);
    let mut now = batches(file.path(), Form::lines(""), Place::default());
    let batch = now.next(Cut::Full).unwrap().unwrap();
    assert!(batch.lines.len() > 500, "{}", batch.lines.len());
    assert!(now.next(Cut::Full).is_err());
}

#[test]
fn a_batch_is_cut_in_two() {
    let lines = |lines: &[u64]| Batch {
        body: lines.iter().map(|n| format!("{{{n}}}\n")).collect::<String>().into_bytes(),
        lines: lines.to_vec(),
        ends: lines.iter().map(|n| Place { offset: n * 10, line: *n }).collect(),
        ..Batch::default()
    };
    let [first, second] = lines(&[3, 4, 7]).halves().unwrap();
    assert_eq!((&*first.body, &*first.lines), (&b"{3}\n"[..], &[3][..]));
    assert_eq!((&*second.body, &*second.lines), (&b"{4}\n{7}\n"[..], &[4, 7][..]));
    assert_eq!((first.end.offset, second.start.offset), (30, 30));
    assert!(first.halves().is_none());
}
