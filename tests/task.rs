//! The story of a CI task: a network of its own, no credentials, and a gateway at its edge that
//! holds them, decides which series it may write, and forces name, tags and database.
//!
//! One has to be root for the networks; the test says so and is skipped otherwise.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use common::{Gateway, Influxd, eventually, in_own_network};
use serde_json::{Value, json};

/// What the task may do: write builds, which land below `task-statistics/` with a pool.
const EDGE: &str = r#"
[admin]
bind = "127.0.0.1:0"
[listeners.statsd]
protocol = "statsd"
bind = ["udp://0.0.0.0:0"]
[listeners.tsdb]
protocol = "opentsdb"
bind = ["tcp://0.0.0.0:0"]
[listeners.api]
protocol = "http"
bind = ["tcp://0.0.0.0:0"]
[listeners.lines]
protocol = "influxdb"
bind = ["tcp://0.0.0.0:0"]
[principals.task]
listeners = ["statsd", "tsdb", "api", "lines"]
scopes = ["stats:put-points:build/*"]
prefix = "task-statistics/"
tags = { set = { pool = "linux" }, reserved = ["pool", "host"] }
[[routes]]
match = { principal = "task" }
to = ["influx"]
"#;

/// Says what it got as an answer, a line each: `what status`.
const TASK: &str = r#"
read -r go
ip addr add 10.9.0.2/24 dev far && ip link set far up && ip link set lo up
cd "$(mktemp -d)"
status() { curl -s -o answer -w '%{http_code}' "$@"; }
told() { echo "$1 $2"; }

echo "build/count:1|c" > "/dev/udp/$G/$STATSD"
echo "other/count:1|c" > "/dev/udp/$G/$STATSD"
echo "build/count:1|c|#pool:mine" > "/dev/udp/$G/$STATSD"
told put "$(echo "put build/put 1700000000 2 os=linux" | nc -w 2 "$G" "$TSDB" | wc -l)"
told put_other "$(echo "put other/put 1700000000 2 os=linux" | nc -w 2 "$G" "$TSDB" | wc -l)"
told put_tag "$(echo "put build/put 1700000000 2 host=mine" | nc -w 2 "$G" "$TSDB" | wc -l)"

echo '[{"name":"build/json","time":1700000000,"value":3}]' > points.json
echo '[{"name":"other/json","time":1700000000,"value":3}]' > other.json
echo '[{"name":"build/json","time":1700000000,"value":3,"tags":{"pool":"mine"}}]' > tag.json
for file in points other tag; do
  told "$file.json" "$(status -T "$file.json" "http://$G:$API/v1/points?db=evil")"
done
told api_put "$(status --data-binary '{"metric":"other/put","timestamp":1700000000,"value":1,"tags":{"a":"b"}}' "http://$G:$TSDB/api/put")"
told write "$(status --data-binary 'build/line v=4 1700000000000000000' "http://$G:$LINES/write?db=evil")"
told write_other "$(status --data-binary 'other/line v=4 1700000000000000000' "http://$G:$LINES/write?db=evil")"

printf 'name,time,value\nbuild/table,1700000000000,5\n' > stats.csv
printf 'name,time,value\nother/table,1700000000000,5\n' > other.csv
for file in stats other; do
  "$POINTSMAN" submit "$file.csv" --to "http://$G:$API" > report 2>&1
  told "$file.csv" $?
done
"#;

#[test]
fn a_task_without_credentials_writes_what_it_may_and_nothing_else() {
    in_own_network(|| async {
        let influx = Influxd::start().await;
        influx.create_database("tasks").await;
        let backend = format!(
            "[backends.influx]\nkind = \"influxdb\"\nurl = \"{}\"\ndatabase = \"tasks\"\nflush = \"1s\"\n",
            influx.url()
        );
        let gateway = Gateway::start(&[EDGE, &backend].concat()).await;
        let told = run(&gateway);
        let expected = [
            ("put", "0"),
            ("put_other", "1"),
            ("put_tag", "1"),
            ("points.json", "204"),
            ("other.json", "403"),
            ("tag.json", "403"),
            ("api_put", "403"),
            ("write", "204"),
            ("write_other", "403"),
            ("stats.csv", "0"),
            ("other.csv", "1"),
        ];
        let expected = expected.map(|(what, answer)| (what.to_owned(), answer.to_owned()));
        assert_eq!(told, BTreeMap::from(expected));
        let landed = ["count", "put", "json", "line", "table"];
        for name in landed {
            let select = format!("SELECT * FROM \"task-statistics/build/{name}\"");
            let rows = eventually(name, async || {
                Some(influx.rows("tasks", &select).await).filter(|rows| !rows.is_empty())
            })
            .await;
            assert_eq!((rows.len(), &rows[0]["pool"]), (1, &json!("linux")), "{name}: {rows:?}");
        }
        assert_eq!(names(&influx, "tasks", "SHOW MEASUREMENTS").await.len(), landed.len());
        let databases = names(&influx, "", "SHOW DATABASES").await;
        assert_eq!(databases, [Value::from("tasks")]);
        let ledger = gateway.ledger().await;
        let denied = |listener: &str| ledger["listeners"][listener]["denials"].clone();
        let both = json!({ "reserved_tag": 1, "scope": 1 });
        assert_eq!(denied("statsd"), both);
        assert_eq!(denied("tsdb"), json!({ "reserved_tag": 1, "scope": 2 }));
        assert_eq!(denied("api"), json!({ "reserved_tag": 1, "scope": 2 }));
        assert_eq!(denied("lines"), json!({ "scope": 1 }));
    });
}

/// Runs the task in another network; answers what it was told.
fn run(gateway: &Gateway) -> BTreeMap<String, String> {
    let mut command = Command::new("unshare");
    command.args(["--net", "bash", "-c", TASK]).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap());
    command.env("POINTSMAN", env!("CARGO_BIN_EXE_pointsman")).env("G", "10.9.0.1");
    for (name, listener, transport) in [
        ("STATSD", "statsd", "udp"),
        ("TSDB", "tsdb", "tcp"),
        ("API", "api", "tcp"),
        ("LINES", "lines", "tcp"),
    ] {
        command.env(name, gateway.addr(listener, transport).port().to_string());
    }
    let mut task = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    lay_cable(&task);
    task.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = task.wait_with_output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let told = told.lines().filter_map(|line| line.split_once(' '));
    told.map(|(what, answer)| (what.to_owned(), answer.trim().to_owned())).collect()
}

/// From here to the task's network, once it has left this one.
fn lay_cable(task: &Child) {
    let network = |id: &str| std::fs::read_link(format!("/proc/{id}/ns/net"));
    let own = network("thread-self").unwrap();
    while network(&task.id().to_string()).unwrap() == own {
        std::thread::yield_now();
    }
    for words in [
        format!("link add near type veth peer name far netns {}", task.id()),
        "addr add 10.9.0.1/24 dev near".to_owned(),
        "link set near up".to_owned(),
    ] {
        let status = Command::new("ip").args(words.split(' ')).status().unwrap();
        assert!(status.success(), "ip {words}");
    }
}

async fn names(influx: &Influxd, database: &str, statement: &str) -> Vec<Value> {
    let rows = influx.rows(database, statement).await;
    rows.into_iter().map(|mut row| row.remove("name").unwrap()).collect()
}
