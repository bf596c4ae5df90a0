//! What a crossing did with a reading, if the same can be done with the next of its form.

use super::forms::Write;
use crate::lane::Front;
use protocols::Point;

/// Notes of one point.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// Whether anybody wants to know.
    is_kept: bool,
    /// Whether the notes below say all that was done.
    is_whole: bool,
    pub(super) takes: Vec<u16>,
    pub(super) writes: Vec<Write>,
    /// What lines begin with.
    pub(super) heads: Vec<u8>,
}

impl Script {
    /// Begins anew, if it is to be kept.
    pub(super) fn begin(&mut self, is_kept: bool) {
        self.is_kept = is_kept;
        self.is_whole = true;
        self.takes.clear();
        self.writes.clear();
        self.heads.clear();
    }

    /// A route takes the point.
    pub(super) fn take(&mut self, route: usize) {
        match u16::try_from(route) {
            Ok(route) if self.is_kept => self.takes.push(route),
            _ => self.is_whole = false,
        }
    }

    /// A lane is handed the point, for that route.
    pub(super) fn write(
        &mut self,
        front: &Front<'_>,
        (lane, route): (usize, usize),
        point: &Point<'_>,
        hash: u64,
    ) {
        if self.is_kept && self.is_whole {
            self.is_whole = self.try_write(front, (lane, route), point, hash).is_some();
        }
    }

    fn try_write(
        &mut self,
        front: &Front<'_>,
        (lane, route): (usize, usize),
        point: &Point<'_>,
        hash: u64,
    ) -> Option<()> {
        let (lane, route) = (u16::try_from(lane).ok()?, u16::try_from(route).ok()?);
        let start = u32::try_from(self.heads.len()).ok()?;
        front.head(point, &mut self.heads)?;
        let head = (start, u32::try_from(self.heads.len()).ok()?);
        self.writes.push(Write { lane, route, hash, head });
        Some(())
    }

    /// The notes, if they say all.
    pub(super) fn whole(&self) -> Option<&Self> {
        (self.is_kept && self.is_whole).then_some(self)
    }
}
