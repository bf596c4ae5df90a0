//! Any bytes as a table, in chunks of any size: no panic, the same records however it is cut, and
//! what a gateway makes of a row's JSON is what the row says.
//!
//! Input: the sizes of the chunks up to a zero, then the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocols::Batch;
use protocols::csv::{Options, Reader, Record, Row};
use protocols::json::{Limits, parse_json_lines};

fuzz_target!(|input: &[u8]| {
    let Some(end) = input.iter().position(|byte| *byte == 0) else { return };
    let (sizes, file) = (&input[..end], &input[end + 1..]);
    assert_eq!(read(chunks(file, sizes)), read([file].into_iter()));
});

fn chunks<'a>(file: &'a [u8], sizes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut sizes = sizes.iter().cycle();
    let mut rest = file;
    std::iter::from_fn(move || {
        let size = sizes.next().map_or(rest.len(), |size| usize::from(*size));
        let (chunk, left) = rest.split_at(size.min(rest.len()));
        rest = left;
        (!chunk.is_empty()).then_some(chunk)
    })
}

fn read<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let options = Options { series: Some("s".into()), record_bytes: 64, columns: 8, ..Options::default() };
    let (mut reader, mut told) = (Reader::new(options), Vec::new());
    for mut chunk in chunks {
        loop {
            match reader.read(&mut chunk) {
                Ok(Some(record)) => told.push(tell(&record)),
                Ok(None) => break,
                Err(refused) => return [told, vec![refused.to_string()]].concat(),
            }
        }
    }
    match reader.end() {
        Ok(record) => told.extend(record.as_ref().map(tell)),
        Err(refused) => told.push(refused.to_string()),
    }
    told
}

fn tell(record: &Record<'_>) -> String {
    let Record::Row(row) = record else { return format!("{record:?}") };
    let (mut own, mut other) = (Batch::new(), Batch::new());
    let accepted = row.write(Limits::default(), &mut own).is_ok();
    assert_eq!(own.len(), usize::from(accepted));
    parse_json_lines(&json(row), Limits::default(), &mut other);
    let points = |batch: &Batch| batch.iter().map(|point| format!("{point:?}")).collect::<Vec<_>>();
    assert_eq!(points(&own), points(&other));
    points(&own).concat()
}

fn json(row: &Row<'_>) -> Vec<u8> {
    let mut json = Vec::new();
    row.write_json(&mut json);
    json
}
