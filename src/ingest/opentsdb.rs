//! The OpenTSDB port: telnet commands and HTTP, told apart by the first byte of a connection.
//!
//! An upper-case letter begins an HTTP request, anything else is telnet, for as long as the
//! connection lives. Telnet clients are only answered when they ask, or when a line is
//! refused; who does not read his answers loses them, never his points. Option negotiation of
//! interactive clients is skipped. `diediedie` is answered and does nothing.
//!
//! Metrics: `unknown_command`, `line_too_long`, the reasons of `put`, noticed `reply_dropped`.

use super::http;
use super::stream::{Connection, Desk, Speak};
use crate::access::Denial;
use protocols::form::Speech;
use protocols::frame::Frame;
use protocols::opentsdb::{self, Command};
use protocols::{ParseError, Point};
use std::ops::ControlFlow;
use tokio::time::timeout;

/// Serves one connection.
pub(super) async fn serve(mut connection: Connection, app: axum::Router) {
    match head(&mut connection).await {
        Some(head) if head.first().is_some_and(u8::is_ascii_uppercase) => {
            http::serve(connection, head, app).await;
        }
        Some(head) => connection.lines(&head, Telnet).await,
        None => {}
    }
}

/// The first bytes; `None` when none come in time.
async fn head(connection: &mut Connection) -> Option<Vec<u8>> {
    let Connection { stream, presence } = connection;
    let context = &presence.context;
    let mut head = vec![0; HEAD_BYTES];
    let first = timeout(context.config.idle(), async {
        loop {
            stream.readable().await.ok()?;
            match stream.try_read(&mut head) {
                Ok(0) => return None,
                Ok(len) => return Some(len),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    });
    tokio::select! {
        biased;
        first = first => match first {
            Ok(len) => head.truncate(len?),
            Err(_) => {
                context.refuse("idle_timeout", 1, b"", (&presence.peer).into());
                return None;
            }
        },
        () = context.stop.cancelled() => {
            let len = stream.read_now(&mut head).ok().filter(|len| *len > 0);
            head.truncate(len?);
        }
    }
    Some(head)
}

struct Telnet;

impl Speak for Telnet {
    fn take(&mut self, frame: Frame<'_>, desk: &mut Desk) -> ControlFlow<()> {
        let Frame::Line(line) = frame else {
            let reason = ParseError::LineTooLong;
            desk.refuse(reason.label(), b"");
            desk.reply(|out| opentsdb::reply_refused("put", &reason.to_string(), out));
            return ControlFlow::Continue(());
        };
        if line.starts_with(b"put ") {
            put(line, desk);
            return ControlFlow::Continue(());
        }
        let line = opentsdb::strip_negotiation(line);
        match opentsdb::command(line) {
            Command::Blank => {}
            Command::Put => put(line, desk),
            Command::Version => {
                desk.reply(|out| opentsdb::reply_version(env!("CARGO_PKG_VERSION"), out));
            }
            Command::Stats => stats(desk),
            Command::Help => desk.reply(opentsdb::reply_help),
            Command::Status => desk.reply(|out| opentsdb::reply_status("ok", out)),
            Command::Dropcaches => desk.reply(opentsdb::reply_dropcaches),
            Command::Exit => return ControlFlow::Break(()),
            Command::Diediedie => {
                refuse(desk, line, "diediedie", "clients cannot stop this server")
            }
            Command::Rollup => refuse(desk, line, "rollup", "rollups are not taken here"),
            Command::Histogram => refuse(desk, line, "histogram", "histograms are not taken here"),
            Command::Unknown(word) => {
                desk.refuse(ParseError::UnknownCommand.label(), line);
                desk.reply(|out| opentsdb::reply_unknown(word, out));
            }
        }
        ControlFlow::Continue(())
    }

    fn deny(denial: Denial, point: &Point<'_>, out: &mut Vec<u8>) {
        opentsdb::reply_refused("put", &denial.message(point), out);
    }
}

fn put(line: &[u8], desk: &mut Desk) {
    let options = desk.intake.context.grammar.put_options(desk.times);
    let (recall, batch) = desk.intake.recall(desk.times);
    if recall.recall(line, batch.len(), Speech::Put).is_some() {
        return;
    }
    if let Err(error) = opentsdb::parse_put(line, &options, batch) {
        desk.refuse(error.reason.label(), line);
        desk.reply(|out| opentsdb::reply_put_error(&error, out));
    }
}

fn refuse(desk: &mut Desk, line: &[u8], command: &str, why: &str) {
    desk.refuse("refused_command", line);
    desk.reply(|out| opentsdb::reply_refused(command, why, out));
}

fn stats(desk: &mut Desk) {
    let context = desk.intake.context.clone();
    let now = context.clock.now();
    let stats = context.stats();
    desk.reply(|out| opentsdb::reply_stats(stats, ("listener", &context.listener), now, out));
}

/// Enough for a burst of puts; more is read later.
const HEAD_BYTES: usize = 4096;
