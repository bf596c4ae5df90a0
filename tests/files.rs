//! A listener that reads files: half lines, rotations, restarts, and a folder to drop files into.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use common::{Gateway, all_to, eventually, gzip};
use serde_json::Value;
use tempfile::TempDir;

const OUT: &str =
    "[admin]\nbind = '127.0.0.1:0'\n[backends.out]\nkind = 'stdout'\nflush = '100ms'\n";

async fn gateway(dir: &TempDir, keys: &str) -> Gateway {
    let keys = keys.replace("DIR", dir.path().to_str().unwrap());
    let listener = format!("[listeners.files]\nprotocol = 'file'\n{keys}\n");
    Gateway::start(&[OUT, &listener, &all_to(&["out"])].concat()).await
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

async fn book(gateway: &Gateway) -> Value {
    gateway.ledger().await["listeners"]["files"].clone()
}

async fn receives(gateway: &Gateway, count: u64) {
    eventually(&format!("{count} points come in"), async || {
        let received = book(gateway).await["received"].as_u64().unwrap();
        assert!(received <= count, "{received} of {count}");
        (received == count).then_some(())
    })
    .await;
}

/// The values of all points, in the order in which they went out.
fn values(gateway: &Gateway) -> Vec<u64> {
    let value = |line: &str| serde_json::from_str::<Value>(line).ok()?["value"].as_u64();
    gateway.stdout().lines().filter_map(value).collect()
}

fn line(number: u64) -> String {
    format!("{{\"name\":\"n\",\"value\":{number}}}\n")
}

#[tokio::test]
async fn half_a_line_waits_for_its_other_half() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.jsonl");
    let gateway = gateway(&dir, "paths = ['DIR/*.jsonl']").await;
    append(&file, &(line(0) + "{\"name\":\"n\",\"val"));
    receives(&gateway, 1).await;
    // Several looks at the half of a line.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    append(&file, "ue\":1}\n");
    receives(&gateway, 2).await;
    append(&file, line(2).trim_end());
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(book(&gateway).await["received"], 2);
    append(&file, "\n");
    receives(&gateway, 3).await;
    assert_eq!(book(&gateway).await["rejected"], serde_json::json!({}));
}

/// Renamed while the writer goes on, and read under its new name, too; emptied by a copy; and a
/// restart in between.
#[tokio::test]
async fn rotations_and_restarts_lose_nothing_and_repeat_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (file, old) = (dir.path().join("f"), dir.path().join("f.1"));
    let mut gateway = gateway(&dir, "paths = ['DIR/f*']\nformat = 'jsonl'").await;
    let lines = |numbers: std::ops::Range<u64>| numbers.map(line).collect::<String>();
    append(&file, &lines(0..1000));
    receives(&gateway, 1000).await;
    fs::rename(&file, &old).unwrap();
    append(&old, &lines(1000..1200));
    append(&file, &lines(1200..1500));
    receives(&gateway, 1500).await;
    assert!(gateway.terminate().await.status.success());
    let mut seen = values(&gateway);
    append(&file, &lines(1500..2000));
    gateway.restart().await;
    receives(&gateway, 500).await;
    // What copytruncate does.
    File::options().write(true).open(&file).unwrap().set_len(0).unwrap();
    eventually("the cut is noticed", async || {
        (book(&gateway).await["noticed"]["file_truncated"] == 1).then_some(())
    })
    .await;
    append(&file, &lines(2000..3000));
    receives(&gateway, 1500).await;
    eventually("all went out", async || (values(&gateway).len() == 1500).then_some(())).await;
    seen.extend(values(&gateway));
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..3000), "each of them, once");
}

#[tokio::test]
async fn a_table_that_is_written_anew_begins_with_its_header() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("load.csv");
    let mut gateway = gateway(&dir, "paths = ['DIR/*.csv']\nseries = 'host/'").await;
    append(
        &file,
        "\u{feff}time,tag.host,value\r\n1700000000,a,1\r\n1700000001,\"b,c\",\r\n1700000002,\"say \"\"hi\"\"\",2\r\n",
    );
    receives(&gateway, 2).await;
    assert!(gateway.terminate().await.status.success());
    append(&file, "1700000003,d,3\n");
    gateway.restart().await;
    receives(&gateway, 1).await;
    eventually("the columns are known after a restart", async || {
        let point = r#""name":"host/load","tags":{"host":"d"},"time":1700000003000000000"#;
        gateway.stdout().contains(point).then_some(())
    })
    .await;
    fs::write(&file, "time,tag.host,value\n1700000004,e,4\n").unwrap();
    receives(&gateway, 2).await;
    let book = book(&gateway).await;
    assert_eq!(
        (&book["rejected"], &book["noticed"]["file_truncated"]),
        (&serde_json::json!({}), &1.into())
    );
}

