//! A datagram never makes the parser panic; a refused line leaves no trace; what is taken can
//! be sent on in any dialect, each point as one clean line that is read as that point again.
//!
//! Input: one byte of switches, then the datagram.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocols::statsd::{Dialects, Encoder, Limits, Line, TagDialect, lines, packets, parse_line};
use protocols::{Batch, Encode, Skip};

fuzz_target!(|input: &[u8]| {
    let Some((switches, datagram)) = input.split_first() else { return };
    let dialects = dialects(*switches);
    let mut batch = Batch::new();
    for line in lines(datagram) {
        let before = (batch.len(), batch.bytes());
        match parse_line(line, &dialects, &Limits { tags: 8 }, &mut batch) {
            Ok(Line::Points(parsed)) => assert_eq!(batch.len(), before.0 + parsed.points as usize),
            Ok(Line::Event | Line::ServiceCheck) | Err(_) => {
                assert_eq!((batch.len(), batch.bytes()), before);
            }
        }
    }
    for dialect in [TagDialect::Influxdb, TagDialect::Graphite, TagDialect::None] {
        encode(&batch, dialect);
    }
    survives(&batch);
});

fn dialects(switches: u8) -> Dialects {
    let on = |bit: u8| switches >> bit & 1 == 0;
    Dialects { dogstatsd: on(0), influxdb: on(1), graphite: on(2), signalfx: on(3), librato: on(4) }
}

fn survives(batch: &Batch) {
    let block = encode(batch, TagDialect::Dogstatsd);
    assert_eq!(packets(&block, 1432).map(|packet| packet.len() + 1).sum::<usize>(), block.len());
    let mut back = Batch::new();
    let dialects = Dialects::default();
    for line in lines(&block) {
        let parsed = parse_line(line, &dialects, &Limits { tags: 8 }, &mut back);
        assert!(matches!(parsed, Ok(Line::Points(_))), "{}: {parsed:?}", line.escape_ascii());
    }
    assert_eq!(back.len(), batch.len());
    for (back, point) in back.iter().zip(batch.iter()) {
        assert_eq!(back.measure, point.measure);
    }
    assert_eq!(encode(&back, TagDialect::Dogstatsd), block, "clean lines stay as they are");
}

fn encode(batch: &Batch, dialect: TagDialect) -> Vec<u8> {
    let mut encoder = Encoder::new(dialect, usize::MAX);
    let mut block = Vec::new();
    for point in batch.iter() {
        let encoded: Result<(), Skip> = encoder.encode(&point, &mut block);
        assert_eq!(encoded, Ok(()), "{point:?}");
    }
    assert_eq!(line_count(&block), batch.len(), "one line for each point");
    assert!(!block.iter().any(|byte| (*byte < b' ' && *byte != b'\n') || *byte == 0x7f));
    block
}

fn line_count(block: &[u8]) -> usize {
    block.iter().filter(|byte| **byte == b'\n').count()
}
