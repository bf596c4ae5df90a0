//! Judges backends: numbers, URLs, addresses, and secrets, which are read from their files here.

use super::Findings;
use crate::backend::influxdb::Api;
use crate::backend::{self, influxdb, statsd, store};
use crate::config::Backend;
use crate::config::substitute::read_trimmed;
use crate::lane::{self, Durability, Expire, Layout, OnDisk, Settings};
use crate::mistake::Mistake;
use crate::route::LaneSet;
use crate::tls::{Client, ClientSettings};
use crate::units::{Address, Secret, Span};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) fn judge(backends: &mut BTreeMap<String, Option<Backend>>, findings: &mut Findings) {
    findings.names("backends", backends.keys());
    let message =
        format!("{} are too many; a gateway has at most {}", backends.len(), LaneSet::MAX);
    findings.wrong_unless(backends.len() <= LaneSet::MAX, "backends", message);
    let mut store_of = None;
    for (name, section) in backends {
        let Some(section) = section else { continue };
        let key = format!("backends.{name}");
        lane(&key, &section.lane, findings);
        without_windows(&key, section, findings);
        spool(&key, section, findings);
        dead_letters(&key, section, findings);
        match &mut section.kind {
            backend::Config::Statsd(config) => statsd(&key, config, findings),
            backend::Config::Influxdb(config) => influxdb(&key, config, findings),
            backend::Config::Store(config) => {
                store(&key, *config, findings);
                if let Some(first) = store_of.replace(name.clone()) {
                    let message = format!("`{first}` is the store already, and there is only one");
                    findings.wrong(key, message);
                }
            }
            backend::Config::Stdout(_) | backend::Config::Blackhole(_) => {}
        }
    }
}

fn lane(key: &str, lane: &lane::Config, findings: &mut Findings) {
    let some_time = |span: Option<Span>| span.is_none_or(|span| !span.0.is_zero());
    let mut positive = |name: &str, holds: bool| {
        findings.wrong_unless(holds, format!("{key}.{name}"), "it must be more than zero");
    };
    positive("flush", some_time(lane.flush));
    positive("timeout", some_time(lane.timeout));
    positive("retry.first", some_time(lane.retry.first));
    positive("retry.max", some_time(lane.retry.max));
    positive("retry.suspect_after", some_time(lane.retry.suspect_after));
    positive("max_series", lane.max_series != Some(0));
    positive("timer_samples", lane.timer_samples != Some(0));
    positive("concurrency", lane.concurrency != Some(0));
    positive("batch.points", lane.batch.points != Some(0));
    positive("batch.bytes", lane.batch.bytes.is_none_or(|size| size.0 > 0));
    positive("memory", lane.memory.is_none_or(|size| size.0 > 0));
    percentiles(key, lane, findings);
    if let (Some(first), Some(max)) = (lane.retry.first, lane.retry.max) {
        let message = "it must not be shorter than `first`";
        findings.wrong_unless(first <= max, format!("{key}.retry.max"), message);
    }
    if let (Some(memory), Some(batch)) = (lane.memory, lane.batch.bytes) {
        let message = "it must hold at least one batch (`batch.bytes`)";
        findings.wrong_unless(memory >= batch, format!("{key}.memory"), message);
    }
}

/// The disk part takes over all that memory holds.
fn spool(key: &str, section: &Backend, findings: &mut Findings) {
    let settings = Settings::new(key, section.kind.kind(), &section.lane);
    if settings.spool.is_none() && section.lane.durability != Durability::default() {
        let message = "it has no effect: this backend has no `spool`";
        findings.odd(format!("{key}.durability"), message);
    }
    if settings.spool.is_some_and(|disk| disk < settings.memory) {
        let key_of_size = match section.lane.spool {
            Some(OnDisk::On(_)) => format!("{key}.spool"),
            _ => format!("{key}.memory"),
        };
        findings.wrong(key_of_size, "the spool (`max_size`) must hold at least what `memory` does");
    }
}