#[tokio::test]
async fn logs_and_statsd_files() {
    let dir = tempfile::tempdir().unwrap();
    let gateway =
        gateway(&dir, "paths = ['DIR/*.{log,statsd}']\nprefix = 'STAT'\nseries = 't/'").await;
    append(
        &dir.path().join("a.log"),
        "make\nSTAT {\"name\":\"a\",\"x\":1}\nSTATUS\nSTAT\nSTAT {}\n",
    );
    append(&dir.path().join("b.statsd"), "b:1|c\nnonsense\n\nb:2|c\n");
    receives(&gateway, 3).await;
    eventually("the refusals are counted", async || {
        let rejected = &book(&gateway).await["rejected"];
        (rejected.as_object()?.values().filter_map(Value::as_u64).sum::<u64>() == 3).then_some(())
    })
    .await;
    eventually("the point has its prefix", async || {
        gateway.stdout().contains("\"name\":\"t/a\"").then_some(())
    })
    .await;
}

#[tokio::test]
async fn there_is_an_end_to_how_many_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "paths = ['DIR/*.jsonl']\nlimits = { connections = 2 }";
    for n in 0..5 {
        append(&dir.path().join(format!("{n}.jsonl")), &line(n));
    }
    let gateway = gateway(&dir, keys).await;
    receives(&gateway, 2).await;
    append(&dir.path().join("0.jsonl"), &line(9));
    receives(&gateway, 3).await;
    let rejected = &book(&gateway).await["rejected"];
    assert_eq!(rejected["file_limit"], 3, "each is counted once");
}

/// Others that come before it by name do not make a file that is read look gone.
#[tokio::test]
async fn a_file_that_is_read_stays_open_whatever_comes() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "paths = ['DIR/*.jsonl']\nlimits = { connections = 1 }";
    let last = dir.path().join("z.jsonl");
    append(&last, &line(0));
    let gateway = gateway(&dir, keys).await;
    receives(&gateway, 1).await;
    for n in 0..5 {
        append(&dir.path().join(format!("{n}.jsonl")), &line(n));
    }
    // More looks than a file that is gone would stay open for.
    tokio::time::sleep(Duration::from_secs(12)).await;
    append(&last, &line(1));
    receives(&gateway, 2).await;
    assert_eq!(book(&gateway).await["rejected"], serde_json::json!({ "file_limit": 5 }));
}

/// In place, while it is read and while it is not: longer, as long, and with another header.
#[tokio::test]
async fn a_file_that_is_written_anew_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.csv");
    let overwrite = |text: &str| {
        let mut file = OpenOptions::new().write(true).open(&file).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    append(&file, "time,value\n1700000000,1\n1700000001,2\n");
    let mut gateway = gateway(&dir, "paths = ['DIR/*.csv']").await;
    receives(&gateway, 2).await;
    overwrite("time,other\n1700000002,3\n1700000003,4\n1700000004,5\n");
    receives(&gateway, 5).await;
    overwrite("time,third\n1700000005,6\n1700000006,7\n1700000007,8\n");
    receives(&gateway, 8).await;
    eventually("the columns are known", async || {
        gateway.stdout().contains("\"third\":8").then_some(())
    })
    .await;
    let noticed = &book(&gateway).await["noticed"];
    assert_eq!(noticed, &serde_json::json!({ "file_rewritten": 2 }));
    assert!(gateway.terminate().await.status.success());
    overwrite("time,fourth\n1700000008,9\n1700000009,10\n1700000010,11\n1,2\n");
    gateway.restart().await;
    receives(&gateway, 4).await;
    append(&file, "1700000011,12\n");
    receives(&gateway, 5).await;
    assert_eq!(book(&gateway).await["rejected"], serde_json::json!({}));
}

