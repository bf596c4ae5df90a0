//! Lines that go out as they came: copied block by block, and never looked at.

use super::Shaper;
use crate::waybill::Lines;

impl Shaper {
    /// Appends lines to the payload; `text` begins with them.
    pub(super) fn relay(&mut self, text: &[u8], lines: &Lines<'_>) {
        let mut rest = text.get(..lines.bytes).unwrap_or(text);
        let mut count = lines.count;
        self.written = self.written.wrapping_add(rest.len());
        while count > 0 {
            let room = Room { lines: self.lines_left(), bytes: self.bytes_left() };
            let Room { lines: fitting, bytes } = room.of(rest, count, self.open.is_empty());
            if fitting == 0 && self.open.is_empty() {
                return;
            }
            if fitting == 0 {
                self.push();
                continue;
            }
            let (block, behind) = rest.split_at_checked(bytes).unwrap_or((rest, &[]));
            if self.open.is_empty() {
                self.open.begin(self.clock.now(), self.settings.wait);
            }
            self.open.body.extend_from_slice(block);
            self.open.add(fitting, fitting, lines.source, &self.riders);
            self.push_if_full();
            rest = behind;
            count -= fitting;
        }
    }

    fn lines_left(&self) -> usize {
        self.settings.batch_points.saturating_sub(self.open.points) as usize
    }

    fn bytes_left(&self) -> usize {
        self.bytes_max().saturating_sub(self.open.body.len())
    }
}

/// Room for lines, or what of a block takes it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    lines: usize,
    bytes: usize,
}

impl Room {
    /// How much of a block of `count` lines finds room; of a payload that is still `empty`, at
    /// least a line, as for any record.
    fn of(self, block: &[u8], count: usize, empty: bool) -> Self {
        if count <= self.lines && block.len() <= self.bytes {
            return Self { lines: count, bytes: block.len() };
        }
        let mut taken = Self { lines: 0, bytes: 0 };
        for end in memchr::memchr_iter(b'\n', block).map(|at| at + 1).take(self.lines) {
            if end > self.bytes && !(empty && taken.lines == 0) {
                break;
            }
            taken = Self { lines: taken.lines + 1, bytes: end };
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_is_cut_between_lines() {
        let check = |lines, bytes, empty, expected: (usize, usize)| {
            let taken = Room { lines, bytes }.of(b"a\nbbb\nc\n", 3, empty);
            assert_eq!((taken.lines, taken.bytes), expected, "{lines} {bytes} {empty}");
        };
        check(9, 9, false, (3, 8));
        check(3, 8, false, (3, 8));
        check(2, 9, false, (2, 6));
        check(9, 7, false, (2, 6));
        check(9, 5, false, (1, 2));
        check(9, 1, false, (0, 0));
        check(9, 1, true, (1, 2));
    }

    proptest! {
        /// Whatever room there is: what is taken are whole lines, no more than there is room for,
        /// and as many as there is.
        #[test]
        fn what_is_taken_fits(
            lines in prop::collection::vec("[a-z]{1,9}", 1..20), room in 1usize..25, bytes in 0usize..200,
        ) {
            let block = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let taken = Room { lines: room, bytes }.of(block.as_bytes(), lines.len(), false);
            let fits = |count: usize| {
                let length = lines.iter().take(count).map(|line| line.len() + 1).sum::<usize>();
                (count <= room.min(lines.len()) && length <= bytes).then_some(length)
            };
            prop_assert_eq!(fits(taken.lines), Some(taken.bytes));
            prop_assert_eq!(fits(taken.lines + 1), None);
        }
    }
}
