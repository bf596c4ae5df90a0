//! Connections are let in, up to a limit, and each is served by a task of its own.
//!
//! A TLS handshake is the connection's own affair: it takes a place, and at most `limits.header`.
//!
//! Metrics: `connection_limit`, `accept_failed`, `tls_handshake`; noticed `closed_unused`.

use super::intake::{Context, Who, certified};
use super::stream::{Connection, Presence};
use super::{http, opentsdb, statsd};
use crate::net::{Acceptor, Peer, Stream};
use crate::origin::Protocol;
use std::io;

/// Accepts connections until the listener stops, those among them that are waiting by then;
/// at a socket that a successor will have (`handed_in`) they wait for that one.
pub(super) async fn run(acceptor: Acceptor, handed_in: bool, context: Context) {
    let Some(speech) = Speech::of(&context) else { return };
    let mut door = Door { speech, context, admitted: 0 };
    loop {
        tokio::select! {
            biased; // The runtime's budget for one task keeps a crowd from going on for ever.
            () = door.context.stop.cancelled(), if handed_in => break,
            (stream, peer) = acceptor.next(|error| door.failed(&error)) => door.admit(stream, peer),
            () = door.context.stop.cancelled() => break,
        }
    }
}

/// What is spoken on the connections of one socket.
#[derive(Clone)]
enum Speech {
    Statsd,
    Opentsdb(axum::Router),
    Http(axum::Router),
}

impl Speech {
    /// Where we go and look, nobody comes.
    fn of(context: &Context) -> Option<Self> {
        Some(match context.config.protocol {
            Protocol::Statsd => Self::Statsd,
            Protocol::Opentsdb => Self::Opentsdb(http::opentsdb_app(context)),
            Protocol::Http => Self::Http(http::points_app(context)),
            Protocol::Influxdb => Self::Http(http::influxdb_app(context)),
            Protocol::File | Protocol::Pulse => return None,
        })
    }

    async fn serve(self, connection: Connection) {
        // Boxed, so that connections without TLS do not carry the room for one.
        let connection = match connection.presence.context.tls {
            Some(_) => Box::pin(secured(connection)).await,
            None => Some(connection),
        };
        let Some(connection) = connection else { return };
        match self {
            Self::Statsd => statsd::serve(connection).await,
            Self::Opentsdb(app) => opentsdb::serve(connection, app).await,
            Self::Http(app) => http::serve(connection, Vec::new(), app).await,
        }
    }
}

/// Its points are whose certificate it has shown.
fn known(mut connection: Connection) -> Connection {
    let Connection { stream, presence } = &mut connection;
    presence.context.router.present(certified(&presence.peer, stream.peer_certificate()));
    connection
}

/// A connection after its handshake; none if that came to nothing.
async fn secured(connection: Connection) -> Option<Connection> {
    let Connection { stream, presence } = connection;
    let context = &presence.context;
    let server = context.tls.as_ref()?;
    let handshake = stream.secure(server, context.config.limits.header.0);
    tokio::select! {
        secured = handshake => match secured {
            Ok(stream) => Some(known(Connection { stream, presence })),
            Err(why) => {
                context.refuse_handshake(&why, &presence.peer);
                None
            }
        },
        // It has said nothing yet that could be lost.
        () = context.stop.cancelled() => None,
    }
}

/// Lets connections in, as many as the limit allows.
struct Door {
    speech: Speech,
    context: Context,
    admitted: usize,
}

impl Door {
    fn failed(&self, error: &io::Error) {
        self.context.refuse("accept_failed", 1, error.to_string().as_bytes(), Who::Unknown);
    }

    fn admit(&mut self, stream: Stream, peer: Peer) {
        let Ok(permit) = self.context.connections.clone().try_acquire_owned() else {
            return self.context.refuse("connection_limit", 1, b"", (&peer).into());
        };
        self.admitted = self.admitted.wrapping_add(1);
        let context = self.context.for_worker(self.admitted).from(&peer);
        let connection = Connection { stream, presence: Presence::new(peer, context, permit) };
        let speech = self.speech.clone();
        self.context.run(speech.serve(connection));
    }
}
