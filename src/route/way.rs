//! What is done with lines of one series, which is the same for many others.
//!
//! The lines of a load go few ways: a kind, a rate, and the same routes and lanes. So each way is kept
//! once, however many series share it; only where a series stands in windows is its own.

use crate::lane::WindowPlace;
use hashbrown::HashTable;
use protocols::statsd::Shape;
use std::hash::BuildHasher;

/// A part of what is done with a point, and can be done with the next one of its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The route at this place takes it.
    Take(u16),
    /// The lane at this place adds it to the series' next place in a window.
    Absorb(u16),
    /// The lane writes it as the series' next line, for the route.
    Keep {
        /// Its place in the table.
        lane: u16,
        /// Its place in the table.
        route: u16,
    },
    /// The lane is handed the point as it was parsed, for the route.
    Copy {
        /// Its place in the table.
        lane: u16,
        /// Its place in the table.
        route: u16,
    },
    /// The lane hands the line on as it came, for the route.
    Relay {
        /// Its place in the table.
        lane: u16,
        /// Its place in the table.
        route: u16,
    },
}

/// What was done with a point.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done<'a> {
    /// In this order.
    pub steps: &'a [Step],
    /// Where the series stands in the windows of those that absorb it, one after the other.
    pub places: &'a [WindowPlace],
    /// What those that keep or copy it need to know, one after the other.
    pub heads: &'a [LineHead],
    /// Where these stand.
    pub text: &'a [u8],
}

/// What a lane needs to know of a series to write its points; one that copies them, only the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineHead {
    /// That of the series.
    pub hash: u64,
    /// Where in a text what its lines begin with stands.
    pub text: (u32, u32),
}

impl LineHead {
    /// What lines begin with.
    #[inline]
    pub fn of<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let (start, end) = self.text;
        text.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// What is done with lines of some series.
#[derive(Debug)]
pub struct Way {
    /// What they measure.
    pub shape: Shape,
    /// What is done with their points.
    pub steps: Box<[Step]>,
    /// What the steps need to know of a line.
    pub needs: Needs,
    /// The lanes that absorb their points, in the order of the steps.
    pub lanes: Box<[u16]>,
    /// How many lanes keep or copy their points.
    pub keeps: usize,
}

/// What steps need to know of each new line.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Its number: some lane adds it up or writes it, or it still has to be checked, since no lane
    /// hands the line on.
    pub number: bool,
    /// That its value is plain, so that the line can go out as it came.
    pub plain: bool,
    /// All that it says: some lane has words of its own for it.
    pub point: bool,
}

/// Ways, each once.
#[derive(Debug, Default)]
pub(super) struct Ways {
    ways: Vec<Way>,
    index: HashTable<u32>,
    hasher: foldhash::fast::RandomState,
}

impl Needs {
    fn of(steps: &[Step]) -> Self {
        let plain = steps.iter().any(|step| matches!(step, Step::Relay { .. }));
        let is_used = steps.iter().any(|step| matches!(step, Step::Absorb(_) | Step::Keep { .. }));
        // A plain value is certain to be a number, and need not be read if nobody makes use of it.
        let point = steps.iter().any(|step| matches!(step, Step::Copy { .. }));
        Self { number: is_used || point || !plain, plain, point }
    }
}

impl Ways {
    pub(super) const fn len(&self) -> usize {
        self.ways.len()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Way> {
        self.ways.get(number as usize)
    }

    /// The number of a way.
    pub(super) fn number(&mut self, shape: Shape, steps: &[Step]) -> Option<u32> {
        let Self { ways, index, hasher } = self;
        let hash = |shape: &Shape, steps: &[Step]| hasher.hash_one((shape, steps));
        let is_it = |way: &Way| way.shape == shape && *way.steps == *steps;
        let known = index.find(hash(&shape, steps), |at| ways.get(*at as usize).is_some_and(is_it));
        if known.is_some() {
            return known.copied();
        }
        let number = u32::try_from(ways.len()).ok()?;
        let lane = |step: &Step| if let Step::Absorb(lane) = step { Some(*lane) } else { None };
        let (lanes, needs) = (steps.iter().filter_map(lane).collect(), Needs::of(steps));
        let is_kept = |step: &&Step| matches!(step, Step::Keep { .. } | Step::Copy { .. });
        let keeps = steps.iter().filter(is_kept).count();
        ways.push(Way { shape, steps: steps.into(), needs, lanes, keeps });
        let again = |at: &u32| ways.get(*at as usize).map_or(0, |way| hash(&way.shape, &way.steps));
        index.insert_unique(hash(&shape, steps), number, again);
        Some(number)
    }
}
