//! Pointsman: a metrics gateway and multiplexer.
//!
//! Bytes become points, points are routed once on the task that received them, and each
//! backend has its own lane that nobody else can slow down. See `ARCHITECTURE.md`.
//!
//! Modules in reading order: the points' way in ([`net`], [`ingest`]), through the gate
//! ([`access`]) and the table ([`route`]) into lanes ([`lane`]) and out ([`backend`], [`store`]);
//! what is counted ([`books`]) and shown ([`telemetry`], [`admin`], [`query`], [`dead_letters`],
//! [`errors`]); what is configured ([`config`], [`plan`]); what ties them together ([`app`], [`run`], [`cli`]);
//! and the small things that all of them stand on.

pub mod net;

pub mod ingest;

pub mod access;

pub mod route;

pub mod lane;

pub mod backend;
pub mod store;

pub mod books;

pub mod admin;
pub mod dead_letters;
pub mod errors;
pub mod query;
pub mod telemetry;

pub mod config;
pub mod plan;

pub mod explain;

pub mod app;
pub mod cli;
pub mod run;

pub mod client;
pub mod logs;
pub mod send;
pub mod submit;

pub mod clock;
mod database;
pub mod escape;
mod file_id;
mod gzip;
pub mod http_client;
pub mod log;
pub mod log_limit;
pub mod mistake;
pub mod notify;
pub mod origin;
pub mod pattern;
pub mod plural;
pub mod printout;
pub mod small_file;
pub mod stdio;
pub mod tls;
pub mod units;
pub mod waybill;
pub mod when;
mod whole_file;
