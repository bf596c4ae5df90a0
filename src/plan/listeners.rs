//! Judges listeners and the admin listener: addresses, transports, limits.

use super::Findings;
use crate::config::Sections;
use crate::ingest::{Ack, Config, FileFormat, Glob};
use crate::lane::Settings;
use crate::mistake::Mistake;
use crate::origin::Protocol;
use crate::tls::{Server, ServerSettings};
use crate::units::{Address, Transport};

pub(super) fn judge(sections: &Sections, findings: &mut Findings) {
    if sections.listeners.is_empty() {
        findings.mistakes.push(
            Mistake::new("listeners", "there are no listeners, so nothing could come in")
                .hint("`pointsman default-config` prints some to begin with"),
        );
    }
    findings.names("listeners", sections.listeners.keys());
    if sections.listeners.contains_key("admin") {
        findings.wrong("listeners.admin", "`admin` is the name of the admin listener");
    }
    let mut bound = Vec::new();
    admin(&sections.admin.bind, &mut bound, findings);
    if let Some(tls) = &sections.admin.tls {
        certificate("admin", tls, findings);
    }
    for (name, listener) in &sections.listeners {
        let Some(listener) = listener else { continue };
        let key = format!("listeners.{name}");
        binds(&key, listener, &mut bound, findings);
        limits(&key, listener, findings);
        belongs(&key, listener, findings);
        secures(&key, listener, findings);
        waits(&key, listener, sections, findings);
    }
}

/// A request whose points are folded is answered when their window has closed.
fn waits(key: &str, listener: &Config, sections: &Sections, findings: &mut Findings) {
    let patience = listener.limits.request.0;
    for (name, backend) in sections.backends.iter().filter(|_| listener.ack != Ack::Accepted) {
        let Some(backend) = backend else { continue };
        let settings = Settings::new(name, backend.kind.kind(), &backend.lane);
        if settings.aggregate && settings.flush >= patience {
            let flush = settings.flush;
            let message = format!(
                "backend `{name}` closes a window every {flush:?}: requests that bring counters, \
                 timers, gauges or sets to it may wait longer than `limits.request` ({patience:?}) \
                 and be answered 504"
            );
            findings.odd(format!("{key}.ack"), message);
        }
    }
}

fn admin(bind: &str, bound: &mut Vec<(String, Address)>, findings: &mut Findings) {
    match bind.parse() {
        Ok(place) => bound.push(("admin.bind".to_owned(), Address::Tcp(place))),
        Err(message) => findings.wrong("admin.bind", message),
    }
}

/// `bound` are the addresses so far, and which key asked for each.
fn binds(
    key: &str,
    listener: &Config,
    bound: &mut Vec<(String, Address)>,
    findings: &mut Findings,
) {
    match listener.protocol {
        Protocol::File => return files(key, listener, findings),
        Protocol::Pulse => return,
        Protocol::Statsd | Protocol::Opentsdb | Protocol::Http | Protocol::Influxdb => {}
    }
    findings.wrong_unless(!listener.bind.is_empty(), format!("{key}.bind"), "the list is empty");
    for (i, text) in listener.bind.iter().enumerate() {
        let key = format!("{key}.bind[{i}]");
        match text.parse::<Address>() {
            Err(message) => findings.wrong(key, message),
            Ok(address) => {
                serves(&key, listener.protocol, &address, findings);
                if let Some((other, _)) = bound.iter().find(|(_, other)| other.overlaps(&address)) {
                    findings.wrong(&key, format!("`{address}` is taken by {other} already"));
                }
                bound.push((key, address));
            }
        }
    }
}

/// What is read instead of sockets.
fn files(key: &str, listener: &Config, findings: &mut Findings) {
    let Config { bind, paths, drop, format, prefix, series, .. } = listener;
    if !bind.is_empty() {
        findings.wrong(format!("{key}.bind"), "files are not bound; `paths` or `drop` names them");
    }
    if paths.as_ref().is_none_or(Vec::is_empty) && drop.is_none() {
        let message = "there is nothing to read";
        let hint = "paths = [\"/var/log/task/*.jsonl\"], or drop = \"/var/spool/points\"";
        findings.mistakes.push(Mistake::new(format!("{key}.paths"), message).hint(hint));
    }
    for (i, path) in paths.iter().flatten().enumerate() {
        if let Err(problem) = Glob::compile(path) {
            findings.wrong(format!("{key}.paths[{i}]"), problem);
        }
    }
    let holds = listener.unpacked.is_none_or(|size| size.0 > 0);
    findings.wrong_unless(holds, format!("{key}.unpacked"), "it must be more than zero");
    let marks = matches!(format, Some(FileFormat::Log) | None);
    let is_mark = |text: &str| !text.is_empty() && !text.contains('\n');
    if prefix.as_ref().is_some_and(|prefix| !is_mark(prefix) || !marks) {
        findings.wrong(format!("{key}.prefix"), "it is what marks a line of format = \"log\"");
    }
    // Every point would be refused.
    if series.as_ref().is_some_and(|series| series.contains(char::is_control)) {
        findings.wrong(format!("{key}.series"), "a series' name is a line of text");
    }
}

