//! Statistics of samples, in two schools.
//!
//! [`Weighted`] counts a sample of rate *r* as 1/*r* samples of the same value, everywhere:
//!
//! - `count` is the sum of the weights *W*, `sum` the weighted sum, `mean` their quotient;
//! - a percentile *P* is the smallest sample at which the weights of the sorted samples,
//!   added up, reach *W·P*/100 (nearest rank);
//! - the median is the mean of two samples: the smallest at which they reach *W*/2, and the
//!   smallest at which they go beyond it. Without rates these are the two middle ones;
//! - the deviation is the population's.
//!
//! [`classic`] is statsd/statsd: rates only enter the count. Its additions are made in the
//! order in which that server makes them, so that results agree to the last bit.
//!
//! Of a series with more samples than are kept, both count a [`Sketch`]'s bins instead: percentiles
//! and what is made of them are within its error then, everything else stays exact.

use super::samples::Samples;
use super::sketch::{Moments, Sketch};

/// Sorted samples with their weights added up.
pub(super) struct Weighted {
    samples: Vec<(f64, f64)>,
    reach: Vec<f64>,
    count: f64,
    /// What is known better than from the samples here, which stand for others.
    exact: Option<(Moments, (f64, f64))>,
}

impl Weighted {
    /// Sorts samples and adds their weights up.
    pub(super) fn new(samples: &Samples) -> Self {
        let sketch = samples.sketch();
        let sorted = match &sketch {
            Some(sketch) => sketch.ranked().map(|(value, bin)| (value, bin.weight)).collect(),
            None if samples.weights().is_empty() => {
                sorted(samples.values()).into_iter().map(|value| (value, 1.0)).collect()
            }
            None => by_value(samples.weighted().collect()),
        };
        let reach = sorted.iter().scan(0.0, |sum, (_, weight)| {
            *sum += weight;
            Some(*sum)
        });
        let exact = sketch.as_ref().map(|sketch| (*sketch.weighted(), sketch.bounds()));
        Self { reach: reach.collect(), samples: sorted, count: samples.count(), exact }
    }

    /// The sum of the weights.
    pub(super) fn count(&self) -> f64 {
        self.count
    }

    /// The smallest and the largest sample; none of an empty window.
    pub(super) fn bounds(&self) -> Option<(f64, f64)> {
        if let Some((_, bounds)) = self.exact {
            return Some(bounds);
        }
        let (lower, _) = self.samples.first()?;
        let (upper, _) = self.samples.last()?;
        Some((*lower, *upper))
    }

    /// The weighted sum, in ascending order of the samples.
    pub(super) fn sum(&self) -> f64 {
        if let Some((moments, _)) = self.exact {
            return moments.sum;
        }
        self.samples
            .iter()
            .map(|(value, weight)| value * weight)
            .reduce(|sum, more| sum + more)
            .unwrap_or(0.0)
    }

    /// The weighted mean.
    pub(super) fn mean(&self) -> f64 {
        self.sum() / self.count
    }

    /// The weighted deviation of the population.
    pub(super) fn deviation(&self) -> f64 {
        if let Some((moments, _)) = self.exact {
            return moments.deviation();
        }
        let mean = self.mean();
        let squares = self.samples.iter().map(|(value, weight)| {
            let off = value - mean;
            off * off * weight
        });
        (squares.sum::<f64>() / self.count).sqrt()
    }

    /// The mean of the two samples in the middle.
    pub(super) fn median(&self) -> f64 {
        let half = self.total() / 2.0;
        let low = self.at(self.reach.partition_point(|reach| *reach < half - self.slack()));
        let high = self.at(self.reach.partition_point(|reach| *reach <= half + self.slack()));
        #[allow(clippy::float_cmp)] // The same sample is not to be rounded.
        if low == high { low } else { f64::midpoint(low, high) }
    }

    /// The sample of nearest rank.
    pub(super) fn percentile(&self, percent: f64) -> f64 {
        let rank = self.total() * percent / 100.0 - self.slack();
        self.at(self.reach.partition_point(|reach| *reach < rank))
    }

