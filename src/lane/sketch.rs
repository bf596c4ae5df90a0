//! A mergeable sketch of samples, for percentiles that are right to within half a percent.
//!
//! Samples are counted in bins whose bounds grow by a constant factor, as a `DDSketch` does
//! (Masson, Rim and Lee, 2019): a value is told by its bin to within [`ERROR`], whatever its size,
//! and two sketches are merged by adding their bins up. Counts are kept twice, plain and with the
//! weights of sampled points. Number, sum, smallest, largest and deviation are exact.
//!
//! A sketch has at most [`BINS_MAX`] bins a sign, which reach over eighteen powers of ten; beyond
//! that, the bins nearest to zero become one.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Samples that nobody remembers one by one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sketch {
    below: Bins,
    zero: Bin,
    above: Bins,
    bounds: (f64, f64),
    plain: Moments,
    weighted: Moments,
}

/// How many samples there are of about one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Bin {
    /// As they came.
    pub(super) samples: f64,
    /// By their weights.
    pub(super) weight: f64,
}

/// What is exact of samples, each of which weighs something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Moments {
    pub(super) count: f64,
    pub(super) sum: f64,
    pub(super) squares: f64,
    mean: f64,
    /// The squares of what samples are off the mean, added up.
    off: f64,
}

/// The bins of one sign: neighbours, the one nearest to zero first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Bins {
    first: i32,
    bins: VecDeque<Bin>,
}

impl Default for Sketch {
    fn default() -> Self {
        Self {
            below: Bins::default(),
            zero: Bin::default(),
            above: Bins::default(),
            bounds: (f64::INFINITY, f64::NEG_INFINITY),
            plain: Moments::default(),
            weighted: Moments::default(),
        }
    }
}

impl Sketch {
    /// Takes a sample in. Answers how many bytes were needed for it.
    pub(super) fn add(&mut self, value: f64, weight: f64) -> usize {
        self.plain.add(value, 1.0);
        self.weighted.add(value, weight);
        self.bounds = (self.bounds.0.min(value), self.bounds.1.max(value));
        let before = self.bins();
        let bin = Bin { samples: 1.0, weight };
        match number_of(value.abs()) {
            None => self.zero.add(bin),
            Some(number) if value > 0.0 => self.above.add(number, bin),
            Some(number) => self.below.add(number, bin),
        }
        (self.bins() - before) * size_of::<Bin>()
    }

    /// Takes in what another one has seen.
    pub(super) fn merge(&mut self, other: &Self) {
        self.below.merge(&other.below);
        self.zero.add(other.zero);
        self.above.merge(&other.above);
        let (lower, upper) = other.bounds;
        self.bounds = (self.bounds.0.min(lower), self.bounds.1.max(upper));
        self.plain.merge(&other.plain);
        self.weighted.merge(&other.weighted);
    }

    /// The values there are about, in ascending order, and how many of each.
    pub(super) fn ranked(&self) -> impl Iterator<Item = (f64, Bin)> + '_ {
        let below = self.below.iter().rev().map(|(value, bin)| (-value, bin));
        let zero = std::iter::once((0.0, self.zero));
        let (lower, upper) = self.bounds;
        let all = below.chain(zero).chain(self.above.iter());
        let all = all.filter(|(_, bin)| bin.samples > 0.0);
        all.map(move |(value, bin)| (value.clamp(lower, upper), bin))
    }

    /// The smallest and the largest sample.
    pub(super) const fn bounds(&self) -> (f64, f64) {
        self.bounds
    }

    /// Of the samples as they came.
    pub(super) const fn plain(&self) -> &Moments {
        &self.plain
    }

    /// Of the samples by their weights.
    pub(super) const fn weighted(&self) -> &Moments {
        &self.weighted
    }

    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.bins() * size_of::<Bin>()
    }

    fn bins(&self) -> usize {
        self.below.bins.len() + self.above.bins.len()
    }
}

impl Bin {
    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.weight += other.weight;
    }
}

impl Moments {
    /// The deviation of the population.
    pub(super) fn deviation(&self) -> f64 {
        (self.off / self.count).sqrt()
    }

    fn add(&mut self, value: f64, weight: f64) {
        self.count += weight;
        self.sum += value * weight;
        self.squares += value * value * weight;
        let off = value - self.mean;
        self.mean += off * weight / self.count;
        self.off += off * (value - self.mean) * weight;
    }

    fn merge(&mut self, other: &Self) {
        if other.count == 0.0 {
            return;
        }
        let count = self.count + other.count;
        let between = other.mean - self.mean;
        self.off += other.off + between * between * self.count * other.count / count;
        self.mean += between * other.count / count;
        self.count = count;
        self.sum += other.sum;
        self.squares += other.squares;
    }
}

