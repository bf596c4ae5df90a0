//! The files in `config/` say what the program does: every option is there, with its default,
//! and the three steps of a migration differ in nothing but where points go.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use pointsman::backend::{self, influxdb, statsd, store};
use pointsman::config::fields::fields_of;
use pointsman::config::{self, Backend, Inputs, Sections};
use pointsman::ingest::Dialect::{Dogstatsd, Graphite, Influxdb, Librato, Signalfx};
use pointsman::lane::{self, Batch, Retry};
use pointsman::plan::Plan;
use pointsman::tls;
use pointsman::units::{Size, Span};
use pointsman::{access, admin, ingest, route};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[test]
fn a_bare_start_is_what_the_contract_says() {
    let planned = Plan::load(&Inputs::default()).unwrap();
    assert_eq!(planned.warnings.lines(), [""; 0]);
    let plan = planned.plan;
    let listeners: Vec<_> = plan
        .listeners
        .values()
        .map(|listener| (listener.protocol.name(), listener.bind.join(" ")))
        .collect();
    assert_eq!(
        listeners,
        [
            ("http", "tcp://127.0.0.1:8080".to_owned()),
            ("statsd", "udp://127.0.0.1:8125 tcp://127.0.0.1:8125".to_owned()),
            ("opentsdb", "tcp://127.0.0.1:4242".to_owned()),
        ]
    );
    assert_eq!(plan.admin.bind, "127.0.0.1:9102");
    assert_eq!(plan.admin, admin::Config::default());
    assert_eq!(plan.data_dir, PathBuf::from("./pointsman-data"));
    assert_eq!(plan.backends.len(), 1);
    assert_eq!(plan.backends["local"].kind, backend::Config::Store(store::Config::default()));
    assert_eq!(plan.backends["local"].lane, lane::Config::default());
    assert_eq!((plan.routes.len(), &plan.routes[0].to), (1, &vec!["local".to_owned()]));
}

#[test]
fn a_shown_default_is_the_default() {
    let shown = uncommented();
    let statsd_listener = shown.listeners["statsd"].as_ref().unwrap();
    let limits = ingest::Limits { idle: None, ..statsd_listener.limits };
    assert_eq!(limits, ingest::Limits::default());
    assert_eq!(statsd_listener.idle(), without_idle(statsd_listener).idle());
    let all = [Dogstatsd, Influxdb, Graphite, Signalfx, Librato];
    assert_eq!(statsd_listener.dialects.as_deref(), Some(&all[..]));
    assert_eq!(statsd_listener.sockets, Some(1));
    assert_eq!(statsd_listener.receive_buffer, Some(Size::mib(4)));
    let tsdb = shown.listeners["tsdb"].as_ref().unwrap();
    assert_eq!((tsdb.strict, tsdb.ack), (false, ingest::Ack::default()));
    assert_eq!(tsdb.idempotency, Some(ingest::Idempotency::default()));
    assert_eq!(without_idle(tsdb).idle(), Duration::from_secs(300));

    let finished = shown.listeners["finished_tasks"].clone().unwrap();
    let (broker, tasks) = (finished.broker.unwrap(), finished.tasks.unwrap());
    let little = serde_json::json!({ "url": "u", "username": "n" });
    let plain: ingest::Broker = serde_json::from_value(little).unwrap();
    assert_eq!((broker.queue, broker.exchanges), (plain.queue, plain.exchanges));
    assert_eq!(broker.prefetch, plain.prefetch);
    let plain: ingest::Tasks =
        serde_json::from_value(serde_json::json!({ "root_url": "u" })).unwrap();
    assert_eq!((tasks.route, tasks.artifacts), (plain.route, plain.artifacts));
    assert_eq!((tasks.references, tasks.retry), (plain.references, plain.retry));

    let Backend { lane, kind } = backend_of(&shown, "influx");
    assert_eq!(lane, lane_defaults());
    let backend::Config::Influxdb(influx) = kind else { panic!() };
    let plain: influxdb::Config =
        serde_json::from_value(serde_json::json!({ "url": "u" })).unwrap();
    assert_eq!((influx.api, influx.gzip), (plain.api, plain.gzip));
    assert_eq!((influx.probe, plain.probe), (Some(Span::secs(10)), None));
    assert_eq!((influx.create_database, influx.integers), (plain.create_database, plain.integers));

    let backend::Config::Statsd(relay) = backend_of(&shown, "legacy").kind else { panic!() };
    assert_eq!(relay.tags, statsd::TagDialect::default());
    assert_eq!(relay.max_payload, Some(Size(1432)));
    assert_eq!(relay.resolve_every, Some(Span::secs(30)));
    assert!(!relay.fill);

    let backend::Config::Store(store) = backend_of(&shown, "local").kind else { panic!() };
    assert_eq!(
        (store.retention, store.max_size),
        (Some(Span::secs(86_400)), Some(Size::mib(1024)))
    );
    assert!(!shown.routes[1].as_ref().unwrap().last);
}

/// The same listener, had it said nothing about silence.
fn without_idle(listener: &ingest::Config) -> ingest::Config {
    let limits = ingest::Limits { idle: None, ..listener.limits };
    ingest::Config { limits, ..listener.clone() }
}

