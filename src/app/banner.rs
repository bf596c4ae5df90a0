//! What a person sees at the start: what listens where, and a line to copy for each protocol.

use crate::access::{Access, Gate, Meters, Proof};
use crate::backend;
use crate::ingest::Config;
use crate::origin::Protocol;
use crate::plan::Plan;
use protocols::{Batch, Measure};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// How the gateway was started, so that what is to be copied works in the same directory.
#[derive(Clone, Copy, Debug)]
pub struct Started<'a> {
    /// What was typed to start it.
    pub program: &'a str,
    /// Its configuration; none is the built-in one.
    pub files: &'a [PathBuf],
}

/// The banner for listeners bound to those addresses.
pub fn banner(
    plan: &Plan,
    addresses: &BTreeMap<String, Vec<String>>,
    admin: &str,
    started: Started<'_>,
) -> String {
    let mut text = Text::new(plan);
    write_listeners(plan, addresses, &mut text);
    text.written.push('\n');
    let backends = plan.backends.iter();
    let backends: Vec<_> =
        backends.map(|(name, backend)| format!("{name} ({})", backend.kind.kind())).collect();
    text.row(BACKENDS, &backends.join(", "));
    let program = quoted(started.program);
    if !plan.principals.is_empty() {
        let names: Vec<_> = plan.principals.keys().map(String::as_str).collect();
        let configs = started.files.iter().map(|file| format!(" --config {}", path(file)));
        let configs: String = configs.collect();
        text.row(PRINCIPALS, &names.join(", "));
        text.more(&format!("{program} check{configs}    # who may write what"));
    }
    let scheme = if plan.admin.tls.is_some() { "https" } else { "http" };
    let page = format!("{scheme}://{admin}/");
    text.row("page", &page);
    if plan.backends.values().any(|backend| matches!(backend.kind, backend::Config::Store(_))) {
        let directory = match plan.data_dir.as_path() {
            usual if usual == Path::new("./pointsman-data") => String::new(),
            other => format!(" --data-dir {}", path(other)),
        };
        text.row("look", &format!("{program} query{directory} 'demo*'"));
    }
    write_configuration(&program, started.files, &page, &mut text);
    text.written.push('\n');
    text.written
}

/// Rows of a label and what there is to say of it, which begins in one column.
struct Text {
    written: String,
    /// Of every label.
    width: usize,
}

impl Text {
    fn new(plan: &Plan) -> Self {
        let principals = Some(PRINCIPALS).filter(|_| !plan.principals.is_empty());
        let labels = plan.listeners.keys().map(String::as_str).chain(principals);
        let widths = labels.map(|label| label.chars().count());
        let width = widths.chain([BACKENDS.len()]).max().unwrap_or(0);
        Self { written: format!("pointsman {}\n\n", env!("CARGO_PKG_VERSION")), width }
    }

    // Writing to a text does not fail.
    fn row(&mut self, label: &str, words: &str) {
        let Self { written, width } = self;
        let _ = writeln!(written, "  {label:<width$} {words}");
    }

    fn more(&mut self, words: &str) {
        self.row("", words);
    }
}

/// What listens where, each with a line to try it.
fn write_listeners(plan: &Plan, addresses: &BTreeMap<String, Vec<String>>, text: &mut Text) {
    let access = plan.access(&Meters::default());
    for (name, listener) in &plan.listeners {
        let bound = addresses.get(name).map(Vec::as_slice).unwrap_or_default();
        let (protocol, places) = (listener.protocol.name(), bound.join("  "));
        let tls = listener.tls.as_ref().map(|tls| format!(" ({})", tls.in_words()));
        text.row(name, &format!("{protocol:<9} {places}{}", tls.unwrap_or_default()));
        let example = |address: &String| example(name, listener, address, &access);
        for line in bound.iter().filter_map(example).take(1) {
            text.more(&line);
        }
    }
}

/// Which configuration this is, and how to change it.
fn write_configuration(program: &str, files: &[PathBuf], page: &str, text: &mut Text) {
    if files.is_empty() {
        text.row("config", "built in; for one of your own:");
        text.more(&format!("{program} default-config > pointsman.toml"));
        text.more(&format!("{program} --config pointsman.toml"));
    } else {
        let files: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
        text.row("config", &files.join(", "));
        text.row("reload", &format!("curl -X POST {page}-/reload"));
    }
}