    fn total(&self) -> f64 {
        self.reach.last().copied().unwrap_or(0.0)
    }

    /// Weights such as 1/0.3 do not add up exactly; a rank missed by less than this is met.
    fn slack(&self) -> f64 {
        self.total() * 1e-12
    }

    fn at(&self, index: usize) -> f64 {
        self.samples.get(index).or(self.samples.last()).map_or(0.0, |(value, _)| *value)
    }
}

/// One percentile and how its statistics are called.
#[derive(Clone, Debug)]
pub(super) struct Percentile {
    /// In percent; statsd/statsd reads a negative one as "of the largest".
    pub(super) percent: f64,
    /// `90`, `99_9`; in the classic layout `top10` for -10.
    pub(super) label: String,
}

impl Percentile {
    /// Spells the label.
    pub(super) fn new(percent: f64) -> Self {
        let label = percent.to_string().replacen('.', "_", 1).replacen('-', "top", 1);
        Self { percent, label }
    }
}

/// Gives `write` every statistic that statsd/statsd makes of these samples.
///
/// A top percentile that covers every sample has no mean and no sums there (they come out as
/// NaN, which no backend stores); they are left out here.
pub(super) fn classic(
    samples: &Samples,
    secs: f64,
    percentiles: &[Percentile],
    write: &mut dyn FnMut(&str, &str, f64),
) {
    write("count", "", samples.count());
    write("count_ps", "", samples.count() / secs);
    if let Some(sketch) = samples.sketch() {
        return Steps::of(&sketch).write(percentiles, write);
    }
    let values = sorted(samples.values());
    if !values.is_empty() {
        Sorted::of(&values).write(percentiles, write);
    }
}

/// Samples in ascending order, or what stands for them.
trait Ranked {
    fn len(&self) -> usize;
    /// The sample of that rank, counted from 0.
    fn at(&self, rank: usize) -> f64;
    /// The sum of the first so many samples, and that of their squares.
    fn sums(&self, first: usize) -> (f64, f64);
    /// The same of all.
    fn total(&self) -> (f64, f64);
    fn deviation(&self) -> f64;
    fn bounds(&self) -> (f64, f64);

    fn write(&self, percentiles: &[Percentile], write: &mut dyn FnMut(&str, &str, f64)) {
        for percentile in percentiles {
            self.threshold(percentile, write);
        }
        let (min, max) = self.bounds();
        let (sum, squares) = self.total();
        write("lower", "", min);
        write("upper", "", max);
        write("sum", "", sum);
        write("sum_squares", "", squares);
        write("mean", "", sum / number(self.len()));
        write("median", "", self.middle());
        write("std", "", self.deviation());
    }

    fn threshold(&self, percentile: &Percentile, write: &mut dyn FnMut(&str, &str, f64)) {
        let label = percentile.label.as_str();
        let top = percentile.percent <= 0.0;
        let Some(inside) = self.inside(percentile.percent) else { return };
        let cut = self.len() - inside;
        let (rank, bound) = if top { (cut, "lower_") } else { (inside - 1, "upper_") };
        write("count_", label, number(inside));
        write(bound, label, self.at(rank));
        let Some((sum, squares)) = self.part(inside, top) else { return };
        write("mean_", label, sum / number(inside));
        write("sum_", label, sum);
        write("sum_squares_", label, squares);
    }

    /// The sums of the smallest `inside` samples, or of the largest.
    fn part(&self, inside: usize, top: bool) -> Option<(f64, f64)> {
        // A lone sample is its own sum, whichever end is asked for.
        if !top || self.len() == 1 {
            return Some(self.sums(inside));
        }
        let cut = self.len() - inside;
        let ((all, all_squares), (sum, squares)) = (self.sums(self.len()), self.sums(cut));
        (cut > 0).then_some((all - sum, all_squares - squares))
    }

