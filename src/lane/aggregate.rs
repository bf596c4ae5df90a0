//! What a window remembers of one series, and how two memories unite.
//!
//! Pure: no clock, no lock, no series names. Counters are summed in doubles in the order of
//! arrival; two shards add their sums, so that an exact repeat of another server's rounding
//! needs the points of a series to arrive at one worker (which one client's socket does).

use hashbrown::HashSet;
use protocols::{Kind, Measure};
use serde::{Deserialize, Serialize};

/// What a window remembers of one series.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Aggregate {
    /// The sum of increments, each divided by its rate.
    Counter(f64),
    /// What happened to a gauge.
    Gauge(Trail),
    /// The samples of a timer, histogram or distribution.
    Samples(Samples),
    /// The members of a set.
    Members(HashSet<Box<str>, foldhash::fast::RandomState>),
}

impl Aggregate {
    /// Nothing seen yet.
    pub(super) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Gauge => Self::Gauge(Trail::default()),
            Kind::Timer | Kind::Histogram | Kind::Distribution => Self::Samples(Samples::default()),
            Kind::Set => Self::Members(HashSet::default()),
            Kind::Counter | Kind::Sample | Kind::Fields => Self::Counter(0.0),
        }
    }

    /// Takes one measurement in; `turn` orders the batches of all workers. Answers how many
    /// bytes were needed for it.
    pub(super) fn absorb(&mut self, measure: &Measure<'_>, turn: u64) -> usize {
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
            ) => samples.push(*value, *rate),
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
            (Self::Members(members), Self::Members(more)) => members.extend(more),
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
            Self::Gauge(trail) => size_of_val(&*trail.shifts),
            Self::Samples(samples) => {
                size_of_val(&*samples.values) + size_of_val(&*samples.weights)
            }
            Self::Members(members) => members.iter().map(|member| member.len() + MEMBER_COST).sum(),
        }
    }
}

fn add_member(members: &mut HashSet<Box<str>, foldhash::fast::RandomState>, member: &str) -> usize {
    if members.contains(member) {
        return 0;
    }
    members.insert(member.into());
    member.len() + MEMBER_COST
}

/// What happened to a gauge in one window: its last absolute reading and the shifts since.
///
/// The shifts are kept one by one, for two reasons: which of them come after the last
/// absolute reading is only known once all workers are heard, and doubles have to be added
/// to the running value in the order of arrival to round as a single server would.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Trail {
    absolute: Option<(u64, f64)>,
    shifts: Vec<(u64, f64)>,
}

impl Trail {
    /// A gauge that stands at `value`.
    pub(super) fn at(value: f64) -> Self {
        Self { absolute: Some((0, value)), shifts: Vec::new() }
    }

    /// The value at the end of the window, for a gauge that stood at `base` before it.
    pub(super) fn end(&self, base: f64) -> f64 {
        let start = self.absolute.map_or(base, |(_, value)| value);
        self.shifts.iter().fold(start, |value, (_, by)| value + by)
    }

    fn set(&mut self, value: f64, turn: u64) -> usize {
        self.absolute = Some((turn, value));
        self.shifts.clear();
        0
    }

    fn shift(&mut self, by: f64, turn: u64) -> usize {
        self.shifts.push((turn, by));
        size_of::<(u64, f64)>()
    }

    fn merge(&mut self, other: Self) {
        let latest = self.absolute.map(|(turn, _)| turn).max(other.absolute.map(|(turn, _)| turn));
        self.shifts.extend(other.shifts);
        if self.absolute.map(|(turn, _)| turn) != latest {
            self.absolute = other.absolute;
        }
        // A batch is one worker's, so shifts of the reading's own batch came after it.
        self.shifts.retain(|(turn, _)| Some(*turn) >= latest);
        self.shifts.sort_by_key(|(turn, _)| *turn);
    }
}

/// Samples in the order of arrival. `weights` stays empty as long as every rate was 1.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Samples {
    values: Vec<f64>,
    weights: Vec<f64>,
    count: f64,
}

impl Samples {
    /// The samples as they came.
    pub(super) fn values(&self) -> &[f64] {
        &self.values
    }

    /// The samples with their weights, one divided by the rate.
    pub(super) fn weighted(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let weights = self.weights.iter().copied().chain(std::iter::repeat(1.0));
        self.values.iter().copied().zip(weights)
    }

    /// How many there were before the clients left some out: the sum of the weights.
    pub(super) fn count(&self) -> f64 {
        self.count
    }

    fn push(&mut self, value: f64, rate: f64) -> usize {
        let weight = 1.0 / rate;
        self.note_weight(weight);
        self.values.push(value);
        self.count += weight;
        if self.weights.is_empty() { size_of::<f64>() } else { 2 * size_of::<f64>() }
    }

    fn note_weight(&mut self, weight: f64) {
        #[allow(clippy::float_cmp)] // 1 divided by 1 is exact.
        if self.weights.is_empty() && weight == 1.0 {
            return;
        }
        self.weights.resize(self.values.len(), 1.0);
        self.weights.push(weight);
    }

    fn merge(&mut self, other: Self) {
        if !(self.weights.is_empty() && other.weights.is_empty()) {
            self.weights.resize(self.values.len(), 1.0);
            self.weights.extend(other.weighted().map(|(_, weight)| weight));
        }
        self.values.extend(other.values);
        self.count += other.count;
    }
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
            aggregate.absorb(measure, *turn);
        }
        aggregate
    }

    fn counter(measures: &[(f64, f64)]) -> f64 {
        let mut aggregate = Aggregate::new(Kind::Counter);
        for (delta, rate) in measures {
            aggregate.absorb(&Measure::Count { delta: *delta, rate: *rate }, 0);
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
    fn weights_are_kept_only_once_they_matter() {
        let mut samples = Samples::default();
        samples.push(1.0, 1.0);
        assert!(samples.weights.is_empty());
        samples.push(2.0, 0.5);
        samples.push(3.0, 1.0);
        assert_eq!(samples.weighted().collect::<Vec<_>>(), [(1.0, 1.0), (2.0, 2.0), (3.0, 1.0)]);
        let mut plain = Samples::default();
        plain.push(9.0, 1.0);
        plain.merge(samples);
        assert_eq!(plain.weights, [1.0, 1.0, 2.0, 1.0]);
        assert_eq!(plain.count(), 5.0);
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
            one.absorb(&measure(*value, *sort), turn as u64);
            shards[*shard].absorb(&measure(*value, *sort), turn as u64);
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
