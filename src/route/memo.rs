//! What was done with lines, so that lines which differ in their value alone need neither be
//! parsed nor routed again.
//!
//! A line is known by its [`Head`], compared to the last byte. What is remembered dies with the
//! table that it was learnt from, and is bounded: by [`HEADS`] and by [`TEXT`] bytes, about
//! 16 MiB for each receiving task. When it is full it starts anew, and where heads come back too
//! seldom to be worth it, as with a million series, it takes [a rest](Memo::is_resting) first.

use super::crossing::Step;
use super::router::{Edition, Table};
use hashbrown::HashTable;
use protocols::statsd::{Head, Shape};
use std::hash::BuildHasher;
use std::ops::Range;

/// What was done with lines of known heads.
#[derive(Debug, Default)]
pub struct Memo {
    edition: Option<Edition>,
    index: HashTable<u32>,
    entries: Vec<Entry>,
    text: Vec<u8>,
    steps: Vec<Step>,
    hasher: foldhash::quality::RandomState,
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
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    start: u32,
    name: u16,
    tail: u16,
    shape: Shape,
    steps: Range<u32>,
}

impl Memo {
    /// Forgets what was learnt from another table.
    pub fn align(&mut self, table: &Table) {
        if self.edition != Some(table.edition) {
            self.clear();
            self.rest = 0;
            self.edition = Some(table.edition);
        }
    }

    /// Whether a line is to pass unlooked at.
    pub const fn is_resting(&mut self) -> bool {
        let resting = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        resting
    }

    /// What is known of a head.
    pub fn find(&mut self, head: &Head<'_>) -> Option<Known<'_>> {
        let at = *self.index.find(self.hash(head), |at| self.is(*at, head))?;
        self.hits += 1;
        let entry = self.entries.get(at as usize)?;
        let steps = self.steps.get(entry.steps.start as usize..entry.steps.end as usize)?;
        Some(Known { shape: entry.shape, steps })
    }

    /// Remembers what was done with a line of this head, in place of what was known before.
    pub fn learn(&mut self, head: &Head<'_>, shape: Shape, steps: &[Step]) {
        let hash = self.hash(head);
        if let Some(at) = self.index.find(hash, |at| self.is(*at, head)) {
            return self.learn_anew(*at, steps);
        }
        if self.is_full() {
            self.start_anew();
        }
        let (Ok(name), Ok(tail)) = (u16::try_from(head.name.len()), u16::try_from(head.tail.len()))
        else {
            return;
        };
        // Neither text nor steps grow beyond what 32 bits can count.
        let (Ok(start), Ok(at)) =
            (u32::try_from(self.text.len()), u32::try_from(self.entries.len()))
        else {
            return;
        };
        self.text.extend_from_slice(head.name);
        self.text.extend_from_slice(head.tail);
        let steps = self.note(steps);
        self.entries.push(Entry { hash, start, name, tail, shape, steps });
        let entries = &self.entries;
        self.index
            .insert_unique(hash, at, |at| entries.get(*at as usize).map_or(0, |one| one.hash));
    }

    /// The steps of a head that is known; mostly as many as before.
    fn learn_anew(&mut self, at: u32, steps: &[Step]) {
        let Some(entry) = self.entries.get(at as usize) else { return };
        let Range { start, end } = entry.steps;
        let old = self.steps.get_mut(start as usize..end as usize);
        if let Some(old) = old.filter(|old| old.len() == steps.len()) {
            old.copy_from_slice(steps);
        } else if self.is_full() {
            self.start_anew();
        } else {
            let noted = self.note(steps);
            if let Some(entry) = self.entries.get_mut(at as usize) {
                entry.steps = noted;
            }
        }
    }

    #[allow(clippy::cast_possible_truncation)] // Bounded by `is_full`.
    fn note(&mut self, steps: &[Step]) -> Range<u32> {
        let start = self.steps.len() as u32;
        self.steps.extend_from_slice(steps);
        start..self.steps.len() as u32
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= HEADS || self.text.len() >= TEXT || self.steps.len() >= STEPS
    }

    fn start_anew(&mut self) {
        if self.hits < self.entries.len() * WORTH {
            self.rest = self.entries.len() * REST;
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.index.clear();
        self.entries.clear();
        self.text.clear();
        self.steps.clear();
        self.hits = 0;
    }

    fn is(&self, at: u32, head: &Head<'_>) -> bool {
        let Some(entry) = self.entries.get(at as usize) else { return false };
        let (start, name) = (entry.start as usize, usize::from(entry.name));
        name == head.name.len()
            && usize::from(entry.tail) == head.tail.len()
            && self.text.get(start..start + name) == Some(head.name)
            && self.text.get(start + name..start + name + head.tail.len()) == Some(head.tail)
    }

    fn hash(&self, head: &Head<'_>) -> u64 {
        // The lengths keep apart what the two texts together do not.
        self.hasher.hash_one((head.name, head.tail))
    }
}

const HEADS: usize = 1 << 17;
const TEXT: usize = 10 << 20;
const STEPS: usize = 4 * HEADS;
/// How often each head should come back before the memo is full.
const WORTH: usize = 2;
/// How many times as many lines as it holds pass before it learns again.
const REST: usize = 8;