    /// How many samples a percentile covers; none if it rounds to zero.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Between 0 and the length.
    fn inside(&self, percent: f64) -> Option<usize> {
        if self.len() == 1 {
            return Some(1);
        }
        let inside = (percent.abs() / 100.0 * number(self.len())).round() as usize;
        (inside > 0 && inside <= self.len()).then_some(inside)
    }

    fn middle(&self) -> f64 {
        let middle = self.len() / 2;
        if self.len() % 2 == 1 {
            self.at(middle)
        } else {
            // Not `midpoint`: statsd/statsd adds first, and may overflow where it would not.
            #[allow(clippy::manual_midpoint)]
            let mean = (self.at(middle.wrapping_sub(1)) + self.at(middle)) / 2.0;
            mean
        }
    }
}

/// All samples.
struct Sorted<'a> {
    values: &'a [f64],
    sums: Vec<f64>,
    squares: Vec<f64>,
}

impl<'a> Sorted<'a> {
    fn of(values: &'a [f64]) -> Self {
        let sums = running(values.iter().copied());
        let squares = running(values.iter().map(|value| value * value));
        Self { values, sums, squares }
    }
}

impl Ranked for Sorted<'_> {
    fn len(&self) -> usize {
        self.values.len()
    }

    fn at(&self, rank: usize) -> f64 {
        self.values.get(rank).copied().unwrap_or(0.0)
    }

    fn sums(&self, first: usize) -> (f64, f64) {
        let upto = |sums: &[f64]| sums.get(first.wrapping_sub(1)).copied().unwrap_or(0.0);
        (upto(&self.sums), upto(&self.squares))
    }

    fn total(&self) -> (f64, f64) {
        self.sums(self.len())
    }

    fn deviation(&self) -> f64 {
        let mean = self.total().0 / number(self.len());
        let off = self.values.iter().fold(0.0, |sum, value| sum + (value - mean) * (value - mean));
        (off / number(self.values.len())).sqrt()
    }

    fn bounds(&self) -> (f64, f64) {
        (self.at(0), self.at(self.len().wrapping_sub(1)))
    }
}

/// More samples than are kept: steps of equal ones.
struct Steps {
    steps: Vec<Step>,
    moments: Moments,
    bounds: (f64, f64),
}

/// A value, and what samples up to the last of that value add up to.
struct Step {
    value: f64,
    count: f64,
    sum: f64,
    squares: f64,
}

impl Steps {
    fn of(sketch: &Sketch) -> Self {
        let steps = sketch.ranked().scan((0.0, 0.0, 0.0), |(count, sum, squares), (value, bin)| {
            *count += bin.samples;
            *sum += value * bin.samples;
            *squares += value * value * bin.samples;
            Some(Step { value, count: *count, sum: *sum, squares: *squares })
        });
        Self { steps: steps.collect(), moments: *sketch.plain(), bounds: sketch.bounds() }
    }
}

impl Ranked for Steps {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A count of samples.
    fn len(&self) -> usize {
        self.moments.count as usize
    }

    fn at(&self, rank: usize) -> f64 {
        let step = self.steps.partition_point(|step| step.count <= number(rank));
        self.steps.get(step).or(self.steps.last()).map_or(0.0, |step| step.value)
    }

    fn sums(&self, first: usize) -> (f64, f64) {
        let first = number(first);
        let full = self.steps.partition_point(|step| step.count <= first);
        let before = self.steps.get(full.wrapping_sub(1));
        let (count, sum, squares) =
            before.map_or((0.0, 0.0, 0.0), |step| (step.count, step.sum, step.squares));
        let value = self.steps.get(full).map_or(0.0, |step| step.value);
        let rest = first - count;
        (sum + value * rest, squares + value * value * rest)
    }

    fn total(&self) -> (f64, f64) {
        (self.moments.sum, self.moments.squares)
    }

    fn deviation(&self) -> f64 {
        self.moments.deviation()
    }

    fn bounds(&self) -> (f64, f64) {
        self.bounds
    }
}

