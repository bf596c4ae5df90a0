//! What may be typed.

use crate::address::Address;
use crate::flush;
use crate::pace;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser)]
#[command(name = "load", about = "Offers load whose totals can be checked")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Print the result as a line of JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Print the result as a Markdown table, where it is one
    #[arg(long, global = true, conflicts_with = "json")]
    pub markdown: bool,
}

#[derive(Subcommand)]
pub enum Command {
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
    /// Holds the gateway against other servers, task by task, and checks every sum
    Peers(PeersArguments),
    /// Measures what the disk part of queues costs, before a backend that is well and in an outage
    Spool(SpoolArguments),
    /// Finds the highest rate of datagrams that loses nothing, of the floor and of the gateway
    Search(SearchArguments),
    /// Offers a fixed rate of datagrams through many windows, and checks the sums at the backend
    Flush(FlushArguments),
    /// Measures the memory of each series, and what many of them do to the cost of a point
    Series(SeriesArguments),
    /// Measures a point's cost over the number of series, of routes and of backends
    Scale(ScaleArguments),
    /// Measures what one backend more costs, and what a dead one does to the others
    Fanout(FanoutArguments),
    /// Measures how long a point takes, alone and among a load
    Latency(LatencyArguments),
}

#[derive(Args)]
pub struct StatsdArguments {
    /// udp://host:port or tcp://host:port
    #[arg(long)]
    pub to: Address,
    /// Lines a second: 50000, 300k/s, 1.5M/s; by default 100k/s over UDP and flat out over TCP
    #[arg(long, value_parser = pace::parse_rate)]
    pub rate: Option<f64>,
    /// Lines in a datagram
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub pack: u64,
    /// Add three tags to each line
    #[arg(long)]
    pub tags: bool,
    /// Datagrams that the kernel cuts out of one message, at the most; 1 sends them one by one
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub gso: u64,
    /// Connections over TCP
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub connections: u64,
    #[command(flatten)]
    pub extent: Extent,
}

#[derive(Args)]
pub struct OpentsdbArguments {
    /// tcp://host:port
    #[arg(long)]
    pub to: Address,
    /// Connections
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub connections: u64,
    /// Lines a second; flat out by default
    #[arg(long, value_parser = pace::parse_rate)]
    pub rate: Option<f64>,
    #[command(flatten)]
    pub extent: Extent,
}

#[derive(Args)]
pub struct HttpArguments {
    /// http://host:port/v1/points or http://host:port/api/put
    #[arg(long)]
    pub to: Address,
    /// Connections
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub connections: u64,
    /// Points in a request
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub batch: u64,
    /// Points a second; flat out by default
    #[arg(long, value_parser = pace::parse_rate)]
    pub rate: Option<f64>,
    #[command(flatten)]
    pub extent: Extent,
}

#[derive(Args)]
pub struct BareArguments {
    /// udp://host:port or tcp://host:port; port 0 takes a free one
    #[arg(long)]
    pub listen: Address,
    /// Ends when nothing has come for this many seconds after something has
    #[arg(long, default_value_t = 1.0)]
    pub idle: f64,
    /// Ends after this many seconds
    #[arg(long, default_value_t = 60.0)]
    pub deadline: f64,
}

#[derive(Args)]
pub struct CompareArguments {
    /// The gateway's binary, from a release build
    #[arg(long, default_value = "target/release/pointsman")]
    pub gateway: PathBuf,
    /// One short round: a smoke test, too short for figures
    #[arg(long)]
    pub quick: bool,
    /// Rounds, which take turns; the table shows their medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// How long each load is offered
    #[arg(long, default_value_t = 2.5)]
    pub seconds: f64,
    /// Seconds of a window before an InfluxDB
    #[arg(long, default_value_t = 10.0)]
    pub window: f64,
    /// Distinct series
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub names: u64,
    /// Lines a second at one line a datagram
    #[arg(long, default_value = "300k/s", value_parser = pace::parse_rate)]
    pub pack1_rate: f64,
    /// Lines a second at 25 lines a datagram
    #[arg(long, default_value = "1.5M/s", value_parser = pace::parse_rate)]
    pub pack25_rate: f64,
    /// Leave out the gateway with its embedded store
    #[arg(long)]
    pub no_store: bool,
}