fn serves(key: &str, protocol: Protocol, address: &Address, findings: &mut Findings) {
    if address.transport().is_datagram() && protocol != Protocol::Statsd {
        let (name, transport) = (protocol.name(), address.transport());
        let message = format!("protocol `{name}` cannot be served over {transport}");
        findings.mistakes.push(Mistake::new(key, message).hint("use tcp:// or unix://"));
    }
}

/// The block is said for the whole listener, so nothing of it may go unencrypted.
fn secures(key: &str, listener: &Config, findings: &mut Findings) {
    let Some(tls) = &listener.tls else { return };
    for (i, text) in listener.bind.iter().enumerate() {
        let Ok(address) = text.parse::<Address>() else { continue };
        if address.transport() != Transport::Tcp {
            let message = format!(
                "this listener has a `tls` block, and {}:// cannot speak TLS",
                address.transport()
            );
            let hint = "move it to a listener of its own, without `tls`";
            findings.mistakes.push(Mistake::new(format!("{key}.bind[{i}]"), message).hint(hint));
        }
    }
    certificate(key, tls, findings);
}

fn certificate(key: &str, settings: &ServerSettings, findings: &mut Findings) {
    findings.files(key, Server::load(settings).map(|(_, oddities)| oddities));
}

fn limits(key: &str, listener: &Config, findings: &mut Findings) {
    let limits = listener.limits;
    let mut positive = |name: &str, holds: bool| {
        findings.wrong_unless(holds, format!("{key}.{name}"), "it must be more than zero");
    };
    positive("limits.line", limits.line.0 > 0);
    positive("limits.body", limits.body.0 > 0);
    positive("limits.connections", limits.connections > 0);
    positive("limits.idle", limits.idle.is_none_or(|idle| !idle.0.is_zero()));
    positive("limits.header", !limits.header.0.is_zero());
    positive("limits.request", !limits.request.0.is_zero());
    positive("limits.tags", limits.tags > 0);
    let idempotency = listener.idempotency();
    positive("idempotency.window", !idempotency.window.0.is_zero());
    positive("idempotency.max_keys", idempotency.max_keys > 0);
    positive("sockets", listener.sockets != Some(0));
    positive("receive_buffer", listener.receive_buffer.is_none_or(|size| size.0 > 0));
}

