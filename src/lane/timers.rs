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

use super::aggregate::Samples;

/// Sorted samples with their weights added up.
pub(super) struct Weighted {
    samples: Vec<(f64, f64)>,
    reach: Vec<f64>,
    count: f64,
}

impl Weighted {
    /// Sorts samples and adds their weights up.
    pub(super) fn new(samples: &Samples) -> Self {
        let mut sorted: Vec<_> = samples.weighted().collect();
        sorted.sort_by(|(left, _), (right, _)| ascending(left, right));
        let reach = sorted.iter().scan(0.0, |sum, (_, weight)| {
            *sum += weight;
            Some(*sum)
        });
        Self { reach: reach.collect(), samples: sorted, count: samples.count() }
    }

    /// The sum of the weights.
    pub(super) fn count(&self) -> f64 {
        self.count
    }

    /// The smallest and the largest sample; none of an empty window.
    pub(super) fn bounds(&self) -> Option<(f64, f64)> {
        let (lower, _) = self.samples.first()?;
        let (upper, _) = self.samples.last()?;
        Some((*lower, *upper))
    }

    /// The weighted sum, in ascending order of the samples.
    pub(super) fn sum(&self) -> f64 {
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
    let mut values = samples.values().to_vec();
    values.sort_by(ascending);
    let (Some(min), Some(max)) = (values.first().copied(), values.last().copied()) else { return };
    let sums = running(values.iter().copied());
    let squares = running(values.iter().map(|value| value * value));
    let sorted = Sorted { values: &values, sums: &sums, squares: &squares };
    for percentile in percentiles {
        sorted.threshold(percentile, write);
    }
    let mean = last(&sums) / number(values.len());
    let off = values.iter().fold(0.0, |sum, value| sum + (value - mean) * (value - mean));
    write("lower", "", min);
    write("upper", "", max);
    write("sum", "", last(&sums));
    write("sum_squares", "", last(&squares));
    write("mean", "", mean);
    write("median", "", sorted.middle());
    write("std", "", (off / number(values.len())).sqrt());
}

struct Sorted<'a> {
    values: &'a [f64],
    sums: &'a [f64],
    squares: &'a [f64],
}

impl Sorted<'_> {
    fn threshold(&self, percentile: &Percentile, write: &mut dyn FnMut(&str, &str, f64)) {
        let label = percentile.label.as_str();
        let top = percentile.percent <= 0.0;
        let Some(inside) = self.inside(percentile.percent) else { return };
        let cut = self.values.len() - inside;
        let (place, bound) = if top { (cut, "lower_") } else { (inside - 1, "upper_") };
        let Some(edge) = self.values.get(place) else { return };
        write("count_", label, number(inside));
        write(bound, label, *edge);
        // A lone sample is its own sum, whichever end is asked for.
        let cut = if top && self.values.len() > 1 { Some(cut) } else { None };
        let (Some(sum), Some(squares)) =
            (part(self.sums, inside, cut), part(self.squares, inside, cut))
        else {
            return;
        };
        write("mean_", label, sum / number(inside));
        write("sum_", label, sum);
        write("sum_squares_", label, squares);
    }

    /// How many samples a percentile covers; none if it rounds to zero.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Between 0 and the length.
    fn inside(&self, percent: f64) -> Option<usize> {
        if self.values.len() == 1 {
            return Some(1);
        }
        let inside = (percent.abs() / 100.0 * number(self.values.len())).round() as usize;
        (inside > 0 && inside <= self.values.len()).then_some(inside)
    }

    fn middle(&self) -> f64 {
        let middle = self.values.len() / 2;
        let at = |index: usize| self.values.get(index).copied().unwrap_or(0.0);
        if self.values.len() % 2 == 1 {
            at(middle)
        } else {
            // Not `midpoint`: statsd/statsd adds first, and may overflow where it would not.
            #[allow(clippy::manual_midpoint)]
            let mean = (at(middle.wrapping_sub(1)) + at(middle)) / 2.0;
            mean
        }
    }
}

/// The sum of the first `inside` samples, or of those from `cut` on.
fn part(sums: &[f64], inside: usize, cut: Option<usize>) -> Option<f64> {
    match cut {
        None => sums.get(inside - 1).copied(),
        Some(cut) => Some(last(sums) - sums.get(cut.checked_sub(1)?)?),
    }
}

fn running(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let sums = values.scan(None, |sum: &mut Option<f64>, value| {
        let next = sum.map_or(value, |sum| value + sum);
        *sum = Some(next);
        Some(next)
    });
    sums.collect()
}

fn last(sums: &[f64]) -> f64 {
    sums.last().copied().unwrap_or(0.0)
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
            aggregate.absorb(&Measure::Timing { ms: *ms, rate: *rate }, 0);
        }
        let Aggregate::Samples(samples) = aggregate else { panic!("{aggregate:?}") };
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
        let percentiles: Vec<_> = percentiles.iter().copied().map(Percentile::new).collect();
        let mut found = BTreeMap::new();
        classic(&samples(all), secs, &percentiles, &mut |stat, label, value| {
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
