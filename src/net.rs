//! Sockets: how an address becomes one, who keeps it across reloads, how HTTP is served on it.
//!
//! Nothing here knows a protocol of ours or a point. In reading order: the sockets that an
//! address means (`bind`), those that others bound for us ([`handed_in`]), the pool that owns what
//! is bound ([`sockets`]), connections one after the other ([`accept`]), those of them that speak
//! TLS (`secured`), how they end (`linger`), and HTTP with a limit on every wait ([`http`]). What
//! has to see the reads of a stream stands before it as an [`Intercept`].

pub mod accept;
mod bind;
pub(crate) mod drops;
pub mod handed_in;
pub mod http;
mod intercepted;
mod linger;
mod secured;
mod socket;
mod socket_file;
pub mod sockets;

pub use crate::tls::PeerCertificate;
pub use accept::{Acceptor, Peer, Stream};
pub use handed_in::HandedIn;
pub use intercepted::{Intercept, Intercepted};
pub use linger::{linger, say_goodbye};
pub use socket::Socket;
pub use sockets::{BindError, Bound, Sockets, Wanted};
