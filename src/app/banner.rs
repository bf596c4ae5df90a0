//! What a person sees at the start: what listens where, and a line to copy for each protocol.

use crate::backend;
use crate::origin::Protocol;
use crate::plan::Plan;
use std::collections::BTreeMap;
use std::fmt::Write;
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
    let mut text = format!("pointsman {}\n\n", env!("CARGO_PKG_VERSION"));
    write_listeners(plan, addresses, &mut text);
    let backends = plan.backends.iter();
    let backends: Vec<_> =
        backends.map(|(name, backend)| format!("{name} ({})", backend.kind.kind())).collect();
    let _ = writeln!(text, "\n  backends {}", backends.join(", "));
    let scheme = if plan.admin.tls.is_some() { "https" } else { "http" };
    let page = format!("{scheme}://{admin}/");
    let _ = writeln!(text, "  page     {page}");
    let program = quoted(started.program);
    if plan.backends.values().any(|backend| matches!(backend.kind, backend::Config::Store(_))) {
        let directory = match plan.data_dir.as_path() {
            path if path == Path::new("./pointsman-data") => String::new(),
            path => format!(" --data-dir {}", quoted(&path.to_string_lossy())),
        };
        let _ = writeln!(text, "  look     {program} query{directory} 'demo*'");
    }
    write_configuration(&program, started.files, &page, &mut text);
    text.push('\n');
    text
}

/// What listens where, each with a line to try it.
fn write_listeners(plan: &Plan, addresses: &BTreeMap<String, Vec<String>>, text: &mut String) {
    for (name, listener) in &plan.listeners {
        let bound = addresses.get(name).map(Vec::as_slice).unwrap_or_default();
        let protocol = listener.protocol.name();
        let _ = writeln!(text, "  {name:<8} {protocol:<9} {}", bound.join("  "));
        let example =
            |address: &String| example(listener.protocol, address, listener.tls.is_some());
        for line in bound.iter().filter_map(example).take(1) {
            let _ = writeln!(text, "           {line}");
        }
    }
}

/// Which configuration this is, and how to change it.
fn write_configuration(program: &str, files: &[PathBuf], page: &str, text: &mut String) {
    // Writing to a text does not fail.
    let _ = match files {
        [] => writeln!(
            text,
            "  config   built in; for one of your own:\n           \
             {program} default-config > pointsman.toml\n           \
             {program} --config pointsman.toml"
        ),
        files => {
            let files: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
            writeln!(
                text,
                "  config   {}\n  reload   curl -X POST {page}-/reload",
                files.join(", ")
            )
        }
    };
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A line to paste into a shell.
fn example(protocol: Protocol, address: &str, is_secure: bool) -> Option<String> {
    let scheme = if is_secure { "https" } else { "http" };
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
        (Protocol::Opentsdb, "tcp") if !is_secure => {
            Some(format!("echo \"put demo.load $(date +%s) 0.7 host=a\" | nc -w1 {host} {port}"))
        }
        (Protocol::Http, "tcp") => {
            let host = bracketed(host);
            Some(format!(
                "curl -d '{{\"name\":\"demo/build\",\"tags\":{{\"os\":\"linux\"}},\"compile\":12.5}}' \
                 {scheme}://{host}:{port}/v1/points"
            ))
        }
        (Protocol::Influxdb, "tcp") => {
            let host = bracketed(host);
            Some(format!("curl -d 'demo,host=a value=1' {scheme}://{host}:{port}/write"))
        }
        _ => None,
    }
}

/// As a host is written in a URL.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

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
}