impl Bins {
    fn add(&mut self, number: i32, bin: Bin) {
        if self.bins.is_empty() {
            self.first = number;
        }
        self.reach(number);
        let place = usize::try_from(number - self.first).unwrap_or(0);
        if let Some(there) = self.bins.get_mut(place) {
            there.add(bin);
        }
    }

    /// Makes a bin of that number, as far as there may be so many.
    fn reach(&mut self, number: i32) {
        while number < self.first && self.bins.len() < BINS_MAX {
            self.bins.push_front(Bin::default());
            self.first -= 1;
        }
        while number >= self.end() {
            self.bins.push_back(Bin::default());
            if self.bins.len() > BINS_MAX
                && let Some(nearest) = self.bins.pop_front()
            {
                self.first += 1;
                self.bins.front_mut().into_iter().for_each(|next| next.add(nearest));
            }
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // At most `BINS_MAX`.
    fn end(&self) -> i32 {
        self.first + self.bins.len() as i32
    }

    fn merge(&mut self, other: &Self) {
        for (number, bin) in (other.first..).zip(&other.bins) {
            if bin.samples > 0.0 {
                self.add(number, *bin);
            }
        }
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (f64, Bin)> + '_ {
        let value = |number: i32| (f64::from(number) * log_growth()).exp() * 2.0 / (1.0 + GROWTH);
        self.bins.iter().enumerate().map(move |(place, bin)| {
            let number = self.first.saturating_add(i32::try_from(place).unwrap_or(i32::MAX));
            (value(number), *bin)
        })
    }
}

/// The bin of a value above zero: the values from one power of [`GROWTH`] to the next.
#[allow(clippy::cast_possible_truncation)] // The logarithms of doubles are small.
fn number_of(value: f64) -> Option<i32> {
    (value >= f64::MIN_POSITIVE).then(|| (value.ln() / log_growth()).ceil() as i32)
}

fn log_growth() -> f64 {
    GROWTH.ln()
}

/// By how much a percentile may be off, as a part of itself.
const ERROR: f64 = 0.005;
const GROWTH: f64 = (1.0 + ERROR) / (1.0 - ERROR);
/// About 64 KiB.
const BINS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sketch(values: &[f64]) -> Sketch {
        let mut sketch = Sketch::default();
        values.iter().for_each(|value| _ = sketch.add(*value, 1.0));
        sketch
    }

    /// The value at a rank, counted from 0.
    fn at(sketch: &Sketch, rank: usize) -> f64 {
        let mut seen = 0.0;
        let mut ranked = sketch.ranked();
        let found = ranked.find(|(_, bin)| {
            seen += bin.samples;
            seen > rank as f64
        });
        found.unwrap().0
    }

    proptest! {
        /// A sample of any rank is told to within the stated error, and what is exact is.
        #[test]
        fn every_rank_is_within_the_error(
            mut values in prop::collection::vec(prop_oneof![-1e6..1e6, -1e-3..1e-3, Just(0.0)], 1..200),
            cut in 0usize..200,
        ) {
            let cut = cut.min(values.len());
            let mut merged = sketch(&values[..cut]);
            merged.merge(&sketch(&values[cut..]));
            let whole = sketch(&values);
            values.sort_by(f64::total_cmp);
            for (rank, value) in values.iter().enumerate() {
                let slack = value.abs() * ERROR * (1.0 + 1e-9);
                prop_assert!((at(&whole, rank) - value).abs() <= slack);
                prop_assert_eq!(at(&whole, rank), at(&merged, rank));
            }
            let count = values.len() as f64;
            let mean = values.iter().sum::<f64>() / count;
            let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
            let deviation = (squares / count).sqrt();
            for sketch in [whole, merged] {
                prop_assert_eq!(sketch.plain().count, count);
                prop_assert_eq!(sketch.bounds(), (values[0], values[values.len() - 1]));
                prop_assert!((sketch.plain().sum / count - mean).abs() <= 1e-9 * 1e6);
                prop_assert!((sketch.plain().deviation() - deviation).abs() <= 1e-6 * (1.0 + deviation));
            }
        }
    }

    #[test]
    fn it_never_takes_more_than_its_bins() {
        let mut wide = Sketch::default();
        let mut bytes = size_of::<Sketch>();
        for power in (-300..300).chain((-300..300).rev()) {
            bytes += wide.add(10f64.powi(power), 1.0);
        }
        assert_eq!(wide.above.bins.len(), BINS_MAX);
        assert_eq!((bytes, wide.plain().count), (wide.bytes(), 1200.0));
        assert_eq!(wide.ranked().map(|(_, bin)| bin.samples).sum::<f64>(), 1200.0);
        let largest = wide.ranked().last().unwrap().0;
        assert!((largest / 1e299 - 1.0).abs() <= ERROR);
    }
}
