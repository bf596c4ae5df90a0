//! The rows that a window makes of its series, in the layout of the backend.
//!
//! | kind | `fields`, one row | `statsd`, one reading each |
//! |---|---|---|
//! | counter | `count`, `rate` | `stats.counters.K.count`, `.rate` |
//! | gauge | `value` | `stats.gauges.K` |
//! | timer, histogram, distribution | `count`, `rate`, and if there are samples `sum`, `mean`, `lower`, `upper`, `median`, `stddev`, `p90` … | `stats.timers.K.count`, `.count_ps`, and if there are samples `.lower`, `.upper`, `.sum`, `.sum_squares`, `.mean`, `.median`, `.std`, and for each percentile `.count_90`, `.mean_90`, `.upper_90`, `.sum_90`, `.sum_squares_90` |
//! | set | `count` | `stats.sets.K.count` |
//!
//! Without sampling the two agree, but for percentiles: ours are of nearest rank, so that at least
//! that part of the samples is not above them; that server rounds the rank, down too.
//!
//! A rate is per second of the configured window, however long the window really lasted.
//! In layout `statsd` the three kinds of samples are one: statsd/statsd itself takes `h` and
//! `d` for counters, which serves nobody. Tags stay tags of the rows; that server would fold
//! them into the name.

use super::Layout;
use super::aggregate::Aggregate;
use super::samples::Samples;
use super::settings::Settings;
use super::timers::{Percentile, Weighted, classic};
use protocols::batch::PointWriter;
use protocols::{Batch, FieldValue, Kind, Measure, Number, Point, Tags, UnixNanos};
use std::borrow::Cow;
use std::time::Duration;

/// How one backend's rows look.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    layout: Layout,
    secs: f64,
    percentiles: Vec<Percentile>,
}

impl Rows {
    /// Spells the percentiles once.
    pub(super) fn new(settings: &Settings) -> Self {
        let percentiles = settings.percentiles.iter().copied().map(Percentile::new).collect();
        Self { layout: settings.layout, secs: secs(settings.flush), percentiles }
    }

    /// Appends the rows of one series.
    pub(super) fn write(
        &self,
        name: &str,
        tags: Tags<'_>,
        aggregate: &Aggregate,
        time: UnixNanos,
        out: &mut Batch,
    ) {
        match self.layout {
            Layout::Fields => self.fields(&mut begin(out, name, tags), aggregate, time),
            Layout::Statsd => self.readings(name, tags, aggregate, time, out),
        }
    }

    /// Appends the rows that a window holding this point alone would give.
    pub(super) fn alone(&self, point: &Point<'_>, time: UnixNanos, out: &mut Batch) {
        let mut aggregate = Aggregate::new(point.measure.kind());
        aggregate.absorb(&point.measure, 0, usize::MAX);
        self.write(point.name, point.tags, &aggregate, time, out);
    }

    fn fields(&self, row: &mut PointWriter<'_>, aggregate: &Aggregate, time: UnixNanos) {
        match aggregate {
            Aggregate::Counter(sum) => {
                put(row, "count", *sum);
                put(row, "rate", sum / self.secs);
            }
            Aggregate::Gauge(trail) => put(row, "value", trail.end(0.0)),
            Aggregate::Samples(samples) => self.statistics(row, samples),
            Aggregate::Members(members) => put(row, "count", cardinality(members.len())),
        }
        row.finish_fields(Some(time));
    }

    fn statistics(&self, row: &mut PointWriter<'_>, samples: &Samples) {
        let weighted = Weighted::new(samples);
        put(row, "count", weighted.count());
        put(row, "rate", weighted.count() / self.secs);
        let Some((lower, upper)) = weighted.bounds() else { return };
        put(row, "sum", weighted.sum());
        put(row, "mean", weighted.mean());
        put(row, "lower", lower);
        put(row, "upper", upper);
        put(row, "median", weighted.median());
        put(row, "stddev", weighted.deviation());
        let mut name = String::new();
        for percentile in &self.percentiles {
            name.clear();
            name.push('p');
            name.push_str(&percentile.label);
            put(row, &name, weighted.percentile(percentile.percent));
        }
    }

