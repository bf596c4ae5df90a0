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
