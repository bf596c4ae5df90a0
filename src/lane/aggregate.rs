//! What a window remembers of one series, and how two memories unite.
//!
//! Pure: no clock, no lock, no series names. Counters are summed in doubles in the order of
//! arrival; two shards add their sums, so that an exact repeat of another server's rounding
//! needs the points of a series to arrive at one worker (which one client's socket does).
//!
//! A window has one of these for each series, so it is 24 bytes; what takes more is boxed.

use super::samples::{Exact, Samples};
use super::sketch::Sketch;
use super::trail::Trail;
use hashbrown::HashSet;
use protocols::{Kind, Measure};
use serde::{Deserialize, Serialize};

/// What a window remembers of one series.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub(super) enum Aggregate {
    /// The sum of increments, each divided by its rate.
    Counter(f64),
    /// What happened to a gauge.
    Gauge(Trail),
    /// The samples of a timer, histogram or distribution.
    Samples(Samples),
    /// The members of a set.
    Members(Box<Members>),
}

/// How it is written down. What earlier programs wrote is to be read alike: new sorts come last.
#[derive(Serialize, Deserialize)]
enum Stored {
    Counter(f64),
    Gauge(Trail),
    Samples(Exact),
    Members(Members),
    Sketched(Exact, Box<Sketch>),
}

type Members = HashSet<Box<str>, foldhash::fast::RandomState>;

impl Default for Aggregate {
    fn default() -> Self {
        Self::Counter(0.0)
    }
}

impl Aggregate {
    /// Nothing seen yet.
    pub(super) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Gauge => Self::Gauge(Trail::default()),
            Kind::Timer | Kind::Histogram | Kind::Distribution => Self::Samples(Samples::default()),
            Kind::Set => Self::Members(Box::default()),
            Kind::Counter | Kind::Sample | Kind::Fields => Self::Counter(0.0),
        }
    }

    /// Takes one measurement in; `turn` orders the batches of all workers, and of samples no more
    /// than `exact` are kept as they are. Answers how many bytes were needed for it.
    #[inline]
    pub(super) fn absorb(&mut self, measure: &Measure<'_>, turn: u64, exact: usize) -> usize {
        match (self, measure) {
            (Self::Counter(sum), Measure::Count { delta, rate }) => {
                *sum += delta * (1.0 / rate);
                0
            }
            (Self::Gauge(trail), Measure::Gauge(value)) => trail.set(*value, turn),
            (Self::Gauge(trail), Measure::GaugeShift(by)) => trail.shift(*by, turn),
            (
                Self::Samples(samples),
                Measure::Timing { ms: value, rate }
                | Measure::Histogram { value, rate }
                | Measure::Distribution { value, rate },
            ) => samples.push(*value, *rate, exact),
            (Self::Members(members), Measure::Set(member)) => add_member(members, member),
            // A series is found by its kind, so its measures always fit.
            _ => 0,
        }
    }

    /// Takes in what another worker saw of the same series.
    pub(super) fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Counter(sum), Self::Counter(more)) => *sum += more,
            (Self::Gauge(trail), Self::Gauge(more)) => trail.merge(more),
            (Self::Samples(samples), Self::Samples(more)) => samples.merge(more),
            (Self::Members(members), Self::Members(more)) => members.extend(*more),
            _ => {}
        }
    }

    /// What came earlier goes before all that was seen here.
    pub(super) fn precede(&mut self, earlier: Self) {
        let later = std::mem::replace(self, earlier);
        self.merge(later);
    }

    /// How much memory it takes beside its own size, as [`absorb`](Self::absorb) counts.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Counter(_) => 0,
            Self::Gauge(trail) => trail.bytes(),
            Self::Samples(samples) => samples.bytes(),
            Self::Members(members) => members.iter().map(|member| member.len() + MEMBER_COST).sum(),
        }
    }

    /// Whether there were more samples than are kept.
    pub(super) fn is_sketched(&self) -> bool {
        matches!(self, Self::Samples(samples) if samples.are_sketched())
    }

    /// How many numbers have to be looked at to make rows of it.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Samples(samples) => samples.values().len(),
            _ => 1,
        }
    }
}

