//! What was done with lines, so that lines which differ in their value alone need neither be
//! parsed nor routed again.
//!
//! A line is known by its [`Head`], compared to the last byte. What is remembered dies with the
//! table that it was learnt from, and is bounded: by [`HEADS`] of 128 bytes, and what is longer in
//! a head or its steps by [`TEXT_MAX`] and [`STEPS_MAX`]; about 20 MiB for each receiving task.
//! When it is full it starts anew, and where heads come back too seldom to be worth it, as with a
//! million series, it takes [a rest](Memo::is_resting) first.

use super::crossing::{Needs, Step};
use super::router::{Edition, Table};
use hashbrown::HashTable;
use protocols::statsd::{Head, Shape};
use std::hash::{BuildHasher, Hasher};

/// What was done with lines of known heads.
#[derive(Debug, Default)]
pub struct Memo {
    edition: Option<Edition>,
    index: HashTable<u32>,
    /// Close together: where there are many heads, each page of memory more costs as well.
    slots: Vec<Slot>,
    /// The ends of long heads.
    text: Vec<u8>,
    /// The steps of those with many.
    steps: Vec<Step>,
    hasher: foldhash::fast::RandomState,
    /// How often a head was known since the memo was empty.
    hits: usize,
    /// How many lines to let pass before it learns again.
    rest: usize,
}

/// What is known of a head.
#[derive(Clone, Copy, Debug)]
pub struct Known<'m> {
    /// What its lines measure.
    pub shape: Shape,
    /// What is done with their points.
    pub steps: &'m [Step],
    /// What the steps need to know of a point.
    pub needs: Needs,
}

/// One head, in two lines of the processor's cache.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    hash: u64,
    shape: Shape,
    name: u16,
    tail: u16,
    /// How many steps there are.
    steps: u16,
    needs: Needs,
    /// Where the end of a long head begins in `text`.
    text: u32,
    /// Where they begin in `steps` if they are many.
    many: u32,
    few: [Step; STEPS],
    head: [u8; TEXT],
}

impl Memo {
    /// Forgets what was learnt from another table.
    pub fn align(&mut self, table: &Table) {
        if self.edition != Some(table.edition) {
            *self = Self { edition: Some(table.edition), ..Self::default() };
        }
    }

    /// Whether a line is to pass unlooked at.
    pub const fn is_resting(&mut self) -> bool {
        let resting = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        resting
    }

    /// What a head is looked for by.
    pub fn hash(&self, head: &Head<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(head.name);
        match *head.tail {
            // A bar and a kind, as most are.
            [bar, kind] => hasher.write_u16(u16::from_le_bytes([bar, kind])),
            [bar, one, two] => hasher.write_u32(u32::from_le_bytes([bar, one, two, 0])),
            _ => hasher.write(head.tail),
        }
        hasher.finish()
    }

    /// Where something is known of a head with this hash, which is almost certainly the one.
    pub fn seek(&self, hash: u64) -> Option<u32> {
        let is_it = |at: &u32| self.slots.get(*at as usize).is_some_and(|slot| slot.hash == hash);
        self.index.find(hash, is_it).copied()
    }

    /// What is done with points of the head there.
    pub fn steps(&self, at: u32) -> &[Step] {
        self.slots.get(at as usize).map_or(&[], |slot| self.steps_of(slot))
    }

