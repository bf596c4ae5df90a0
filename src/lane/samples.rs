//! The samples of a timer in one window: up to a limit as they came, sketched beyond it.
//!
//! Up to the limit all results are exact; the number of samples always is. Once a series has more samples
//! than that, its percentiles are those of a [`Sketch`], which takes some tens of kilobytes however many
//! samples come. So one hot timer can take neither the memory of all others, nor the time to sort it.

use super::prefetch;
use super::sketch::Sketch;
use serde::{Deserialize, Serialize};

/// The samples of one series.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Option<Box<Kept>>);

#[derive(Clone, Debug, Default)]
struct Kept {
    exact: Exact,
    beyond: Option<Box<Sketch>>,
}

/// Samples in the order of arrival. `weights` stays empty as long as every rate was 1.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Exact {
    values: Vec<f64>,
    weights: Vec<f64>,
    /// The sum of the weights, those of samples beyond the limit among them.
    count: f64,
}

impl Samples {
    pub(super) fn of(exact: Exact, beyond: Option<Box<Sketch>>) -> Self {
        Self(Some(Box::new(Kept { exact, beyond })))
    }

    pub(super) fn into_parts(self) -> (Exact, Option<Box<Sketch>>) {
        let Kept { exact, beyond } = self.0.map(|kept| *kept).unwrap_or_default();
        (exact, beyond)
    }

    /// The samples as they came, up to the limit.
    pub(super) fn values(&self) -> &[f64] {
        self.0.as_deref().map_or(&[], |kept| &kept.exact.values)
    }

    /// The same with their weights, one divided by the rate.
    pub(super) fn weighted(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let weights = self.weights().iter().copied().chain(std::iter::repeat(1.0));
        self.values().iter().copied().zip(weights)
    }

    /// The weights, if any of them is not 1.
    pub(super) fn weights(&self) -> &[f64] {
        self.0.as_deref().map_or(&[], |kept| &kept.exact.weights)
    }

    /// How many there were before the clients left some out: the sum of the weights.
    pub(super) fn count(&self) -> f64 {
        self.0.as_deref().map_or(0.0, |kept| kept.exact.count)
    }

    /// All samples, if there were more than are kept as they came.
    pub(super) fn sketch(&self) -> Option<Sketch> {
        let mut all = (**self.0.as_deref()?.beyond.as_ref()?).clone();
        self.weighted().for_each(|(value, weight)| _ = all.add(value, weight));
        Some(all)
    }

    /// Whether there were more than are kept as they came.
    pub(super) fn are_sketched(&self) -> bool {
        self.0.as_deref().is_some_and(|kept| kept.beyond.is_some())
    }

    /// The memory that they take beside their own size.
    pub(super) fn bytes(&self) -> usize {
        let beyond = |kept: &Kept| kept.beyond.as_ref().map_or(0, |sketch| sketch.bytes());
        let beyond = self.0.as_deref().map_or(0, beyond);
        size_of_val(self.values()) + size_of_val(self.weights()) + beyond
    }

    /// Prefetches the place of the next sample.
    #[inline]
    pub(super) fn ask_for(&self) {
        prefetch::end_of(self.values());
    }

    /// Takes one in; the values of up to `exact` of them are kept. Answers how many bytes it needed.
    pub(super) fn push(&mut self, value: f64, rate: f64, exact: usize) -> usize {
        let weight = 1.0 / rate;
        let kept = self.0.get_or_insert_default();
        kept.exact.count += weight;
        if kept.beyond.is_none() && kept.exact.values.len() < exact {
            return kept.exact.push(value, weight);
        }
        let fresh = if kept.beyond.is_none() { size_of::<Sketch>() } else { 0 };
        fresh + kept.beyond.get_or_insert_default().add(value, weight)
    }

    /// Takes in what another worker saw.
    pub(super) fn merge(&mut self, other: Self) {
        let Some(other) = other.0 else { return };
        let Kept { exact, beyond } = &mut **self.0.get_or_insert_default();
        exact.merge(other.exact);
        match (beyond, other.beyond) {
            (Some(sketch), Some(more)) => sketch.merge(&more),
            (none, more) if none.is_none() => *none = more,
            _ => {}
        }
    }
}

impl Exact {
    fn push(&mut self, value: f64, weight: f64) -> usize {
        self.note_weight(weight);
        self.values.push(value);
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
            self.weights.extend_from_slice(&other.weights);
            self.weights.resize(self.values.len() + other.values.len(), 1.0);
        }
        self.values.extend(other.values);
        self.count += other.count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = usize::MAX;

    #[test]
    fn weights_are_kept_only_once_they_matter() {
        let mut samples = Samples::default();
        samples.push(1.0, 1.0, ALL);
        assert!(samples.weights().is_empty());
        samples.push(2.0, 0.5, ALL);
        samples.push(3.0, 1.0, ALL);
        assert_eq!(samples.weighted().collect::<Vec<_>>(), [(1.0, 1.0), (2.0, 2.0), (3.0, 1.0)]);
        let mut plain = Samples::default();
        plain.push(9.0, 1.0, ALL);
        plain.merge(samples);
        assert_eq!(plain.weights(), [1.0, 1.0, 2.0, 1.0]);
        assert_eq!(plain.count(), 5.0);
    }

    #[test]
    fn beyond_the_limit_there_is_a_sketch_of_all() {
        let mut samples = Samples::default();
        let needed: Vec<_> = (1..=4).map(|ms| samples.push(f64::from(ms), 0.5, 2)).collect();
        assert_eq!(needed[..2], [16, 16]);
        assert!(needed[2] > size_of::<Sketch>() && needed[3] > 0, "{needed:?}");
        assert_eq!(samples.bytes(), needed.iter().sum::<usize>());
        assert_eq!((samples.values(), samples.count()), (&[1.0, 2.0][..], 8.0));
        let all = samples.sketch().unwrap();
        assert_eq!((all.weighted().sum, all.plain().sum), (20.0, 10.0));
        assert_eq!(all.bounds(), (1.0, 4.0));
    }

    #[test]
    fn a_sketch_on_either_side_is_merged() {
        for limits in [[9, 1], [1, 9], [1, 1]] {
            let [mut one, other] = limits.map(|limit| {
                let mut samples = Samples::default();
                (1..=3).for_each(|ms| _ = samples.push(f64::from(ms), 1.0, limit));
                samples
            });
            one.merge(other);
            assert_eq!((one.count(), one.sketch().unwrap().plain().sum), (6.0, 12.0), "{limits:?}");
        }
    }
}