    fn readings(
        &self,
        name: &str,
        tags: Tags<'_>,
        aggregate: &Aggregate,
        time: UnixNanos,
        out: &mut Batch,
    ) {
        let name = classic_name(name);
        let mut text = String::new();
        let mut reading = |parts: [&str; 4], value: f64| {
            text.clear();
            text.extend(parts);
            let measure = Measure::Reading(Number::F64(value));
            begin(out, &text, tags).finish(measure, Some(time), "");
        };
        match aggregate {
            Aggregate::Counter(sum) => {
                reading(["stats.counters.", &name, ".count", ""], *sum);
                reading(["stats.counters.", &name, ".rate", ""], sum / self.secs);
            }
            Aggregate::Gauge(trail) => reading(["stats.gauges.", &name, "", ""], trail.end(0.0)),
            Aggregate::Samples(samples) => {
                let prefix = format!("stats.timers.{name}.");
                classic(samples, self.secs, &self.percentiles, &mut |stat, label, value| {
                    reading([&prefix, stat, label, ""], value);
                });
            }
            Aggregate::Members(members) => {
                reading(["stats.sets.", &name, ".count", ""], cardinality(members.len()));
            }
        }
    }
}

/// The rows that a window containing only this point would give, for `explain`. A lane that
/// does not aggregate passes the point on as it is.
pub fn rows_of(point: &Point<'_>, settings: &Settings, window_end: UnixNanos) -> Batch {
    let mut rows = Batch::new();
    let time = point.time.unwrap_or(window_end);
    if !settings.aggregate {
        rows.push(point);
    } else if refuses(settings.layout, &point.measure) {
        // Dropped before it comes to a window.
    } else if folds(point.measure.kind()) {
        Rows::new(settings).alone(point, time, &mut rows);
    } else {
        rows.push(&Point { time: Some(time), ..*point });
    }
    rows
}

/// Whether windows aggregate this kind; readings and rows of fields pass through.
pub const fn folds(kind: Kind) -> bool {
    !matches!(kind, Kind::Sample | Kind::Fields)
}

/// The kind under which a layout keeps series: statsd knows one kind of samples.
pub(super) const fn family(layout: Layout, kind: Kind) -> Kind {
    match (layout, kind) {
        (Layout::Statsd, Kind::Histogram | Kind::Distribution) => Kind::Timer,
        _ => kind,
    }
}

/// Whether a measurement has no place in a layout: statsd/statsd takes a negative timing for a
/// bad line.
pub(super) fn refuses(layout: Layout, measure: &Measure<'_>) -> bool {
    layout == Layout::Statsd && matches!(measure, Measure::Timing { ms, .. } if *ms < 0.0)
}

/// Whether statsd/statsd leaves a name as it is.
pub(super) fn is_classic_name(name: &str) -> bool {
    name.bytes().all(is_classic)
}

/// Appends a name as statsd/statsd makes it fit: each run of white space becomes `_`, each `/`
/// `-`, and whatever is not a letter, a digit or one of `_-.;=` goes.
pub(super) fn make_classic(name: &str, fit: &mut String) {
    let mut blank = false;
    for c in name.chars() {
        let was_blank = std::mem::replace(&mut blank, is_blank(c));
        match c {
            _ if blank && was_blank => {}
            _ if blank => fit.push('_'),
            '/' => fit.push('-'),
            _ if u8::try_from(c).is_ok_and(is_classic) => fit.push(c),
            _ => {}
        }
    }
}

fn classic_name(name: &str) -> Cow<'_, str> {
    if is_classic_name(name) {
        return Cow::Borrowed(name);
    }
    let mut fit = String::new();
    make_classic(name, &mut fit);
    Cow::Owned(fit)
}

