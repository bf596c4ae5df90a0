//! What the JSON-lines encoder writes reads back as exactly the point it was.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;
use protocols::jsonl::{Encoder, parse_line};
use protocols::{Batch, Encode, FieldValue, Measure, Number, UnixNanos};

/// How to write one point.
#[derive(Clone, Debug)]
struct Said {
    name: String,
    tags: Vec<(String, Option<String>)>,
    measure: SaidMeasure,
    time: Option<i64>,
}

#[derive(Clone, Debug)]
enum SaidMeasure {
    Plain(Measure<'static>),
    Set(String),
    Fields(Vec<(String, SaidValue)>),
}

#[derive(Clone, Debug)]
enum SaidValue {
    Number(Number),
    Bool(bool),
    Text(String),
}

proptest! {
    /// Name, tags in their order, kind, value with its type, rate and time all come back.
    #[test]
    fn a_point_comes_back_as_it_was(said in said()) {
        let batch = said.batch();
        let (line, lost) = encode(&batch);
        let mut read = Batch::new();
        prop_assert_eq!(parse_line(&line, &mut read), Ok(false), "{}", line);
        let (read, point) = (read.point(0).unwrap(), batch.point(0).unwrap());
        prop_assert_eq!(read, point, "{}", line);
        // Equality takes zero for minus zero and knows no integer apart from its double.
        prop_assert_eq!(format!("{read:?}"), format!("{point:?}"), "{}", line);
        prop_assert_eq!(lost, 0);
    }

    /// One point is one line of JSON without a raw control character.
    #[test]
    fn one_point_is_one_line(said in said()) {
        let (line, _) = encode(&said.batch());
        let body = line.strip_suffix('\n').unwrap();
        prop_assert!(!body.contains(is_unfit));
        prop_assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }

    /// The reader takes or refuses any text and never panics; a refusal leaves no trace.
    #[test]
    fn the_reader_never_panics(line in prop_oneof![any::<String>(), mangled()]) {
        let mut batch = Batch::new();
        let result = parse_line(&line, &mut batch);
        prop_assert_eq!(batch.len(), usize::from(result.is_ok()));
        prop_assert!(result.is_ok() || batch.bytes() == 0);
    }
}

fn is_unfit(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

fn encode(batch: &Batch) -> (String, usize) {
    let mut encoder = Encoder::new();
    let mut out = Vec::new();
    encoder.encode(&batch.point(0).unwrap(), &mut out).unwrap();
    (String::from_utf8(out).unwrap(), encoder.lost_parts().len())
}

impl Said {
    fn batch(&self) -> Batch {
        let mut batch = Batch::new();
        let mut writer = batch.begin(&self.name);
        for (key, value) in &self.tags {
            writer.tag(key, value.as_deref());
        }
        let time = self.time.map(UnixNanos);
        match &self.measure {
            SaidMeasure::Plain(measure) => writer.finish(*measure, time, ""),
            SaidMeasure::Set(member) => writer.finish(Measure::Set(member), time, ""),
            SaidMeasure::Fields(fields) => {
                for (key, value) in fields {
                    writer.field(key, value.view());
                }
                writer.finish_fields(time);
            }
        }
        drop(writer);
        batch
    }
}

impl SaidValue {
    fn view(&self) -> FieldValue<'_> {
        match self {
            SaidValue::Number(number) => FieldValue::Number(*number),
            SaidValue::Bool(truth) => FieldValue::Bool(*truth),
            SaidValue::Text(text) => FieldValue::Text(text),
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z./]{1,8}",
        any::<String>(),
        vec(prop::sample::select(vec!['"', '\\', '\n', '\0', '\x7f', '\u{9b}', '\u{2028}']), 1..5)
            .prop_map(String::from_iter),
    ]
}

fn double() -> impl Strategy<Value = f64> {
    use prop::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
    prop_oneof![POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO, (-1000..1000).prop_map(f64::from)]
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        double().prop_map(Number::F64),
        any::<i64>().prop_map(Number::I64),
        (i64::MAX as u64 + 1..).prop_map(Number::U64),
    ]
}

fn value() -> impl Strategy<Value = SaidValue> {
    prop_oneof![
        number().prop_map(SaidValue::Number),
        any::<bool>().prop_map(SaidValue::Bool),
        text().prop_map(SaidValue::Text),
    ]
}

fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), 1e-6..1.0]
}

fn measure() -> impl Strategy<Value = SaidMeasure> {
    let sampled = (0..4, double(), rate()).prop_map(|(kind, value, rate)| match kind {
        0 => Measure::Count { delta: value, rate },
        1 => Measure::Timing { ms: value, rate },
        2 => Measure::Histogram { value, rate },
        _ => Measure::Distribution { value, rate },
    });
    prop_oneof![
        sampled.prop_map(SaidMeasure::Plain),
        double().prop_map(|value| SaidMeasure::Plain(Measure::Gauge(value))),
        double().prop_map(|value| SaidMeasure::Plain(Measure::GaugeShift(value))),
        number().prop_map(|number| SaidMeasure::Plain(Measure::Reading(number))),
        text().prop_map(SaidMeasure::Set),
        vec((text(), value()), 0..5).prop_map(SaidMeasure::Fields),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    let tags = vec((text(), prop::option::of(text())), 0..5);
    (text(), tags, measure(), prop::option::of(any::<i64>()))
        .prop_map(|(name, tags, measure, time)| Said { name, tags, measure, time })
}

/// A good line with one character gone or another put in.
fn mangled() -> impl Strategy<Value = String> {
    (said(), any::<prop::sample::Index>(), prop::option::of(any::<char>())).prop_map(
        |(said, at, put)| {
            let mut line: Vec<char> = encode(&said.batch()).0.chars().collect();
            let at = at.index(line.len());
            line.splice(at..=at, put);
            line.into_iter().collect()
        },
    )
}