/// Whatever its folder is called, and it.
#[tokio::test]
async fn names_that_are_no_text_are_names() {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = tempfile::tempdir().unwrap();
    let odd = |ending: &str| {
        let name = [b"\xff\xfe", ending.as_bytes()].concat();
        std::ffi::OsStr::from_bytes(&name).to_owned()
    };
    let folder = dir.path().join("in").join(odd(""));
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir(dir.path().join("drop")).unwrap();
    append(&folder.join(odd(".jsonl")), &line(0));
    append(&dir.path().join("drop").join(odd(".jsonl")), &(line(1) + "nonsense\n"));
    let mut gateway = gateway(&dir, "paths = ['DIR/in/*/*.jsonl']\ndrop = 'DIR/drop'").await;
    eventually("it is moved", async || {
        let done = dir.path().join("drop/done");
        (done.join(odd(".jsonl")).exists() && done.join(odd(".jsonl.refused")).exists())
            .then_some(())
    })
    .await;
    eventually("both are read", async || {
        (book(&gateway).await["received"].as_u64().unwrap() >= 2).then_some(())
    })
    .await;
    append(&folder.join(odd(".jsonl")), &line(2));
    gateway.terminate().await;
    let before = values(&gateway);
    gateway.restart().await;
    append(&folder.join(odd(".jsonl")), &line(3));
    eventually("it is gone on with", async || values(&gateway).contains(&3).then_some(())).await;
    assert!(before.contains(&0) && !values(&gateway).contains(&0), "{before:?}");
}

/// One that comes up is opened at once, so that it may be gone from there soon.
#[tokio::test]
async fn files_that_are_rotated_away_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (live, rotated) = (dir.path().join("live.jsonl"), dir.path().join("rotated"));
    fs::create_dir(&rotated).unwrap();
    let gateway = gateway(&dir, "paths = ['DIR/live.jsonl']").await;
    for n in 0..10 {
        append(&live, &line(n));
        eventually("it is open", async || is_open(&live).then_some(())).await;
        let place = rotated.join(n.to_string());
        fs::rename(&live, &place).unwrap();
        append(&place, &line(100 + n));
    }
    receives(&gateway, 20).await;
    eventually("all went out", async || (values(&gateway).len() == 20).then_some(())).await;
    assert_eq!(book(&gateway).await["rejected"], serde_json::json!({}));
}

/// Whether a process of ours has a file open.
fn is_open(file: &Path) -> bool {
    let file = fs::canonicalize(file).unwrap();
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let mut ends = processes
        .filter_map(|process| fs::read_dir(process.join("fd")).ok())
        .flat_map(|ends| ends.filter_map(|end| fs::read_link(end.ok()?.path()).ok()));
    ends.any(|end| end == file)
}

#[tokio::test]
async fn files_in_a_folder_are_taken_whole_and_moved() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(&dir, "drop = 'DIR'").await;
    let path = |name: &str| dir.path().join(name);
    append(&path("good.jsonl"), &(line(0) + line(1).trim_end()));
    append(&path("mixed.csv"), "a,b\n1,2\nNaN,1\n");
    append(&path("bad.csv"), "a,a\n1,2\n");
    append(&path(".hidden.jsonl"), &line(7));
    append(&path("writing.jsonl.tmp"), &line(8));
    eventually("they are moved", async || {
        let moved = ["done/good.jsonl", "done/mixed.csv", "refused/bad.csv"];
        moved.iter().all(|name| path(name).exists()).then_some(())
    })
    .await;
    receives(&gateway, 3).await;
    let told = fs::read_to_string(path("done/mixed.csv.refused")).unwrap();
    assert!(told.contains("line 3: the column \"a\"") && told.ends_with("1 refused, 1 accepted\n"));
    let told = fs::read_to_string(path("refused/bad.csv.refused")).unwrap();
    assert!(told.contains("the column \"a\" stands twice"), "{told}");
    assert!(!path("done/good.jsonl.refused").exists());
    assert!(path(".hidden.jsonl").exists() && path("writing.jsonl.tmp").exists());
    // Another file of the same name is another file.
    append(&path("good.jsonl"), &line(2));
    eventually("it is moved beside", async || path("done/good.jsonl.1").exists().then_some(()))
        .await;
    receives(&gateway, 4).await;
}