fn is_classic(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b';' | b'=')
}

/// White space as JavaScript has it, which differs from Unicode's in two characters.
fn is_blank(c: char) -> bool {
    (c.is_whitespace() && c != '\u{85}') || c == '\u{feff}'
}

fn begin<'b>(out: &'b mut Batch, name: &str, tags: Tags<'_>) -> PointWriter<'b> {
    let mut row = out.begin(name);
    for tag in tags.iter() {
        row.tag(tag.key, tag.value);
    }
    row
}

fn put(row: &mut PointWriter<'_>, field: &str, value: f64) {
    row.field(field, FieldValue::Number(Number::F64(value)));
}

/// A span as the double next to it. `as_secs_f64` rounds twice, which is a bit off for some.
#[allow(clippy::cast_precision_loss)] // A window of 2^53 ns would last a hundred days.
fn secs(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e9
}

#[allow(clippy::cast_precision_loss)] // No window holds 2^53 members.
fn cardinality(members: usize) -> f64 {
    members as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Config;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Folds each list of measurements as one series `k` and writes the rows as text.
    fn check(layout: Layout, measures: &[Measure<'_>], expected: &str) {
        let config =
            Config { layout, percentiles: Some(vec![50.0, 90.0, 99.9]), ..Config::default() };
        let rows = Rows::new(&Settings::new("b", "influxdb", &config));
        let mut aggregate = Aggregate::new(family(layout, measures[0].kind()));
        for measure in measures {
            aggregate.absorb(measure, 1, usize::MAX);
        }
        let mut out = Batch::new();
        rows.write("k", Tags::EMPTY, &aggregate, UnixNanos(9), &mut out);
        assert!(out.iter().all(|row| row.time == Some(UnixNanos(9))));
        let expected: Vec<_> = expected.split_whitespace().collect();
        assert_eq!(text(&out).split_whitespace().collect::<Vec<_>>(), expected);
    }

    fn text(rows: &Batch) -> String {
        let rows = rows.iter().map(|row| match row.measure {
            Measure::Fields(fields) => {
                let fields = fields.iter().map(|(key, value)| match value {
                    FieldValue::Number(number) => format!(" {key}={}", number.as_f64()),
                    other => format!(" {key}={other:?}"),
                });
                format!("{}{}\n", row.name, fields.collect::<String>())
            }
            Measure::Reading(number) => format!("{}={}\n", row.name, number.as_f64()),
            other => format!("{} {other:?}\n", row.name),
        });
        rows.collect()
    }

    fn counts(deltas: &[f64], rate: f64) -> Vec<Measure<'static>> {
        deltas.iter().map(|delta| Measure::Count { delta: *delta, rate }).collect()
    }

    #[test]
    fn one_row_a_series() {
        let check = |measures: &[_], expected| check(Layout::Fields, measures, expected);
        check(&counts(&[5.0, -2.0], 1.0), "k count=3 rate=0.3");
        check(&counts(&[1.0], 0.01), "k count=100 rate=10");
        check(&[Measure::Gauge(1.0), Measure::GaugeShift(-3.0)], "k value=-2");
        check(&[Measure::Set("a"), Measure::Set("b"), Measure::Set("a")], "k count=2");
        let [low, high] = [-1.0, 3.0].map(|value| Measure::Histogram { value, rate: 1.0 });
        check(
            &[low, high],
            "k count=2 rate=0.2 sum=2 mean=1 lower=-1 upper=3 median=1 stddev=2 p50=-1 p90=3 p99_9=3",
        );
        let sampled = [Measure::Timing { ms: 100.0, rate: 0.5 }; 50];
        check(
            &sampled,
            "k count=100 rate=10 sum=10000 mean=100 lower=100 upper=100 median=100 stddev=0 \
             p50=100 p90=100 p99_9=100",
        );
    }

    #[test]
    fn the_names_of_statsd() {
        let check = |measures: &[_], expected| check(Layout::Statsd, measures, expected);
        check(&counts(&[5.0, -2.0], 1.0), "stats.counters.k.count=3 stats.counters.k.rate=0.3");
        check(&[Measure::Gauge(1.5)], "stats.gauges.k=1.5");
        check(&[Measure::Set("a"), Measure::Set("b")], "stats.sets.k.count=2");
        // The rate enters the count alone, and `d` is a timer here.
        check(
            &[Measure::Distribution { value: 4.0, rate: 0.5 }],
            "stats.timers.k.count=2 stats.timers.k.count_ps=0.2
             stats.timers.k.count_50=1 stats.timers.k.upper_50=4 stats.timers.k.mean_50=4
             stats.timers.k.sum_50=4 stats.timers.k.sum_squares_50=16
             stats.timers.k.count_90=1 stats.timers.k.upper_90=4 stats.timers.k.mean_90=4
             stats.timers.k.sum_90=4 stats.timers.k.sum_squares_90=16
             stats.timers.k.count_99_9=1 stats.timers.k.upper_99_9=4 stats.timers.k.mean_99_9=4
             stats.timers.k.sum_99_9=4 stats.timers.k.sum_squares_99_9=16
             stats.timers.k.lower=4 stats.timers.k.upper=4 stats.timers.k.sum=4
             stats.timers.k.sum_squares=16 stats.timers.k.mean=4 stats.timers.k.median=4
             stats.timers.k.std=0",
        );
    }

    #[test]
    fn a_span_is_rounded_once() {
        for ms in 1..=60_000 {
            assert_eq!(secs(Duration::from_millis(ms)), ms as f64 / 1000.0, "{ms} ms");
        }
    }

    #[test]
    fn names_are_made_fit_as_statsd_does() {
        for (name, fit) in [
            ("a.b-c_d;e=f", "a.b-c_d;e=f"),
            ("a  b\tc", "a_b_c"),
            ("a/b//c", "a-b--c"),
            ("a\u{a0}\u{feff}b", "a_b"),
            ("a\u{85}b", "ab"),
            ("gr\u{fc}n!@[]", "grn"),
            ("\u{fc}", ""),
        ] {
            assert_eq!(classic_name(name), fit, "{name:?}");
            assert_eq!(is_classic_name(name), name == fit, "{name:?}");
        }
    }

    #[test]
    fn a_point_alone_for_explain() {
        let mut points = Batch::new();
        let mut writer = points.begin("c");
        writer.tag("env", Some("a"));
        writer.finish(Measure::Count { delta: 1.0, rate: 0.5 }, None, "");
        drop(writer);
        points.begin("r").finish(Measure::Reading(Number::I64(1)), Some(UnixNanos(5)), "");
        let influx = Settings::new("b", "influxdb", &Config::default());
        let statsd = Settings::new("b", "statsd", &Config::default());
        let (count, reading) = (points.point(0).unwrap(), points.point(1).unwrap());
        let rows = rows_of(&count, &influx, UnixNanos(9));
        assert_eq!(text(&rows), "c count=2 rate=0.2\n");
        assert_eq!(rows.point(0).unwrap().time, Some(UnixNanos(9)));
        assert_eq!(rows.point(0).unwrap().tags, count.tags);
        assert_eq!(rows_of(&reading, &influx, UnixNanos(9)).point(0), Some(reading));
        assert_eq!(rows_of(&count, &statsd, UnixNanos(9)).point(0), Some(count));
    }

    /// The values of one series `k` by statistic, whatever the layout calls its rows.
    fn values(layout: Layout, measures: &[Measure<'_>], percent: f64) -> BTreeMap<String, f64> {
        let percentiles = Some(vec![percent]);
        let config = Config { layout, percentiles, ..Config::default() };
        let rows = Rows::new(&Settings::new("b", "influxdb", &config));
        let mut aggregate = Aggregate::new(family(layout, measures[0].kind()));
        for measure in measures {
            aggregate.absorb(measure, 1, usize::MAX);
        }
        let mut out = Batch::new();
        rows.write("k", Tags::EMPTY, &aggregate, UnixNanos(9), &mut out);
        let mut values = BTreeMap::new();
        for row in out.iter() {
            match row.measure {
                Measure::Fields(fields) => values.extend(fields.iter().map(|(key, value)| {
                    let FieldValue::Number(number) = value else { panic!("{value:?}") };
                    (key.to_owned(), number.as_f64())
                })),
                Measure::Reading(number) => {
                    let (_, stat) = row.name.split_once(".k").unwrap();
                    values.insert(stat.trim_start_matches('.').to_owned(), number.as_f64());
                }
                other => panic!("{other:?}"),
            }
        }
        values
    }

    /// The statistics that both layouts have, by the names they have in each.
    const SHARED: [(&str, &str); 9] = [
        ("count", "count"),
        ("rate", "count_ps"),
        ("rate", "rate"),
        ("sum", "sum"),
        ("mean", "mean"),
        ("lower", "lower"),
        ("upper", "upper"),
        ("median", "median"),
        ("stddev", "std"),
    ];

    fn assert_same(measures: &[Measure<'_>], shared: usize) {
        let fields = values(Layout::Fields, measures, 90.0);
        let classic = values(Layout::Statsd, measures, 90.0);
        let both = SHARED.iter().filter_map(|(ours, theirs)| {
            Some((fields.get(*ours)?.to_bits(), classic.get(*theirs)?.to_bits()))
        });
        let both: Vec<_> = both.collect();
        assert_eq!(both.len(), shared, "{fields:?} {classic:?}");
        assert!(both.iter().all(|(ours, theirs)| ours == theirs), "{fields:?} {classic:?}");
    }

    proptest! {
        /// Without sampling both layouts give the same numbers, to the last bit.
        #[test]
        fn layouts_agree_without_sampling(numbers in prop::collection::vec(0.0..1e6, 1..60)) {
            let timers: Vec<_> = numbers.iter().map(|ms| Measure::Timing { ms: *ms, rate: 1.0 }).collect();
            assert_same(&timers, 8);
            assert_same(&counts(&numbers, 1.0), 2);
            let members: Vec<_> = numbers.iter().map(|number| format!("{:.0}", number % 9.0)).collect();
            let members: Vec<_> = members.iter().map(|member| Measure::Set(member)).collect();
            assert_same(&members, 1);
            let mut gauge = vec![Measure::Gauge(1.0)];
            gauge.extend(numbers.iter().map(|by| Measure::GaugeShift(-by)));
            let [ours, theirs] = [(Layout::Fields, "value"), (Layout::Statsd, "")]
                .map(|(layout, stat)| values(layout, &gauge, 90.0)[stat].to_bits());
            prop_assert_eq!(ours, theirs);
        }

        /// A percentile is a sample: here the one whose rank is not below the percentage, there the
        /// one whose rank is nearest to it, which may be one less, and none if that is zero.
        #[test]
        fn percentiles_differ_where_a_rank_is_rounded_down(
            count in 1u32..200,
            percent in 1u32..=100,
        ) {
            let ranks = (1..=count).map(|rank| Measure::Timing { ms: rank.into(), rate: 1.0 });
            let ranks: Vec<_> = ranks.collect();
            let (count, percent) = (f64::from(count), f64::from(percent));
            let ours = values(Layout::Fields, &ranks, percent)[&format!("p{percent}")];
            let theirs = values(Layout::Statsd, &ranks, percent);
            let theirs = theirs.get(&format!("upper_{percent}")).copied();
            prop_assert_eq!(ours, (count * percent / 100.0).ceil());
            let nearest = (percent / 100.0 * count).round();
            let nearest = if count == 1.0 { 1.0 } else { nearest };
            prop_assert_eq!(theirs, (nearest > 0.0).then_some(nearest));
        }
    }
}
