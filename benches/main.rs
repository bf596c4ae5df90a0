//! What each step of a point's way costs. `cargo bench` shows times; `-- count` does each step a
//! few times for `scripts/count-instructions.sh`, which counts instructions.

#![allow(unreachable_pub)] // A program has no outside.

mod aggregate;
mod encode;
mod lanes;
mod parse;
mod path;
mod queue;
mod route;
mod samples;
mod step;

use divan::Bencher;
use step::Step;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some("count") {
        divan::main();
        return Ok(());
    }
    let wanted = arguments.next().unwrap_or_default();
    let groups = [
        ("parse", parse::STEPS),
        ("route", route::STEPS),
        ("aggregate", aggregate::STEPS),
        ("encode", encode::STEPS),
        ("queue", queue::STEPS),
        ("path", path::STEPS),
    ];
    let steps =
        groups.iter().flat_map(|(group, steps)| steps.iter().map(move |step| (group, step)));
    for (group, step) in steps.filter(|(group, step)| format!("{group}/{step}").contains(&wanted)) {
        step.count(group, &mut std::io::stdout())?;
    }
    Ok(())
}

#[divan::bench(args = parse::STEPS)]
fn parse(bencher: Bencher<'_, '_>, step: &Step) {
    step.time(bencher);
}

#[divan::bench(args = route::STEPS)]
fn route(bencher: Bencher<'_, '_>, step: &Step) {
    step.time(bencher);
}

#[divan::bench(args = aggregate::STEPS)]
fn aggregate(bencher: Bencher<'_, '_>, step: &Step) {
    step.time(bencher);
}

#[divan::bench(args = encode::STEPS)]
fn encode(bencher: Bencher<'_, '_>, step: &Step) {
    step.time(bencher);
}

#[divan::bench(args = queue::STEPS)]
fn queue(bencher: Bencher<'_, '_>, step: &Step) {
    step.time(bencher);
}

#[divan::bench(args = path::STEPS)]
fn path(bencher: Bencher<'_, '_>, step: &Step) {
    step.time(bencher);
}
