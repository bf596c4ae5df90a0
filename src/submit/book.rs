//! How far a file is, and where that is written down.

use super::batch::Batch;
use super::batches::Cut;
use super::progress::{Progress, Tail};
use super::totals::Totals;
use crate::file_id::hash;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Of one file.
pub(super) struct Book {
    pub(super) progress: Progress,
    /// None if the submission cannot be resumed.
    at: Option<PathBuf>,
    told: bool,
}

/// What is to be done with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// It is to be sent under this key.
    Send(String),
    /// It was sent before, and this became of it.
    Known(Totals),
}

/// Where batches ended that were begun before.
pub(super) struct Cuts {
    ends: VecDeque<u64>,
    /// A line that begins here was sent before its end was there.
    open: Option<u64>,
}

impl Book {
    pub(super) const fn new(progress: Progress, at: Option<PathBuf>) -> Self {
        Self { progress, at, told: false }
    }

    /// One that shipments share; nothing is left half done in it.
    pub(super) fn lock(book: &Mutex<Self>) -> MutexGuard<'_, Self> {
        book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody could go on after an interruption.
    pub(super) const fn is_kept(&self) -> bool {
        self.at.is_some()
    }

    pub(super) fn cuts(&self) -> Cuts {
        let open = self.progress.tail.as_ref().map(|tail| tail.start);
        Cuts { ends: self.progress.pending.iter().copied().collect(), open }
    }

    /// Writes down that a batch is about to be sent, and says under which key.
    pub(super) fn begin(&mut self, batch: &Batch) -> Begun {
        let (start, end) = (batch.start.offset, batch.end.offset);
        let tail = self.progress.tail.take_if(|tail| tail.start == start);
        // Hashing takes its time; these are short.
        let short = batch.is_open || tail.is_some();
        let text = if short { hash(&batch.body) } else { String::new() };
        let same = tail.as_ref().filter(|tail| tail.hash == text);
        let begun = match same {
            Some(Tail { totals: Some(totals), .. }) => Begun::Known(totals.clone()),
            Some(Tail { end, .. }) => Begun::Send(self.open_key(start, *end)),
            None if batch.is_open => Begun::Send(self.open_key(start, end)),
            None => Begun::Send(format!("{}-{start}", self.progress.id)),
        };
        if let (None, Some(Tail { totals: Some(totals), .. })) = (same, &tail) {
            // The line has changed since, but what was taken of it before counts.
            self.progress.totals.accepted += totals.accepted;
        }
        if same.is_some() {
            self.progress.tail = tail;
        } else if batch.is_open {
            self.progress.tail = Some(Tail { start, end, hash: text, totals: None });
        }
        if !batch.is_open {
            self.progress.begin(end);
        }
        self.keep();
        begun
    }

    /// What became of a batch is known, and of all before it.
    pub(super) fn settle(&mut self, batch: &Batch) {
        match batch.is_open {
            true => self.progress.settle_tail(&batch.totals),
            false => self.progress.settle(batch.end, &batch.totals),
        }
    }

    /// A line that is written on is another request.
    fn open_key(&self, start: u64, end: u64) -> String {
        format!("{}-{start}-{end}", self.progress.id)
    }

    /// Writes it down. If that fails, submitting the points matters more than being able to resume.
    pub(super) fn keep(&mut self) {
        let Some(at) = &self.at else { return };
        if let Err(error) = self.progress.write(at)
            && !std::mem::replace(&mut self.told, true)
        {
            tracing::warn!(file = %at.display(), %error, "an interruption would start anew");
        }
    }
}

impl Cuts {
    /// Where a batch ends that begins at `start`.
    pub(super) fn next(&mut self, start: u64) -> Cut {
        match self.ends.pop_front() {
            Some(end) => Cut::At(end),
            None if self.open == Some(start) => Cut::Line,
            None => Cut::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::batch::Place;
    use crate::submit::format::Format;
    use crate::submit::progress::{Asked, Points};
    use crate::submit::source::Identity;

    fn book() -> Book {
        let points = Points { format: Format::Jsonl, prefix: String::new(), series: None };
        let asked = Asked { to: String::new(), points, wait: false };
        let mut progress = Progress::new(Identity::default(), asked, None);
        progress.id = "id".to_owned();
        Book::new(progress, None)
    }

    fn batch(start: u64, end: u64, body: &str, is_open: bool) -> Batch {
        let place = |offset| Place { offset, line: 0 };
        let (start, end) = (place(start), place(end));
        Batch { body: body.into(), start, end, is_open, ..Batch::default() }
    }

    fn key(key: &str) -> Begun {
        Begun::Send(key.to_owned())
    }

    fn settle(book: &mut Book, mut batch: Batch, accepted: u64) {
        batch.totals.accepted = accepted;
        book.settle(&batch);
    }

    #[test]
    fn a_line_that_gets_its_end_is_not_sent_again() {
        let mut book = book();
        let (half, whole) = (batch(9, 12, "abc", true), batch(9, 13, "abc", false));
        assert_eq!(book.begin(&half), key("id-9-12"));
        assert_eq!(book.begin(&whole), key("id-9-12"), "nobody knows what became of it");
        settle(&mut book, half, 1);
        assert_eq!((book.progress.known().0, book.progress.place().offset), (12, 0));
        let Begun::Known(totals) = book.begin(&whole) else { panic!("it was sent") };
        assert_eq!(totals.accepted, 1);
        settle(&mut book, whole, 1);
        assert_eq!(book.progress.place().offset, 13);
        assert_eq!((book.progress.totals.accepted, &book.progress.tail), (1, &None));
    }

    #[test]
    fn a_line_that_goes_on_is_sent_as_it_is_then() {
        let mut book = book();
        let half = batch(9, 12, "abc", true);
        book.begin(&half);
        settle(&mut book, half, 1);
        assert_eq!(book.begin(&batch(9, 13, "abcd", true)), key("id-9-13"));
        let whole = batch(9, 20, "abcdef", false);
        assert_eq!(book.begin(&whole), key("id-9"));
        settle(&mut book, whole, 1);
        assert_eq!(book.progress.totals.accepted, 2, "the first half was taken for a point, too");
    }

    #[test]
    fn batches_end_where_they_did() {
        let mut book = book();
        book.begin(&batch(0, 5, "", false));
        book.begin(&batch(5, 9, "", false));
        book.begin(&batch(9, 12, "", true));
        let mut cuts = book.cuts();
        assert_eq!([0, 5, 9].map(|start| cuts.next(start)), [Cut::At(5), Cut::At(9), Cut::Line]);
        assert_eq!(cuts.next(13), Cut::Full);
    }
}
