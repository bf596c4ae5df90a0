//! A closed window on its way to becoming rows.

use super::{Tally, Windows, lock};
use crate::lane::aggregate::Aggregate;
use crate::lane::riders::Riders;
use crate::lane::table::{Series, Table};
use protocols::UnixNanos;
use std::sync::Arc;

/// What is not written when it is dropped counts as lost to the shutdown.
#[derive(Debug)]
pub(in crate::lane) struct Closed {
    pub(super) table: Table<Tally>,
    pub(in crate::lane) riders: Riders,
    pub(super) stamp: UnixNanos,
    pub(super) done: usize,
    pub(super) windows: Arc<Windows>,
}

impl Closed {
    /// Hands the next series to `write`, which answers how many rows it made of it; none when
    /// the window is written.
    pub(in crate::lane) fn write_next(
        &mut self,
        write: impl FnOnce(&Due<'_>) -> usize,
    ) -> Option<usize> {
        let (series, tally) = self.table.at(self.done)?;
        let Tally { aggregate, again, .. } = tally;
        let time = UnixNanos(self.stamp.0 + i64::from(tally.shift));
        let rows = write(&Due { series, aggregate, time, again: *again });
        self.done += 1;
        let book = &self.windows.book;
        book.windows.sub(tally.points);
        book.folded_points.add(tally.points);
        book.folded_rows.add(rows as u64);
        Some(rows)
    }

    /// Makes the rows of a part those of a window that nobody goes on with, unless some of them
    /// take the place of earlier ones. Answers whether it did.
    pub(in crate::lane) fn ends_at(&mut self, now: UnixNanos) -> bool {
        let alone = self.table.iter().all(|(_, tally)| !tally.again);
        if alone {
            self.stamp = lock(&self.windows.keeper).edges.end(now);
        }
        alone
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let left = self.table.iter().skip(self.done).map(|(_, tally)| tally.points).sum();
        self.windows.book.windows.sub(left);
        self.windows.book.dropped.add("shutdown", left);
        self.riders.lose(left, "shutdown", None);
        self.windows.recycle(std::mem::take(&mut self.table));
    }
}

/// What is to become rows.
pub(in crate::lane) struct Due<'a> {
    pub(in crate::lane) series: Series<'a>,
    pub(in crate::lane) aggregate: &'a Aggregate,
    pub(in crate::lane) time: UnixNanos,
    /// Whether the rows take the place of earlier ones of the same time.
    pub(in crate::lane) again: bool,
}
