//! Routing: how long the walk through a table takes, without the lanes behind it.

use divan::counter::ItemsCount;
use pointsman::origin::{Origin, Protocol};
use pointsman::route::{Config, Rules};

mod samples;

fn main() {
    divan::main();
}

/// Rules before the one that takes the point: none matches.
#[divan::bench(args = [1, 10, 100])]
fn globs(bencher: divan::Bencher<'_, '_>, rules: usize) {
    walk(bencher, &table(rules, |n| format!("other-{n}.*")));
}

#[divan::bench(args = [1, 10, 100])]
fn regular_expressions(bencher: divan::Bencher<'_, '_>, rules: usize) {
    walk(bencher, &table(rules, |n| format!("/^other-{n}\\.[a-z]+$/")));
}

fn table(rules: usize, pattern: impl Fn(usize) -> String) -> Rules {
    let mut routes: Vec<serde_json::Value> = (0..rules)
        .map(|n| serde_json::json!({"match": {"name": pattern(n)}, "to": ["a"]}))
        .collect();
    routes.push(serde_json::json!({"to": ["b"]}));
    let routes: Vec<Config> = serde_json::from_value(routes.into()).unwrap_or_default();
    let lanes = [("a".to_owned(), 0), ("b".to_owned(), 1)].into();
    Rules::compile(&routes, &lanes).unwrap_or_default()
}

fn walk(bencher: divan::Bencher<'_, '_>, rules: &Rules) {
    let batch = samples::batch(&samples::statsd_tagged());
    let origin = Origin { listener: "statsd".into(), protocol: Protocol::Statsd };
    bencher.counter(ItemsCount::new(batch.len())).bench(|| {
        let mut taken = 0_usize;
        for point in divan::black_box(&batch).iter() {
            rules.walk(&point, &origin, |_, _, lanes| taken += lanes.iter().count());
        }
        taken
    });
}
