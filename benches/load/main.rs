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
mod gateway;
mod http;
mod kernel;
mod mix;
mod outlet;
mod pace;
mod peer;
mod peers;
mod promise;
mod report;
mod search;
mod server;
mod sink;
mod spool;
mod statsd;
mod tally;
mod task;
mod tcp;
mod trial;
mod verdict;

use address::Address;
use anyhow::{Result, bail};
use arena::Arena;
use arguments::{Arguments, BareArguments, Command, CompareArguments, HttpArguments};
use arguments::{
    OpentsdbArguments, PeersArguments, SearchArguments, SpoolArguments, StatsdArguments,
};
use clap::Parser as _;
use mix::Form;
use report::Sent;
use std::time::Duration;
use task::TASKS;
use trial::{Bench, Load, Subject};

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
        Command::Peers(arguments) => hold_against_peers(arguments, json),
        Command::Spool(SpoolArguments { gateway, rounds, seconds, names }) => {
            let bench =
                Bench { gateway, cpus: cpu::Cpus::allowed()?, names, seconds, window: 10.0 };
            report::print(&spool::measure(&bench, rounds)?, json)
        }
        Command::Search(SearchArguments { gateway, names }) => {
            let bench =
                Bench { gateway, cpus: cpu::Cpus::allowed()?, names, seconds: 1.0, window: 10.0 };
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

fn hold_against_peers(arguments: PeersArguments, json: bool) -> Result<()> {
    let PeersArguments { gateway, tools, rounds, seconds, window, names, share, only, markdown } =
        arguments;
    let bench = Bench { gateway, cpus: cpu::Cpus::allowed()?, names, seconds, window };
    // Servers are started from where they are told, not from here.
    let tools = tools.canonicalize().unwrap_or(tools);
    let arena = Arena { bench: &bench, tools: &tools, share };
    let tasks = TASKS.into_iter().filter(|task| task.to_string().contains(&only));
    let contests = peers::measure(&arena, &tasks.collect::<Vec<_>>(), rounds)?;
    if markdown {
        report::say(&contests.markdown())?;
    } else {
        report::print(&contests, json)?;
    }
    if !contests.is_exact() {
        bail!("what came out of the gateway is not what was sent");
    }
    Ok(())
}

/// Modest: over UDP "flat out" would only measure what is lost.
const DATAGRAM_RATE: f64 = 100_000.0;
