//! How much a principal may write: points a second, and series.
//!
//! A [`Meter`] counts for all listeners at once, belongs to the principal's *name* and survives reloads.
//! Time is an argument. A series is held from the hour in which it was last seen to the end of the next
//! one. Each takes 16 bytes, in a table that may be half empty: at most 40.

use crate::units::Size;
use protocols::UnixNanos;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a principal may write at the most; what is not said is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Points a second, in the long run.
    pub points_per_second: Option<u64>,
    /// Points at once, after a pause; by default, those of one second.
    pub burst: Option<u64>,
    /// Series held.
    pub series: Option<u64>,
    /// Series that were not held before, in each hour.
    pub new_series_per_hour: Option<u64>,
    /// The largest body of a request, decompressed.
    pub body: Option<Size>,
}

/// Which quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `points_per_second`.
    Points,
    /// `series`.
    Series,
    /// `new_series_per_hour`.
    NewSeries,
}

impl Kind {
    /// As a configuration calls it; for points, what may come at once.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Points => "quota.burst",
            Self::Series => "quota.series",
            Self::NewSeries => "quota.new_series_per_hour",
        }
    }
}

/// A quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Which.
    pub kind: Kind,
    /// When there will be room for as much; `None` if there never will be.
    pub again: Option<Duration>,
}

impl Quota {
    /// Whether series are counted.
    pub const fn counts_series(&self) -> bool {
        self.series.is_some() || self.new_series_per_hour.is_some()
    }

    fn burst(&self) -> u64 {
        self.burst.or(self.points_per_second).unwrap_or(u64::MAX)
    }
}

/// What a principal has used of its quota.
#[derive(Debug)]
pub struct Meter {
    /// The time at which all that was let through is paid off, at the rate of the quota.
    paid_off: AtomicI64,
    census: Mutex<Census>,
}

/// The series that are held, by their hashes, and the hour in which each was last seen.
#[derive(Debug, Default)]
struct Census {
    hour: i64,
    seen: HashMap<u64, i64>,
    /// Those of this hour that were not held before.
    new: u64,
}

impl Default for Meter {
    fn default() -> Self {
        Self { paid_off: AtomicI64::new(i64::MIN), census: Mutex::default() }
    }
}

impl Meter {
    /// Lets so many points through, of series with these hashes; all of them or none. Others wait
    /// meanwhile, so the hashes have to be computed before.
    ///
    /// # Errors
    ///
    /// Which quota has no room for them. Nothing is used up then.
    pub fn spend(
        &self,
        quota: &Quota,
        points: u64,
        series: &[u64],
        now: UnixNanos,
    ) -> Result<(), Exceeded> {
        if !quota.counts_series() {
            return self.spend_points(quota, points, now);
        }
        let mut census = self.census();
        census.enter(now);
        let found = census.find(series);
        census.has_room(quota, found.new.len() as u64, now)?;
        self.spend_points(quota, points, now)?;
        census.note(found);
        Ok(())
    }

    /// The same where series are not counted.
    ///
    /// # Errors
    ///
    /// As before.
    pub fn spend_points(
        &self,
        quota: &Quota,
        points: u64,
        UnixNanos(now): UnixNanos,
    ) -> Result<(), Exceeded> {
        let Some(rate) = quota.points_per_second else { return Ok(()) };
        let (cost, most) = (time_of(points, rate), time_of(quota.burst(), rate));
        let exceeded = |again| Err(Exceeded { kind: Kind::Points, again });
        if cost > most {
            return exceeded(None);
        }
        let mut before = self.paid_off.load(Relaxed);
        loop {
            // It was never further off than `most`, unless the clock was put back since.
            let owed = before.clamp(now, now.saturating_add(most));
            let over = owed.saturating_add(cost).saturating_sub(now.saturating_add(most));
            let after = if over > 0 { owed } else { owed.saturating_add(cost) };
            match self.paid_off.compare_exchange_weak(before, after, Relaxed, Relaxed) {
                Ok(_) if over > 0 => {
                    return exceeded(Some(Duration::from_nanos(over.unsigned_abs())));
                }
                Ok(_) => return Ok(()),
                Err(other) => before = other,
            }
        }
    }

    /// Whether there would be room for a point just now, so far as points are counted.
    pub fn has_room(&self, quota: &Quota, UnixNanos(now): UnixNanos) -> bool {
        let Some(rate) = quota.points_per_second else { return true };
        let (cost, most) = (time_of(1, rate), time_of(quota.burst(), rate));
        let latest = now.saturating_add(most);
        self.paid_off.load(Relaxed).clamp(now, latest).saturating_add(cost) <= latest
    }

