//! The `pointsman` binary.

use clap::Parser as _;
use pointsman::{cli, config, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run::hold_hangups();
    cli::main(cli::Cli::parse(), config::environment())
}