/// As an editor on another system leaves them; what is refused is told by its line.
#[tokio::test]
async fn marks_before_a_text_and_events_in_it_are_no_names() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(&dir, "drop = 'DIR'\nprefix = 'STAT'\nseries = 't/'").await;
    append(&dir.path().join("a.log"), "\u{feff}STAT {\"name\":\"a\",\"x\":1}\r\n");
    append(&dir.path().join("b.statsd"), "\u{feff}b:1|c\r\n_e{3,3}:1|c|x|y\n_sc|c|0\nbad\n");
    append(&dir.path().join("c.jsonl"), "\u{feff}{\"name\":\"c\",\"x\":1}\r\n\nbad\n");
    append(&dir.path().join("d.csv"), "name,x\rd,1\r");
    eventually("they are moved", async || {
        let moved = ["done/a.log", "done/b.statsd", "done/c.jsonl", "refused/d.csv"];
        moved.iter().all(|name| dir.path().join(name).exists()).then_some(())
    })
    .await;
    receives(&gateway, 3).await;
    eventually("they have their names", async || {
        let shown = gateway.stdout();
        let names = ["t/a", "t/b", "t/c"];
        names.iter().all(|name| shown.contains(&format!("\"name\":\"{name}\""))).then_some(())
    })
    .await;
    let told = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let of_statsd = told("done/b.statsd.refused");
    assert!(of_statsd.contains("line 4: t/bad\n"), "{of_statsd}");
    assert!(told("done/c.jsonl.refused").starts_with("line 3: the JSON is broken at column 1 bad"));
    assert!(told("refused/d.csv.refused").contains("a line ends with CR alone"));
    assert_eq!(book(&gateway).await["rejected"]["unsupported_event"], 2);
}

/// What principals deny was not accepted.
#[tokio::test]
async fn files_whose_points_are_denied_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let keys =
        "drop = 'DIR'\n[principals.p]\nlisteners = ['files']\nscopes = ['stats:put-points:n']";
    let gateway = gateway(&dir, keys).await;
    let path = |name: &str| dir.path().join(name);
    let other = line(1).replace("\"n\"", "\"other\"");
    append(&path("all.jsonl"), &other);
    append(&path("some.jsonl"), &(line(0) + &other));
    eventually("they are moved", async || {
        let moved = ["refused/all.jsonl", "done/some.jsonl"];
        moved.iter().all(|name| path(name).exists()).then_some(())
    })
    .await;
    let told = fs::read_to_string(path("refused/all.jsonl.refused")).unwrap();
    assert_eq!(
        told,
        "`other` is denied: scope (the scope stats:put-points:other is missing)\n1 refused, 0 accepted\n"
    );
    let told = fs::read_to_string(path("done/some.jsonl.refused")).unwrap();
    assert_eq!(
        told,
        "`other` is denied: scope (the scope stats:put-points:other is missing)\n1 refused, 1 accepted\n"
    );
    let denied = &gateway.ledger().await["listeners"]["files"]["denied"];
    assert_eq!(*denied, 2);
}

fn lines(numbers: std::ops::Range<u64>) -> String {
    numbers.map(line).collect()
}

async fn is_moved(dir: &TempDir, to: &str) {
    let to = dir.path().join(to);
    eventually(&format!("{} is there", to.display()), async || to.exists().then_some(())).await;
}

#[tokio::test]
async fn a_compressed_file_in_a_folder_is_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(&dir, "drop = 'DIR'").await;
    let write = |name: &str, bytes: &[u8]| {
        let hidden = dir.path().join(format!(".{name}"));
        fs::write(&hidden, bytes).unwrap();
        fs::rename(hidden, dir.path().join(name)).unwrap();
    };
    // Two members, and a last line without an end.
    let members = [gzip(lines(0..2)), gzip(line(2).trim_end())].concat();
    write("a.jsonl.gz", &members);
    write("b.csv.gz", &gzip("value\n3\n4\n"));
    // Whatever it is called.
    write("c.jsonl", &gzip(lines(5..6)));
    for name in ["a.jsonl.gz", "b.csv.gz", "c.jsonl"] {
        is_moved(&dir, &format!("done/{name}")).await;
    }
    receives(&gateway, 6).await;
    eventually("all go out", async || (values(&gateway).len() == 6).then_some(())).await;
    assert!(gateway.stdout().contains("\"name\":\"b\""), "the table names its series");
    // Half of one, none, and what nobody can unpack here.
    let long = gzip(lines(0..20_000));
    write("half.jsonl.gz", &long[..long.len() / 2]);
    write("none.jsonl.gz", b"whatever it is\n");
    write("other.jsonl.zst", b"(\xb5/\xfd\n");
    is_moved(&dir, "done/half.jsonl.gz").await;
    is_moved(&dir, "refused/none.jsonl.gz").await;
    is_moved(&dir, "refused/other.jsonl.zst").await;
    let told = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(told("done/half.jsonl.gz.refused").contains("the gzip is cut off"));
    assert!(told("refused/none.jsonl.gz.refused").contains("the gzip is damaged"));
    assert!(told("refused/other.jsonl.zst.refused").contains("not by gzip"));
    let book = book(&gateway).await;
    assert!((7..20_000).contains(&book["received"].as_u64().unwrap()), "{book}");
    let rejected = &book["rejected"];
    assert_eq!((&rejected["gzip_broken"], &rejected["file_failed"]), (&2.into(), &1.into()));
}

