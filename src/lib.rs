//! Pointsman: a metrics gateway and multiplexer.
//!
//! Bytes become points, points are routed once on the task that received them, and each
//! backend has its own lane that nobody else can slow down. See `ARCHITECTURE.md`.
//!
//! Modules in reading order: the points' way in ([`net`], [`ingest`]), through the table
//! ([`route`]) into lanes ([`lane`]) and out ([`backend`], [`store`]); what is counted
//! ([`books`], [`telemetry`], [`admin`]); what is configured ([`config`], [`plan`]); and what
//! ties them together ([`app`], [`cli`]).

pub mod net;

pub mod ingest;

pub mod route;

pub mod lane;

pub mod backend;
pub mod store;

pub mod admin;
pub mod books;
pub mod telemetry;

pub mod config;
pub mod plan;
pub mod units;

pub mod app;
pub mod cli;
pub mod clock;
pub mod explain;

pub mod log;
pub mod log_limit;
pub mod notify;
pub mod query;
pub mod run;
pub mod send;
