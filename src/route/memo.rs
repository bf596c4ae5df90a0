//! What was done with lines, so that lines which differ in their value alone need neither be
//! parsed nor routed again.
//!
//! A line is known by its [`Head`], and that by a [`Print`], so small that a million can be
//! remembered. Of each head there is noted which [`Way`] its lines go, and where its series stands.
//!
//! What is remembered dies with the table that it was learnt from, and is bounded by [`HEADS`],
//! [`WAYS`] and [`PLACES`]: some 50 MiB for each receiving task at the most, and next to nothing for a
//! few thousand heads. Where lanes write each point, what their lines begin with takes some 50 MiB more
//! at the most ([`TEXT_MAX`]). When it is full it starts anew, and where heads come back too seldom to
//! be worth it, it takes [a rest](Memo::is_resting) first.

use super::print::{Keys, Print};
use super::router::{Edition, Table};
use super::way::{Done, LineHead, Way, Ways};
use crate::lane::{WindowPlace, table_of};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use protocols::statsd::{Head, Shape};
use std::{iter, slice};

/// What was done with lines of known heads.
#[derive(Debug)]
pub struct Memo {
    edition: Option<Edition>,
    /// By a part of the hash, so that each is grown in no time.
    segments: Vec<HashTable<Slot>>,
    heads: usize,
    ways: Ways,
    /// Where series stand that are in more than one window.
    places: Vec<WindowPlace>,
    /// What lanes need to know that keep or copy points.
    heads_of_lines: Vec<LineHead>,
    text: Vec<u8>,
    /// Of series that have many places and are kept, where in the two lists above they begin.
    pairs: Vec<(u32, u32)>,
    keys: Keys,
    /// How often a head was known since the memo was empty.
    hits: usize,
    /// How many lines to let pass before it learns again.
    rest: usize,
}

/// What a head has of its own.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    way: u32,
    /// Where they begin in `places`, if they are many, or in `heads_of_lines`; or, if both are so, the
    /// pair of these.
    many: u32,
    /// Where its series stands, if that is one place.
    place: WindowPlace,
}

/// One head.
#[derive(Debug)]
struct Slot {
    print: Print,
    found: Found,
}

/// What is known of a head.
#[derive(Clone, Copy, Debug)]
pub struct Known<'m> {
    /// What is done with its lines.
    pub way: &'m Way,
    /// Where the series stands in one window after the other.
    pub places: &'m [WindowPlace],
    /// What lanes need to know that keep or copy its points.
    pub heads: &'m [LineHead],
    /// Where these stand.
    pub text: &'m [u8],
}

impl Default for Memo {
    fn default() -> Self {
        Self {
            edition: None,
            segments: iter::repeat_with(HashTable::new).take(SEGMENTS).collect(),
            heads: 0,
            ways: Ways::default(),
            places: Vec::new(),
            heads_of_lines: Vec::new(),
            text: Vec::new(),
            pairs: Vec::new(),
            keys: Keys::default(),
            hits: 0,
            rest: 0,
        }
    }
}

impl Memo {
    /// Gets ready for a batch that goes by this table, until whose end all that is found stands:
    /// forgets what was learnt from another table, and starts anew if it is full.
    pub fn align(&mut self, table: &Table) {
        if self.edition != Some(table.edition) {
            *self = Self { edition: Some(table.edition), ..Self::default() };
        } else if self.is_full() {
            self.start_anew();
        }
    }

    /// Whether a line is to pass unlooked at.
    pub const fn is_resting(&mut self) -> bool {
        let resting = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        resting
    }

    /// What a head is looked for by; none of one that is too long to be remembered.
    #[inline]
    pub fn print(&self, head: &Head<'_>) -> Option<Print> {
        self.keys.print(head)
    }

    /// What is known of the head of this print.
    #[inline]
    pub fn seek(&mut self, print: Print) -> Option<Found> {
        let segment = self.segments.get(table_of(print.hash, SEGMENTS))?;
        let found = segment.find(print.hash, |slot| slot.print == print)?.found;
        self.hits += 1;
        Some(found)
    }

    /// What is done with lines of a head that was found.
    #[inline]
    pub fn known<'m>(&'m self, found: &'m Found) -> Option<Known<'m>> {
        let way = self.ways.get(found.way)?;
        if way.keeps > 0 {
            return self.known_to_be_kept(way, found);
        }
        let places = self.places(way, found, found.many)?;
        Some(Known { way, places, heads: &[], text: &[] })
    }

