//! Any bytes as line protocol: the reader never panics, a refusal leaves no trace, and what
//! was read can be written so that reading and writing it again changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocols::influxdb::{Encoder, EncoderOptions, Integers, parse_line};
use protocols::{Batch, Encode};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut batch = Batch::new();
    for line in text.split('\n') {
        let (points, bytes) = (batch.len(), batch.bytes());
        if parse_line(line, &mut batch).is_err() {
            assert_eq!((batch.len(), batch.bytes()), (points, bytes));
        }
    }
    let Some(once) = written(&batch) else { return };
    let mut again = Batch::new();
    for line in once.lines() {
        parse_line(line, &mut again).expect("what the encoder wrote");
    }
    assert_eq!(written(&again), Some(once));
});

/// The lines of a batch, unless the encoder refuses a point of it (one that is too large).
fn written(batch: &Batch) -> Option<String> {
    let options = EncoderOptions { integers: Integers::Keep, unsigned: true };
    let mut encoder = Encoder::new(options);
    let mut out = Vec::new();
    for point in batch.iter() {
        encoder.encode(&point, &mut out).ok()?;
    }
    Some(String::from_utf8(out).expect("lines are text"))
}