/// It holds more than it may: what is before that counts.
#[tokio::test]
async fn a_file_that_unpacks_to_too_much_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(&dir, "drop = 'DIR'\nunpacked = '1MiB'").await;
    let bomb = line(0) + &" ".repeat(64 << 20);
    fs::write(dir.path().join("bomb.jsonl.gz"), gzip(bomb)).unwrap();
    is_moved(&dir, "done/bomb.jsonl.gz").await;
    receives(&gateway, 1).await;
    let book = book(&gateway).await;
    assert_eq!(book["rejected"]["unpacked_too_large"], 1, "{book}");
    assert!(book["received_bytes"].as_u64().unwrap() <= 1 << 20, "{book}");
}

/// As they come, with what is written to them later, over a restart; and only if somebody asks.
#[tokio::test]
async fn compressed_files_are_followed_where_a_path_names_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.jsonl.gz");
    let mut gateway = gateway(&dir, "paths = ['DIR/*.jsonl', 'DIR/a*.jsonl.gz']").await;
    fs::write(dir.path().join("rotated.jsonl.gz"), gzip(lines(90..95))).unwrap();
    fs::write(&file, gzip(lines(0..3))).unwrap();
    receives(&gateway, 3).await;
    File::options().append(true).open(&file).unwrap().write_all(&gzip(lines(3..5))).unwrap();
    receives(&gateway, 5).await;
    assert!(gateway.terminate().await.status.success());
    let mut seen = values(&gateway);
    File::options().append(true).open(&file).unwrap().write_all(&gzip(lines(5..6))).unwrap();
    gateway.restart().await;
    receives(&gateway, 1).await;
    eventually("it goes out", async || (!values(&gateway).is_empty()).then_some(())).await;
    seen.extend(values(&gateway));
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    // Written anew in place, and longer.
    let anew = gzip(lines(100..2000));
    OpenOptions::new().write(true).open(&file).unwrap().write_all(&anew).unwrap();
    receives(&gateway, 1901).await;
    let book = book(&gateway).await;
    assert_eq!(book["noticed"], serde_json::json!({ "file_rewritten": 1 }));
    assert_eq!(book["rejected"], serde_json::json!({}));
}

/// The same log again, compressed, longer, over a restart: each line of it counts once.
#[tokio::test]
async fn a_file_that_comes_again_counts_once_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "drop = 'DIR'\nonce = true\nformat = 'log'";
    let mut gateway = gateway(&dir, keys).await;
    let log = |numbers: std::ops::Range<u64>| {
        let lines = numbers.map(|number| format!("make\n[taskcluster-task:stat] {}", line(number)));
        lines.collect::<String>()
    };
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write("T-0.log", log(0..5).as_bytes());
    is_moved(&dir, "done/T-0.log").await;
    write("T-0.log.gz", &gzip(log(0..8)));
    is_moved(&dir, "done/T-0.log.gz").await;
    receives(&gateway, 8).await;
    assert_eq!(book(&gateway).await["noticed"]["repeated_line"], 10);
    assert!(gateway.terminate().await.status.success());
    let mut seen = values(&gateway);
    gateway.restart().await;
    write("T-0.log", log(0..9).as_bytes());
    // Another run is another log.
    write("T-1.log", log(20..22).as_bytes());
    is_moved(&dir, "done/T-0.log.1").await;
    is_moved(&dir, "done/T-1.log").await;
    receives(&gateway, 3).await;
    eventually("they go out", async || (values(&gateway).len() == 3).then_some(())).await;
    seen.extend(values(&gateway));
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..9).chain(20..22)));
}

#[tokio::test]
async fn damaged_positions_are_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let mut gateway = gateway(&dir, "paths = ['DIR/*.jsonl']").await;
    append(&dir.path().join("a.jsonl"), &line(0));
    receives(&gateway, 1).await;
    assert!(gateway.terminate().await.status.success());
    let positions = gateway.data_dir().join("files/files.json");
    assert!(positions.exists());
    fs::write(&positions, "[[[1").unwrap();
    gateway.restart().await;
    receives(&gateway, 1).await;
    assert_eq!(book(&gateway).await["noticed"]["positions_damaged"], 1);
    let aside = positions.with_file_name("files.json.damaged");
    assert_eq!(fs::read_to_string(aside).unwrap(), "[[[1");
}