    /// Apart, so that lines which only windows take pay nothing for it.
    #[inline(never)]
    fn known_to_be_kept<'m>(&'m self, way: &'m Way, found: &'m Found) -> Option<Known<'m>> {
        let (first_place, first_head) = self.starts(way, found)?;
        let places = self.places(way, found, first_place)?;
        let heads = self.heads_of_lines.get(first_head as usize..)?.get(..way.keeps)?;
        Some(Known { way, places, heads, text: &self.text })
    }

    #[inline]
    fn places<'m>(&'m self, way: &Way, found: &'m Found, first: u32) -> Option<&'m [WindowPlace]> {
        match way.lanes.len() {
            0 | 1 => Some(slice::from_ref(&found.place)),
            many => self.places.get(first as usize..)?.get(..many),
        }
    }

    /// Remembers what was done with a line of this head, in place of what was known before.
    pub fn learn(&mut self, print: Print, shape: Shape, done: Done<'_>) {
        if self.is_full() {
            return;
        }
        let Some(found) = self.note(print, shape, done) else { return };
        let Some(segment) = self.segments.get_mut(table_of(print.hash, SEGMENTS)) else { return };
        let is_it = |slot: &Slot| slot.print == print;
        match segment.entry(print.hash, is_it, |slot| slot.print.hash) {
            Entry::Occupied(mut old) => old.get_mut().found = found,
            Entry::Vacant(slot) => {
                slot.insert(Slot { print, found });
                self.heads += 1;
            }
        }
    }

    fn note(&mut self, print: Print, shape: Shape, done: Done<'_>) -> Option<Found> {
        let Done { steps, places, heads, .. } = done;
        let way = self.ways.number(shape, steps)?;
        let first_place = u32::try_from(self.places.len()).ok()?;
        let first_head = if heads.is_empty() {
            0
        } else {
            // A series that has another place now has the same lines as before.
            let known = self.first_head(print, &done);
            known.map_or_else(|| self.note_heads(done), Some)?
        };
        let place = match places {
            [] => WindowPlace::default(),
            [place] => *place,
            _ => {
                self.places.extend_from_slice(places);
                WindowPlace::default()
            }
        };
        let many = match (places, heads) {
            ([_, _, ..], [_, ..]) => {
                self.pairs.push((first_place, first_head));
                u32::try_from(self.pairs.len() - 1).ok()?
            }
            (_, []) => first_place,
            _ => first_head,
        };
        Some(Found { way, many, place })
    }

    /// Where the heads of lines begin that are known for this print, if they are these.
    fn first_head(&self, print: Print, done: &Done<'_>) -> Option<u32> {
        let segment = self.segments.get(table_of(print.hash, SEGMENTS))?;
        let found = &segment.find(print.hash, |slot| slot.print == print)?.found;
        let known = self.known(found).filter(|known| known.heads.len() == done.heads.len())?;
        let alike = known.heads.iter().zip(done.heads).all(|(known_head, head)| {
            let same_text = known_head.of(known.text) == head.of(done.text);
            same_text && known_head.hash == head.hash
        });
        alike.then(|| self.starts(self.ways.get(found.way)?, found)).flatten().map(|(_, head)| head)
    }

    /// Where the places and the heads of lines begin of what was found.
    #[inline]
    fn starts(&self, way: &Way, found: &Found) -> Option<(u32, u32)> {
        match (way.lanes.len(), way.keeps) {
            (2.., 1..) => self.pairs.get(found.many as usize).copied(),
            _ => Some((found.many, found.many)),
        }
    }

    /// Answers where they begin now.
    fn note_heads(&mut self, Done { heads, text, .. }: Done<'_>) -> Option<u32> {
        let first = u32::try_from(self.heads_of_lines.len()).ok()?;
        let moved = u32::try_from(self.text.len()).ok()?;
        let here = |head: &LineHead| LineHead {
            text: (head.text.0 + moved, head.text.1 + moved),
            ..*head
        };
        self.heads_of_lines.extend(heads.iter().map(here));
        self.text.extend_from_slice(text);
        Some(first)
    }

    fn is_full(&self) -> bool {
        self.heads >= HEADS
            || self.ways.len() >= WAYS
            || self.places.len() >= PLACES
            || self.heads_of_lines.len() >= PLACES
            || self.text.len() >= TEXT_MAX
    }

    /// Gives the memory back if it takes a rest.
    fn start_anew(&mut self) {
        let rest = if self.hits < self.heads * WORTH { self.heads * REST } else { 0 };
        if rest > 0 {
            *self = Self { edition: self.edition, rest, ..Self::default() };
            return;
        }
        self.segments.iter_mut().for_each(HashTable::clear);
        self.ways = Ways::default();
        self.places.clear();
        self.heads_of_lines.clear();
        self.text.clear();
        self.pairs.clear();
        (self.heads, self.hits) = (0, 0);
    }
}

