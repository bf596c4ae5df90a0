//! What was written of the open window before it ended, so that the rest can be added to it.
//!
//! A stop writes the open window's rows with the stamp of its end, and keeps what they were made
//! of. Whoever closes the window later unites the two, and the rows of the whole window take the
//! place of those of the part. A series that gets no more points is not written again. Points
//! that are carried were accounted for when they were written, and weigh nothing here.
//!
//! One name may be several kinds, whose rows would be one in a database. Around a stop such rows
//! stand apart by a *shift* of nanoseconds that each keeps for the whole of the window.

use crate::lane::Layout;
use crate::lane::aggregate::Aggregate;
use crate::lane::series::of_any_kind;
use crate::lane::table::{Series, Table};
use hashbrown::HashMap;
use protocols::UnixNanos;
use serde::{Deserialize, Serialize};

/// The window's content so far.
#[derive(Debug, Default)]
pub(super) struct Carried {
    parts: Table<Part>,
    /// What the rows were stamped with.
    pub(super) stamp: UnixNanos,
    /// The memory that it takes.
    pub(super) bytes: usize,
    spread: Spread,
}

/// Sets rows of one name apart that would be one in a database.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    /// Under which series were told apart.
    layout: Layout,
    /// By row, the next shift that is free.
    free: HashMap<u64, u8, foldhash::fast::RandomState>,
}

/// The content of one series.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) aggregate: Aggregate,
    /// By how much its rows are later than the stamp.
    pub(super) shift: u8,
    /// Whether it has gone into a window that was closed since.
    #[serde(skip)]
    united: bool,
}

impl Carried {
    /// Nothing yet of the window with this stamp.
    pub(super) fn new(stamp: UnixNanos, layout: Layout) -> Self {
        let spread = Spread { layout, ..Spread::default() };
        Self { stamp, spread, ..Self::default() }
    }

    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Adds a series.
    pub(super) fn insert(&mut self, series: &Series<'_>, part: Part) {
        self.bytes += part.aggregate.bytes();
        self.spread.taken(series, part.shift);
        let bytes = self.parts.key_bytes();
        self.parts.insert(series, part);
        self.bytes += self.parts.key_bytes() - bytes;
    }

    /// Puts what is carried of a series in front of what was seen since, once. Answers by how much
    /// its rows are later than the stamp.
    pub(super) fn unite(&mut self, series: &Series<'_>, seen: &mut Aggregate) -> Option<u8> {
        let part = self.parts.find(series).filter(|part| !part.united)?;
        part.united = true;
        seen.precede(std::mem::replace(&mut part.aggregate, Aggregate::new(series.kind)));
        Some(part.shift)
    }

    /// What sets new rows apart from those that are carried.
    pub(super) fn spread(&self) -> Spread {
        self.spread.clone()
    }

    /// What was carried and is not seen since.
    pub(super) fn rest(&self) -> impl Iterator<Item = (Series<'_>, &Aggregate, u8)> {
        let rest = self.parts.iter().filter(|(_, part)| !part.united);
        rest.map(|(series, part)| (series, &part.aggregate, part.shift))
    }
}

impl Spread {
    /// By how much the rows of a series are later than those of its name before.
    pub(super) fn next(&mut self, series: &Series<'_>) -> u8 {
        let free = self.free.entry(self.row(series)).or_default();
        let shift = *free;
        *free = shift.saturating_add(1);
        shift
    }

    /// What tells rows apart; the layout of statsd names each after its kind.
    fn row(&self, series: &Series<'_>) -> u64 {
        match self.layout {
            Layout::Fields => of_any_kind(series.hash, series.kind),
            Layout::Statsd => series.hash,
        }
    }

    fn taken(&mut self, series: &Series<'_>, shift: u8) {
        let free = self.free.entry(self.row(series)).or_default();
        *free = shift.saturating_add(1).max(*free);
    }
}