    fn census(&self) -> MutexGuard<'_, Census> {
        self.census.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was found of the series of a request.
#[derive(Default)]
struct Found {
    held: Vec<u64>,
    new: HashSet<u64>,
}

impl Census {
    /// Forgets series that were not seen for long, if a new hour has begun.
    fn enter(&mut self, now: UnixNanos) {
        let hour = now.secs().div_euclid(HOUR);
        if hour != self.hour {
            (self.hour, self.new) = (hour, 0);
            // A later hour means that the clock was put back since.
            self.seen.retain(|_, seen| (hour - 1..=hour).contains(seen));
        }
    }

    fn find(&self, series: &[u64]) -> Found {
        let mut found = Found::default();
        for &hash in series {
            if self.seen.contains_key(&hash) {
                found.held.push(hash);
            } else {
                found.new.insert(hash);
            }
        }
        found
    }

    fn has_room(&self, quota: &Quota, new: u64, now: UnixNanos) -> Result<(), Exceeded> {
        let left = Duration::from_secs((HOUR - now.secs().rem_euclid(HOUR)).unsigned_abs());
        let room = |kind, used: u64, most: u64| {
            let again = (new <= most).then_some(left);
            match new == 0 || used.saturating_add(new) <= most {
                true => Ok(()),
                false => Err(Exceeded { kind, again }),
            }
        };
        room(Kind::NewSeries, self.new, quota.new_series_per_hour.unwrap_or(u64::MAX))?;
        room(Kind::Series, self.seen.len() as u64, quota.series.unwrap_or(SERIES_MAX))
    }

    fn note(&mut self, Found { held, new }: Found) {
        self.new += new.len() as u64;
        let hour = self.hour;
        self.seen.extend(held.into_iter().chain(new).map(|hash| (hash, hour)));
    }
}

/// The meters of all principals, by name.
#[derive(Debug, Default)]
pub struct Meters(Mutex<BTreeMap<String, Arc<Meter>>>);

impl Meters {
    /// That of a principal, which begins to count when it is first asked for.
    pub fn of(&self, principal: &str) -> Arc<Meter> {
        let mut meters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(meters.entry(principal.to_owned()).or_default())
    }

