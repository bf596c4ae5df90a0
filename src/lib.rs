//! Pointsman: a metrics gateway and multiplexer.
//!
//! Bytes become points, points are routed once on the task that received them, and each
//! backend has its own lane that nobody else can slow down. See `ARCHITECTURE.md`.

pub mod admin;
pub mod backend;
pub mod books;
pub mod cli;
pub mod clock;
pub mod config;
pub mod ingest;
pub mod lane;
pub mod log;
pub mod plan;
pub mod route;
pub mod units;
