//! Listeners on real sockets of the loopback, with a router that keeps what it is given.

mod datagrams;
mod lines;
mod logs;
mod readings;
pub(super) mod rig;
mod statsd_streams;
mod telnet;
pub(super) mod yard;
