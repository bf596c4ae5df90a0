//! What tables say.

use super::*;
use crate::json::{Limits, parse_json_lines};
use crate::jsonl::Encoder;
use crate::{Batch, Encode};
use proptest::prelude::*;

fn options() -> Options {
    Options { series: Some("s".to_owned()), record_bytes: 64, columns: 6, ..Options::default() }
}

/// What a file comes to: a line for each record, and for its refusal as a whole.
fn read<'a>(options: Options, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut reader = Reader::new(options);
    let mut told = Vec::new();
    for mut chunk in chunks {
        loop {
            match reader.read(&mut chunk) {
                Ok(Some(record)) => told.push(tell(&record)),
                Ok(None) => break,
                Err(refused) => return [told, vec![format!("file {refused}")]].concat(),
            }
        }
        assert!(chunk.is_empty());
    }
    match reader.end() {
        Ok(record) => told.extend(record.as_ref().map(tell)),
        Err(refused) => told.push(format!("file {refused}")),
    }
    told.push(format!("surplus {}", reader.surplus()));
    told
}

fn tell(record: &Record<'_>) -> String {
    match record {
        Record::Row(row) => format!("{} {}", row.line(), shown(row)),
        Record::Empty(line) => format!("{line} empty"),
        Record::Refused(refused) => format!("{refused} ({})", refused.reason.label()),
    }
}

/// The point of a row; what a gateway makes of its JSON is the same.
fn shown(row: &Row<'_>) -> String {
    let (mut own, mut other) = (Batch::new(), Batch::new());
    let mut json = Vec::new();
    row.write_json(&mut json);
    let outcome = parse_json_lines(&json, Limits::default(), &mut other);
    match row.write(Limits::default(), &mut own) {
        Ok(()) => {
            assert_eq!(lines(&own), lines(&other), "{}", String::from_utf8_lossy(&json));
            lines(&own)
        }
        Err(refused) => {
            let [error] = outcome.refusals.listed() else { panic!("{refused}") };
            assert_eq!((error.reason, &error.message), (refused.reason, &refused.message));
            assert!(own.is_empty() && other.is_empty());
            format!("refused: {}", refused.message)
        }
    }
}

fn lines(batch: &Batch) -> String {
    let mut out = Vec::new();
    for point in batch.iter() {
        Encoder::new().encode(&point, &mut out).unwrap();
    }
    String::from_utf8(out).unwrap().trim_end().to_owned()
}

fn check(file: &str, expected: &[&str]) {
    assert_eq!(read(options(), [file.as_bytes()]), expected, "{file:?}");
}

#[test]
fn a_row_is_a_point() {
    check(
        "name,time,tag.os,a,b\nx/y,1414000000000,linux,1.5,true\n",
        &[
            r#"2 {"name":"x/y","tags":{"os":"linux"},"time":1414000000000000000,"kind":"fields","fields":{"a":1.5,"b":true}}"#,
            "surplus 0",
        ],
    );
}

