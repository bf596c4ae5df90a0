//! The command line: what can be asked for, and the commands that need no gateway.
//!
//! Exit codes: 0 fine, 1 failed, 2 wrong usage (clap's own), 78 bad configuration.

use crate::clock::Clock;
use crate::config::{self, Inputs};
use crate::dead_letters::command;
use crate::plan::{Plan, Planned};
use crate::printout::Printout;
use crate::{explain, log, logs, query, run, send, stdio, submit};
use clap::{Args, Parser, Subcommand};
use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// What was asked for. Without a command, the gateway runs.
#[derive(Clone, Debug, Parser)]
#[command(name = "pointsman", version, about = ABOUT)]
pub struct Cli {
    /// What to do; `run` if not said.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// For the gateway, when no command is said.
    #[command(flatten)]
    pub run: RunArgs,
    /// For every command.
    #[command(flatten)]
    pub log: LogArgs,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the gateway (the default).
    Run(RunArgs),
    /// Validate a configuration offline and print what it was understood to say.
    Check(RunArgs),
    /// Show what a line would become: the point, every route tried, the bytes each backend gets.
    Explain(ExplainArgs),
    /// Read the embedded store.
    Query(QueryArgs),
    /// Look at what backends have refused for good; replay or purge it.
    DeadLetters(command::Arguments),
    /// Send a test point, or run a command, time it and send that.
    Send(SendArgs),
    /// Submit files of points, JSON lines or CSV, to a gateway; goes on where it was interrupted.
    Submit(submit::Arguments),
    /// Copy a task's log from input to output, and send the points in its marked lines to a gateway.
    Logs(logs::Arguments),
    /// Print the commented configuration that a bare start uses.
    DefaultConfig,
}

impl Command {
    /// Whether it reads a configuration.
    const fn is_configured(&self) -> bool {
        !matches!(self, Self::Send(_) | Self::Submit(_) | Self::Logs(_) | Self::DefaultConfig)
    }
}

/// How the log looks.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// How the log of pointsman itself looks.
    #[arg(long, value_enum, default_value_t, global = true, value_name = "FORMAT")]
    pub log_format: log::Format,
    /// What the log of pointsman itself tells: off, error, warn, info, debug, trace; or for a module:
    /// info,pointsman::lane=debug
    #[arg(long, default_value = "info", global = true, value_name = "LEVEL")]
    #[arg(value_parser = log::level)]
    pub log_level: EnvFilter,
}

/// Which configuration to use.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// A configuration file (.toml, .yaml, .json); several are merged in order
    #[arg(long, short, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Where the embedded store lives
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl RunArgs {
    fn says_something(&self) -> bool {
        !self.config.is_empty() || self.data_dir.is_some()
    }
}

/// What to explain.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// The configuration.
    #[command(flatten)]
    pub run: RunArgs,
    /// The listener that the line would come in at
    #[arg(long, value_name = "NAME")]
    pub listener: String,
    /// The principal that would send it, however it is known; without it, whoever comes by the
    /// listener and proves no more
    #[arg(long, value_name = "NAME")]
    pub principal: Option<String>,
    /// The line; without it, lines are read from standard input
    #[arg(value_name = "LINE")]
    pub line: Option<String>,
}

/// What to read from the store.
#[derive(Clone, Debug, Args)]
pub struct QueryArgs {
    /// The configuration, which says where the store is.
    #[command(flatten)]
    pub run: RunArgs,
    /// The series' name; *, ? and {a,b} stand for others, and /…/ is a regular expression
    #[arg(value_name = "NAME")]
    pub name: String,
    /// From when: "10m" (ago), "2026-01-31T12:00:00Z", seconds since 1970
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Until when, written likewise; until now if not said
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Rows of each series, the newest
    #[arg(long, value_name = "ROWS")]
    pub limit: Option<u32>,
    /// How rows look
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: query::Format,
}