/// A backend that takes everything has no dead letters.
fn dead_letters(key: &str, section: &Backend, findings: &mut Findings) {
    let Some(OnDisk::On(letters)) = section.lane.dead_letters else { return };
    let key = format!("{key}.dead_letters");
    if matches!(section.kind, backend::Config::Blackhole(_)) {
        return findings.odd(key, "it has no effect: a blackhole refuses nothing");
    }
    let some = letters.max_size.is_none_or(|size| size.0 > 0);
    let message = "`max_size` must be more than zero; `false` keeps no dead letters";
    findings.wrong_unless(some, key, message);
}

/// As in statsd/statsd, -10 means the largest tenth; only its layout knows a word for that.
fn percentiles(key: &str, lane: &lane::Config, findings: &mut Findings) {
    let (least, message) = match lane.layout {
        Layout::Fields => (0.0, "a percentile is more than 0 and at most 100"),
        Layout::Statsd => (-100.0, "a percentile is from -100 to 100, and not 0"),
    };
    for (i, percentile) in lane.percentiles.iter().flatten().enumerate() {
        let holds = (least..=100.0).contains(percentile) && *percentile != 0.0;
        findings.wrong_unless(holds, format!("{key}.percentiles[{i}]"), message);
    }
}

/// A backend that does not aggregate has no windows to set up.
fn without_windows(key: &str, section: &Backend, findings: &mut Findings) {
    let (lane, relays) = (&section.lane, matches!(section.kind, backend::Config::Statsd(_)));
    if relays && lane.aggregate == Some(true) {
        let message = "a statsd server aggregates itself; points are relayed as received";
        findings.wrong(format!("{key}.aggregate"), message);
        return;
    }
    if Settings::new("", section.kind.kind(), lane).aggregate {
        return;
    }
    let mut pointless = |name: &str, is_set: bool| {
        if is_set {
            let message = "it has no effect: this backend does not aggregate";
            findings.odd(format!("{key}.{name}"), message);
        }
    };
    pointless("percentiles", lane.percentiles.is_some());
    pointless("layout", lane.layout != Layout::default());
    pointless("expire", lane.expire != Expire::default());
    pointless("max_series", lane.max_series.is_some());
    pointless("timer_samples", lane.timer_samples.is_some());
}

fn statsd(key: &str, config: &statsd::Config, findings: &mut Findings) {
    match config.address.parse::<Address>() {
        Ok(address) if address.is_peer() => {}
        Ok(_) => findings.wrong(format!("{key}.address"), "it needs a host and a port to send to"),
        Err(message) => findings.wrong(format!("{key}.address"), message),
    }
    let message = "it must be more than zero";
    let payload = config.max_payload.is_none_or(|size| size.0 > 0);
    findings.wrong_unless(payload, format!("{key}.max_payload"), message);
    if let Some(tls) = &config.tls {
        let is_tcp = config.address.starts_with("tcp:");
        let message = "it needs an `address` that begins with tcp://; nothing else can speak TLS";
        findings.wrong_unless(is_tcp, format!("{key}.tls"), message);
        trust(key, tls, findings);
    }
    let resolve = config.resolve_every.is_none_or(|span| !span.0.is_zero());
    findings.wrong_unless(resolve, format!("{key}.resolve_every"), message);
}

fn trust(key: &str, settings: &ClientSettings, findings: &mut Findings) {
    findings.files(key, Client::load(settings).map(|(_, oddities)| oddities));
}

fn store(key: &str, config: store::Config, findings: &mut Findings) {
    let message = "it must be more than zero";
    let retention = config.retention.is_none_or(|span| !span.0.is_zero());
    findings.wrong_unless(retention, format!("{key}.retention"), message);
    let max_size = config.max_size.is_none_or(|size| size.0 > 0);
    findings.wrong_unless(max_size, format!("{key}.max_size"), message);
}

