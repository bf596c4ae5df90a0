//! The house is in order: who may import whom, and every file says what it is for.
//!
//! The table below is the one of `ARCHITECTURE.md` with every edge. One that is not in it is either
//! a mistake or a decision: then write it down here, and there if it changes the picture.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Room, and the rooms that it may import. None stands before one that it imports, so there are
/// no circles.
const MAY_IMPORT: &[(&str, &str)] = &[
    // Pure and small, below everything.
    ("units", ""),
    ("clock", ""),
    ("escape", ""),
    ("plural", ""),
    ("books", "escape"),
    ("file_id", ""),
    ("gzip", ""),
    ("whole_file", ""),
    ("database", "file_id"),
    ("log", ""),
    ("log_limit", ""),
    ("mistake", ""),
    ("notify", ""),
    ("origin", ""),
    ("pattern", ""),
    ("printout", "escape"),
    ("small_file", ""),
    ("stdio", ""),
    ("when", "clock units"),
    ("waybill", "origin"),
    ("tls", "books log_limit small_file"),
    ("http_client", "tls"),
    ("access", "http_client plural units"),
    // The way of a point, from its end: out, through a lane, through the table, in.
    ("store", "clock file_id pattern units when"),
    ("backend", "books clock escape http_client plural store tls units waybill"),
    ("lane", "backend books clock database log_limit plural units waybill whole_file"),
    ("route", "access books clock lane mistake origin pattern waybill"),
    ("errors", "books clock origin route"),
    ("net", "file_id tls units"),
    (
        "ingest",
        "access books clock database errors escape file_id gzip log_limit net origin pattern plural route tls units whole_file",
    ),
    // What sends points in.
    ("client", "escape http_client small_file tls units"),
    // What is shown.
    ("telemetry", "books clock"),
    ("dead_letters", "client clock escape lane plural printout route tls when"),
    ("admin", "books clock dead_letters lane store telemetry tls when"),
    ("query", "escape printout store when"),
    // What is configured.
    ("config", "access admin backend errors ingest lane mistake route small_file units"),
    (
        "plan",
        "access admin backend config errors ingest lane mistake origin plural route tls units",
    ),
    // What ties it together.
    ("explain", "access books config errors ingest lane origin plan route when"),
    (
        "app",
        "access admin backend books clock config dead_letters errors explain ingest lane log_limit net notify origin plan plural route telemetry tls units",
    ),
    ("run", "app clock config log net notify plan whole_file"),
    ("send", "client clock"),
    ("submit", "client escape file_id gzip plural printout small_file units whole_file"),
    ("logs", "client escape plural stdio units"),
    ("cli", "clock config dead_letters explain log logs plan printout query run send stdio submit"),
];

#[test]
fn rooms_import_what_they_may_and_no_more() {
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in rust_files(Path::new("src")) {
        let room = room_of(&file);
        if matches!(room.as_str(), "lib" | "main") {
            continue;
        }
        let imports = imports(&product_code(&file)).into_iter().filter(|import| *import != room);
        used.entry(room.clone()).or_default().extend(imports);
    }
    for (room, rooms) in MAY_IMPORT {
        let imports = used.remove(*room).unwrap_or_else(|| panic!("there is no room {room}"));
        assert_eq!(Vec::from_iter(imports).join(" "), *rooms, "what {room} imports");
    }
    assert!(used.is_empty(), "rooms that are not in the table: {:?}", used.keys());
}

#[test]
fn there_are_no_circles() {
    let mut below = BTreeSet::new();
    for (room, rooms) in MAY_IMPORT {
        for import in rooms.split_ascii_whitespace() {
            assert!(below.contains(import), "{room} imports {import}, which does not stand below");
        }
        below.insert(*room);
    }
}

#[test]
fn protocols_do_no_io() {
    let forbidden =
        ["std::net", "std::fs", "std::time", "std::thread", "tokio", "tracing", "metrics", "rand"];
    for file in rust_files(Path::new("protocols/src")) {
        let code = product_code(&file);
        for word in forbidden {
            let used = code.contains(&format!("use {word}")) || code.contains(&format!("{word}::"));
            assert!(!used, "{} uses {word}", file.display());
        }
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for place in ["src", "protocols/src", "tests", "benches"] {
        for file in rust_files(Path::new(place)) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.starts_with("//!"), "{} does not begin with //!", file.display());
        }
    }
}

#[test]
fn no_file_is_called_mod_rs_but_where_cargo_wants_it() {
    for place in ["src", "protocols/src"] {
        for file in rust_files(Path::new(place)) {
            assert!(!file.ends_with("mod.rs"), "{}", file.display());
        }
    }
}

#[test]
fn the_rules_of_this_test_can_fail() {
    assert_eq!(imports("use crate::lane::Lane;"), ["lane"]);
    assert_eq!(imports("use crate::{admin, ingest::Config};"), ["admin", "ingest"]);
    assert_eq!(imports("let x = crate::books::Books::default();"), ["books"]);
    assert!(imports("// crate::lane is not meant").is_empty());
}

/// `src/lane/queue.rs` and `src/lane.rs` are the room `lane`.
fn room_of(file: &Path) -> String {
    let inside = file.strip_prefix("src").unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// Without the tests beside the code, which may know anybody.
fn product_code(file: &Path) -> String {
    if file.ends_with("tests.rs") || file.iter().any(|part| part == "tests") {
        return String::new();
    }
    let text = fs::read_to_string(file).unwrap();
    text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned()
}

/// The rooms named after `crate::`, alone or in braces.
fn imports(code: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => rooms.extend(heads(list)),
            None => rooms.push(word(rest)),
        }
    }
    rooms
}

/// The first words of a list in braces, up to its end.
fn heads(list: &str) -> Vec<String> {
    let (mut depth, mut heads, mut fresh) = (0, Vec::new(), true);
    for (at, char) in list.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            _ if fresh && !char.is_whitespace() => {
                heads.push(word(&list[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    heads
}

fn word(text: &str) -> String {
    text.chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect()
}

fn rust_files(place: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