/// What to send.
#[derive(Clone, Debug, Args)]
pub struct SendArgs {
    /// How to say it
    #[arg(value_enum, value_name = "PROTOCOL")]
    pub protocol: send::Protocol,
    /// Where to, as host:port, or for statsd tcp://host:port, for http https://host:port; by default the
    /// protocol's port on this host
    #[arg(long, value_name = "ADDR")]
    pub to: Option<String>,
    /// For https: the roots to trust, in PEM; by default the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// The series' name
    #[arg(long, default_value = "pointsman.test")]
    pub name: String,
    /// The value; of a command, the time it took
    #[arg(long, default_value_t = 1.0, conflicts_with = "command", allow_negative_numbers = true)]
    pub value: f64,
    /// A tag, key=value; may be said again
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    pub tags: Vec<(String, String)>,
    /// A command to run and to time
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Runs what was asked for.
pub fn main(cli: Cli, environment: BTreeMap<String, String>) -> ExitCode {
    let no_color = environment.get("NO_COLOR").is_some_and(|value| !value.is_empty());
    log::start(cli.log.log_format, cli.log.log_level, no_color);
    let variables = environment.clone();
    let inputs = |args: RunArgs| {
        let files = [cli.run.config.clone(), args.config].concat();
        let data_dir = args.data_dir.or_else(|| cli.run.data_dir.clone());
        Inputs { files, data_dir, environment, again: false }
    };
    if !matches!(cli.command, None | Some(Command::Run(_))) {
        run::release_hangups();
    }
    match cli.command {
        None => run(&inputs(RunArgs::default()), cli.log.log_format),
        Some(Command::Run(args)) => run(&inputs(args), cli.log.log_format),
        Some(Command::Check(args)) => check(&inputs(args)),
        Some(Command::Explain(args)) => explain(&inputs(args.run.clone()), &args),
        Some(Command::Query(args)) => query(&inputs(args.run.clone()), &args),
        Some(Command::DeadLetters(args)) => {
            let run = RunArgs { config: args.config.clone(), data_dir: args.data_dir.clone() };
            dead_letters(&inputs(run), args)
        }
        // Silence would let people believe that their file was used.
        Some(command) if !command.is_configured() && cli.run.says_something() => {
            complain(&"error: this command reads no configuration\n");
            ExitCode::from(USAGE)
        }
        Some(Command::Send(args)) => send(args),
        Some(Command::Submit(args)) => show(&submit::run(&args, &variables)),
        Some(Command::Logs(args)) => ExitCode::from(logs::run(&args, &variables)),
        Some(Command::DefaultConfig) => print(config::DEFAULT),
    }
}

/// Validates and prints what was understood.
fn check(inputs: &Inputs) -> ExitCode {
    match Plan::load(inputs) {
        Ok(Planned { plan, warnings }) => {
            if inputs.files.is_empty() {
                complain(&"no --config was given: this is the built-in configuration\n\n");
            }
            complain(&warnings);
            print(&plan.to_string())
        }
        Err(report) => bad_configuration(&report),
    }
}

/// The gateway itself.
fn run(inputs: &Inputs, format: log::Format) -> ExitCode {
    run::run(inputs, format, bad_configuration)
}

/// What lines would become; each is answered on its own, and one that is refused costs exit 1.
fn explain(inputs: &Inputs, args: &ExplainArgs) -> ExitCode {
    let plan = match Plan::load(inputs) {
        Ok(planned) => planned.plan,
        Err(report) => return bad_configuration(&report),
    };
    let mut code = ExitCode::SUCCESS;
    let principal = args.principal.as_deref();
    let story = |line: &[u8]| {
        explain::explain_as(&plan, &args.listener, principal, line, Clock::System.now())
    };
    let mut tell = |line: &[u8]| match story(line) {
        Ok(text) if print(&text) == ExitCode::SUCCESS => {}
        Ok(_) => code = ExitCode::FAILURE,
        Err(problem) => {
            complain(&format_args!("error: {problem}\n"));
            code = ExitCode::FAILURE;
        }
    };
    match &args.line {
        Some(line) => tell(line.as_bytes()),
        None => io::stdin().lock().split(b'\n').map_while(Result::ok).for_each(|line| tell(&line)),
    }
    code
}

/// Rows of the embedded store.
fn query(inputs: &Inputs, args: &QueryArgs) -> ExitCode {
    let data_dir = match Plan::load(inputs) {
        Ok(planned) => planned.plan.data_dir,
        Err(report) => return bad_configuration(&report),
    };
    let options = query::Options {
        data_dir,
        name: args.name.clone(),
        since: args.since.clone(),
        until: args.until.clone(),
        limit: args.limit,
        format: args.format,
    };
    show(&query::run(&options, Clock::System.now()))
}

/// What backends have refused.
fn dead_letters(inputs: &Inputs, args: command::Arguments) -> ExitCode {
    let plan = match Plan::load(inputs) {
        Ok(planned) => planned.plan,
        Err(report) => return bad_configuration(&report),
    };
    // Whoever names a gateway and no more, perhaps of another host, asks about that one.
    let is_about_gateway =
        args.admin.is_some() && inputs.data_dir.is_none() && inputs.files.is_empty();
    let options = command::Options {
        admin: args.admin.unwrap_or_else(|| match plan.admin.tls {
            Some(_) => plan.admin.url(),
            None => plan.admin.bind,
        }),
        ca: args.ca,
        data_dir: (!is_about_gateway).then_some(plan.data_dir),
        format: args.format,
        task: args.task.into(),
    };
    show(&command::run(&options))
}

fn send(args: SendArgs) -> ExitCode {
    let message = send::Message {
        protocol: args.protocol,
        to: args.to,
        ca: args.ca,
        name: args.name,
        value: args.value,
        tags: args.tags,
        command: args.command,
    };
    match send::send(&message) {
        // What a command prints is its own affair.
        Ok(sent) if message.command.is_empty() => print(&sent.to_string()),
        Ok(sent) => ExitCode::from(sent.status),
        // It may be in the peer's words.
        Err(problem) => show(&Printout::failed(1, &problem)),
    }
}

/// Says what is wrong with a configuration.
pub fn bad_configuration(report: &config::Report) -> ExitCode {
    complain(report);
    ExitCode::from(EX_CONFIG)
}

/// Writes to standard error, where nobody may be listening.
fn complain(text: &impl std::fmt::Display) {
    let _ = write!(io::stderr().lock(), "{text}");
}

/// Says what a command has to say. Success that could not be told is none.
fn show(printout: &Printout) -> ExitCode {
    complain(&printout.err);
    match print(&printout.out) {
        told if printout.status == 0 => told,
        _ => ExitCode::from(printout.status),
    }
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    let written = stdio::output().and_then(|()| out.write_all(text.as_bytes()));
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format_args!("error: standard output: {error}\n"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

const ABOUT: &str = "Takes metrics in by any old protocol and sends each to the backends that the \
                     routing table names";

/// As clap's own.
const USAGE: u8 = 2;

/// `EX_CONFIG` of sysexits.h.
const EX_CONFIG: u8 = 78;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(words: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("pointsman").chain(words.split_whitespace()))
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_may_be_asked() {
        for words in [
            "",
            "--config a.toml --config b.yaml --data-dir d",
            "run -c a.toml --log-format json",
            "--log-level debug check --config a.toml",
            "explain --listener statsd a:1|c",
            "explain -c a.toml --listener statsd",
            "query demo.x --since 1h --format csv",
            "dead-letters list --backend b --reason rejected --limit 9 --admin 127.0.0.1:1",
            "dead-letters show 7 --format json -c a.toml",
            "dead-letters -c a.toml replay",
            "dead-letters purge --id 7 --id 8 --before 1h",
            "dead-letters purge --all",
            "submit a.csv b.jsonl.gz --to http://h:1 --prefix p/ --wait --timeout 5m --report json",
            "submit - --format csv --series s --state d --token-file t --again",
            "logs",
            "logs --prefix STAT --series-prefix p/ --grace 0s --to h:1 --token-file t",
            "send statsd --to 127.0.0.1:1 --tag a=b --value -2.5",
            "send http --name build.time -- make all",
            "default-config",
        ] {
            assert!(parse(words).is_ok(), "{words}: {:?}", parse(words).err());
        }
    }

    #[test]
    fn wrong_usage_is_exit_code_2() {
        for words in [
            "--confg x",
            "explain a:1|c",
            "query",
            "query x --format xml",
            "dead-letters",
            "dead-letters show",
            "dead-letters purge --all --backend b",
            "submit",
            "submit a.csv --timeout soon",
            "logs a.log",
            "send graphite",
            "send statsd --tag a",
            "check --log-level loud",
            "nonsense",
        ] {
            assert_eq!(parse(words).unwrap_err().exit_code(), 2, "{words}");
        }
    }
}