fn influxdb(key: &str, config: &mut influxdb::Config, findings: &mut Findings) {
    urls(key, config, findings);
    api(key, config, findings);
    match &config.tls {
        Some(tls) => {
            if !config.is_secure() {
                findings
                    .odd(format!("{key}.tls"), "it has no effect: no `url` begins with https://");
            }
            trust(key, tls, findings);
        }
        None if config.is_secure() => trust(key, &ClientSettings::default(), findings),
        None => {}
    }
    proxy(key, config, findings);
    let mut read = |name: &str, value: &mut Option<Secret>, file: &Option<PathBuf>| {
        secret(&format!("{key}.{name}"), value, file.as_ref(), Secret::new, findings);
    };
    read("password", &mut config.password, &config.password_file);
    read("token", &mut config.token, &config.token_file);
    if config.password.is_some() && config.username.is_none() {
        findings.wrong(format!("{key}.username"), "there is a password and no `username`");
    }
}

/// One URL, or several that differ.
fn urls(key: &str, config: &influxdb::Config, findings: &mut Findings) {
    let key_of = |at: usize| match config.url.len() {
        1 => format!("{key}.url"),
        _ => format!("{key}.url[{at}]"),
    };
    if config.url.is_empty() {
        findings.mistakes.push(Mistake::new(format!("{key}.url"), "there is no URL").hint(EXAMPLE));
    }
    for (at, text) in config.url.iter().enumerate() {
        url(&key_of(at), text, findings);
        let same = |other: &String| other.trim_end_matches('/') == text.trim_end_matches('/');
        if config.url.iter().take(at).any(same) {
            findings.wrong(key_of(at), "this URL is in the list already");
        }
    }
    if let Some(span) = config.probe {
        findings.wrong_unless(
            !span.0.is_zero(),
            format!("{key}.probe"),
            "it must be more than zero",
        );
        if config.url.len() == 1 {
            let message = "it has no effect: with one `url` nobody is set aside";
            findings.odd(format!("{key}.probe"), message);
        }
    }
}

/// With credentials it would be in logs and on pages; the environment is the place for such a one.
fn proxy(key: &str, config: &influxdb::Config, findings: &mut Findings) {
    let Some(text) = config.proxy.as_deref().filter(|text| *text != "none") else { return };
    let key = format!("{key}.proxy");
    let mut wrong = |message: &str, hint: &str| {
        findings.mistakes.push(Mistake::new(&key, message).hint(hint));
    };
    match reqwest::Url::parse(text) {
        Ok(url) if url.scheme() == "http" && url.has_host() => {
            if !url.username().is_empty() || url.password().is_some() {
                wrong(
                    "credentials do not belong into the URL",
                    "leave `proxy` out and set HTTPS_PROXY and HTTP_PROXY in the environment",
                );
            }
        }
        _ => wrong(
            "the URL of a proxy must begin with http:// and a host",
            "for example \"http://proxy:3128\", or \"none\"; https:// endpoints are reached \
             through it, encrypted from end to end",
        ),
    }
}

/// A URL is in logs and on pages, so nothing secret may be in it; and it is not repeated here.
fn url(key: &str, text: &str, findings: &mut Findings) {
    let mut wrong = |message: &str, hint: &str| {
        findings.mistakes.push(Mistake::new(key, message).hint(hint));
    };
    if text.is_empty() {
        return wrong("the URL is empty", EXAMPLE);
    }
    let Ok(url) = reqwest::Url::parse(text) else {
        return wrong("this is not a URL", EXAMPLE);
    };
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        wrong("the URL must begin with http:// or https:// and a host", EXAMPLE);
    }
    if !url.username().is_empty() || url.password().is_some() {
        wrong("credentials do not belong into the URL", "use `username` and `password_file`");
    }
    if url.query().is_some() || url.fragment().is_some() {
        wrong(
            "the URL must end before any `?` or `#`",
            "`database`, `username`, `password_file` and `token_file` are keys of their own",
        );
    }
}