/// In ascending order; equal ones cannot be told apart, but for the two zeros, which stay as they
/// came.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    if values.iter().any(|value| *value == 0.0 && value.is_sign_negative()) {
        values.sort_by(ascending);
    } else {
        values.sort_unstable_by(f64::total_cmp);
    }
    values
}

/// In ascending order, equal ones as they came: their weights are to be added up in that order.
fn by_value(mut samples: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    samples.sort_by(|(left, _), (right, _)| ascending(left, right));
    samples
}

fn running(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let sums = values.scan(None, |sum: &mut Option<f64>, value| {
        let next = sum.map_or(value, |sum| value + sum);
        *sum = Some(next);
        Some(next)
    });
    sums.collect()
}

fn ascending(left: &f64, right: &f64) -> std::cmp::Ordering {
    left.partial_cmp(right).unwrap_or(std::cmp::Ordering::Equal)
}

#[allow(clippy::cast_precision_loss)] // No window holds 2^53 samples.
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::aggregate::Aggregate;
    use proptest::prelude::*;
    use protocols::{Kind, Measure};
    use std::collections::BTreeMap;

    fn samples(all: &[(f64, f64)]) -> Samples {
        let mut aggregate = Aggregate::new(Kind::Timer);
        for (ms, rate) in all {
            aggregate.absorb(&Measure::Timing { ms: *ms, rate: *rate }, 0, usize::MAX);
        }
        let Aggregate::Samples(samples) = aggregate else { panic!("{aggregate:?}") };
        samples
    }

    /// The same, of which only so many are kept.
    fn sketched(all: &[(f64, f64)], exact: usize) -> Samples {
        let mut samples = Samples::default();
        all.iter().for_each(|(ms, rate)| _ = samples.push(*ms, *rate, exact));
        samples
    }

    fn plain(values: impl IntoIterator<Item = u32>) -> Weighted {
        let values: Vec<_> = values.into_iter().map(|value| (f64::from(value), 1.0)).collect();
        Weighted::new(&samples(&values))
    }

    #[test]
    fn percentiles_are_of_nearest_rank() {
        let shuffled = (0..100).map(|n| n * 37 % 100 + 1);
        let hundred = plain(shuffled);
        for percent in 1..=100 {
            let percent = f64::from(percent);
            assert_eq!(hundred.percentile(percent), percent);
        }
        let (one, ten) = (plain([7]), plain(1..=10));
        for percent in [50.0, 90.0, 95.0, 99.0, 99.9, 100.0] {
            assert_eq!(one.percentile(percent), 7.0);
        }
        assert_eq!(
            (ten.percentile(90.0), ten.percentile(95.0), ten.percentile(0.0)),
            (9.0, 10.0, 1.0)
        );
        assert_eq!(plain(1..=1000).percentile(99.9), 999.0);
    }

    #[test]
    fn the_median_is_between_the_two_in_the_middle() {
        assert_eq!(plain([7]).median(), 7.0);
        assert_eq!(plain([3, 1, 2]).median(), 2.0);
        assert_eq!(plain([4, 1, 2, 3]).median(), 2.5);
        let weighted = |all: &[(f64, f64)]| Weighted::new(&samples(all)).median();
        assert_eq!(weighted(&[(1.0, 0.001), (2.0, 0.001)]), 1.5);
        assert_eq!(weighted(&[(1.0, 0.5), (2.0, 1.0)]), 1.0);
        assert_eq!(weighted(&[(1.0, 0.5), (2.0, 1.0), (3.0, 1.0)]), 1.5);
    }

    #[test]
    fn a_rate_weighs_and_never_scales() {
        let weighted = Weighted::new(&samples(&[(1.0, 0.001), (2.0, 0.001)]));
        assert_eq!((weighted.count(), weighted.sum(), weighted.mean()), (2000.0, 3000.0, 1.5));
        assert_eq!((weighted.bounds(), weighted.deviation()), (Some((1.0, 2.0)), 0.5));
        let half = Weighted::new(&samples(&[(100.0, 0.5); 50]));
        assert_eq!((half.count(), half.sum(), half.mean()), (100.0, 10_000.0, 100.0));
    }

    #[test]
    fn nothing_is_no_reason_to_panic() {
        let none = Weighted::new(&samples(&[]));
        assert_eq!((none.bounds(), none.sum(), none.count()), (None, 0.0, 0.0));
        assert_eq!((none.median(), none.percentile(90.0)), (0.0, 0.0));
        assert_eq!(statistics(&[], 10.0, &[90.0]), named("count 0 count_ps 0"));
    }

    proptest! {
        /// A sample of rate 1/n says what n equal samples would have said.
        #[test]
        fn a_weight_is_a_repetition(all in prop::collection::vec((-99i32..99, 0u32..3), 1..20)) {
            let sampled: Vec<_> = all.iter().map(|(value, power)| {
                (f64::from(*value), 1.0 / f64::from(1u32 << power))
            }).collect();
            let repeated: Vec<_> = all.iter().flat_map(|(value, power)| {
                std::iter::repeat_n((f64::from(*value), 1.0), 1 << power)
            }).collect();
            let weighted = Weighted::new(&samples(&sampled));
            let repeated = Weighted::new(&samples(&repeated));
            prop_assert_eq!(weighted.count(), repeated.count());
            prop_assert_eq!(weighted.sum(), repeated.sum());
            prop_assert_eq!(weighted.median(), repeated.median());
            prop_assert!((weighted.deviation() - repeated.deviation()).abs() < 1e-9);
            let mut last = f64::NEG_INFINITY;
            for percent in 0..=100 {
                let at = weighted.percentile(f64::from(percent));
                prop_assert_eq!(at, repeated.percentile(f64::from(percent)));
                prop_assert!(at >= last);
                last = at;
            }
        }

        /// With more samples than are kept, ranks are off by no more than a sketch may be, and
        /// the rest is what it would have been but for the order of additions.
        #[test]
        fn what_is_sketched_says_nearly_the_same(
            all in prop::collection::vec((1.0..1e4, 1u32..5), 2..100),
            exact in 0usize..50,
        ) {
            let all: Vec<_> = all.iter().map(|(ms, many)| (*ms, 1.0 / f64::from(*many))).collect();
            let exact = exact.min(all.len() - 1);
            let near = |ours: f64, theirs: f64, error: f64| {
                (ours - theirs).abs() <= theirs.abs() * (error + 1e-9) + 1e-6
            };
            let (kept, sketch) = (samples(&all), sketched(&all, exact));
            prop_assert!(sketch.are_sketched() && sketch.values().len() == exact);
            let (kept, sketch) = (Weighted::new(&kept), Weighted::new(&sketch));
            prop_assert_eq!((sketch.bounds(), sketch.count()), (kept.bounds(), kept.count()));
            prop_assert!(near(sketch.sum(), kept.sum(), 0.0));
            prop_assert!(near(sketch.deviation(), kept.deviation(), 1e-6));
            for percent in [0.0, 10.0, 50.0, 90.0, 99.9, 100.0] {
                prop_assert!(near(sketch.percentile(percent), kept.percentile(percent), 0.005));
            }
            prop_assert!(near(sketch.median(), kept.median(), 0.005));
            let kept = statistics(&all, 10.0, &[50.0, 90.0, -10.0, 100.0]);
            let sketch = statistics_of(&sketched(&all, exact), 10.0, &[50.0, 90.0, -10.0, 100.0]);
            prop_assert_eq!(sketch.keys().collect::<Vec<_>>(), kept.keys().collect::<Vec<_>>());
            for (stat, value) in kept {
                // Squares are off by twice as much.
                prop_assert!(near(sketch[&stat], value, 0.0101), "{} {} {}", stat, sketch[&stat], value);
            }
        }

        /// Without rates the two schools agree, to the last bit.
        #[test]
        fn without_rates_the_schools_agree(values in prop::collection::vec(-1e3..1e3, 1..50)) {
            let all: Vec<_> = values.iter().map(|value: &f64| (*value, 1.0)).collect();
            let weighted = Weighted::new(&samples(&all));
            let classic = statistics(&all, 10.0, &[]);
            prop_assert_eq!(classic["sum"], weighted.sum());
            prop_assert_eq!(classic["mean"], weighted.mean());
            prop_assert_eq!(classic["median"], weighted.median());
            prop_assert_eq!(classic["std"], weighted.deviation());
            prop_assert_eq!((classic["lower"], classic["upper"]), weighted.bounds().unwrap());
        }
    }

    fn statistics(all: &[(f64, f64)], secs: f64, percentiles: &[f64]) -> BTreeMap<String, f64> {
        statistics_of(&samples(all), secs, percentiles)
    }

    fn statistics_of(all: &Samples, secs: f64, percentiles: &[f64]) -> BTreeMap<String, f64> {
        let percentiles: Vec<_> = percentiles.iter().copied().map(Percentile::new).collect();
        let mut found = BTreeMap::new();
        classic(all, secs, &percentiles, &mut |stat, label, value| {
            found.insert(format!("{stat}{label}"), value);
        });
        found
    }

    fn named(text: &str) -> BTreeMap<String, f64> {
        let words: Vec<_> = text.split_whitespace().collect();
        words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap())).collect()
    }

    /// What statsd/statsd 0.9.0 answered when it was given these samples.
    #[test]
    fn classic_statistics_agree_to_the_last_bit() {
        let many = [
            (12.7, 1.0),
            (0.1, 0.1),
            (3.3, 1.0),
            (1e-3, 0.3),
            (250.125, 1.0),
            (7.0, 1.0),
            (7.0, 0.5),
            (0.300_000_000_000_000_04, 1.0),
            (99.99, 1.0),
            (1234.5678, 0.7),
            (2.0, 1.0),
            (18.2, 1.0),
            (0.7, 0.333_333_333_333_333_3),
        ];
        let expected = "count_90 12 mean_90 33.45133333333333 upper_90 250.125 sum_90 401.416 \
            sum_squares_90 73166.52572599999 count_99_9 13 mean_99_9 125.84490769230769 \
            upper_99_9 1234.5678 sum_99_9 1635.9838 sum_squares_99_9 1597324.1785228401 \
            count_top10 1 mean_top10 1234.5678 lower_top10 1234.5678 sum_top10 1234.5678 \
            sum_squares_top10 1524157.65279684 count_50 7 mean_50 1.9144285714285714 upper_50 7 \
            sum_50 13.401 sum_squares_50 64.480001 std 327.1607401011277 upper 1234.5678 \
            lower 0.001 count 27.761904761904763 count_ps 2.776190476190476 sum 1635.9838 \
            sum_squares 1597324.1785228401 mean 125.84490769230769 median 7";
        assert_eq!(statistics(&many, 10.0, &[90.0, 99.9, -10.0, 50.0, 1.0]), named(expected));
        let expected = "count_90 1 mean_90 7 upper_90 7 sum_90 7 sum_squares_90 49 count_top10 1 \
            mean_top10 7 lower_top10 7 sum_top10 7 sum_squares_top10 49 std 0 upper 7 lower 7 \
            count 1 count_ps 0.1 sum 7 sum_squares 49 mean 7 median 7";
        assert_eq!(statistics(&[(7.0, 1.0)], 10.0, &[90.0, -10.0]), named(expected));
        let expected = "count_90 2 mean_90 3 upper_90 4 sum_90 6 sum_squares_90 20 count_top100 2 \
            lower_top100 2 std 1 upper 4 lower 2 count 2 count_ps 6.666666666666667 sum 6 \
            sum_squares 20 mean 3 median 3";
        assert_eq!(statistics(&[(4.0, 1.0), (2.0, 1.0)], 0.3, &[90.0, -100.0]), named(expected));
    }
}
