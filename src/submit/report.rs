//! What is said at the end: for people, or as JSON.

use super::totals::{LineError, Totals};
use crate::escape::escaped;
use crate::plural::counted;
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// What became of one file.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) file: String,
    /// Whether it was gone through to its end.
    pub(super) complete: bool,
    /// Whether an interrupted run could go on.
    pub(super) resumable: bool,
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) unsettled: u64,
    pub(super) skipped_rows: u64,
    pub(super) surplus_cells: u64,
    /// Decompressed.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Of these bytes, what an earlier run had dealt with.
    pub(super) earlier_bytes: u64,
    /// The first refusals.
    pub(super) errors: Vec<LineError>,
    /// Why it was not gone through to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

impl Report {
    pub(super) fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            complete: false,
            resumable: true,
            accepted: 0,
            refused: 0,
            unsettled: 0,
            skipped_rows: 0,
            surplus_cells: 0,
            bytes: 0,
            seconds: 0.0,
            earlier_bytes: 0,
            errors: Vec::new(),
            problem: None,
        }
    }

    pub(super) fn count(&mut self, totals: &Totals, bytes: u64, took: Duration) {
        self.accepted = totals.accepted;
        self.refused = totals.refused;
        self.unsettled = totals.unsettled;
        self.skipped_rows = totals.empty;
        self.surplus_cells = totals.surplus;
        self.errors = totals.errors.clone();
        self.bytes = bytes;
        self.seconds = took.as_secs_f64();
    }

    /// Whether all of it was accepted.
    pub(super) const fn all_is_well(&self) -> bool {
        self.complete && self.refused == 0 && self.unsettled == 0
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        // Where this is printed, a file's name begins no line of its own.
        let file = escaped(&self.file);
        let mut text = format!("{file}: {} accepted", counted(self.accepted, "point"));
        for (count, what, fate) in [
            (self.refused, "line", "refused"),
            (self.unsettled, "line", "unsettled"),
            (self.skipped_rows, "empty row", "skipped"),
            (self.surplus_cells, "surplus cell", "skipped"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {} {fate}", counted(count, what));
            }
        }
        let _ = write!(text, "; {} in {:.2} s", size(self.bytes), self.seconds);
        if self.earlier_bytes > 0 {
            let _ = write!(text, ", {} of it in an earlier run", size(self.earlier_bytes));
        }
        text.push('\n');
        for LineError { line, error } in self.errors.iter().take(TOLD) {
            let _ = writeln!(text, "{file}:{line}: {}", escaped(error));
        }
        let untold = (self.refused + self.unsettled).saturating_sub(TOLD as u64);
        if untold > 0 && self.errors.len() >= TOLD {
            let _ = writeln!(text, "{file}: and {} more", counted(untold, "line"));
        }
        if let Some(problem) = &self.problem {
            let _ = writeln!(text, "{file}: {}", escaped(problem));
        }
        if !self.complete && !self.resumable && self.bytes > 0 {
            let _ = writeln!(text, "{file}: {ONCE}");
        }
        text
    }
}

/// All files as one object.
pub(super) fn json(reports: &[Report]) -> String {
    #[derive(Serialize)]
    struct All<'r> {
        accepted: u64,
        refused: u64,
        unsettled: u64,
        bytes: u64,
        seconds: f64,
        files: &'r [Report],
    }
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum();
    let all = All {
        accepted: sum(|report| report.accepted),
        refused: sum(|report| report.refused),
        unsettled: sum(|report| report.unsettled),
        bytes: sum(|report| report.bytes),
        seconds: reports.iter().map(|report| report.seconds).sum(),
        files: reports,
    };
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}

/// `1.5 MiB`.
pub(super) fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

const ONCE: &str = "what can be read only once is not gone on with: submitted again, its points count \
    again";

/// How many refusals a person is told one by one.
const TOLD: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB")]
        {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn people_are_told_what_was_refused_and_where() {
        let mut report = Report::new("a.csv");
        let mut totals = Totals { accepted: 7, surplus: 2, ..Totals::default() };
        totals.refuse(3, "no".into());
        report.count(&totals, 100, Duration::from_secs(1));
        assert!(!report.all_is_well());
        let text = report.text();
        assert_eq!(
            text,
            "a.csv: 7 points accepted, 1 line refused, 2 surplus cells skipped; 100 B in 1.00 s\n\
             a.csv:3: no\n"
        );
        for line in 4..50 {
            totals.refuse(line, "no".into());
        }
        report.count(&totals, 100, Duration::from_secs(1));
        report.problem = Some("the gateway is away".into());
        assert!(report.text().ends_with("a.csv: and 27 lines more\na.csv: the gateway is away\n"));
        assert!(json(&[report]).contains("\"refused\": 47"));
    }

    /// Or a file could say a point in the log of whoever submits it.
    #[test]
    fn a_name_begins_no_line() {
        let mut report = Report::new("a\n[taskcluster-task:stat] {}\u{1b}[2J");
        report.problem = Some("a\n[taskcluster-task:stat] {}: it is a pipe".to_owned());
        report.errors.push(LineError { line: 1, error: "no\n\u{1b}".to_owned() });
        let text = report.text();
        assert!(
            text.starts_with("a\\n[taskcluster-task:stat] {}\\u{1b}[2J: 0 points accepted"),
            "{text}"
        );
        assert!(text.lines().count() == 3 && !text.contains('\u{1b}'), "{text}");
    }
}
