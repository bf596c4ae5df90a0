//! OpenTSDB's two ways of putting points, telnet and HTTP, and the `put` line as output.
//!
//! ```text
//! put sys.cpu.user 1356998400 42.5 host=web01 cpu=0
//! {"metric":"sys.cpu.user","timestamp":1356998400,"value":42.5,"tags":{"host":"web01"}}
//! ```
//!
//! In reading order: [`command`] says what a telnet line wants, [`parse_put`] reads a put,
//! `reply_*` write what telnet clients are told, [`parse_body`] and [`answer`] are the HTTP
//! side, and [`Encoder`] writes put lines for a backend. Sockets, framing into lines, gzip,
//! paths and the statistics themselves belong to the listener.
//!
//! Where the servers in the field differ, this one takes what any of them takes, as long as
//! it means one thing only:
//!
//! | matter | here |
//! |---|---|
//! | separators | runs of blanks and tabs; at the end of a line they and a CR mean nothing |
//! | no tags | accepted, unless the listener is strict |
//! | a tag twice | the same value is one tag, another value refuses the put |
//! | `foo`, `foo=`, `=v`, `a=b=c` | the put is refused |
//! | timestamp | [`timestamp::put`](crate::timestamp::put), telnet and HTTP alike, required |
//! | value | integers keep 64 bits; NaN, infinities, hexadecimal and `_` are refused |
//! | names | any UTF-8, up to 1024 bytes; control characters are refused |

mod encode;
mod json;
mod put;
mod reply;
mod session;

pub use encode::Encoder;
pub use json::{AnswerMode, answer, body_error, parse_body, parse_body_with};
pub use put::{PutError, PutOptions, parse_put};
pub use reply::{
    escape, reply_dropcaches, reply_help, reply_put_error, reply_refused, reply_stats,
    reply_status, reply_unknown, reply_version,
};
pub use session::{Command, command, strip_negotiation};