#[test]
fn cells_mean_what_they_say() {
    for (cell, fields) in [
        ("1", r#"{"a":1}"#),
        ("-0", r#"{"a":-0.0}"#),
        ("9007199254740993", r#"{"a":9007199254740993}"#),
        ("18446744073709551615", r#"{"a":18446744073709551615}"#),
        ("1e3", r#"{"a":1000.0}"#),
        ("true", r#"{"a":true}"#),
        ("false", r#"{"a":false}"#),
        ("True", r#"{"a":"True"}"#),
        ("+5", r#"{"a":"+5"}"#),
        ("0x10", r#"{"a":"0x10"}"#),
        ("007", r#"{"a":"007"}"#),
        ("5.", r#"{"a":"5."}"#),
        (" 1", r#"{"a":" 1"}"#),
        ("5%", r#"{"a":"5%"}"#),
        ("\"1\"", r#"{"a":"1"}"#),
        ("\"\"", r#"{"a":""}"#),
        ("\"null\"", r#"{"a":"null"}"#),
        ("\"say \"\"hi\"\", now\"", r#"{"a":"say \"hi\", now"}"#),
        ("\"two\r\nlines\"", r#"{"a":"two\r\nlines"}"#),
        ("5\" disk", r#"{"a":"5\" disk"}"#),
        ("a\\b\u{1}", r#"{"a":"a\\b\u0001"}"#),
    ] {
        let row = format!(r#"2 {{"name":"s","kind":"fields","fields":{fields}}}"#);
        check(&format!("a,b\n{cell}\n"), &[&row, "surplus 0"]);
        check(&format!("a,b\r\n{cell}"), &[&row, "surplus 0"]);
    }
    for cell in ["", "null"] {
        check(&format!("a,b\n{cell},\n"), &["2 empty", "surplus 0"]);
    }
    for cell in ["NaN", "-inf", "Infinity"] {
        let says =
            r#"line 2: the column "a": the value is not a finite decimal number (invalid_value)"#;
        check(&format!("a,b\n{cell},1\n"), &[says, "surplus 0"]);
    }
    check("a\n1e400\n", &[r#"2 refused: the field "a" is not a finite number"#, "surplus 0"]);
}

#[test]
fn rows_may_be_short_and_long() {
    check(
        "a,b\n1\n1,2,3,\"4\"\n,,5\n\n3,4\n",
        &[
            r#"2 {"name":"s","kind":"fields","fields":{"a":1}}"#,
            r#"3 {"name":"s","kind":"fields","fields":{"a":1,"b":2}}"#,
            "4 empty",
            r#"6 {"name":"s","kind":"fields","fields":{"a":3,"b":4}}"#,
            "surplus 3",
        ],
    );
}

#[test]
fn columns_have_their_parts() {
    check(
        "time,,sequence_number,type,value\n1414000000,x,7,,2\n,,,gauge,\n",
        &[
            r#"2 {"name":"s","time":1414000000000000000,"kind":"sample","value":2}"#,
            r#"3 {"name":"s","kind":"fields","fields":{"type":"gauge"}}"#,
            "surplus 0",
        ],
    );
    check(
        "timestamp,a,name\n\"1414000000\",1,\n2014-10-22T17:46:40Z,2,7\nsoon,3,\n",
        &[
            r#"2 {"name":"s","time":1414000000000000000,"kind":"fields","fields":{"a":1}}"#,
            r#"3 {"name":"7","time":1414000000000000000,"kind":"fields","fields":{"a":2}}"#,
            "4 refused: the time is neither a positive number nor RFC 3339 text",
            "surplus 0",
        ],
    );
    check(
        "tag.os,tag.n,a\ninf,1.50,1\nnull,,1\n",
        &[
            r#"2 {"name":"s","tags":{"os":"inf","n":"1.50"},"kind":"fields","fields":{"a":1}}"#,
            r#"3 {"name":"s","kind":"fields","fields":{"a":1}}"#,
            "surplus 0",
        ],
    );
}

#[test]
fn a_prefix_stands_before_every_name() {
    let options = Options { prefix: "task/\"".to_owned(), ..options() };
    let told = read(options, [&b"name,a\nx,1\n,2\n"[..]]);
    assert_eq!(
        told,
        [
            r#"2 {"name":"task/\"x","kind":"fields","fields":{"a":1}}"#,
            r#"3 {"name":"task/\"s","kind":"fields","fields":{"a":2}}"#,
            "surplus 0"
        ]
    );
}

#[test]
fn a_bad_row_costs_itself() {
    let long = format!("a\n{}\n1\n", "x".repeat(64));
    check(
        &long,
        &[
            "line 2: a row takes more than 64 bytes (line_too_long)",
            r#"3 {"name":"s","kind":"fields","fields":{"a":1}}"#,
            "surplus 0",
        ],
    );
    check(
        "a,b\n\"x\"y,1\n2,\n",
        &[
            "line 2: a cell goes on after its closing quote; a quote inside of quotes is doubled \
             (unbalanced_quotes)",
            r#"3 {"name":"s","kind":"fields","fields":{"a":2}}"#,
            "surplus 0",
        ],
    );
    // The quote of the second row is where the first one's would close.
    check(
        "a,b\n\"x,1\n2,\"y\"\n3,\n",
        &[
            "line 2: a cell goes on after its closing quote; a quote inside of quotes is doubled \
             (unbalanced_quotes)",
            r#"4 {"name":"s","kind":"fields","fields":{"a":3}}"#,
            "surplus 0",
        ],
    );
    check(
        "a\n1\n\"x\n2\n",
        &[
            r#"2 {"name":"s","kind":"fields","fields":{"a":1}}"#,
            "line 3: a quote is not closed before the end of the file (unbalanced_quotes)",
            "surplus 0",
        ],
    );
    let told = read(options(), [&b"a\n\xff\n1\n"[..]]);
    assert_eq!(told.first().unwrap(), "line 2: the line is not UTF-8 (invalid_utf8)");
    assert_eq!(told.len(), 3);
}

#[test]
fn a_header_that_cannot_be_trusted_costs_the_file() {
    for (file, says) in [
        ("a,b,a\n1,2,3\n", "the column \"a\" stands twice in the first line"),
        ("name, time,value\nx,1,2\n", "the column \" time\" is not called \"time\""),
        ("name ,value\nx,2\n", "the column \"name \" is not called \"name\""),
        ("name, tag.os,value\nx,l,2\n", "the column \" tag.os\" is not called \"tag.os\""),
        ("Time,value\n1,2\n", "the column \"Time\" is not called \"time\""),
        ("TIMESTAMP,value\n1,2\n", "the column \"TIMESTAMP\" is not called \"timestamp\""),
        ("a,b\r1,2\r3,4\r", "a line ends with CR alone; lines end with LF or CR LF"),
        (
            "time;value\n1;2\n",
            "there is only one column, and a semicolon or a tab in its name; commas separate columns",
        ),
        ("name,time,,\nx\n", "the first line names no column that could hold a value"),
        ("a,\"b\n1\n", "a quote is not closed before the end of the file"),
        ("a,b,c,d,e,f,g\n1\n", "there are more than 6 columns"),
        ("a\u{0}\u{1}\n", ""),
        ("", ""),
        ("\n\n", ""),
    ] {
        let told = read(options(), [file.as_bytes()]);
        match says {
            "" => assert_eq!(told, ["surplus 0"], "{file:?}"),
            _ => assert_eq!(told.first(), Some(&format!("file line 1: {says}")), "{file:?}"),
        }
    }
    let nameless = Options { series: None, ..options() };
    let told = read(nameless.clone(), [&b"a\n1\n"[..]]);
    assert!(told.first().unwrap().contains("no column `name`"), "{told:?}");
    let told = read(nameless, [&b"name,a\n,1\n,\nx,1\n"[..]]);
    assert_eq!(told.first().unwrap(), "line 2: the row does not name its series (empty_name)");
    assert_eq!(told.get(1).unwrap(), "3 empty");
}

#[test]
fn a_mark_of_the_byte_order_hides_no_column() {
    check(
        "\u{feff}time,a\r\n1700000000,1\r\n",
        &[
            r#"2 {"name":"s","time":1700000000000000000,"kind":"fields","fields":{"a":1}}"#,
            "surplus 0",
        ],
    );
}

/// It is a part of its record, though, wherever chunks are cut.
#[test]
fn a_mark_of_the_byte_order_counts_for_the_limit() {
    for (len, fits) in [(60, true), (61, false)] {
        let file = format!("\u{feff}{}\n1\n", "a".repeat(len));
        let whole = read(options(), [file.as_bytes()]);
        assert_eq!(whole.len(), if fits { 2 } else { 1 }, "{whole:?}");
        assert_eq!(read(options(), file.as_bytes().chunks(1)), whole);
    }
}

/// One who has read the header again goes on where he was.
#[test]
fn reading_goes_on_after_an_interruption() {
    let (head, rest) = ("a,b\n1,2\n", "3,4\n\"x\"y\n");
    let mut reader = Reader::new(options());
    let mut input = head.as_bytes();
    while !reader.knows_columns() {
        assert!(reader.read(&mut input.split_at(4).0).unwrap().is_none());
    }
    reader.go_on_after(2);
    input = rest.as_bytes();
    let first = reader.read(&mut input).unwrap().map(|record| tell(&record));
    assert_eq!(first.unwrap(), r#"3 {"name":"s","kind":"fields","fields":{"a":3,"b":4}}"#);
    let second = reader.read(&mut input).unwrap().map(|record| tell(&record));
    assert!(second.unwrap().starts_with("line 4: "));
    assert_eq!(reader.lines(), 4);
}

#[test]
fn tables_are_named_after_their_files() {
    for (path, expected) in [
        ("times.csv", "times"),
        ("/tmp/out/times.csv.gz", "times"),
        ("/tmp/statistics/build/times.csv", "build/times"),
        ("statistics/times.csv", "times"),
    ] {
        assert_eq!(series_of(Path::new(path)).as_deref(), Some(expected), "{path}");
    }
    assert_eq!(series_of(Path::new("-")), None);
}

/// Files in which what matters is frequent.
fn files() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\n"),
        Just("\r\n"),
        Just(","),
        Just("\""),
        Just("\"\""),
        Just("1"),
        Just("name"),
        Just("time"),
        Just("x y"),
        Just("é"),
        Just("null"),
        Just("a long cell, and then some, to come near the limit of a record\n"),
    ];
    let body = proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat());
    let long = "\u{feff}a,and a name of a column that brings it all near to the limit, c\n";
    (prop_oneof![Just("a,b,c\n"), Just("name,a\n"), Just(long), Just("")], body)
        .prop_map(|(head, body)| head.to_owned() + &body)
}

proptest! {
    /// However a file is cut into chunks, its records are those of the whole file.
    #[test]
    fn chunks_make_no_difference(
        file in files(), sizes in proptest::collection::vec(1_usize..9, 1..9)
    ) {
        let whole = read(options(), [file.as_bytes()]);
        let mut sizes = sizes.iter().cycle();
        let mut rest = file.as_bytes();
        let chunks = std::iter::from_fn(|| {
            let size = *sizes.next().unwrap();
            let (chunk, left) = rest.split_at(size.min(rest.len()));
            rest = left;
            (!chunk.is_empty()).then_some(chunk)
        });
        prop_assert_eq!(read(options(), chunks), whole);
    }

    /// What is written by the rules of RFC 4180 comes back as it was.
    #[test]
    fn what_is_quoted_comes_back(
        rows in proptest::collection::vec(proptest::collection::vec("[a-c\",\r\n é]{0,6}", 3), 1..6)
    ) {
        let quoted = |cell: &String| format!("\"{}\"", cell.replace('"', "\"\""));
        let line = |row: &Vec<String>| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n";
        let file = "x,y,z\n".to_owned() + &rows.iter().map(line).collect::<String>();
        let options = Options { record_bytes: 4096, ..options() };
        let mut reader = Reader::new(options);
        let mut input = file.as_bytes();
        for row in &rows {
            let Ok(Some(Record::Row(read))) = reader.read(&mut input) else { panic!("{file:?}") };
            let mut batch = Batch::new();
            read.write(Limits::default(), &mut batch).unwrap();
            let point = batch.point(0).unwrap();
            let crate::Measure::Fields(fields) = point.measure else { panic!("{point:?}") };
            let texts = fields.iter().map(|(_, value)| match value {
                crate::FieldValue::Text(text) => text.to_owned(),
                other => panic!("{other:?}"),
            });
            prop_assert_eq!(&texts.collect::<Vec<_>>(), row);
        }
    }

    /// Without odd quotes, cells are cut where the `csv` crate cuts them.
    #[test]
    fn others_cut_the_same_cells(file in "([a-c1 é]{0,3}|\"([a-c,\n ]|\"\"){0,4}\"|,|\r?\n){0,30}") {
        let mut mine = Cells::new(1000);
        let mut cut = Vec::new();
        for line in file.split_inclusive('\n') {
            match mine.take(line.as_bytes()) {
                Taken::Part => continue,
                // The other one takes what follows a closing quote for a part of the cell.
                Taken::Broken => return Ok(()),
                Taken::Whole => {}
            }
            if !mine.are_blank() {
                mine.check_text().unwrap();
                let cells = (0..mine.len()).map(|index| mine.text(index).unwrap().to_owned());
                cut.push(cells.collect::<Vec<_>>());
            }
            mine.clear();
        }
        prop_assume!(!mine.is_open());
        prop_assert_eq!(cut, theirs(&file));
    }
}

fn theirs(file: &str) -> Vec<Vec<String>> {
    let (mut reader, mut out, mut ends) = (csv_core::Reader::new(), [0; 4096], [0; 256]);
    let (mut input, mut records) = (file.as_bytes(), Vec::new());
    let (mut filled, mut cells) = (0, 0);
    loop {
        let (result, read, written, ended) =
            reader.read_record(input, &mut out[filled..], &mut ends[cells..]);
        input = &input[read..];
        (filled, cells) = (filled + written, cells + ended);
        match result {
            csv_core::ReadRecordResult::InputEmpty => {}
            csv_core::ReadRecordResult::Record => {
                let starts = std::iter::once(&0).chain(&ends[..cells]);
                let record = starts.zip(&ends[..cells]).map(|(from, to)| &out[*from..*to]);
                let text = |cell: &[u8]| String::from_utf8(cell.to_vec()).unwrap();
                records.push(record.map(text).collect());
                (filled, cells) = (0, 0);
            }
            csv_core::ReadRecordResult::End => return records,
            other => panic!("{other:?}"),
        }
    }
}
