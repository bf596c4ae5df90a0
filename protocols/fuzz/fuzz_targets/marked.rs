//! However a log is cut into chunks, its marked lines are those of the whole log.
//!
//! Input: the sizes of the chunks up to a zero, then the log.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocols::marked::{Found, Marked};

fuzz_target!(|input: &[u8]| {
    let Some(end) = input.iter().position(|byte| *byte == 0) else { return };
    let (sizes, log) = (&input[..end], &input[end + 1..]);
    assert_eq!(found(chunks(log, sizes)), found([log].into_iter()));
});

fn chunks<'a>(log: &'a [u8], sizes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut sizes = sizes.iter().cycle();
    let mut rest = log;
    std::iter::from_fn(move || {
        let size = sizes.next().map_or(rest.len(), |size| usize::from(*size));
        let (chunk, left) = rest.split_at(size.min(rest.len()));
        rest = left;
        (!chunk.is_empty()).then_some(chunk)
    })
}

fn found<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Option<Vec<u8>>> {
    let (mut marked, mut seen) = (Marked::new(b"[s]", 32), Vec::new());
    let mut note = |found: Found<'_>| {
        seen.push(match found {
            Found::Object(object) => Some(object.to_vec()),
            Found::NoObject | Found::TooLong => None,
        });
    };
    for chunk in chunks {
        marked.feed(chunk, &mut note);
    }
    marked.finish(&mut note);
    seen
}
