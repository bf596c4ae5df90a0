//! What was done with readings, so that those whose form is known are neither parsed, nor routed,
//! nor encoded again.
//!
//! A reading is recognised by its [`Form`], compared byte by byte. For each form it is remembered which
//! routes took it and, for each lane, what its line begins with; forms that some lane takes in another
//! way are left alone. Most senders send the same series in the same order each time, so the form that
//! followed the last one is tried first, which saves a search.
//!
//! What is remembered dies with the table that it was learnt from, and is bounded by [`FORMS`] and
//! [`TEXT_MAX`]. When it is full it starts anew, and if forms come back too seldom to be worth it, it
//! takes a rest first. What a form leads to must depend only on the table and the listener; if it is to
//! depend on the sender, each sender needs forms of its own.

use super::router::{Edition, Table};
use super::script::Script;
use hashbrown::HashTable;
use protocols::form::{Filling, Form, Speech};
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// The forms that one task at a time knows.
#[derive(Debug, Default)]
pub(super) struct Forms {
    edition: Option<Edition>,
    index: HashTable<u32>,
    slots: Vec<Slot>,
    /// The parts of forms, and what lines begin with.
    text: Vec<u8>,
    takes: Vec<u16>,
    writes: Vec<Write>,
    hasher: foldhash::fast::RandomState,
    /// The form that was met last.
    last: u32,
    /// How often a form was recognised since there were none.
    hits: usize,
    /// How many readings to let pass before more is learnt.
    rest: usize,
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    /// Where the parts begin in the text.
    text: u32,
    parts: [u16; 3],
    speech: Speech,
    value_first: bool,
    lore: Lore,
    /// Which form came next, the last time.
    next: u32,
    takes: (u32, u16),
    writes: (u32, u16),
}

/// What is known of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lore {
    /// Nothing yet.
    Nothing,
    /// What is done with its readings cannot be repeated.
    Odd,
    /// It can.
    Known,
}

/// A lane that writes the reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// By its place in the table.
    pub(super) lane: u16,
    /// The route that names it.
    pub(super) route: u16,
    /// The hash of the series.
    pub(super) hash: u64,
    /// Where in the text what the line begins with stands.
    pub(super) head: (u32, u32),
}

/// What is to be done with a reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'f> {
    /// The routes that take it.
    pub(super) takes: &'f [u16],
    /// The lanes that write it.
    pub(super) writes: &'f [Write],
    /// Where heads stand.
    pub(super) text: &'f [u8],
}

/// What a text turned out to be.
#[derive(Debug)]
pub(super) enum Met {
    /// A reading of the form at this place.
    Known(u32, Filling),
    /// One whose form may be learnt.
    New(u32),
    /// Neither.
    Odd,
}

impl Forms {
    /// Gets ready for more: forgets what was learnt from another table, or everything if it is full.
    pub(super) fn align(&mut self, table: &Table) {
        if self.edition != Some(table.edition) {
            *self = Self { edition: Some(table.edition), ..Self::default() };
        } else if self.is_full() {
            self.start_anew();
        }
    }

    /// A reading of the form that came next the last time.
    #[inline]
    pub(super) fn expected(&mut self, text: &[u8], speech: Speech) -> Option<(u32, Filling)> {
        let at = self.slots.get(self.last as usize)?.next;
        let slot = self.slots.get(at as usize).filter(|slot| slot.lore == Lore::Known)?;
        let form = self.form(slot).filter(|form| form.speech == speech)?;
        let filling = form.filling(text)?;
        self.hits += 1;
        self.last = at;
        Some((at, filling))
    }

    /// What is known of a text that is not what was [expected](Self::expected).
    pub(super) fn search(&mut self, text: &[u8], speech: Speech) -> Met {
        if self.rest > 0 {
            self.rest -= 1;
            return Met::Odd;
        }
        let Some((form, filling)) = speech.cut(text) else { return Met::Odd };
        let hash = self.hash(&form);
        let known = self.index.find(hash, |at| self.is(*at, &form)).copied();
        let Some(at) = known.or_else(|| self.add(hash, &form)) else { return Met::Odd };
        if let Some(last) = self.slots.get_mut(self.last as usize) {
            last.next = at;
        }
        self.last = at;
        match self.slots.get(at as usize).map(|slot| slot.lore) {
            Some(Lore::Known) => {
                self.hits += 1;
                Met::Known(at, filling)
            }
            Some(Lore::Nothing) => Met::New(at),
            _ => Met::Odd,
        }
    }

    /// Adds a form of which nothing is known yet, if there is room.
    fn add(&mut self, hash: u64, form: &Form<'_>) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let at = u32::try_from(self.slots.len()).ok()?;
        let text = u32::try_from(self.text.len()).ok()?;
        let [before, between, after] = form.parts.map(|part| u16::try_from(part.len()).ok());
        let parts = [before?, between?, after?];
        form.parts.iter().for_each(|part| self.text.extend_from_slice(part));
        let Form { speech, value_first, .. } = *form;
        let (lore, takes, writes) = (Lore::Nothing, (0, 0), (0, 0));
        self.slots.push(Slot {
            hash,
            text,
            parts,
            speech,
            value_first,
            lore,
            next: at,
            takes,
            writes,
        });
        let slots = &self.slots;
        self.index.insert_unique(hash, at, |at| slots.get(*at as usize).map_or(0, |one| one.hash));
        Some(at)
    }

