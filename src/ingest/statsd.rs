//! statsd lines on a stream; the datagram side is [`datagram`](super::datagram).
//!
//! A client is never answered. Metrics: `line_too_long` and the reasons of the parser.

use super::stream::{Connection, Desk, Speak};
use protocols::ParseError;
use protocols::frame::Frame;
use std::ops::ControlFlow;

/// Serves one connection.
pub(super) async fn serve(connection: Connection) {
    connection.lines(&[], Lines).await;
}

struct Lines;

impl Speak for Lines {
    fn take(&mut self, frame: Frame<'_>, desk: &mut Desk) -> ControlFlow<()> {
        match frame {
            Frame::Line(line) => desk.intake.statsd_line(line, &desk.times, (&desk.peer).into()),
            Frame::TooLong => desk.refuse(ParseError::LineTooLong.label(), b""),
        }
        ControlFlow::Continue(())
    }
}
