//! Routing: the walk through a table, without the lanes behind it.
//!
//! The number is that of rules before the one that takes the point: none of them matches.

use crate::samples::{self, LINES};
use crate::step::{Run, Step};
use anyhow::{Result, anyhow};
use divan::black_box;
use pointsman::origin::{Origin, Protocol};
use pointsman::route::{Config, Rules};
use serde_json::{Value, json};

/// Every step of it.
pub const STEPS: &[Step] = &[
    Step::new("globs_1", LINES, || walk(1, glob)),
    Step::new("globs_10", LINES, || walk(10, glob)),
    Step::new("globs_50", LINES, || walk(50, glob)),
    Step::new("regexes_1", LINES, || walk(1, regex)),
    Step::new("regexes_10", LINES, || walk(10, regex)),
    Step::new("regexes_50", LINES, || walk(50, regex)),
];

/// A table of these routes over backends `a` and `b`.
pub fn rules(routes: Value) -> Result<Rules> {
    let routes: Vec<Config> = serde_json::from_value(routes)?;
    let lanes = [("a".to_owned(), 0), ("b".to_owned(), 1)].into();
    Rules::compile(&routes, &lanes).map_err(|mistakes| anyhow!("{mistakes:?}"))
}

fn glob(n: usize) -> String {
    format!("other-{n}.*")
}

fn regex(n: usize) -> String {
    format!("/^other-{n}\\.[a-z]+$/")
}

fn walk(others: usize, pattern: fn(usize) -> String) -> Result<Run> {
    let others = (0..others).map(|n| json!({"match": {"name": pattern(n)}, "to": ["a"]}));
    let rules = rules(others.chain([json!({"to": ["b"]})]).collect())?;
    let batch = samples::batch(&samples::statsd_tagged());
    let origin = Origin::new("statsd", Protocol::Statsd);
    Ok(Box::new(move || {
        let mut taken = 0;
        for point in black_box(&batch).iter() {
            rules.walk(&point, &origin, |_, _, lanes| taken += lanes.iter().count());
        }
        taken
    }))
}
