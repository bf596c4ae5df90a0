//! `pointsman submit FILE…`: points from files, to a gateway.
//!
//! ```text
//! thread: file ─► decompressed ─► rows ─► batches ─► at most two wait ─► requests ─► progress
//! ```
//!
//! A file of JSON lines or a table (CSV) is read once, in constant memory, and sent as JSON lines to
//! `/v1/points`. The key of each request follows from the file, the place in it and the options, and
//! the progress is kept beside the file. So a run that was interrupted, in whatever way, is resumed where
//! it was, and no point counts twice. The exit status is 0 if every line was accepted, 1 if not, and 2 for
//! wrong usage.

mod batch;
mod batches;
mod book;
mod convoy;
mod form;
mod format;
mod meter;
mod progress;
mod report;
mod shipment;
mod source;
mod submission;
mod totals;

pub use format::Format;

use crate::client::Place;
use crate::printout::Printout;
use crate::units::Span;
use crate::whole_file::outlive_file_limit;
use clap::{Args, ValueEnum};
use report::Report;
use std::collections::BTreeMap;
use std::path::PathBuf;
use submission::Submission;

/// What to submit.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// Files of JSON lines (.jsonl, .ndjson, .json) or tables (.csv), perhaps compressed (.gz); `-`
    /// is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Where to.
    #[command(flatten)]
    pub place: Place,
    /// What the files are, if their names do not say so
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Stands before the name of every series
    #[arg(long, default_value = "", value_name = "PREFIX", hide_default_value = true)]
    pub prefix: String,
    /// The series of tables without a column `name`; by default as the file is called
    #[arg(long, value_name = "NAME")]
    pub series: Option<String>,
    /// Wait until every backend has the points
    #[arg(long)]
    pub wait: bool,
    /// How long one request is tried
    #[arg(long, default_value = "60s", value_parser = Span::parse, value_name = "SPAN")]
    pub timeout: Span,
    /// Where it is kept how far each file is; by default beside it
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Submit files once more that were submitted, whatever is known of them
    #[arg(long)]
    pub again: bool,
    /// How the report looks
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub report: Look,
}

/// How the report looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Look {
    /// For people.
    #[default]
    Text,
    /// One object.
    Json,
}

/// Runs the command; blocks.
pub fn run(arguments: &Arguments, environment: &BTreeMap<String, String>) -> Printout {
    let submission = match Submission::new(arguments, environment) {
        Ok(submission) => submission,
        Err(usage) => return Printout::failed(USAGE, &usage),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let reports = match runtime {
        Ok(runtime) => runtime.block_on(async {
            outlive_file_limit();
            submission.all().await
        }),
        Err(error) => return Printout::failed(FAILED, &error.to_string()),
    };
    let out = match arguments.report {
        Look::Text => reports.iter().map(Report::text).collect(),
        Look::Json => report::json(&reports),
    };
    let well = reports.iter().all(Report::all_is_well) && reports.len() == submission.files();
    Printout { out, err: String::new(), status: if well { 0 } else { FAILED } }
}

const USAGE: u8 = 2;
const FAILED: u8 = 1;
