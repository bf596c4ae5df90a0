//! `pointsman check`: what people are told about a configuration, word for word.
//!
//! Each file in `golden/config` has a neighbour `….out` with what is expected: exit code,
//! standard output, standard error. `UPDATE_GOLDEN=1` writes them anew, for `git diff` to judge.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn every_message_is_the_golden_one() {
    let mut seen = 0;
    for file in golden_files() {
        let name = file.file_name().unwrap().to_str().unwrap();
        let told = told(&check(&["--config", name], &[]));
        assert!(!told.contains("S3CR3T"), "{told}");
        let golden = file.with_extension("out");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &told).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert!(told == expected, "{name}\n--- expected\n{expected}\n--- told\n{told}");
        seen += 1;
    }
    assert!(seen >= 6, "only {seen} files");
}

#[test]
fn an_override_is_blamed_by_its_name_and_not_shown() {
    let variable = ("POINTSMAN__BACKENDS__LOCAL__RETENTION", "S3CR3T");
    let output = check(&[], &[variable]);
    assert_eq!(output.status.code(), Some(78));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("--> environment variable POINTSMAN__BACKENDS__LOCAL__RETENTION"),
        "{said}"
    );
    assert!(said.contains("(backends.local.retention)") && !said.contains("S3CR3T"), "{said}");
}

#[test]
fn variables_reach_the_plan_and_files_are_merged() {
    let more = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(more.path(), "backends: {influx: {url: \"http://${HOST:-nowhere}:8086\"}}\n")
        .unwrap();
    let files = ["--config", "good.toml", "--config", more.path().to_str().unwrap()];
    let output = check(&files, &[("HOST", "elsewhere")]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("http://elsewhere:8086, api v1, database tasks"), "{said}");
}

#[test]
fn a_variable_may_hold_a_list_of_endpoints() {
    let variable = ("POINTSMAN__BACKENDS__INFLUX__URL", r#"["http://a:8086", "http://b:8086"]"#);
    let output = check(&["--config", "good.toml"], &[variable]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("http://a:8086, http://b:8086, api v1"), "{said}");
}

#[test]
fn the_default_configuration_is_printed_and_is_good() {
    let printed = run(&["default-config"], &[]);
    assert_eq!(printed.status.code(), Some(0));
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(file.path(), printed.stdout).unwrap();
    let of_file = check(&["--config", file.path().to_str().unwrap()], &[]);
    let bare = check(&[], &[]);
    assert_eq!(of_file.stdout, bare.stdout);
    assert!(String::from_utf8(bare.stderr).unwrap().contains("built-in"));
    assert_eq!(bare.status.code(), Some(0));
}

#[test]
fn wrong_usage_and_bad_configuration_have_codes_of_their_own() {
    for (arguments, code) in [
        (&["--confg", "x"][..], 2),
        (&["check", "--config"], 2),
        (&["--config", "good.toml", "default-config"], 2),
        (&["check", "--config", "absent.toml"], 78),
        (&["--config", "unknown_key.toml"], 78),
        (&["run", "--config", "empty.toml"], 78),
        (&["--help"], 0),
        (&["--version"], 0),
    ] {
        assert_eq!(run(arguments, &[]).status.code(), Some(code), "{arguments:?}");
    }
}

fn golden_files() -> Vec<PathBuf> {
    let entries = fs::read_dir(golden_dir()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending != "out")).collect();
    files.sort();
    files
}

fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/config")
}

fn check(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    run(&[&["check"], arguments].concat(), variables)
}

/// Runs the binary among the golden files, with these variables and no others.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args(arguments)
        .current_dir(golden_dir())
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn told(output: &Output) -> String {
    let mut told = format!("exit {}\n", output.status.code().unwrap());
    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        if !bytes.is_empty() {
            let _ = write!(told, "--- {name}\n{}", String::from_utf8_lossy(bytes));
        }
    }
    told
}
