//! Reads a page of Prometheus text, as `GET /metrics` answers with.

use std::collections::BTreeMap;

/// All samples of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Metrics {
    /// Panics on a line that is not Prometheus text: the page is under test too.
    pub fn parse(page: &str) -> Metrics {
        let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let sample = |line| parse_sample(line).unwrap_or_else(|| panic!("not a sample: {line}"));
        Metrics { samples: lines.map(sample).collect() }
    }

    /// The sum of the samples of this name that carry all these labels: `dropped` by one reason
    /// when asked with the reason, by any reason when asked without. Nothing counted is 0.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.select(name, labels).map(|sample| sample.value).sum()
    }

    /// Whether there is any sample of this name with all these labels.
    pub fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        self.select(name, labels).next().is_some()
    }

    fn select(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| {
            let carries = |(key, value): &(&str, &str)| {
                sample.labels.get(*key).is_some_and(|found| found == value)
            };
            sample.name == name && labels.iter().all(carries)
        })
    }
}

fn parse_sample(line: &str) -> Option<Sample> {
    let name_ends = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(name_ends);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Reads labels up to and with the closing brace; returns them and what follows.
fn parse_labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (key, quoted) = rest.split_once("=\"")?;
        let (value, after) = parse_quoted(quoted)?;
        labels.insert(key.to_owned(), value);
        rest = after;
    }
}

/// Reads a label's value up to and with its closing quote; returns it and what follows.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[index + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                escaped => escaped,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP dropped Points dropped.
# TYPE dropped counter
dropped{backend=\"influx\",reason=\"full\"} 3
dropped{backend=\"influx\",reason=\"a \\\"b\\\", {c}\\n\"} 4

dropped{backend=\"local\",reason=\"full\"} 1e2
up 1
";

    #[test]
    fn samples_are_summed_over_the_labels_not_asked_for() {
        let metrics = Metrics::parse(PAGE);
        let sum = |labels: &[(&str, &str)]| metrics.sum("dropped", labels);
        assert_eq!(sum(&[]), 107.0);
        assert_eq!(sum(&[("backend", "influx")]), 7.0);
        assert_eq!(sum(&[("reason", "full")]), 103.0);
        assert_eq!(sum(&[("reason", "a \"b\", {c}\n")]), 4.0);
        assert_eq!(sum(&[("reason", "none")]), 0.0);
        assert_eq!(metrics.sum("up", &[]), 1.0);
    }

    #[test]
    fn a_sample_that_is_there_is_told_from_one_that_is_not() {
        let metrics = Metrics::parse(PAGE);
        assert!(metrics.has("up", &[]));
        assert!(!metrics.has("up", &[("backend", "influx")]));
        assert!(!metrics.has("down", &[]));
    }

    #[test]
    #[should_panic(expected = "not a sample")]
    fn a_page_that_is_not_prometheus_text_is_refused() {
        Metrics::parse("dropped{backend=\"influx\" 3");
    }
}
