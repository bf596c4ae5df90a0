//! One thing that is measured, and two ways to measure it: by the clock, and by counting.

use anyhow::{Result, ensure};
use divan::counter::ItemsCount;
use std::io::Write;

/// One thing that is measured.
pub struct Step {
    /// What it is called within its file.
    pub name: &'static str,
    /// What it is counted in.
    pub unit: &'static str,
    /// How many of these one run does.
    pub count: usize,
    /// Makes all ready that is not to be measured.
    pub make: fn() -> Result<Run>,
    /// Whether a run uses up what was made for it.
    pub once: bool,
}

/// Does it, and answers how much was done.
pub type Run = Box<dyn FnMut() -> usize>;

impl Step {
    /// A step that can be repeated, since it leaves all as it was.
    pub const fn new(name: &'static str, count: usize, make: fn() -> Result<Run>) -> Self {
        Self { name, unit: "point", count, make, once: false }
    }

    /// A step that cannot.
    pub const fn once(name: &'static str, count: usize, make: fn() -> Result<Run>) -> Self {
        Self { once: true, ..Self::new(name, count, make) }
    }

    /// The same, counted in something else than points.
    pub const fn each(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Shows how long it takes.
    pub fn time(&self, bencher: divan::Bencher<'_, '_>) {
        let bencher = bencher.counter(ItemsCount::new(self.count));
        if self.once {
            bencher.with_inputs(|| ready(self)).bench_local_values(|mut run| {
                run();
                run
            });
        } else {
            bencher.bench_local(ready(self));
        }
    }

    /// Runs it where a profiler counts, and says what it was and how much was done.
    pub fn count(&self, group: &str, out: &mut impl Write) -> Result<()> {
        let mut run = (self.make)()?;
        let runs = if self.once { 1 } else { RUNS };
        if !self.once {
            // What grows once and for all has grown then.
            run();
        }
        let done = counted(&mut run, runs);
        let Self { name, unit, count, .. } = self;
        ensure!(done == runs * count, "{group}/{name} did {done} {unit}s of {}", runs * count);
        Ok(writeln!(out, "{group}/{name} {done} {unit}")?)
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// `scripts/count-instructions.sh` knows this function by its name: what is done in it is counted.
#[inline(never)]
fn counted(run: &mut Run, runs: usize) -> usize {
    (0..runs).map(|_| run()).sum()
}

fn ready(step: &Step) -> Run {
    (step.make)().unwrap_or_else(|error| {
        writeln!(std::io::stderr(), "{step}: {error:#}").ok();
        std::process::exit(1)
    })
}

const RUNS: usize = 8;
