//! Other servers: what they are told to do, where they are installed, and how they are started.
//!
//! `scripts/install-bench-peers.sh` installs them. They cannot be asked which port they took, so
//! each is told one that was free a moment ago.

use crate::address::Address;
use crate::cpu::Cpus;
use crate::server::Server;
use crate::tally::Format;
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

/// A server that is not ours, in one of its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    /// statsd/statsd, which aggregates for Graphite.
    Statsd,
    /// statsd/statsd with its backend `repeater`.
    Repeater,
    /// The crate `statsdproxy`, without any middleware.
    Statsdproxy,
    /// collectd with its plugin `statsd`, for Graphite.
    Collectd,
    /// VictoriaMetrics' agent, which forwards by remote write.
    Vmagent,
}

impl Peer {
    /// What it sends.
    pub const fn format(self) -> Format {
        match self {
            Self::Statsd | Self::Collectd => Format::Graphite,
            Self::Repeater | Self::Statsdproxy => Format::Statsd,
            Self::Vmagent => Format::RemoteWrite,
        }
    }

    /// Whether it is there.
    pub fn is_installed(self, tools: &Path) -> bool {
        let needs_node = self.program().ends_with(".js");
        tools.join(self.program()).exists() && (!needs_node || has_node())
    }

    /// Starts it with all its listeners; it sends to the outlet.
    pub fn start(self, place: &Place<'_>, outlet: SocketAddr) -> Result<Server> {
        let listeners = self.choose_listeners()?;
        let port = |name| {
            listeners.iter().find(|(of, _)| of == name).map_or(0, |(_, at)| at.socket().port())
        };
        let program = place.tools.join(self.program());
        let mut command = match self {
            Self::Statsd | Self::Repeater => {
                let file = place.directory.join("config.json");
                fs::write(&file, self.statsd_configuration(port("statsd"), outlet, place.window))?;
                let mut command = Command::new("node");
                command.arg(program).arg(file);
                command
            }
            Self::Collectd => {
                let file = place.directory.join("collectd.conf");
                fs::write(&file, collectd_configuration(place, port("statsd"), outlet))?;
                let mut command = Command::new(program);
                command.arg("-f").arg("-C").arg(file);
                command
            }
            Self::Statsdproxy => {
                let mut command = Command::new(program);
                command.arg("--listen").arg(format!("127.0.0.1:{}", port("statsd")));
                command.arg("--upstream").arg(outlet.to_string());
                command
            }
            Self::Vmagent => {
                let mut command = Command::new(program);
                let [admin, tsdb, api] = ["admin", "tsdb", "api"].map(port);
                command.args(vmagent_arguments(place.directory, [admin, tsdb, api], outlet));
                command
            }
        };
        Server::start_silent(&mut command, place.directory, place.cpus, listeners)
    }

    /// Under the folder of tools.
    const fn program(self) -> &'static str {
        match self {
            Self::Statsd | Self::Repeater => "node_modules/statsd/stats.js",
            Self::Statsdproxy => "bin/statsdproxy",
            Self::Collectd => "collectd/sbin/collectd",
            Self::Vmagent => "bin/vmagent",
        }
    }

    /// By the names that the gateway's have.
    fn choose_listeners(self) -> Result<Vec<(String, Address)>> {
        let names: &[&str] =
            if self == Self::Vmagent { &["admin", "tsdb", "api"] } else { &["statsd"] };
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        // All are held until all are chosen, lest two be the same.
        if self == Self::Vmagent {
            let held: Vec<_> =
                names.iter().map(|_| TcpListener::bind(any)).collect::<Result<_, _>>()?;
            let named = names.iter().zip(&held);
            return named
                .map(|(name, socket)| Ok(((*name).to_owned(), Address::Tcp(socket.local_addr()?))))
                .collect();
        }
        let free = UdpSocket::bind(any)?.local_addr()?;
        Ok(names.iter().map(|name| ((*name).to_owned(), Address::Udp(free))).collect())
    }

    fn statsd_configuration(self, port: u16, outlet: SocketAddr, window: f64) -> String {
        let (ip, to) = (outlet.ip().to_string(), outlet.port());
        let mut configuration = json!({
            "address": "127.0.0.1",
            "port": port,
            "mgmt_address": "127.0.0.1",
            // A number 0 would be taken for "not set"; the text "0" asks the system for a port.
            "mgmt_port": "0",
            "flushInterval": (window * 1000.0) as u64,
        });
        let backend = if self == Self::Repeater {
            json!({ "backends": ["./backends/repeater"], "repeater": [{ "host": ip, "port": to }] })
        } else {
            json!({
                "backends": ["./backends/graphite"],
                "graphiteHost": ip,
                "graphitePort": to,
                "graphite": { "legacyNamespace": false },
            })
        };
        if let (Some(all), serde_json::Value::Object(more)) =
            (configuration.as_object_mut(), backend)
        {
            all.extend(more);
        }
        configuration.to_string()
    }
}