fn path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A line to paste into a shell, if there is one that works as it stands: the gate has to let its point
/// pass, or a bearer token does, and whoever has to show a certificate has one that nobody knows here.
fn example(name: &str, listener: &Config, address: &str, access: &Access) -> Option<String> {
    let (transport, place) = address.split_once("://")?;
    let (host, port) = place.rsplit_once(':')?;
    if transport == "tcp" && listener.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()) {
        return None;
    }
    // What listens on all addresses is reached here.
    let host = match host {
        "0.0.0.0" | "[::]" => "127.0.0.1",
        host => host.trim_matches(['[', ']']),
    };
    // Whoever connects to such an address comes from one.
    let address = host.parse().ok().filter(IpAddr::is_loopback);
    let gate = access.by_connection(name, &Proof { address, ..Proof::default() });
    let shows_token =
        matches!(gate, Gate::Shut) && listener.protocol.is_http() && access.has_tokens();
    let (series, line) = line(listener, transport, (host, port), shows_token)?;
    (shows_token || passes(&gate, series)).then_some(line)
}

/// The line for a listener, and the series of its point.
fn line(
    listener: &Config,
    transport: &str,
    (host, port): (&str, &str),
    shows_token: bool,
) -> Option<(&'static str, String)> {
    let at = format!("{}:{port}", bracketed(host));
    let scheme = if listener.tls.is_some() { "https" } else { "http" };
    let token = if shows_token { "-H \"Authorization: Bearer $TOKEN\" " } else { "" };
    Some(match (listener.protocol, transport) {
        (Protocol::Statsd, "udp") => {
            ("demo.clicks", format!("echo \"demo.clicks:1|c\" | nc -u -w1 {host} {port}"))
        }
        (Protocol::Opentsdb, "tcp") if listener.tls.is_none() && !shows_token => (
            "demo.load",
            format!("echo \"put demo.load $(date +%s) 0.7 host=a\" | nc -w1 {host} {port}"),
        ),
        (Protocol::Http, "tcp") => (
            "demo/build",
            format!(
                "curl {token}-d '{{\"name\":\"demo/build\",\"tags\":{{\"os\":\"linux\"}},\"compile\":12.5}}' \
                 {scheme}://{at}/v1/points"
            ),
        ),
        (Protocol::Influxdb, "tcp") => {
            ("demo", format!("curl {token}-d 'demo,host=a value=1' {scheme}://{at}/write"))
        }
        _ => return None,
    })
}

fn passes(gate: &Gate, name: &str) -> bool {
    let mut batch = Batch::new();
    batch.begin(name).finish(Measure::Gauge(1.0), None, "");
    batch.point(0).is_some_and(|point| gate.check(&point).is_ok())
}

/// As a host is written in a URL.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

