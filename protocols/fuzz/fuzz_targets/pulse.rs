//! Any bytes as a message of a task's end, and as a routing key: no panic, and what is read is a
//! name that can stand in a path.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocols::pulse::{TaskId, parse, series_of};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(run) = parse(bytes) {
        assert!(TaskId::parse(run.task.as_str()).is_some());
        assert!(run.run.is_none_or(|run| run <= 1000));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (key, route) = text.split_once('\n').unwrap_or((text, "statistics"));
    if let Some(series) = series_of(key, route) {
        assert!(key.ends_with(series));
    }
});