/// As many as leave the tables well filled at a million heads, each grown in less than a
/// millisecond.
const SEGMENTS: usize = 40;

const HEADS: usize = 1 << 20;
const WAYS: usize = 1 << 12;
const PLACES: usize = 1 << 20;
/// As much as what is known of readings may have.
const TEXT_MAX: usize = 28 << 20;
/// How often each head should come back before the memo is full.
const WORTH: usize = 2;
/// How many times as many lines as it holds pass before it learns again.
const REST: usize = 8;

#[cfg(test)]
mod tests {
    use super::super::way::Step;
    use super::*;
    use protocols::statsd::{Dialects, Limits, parse_line, splits};
    use protocols::{Batch, Measure};

    fn shape(line: &str) -> Shape {
        let mut batch = Batch::new();
        parse_line(line.as_bytes(), &Dialects::default(), &Limits::default(), &mut batch).unwrap();
        Shape::of(&batch.point(0).unwrap()).unwrap()
    }

    fn print(memo: &Memo, line: &str) -> Print {
        memo.print(&splits(line.as_bytes()).next().unwrap().unwrap().head).unwrap()
    }

    /// Learns from a line what the numbers of its routes say.
    fn learn(memo: &mut Memo, line: &str, routes: &[u16]) {
        let steps: Vec<_> = routes.iter().copied().map(Step::Take).collect();
        memo.learn(print(memo, line), shape(line), Done { steps: &steps, ..Done::default() });
    }

    fn routes(memo: &mut Memo, line: &str) -> Option<Vec<u16>> {
        let route = |step: &Step| match step {
            Step::Take(route) => *route,
            other => panic!("{other:?}"),
        };
        let found = memo.seek(print(memo, line))?;
        memo.known(&found).map(|known| known.way.steps.iter().map(route).collect())
    }

    #[test]
    fn a_head_is_known_whatever_its_value() {
        let mut memo = Memo::default();
        learn(&mut memo, "a:1|c", &[7]);
        assert_eq!(routes(&mut memo, "a:-2.5|c"), Some(vec![7]));
        for other in ["a:1|g", "b:1|c", "a:1|c|@0.5", "|a:1|c", "a|:1|c", "a:1|c\0"] {
            assert_eq!(routes(&mut memo, other), None, "{other}");
        }
        learn(&mut memo, "a:1|c", &[8, 9]);
        assert_eq!(routes(&mut memo, "a:1|c"), Some(vec![8, 9]), "the last lesson counts");
        assert_eq!(memo.heads, 1);
    }

    #[test]
    fn heads_that_differ_far_behind_are_told_apart() {
        let mut memo = Memo::default();
        let line = |last: char| format!("{}:1|c|#k:{}{last}", "n".repeat(60), "v".repeat(60));
        learn(&mut memo, &line('a'), &[1]);
        learn(&mut memo, &line('b'), &[]);
        assert_eq!(routes(&mut memo, &line('a')), Some(vec![1]));
        assert_eq!(routes(&mut memo, &line('b')), Some(vec![]));
        assert_eq!(routes(&mut memo, &line('c')), None);
    }

    #[test]
    fn each_head_has_places_of_its_own_on_one_way() {
        let mut memo = Memo::default();
        let steps = [Step::Take(0), Step::Absorb(1), Step::Absorb(0), Step::Absorb(3)];
        let places = |n: u32| [n, n + 1, n + 2].map(WindowPlace::of_test);
        for (n, line) in (0..).step_by(10).zip(["a:1|c", "b:1|c", "a:2|c"]) {
            let done = Done { steps: &steps, places: &places(n), ..Done::default() };
            memo.learn(print(&memo, line), shape(line), done);
        }
        for (line, n) in [("a:5|c", 20), ("b:5|c", 10)] {
            let found = memo.seek(print(&memo, line)).unwrap();
            let known = memo.known(&found).unwrap();
            assert_eq!(known.places, places(n), "{line}");
            assert_eq!(*known.way.steps, steps, "{line}");
        }
        assert_eq!(memo.ways.len(), 1);
    }

