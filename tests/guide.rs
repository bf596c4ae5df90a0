//! The guide is right: every example in `docs/tasks.md` runs as it stands, on other ports.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{API, Gateway, STATSD, all_to, eventually};

/// An example, and what it is written in.
#[derive(Debug)]
struct Example {
    language: String,
    text: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_of_the_guide_run_and_their_points_come_in() {
    let config =
        [API, STATSD, "[backends.out]\nkind = 'stdout'\nflush = '1s'\n", &all_to(&["out"])]
            .concat();
    let gateway = Gateway::start(&config).await;
    let dir = tempfile::tempdir().unwrap();
    let guide = std::fs::read_to_string("docs/tasks.md").unwrap();
    let examples = examples(&guide);
    let runs = examples.iter().filter(|example| matches!(&*example.language, "sh" | "python"));
    assert_eq!(runs.clone().count(), 8, "the examples are found");
    for example in runs {
        run(example, dir.path(), &gateway);
    }
    for name in [
        "build/times",
        "test/times",
        "test/retries",
        "task-statistics/build/sizes",
        "build.jobs",
        "build.compile",
        "build.queue",
    ] {
        eventually(&format!("{name} comes in"), async || {
            gateway.stdout().contains(&format!("\"name\":\"{name}\"")).then_some(())
        })
        .await;
    }
    let rejected = &gateway.ledger().await["listeners"]["api"]["rejected"];
    assert!(rejected.as_object().unwrap().is_empty(), "{rejected}");
}

/// What a reader would be shown to do with a configuration is allowed.
#[test]
fn the_configurations_of_the_guide_are_sound() {
    let guide = std::fs::read_to_string("docs/tasks.md").unwrap();
    let rest = "[backends.b]\nkind = 'blackhole'\n[[routes]]\nto = ['b']\n";
    for example in examples(&guide).iter().filter(|example| example.language == "toml") {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.toml");
        let text = example.text.replace("/run/secrets", dir.path().to_str().unwrap());
        for secret in ["pulse", "taskcluster"] {
            std::fs::write(dir.path().join(secret), "secret").unwrap();
        }
        std::fs::write(&file, text + rest).unwrap();
        let output = common::pointsman(&["check", "--config", file.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The fenced blocks of a page that name a language.
fn examples(page: &str) -> Vec<Example> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let example = |block: &str| {
        let (language, text) = block.split_once('\n')?;
        let (language, text) = (language.to_owned(), text.to_owned() + "\n");
        Some(Example { language, text }).filter(|example| !example.language.is_empty())
    };
    blocks.filter_map(example).collect()
}

/// Runs an example as a reader would, but for the ports; Python's goes on as the guide says,
/// through `pointsman logs`.
fn run(example: &Example, dir: &Path, gateway: &Gateway) {
    let udp = gateway.addr("statsd", "udp").port();
    let text = example.text.replace("127.0.0.1/8125", &format!("127.0.0.1/{udp}"));
    let text = text.replace("\"127.0.0.1\", 8125", &format!("\"127.0.0.1\", {udp}"));
    let binary = Path::new(env!("CARGO_BIN_EXE_pointsman"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", binary.parent().unwrap().display());
    let script = match &*example.language {
        "python" => {
            std::fs::write(dir.join("task.py"), &text).unwrap();
            "set -o pipefail; python3 task.py | pointsman logs"
        }
        _ => &text,
    };
    let mut bash = Command::new("bash");
    bash.args(["-ec", script]).current_dir(dir).env("PATH", path).stdin(Stdio::null());
    bash.env("POINTSMAN_URL", format!("http://{}", gateway.addr("api", "tcp")));
    let output = bash.env_remove("POINTSMAN_TOKEN_FILE").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{}", example.text);
    assert!(!told.contains("not sent"), "{told}");
}