/// Each of the write APIs needs keys, and has none of the others'.
fn api(key: &str, config: &influxdb::Config, findings: &mut Findings) {
    use Api::{V1, V2, V3};
    let mut needs = |name: &str, value: &Option<String>, apis: &[Api]| {
        if apis.contains(&config.api) && value.as_ref().is_none_or(String::is_empty) {
            let message = format!("api = \"{}\" needs `{name}`", word(config.api));
            findings.wrong(format!("{key}.{name}"), message);
        }
    };
    needs("database", &config.database, &[V1, V3]);
    needs("org", &config.org, &[V2]);
    needs("bucket", &config.bucket, &[V2]);
    let mut only = |name: &str, is_set: bool, apis: &[Api]| {
        if is_set && !apis.contains(&config.api) {
            let apis: Vec<_> = apis.iter().map(|api| format!("\"{}\"", word(*api))).collect();
            let message = format!("`{name}` is for api = {}", apis.join(" or "));
            findings.wrong(format!("{key}.{name}"), message);
        }
    };
    only("database", config.database.is_some(), &[V1, V3]);
    only("retention_policy", config.retention_policy.is_some(), &[V1]);
    only("create_database", config.create_database, &[V1]);
    only("username", config.username.is_some(), &[V1]);
    only("password", config.password.is_some(), &[V1]);
    only("password_file", config.password_file.is_some(), &[V1]);
    only("org", config.org.is_some(), &[V2]);
    only("bucket", config.bucket.is_some(), &[V2]);
    only("token", config.token.is_some(), &[V2, V3]);
    only("token_file", config.token_file.is_some(), &[V2, V3]);
}

/// The word of an API in a configuration.
pub(super) const fn word(api: Api) -> &'static str {
    match api {
        Api::V1 => "v1",
        Api::V2 => "v2",
        Api::V3 => "v3",
    }
}

/// Reads a secret from the file beside it, if there is one. An empty one is no secret: more likely a
/// variable was not set, and everybody would know it.
pub(super) fn secret<T: PartialEq>(
    key: &str,
    value: &mut Option<T>,
    file: Option<&PathBuf>,
    read: impl Fn(String) -> T,
    findings: &mut Findings,
) {
    if value.as_ref().is_some_and(|value| *value == read(String::new())) {
        findings.wrong(key, "it is empty");
    }
    let Some(path) = file else { return };
    let key_of_file = format!("{key}_file");
    if value.is_some() {
        return findings.wrong(key_of_file, "both this and the secret itself are given");
    }
    match read_trimmed(path) {
        Ok(text) if text.is_empty() => {
            findings.wrong(key_of_file, format!("{} is empty", path.display()));
        }
        Ok(text) => *value = Some(read(text)),
        Err(message) => findings.wrong(key_of_file, message),
    }
}

const EXAMPLE: &str = "for example \"http://127.0.0.1:8086\"";

#[cfg(test)]
mod tests {
    use super::super::tests::{plan_of, refused, warned};
    use super::*;

    fn backend(keys: &str) -> String {
        format!(
            "[listeners.s]\nprotocol = 'http'\nbind = ['tcp://h:1']\n\
             [[routes]]\nto = ['b']\n[backends.b]\n{keys}\n"
        )
    }

    fn influx(keys: &str) -> String {
        backend(&format!("kind = 'influxdb'\n{keys}"))
    }

    #[test]
    fn numbers_out_of_range() {
        for (keys, says) in [
            ("flush = '0s'", &["flush: it must be more than zero"][..]),
            ("max_series = 0\nconcurrency = 0", &["max_series", "concurrency"]),
            ("batch = { points = 0, bytes = '0B' }", &["batch.points", "batch.bytes"]),
            (
                "percentiles = [50, 0, 100, 100.1]",
                &["percentiles[1]: a percentile", "percentiles[3]"],
            ),
            ("percentiles = [nan]", &["percentiles[0]"]),
            ("percentiles = [-10]", &["percentiles[0]: a percentile is more than 0"]),
            (
                "layout = 'statsd'\npercentiles = [-100, -0.5, 0, -101]",
                &["percentiles[2]: a percentile is from -100", "percentiles[3]"],
            ),
            ("retry = { first = '2s', max = '1s' }", &["retry.max: it must not be shorter"]),
            ("retry = { first = '0s' }\ntimeout = '0s'", &["retry.first", "timeout"]),
            ("retry = { suspect_after = '0s' }", &["retry.suspect_after: it must be more"]),
            ("memory = '1KiB'\nbatch.bytes = '1MiB'", &["memory: it must hold at least one batch"]),
            ("retention = '0s'\nmax_size = '0B'", &["retention", "max_size"]),
        ] {
            refused(&backend(&format!("kind = 'store'\n{keys}")), says);
        }
    }