    /// What is known of a head, if it is the one that stands there.
    #[inline]
    pub fn known(&mut self, at: u32, head: &Head<'_>) -> Option<Known<'_>> {
        if !self.is(at, head) {
            return None;
        }
        self.hits += 1;
        let slot = self.slots.get(at as usize)?;
        Some(Known { shape: slot.shape, steps: self.steps_of(slot), needs: slot.needs })
    }

    fn steps_of<'m>(&'m self, slot: &'m Slot) -> &'m [Step] {
        let (steps, many) = (usize::from(slot.steps), slot.many as usize);
        let steps = slot.few.get(..steps).or_else(|| self.steps.get(many..many + steps));
        steps.unwrap_or_default()
    }

    /// Remembers what was done with a line of this head, in place of what was known before.
    pub fn learn(&mut self, head: &Head<'_>, shape: Shape, steps: &[Step]) {
        if self.is_full() {
            self.start_anew();
        }
        let Some(slot) = self.slot(head, shape, steps) else { return };
        let known = self.index.find(slot.hash, |at| self.is(*at, head)).copied();
        if let Some(old) = known.and_then(|at| self.slots.get_mut(at as usize)) {
            *old = slot;
            return;
        }
        let Ok(at) = u32::try_from(self.slots.len()) else { return };
        let hash = slot.hash;
        self.slots.push(slot);
        let slots = &self.slots;
        self.index.insert_unique(hash, at, |at| slots.get(*at as usize).map_or(0, |one| one.hash));
    }

    fn is_full(&self) -> bool {
        self.slots.len() >= HEADS || self.text.len() >= TEXT_MAX || self.steps.len() >= STEPS_MAX
    }

    /// Gives the memory back if it takes a rest.
    fn start_anew(&mut self) {
        if self.hits < self.slots.len() * WORTH {
            let rest = self.slots.len() * REST;
            *self = Self { edition: self.edition, rest, ..Self::default() };
            return;
        }
        self.index.clear();
        self.slots.clear();
        self.text.clear();
        self.steps.clear();
        self.hits = 0;
    }

    fn slot(&mut self, head: &Head<'_>, shape: Shape, steps: &[Step]) -> Option<Slot> {
        let mut slot = Slot {
            hash: self.hash(head),
            shape,
            name: u16::try_from(head.name.len()).ok()?,
            tail: u16::try_from(head.tail.len()).ok()?,
            steps: u16::try_from(steps.len()).ok()?,
            needs: Needs::of(steps),
            text: u32::try_from(self.text.len()).ok()?,
            many: u32::try_from(self.steps.len()).ok()?,
            few: [Step::Take(0); STEPS],
            head: [0; TEXT],
        };
        match slot.few.get_mut(..steps.len()) {
            Some(few) => few.copy_from_slice(steps),
            None => self.steps.extend_from_slice(steps),
        }
        let bytes = || head.name.iter().chain(head.tail);
        slot.head.iter_mut().zip(bytes()).for_each(|(to, from)| *to = *from);
        self.text.extend(bytes().skip(TEXT));
        Some(slot)
    }

    #[inline]
    fn is(&self, at: u32, head: &Head<'_>) -> bool {
        let Some(slot) = self.slots.get(at as usize) else { return false };
        let Head { name, tail } = head;
        let lengths = (usize::from(slot.name), usize::from(slot.tail)) == (name.len(), tail.len());
        lengths
            && match slot.head.get(..name.len() + tail.len()) {
                Some(text) => text.split_at(name.len()) == (*name, *tail),
                None => self.is_long(slot, head),
            }
    }

    #[cold]
    fn is_long(&self, slot: &Slot, head: &Head<'_>) -> bool {
        let rest = self.text.get(slot.text as usize..).unwrap_or_default();
        head.name.iter().chain(head.tail).eq(slot.head.iter().chain(rest).take(head.len()))
    }
}

/// Steps and bytes of a head that are kept in its slot.
const STEPS: usize = 2;
const TEXT: usize = 64;

const HEADS: usize = 1 << 17;
const TEXT_MAX: usize = 4 << 20;
const STEPS_MAX: usize = HEADS;
/// How often each head should come back before the memo is full.
const WORTH: usize = 2;
/// How many times as many lines as it holds pass before it learns again.
const REST: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::statsd::{Dialects, Limits, parse_line, splits};
    use protocols::{Batch, Measure};

    fn shape(line: &str) -> Shape {
        let mut batch = Batch::new();
        parse_line(line.as_bytes(), &Dialects::default(), &Limits::default(), &mut batch).unwrap();
        Shape::of(&batch.point(0).unwrap()).unwrap()
    }

    fn head(line: &str) -> Head<'_> {
        splits(line.as_bytes()).next().unwrap().unwrap().head
    }

    /// Learns from a line what the numbers of its routes say.
    fn learn(memo: &mut Memo, line: &str, routes: &[u16]) {
        let steps: Vec<_> = routes.iter().copied().map(Step::Take).collect();
        memo.learn(&head(line), shape(line), &steps);
    }

    fn routes(memo: &mut Memo, line: &str) -> Option<Vec<u16>> {
        let route = |step: &Step| match step {
            Step::Take(route) => *route,
            other => panic!("{other:?}"),
        };
        let head = head(line);
        let at = memo.seek(memo.hash(&head))?;
        memo.known(at, &head).map(|known| known.steps.iter().map(route).collect())
    }

    #[test]
    fn a_head_is_known_whatever_its_value() {
        let mut memo = Memo::default();
        learn(&mut memo, "a:1|c", &[7]);
        assert_eq!(routes(&mut memo, "a:-2.5|c"), Some(vec![7]));
        for other in ["a:1|g", "b:1|c", "a:1|c|@0.5", "|a:1|c"] {
            assert_eq!(routes(&mut memo, other), None, "{other}");
        }
        learn(&mut memo, "a:1|c", &[8, 9]);
        assert_eq!(routes(&mut memo, "a:1|c"), Some(vec![8, 9]), "the last lesson counts");
    }

    #[test]
    fn long_heads_and_many_steps_are_kept_whole() {
        let mut memo = Memo::default();
        let line = |last: char| format!("{}:1|c|#k:{}{last}", "n".repeat(60), "v".repeat(60));
        let many: Vec<u16> = (0..9).collect();
        learn(&mut memo, &line('a'), &many);
        learn(&mut memo, &line('b'), &[]);
        assert_eq!(routes(&mut memo, &line('a')), Some(many));
        assert_eq!(routes(&mut memo, &line('b')), Some(vec![]));
        assert_eq!(routes(&mut memo, &line('c')), None);
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
        let mut memo = Memo::default();
        for n in 0..=HEADS {
            assert!(!memo.is_resting());
            learn(&mut memo, &format!("n{n}:1|c"), &[1]);
        }
        assert_eq!(memo.slots.len(), 1, "it begins anew");
        assert_eq!((0..).take_while(|_| memo.is_resting()).count(), HEADS * REST);
        memo.hits = HEADS * WORTH;
        for n in 0..=HEADS {
            learn(&mut memo, &format!("n{n}:1|c"), &[1]);
        }
        assert!(!memo.is_resting(), "it was of use");
    }

    #[test]
    fn a_slot_is_two_lines_of_the_cache() {
        assert_eq!(size_of::<Slot>(), 128);
        let count = Measure::Count { delta: 3.0, rate: 0.5 };
        let three = splits(b"a:3|c").next().unwrap().unwrap();
        assert_eq!(shape("a:1|c|@0.5").measure(&three), Some(count));
    }
}