/// What `lane::Settings` makes of a configuration that says nothing, for a database.
fn lane_defaults() -> lane::Config {
    lane::Config {
        aggregate: Some(true),
        flush: Some(Span::secs(10)),
        percentiles: Some(vec![50.0, 90.0, 95.0, 99.0]),
        max_series: Some(1_000_000),
        timer_samples: Some(32_768),
        batch: Batch { points: Some(5000), bytes: Some(Size::mib(1)) },
        memory: Some(Size::mib(64)),
        spool: Some(lane::OnDisk::On(lane::SpoolConfig { max_size: Some(Size::mib(1024)) })),
        dead_letters: Some(lane::OnDisk::On(lane::SpoolConfig { max_size: Some(Size::mib(64)) })),
        timeout: Some(Span::secs(10)),
        retry: Retry {
            first: Some(Span::millis(100)),
            max: Some(Span::secs(30)),
            suspect_after: Some(Span::secs(60)),
        },
        concurrency: Some(1),
        ..lane::Config::default()
    }
}

#[test]
fn every_option_is_shown() {
    let text = uncommented_text();
    // Twins of `password_file` and the like, which are to be preferred.
    let hidden = ["password", "token", "access_token"];
    for (section, keys) in [
        ("admin", fields_of::<admin::Config>()),
        ("listener", fields_of::<ingest::Config>()),
        ("limits", fields_of::<ingest::Limits>()),
        ("listener's tls", fields_of::<tls::ServerSettings>()),
        ("backend's tls", fields_of::<tls::ClientSettings>()),
        ("idempotency", fields_of::<ingest::Idempotency>()),
        ("time_window", fields_of::<ingest::TimeWindow>()),
        ("broker", fields_of::<ingest::Broker>()),
        ("tasks", fields_of::<ingest::Tasks>()),
        ("tasks' retry", fields_of::<ingest::Retry>()),
        ("principal", fields_of::<access::Config>()),
        ("principal.basic", fields_of::<access::Basic>()),
        ("principal.unix", fields_of::<access::UnixPeer>()),
        ("principal.tags", fields_of::<access::Tags>()),
        ("principal.quota", fields_of::<access::Quota>()),
        ("principal.hawk", fields_of::<access::Hawk>()),
        ("lane", fields_of::<lane::Config>()),
        ("expire", fields_of::<lane::Expire>()),
        ("batch", fields_of::<lane::Batch>()),
        ("retry", fields_of::<lane::Retry>()),
        ("statsd", fields_of::<statsd::Config>()),
        ("influxdb", fields_of::<influxdb::Config>()),
        ("store", fields_of::<store::Config>()),
        ("route", fields_of::<route::Config>()),
        ("match", fields_of::<route::Match>()),
        ("rewrite", fields_of::<route::Rewrite>()),
        ("rewrite.tags", fields_of::<route::RewriteTags>()),
    ] {
        assert!(!keys.is_empty(), "{section}");
        for key in keys.iter().filter(|key| !hidden.contains(key)) {
            let forms = [format!("{key} = "), format!(".{key}]")];
            assert!(forms.iter().any(|form| text.contains(form)), "{section}: {key}");
        }
    }
}

#[test]
fn what_is_shown_is_right_but_for_files_that_are_not_here() {
    let file = uncommented_file();
    let lines = Plan::load(&inputs_of(&file)).unwrap_err().lines();
    let is_known = |line: &String| {
        line.contains("_file: /run/secrets/")
            || line.contains(": /etc/pointsman/") && line.contains("cannot be read")
            // Options that exclude each other are both shown.
            || line.contains("`address` that begins with tcp://")
            || line.contains("this listener has a `tls` block, and udp://")
    };
    assert!(lines.iter().all(is_known), "{lines:?}");
}

#[test]
fn the_steps_of_a_migration_differ_only_in_where_points_go() {
    let steps = ["1_statsd", "2_both", "3_influxdb"].map(|step| {
        let files = vec![config_dir().join(format!("migrate/{step}.toml"))];
        let planned = Plan::load(&Inputs { files, ..Inputs::default() }).unwrap();
        assert_eq!(planned.warnings.lines(), [""; 0]);
        planned.plan
    });
    let names = |plan: &Plan| plan.backends.keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        steps.each_ref().map(names),
        [vec!["legacy"], vec!["influx", "legacy"], vec!["influx"]]
    );
    assert_eq!(steps[0].backends["legacy"], steps[1].backends["legacy"]);
    assert_eq!(steps[1].backends["influx"], steps[2].backends["influx"]);
    for plan in &steps {
        let alike = Plan {
            backends: steps[0].backends.clone(),
            routes: steps[0].routes.clone(),
            ..plan.clone()
        };
        assert_eq!(alike, steps[0]);
    }
}

/// The sections that there would be without the `#` before each option.
fn uncommented() -> Sections {
    let file = uncommented_file();
    let loaded = config::load(&inputs_of(&file));
    assert_eq!(loaded.mistakes, []);
    loaded.sections
}

fn uncommented_file() -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), uncommented_text()).unwrap();
    file
}

/// A `#` with a space after it is prose; one without is an option.
fn uncommented_text() -> String {
    let option = |line: &str| line.strip_prefix('#').is_some_and(|rest| !rest.starts_with(' '));
    config::DEFAULT
        .lines()
        .map(|line| if option(line) { &line[1..] } else { line })
        .fold(String::new(), |text, line| text + line + "\n")
}

fn inputs_of(file: &tempfile::NamedTempFile) -> Inputs {
    Inputs { files: vec![file.path().to_owned()], ..Inputs::default() }
}

fn backend_of(sections: &Sections, name: &str) -> Backend {
    sections.backends[name].clone().unwrap()
}

fn config_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config")
}