    #[test]
    fn urls_hold_no_secrets_and_are_not_repeated() {
        for (url, says) in [
            ("", &["the URL is empty"][..]),
            ("influx:8086", &["must begin with http"]),
            ("h", &["this is not a URL"]),
            ("http://me:S3CR3T@h:1", &["credentials do not belong into the URL"]),
            ("http://S3CR3T@h:1", &["credentials do not belong into the URL"]),
            ("http://h:1/?u=a&p=S3CR3T", &["must end before any `?`"]),
            ("udp://me:S3CR3T@h", &["must begin with http", "credentials"]),
        ] {
            let text = influx(&format!("url = '{url}'\ndatabase = 'd'"));
            refused(&text, says);
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("x.toml");
            std::fs::write(&file, text).unwrap();
            let inputs = crate::config::Inputs { files: vec![file], ..Default::default() };
            let report = super::super::Plan::load(&inputs).unwrap_err();
            assert!(!report.to_string().contains("S3CR3T"), "{report}");
        }
    }

    #[test]
    fn several_urls_are_judged_one_by_one() {
        let influx = |keys: &str| influx(&format!("database = 'd'\n{keys}"));
        for (keys, says) in [
            ("url = []", "url: there is no URL"),
            ("url = ['http://a', 'b:1']", "url[1]: the URL must begin with http"),
            (
                "url = ['http://a:1', 'http://b:1', 'http://a:1/']",
                "url[2]: this URL is in the list",
            ),
            ("url = ['http://a', 'http://me:S3CR3T@h']", "url[1]: credentials do not belong"),
            ("url = ['http://a', 7]", "url: expected a text or a list of texts"),
            ("url = '[\"http://a\"]'", "url: a list is written without quotes around it"),
            ("url = ['http://a', 'http://b']\nprobe = '0s'", "probe: it must be more than zero"),
        ] {
            refused(&influx(keys), &[says]);
        }
        warned(&influx("url = 'http://a'\nprobe = '5s'"), &["probe: it has no effect"]);
        let both = influx("url = ['http://a', 'http://b']\nprobe = '5s'");
        warned(&both, &[]);
        let shown = plan_of(&both).unwrap().plan.to_string();
        assert!(shown.contains("http://a, http://b, api v1"), "{shown}");
    }

    #[test]
    fn each_api_has_its_keys() {
        let url = "url = 'http://h:1'\n";
        for (keys, says) in [
            ("", &["api = \"v1\" needs `database`"][..]),
            (
                "api = 'v2'\ndatabase = 'd'",
                &["needs `org`", "needs `bucket`", "`database` is for api = \"v1\" or \"v3\""],
            ),
            ("api = 'v3'", &["api = \"v3\" needs `database`"]),
            ("database = 'd'\ntoken = 't'", &["`token` is for api = \"v2\" or \"v3\""]),
            ("database = 'd'\npassword = 'p'", &["a password and no `username`"]),
            ("api = 'v3'\ndatabase = 'd'\ncreate_database = true", &["`create_database` is for"]),
        ] {
            let lines = plan_of(&influx(&format!("{url}{keys}"))).unwrap_err().join("\n");
            for says in says {
                assert!(lines.contains(says), "{lines} does not say {says}");
            }
        }
        for keys in [
            "database = 'd'",
            "api = 'v2'\norg = 'o'\nbucket = 'b'\ntoken = 't'",
            "api = 'v3'\ndatabase = 'd'",
            "database = 'd'\nusername = 'u'\npassword = 'p'\ncreate_database = true",
        ] {
            assert!(plan_of(&influx(&format!("{url}{keys}"))).is_ok(), "{keys}");
        }
    }

