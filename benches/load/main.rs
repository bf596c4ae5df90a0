//! Offers load whose totals can be checked, and compares a gateway with the bare kernel.
//!
//! `cargo run --release --example load -- --help`; `benches/README.md` explains how to read
//! the results. It owns senders (`statsd`, `tcp`, `http`), the floor (`bare`) and the
//! comparison (`compare`). Plain threads and blocking sockets: a generator with a runtime of
//! its own would measure that too.

#![allow(unreachable_pub)] // A program has no outside.

mod address;
mod arena;
mod arguments;
mod bare;
mod compare;
mod cpu;
mod echo;
mod fanout;
mod flush;
mod gateway;
mod http;
mod kernel;
mod latency;
mod ledger;
mod lines;
mod mix;
mod outlet;
mod pace;
mod peer;
mod peers;
mod plots;
mod promise;
mod report;
mod scale;
mod search;
mod series;
mod server;
mod shelf;
mod sink;
mod spool;
mod stand;
mod statsd;
mod table;
mod tally;
mod task;
mod tcp;
mod trial;
mod verdict;

use address::Address;
use anyhow::{Result, bail};
use arena::Arena;
use arguments::{Arguments, BareArguments, Command, CompareArguments, FanoutArguments};
use arguments::{FlushArguments, HttpArguments, LatencyArguments, OpentsdbArguments};
use arguments::{PeersArguments, ScaleArguments, SearchArguments, SeriesArguments};
use arguments::{SpoolArguments, StatsdArguments};
use clap::Parser as _;
use mix::Form;
use report::Sent;
use stand::Host;
use std::time::Duration;
use table::Style;
use task::TASKS;
use trial::{Bench, Load, Subject};

fn main() -> Result<()> {
    let Arguments { command, json, markdown } = Arguments::parse();
    let style = match (json, markdown) {
        (true, _) => Style::Json,
        (_, true) => Style::Markdown,
        _ => Style::Text,
    };
    match command {
        Command::Statsd(arguments) => report::print(&send_statsd(&arguments)?, json),
        Command::Opentsdb(arguments) => report::print(&send_opentsdb(&arguments)?, json),
        Command::Http(arguments) => report::print(&send_http(&arguments)?, json),
        Command::Bare(BareArguments { listen, idle, deadline }) => {
            let [idle, deadline] = [idle, deadline].map(Duration::from_secs_f64);
            report::print(&bare::receive(&listen, idle, deadline)?, json)
        }
        Command::Compare(arguments) => compare(arguments, json),
        Command::Peers(arguments) => hold_against_peers(arguments, style),
        Command::Spool(SpoolArguments { gateway, rounds, seconds, names }) => {
            let bench =
                Bench { gateway, cpus: cpu::Cpus::allowed()?, names, seconds, window: 10.0 };
            report::print(&spool::measure(&bench, rounds)?, json)
        }
        Command::Search(SearchArguments { gateway, names, pack, only }) => {
            let bench =
                Bench { gateway, cpus: cpu::Cpus::allowed()?, names, seconds: 1.0, window: 10.0 };
            table::print(&search::search(&search::receivers(&bench, &only), &pack)?, style)
        }
        Command::Flush(arguments) => flush(arguments, style),
        Command::Series(SeriesArguments { gateway, quick, series }) => {
            let many = if quick { 100_000 } else { series };
            table::print(&series::measure(&Host::of(gateway)?, many, quick)?, style)
        }
        Command::Scale(arguments) => scale(arguments, style),
        Command::Fanout(FanoutArguments { gateway, quick, rounds, seconds }) => {
            let (rounds, seconds) = if quick { (1, 1.0) } else { (rounds, seconds) };
            table::print(&fanout::measure(&Host::of(gateway)?, rounds, seconds)?, style)
        }
        Command::Latency(arguments) => latency(arguments, style),
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
    let CompareArguments { gateway, quick, names, window, pack1_rate, pack25_rate, .. } = arguments;
    let (rounds, seconds) = if quick { (1, 0.7) } else { (arguments.rounds, arguments.seconds) };
    let window = if quick { 1.0 } else { window };
    let bench = Bench { gateway, cpus: cpu::Cpus::allowed()?, names, seconds, window };
    let loads = [
        Load::Datagrams { pack: 1, rate: pack1_rate },
        Load::Datagrams { pack: 25, rate: pack25_rate },
        Load::Put,
        Load::Points,
        Load::ApiPut,
    ];
    let gateways: &[Subject] = if arguments.no_store {
        &[Subject::Influxdb]
    } else {
        &[Subject::Influxdb, Subject::Store]
    };
    let comparison = compare::compare(&bench, &loads, gateways, rounds)?;
    report::print(&comparison, json)?;
    if !comparison.is_exact() {
        bail!("the books do not tell of every point that was sent");
    }
    Ok(())
}

fn hold_against_peers(arguments: PeersArguments, style: Style) -> Result<()> {
    let PeersArguments { gateway, tools, rounds, seconds, window, names, share, only } = arguments;
    let bench = Bench { gateway, cpus: cpu::Cpus::allowed()?, names, seconds, window };
    // Servers are started from where they are told, not from here.
    let tools = tools.canonicalize().unwrap_or(tools);
    let arena = Arena { bench: &bench, tools: &tools, share };
    let tasks = TASKS.into_iter().filter(|task| task.to_string().contains(&only));
    let contests = peers::measure(&arena, &tasks.collect::<Vec<_>>(), rounds)?;
    table::print(&contests, style)?;
    if !contests.is_exact() {
        bail!("what came out of the gateway is not what was sent");
    }
    Ok(())
}

fn flush(arguments: FlushArguments, style: Style) -> Result<()> {
    let FlushArguments { gateway, quick, windows, loads } = arguments;
    let host = Host::of(gateway)?;
    let modest = [(200e3, 10_000), (200e3, 100_000)];
    let modest = modest.map(|(rate, names)| flush::Offer { rate, names });
    let flushes = match quick {
        true => flush::measure(&host, &modest, 2)?,
        false => flush::measure(&host, &loads, windows)?,
    };
    table::print(&flushes, style)?;
    if !flushes.is_exact() {
        bail!("the backend has not what was sent");
    }
    Ok(())
}

fn scale(arguments: ScaleArguments, style: Style) -> Result<()> {
    let ScaleArguments { gateway, quick, rounds, seconds, from, plots } = arguments;
    let extent = match quick {
        true => scale::Extent { rounds: 1, seconds: 1.0, series_max: 10_000 },
        false => scale::Extent { rounds, seconds, series_max: u64::MAX },
    };
    let scale = match from {
        Some(path) => scale::Scale::read(&path)?,
        None => scale::measure(&Host::of(gateway)?, extent)?,
    };
    plots.map_or(Ok(()), |directory| scale.plot(&directory))?;
    table::print(&scale, style)
}

fn latency(arguments: LatencyArguments, style: Style) -> Result<()> {
    let LatencyArguments { gateway, quick, flush, points, seconds, rate } = arguments;
    let flush = Duration::from_millis(flush);
    let extent = match quick {
        true => latency::Extent { flush, points: 20, seconds: 2.0, rate: rate.or(Some(100e3)) },
        false => latency::Extent { flush, points, seconds, rate },
    };
    table::print(&latency::measure(&Host::of(gateway)?, extent)?, style)
}

/// Modest: over UDP "flat out" would only measure what is lost.
const DATAGRAM_RATE: f64 = 100_000.0;
