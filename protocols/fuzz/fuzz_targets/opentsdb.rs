//! Any bytes as telnet lines and as a body of `/api/put`: no panic, no trace of what was
//! refused, and no raw control bytes in an answer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocols::opentsdb::{
    AnswerMode, Command, Encoder, PutOptions, answer, command, parse_body, parse_put,
    reply_put_error, reply_unknown, strip_negotiation,
};
use protocols::{Batch, Encode};

fuzz_target!(|bytes: &[u8]| {
    telnet(bytes);
    http(bytes);
});

fn telnet(bytes: &[u8]) {
    let mut batch = Batch::new();
    let mut reply = Vec::new();
    for line in strip_negotiation(bytes).split(|byte| *byte == b'\n') {
        let before = (batch.len(), batch.bytes());
        match command(line) {
            Command::Put => match parse_put(line, &PutOptions::default(), &mut batch) {
                Ok(()) => encoded_again(&batch),
                Err(error) => {
                    assert_eq!((batch.len(), batch.bytes()), before);
                    reply_put_error(&error, &mut reply);
                }
            },
            Command::Unknown(word) => reply_unknown(word, &mut reply),
            _ => {}
        }
    }
    assert!(reply.iter().all(|byte| *byte == b'\n' || !byte.is_ascii_control()));
}

/// What was accepted is one line again, unless the format cannot say it.
fn encoded_again(batch: &Batch) {
    let point = batch.point(batch.len() - 1).expect("a put was accepted");
    let mut line = Vec::new();
    if Encoder::new().encode(&point, &mut line).is_ok() {
        parse_put(&line, &PutOptions::default(), &mut Batch::new()).expect("our own line");
    }
}

fn http(bytes: &[u8]) {
    let mut batch = Batch::new();
    match parse_body(bytes, &PutOptions::default(), &mut batch) {
        Ok(refusals) => {
            for mode in [AnswerMode::Quiet, AnswerMode::Summary, AnswerMode::Details] {
                answer(batch.len(), &refusals, mode);
            }
        }
        Err(_) => assert!(batch.is_empty()),
    }
}