    #[test]
    fn secrets_are_read_from_their_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let with = |more: &str| {
            let path = file.path().display();
            influx(&format!(
                "url = 'http://h:1'\napi = 'v3'\ndatabase = 'd'\ntoken_file = '{path}'\n{more}"
            ))
        };
        std::fs::write(file.path(), "S3CR3T\n").unwrap();
        let plan = plan_of(&with("")).unwrap().plan;
        let backend::Config::Influxdb(config) = &plan.backends["b"].kind else { panic!() };
        assert_eq!(config.token.as_ref().map(Secret::expose), Some("S3CR3T"));
        assert!(!format!("{plan:?}").contains("S3CR3T"));
        refused(&with("token = 'x'"), &["both this and the secret itself are given"]);
        std::fs::write(file.path(), "\n").unwrap();
        refused(&with(""), &["is empty"]);
        std::fs::remove_file(file.path()).unwrap();
        refused(&with(""), &["cannot be read: No such file"]);
        let unset = influx("url = 'http://h:1'\napi = 'v3'\ndatabase = 'd'\ntoken = '${UNSET:-}'");
        refused(&unset, &["token: it is empty"]);
    }

    #[test]
    fn statsd_servers_need_an_address_and_aggregate_themselves() {
        for (keys, says) in [
            ("address = 'h:1'", "there is no scheme"),
            ("address = 'udp://:8125'", "a host and a port to send to"),
            ("address = 'udp://h:0'", "a host and a port to send to"),
            ("address = 'udp://h:1'\naggregate = true", "relayed as received"),
            ("address = 'udp://h:1'\nmax_payload = '0B'", "max_payload"),
            ("address = ['udp://a:1', 'udp://b:1']", "is wrong on both (make a backend of each"),
        ] {
            refused(&backend(&format!("kind = 'statsd'\n{keys}")), &[says]);
        }
        warned(
            &backend(
                "kind = 'statsd'\naddress = 'udp://h:1'\npercentiles = [90]\nlayout = 'statsd'",
            ),
            &["percentiles: it has no effect", "layout: it has no effect"],
        );
    }

    #[test]
    fn there_are_at_most_64() {
        let with = |more: usize| {
            let names: Vec<_> = (0..more).map(|n| format!("b{n}")).collect();
            let tables =
                names.iter().map(|name| format!("[backends.{name}]\nkind = 'blackhole'\n"));
            let tables: String = tables.collect();
            backend(&format!("kind = 'blackhole'\n{tables}[[routes]]\nto = {names:?}"))
        };
        assert!(plan_of(&with(63)).is_ok());
        refused(&with(64), &["backends: 65 are too many; a gateway has at most 64"]);
    }

    #[test]
    fn the_spool_holds_at_least_what_memory_does() {
        let influx = |keys: &str| influx(&format!("url = 'http://h:1'\ndatabase = 'd'\n{keys}"));
        refused(&influx("spool = { max_size = '1MiB' }"), &["spool: the spool (`max_size`) must"]);
        refused(&influx("memory = '2GiB'"), &["memory: the spool (`max_size`) must hold"]);
        refused(&influx("spool = { max_sise = '1MiB' }"), &["did you mean `max_size`?"]);
        refused(&influx("spool = 7"), &["spool"]);
        refused(&influx("durability = 'hope'"), &["durability"]);
        warned(&influx("memory = '2GiB'\nspool = false\ndurability = 'power'"), &["no `spool`"]);
        warned(&influx("memory = '1MiB'\nspool = { max_size = '1MiB' }"), &[]);
        warned(&influx("spool = true\ndurability = 'power'"), &[]);
        warned(&backend("kind = 'stdout'\ndurability = 'power'"), &["no `spool`"]);
    }

    #[test]
    fn dead_letters_are_some_or_none() {
        let store = |keys: &str| backend(&format!("kind = 'store'\n{keys}"));
        warned(&store("dead_letters = false"), &[]);
        warned(&store("dead_letters = { max_size = '1B' }"), &[]);
        refused(&store("dead_letters = { max_size = '0B' }"), &["dead_letters: `max_size` must"]);
        refused(&store("dead_letters = { max_sise = '1B' }"), &["did you mean `max_size`?"]);
        let nowhere = backend("kind = 'blackhole'\ndead_letters = true");
        warned(&nowhere, &["dead_letters: it has no effect"]);
    }

    #[test]
    fn there_is_one_store() {
        let text = backend("kind = 'store'\n[backends.c]\nkind = 'store'");
        refused(&text, &["backends.c: `b` is the store already"]);
    }
}
