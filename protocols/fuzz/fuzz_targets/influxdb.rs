//! Any bytes as line protocol: the reader never panics, a refusal leaves no trace, each line
//! of a body is either a point or refused, and what was read can be written so that reading
//! and writing it again changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocols::influxdb::{
    Encoder, EncoderOptions, Integers, ReadOptions, lines, parse_body, parse_line,
};
use protocols::{Batch, Encode};

fuzz_target!(|data: &[u8]| {
    let options = ReadOptions::default();
    let mut batch = Batch::new();
    for (_, line) in lines(data) {
        let (points, bytes) = (batch.len(), batch.bytes());
        if parse_line(line, &options, &mut batch).is_err() {
            assert_eq!((batch.len(), batch.bytes()), (points, bytes));
        }
    }
    let (mut whole, mut refused) = (Batch::new(), 0);
    parse_body(data, &options, &mut whole, |_| refused += 1);
    assert_eq!(whole.len() + refused, lines(data).count());
    assert!(whole.iter().eq(batch.iter()));

    let Some(once) = written(&batch) else { return };
    let mut again = Batch::new();
    // Made fit, a line may have become longer than it was.
    let options = ReadOptions { line_bytes: usize::MAX, ..options };
    parse_body(&once, &options, &mut again, |line| panic!("the encoder wrote {line:?}"));
    assert_eq!(written(&again), Some(once));
});

/// The lines of a batch, unless the encoder refuses a point of it (one that is too large).
fn written(batch: &Batch) -> Option<Vec<u8>> {
    let options = EncoderOptions { integers: Integers::Keep, unsigned: true };
    let mut encoder = Encoder::new(options);
    let mut out = Vec::new();
    for point in batch.iter() {
        encoder.encode(&point, &mut out).ok()?;
    }
    Some(out)
}
