//! Pointsman: a metrics gateway and multiplexer.
//!
//! Bytes become points, points are routed once on the task that received them, and each
//! backend has its own lane that nobody else can slow down. See `ARCHITECTURE.md`.

pub mod address;
pub mod admin;
pub mod backend;
pub mod books;
pub mod clock;
pub mod config;
pub mod ingest;
pub mod lane;
pub mod log_limit;
pub mod net;
pub mod query;
pub mod route;
pub mod store;
pub mod telemetry;
pub mod units;
