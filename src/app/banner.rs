//! What a person sees at the start: what listens where, and a line to copy for each protocol.

use crate::origin::Protocol;
use crate::plan::Plan;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The banner for listeners bound to those addresses.
pub fn banner(plan: &Plan, addresses: &BTreeMap<String, Vec<String>>, admin: &str) -> String {
    let mut text = format!("pointsman {}\n\n", env!("CARGO_PKG_VERSION"));
    for (name, listener) in &plan.listeners {
        let bound = addresses.get(name).map(Vec::as_slice).unwrap_or_default();
        let protocol = listener.protocol.name();
        let _ = writeln!(text, "  {name:<8} {protocol:<9} {}", bound.join("  "));
        for line in bound.iter().filter_map(|address| example(listener.protocol, address)).take(1) {
            let _ = writeln!(text, "           {line}");
        }
    }
    let backends: Vec<_> = plan
        .backends
        .iter()
        .map(|(name, backend)| format!("{name} ({})", backend.kind.kind()))
        .collect();
    let _ = write!(
        text,
        "\n  backends {}\n  page     http://{admin}/   look:  pointsman query 'demo*'\n  \
         config   pointsman default-config > pointsman.toml; pointsman --config pointsman.toml\n\n",
        backends.join(", ")
    );
    text
}

/// A line to paste into a shell.
fn example(protocol: Protocol, address: &str) -> Option<String> {
    let (transport, place) = address.split_once("://")?;
    let (host, port) = place.rsplit_once(':')?;
    // What listens on all addresses is reached here.
    let host = match host {
        "0.0.0.0" | "[::]" => "127.0.0.1",
        host => host.trim_matches(['[', ']']),
    };
    match (protocol, transport) {
        (Protocol::Statsd, "udp") => {
            Some(format!("echo \"demo.clicks:1|c\" | nc -u -w1 {host} {port}"))
        }
        (Protocol::Opentsdb, "tcp") => {
            Some(format!("echo \"put demo.x $(date +%s) 1 host=a\" | nc -w1 {host} {port}"))
        }
        (Protocol::Http, "tcp") => {
            let host = bracketed(host);
            Some(format!(
                "curl -d '{{\"name\":\"demo.build\",\"compile\":12.5}}' http://{host}:{port}/v1/points"
            ))
        }
        (Protocol::Influxdb, "tcp") => {
            let host = bracketed(host);
            Some(format!("curl -d 'demo,host=a value=1' http://{host}:{port}/write"))
        }
        _ => None,
    }
}

/// As a host is written in a URL.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
