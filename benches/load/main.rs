//! Offers load whose totals can be checked, and compares a gateway with the bare kernel.
//!
//! `cargo run --release --example load -- --help`; `benches/README.md` explains how to read
//! the results. It owns senders (`statsd`, `tcp`, `http`), the floor (`bare`) and the
//! comparison (`compare`). Plain threads and blocking sockets: a generator with a runtime of
//! its own would measure that too.

#![allow(unreachable_pub)] // A program has no outside.

mod address;
mod bare;
mod compare;
mod cpu;
mod gateway;
mod http;
mod kernel;
mod mix;
mod pace;
mod report;
mod search;
mod server;
mod statsd;
mod tcp;
mod trial;

use address::Address;
use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use mix::Form;
use report::Sent;
use std::path::PathBuf;
use std::time::Duration;
use trial::{Bench, Load, Subject};

#[derive(Parser)]
#[command(name = "load", about = "Offers load whose totals can be checked")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print the result as a line of JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Sends statsd lines over UDP, or over TCP
    Statsd(StatsdArguments),
    /// Sends OpenTSDB puts over TCP
    Opentsdb(OpentsdbArguments),
    /// Sends JSON points, or with the path /api/put those of OpenTSDB
    Http(HttpArguments),
    /// Receives and counts, and nothing else: the floor under every gateway
    Bare(BareArguments),
    /// Compares the gateway with the floor, load by load, and checks its ledger
    Compare(CompareArguments),
    /// Finds the highest rate of datagrams that loses nothing, of the floor and of the gateway
    Search(SearchArguments),
}

#[derive(Args)]
struct StatsdArguments {
    /// udp://host:port or tcp://host:port
    #[arg(long)]
    to: Address,
    /// Lines a second: 50000, 300k/s, 1.5M/s; by default 100k/s over UDP and flat out over TCP
    #[arg(long, value_parser = pace::parse_rate)]
    rate: Option<f64>,
    /// Lines in a datagram
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pack: u64,
    /// Add three tags to each line
    #[arg(long)]
    tags: bool,
    /// Datagrams that the kernel cuts out of one message, at the most; 1 sends them one by one
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=64))]
    gso: u64,
    /// Connections over TCP
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    connections: u64,
    #[command(flatten)]
    extent: Extent,
}

#[derive(Args)]
struct OpentsdbArguments {
    /// tcp://host:port
    #[arg(long)]
    to: Address,
    /// Connections
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=256))]
    connections: u64,
    /// Lines a second; flat out by default
    #[arg(long, value_parser = pace::parse_rate)]
    rate: Option<f64>,
    #[command(flatten)]
    extent: Extent,
}

#[derive(Args)]
struct HttpArguments {
    /// http://host:port/v1/points or http://host:port/api/put
    #[arg(long)]
    to: Address,
    /// Connections
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    connections: u64,
    /// Points in a request
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    batch: u64,
    /// Points a second; flat out by default
    #[arg(long, value_parser = pace::parse_rate)]
    rate: Option<f64>,
    #[command(flatten)]
    extent: Extent,
}

#[derive(Args)]
struct BareArguments {
    /// udp://host:port or tcp://host:port; port 0 takes a free one
    #[arg(long)]
    listen: Address,
    /// Ends when nothing has come for this many seconds after something has
    #[arg(long, default_value_t = 1.0)]
    idle: f64,
    /// Ends after this many seconds
    #[arg(long, default_value_t = 60.0)]
    deadline: f64,
}

#[derive(Args)]
struct CompareArguments {
    /// The gateway's binary, from a release build
    #[arg(long, default_value = "target/release/pointsman")]
    gateway: PathBuf,
    /// One short round: a smoke test, too short for figures
    #[arg(long)]
    quick: bool,
    /// Rounds, which take turns; the table shows their medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// How long each load is offered
    #[arg(long, default_value_t = 2.5)]
    seconds: f64,
    /// Distinct series
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    names: u64,
    /// Lines a second at one line a datagram
    #[arg(long, default_value = "300k/s", value_parser = pace::parse_rate)]
    pack1_rate: f64,
    /// Lines a second at 25 lines a datagram
    #[arg(long, default_value = "1.5M/s", value_parser = pace::parse_rate)]
    pack25_rate: f64,
    /// Leave out the gateway with its embedded store
    #[arg(long)]
    no_store: bool,
}

