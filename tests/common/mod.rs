//! What the end-to-end tests stand on: real servers and clients, started on ports that the system
//! chooses, ended on drop, their logs shown when the test fails.
//!
//! Real things wherever there is one: [`Influxd`], [`VictoriaMetrics`], [`StatsdJs`], the clients
//! in `tests/clients`, and [`Gateway`], which is our own binary. Fakes stand in only for faults
//! that a real server cannot be asked for: [`FakeHttp`], [`UdpSink`], [`TcpSink`], [`amqp`], and
//! [`Proxy`], which spoils the way to a real one.
//!
//! Nothing here sleeps and hopes. A test that waits for the outside world says what for, by
//! [`eventually`].

// A test file uses some of these helpers, never all. `pub` here means "for the tests".
#![allow(dead_code, unused_imports, unreachable_pub)]
// A helper that cannot do its work must end the test, and say why.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr)]

pub mod amqp;
mod case;
mod certificates;
mod client;
mod daemon;
mod endurance;
mod eventually;
mod fake_http;
mod gateway;
mod gzip;
mod http;
mod influxd;
mod manager;
mod metrics;
mod network;
mod numbered;
mod proxy;
mod queue_api;
mod rabbitmq;
mod sections;
mod sink;
mod statsd_js;
mod tmpfs;
mod tools;
mod victoria_metrics;

pub use case::{Case, assert_balanced, read_to_end};
pub use certificates::{Authority, Issued, TlsFront, connect, installed};
pub use client::run_client;
pub use daemon::{Daemon, Ended, is_drained, with_output_in};
pub use endurance::size;
pub use eventually::{eventually, eventually_within};
pub use fake_http::{Answer, FakeHttp, Received};
pub use gateway::{Gateway, pointsman};
pub use gzip::gzip;
pub use http::{Http, Reply};
pub use influxd::Influxd;
pub use manager::{Manager, Process, in_kernel, lines};
pub use metrics::Metrics;
pub use network::{Neighbour, in_own_network};
pub use numbered::{Traffic, numbered, numbers_at, numbers_in, post_numbers};
pub use proxy::{Fault, Passage, Proxy};
pub use queue_api::{Answer as Artifact, QueueApi};
pub use rabbitmq::{Publisher, RabbitMq};
pub use sections::{API, STATSD, V1, V2, all_to, api_to_influxdb, influxdb, post};
pub use sink::{TcpSink, UdpSink};
pub use statsd_js::{StatsdJs, StatsdOptions};
pub use tmpfs::Tmpfs;
pub use victoria_metrics::VictoriaMetrics;
