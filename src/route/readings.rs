//! Readings of known forms on their way, beside the points of a batch.
//!
//! A receiving task shows each text that may become a point. What is known goes into a list, and
//! the rest into the batch, as ever; when both are handed over, they go in the order in which they
//! came, and what was new is learnt.

use super::crossing::Crossing;
use super::forms::{Lent, Met, Shelf};
use super::router::Table;
use crate::access::Denial;
use protocols::form::{Figure, Filling, Recall, Speech};
use protocols::timestamp::TimeRange;
use protocols::{Batch, Point, UnixNanos};
use std::sync::Arc;

/// What a listener remembers of readings; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Recollection(Arc<Shelf>);

/// The known readings of one batch.
#[derive(Debug)]
pub struct Readings {
    pub(super) table: Arc<Table>,
    lent: Lent,
    times: TimeRange,
    known: Vec<Reading>,
    /// Points of the batch, and the form that each may have.
    new: Vec<(usize, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The point of the batch that comes next.
    before: u32,
    form: u32,
    time: UnixNanos,
    figure: Figure,
}

impl Recollection {
    /// A list to be filled with readings of these times, if any lane of the table can make use of
    /// it, and not too many are in use.
    pub(super) fn begin(&self, table: Arc<Table>, times: TimeRange) -> Option<Readings> {
        let mut lent =
            table.lanes.iter().any(|lane| lane.writes()).then(|| Lent::of(&self.0))??;
        lent.forms()?.align(&table);
        Some(Readings { table, lent, times, known: Vec::new(), new: Vec::new() })
    }
}

impl Readings {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Forgets those of a body that was broken.
    pub fn clear(&mut self) {
        self.known.clear();
        self.new.clear();
    }

    /// About the memory that their records take, for limits in bytes.
    pub(super) fn bytes(&mut self) -> usize {
        let Some(forms) = self.lent.forms() else { return 0 };
        let of = |reading: &Reading| {
            let known = forms.known(reading.form);
            let heads = known.map(|known| known.writes.iter().map(|write| write.head));
            let longest = heads.and_then(|heads| heads.map(|(start, end)| end - start).max());
            longest.unwrap_or(0) as usize + REST
        };
        self.known.iter().map(of).sum()
    }

    /// Hands these and the points of the batch over, in the order in which they came.
    pub(super) fn cross(
        mut self,
        batch: &Batch,
        crossing: &mut Crossing<'_>,
        mut tell: impl FnMut(&Point<'_>, Result<(), Denial>),
    ) {
        let Self { lent, known, new, .. } = &mut self;
        let Some(forms) = lent.forms() else { return };
        let (mut known, mut new) = (known.iter().peekable(), new.iter().peekable());
        for (at, point) in batch.iter().enumerate() {
            while let Some(reading) = known.next_if(|reading| reading.before as usize <= at) {
                write(forms, reading, crossing);
            }
            match new.next_if(|(place, _)| *place == at) {
                Some((_, form)) => forms.learn(*form, crossing.learn(&point)),
                None => tell(&point, crossing.point(&point, None)),
            }
        }
        known.for_each(|reading| write(forms, reading, crossing));
    }
}

#[inline]
fn write(forms: &super::forms::Forms, reading: &Reading, crossing: &mut Crossing<'_>) {
    if let Some(known) = forms.known(reading.form) {
        crossing.write(&known, (reading.time, &reading.figure));
    }
}

impl Recall for Readings {
    #[inline]
    fn recall(&mut self, text: &[u8], at: usize, speech: Speech) -> Option<usize> {
        // What was to come at this place has been refused.
        while self.new.pop_if(|(place, _)| *place >= at).is_some() {}
        let forms = self.lent.forms()?;
        if let Some((form, filling)) = forms.expected(text, speech) {
            return self.note(at, form, &filling);
        }
        match forms.search(text, speech) {
            Met::Known(form, filling) => self.note(at, form, &filling),
            Met::New(form) => {
                self.new.push((at, form));
                None
            }
            Met::Odd => None,
        }
    }
}

impl Readings {
    #[inline]
    fn note(&mut self, at: usize, form: u32, filling: &Filling) -> Option<usize> {
        let Filling { time, figure, length } = *filling;
        // Who keeps times out tells it of each.
        self.times.check(Some(time)).ok()?;
        let before = u32::try_from(at).ok()?;
        self.known.push(Reading { before, form, time, figure });
        Some(length)
    }
}

/// Value, time and what the shaper is told of a record.
const REST: usize = 64;