    /// However many windows the series is in beside; and a lesson that says the same of lines takes no
    /// more memory.
    #[test]
    fn each_head_has_lines_of_its_own() {
        let mut memo = Memo::default();
        let keep = Step::Keep { lane: 2, route: 0 };
        let ways = [
            vec![Step::Take(0), keep],
            vec![Step::Absorb(1), keep, Step::Take(1), keep],
            vec![keep, Step::Absorb(1), Step::Absorb(0)],
        ];
        let lines = ["a:1|c", "b:1|c", "c:1|c"];
        let text = |line: &str| format!("{line} one and another");
        let lesson = |memo: &mut Memo, n: u32| {
            for (line, steps) in lines.iter().zip(&ways) {
                let of = |is_it: fn(&Step) -> bool| steps.iter().filter(|step| is_it(step)).count();
                let keeps = of(|step| matches!(step, Step::Keep { .. }));
                let places = of(|step| matches!(step, Step::Absorb(_)));
                let heads =
                    [(1, (0, 9)), (2, (10, 14))].map(|(hash, text)| LineHead { hash, text });
                let places: Vec<_> =
                    (0..places as u32).map(|at| WindowPlace::of_test(n + at)).collect();
                let (heads, text) = (&heads[..keeps], text(line));
                let done = Done { steps, places: &places, heads, text: text.as_bytes() };
                memo.learn(print(memo, line), shape(line), done);
            }
        };
        lesson(&mut memo, 7);
        let before = (memo.text.len(), memo.heads_of_lines.len());
        lesson(&mut memo, 70);
        assert_eq!((memo.text.len(), memo.heads_of_lines.len()), before);
        for (line, steps) in lines.iter().zip(&ways) {
            let found = memo.seek(print(&memo, line)).unwrap();
            let known = memo.known(&found).unwrap();
            assert_eq!(*known.way.steps, **steps, "{line}");
            let heads: Vec<_> = known.heads.iter().map(|head| head.of(known.text)).collect();
            assert_eq!(heads[0], &text(line).as_bytes()[..9], "{line}");
            let places = known.way.lanes.len();
            let expected: Vec<_> = (70..).take(places).map(WindowPlace::of_test).collect();
            assert_eq!(known.places.get(..places), Some(&*expected), "{line}");
        }
        let found = memo.seek(print(&memo, lines[1])).unwrap();
        assert_eq!(memo.known(&found).unwrap().heads[1].hash, 2);
    }

    #[test]
    fn another_table_is_learnt_anew() {
        let (mut memo, first) = (Memo::default(), Table::default());
        memo.align(&first);
        learn(&mut memo, "a:1|c", &[1]);
        memo.align(&first);
        assert!(routes(&mut memo, "a:1|c").is_some());
        memo.align(&Table::default());
        assert_eq!(routes(&mut memo, "a:1|c"), None);
    }

    #[test]
    fn it_is_bounded_and_rests_when_heads_do_not_come_back() {
        let (mut memo, table, shape) = (Memo::default(), Table::default(), shape("a:1|c"));
        memo.align(&table);
        let fill = |memo: &mut Memo| {
            for n in 0..=HEADS as u64 {
                let print = Print::of_test(n);
                memo.learn(print, shape, Done { steps: &[Step::Take(1)], ..Done::default() });
            }
            assert_eq!(memo.heads, HEADS, "the one too many is not learnt");
            memo.align(&table);
            assert_eq!(memo.heads, 0, "it begins anew");
        };
        assert!(!memo.is_resting());
        fill(&mut memo);
        assert_eq!((0..).take_while(|_| memo.is_resting()).count(), HEADS * REST);
        memo.hits = HEADS * WORTH;
        fill(&mut memo);
        assert!(!memo.is_resting(), "it was of use");
    }

    #[test]
    fn ways_and_further_places_are_bounded_too() {
        let (mut memo, table) = (Memo::default(), Table::default());
        memo.align(&table);
        for n in 0..=u16::try_from(WAYS).unwrap() {
            learn(&mut memo, &format!("n{n}:1|c"), &[n]);
        }
        assert_eq!((memo.heads, memo.ways.len()), (WAYS, WAYS));
        memo.align(&table);
        assert_eq!((memo.heads, memo.ways.len()), (0, 0));
        memo.places.resize(PLACES, WindowPlace::default());
        learn(&mut memo, "a:1|c", &[1]);
        assert_eq!(memo.heads, 0);
        memo.align(&table);
        assert!(memo.places.is_empty());
    }

    #[test]
    fn a_head_is_half_a_line_of_the_cache() {
        assert_eq!(size_of::<Slot>(), 32);
        let count = Measure::Count { delta: 3.0, rate: 0.5 };
        let three = splits(b"a:3|c").next().unwrap().unwrap();
        assert_eq!(shape("a:1|c|@0.5").measure(&three), Some(count));
    }
}