#[derive(Args)]
pub struct PeersArguments {
    /// The gateway's binary, from a release build
    #[arg(long, default_value = "target/release/pointsman")]
    pub gateway: PathBuf,
    /// Where scripts/install-bench-peers.sh has put the others
    #[arg(long, default_value = ".test-tools")]
    pub tools: PathBuf,
    /// Rounds, which take turns; the table shows their medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// How long a load is offered that is summed up in windows; any other, a third of it
    #[arg(long, default_value_t = 12.0)]
    pub seconds: f64,
    /// Seconds of a window, which is a flush of every series
    #[arg(long, default_value_t = 10.0)]
    pub window: f64,
    /// Distinct series
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub names: u64,
    /// The part of the usual rates of datagrams that is offered; less of it on a busy machine
    #[arg(long, default_value_t = 1.0)]
    pub share: f64,
    /// Only tasks whose name has this in it, such as "relayed" or "pack 25"
    #[arg(long, default_value = "")]
    pub only: String,
}

#[derive(Args)]
pub struct SpoolArguments {
    /// The gateway's binary, from a release build
    #[arg(long, default_value = "target/release/pointsman")]
    pub gateway: PathBuf,
    /// Rounds, in each of which all cases take their turn; the table shows medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// For how long each case is offered points
    #[arg(long, default_value_t = 2.5)]
    pub seconds: f64,
    /// Distinct series
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub names: u64,
}

#[derive(Args)]
pub struct SearchArguments {
    /// The gateway's binary, from a release build
    #[arg(long, default_value = "target/release/pointsman")]
    pub gateway: PathBuf,
    /// Distinct series
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub names: u64,
    /// Lines in a datagram; may be given more than once
    #[arg(long, default_values = ["1", "25"], value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub pack: Vec<u64>,
    /// Search only for receivers whose name holds this
    #[arg(long, default_value = "")]
    pub only: String,
}

#[derive(Args)]
pub struct FlushArguments {
    /// The gateway's binary, from a release build
    #[arg(long, default_value = "target/release/pointsman")]
    pub gateway: PathBuf,
    /// Two windows of modest loads: a smoke test
    #[arg(long)]
    pub quick: bool,
    /// Windows of ten seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub windows: u64,
    /// RATE:SERIES; may be given more than once
    #[arg(long = "load", default_values = ["3M/s:10000", "500k/s:1000000"])]
    pub loads: Vec<flush::Offer>,
}

#[derive(Args)]
pub struct SeriesArguments {
    /// The gateway's binary, from a release build
    #[arg(long, default_value = "target/release/pointsman")]
    pub gateway: PathBuf,
    /// A tenth of the series, for a shorter time: a smoke test
    #[arg(long)]
    pub quick: bool,
    /// Distinct series, which are held against ten thousand
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(20_000..=1_000_000))]
    pub series: u64,
}

#[derive(Args)]
pub struct ScaleArguments {
    /// The gateway's binary, from a release build
    #[arg(long, default_value = "target/release/pointsman")]
    pub gateway: PathBuf,
    /// The first points of each curve, for a second: a smoke test
    #[arg(long)]
    pub quick: bool,
    /// Rounds, in each of which all points take their turn; the table shows medians
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// How long each load is offered; those of many series take eleven seconds at least
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// What an earlier run printed as JSON, instead of measuring
    #[arg(long)]
    pub from: Option<PathBuf>,
    /// Write the plots to this directory, as SVG
    #[arg(long)]
    pub plots: Option<PathBuf>,
}

#[derive(Args)]
pub struct FanoutArguments {
    /// The gateway's binary, from a release build
    #[arg(long, default_value = "target/release/pointsman")]
    pub gateway: PathBuf,
    /// A second of each combination: a smoke test
    #[arg(long)]
    pub quick: bool,
    /// Rounds, in each of which all combinations take their turn; the tables show medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// How long each combination is offered points
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
}

#[derive(Args)]
pub struct LatencyArguments {
    /// The gateway's binary, from a release build
    #[arg(long, default_value = "target/release/pointsman")]
    pub gateway: PathBuf,
    /// A few points, and no search for a rate: a smoke test
    #[arg(long)]
    pub quick: bool,
    /// The `flush` of the backends that points are sent to alone, in milliseconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub flush: u64,
    /// Points that are sent alone
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub points: u64,
    /// How long marks are sent among a load
    #[arg(long, default_value_t = 12.0)]
    pub seconds: f64,
    /// Lines a second of that load; by default half of the highest rate that loses nothing
    #[arg(long, value_parser = pace::parse_rate)]
    pub rate: Option<f64>,
}

/// How many series, for how long.
#[derive(Args)]
pub struct Extent {
    /// Distinct series
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub names: u64,
    /// For how long
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
}
