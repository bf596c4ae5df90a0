//! The `pointsman` binary.

use clap::Parser as _;
use pointsman::{cli, config};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(cli::Cli::parse(), config::environment())
}