/// Keys that mean something for one protocol only.
fn belongs(key: &str, listener: &Config, findings: &mut Findings) {
    let mut only_for = |name: &str, protocol: Protocol, is_set: bool| {
        if is_set && listener.protocol != protocol {
            let message = format!("`{name}` is for protocol = \"{}\"", protocol.name());
            findings.wrong(format!("{key}.{name}"), message);
        }
    };
    only_for("dialects", Protocol::Statsd, listener.dialects.is_some());
    only_for("sockets", Protocol::Statsd, listener.sockets.is_some());
    only_for("receive_buffer", Protocol::Statsd, listener.receive_buffer.is_some());
    only_for("strict", Protocol::Opentsdb, listener.strict);
    only_for("paths", Protocol::File, listener.paths.is_some());
    only_for("drop", Protocol::File, listener.drop.is_some());
    only_for("format", Protocol::File, listener.format.is_some());
    only_for("prefix", Protocol::File, listener.prefix.is_some());
    only_for("series", Protocol::File, listener.series.is_some());
    only_for("unpacked", Protocol::File, listener.unpacked.is_some());
    only_for("once", Protocol::File, listener.once);
    let speaks_http = listener.protocol.is_http();
    if listener.idempotency.is_some() && !listener.protocol.remembers() {
        let message = "`idempotency` is for protocols whose requests and messages may come again: \
                       opentsdb, http, influxdb, pulse";
        findings.wrong(format!("{key}.idempotency"), message);
    }
    if listener.ack != Ack::Accepted && !speaks_http {
        let message = "`ack` is for protocols that answer: opentsdb, http, influxdb";
        findings.wrong(format!("{key}.ack"), message);
    }
    if listener.dialects.as_ref().is_some_and(Vec::is_empty) {
        findings.odd(format!("{key}.dialects"), "the list is empty, so no tags are understood");
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{plan_of, refused, warned};

    const ROUTES: &str = "[backends.b]\nkind = \"blackhole\"\n[[routes]]\nto = [\"b\"]\n";

    fn listener(keys: &str) -> String {
        format!("{ROUTES}[listeners.l]\n{keys}\n")
    }

    #[test]
    fn every_transport_that_a_protocol_has() {
        for (protocol, binds) in [
            ("statsd", "'udp://:0', 'tcp://h:1', 'unixgram:///a', 'unix:///b'"),
            ("opentsdb", "'tcp://h:1', 'unix:///b'"),
            ("http", "'tcp://[::1]:1', 'unix:///b'"),
            ("influxdb", "'tcp://h:1', 'unix:///b'"),
        ] {
            let text = listener(&format!("protocol = '{protocol}'\nbind = [{binds}]"));
            assert!(plan_of(&text).is_ok(), "{:?}", plan_of(&text));
        }
    }

    #[test]
    fn what_cannot_be_bound() {
        for (bind, says) in [
            ("[]", "the list is empty"),
            ("['udp://h:1']", "`http` cannot be served over udp (use tcp:// or unix://)"),
            ("['unixgram:///a']", "cannot be served over unixgram"),
            ("['h:1']", "there is no scheme"),
            ("['tcp://h:1', 'tcp://h:1']", "bind[1]: `tcp://h:1` is taken by listeners.l.bind[0]"),
            ("['tcp://127.0.0.1:9102']", "is taken by admin.bind already"),
            ("['tcp://0.0.0.0:9102']", "is taken by admin.bind already"),
        ] {
            refused(&listener(&format!("protocol = 'http'\nbind = {bind}")), &[says]);
        }
        refused(
            &format!(
                "{}[admin]\nbind = 'tcp://h:1'\n",
                listener("protocol='http'\nbind=['tcp://h:2']")
            ),
            &["admin.bind"],
        );
    }

    #[test]
    fn what_a_listener_cannot_have() {
        let http = "protocol = 'http'\nbind = ['tcp://h:1']\n";
        for (keys, says) in [
            ("limits.line = '0B'", &["limits.line: it must be more than zero"][..]),
            ("limits = { idle = '0s', tags = 0 }", &["limits.idle", "limits.tags"]),
            (
                "idempotency = { window = '0s', max_keys = 0 }",
                &["idempotency.window: it must", "idempotency.max_keys: it must"],
            ),
            ("strict = true", &["`strict` is for protocol = \"opentsdb\""]),
            ("sockets = 2", &["`sockets` is for protocol = \"statsd\""]),
            ("ack = 'later'", &["`later` is not one of accepted, queued, delivered"]),
            ("dialects = ['graphite']", &["`dialects` is for protocol = \"statsd\""]),
        ] {
            refused(&listener(&format!("{http}{keys}")), says);
        }
        refused(
            &listener("protocol = 'statsd'\nbind = ['tcp://h:1']\nidempotency = { window = '1h' }"),
            &["idempotency: `idempotency` is for protocols whose requests"],
        );
        let statsd = "protocol = 'statsd'\nbind = ['tcp://h:1']\nack = 'queued'";
        refused(&listener(statsd), &["`ack` is for protocols that answer"]);
        let late = format!("{http}ack = 'queued'\nlimits = {{ request = '5s' }}\n");
        let store = "[backends.s]\nkind = 'store'\n[[routes]]\nto = ['s']\n";
        warned(&(listener(&late) + store), &["backend `s` closes a window every 10s"]);
        warned(
            &listener("protocol = 'statsd'\nbind = ['tcp://h:1']\ndialects = []"),
            &["no tags are understood"],
        );
    }

    #[test]
    fn files_are_read_and_not_bound() {
        for keys in [
            "paths = ['/var/log/*.jsonl']",
            "drop = '/spool'\nformat = 'csv'\nseries = 'p/'",
            "paths = ['/a/{b,c}/d.log']\nformat = 'log'\nprefix = 'STAT'",
        ] {
            let planned = plan_of(&listener(&format!("protocol = 'file'\n{keys}")));
            assert!(planned.is_ok(), "{planned:?}");
        }
        for (keys, says) in [
            ("", &["paths: there is nothing to read (paths = "][..]),
            ("paths = []", &["paths: there is nothing to read"]),
            ("drop = '/a'\nbind = ['tcp://h:1']", &["bind: files are not bound"]),
            ("paths = ['a/b']", &["paths[0]: `a/b` does not begin with a slash"]),
            ("drop = '/a'\nformat = 'csv'\nprefix = 'x'", &["prefix: it is what marks a line"]),
            ("drop = '/a'\nprefix = \"a\\nb\"", &["prefix: it is what marks a line"]),
            ("drop = '/a'\nseries = \"a\\n\"", &["series: a series' name is a line of text"]),
            ("paths = ['/a/**/b']", &["paths[0]: `/a/**/b`: `**` stands for no more than `*`"]),
            ("drop = '/a'\nformat = 'xml'", &["`xml` is not one of jsonl, csv, statsd, log"]),
            ("drop = '/a'\nunpacked = '0B'", &["unpacked: it must be more than zero"]),
            ("drop = '/a'\nack = 'queued'", &["`ack` is for protocols that answer"]),
        ] {
            refused(&listener(&format!("protocol = 'file'\n{keys}")), says);
        }
        let http = "protocol = 'http'\nbind = ['tcp://h:1']\npaths = ['/a']";
        refused(&listener(http), &["`paths` is for protocol = \"file\""]);
        refused(&listener("protocol = 'http'"), &["`bind` is missing"]);
    }

    #[test]
    fn listeners_have_names() {
        let with = |name: &str| {
            format!("{ROUTES}[listeners.{name}]\nprotocol = 'http'\nbind = ['tcp://h:1']\n")
        };
        refused(&with("Statsd"), &["`Statsd` cannot be a name"]);
        refused(&with("9s"), &["`9s` cannot be a name"]);
        refused(&with("admin"), &["the name of the admin listener"]);
        refused(ROUTES, &["there are no listeners"]);
    }
}