/// Half a line before a cut is refused, and rows beyond those that are listed by their reason.
#[tokio::test]
async fn what_is_lost_of_a_file_is_counted_by_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.jsonl");
    let gateway = gateway(&dir, "paths = ['DIR/*.jsonl']").await;
    let rows = vec!["[1,2]"; 3000].join(",");
    let table = format!("{{\"name\":\"s\",\"columns\":[\"a\"],\"points\":[{rows}]}}\n");
    append(&file, &(table + &line(0) + "{\"name\":\"half"));
    receives(&gateway, 1).await;
    assert_eq!(book(&gateway).await["rejected"], serde_json::json!({ "column_mismatch": 3000 }));
    fs::write(&file, line(1)).unwrap();
    receives(&gateway, 2).await;
    let rejected = &book(&gateway).await["rejected"];
    assert_eq!(rejected["incomplete_line"], 1, "{rejected}");
}

/// What cannot be moved is counted once, read once, and moved when it can be.
#[tokio::test]
async fn a_file_that_cannot_be_moved_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let gateway = gateway(&dir, "drop = 'DIR'").await;
    // Nothing can be put into a folder that is a link to nowhere.
    for name in ["done", "refused"] {
        std::os::unix::fs::symlink("/no/such/folder", path(name)).unwrap();
    }
    append(&path("bad.jsonl"), "nonsense\n");
    append(&path("good.jsonl"), &line(0));
    let failed = async || book(&gateway).await["rejected"]["file_failed"].clone();
    eventually("both are tried", async || (failed().await == 2).then_some(())).await;
    append(&path("good.jsonl"), &line(1));
    receives(&gateway, 2).await;
    // Several looks.
    tokio::time::sleep(Duration::from_millis(1600)).await;
    assert_eq!(failed().await, 3, "once for every change");
    for name in ["done", "refused"] {
        fs::remove_file(path(name)).unwrap();
    }
    eventually("they are moved", async || {
        let moved = ["done/good.jsonl", "refused/bad.jsonl", "refused/bad.jsonl.refused"];
        moved.iter().all(|name| path(name).exists()).then_some(())
    })
    .await;
    assert_eq!((failed().await, &book(&gateway).await["received"]), (3.into(), &2.into()));
}

/// A folder that is not there is told once, and looked into when it is.
#[tokio::test]
async fn a_folder_that_is_missing_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(&dir, "drop = 'DIR/later'").await;
    eventually("it is told", async || {
        (book(&gateway).await["rejected"]["file_failed"] == 1).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    fs::create_dir(dir.path().join("later")).unwrap();
    append(&dir.path().join("later/a.jsonl"), &line(0));
    receives(&gateway, 1).await;
    assert_eq!(book(&gateway).await["rejected"], serde_json::json!({ "file_failed": 1 }));
}

/// One that opens and cannot be read.
#[tokio::test]
async fn a_file_that_cannot_be_read_is_refused_once() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "paths = ['/proc/self/mem', 'DIR/*.jsonl']\nformat = 'jsonl'";
    let gateway = gateway(&dir, keys).await;
    // Looks in between.
    for number in 0..3 {
        append(&dir.path().join("a.jsonl"), &line(number));
        receives(&gateway, number + 1).await;
    }
    assert_eq!(book(&gateway).await["rejected"], serde_json::json!({ "file_failed": 1 }));
}

/// Even root may not read this one.
#[tokio::test]
async fn a_file_that_cannot_be_opened_is_refused_once() {
    let dir = tempfile::tempdir().unwrap();
    let closed = Path::new("/proc/sys/vm/drop_caches");
    if !closed.is_file() || File::open(closed).is_ok() {
        return;
    }
    let keys = format!("paths = ['{}', 'DIR/*.jsonl']\nformat = 'jsonl'", closed.display());
    let gateway = gateway(&dir, &keys).await;
    // Looks in between.
    for number in 0..3 {
        append(&dir.path().join("a.jsonl"), &line(number));
        receives(&gateway, number + 1).await;
    }
    assert_eq!(book(&gateway).await["rejected"], serde_json::json!({ "file_failed": 1 }));
}