    /// Remembers what was done with the reading of a form; nothing, if it cannot be repeated.
    pub(super) fn learn(&mut self, at: u32, script: Option<&Script>) {
        let written = script.and_then(|script| self.write(script));
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        (slot.lore, slot.takes, slot.writes) = match written {
            Some((takes, writes)) => (Lore::Known, takes, writes),
            None => (Lore::Odd, (0, 0), (0, 0)),
        };
    }

    fn write(&mut self, script: &Script) -> Option<((u32, u16), (u32, u16))> {
        let place =
            |list: usize, new: usize| Some((u32::try_from(list).ok()?, u16::try_from(new).ok()?));
        let takes = place(self.takes.len(), script.takes.len())?;
        let writes = place(self.writes.len(), script.writes.len())?;
        let moved = u32::try_from(self.text.len()).ok()?;
        let head = |(start, end): (u32, u32)| (start + moved, end + moved);
        self.takes.extend_from_slice(&script.takes);
        let heads = script.writes.iter().map(|write| Write { head: head(write.head), ..*write });
        self.writes.extend(heads);
        self.text.extend_from_slice(&script.heads);
        Some((takes, writes))
    }

    /// What is known of the form at that place.
    #[inline]
    pub(super) fn known(&self, at: u32) -> Option<Known<'_>> {
        let slot = self.slots.get(at as usize)?;
        let range =
            |(start, count): (u32, u16)| start as usize..start as usize + usize::from(count);
        let takes = self.takes.get(range(slot.takes))?;
        Some(Known { takes, writes: self.writes.get(range(slot.writes))?, text: &self.text })
    }

    #[inline]
    fn form(&self, slot: &Slot) -> Option<Form<'_>> {
        let rest = self.text.get(slot.text as usize..)?;
        let [before, between, after] = slot.parts.map(usize::from);
        let (before, rest) = rest.split_at_checked(before)?;
        let (between, rest) = rest.split_at_checked(between)?;
        let parts = [before, between, rest.get(..after)?];
        Some(Form { speech: slot.speech, value_first: slot.value_first, parts })
    }

    fn is(&self, at: u32, form: &Form<'_>) -> bool {
        self.slots.get(at as usize).and_then(|slot| self.form(slot)).is_some_and(|one| one == *form)
    }

    fn hash(&self, form: &Form<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        form.parts.iter().for_each(|part| hasher.write(part));
        hasher.finish()
    }

    fn is_full(&self) -> bool {
        self.slots.len() >= FORMS || self.text.len() >= TEXT_MAX
    }

    /// Gives the memory back if it takes a rest.
    fn start_anew(&mut self) {
        let rest = if self.hits < self.slots.len() * WORTH { self.slots.len() * REST } else { 0 };
        *self = Self { edition: self.edition, rest, ..Self::default() };
    }
}

/// The forms of one listener, one set for each task that reads at a time: tasks take turns, since
/// there may be thousands of connections, and few processors.
#[derive(Debug, Default)]
pub(super) struct Shelf(Mutex<Sets>);

#[derive(Debug, Default)]
struct Sets {
    free: Vec<Forms>,
    /// How many there are, with those that are in use.
    made: usize,
}

impl Shelf {
    /// The set that was used last, unless as many are in use as there may be.
    pub(super) fn take(&self) -> Option<Forms> {
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(free) = sets.free.pop() {
            return Some(free);
        }
        let has_room = sets.made < SETS;
        sets.made += usize::from(has_room);
        has_room.then(Forms::default)
    }

    fn put(&self, forms: Forms) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).free.push(forms);
    }
}

/// A set that goes back by itself.
#[derive(Debug)]
pub(super) struct Lent {
    shelf: Arc<Shelf>,
    forms: Option<Forms>,
}

impl Lent {
    pub(super) fn of(shelf: &Arc<Shelf>) -> Option<Self> {
        Some(Self { forms: Some(shelf.take()?), shelf: Arc::clone(shelf) })
    }

    #[inline]
    pub(super) fn forms(&mut self) -> Option<&mut Forms> {
        self.forms.as_mut()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.forms.take().into_iter().for_each(|forms| self.shelf.put(forms));
    }
}

/// As many as a small machine has processors; more tasks at a time read in the ordinary way.
const SETS: usize = 4;
const FORMS: usize = 1 << 17;
/// With the forms, about 40 MiB for each set.
const TEXT_MAX: usize = 28 << 20;
/// How often each form should come back before they are too many.
const WORTH: usize = 2;
/// How many times as many readings as there were forms pass before more is learnt.
const REST: usize = 8;
