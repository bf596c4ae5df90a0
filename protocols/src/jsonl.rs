//! One point as one line of JSON: for people who watch standard output, and for the
//! embedded store, which reads it back.
//!
//! ```text
//!   {"name":"build/times","tags":{"os":"linux","canary":null},"time":1414000000000000000,
//!    "kind":"timer","value":12.5,"rate":0.1}                      (in one line)
//! ```
//!
//! | key | is |
//! |---|---|
//! | `name`, `kind` | always there |
//! | `tags` | left out when there are none; a bare tag is `null` |
//! | `time` | nanoseconds since 1970; left out when the client gave none |
//! | `value` | of all kinds but the next three |
//! | `change` | of a gauge that is shifted instead of set |
//! | `member` | of a set |
//! | `fields` | of a row of columns: numbers, truth values, text |
//! | `rate` | of counters and samples; left out when it is 1 |
//! | `again` | `true` if it takes the place of an earlier point of its series and time |
//!
//! A number keeps its type: integers have no point, doubles have one (or an exponent), with
//! the shortest digits that give the same double again. So a point reads back as it was;
//! only the trailing fields of its protocol (`rest`) are not kept.
//!
//! Characters that a terminal obeys or that could be taken for the end of a line are escaped,
//! those beyond ASCII too. JSON has no word for a number that is not finite: such a point is
//! skipped, such a column is left out and counted.

mod encode;
mod read;

pub use encode::{Encoder, Value};
pub use read::{ReadError, parse_line};
