//! Where batches end, and what is in them.

use super::*;
use crate::submit::source::open;
use std::fs;
use std::io::Write as _;
use std::path::Path;

fn batches(path: &Path, form: Form, place: Place) -> Batches {
    Batches::new(open(path).unwrap().source, form, place).unwrap()
}

fn all(mut batches: Batches) -> Vec<Batch> {
    std::iter::from_fn(|| batches.next(None).unwrap()).collect()
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
    let [batch] = &all(batches(file.path(), Form::lines(""), Place::default()))[..] else {
        panic!()
    };
    assert_eq!(String::from_utf8_lossy(&batch.body), "{\"name\":\"a\"}\nnonsense\n{}\n");
    assert_eq!(batch.lines, [1, 4, 6]);
    assert_eq!(batch.end, Place { offset: text.len() as u64, line: 6 });
    assert_eq!((batch.totals.refused, batch.totals.errors[0].line), (1, 5));
    let [batch] = &all(batches(file.path(), Form::lines("p/"), Place::default()))[..] else {
        panic!()
    };
    assert!(batch.body.starts_with(b"{\"name\":\"p/a\"}\nnonsense\n"));
}

#[test]
fn rows_become_json_lines() {
    let file = file(b"a,b\n1,\n,\n\"x\ny\",2,3\n\"q\"q,1\n5");
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
        ("a,b\n1,\n,\n\"x\ny\",2\n\n3,4\r\n5,6", table as fn() -> Form),
        ("\u{feff}{\"a\":1}\n\n{\"b\":2}\nx\n{\"c\":3}", || Form::lines("p/")),
    ] {
        let file = file(text.as_bytes());
        let whole = batches(file.path(), form(), Place::default()).next(None).unwrap().unwrap();
        let halves = whole.halves().unwrap();
        let mut again = batches(file.path(), form(), Place::default());
        for half in halves {
            let batch = again.next(Some(half.end.offset)).unwrap().unwrap();
            assert_eq!(
                (batch.start.offset, batch.end.offset),
                (half.start.offset, half.end.offset)
            );
            assert!(batch.body == half.body && batch.lines == half.lines, "{text}");
        }
    }
}

/// A file that has grown since: the batch that was sent ends where it did then.
#[test]
fn a_batch_that_was_begun_ends_as_it_did() {
    let file = file(b"{\"a\":1}\n{\"b\":2}\n{\"c\"");
    let path = file.path();
    let before = &all(batches(path, Form::lines(""), Place::default()))[0];
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b":3}\n{}\n").unwrap();
    let mut now = batches(path, Form::lines(""), Place::default());
    let again = now.next(Some(before.end.offset)).unwrap().unwrap();
    assert!(again.body == before.body && again.end == before.end);
    let rest = now.next(None).unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&rest.body), ":3}\n{}\n");
    assert!(now.next(None).unwrap().is_none());
}

#[test]
fn a_batch_is_cut_in_two() {
    let lines = |lines: &[u64]| Batch {
        body: lines.iter().map(|n| format!("{{{n}}}\n")).collect::<String>().into_bytes(),
        lines: lines.to_vec(),
        ends: lines.iter().map(|n| n * 10).collect(),
        ..Batch::default()
    };
    let [first, second] = lines(&[3, 4, 7]).halves().unwrap();
    assert_eq!((&*first.body, &*first.lines), (&b"{3}\n"[..], &[3][..]));
    assert_eq!((&*second.body, &*second.lines), (&b"{4}\n{7}\n"[..], &[4, 7][..]));
    assert_eq!((first.end.offset, second.start.offset), (30, 30));
    assert!(first.halves().is_none());
}
