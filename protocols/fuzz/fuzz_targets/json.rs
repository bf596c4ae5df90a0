//! Any bytes as a body of points, as JSON lines, and as a query: no panic, no trace of what
//! was refused, and the books balance.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocols::Batch;
use protocols::json::{Limits, parse_json_lines, parse_points, parse_query};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { tags: 4, fields: 8, unfolded: 1 << 20, ..Limits::default() };
    let mut batch = Batch::new();
    match parse_points(bytes, limits, &mut batch) {
        Ok(outcome) => {
            assert_eq!(outcome.accepted, batch.len());
            outcome.answer(true);
        }
        Err(error) => {
            assert!(batch.is_empty());
            error.answer();
        }
    }
    batch.clear();
    let outcome = parse_json_lines(bytes, limits, &mut batch);
    assert_eq!(outcome.accepted, batch.len());
    outcome.answer(false);
    query(bytes, limits);
});

fn query(bytes: &[u8], limits: Limits) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (series, query) = text.split_once('?').unwrap_or((text, ""));
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut batch = Batch::new();
    let accepted = parse_query(series, pairs, limits, &mut batch).is_ok();
    assert_eq!(batch.len(), usize::from(accepted));
}
