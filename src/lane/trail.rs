//! What happened to a gauge in one window: its last absolute reading and the shifts since.
//!
//! The shifts are kept one by one, for two reasons: which of them come after the last
//! absolute reading is only known once all workers are heard, and doubles have to be added
//! to the running value in the order of arrival to round as a single server would.

use serde::{Deserialize, Serialize};

/// What happened to a gauge in one window.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Steps", into = "Steps")]
pub(super) enum Trail {
    /// Nothing yet.
    #[default]
    Unset,
    /// It was read, in that turn, and not shifted since: what nearly all gauges are.
    Read { turn: u64, value: f64 },
    /// It was shifted.
    Shifted(Box<Steps>),
}

/// What the file of windows says of a gauge, too.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Steps {
    absolute: Option<(u64, f64)>,
    shifts: Vec<(u64, f64)>,
}

impl Trail {
    /// A gauge that stands at `value`.
    pub(super) const fn at(value: f64) -> Self {
        Self::Read { turn: 0, value }
    }

    /// The value at the end of the window, for a gauge that stood at `base` before it.
    pub(super) fn end(&self, base: f64) -> f64 {
        match self {
            Self::Unset => base,
            Self::Read { value, .. } => *value,
            Self::Shifted(steps) => steps.end(base),
        }
    }

    /// The memory that it takes beside its own size.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Shifted(steps) => size_of_val(&*steps.shifts),
            _ => 0,
        }
    }

    pub(super) fn set(&mut self, value: f64, turn: u64) -> usize {
        *self = Self::Read { turn, value };
        0
    }

    pub(super) fn shift(&mut self, by: f64, turn: u64) -> usize {
        let absolute = match self {
            Self::Shifted(steps) => {
                steps.shifts.push((turn, by));
                return size_of::<(u64, f64)>();
            }
            Self::Unset => None,
            Self::Read { turn, value } => Some((*turn, *value)),
        };
        *self = Self::Shifted(Box::new(Steps { absolute, shifts: vec![(turn, by)] }));
        size_of::<(u64, f64)>()
    }

    pub(super) fn merge(&mut self, other: Self) {
        let mut steps: Steps = std::mem::take(self).into();
        steps.merge(other.into());
        *self = steps.into();
    }
}

impl Steps {
    fn end(&self, base: f64) -> f64 {
        let start = self.absolute.map_or(base, |(_, value)| value);
        self.shifts.iter().fold(start, |value, (_, by)| value + by)
    }

    fn merge(&mut self, other: Self) {
        let latest = self.absolute.map(|(turn, _)| turn).max(other.absolute.map(|(turn, _)| turn));
        self.shifts.extend(other.shifts);
        if self.absolute.map(|(turn, _)| turn) != latest {
            self.absolute = other.absolute;
        }
        // A batch is one worker's, so shifts of the reading's own batch came after it.
        self.shifts.retain(|(turn, _)| Some(*turn) >= latest);
        self.shifts.sort_by_key(|(turn, _)| *turn);
    }
}

impl From<Trail> for Steps {
    fn from(trail: Trail) -> Self {
        match trail {
            Trail::Unset => Self::default(),
            Trail::Read { turn, value } => {
                Self { absolute: Some((turn, value)), shifts: Vec::new() }
            }
            Trail::Shifted(steps) => *steps,
        }
    }
}

impl From<Steps> for Trail {
    fn from(steps: Steps) -> Self {
        match steps.absolute {
            None if steps.shifts.is_empty() => Self::Unset,
            Some((turn, value)) if steps.shifts.is_empty() => Self::Read { turn, value },
            _ => Self::Shifted(Box::new(steps)),
        }
    }
}