/// Where and how a peer is started.
pub struct Place<'a> {
    /// The folder that the peers are installed in.
    pub tools: &'a Path,
    /// For its files.
    pub directory: &'a Path,
    pub cpus: Cpus,
    /// Seconds between its flushes, if it aggregates.
    pub window: f64,
}

fn collectd_configuration(place: &Place<'_>, port: u16, outlet: SocketAddr) -> String {
    let (tools, directory) = (place.tools.display(), place.directory.display());
    let (window, ip, to) = (place.window, outlet.ip(), outlet.port());
    format!(
        r#"
Hostname "h"
FQDNLookup false
BaseDir "{directory}"
PIDFile "{directory}/pid"
PluginDir "{tools}/collectd/lib/collectd"
TypesDB "{tools}/collectd/share/collectd/types.db"
Interval {window}
LoadPlugin statsd
LoadPlugin write_graphite
<Plugin statsd>
  Host "127.0.0.1"
  Port "{port}"
  CounterSum true
  TimerPercentile 90
</Plugin>
<Plugin write_graphite>
  <Node "sink">
    Host "{ip}"
    Port "{to}"
    Protocol "tcp"
    StoreRates false
  </Node>
</Plugin>
"#
    )
}

fn vmagent_arguments(directory: &Path, ports: [u16; 3], outlet: SocketAddr) -> Vec<String> {
    let [admin, tsdb, api] = ports;
    vec![
        format!("-httpListenAddr=127.0.0.1:{admin}"),
        format!("-opentsdbListenAddr=127.0.0.1:{tsdb}"),
        format!("-opentsdbHTTPListenAddr=127.0.0.1:{api}"),
        format!("-remoteWrite.url=http://{outlet}/api/v1/write"),
        format!("-remoteWrite.tmpDataPath={}", directory.join("vmagent").display()),
        "-loggerLevel=WARN".to_owned(),
    ]
}

fn has_node() -> bool {
    let mut node = Command::new("node");
    node.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    node.status().is_ok_and(|status| status.success())
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Statsd => "statsd/statsd",
            Self::Repeater => "statsd repeater",
            Self::Statsdproxy => "statsdproxy",
            Self::Collectd => "collectd",
            Self::Vmagent => "vmagent",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_not_there_is_not_installed() {
        let empty = tempfile::tempdir().unwrap();
        for peer in [Peer::Statsd, Peer::Repeater, Peer::Statsdproxy, Peer::Collectd, Peer::Vmagent]
        {
            assert!(!peer.is_installed(empty.path()), "{peer}");
        }
    }

    #[test]
    fn ports_are_free_and_differ() {
        let listeners = Peer::Vmagent.choose_listeners().unwrap();
        let mut ports: Vec<u16> = listeners.iter().map(|(_, at)| at.socket().port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!((listeners.len(), ports.len()), (3, 3));
    }

    #[test]
    fn a_repeater_has_no_other_backend() {
        let outlet = "127.0.0.1:9".parse().unwrap();
        let text = Peer::Repeater.statsd_configuration(8125, outlet, 2.5);
        let configuration: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(configuration["backends"], json!(["./backends/repeater"]));
        assert_eq!(configuration["repeater"], json!([{ "host": "127.0.0.1", "port": 9 }]));
        assert_eq!(configuration["flushInterval"], 2500);
    }
}
