//! What the gateway is to show against others, and whether it does.

use crate::peer::Peer;
use crate::peers::{Column, ratio};
use crate::task::{Task, Who};
use serde::Serialize;

/// Of two servers' CPU time for a point, at one task.
pub struct Promise {
    task: Task,
    other: Who,
    bound: Bound,
}

/// How the two are to stand to each other.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// The gateway takes at most so many times the other's.
    AtMost(f64),
    /// The other takes at least so many times the gateway's.
    AtLeast(f64),
}

/// What a promise came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    task: String,
    wanted: String,
    found: f64,
    kept: bool,
}

impl Promise {
    /// None if one of the two did not take part.
    pub fn find(&self, columns: &[Column]) -> Option<Found> {
        let &Self { task, other, bound } = self;
        let (found, kept, wanted) = match bound {
            Bound::AtMost(most) => {
                let found = ratio(columns, task, Who::Gateway, other)?;
                (found, found <= most, format!("the gateway at most {most} x {other}"))
            }
            Bound::AtLeast(least) => {
                let found = ratio(columns, task, other, Who::Gateway)?;
                (found, found >= least, format!("{other} at least {least} x the gateway"))
            }
        };
        Some(Found { task: task.to_string(), wanted, found, kept })
    }
}

impl Found {
    /// A row of a table.
    pub fn cells(&self) -> Vec<String> {
        let Self { task, wanted, found, kept } = self;
        let kept = if *kept { "kept" } else { "NOT KEPT" };
        vec![task.clone(), wanted.clone(), format!("{found:.2}"), kept.to_owned()]
    }

    /// What stands above them.
    pub fn head() -> Vec<&'static str> {
        vec!["task", "wanted", "found", ""]
    }
}

/// All of them. The first two are half of what the fastest statsd server in C takes.
pub const PROMISES: [Promise; 8] = [
    promise(Task::Aggregate { pack: 25 }, Who::Bare, Bound::AtMost(3.3)),
    promise(Task::Aggregate { pack: 1 }, Who::Bare, Bound::AtMost(1.3)),
    promise(Task::Put, Who::Peer(Peer::Vmagent), Bound::AtMost(0.5)),
    promise(Task::ApiPut, Who::Peer(Peer::Vmagent), Bound::AtMost(0.5)),
    promise(Task::Relay { pack: 25 }, Who::Peer(Peer::Repeater), Bound::AtLeast(5.0)),
    promise(Task::Relay { pack: 1 }, Who::Peer(Peer::Repeater), Bound::AtLeast(5.0)),
    promise(Task::Relay { pack: 25 }, Who::Peer(Peer::Statsdproxy), Bound::AtLeast(3.0)),
    promise(Task::Relay { pack: 1 }, Who::Peer(Peer::Statsdproxy), Bound::AtLeast(3.0)),
];

const fn promise(task: Task, other: Who, bound: Bound) -> Promise {
    Promise { task, other, bound }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::tests::column;

    #[test]
    fn a_promise_is_kept_on_the_right_side_of_its_bound() {
        let proxy = Who::Peer(Peer::Statsdproxy);
        let task = Task::Relay { pack: 1 };
        let check = |gateway: f64, other, bound, kept| {
            let columns = [column(task, Who::Gateway, &[gateway]), column(task, proxy, &[other])];
            let found = promise(task, proxy, bound).find(&columns).unwrap();
            assert_eq!(found.kept, kept, "{found:?}");
        };
        check(1.0, 3.0, Bound::AtLeast(3.0), true);
        check(1.0, 2.9, Bound::AtLeast(3.0), false);
        check(1.0, 2.0, Bound::AtMost(0.5), true);
        check(1.1, 2.0, Bound::AtMost(0.5), false);
    }

    #[test]
    fn who_did_not_take_part_is_not_judged() {
        assert!(PROMISES.iter().all(|promise| promise.find(&[]).is_none()));
    }
}