impl From<Aggregate> for Stored {
    fn from(aggregate: Aggregate) -> Self {
        match aggregate {
            Aggregate::Counter(sum) => Self::Counter(sum),
            Aggregate::Gauge(trail) => Self::Gauge(trail),
            Aggregate::Samples(samples) => match samples.into_parts() {
                (exact, None) => Self::Samples(exact),
                (exact, Some(beyond)) => Self::Sketched(exact, beyond),
            },
            Aggregate::Members(members) => Self::Members(*members),
        }
    }
}

impl From<Stored> for Aggregate {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Counter(sum) => Self::Counter(sum),
            Stored::Gauge(trail) => Self::Gauge(trail),
            Stored::Samples(exact) => Self::Samples(Samples::of(exact, None)),
            Stored::Sketched(exact, beyond) => Self::Samples(Samples::of(exact, Some(beyond))),
            Stored::Members(members) => Self::Members(Box::new(members)),
        }
    }
}

fn add_member(members: &mut Members, member: &str) -> usize {
    if members.contains(member) {
        return 0;
    }
    members.insert(member.into());
    member.len() + MEMBER_COST
}

/// What a member costs beside its text: a fat pointer and its place in the table.
const MEMBER_COST: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn absorbed(kind: Kind, measures: &[(Measure<'_>, u64)]) -> Aggregate {
        let mut aggregate = Aggregate::new(kind);
        for (measure, turn) in measures {
            aggregate.absorb(measure, *turn, usize::MAX);
        }
        aggregate
    }

    fn counter(measures: &[(f64, f64)]) -> f64 {
        let mut aggregate = Aggregate::new(Kind::Counter);
        for (delta, rate) in measures {
            aggregate.absorb(&Measure::Count { delta: *delta, rate: *rate }, 0, usize::MAX);
        }
        let Aggregate::Counter(sum) = aggregate else { panic!("{aggregate:?}") };
        sum
    }

    #[test]
    fn counters_are_summed_in_doubles() {
        assert!((counter(&[(0.4, 1.0); 5]) - 2.0).abs() < 1e-9);
        assert_eq!(counter(&[(183.0, 1.0)]), 183.0);
        assert_eq!(counter(&[(5.0, 1.0), (-2.0, 1.0)]), 3.0);
        assert_eq!(counter(&[(-1.0, 1.0)]), -1.0);
        assert_eq!(counter(&[(1.0, 0.5), (1.0, 0.5)]), 4.0);
        assert_eq!(counter(&[(1.0, 0.01)]), 100.0);
        assert!((counter(&[(1.0, 0.333_333_333_333_333_3)]) - 3.0).abs() < 1e-9);
        assert_eq!(counter(&[(3.0, 0.1)]), 30.0);
    }

    use Measure::{Gauge, GaugeShift};

    fn gauge(measures: &[(Measure<'_>, u64)], base: f64) -> f64 {
        let aggregate = absorbed(Kind::Gauge, measures);
        let Aggregate::Gauge(trail) = aggregate else { panic!("{aggregate:?}") };
        trail.end(base)
    }

    #[test]
    fn a_sign_shifts_and_no_sign_sets() {
        let all = [
            (Gauge(10.0), 1),
            (GaugeShift(-3.0), 2),
            (GaugeShift(5.0), 3),
            (Gauge(0.0), 4),
            (GaugeShift(-7.0), 5),
        ];
        for (n, running) in [10.0, 7.0, 12.0, 0.0, -7.0].into_iter().enumerate() {
            assert_eq!(gauge(&all[..=n], 99.0), running);
        }
        assert_eq!(gauge(&[(GaugeShift(-4.0), 1)], 0.0), -4.0);
        assert_eq!(gauge(&[(GaugeShift(-4.0), 1)], 10.0), 6.0);
    }

    fn merged(one: &[(Measure<'_>, u64)], other: &[(Measure<'_>, u64)], base: f64) -> [f64; 2] {
        [(one, other), (other, one)].map(|(first, second)| {
            let mut left = absorbed(Kind::Gauge, first);
            left.merge(absorbed(Kind::Gauge, second));
            let Aggregate::Gauge(trail) = left else { panic!("{left:?}") };
            trail.end(base)
        })
    }

    #[test]
    fn among_workers_the_latest_reading_wins_and_later_shifts_apply() {
        assert_eq!(merged(&[(Gauge(1.0), 1)], &[(Gauge(2.0), 2)], 0.0), [2.0; 2]);
        assert_eq!(merged(&[(Gauge(1.0), 3)], &[(GaugeShift(5.0), 2)], 0.0), [1.0; 2]);
        assert_eq!(merged(&[(Gauge(1.0), 3)], &[(GaugeShift(5.0), 4)], 0.0), [6.0; 2]);
        assert_eq!(merged(&[(GaugeShift(1.0), 3)], &[(GaugeShift(5.0), 4)], 10.0), [16.0; 2]);
    }

    #[test]
    fn a_million_of_them_is_small() {
        assert_eq!(size_of::<Aggregate>(), 24);
    }

    #[test]
    fn a_member_counts_once() {
        let mut set = absorbed(Kind::Set, &[(Measure::Set("a"), 1), (Measure::Set("a"), 1)]);
        set.merge(absorbed(Kind::Set, &[(Measure::Set("b"), 1), (Measure::Set("a"), 1)]));
        assert!(matches!(&set, Aggregate::Members(members) if members.len() == 2));
    }

    proptest! {
        /// However the points of a series are dealt out to workers, merging what the workers
        /// saw gives what a single worker would have seen (whole numbers, which round nowhere).
        #[test]
        fn merging_shards_equals_one_shard(
            points in prop::collection::vec((-1000i32..1000, 0usize..4, 0u8..3), 1..60),
        ) {
            let counts = |value: i32, _| Measure::Count { delta: f64::from(value), rate: 0.5 };
            let gauges = |value: i32, sort: u8| match sort {
                0 => Measure::Gauge(f64::from(value)),
                _ => Measure::GaugeShift(f64::from(value)),
            };
            let samples = |value: i32, _| Measure::Timing { ms: f64::from(value), rate: 0.25 };
            check(Kind::Counter, &points, counts)?;
            check(Kind::Gauge, &points, gauges)?;
            check(Kind::Timer, &points, samples)?;
        }
    }

    fn check(
        kind: Kind,
        points: &[(i32, usize, u8)],
        measure: impl Fn(i32, u8) -> Measure<'static>,
    ) -> Result<(), TestCaseError> {
        let mut one = Aggregate::new(kind);
        let mut shards: Vec<_> = (0..4).map(|_| Aggregate::new(kind)).collect();
        for (turn, (value, shard, sort)) in points.iter().enumerate() {
            one.absorb(&measure(*value, *sort), turn as u64, usize::MAX);
            shards[*shard].absorb(&measure(*value, *sort), turn as u64, usize::MAX);
        }
        let mut all = Aggregate::new(kind);
        shards.into_iter().for_each(|shard| all.merge(shard));
        prop_assert_eq!(summary(&all), summary(&one));
        Ok(())
    }

    fn summary(aggregate: &Aggregate) -> Vec<f64> {
        match aggregate {
            Aggregate::Counter(sum) => vec![*sum],
            Aggregate::Gauge(trail) => vec![trail.end(5.0)],
            Aggregate::Samples(samples) => {
                let mut values = samples.values().to_vec();
                values.sort_by(f64::total_cmp);
                values.push(samples.count());
                values
            }
            Aggregate::Members(members) => vec![members.len() as f64],
        }
    }
}
