//! What became of the lines of a file, counted.

use serde::{Deserialize, Serialize};

/// Counts, and the first refusals one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Totals {
    /// Points that the gateway has taken.
    pub(super) accepted: u64,
    /// Lines that it has not, or that never were sent.
    pub(super) refused: u64,
    /// Lines of which nobody knows whether every backend gets them.
    pub(super) unsettled: u64,
    /// Rows without a value.
    pub(super) empty: u64,
    /// Cells without a column.
    pub(super) surplus: u64,
    /// The first refusals.
    pub(super) errors: Vec<LineError>,
}

/// Why a line was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LineError {
    /// From 1.
    pub(super) line: u64,
    pub(super) error: String,
}

impl Totals {
    /// A line was refused.
    pub(super) fn refuse(&mut self, line: u64, error: String) {
        self.refused += 1;
        self.tell(line, error);
    }

    /// Says something of a line.
    pub(super) fn tell(&mut self, line: u64, error: String) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(LineError { line, error });
        }
    }

    /// What is kept in a file may have been changed there, and say anything.
    pub(super) fn add(&mut self, other: &Self) {
        self.accepted = self.accepted.saturating_add(other.accepted);
        self.refused = self.refused.saturating_add(other.refused);
        self.unsettled = self.unsettled.saturating_add(other.unsettled);
        self.empty = self.empty.saturating_add(other.empty);
        self.surplus = self.surplus.saturating_add(other.surplus);
        let room = ERRORS_MAX.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.iter().take(room).cloned());
    }
}

/// Enough to see what is wrong with a file.
const ERRORS_MAX: usize = 100;
