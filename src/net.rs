//! Sockets: how an address becomes one, who keeps it across reloads, how HTTP is served on it.
//!
//! Nothing here knows a protocol of ours or a point. In reading order: what a configuration
//! may say ([`bind`]), the pool that owns what is bound ([`sockets`]), connections one after
//! the other ([`accept`]), and HTTP with a limit on every wait ([`http`]).

pub mod accept;
pub mod bind;
pub mod http;
pub mod sockets;

pub use accept::{Acceptor, Peer, RETRY_AFTER, Stream};
pub use bind::{BindAddr, Transport};
pub use sockets::{BindError, Bound, Socket, Sockets, Wanted};