    /// Lets go of those that nobody uses.
    pub fn forget_unused(&self) {
        let mut meters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        meters.retain(|_, meter| Arc::strong_count(meter) > 1);
    }
}

/// How long so many points take at that rate, in nanoseconds.
fn time_of(points: u64, rate: u64) -> i64 {
    let nanos = u128::from(points) * 1_000_000_000 / u128::from(rate.max(1));
    // A hundred years are as good as for ever, and can be added to any time.
    i64::try_from(nanos).unwrap_or(i64::MAX).min(100 * 366 * 24 * HOUR * 1_000_000_000)
}

const HOUR: i64 = 3600;
/// Where only new ones are limited.
const SERIES_MAX: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: i64) -> UnixNanos {
        UnixNanos::from_millis(1_700_000_000_000 + millis)
    }

    fn points(meter: &Meter, quota: &Quota, points: u64, millis: i64) -> Result<(), Option<u128>> {
        let spent = meter.spend(quota, points, &[], at(millis));
        spent.map_err(|exceeded| {
            assert_eq!(exceeded.kind, Kind::Points);
            exceeded.again.map(|again| again.as_millis())
        })
    }

    fn series(meter: &Meter, quota: &Quota, names: &[u64], secs: i64) -> Result<(), Kind> {
        let spent = meter.spend(quota, 1, names, at(secs * 1000));
        spent.map_err(|exceeded| exceeded.kind)
    }

    #[test]
    fn points_come_at_their_rate_after_a_burst() {
        let quota = Quota { points_per_second: Some(10), burst: Some(20), ..Quota::default() };
        let meter = Meter::default();
        assert_eq!(points(&meter, &quota, 21, 0), Err(None), "more than there ever is room for");
        assert_eq!(points(&meter, &quota, 15, 0), Ok(()));
        assert_eq!(points(&meter, &quota, 6, 0), Err(Some(100)));
        assert_eq!(points(&meter, &quota, 5, 0), Ok(()));
        assert_eq!(points(&meter, &quota, 1, 0), Err(Some(100)));
        assert_eq!(points(&meter, &quota, 1, 99), Err(Some(1)));
        assert_eq!(points(&meter, &quota, 1, 100), Ok(()));
        assert_eq!(points(&meter, &quota, 20, 100_000), Ok(()));
        assert_eq!(points(&meter, &quota, 1, 100_000), Err(Some(100)));
    }

    #[test]
    fn a_clock_that_is_put_back_closes_no_gate_for_longer_than_a_burst() {
        let quota = Quota { points_per_second: Some(10), ..Quota::default() };
        let meter = Meter::default();
        assert_eq!(points(&meter, &quota, 10, 3_600_000), Ok(()));
        assert_eq!(points(&meter, &quota, 1, 0), Err(Some(100)));
        assert_eq!(points(&meter, &quota, 10, 1000), Ok(()));
    }

    #[test]
    fn series_are_held_for_an_hour_or_two() {
        let quota = Quota { series: Some(3), ..Quota::default() };
        let meter = Meter::default();
        // 1,700,000,000 is 800 seconds into an hour.
        assert_eq!(series(&meter, &quota, &[1, 2, 1], 0), Ok(()));
        assert_eq!(series(&meter, &quota, &[3, 4], 0), Err(Kind::Series), "all or nothing");
        assert_eq!(series(&meter, &quota, &[3], 0), Ok(()));
        assert_eq!(series(&meter, &quota, &[4], 1), Err(Kind::Series));
        assert_eq!(series(&meter, &quota, &[1], 3600), Ok(()));
        assert_eq!(series(&meter, &quota, &[4], 3601), Err(Kind::Series), "2 and 3 are held");
        assert_eq!(series(&meter, &quota, &[4, 5], 7200), Ok(()), "no longer");
        assert_eq!(series(&meter, &quota, &[6], 7200), Err(Kind::Series));
        assert_eq!(series(&meter, &quota, &[1, 4, 5], 7201), Ok(()));
    }

    #[test]
    fn new_series_are_counted_by_the_hour() {
        let quota = Quota { new_series_per_hour: Some(2), ..Quota::default() };
        let meter = Meter::default();
        assert_eq!(series(&meter, &quota, &[1, 2], 0), Ok(()));
        assert_eq!(series(&meter, &quota, &[1, 2], 1), Ok(()));
        assert_eq!(series(&meter, &quota, &[3], 1), Err(Kind::NewSeries));
        assert_eq!(series(&meter, &quota, &[1, 3, 4], 3600), Ok(()));
        assert_eq!(series(&meter, &quota, &[5], 3600), Err(Kind::NewSeries));
    }

    #[test]
    fn what_is_denied_uses_up_nothing() {
        let both = Quota { points_per_second: Some(1), series: Some(1), ..Quota::default() };
        let meter = Meter::default();
        assert_eq!(series(&meter, &both, &[1, 2], 0), Err(Kind::Series));
        assert_eq!(series(&meter, &both, &[1], 0), Ok(()));
        assert_eq!(series(&meter, &both, &[1], 0), Err(Kind::Points));
        let meter = Meter::default();
        assert_eq!(series(&meter, &both, &[1], 0), Ok(()));
        let points_first = meter.spend(&both, 1, &[2], at(0));
        assert_eq!(points_first.unwrap_err().kind, Kind::Series);
        assert_eq!(meter.census().seen.len(), 1);
    }

    #[test]
    fn meters_belong_to_names() {
        let meters = Meters::default();
        let one = meters.of("a");
        assert!(Arc::ptr_eq(&one, &meters.of("a")));
        meters.forget_unused();
        assert!(Arc::ptr_eq(&one, &meters.of("a")));
    }

    proptest! {
        /// Whatever comes when, no more passes than the burst and what the rate allows since.
        #[test]
        fn no_more_passes_than_may(
            rate in 1_u64..1000, burst in 1_u64..1000,
            steps in prop::collection::vec((0_i64..500, 0_u64..50), 1..100),
        ) {
            let quota = Quota { points_per_second: Some(rate), burst: Some(burst), ..Quota::default() };
            let (meter, mut now, mut passed) = (Meter::default(), 0, 0);
            for (wait, count) in steps {
                now += wait;
                let has_room = meter.has_room(&quota, at(now));
                let passes = points(&meter, &quota, count, now).is_ok();
                prop_assert!(count != 1 || has_room == passes);
                passed += if passes { count } else { 0 };
                let may = burst + rate * now.unsigned_abs() / 1000;
                prop_assert!(passed <= may + 1, "{passed} of {may}");
            }
        }
    }
}