#[derive(Args)]
struct SearchArguments {
    /// The gateway's binary, from a release build
    #[arg(long, default_value = "target/release/pointsman")]
    gateway: PathBuf,
    /// Distinct series
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    names: u64,
}

/// How many series, for how long.
#[derive(Args)]
struct Extent {
    /// Distinct series
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    names: u64,
    /// For how long
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
}

fn main() -> Result<()> {
    let Arguments { command, json } = Arguments::parse();
    match command {
        Command::Statsd(arguments) => report::print(&send_statsd(&arguments)?, json),
        Command::Opentsdb(arguments) => report::print(&send_opentsdb(&arguments)?, json),
        Command::Http(arguments) => report::print(&send_http(&arguments)?, json),
        Command::Bare(BareArguments { listen, idle, deadline }) => {
            let [idle, deadline] = [idle, deadline].map(Duration::from_secs_f64);
            report::print(&bare::receive(&listen, idle, deadline)?, json)
        }
        Command::Compare(arguments) => compare(arguments, json),
        Command::Search(SearchArguments { gateway, names }) => {
            let bench = Bench { gateway, cpus: cpu::Cpus::allowed()?, names, seconds: 1.0 };
            let subjects = [Subject::Bare, Subject::Blackhole];
            report::print(&search::search(&bench, &[(1, 100e3), (25, 500e3)], &subjects)?, json)
        }
    }
}

fn send_statsd(arguments: &StatsdArguments) -> Result<Sent> {
    let StatsdArguments { to, rate, pack, tags, gso, connections, extent } = arguments;
    let (names, seconds) = (extent.names, extent.seconds);
    match to {
        Address::Udp(to) => {
            let rate = rate.unwrap_or(DATAGRAM_RATE);
            let (pack, tags, gso) = (*pack, *tags, *gso);
            statsd::send(*to, statsd::Offer { names, pack, tags, rate, seconds, gso })
        }
        Address::Tcp(to) => {
            let form = Form::Statsd { tags: *tags };
            let (connections, rate) = (*connections, *rate);
            tcp::send(*to, tcp::Offer { form, names, connections, rate, seconds })
        }
        Address::Http { .. } => bail!("statsd goes to udp:// or tcp://"),
    }
}

fn send_opentsdb(arguments: &OpentsdbArguments) -> Result<Sent> {
    let OpentsdbArguments { to: Address::Tcp(to), connections, rate, extent } = arguments else {
        bail!("puts go to tcp://; for /api/put there is `load http`");
    };
    let offer = tcp::Offer {
        form: Form::Put,
        names: extent.names,
        connections: *connections,
        rate: *rate,
        seconds: extent.seconds,
    };
    tcp::send(*to, offer)
}

fn send_http(arguments: &HttpArguments) -> Result<Sent> {
    let Address::Http { socket, path } = &arguments.to else { bail!("points go to http://") };
    let offer = http::Offer {
        names: arguments.extent.names,
        connections: arguments.connections,
        batch: usize::try_from(arguments.batch)?,
        rate: arguments.rate,
        seconds: arguments.extent.seconds,
    };
    http::send(*socket, path, offer)
}

fn compare(arguments: CompareArguments, json: bool) -> Result<()> {
    let CompareArguments { gateway, quick, names, pack1_rate, pack25_rate, .. } = arguments;
    let (rounds, seconds) = if quick { (1, 0.7) } else { (arguments.rounds, arguments.seconds) };
    let bench = Bench { gateway, cpus: cpu::Cpus::allowed()?, names, seconds };
    let loads = [
        Load::Datagrams { pack: 1, rate: pack1_rate },
        Load::Datagrams { pack: 25, rate: pack25_rate },
        Load::Put,
        Load::Points,
        Load::ApiPut,
    ];
    let gateways: &[Subject] = if arguments.no_store {
        &[Subject::Blackhole]
    } else {
        &[Subject::Blackhole, Subject::Store]
    };
    let comparison = compare::compare(&bench, &loads, gateways, rounds)?;
    report::print(&comparison, json)?;
    if !comparison.is_exact() {
        bail!("the books do not tell of every point that was sent");
    }
    Ok(())
}

/// Modest: over UDP "flat out" would only measure what is lost.
const DATAGRAM_RATE: f64 = 100_000.0;