const BACKENDS: &str = "backends";
const PRINCIPALS: &str = "principals";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Inputs;

    fn shown(started: Started<'_>, data_dir: Option<&str>) -> String {
        let inputs = Inputs { data_dir: data_dir.map(PathBuf::from), ..Inputs::default() };
        let plan = Plan::load(&inputs).unwrap().plan;
        let bound = plan.listeners.iter().map(|(name, one)| (name.clone(), one.bind.clone()));
        banner(&plan, &bound.collect(), "127.0.0.1:9102", started)
    }

    /// Whoever follows the README finds the same lines on the screen, and they work as they stand.
    #[test]
    fn the_lines_to_copy_are_those_of_the_readme() {
        let text = shown(Started { program: "target/release/pointsman", files: &[] }, None);
        let readme = include_str!("../../README.md");
        for start in ["echo", "curl"] {
            for line in text.lines().map(str::trim).filter(|line| line.starts_with(start)) {
                assert!(readme.contains(line), "{line}");
            }
        }
        assert!(text.contains("look     target/release/pointsman query 'demo*'\n"), "{text}");
        assert!(text.contains("target/release/pointsman default-config > "), "{text}");
    }

    #[test]
    fn a_file_that_is_in_use_is_not_to_be_overwritten() {
        let files = [PathBuf::from("pointsman.toml")];
        let text = shown(Started { program: "pointsman", files: &files }, Some("/a b"));
        assert!(text.contains("config   pointsman.toml\n"), "{text}");
        assert!(!text.contains("default-config"), "{text}");
        assert!(text.contains("look     pointsman query --data-dir '/a b' 'demo*'\n"), "{text}");
    }

    fn of(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.toml");
        std::fs::write(&file, text.replace("DIR", &dir.path().to_string_lossy())).unwrap();
        let plan = Plan::load(&Inputs { files: vec![file], ..Inputs::default() }).unwrap().plan;
        let bound = plan.listeners.iter().map(|(name, one)| (name.clone(), one.bind.clone()));
        let files = [PathBuf::from("p.toml")];
        banner(&plan, &bound.collect(), "h:1", Started { program: "pointsman", files: &files })
    }

    const REST: &str = "[backends.b]\nkind = 'blackhole'\n[[routes]]\nto = ['b']\n";

    fn listener(name: &str, protocol: &str, address: &str, more: &str) -> String {
        format!("[listeners.{name}]\nprotocol = '{protocol}'\nbind = ['{address}:1']\n{more}\n")
    }

    #[test]
    fn long_names_break_no_column() {
        let text = of(&[
            &listener("a", "http", "tcp://h", ""),
            &listener("a_very_long_name_of_one", "statsd", "udp://h", ""),
            REST,
        ]
        .concat());
        let rows = text.lines().skip(2).filter(|line| !line.is_empty());
        let labels = rows.clone().filter(|line| !line.starts_with("   "));
        assert_eq!(labels.count(), 6, "{text}");
        for row in rows {
            let (before, after) = row.split_at(26);
            assert!(before.ends_with(' ') && !after.starts_with(' '), "{row:?}");
        }
    }

    #[test]
    fn what_is_to_be_copied_passes_the_gate() {
        let text = of(&[
            &listener("api", "http", "tcp://h", ""),
            &listener("mine", "http", "tcp://i", "principal = 'wide'"),
            &listener("lines", "influxdb", "tcp://j", "principal = 'narrow'"),
            &listener("statsd", "statsd", "udp://h", ""),
            "[principals.narrow]\nscopes = ['stats:put-points:build/*']\ntokens = ['S3CR3T']\n\
             [principals.wide]\nscopes = ['stats:put-points:*']\n",
            REST,
        ]
        .concat());
        assert!(text.contains("principals narrow, wide\n"), "{text}");
        assert!(text.contains("pointsman check --config p.toml"), "{text}");
        let examples: Vec<_> = text.lines().filter(|line| line.contains("demo")).collect();
        assert_eq!(examples.len(), 2, "{text}");
        assert!(examples[0].contains("curl -H \"Authorization: Bearer $TOKEN\" -d"), "{text}");
        assert!(
            examples[0].contains("http://h:1/") && examples[1].contains("http://i:1/"),
            "{text}"
        );
        assert!(examples[1].contains("curl -d") && !text.contains("S3CR3T"), "{text}");
        let near = of(&[
            &listener("statsd", "statsd", "udp://0.0.0.0", ""),
            "[principals.near]\nscopes = ['stats:put-points:*']\nnetworks = ['127.0.0.0/8']\n",
            REST,
        ]
        .concat());
        assert!(near.contains("nc -u -w1 127.0.0.1 1\n"), "{near}");
    }

    #[test]
    fn tls_is_told_and_a_certificate_is_not_made_up() {
        let key = rcgen::generate_simple_self_signed(vec!["h".to_owned()]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(place("c"), key.cert.pem()).unwrap();
        std::fs::write(place("k"), key.signing_key.serialize_pem()).unwrap();
        let tls = format!("cert = '{}', key = '{}'", place("c"), place("k"));
        let asks = format!("tls = {{ {tls}, client_ca = '{}' }}", place("c"));
        let text = of(&[
            &listener("api", "http", "tcp://h", &format!("tls = {{ {tls} }}")),
            &listener("both", "http", "tcp://i", &asks),
            REST,
        ]
        .concat());
        assert!(text.contains("tcp://h:1 (TLS)\n"), "{text}");
        assert!(text.contains("tcp://i:1 (TLS, asks for certificates)\n"), "{text}");
        assert!(text.contains("https://h:1/v1/points") && !text.contains("https://i:1"), "{text}");
    }
}
