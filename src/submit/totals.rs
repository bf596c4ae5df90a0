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

    pub(super) fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.unsettled += other.unsettled;
        self.empty += other.empty;
        self.surplus += other.surplus;
        let room = ERRORS_MAX.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.iter().take(room).cloned());
    }
}

/// Enough to see what is wrong with a file.
const ERRORS_MAX: usize = 100;
