//! A file, cut into the bodies of requests.
//!
//! Where a batch ends follows from where it begins and from the content of the file, and from nothing
//! else, such as how the file was read. So a run that begins again at the same place makes the same
//! batches, byte for byte, and a gateway that knows the key of a request recognises it. A batch ends
//! between two lines. Only a last line without a line end makes a batch of its own, which is *open*: the
//! file may still be written to.
//!
//! Limits: those of a [`Batch`], and of a line ([`form`](super::form)).

use super::batch::{Batch, Place};
use super::form::Form;
use super::source::Source;
use protocols::csv;
use std::io::{self, Read as _};
use std::ops::Range;

/// Where a batch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// When it is full.
    Full,
    /// Where it ended when it was begun before.
    At(u64),
    /// With the first line, or row of a table.
    Line,
}

/// Reads a file from a place on.
pub(super) struct Batches {
    source: Source,
    form: Form,
    /// How far it was read.
    offset: u64,
    /// How far, without a line that has not ended.
    place: Place,
    buffer: Box<[u8]>,
    /// What of the buffer is still to be read.
    unread: Range<usize>,
    /// Why no more can be read, to be told once what was read before is on its way.
    failed: Option<String>,
    /// The end of the file was read. What was appended since belongs to the open batch.
    is_over: bool,
}

impl Batches {
    /// From `place` on, which is one where an earlier batch ended.
    ///
    /// # Errors
    ///
    /// What the system says, or why the table is refused.
    pub(super) fn new(mut source: Source, mut form: Form, place: Place) -> Result<Self, String> {
        if place.offset > 0 {
            if let Form::Table(table) = &mut form {
                read_header(&mut source, table)?;
            }
            source.go_to(place.offset).map_err(|error| error.to_string())?;
            form.go_on_after(place.line);
        }
        let buffer = vec![0; CHUNK].into_boxed_slice();
        let (offset, unread, failed, is_over) = (place.offset, 0..0, None, false);
        Ok(Self { source, form, offset, place, buffer, unread, failed, is_over })
    }

    /// Where the next batch begins.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// The next batch, which ends where `cut` says, or the file does.
    ///
    /// # Errors
    ///
    /// What the system says, or why the table is refused.
    pub(super) fn next(&mut self, cut: Cut) -> Result<Option<Batch>, String> {
        let mut batch = Batch { start: self.place, end: self.place, ..Batch::default() };
        while !self.is_over && !self.is_cut(&batch, cut) {
            match self.read_some(cut, &mut batch) {
                Ok(true) => {}
                // What was read before is good all the same.
                Err(why) if batch.bytes() > 0 => {
                    self.failed = Some(why);
                    break;
                }
                Err(why) => return Err(why),
                // What the file ends with goes alone, and may be all that there is.
                Ok(false) if batch.bytes() > 0 => break,
                Ok(false) => {
                    self.end(&mut batch)?;
                    break;
                }
            }
        }
        Ok((batch.bytes() > 0).then_some(batch))
    }

    fn is_cut(&self, batch: &Batch, cut: Cut) -> bool {
        self.offset == self.place.offset
            && match cut {
                Cut::Full => batch.is_full(),
                Cut::At(end) => self.offset >= end,
                Cut::Line => batch.bytes() > 0,
            }
    }

    /// Reads at most one record; answers whether there was anything to read.
    fn read_some(&mut self, cut: Cut, batch: &mut Batch) -> Result<bool, String> {
        if let Some(why) = self.failed.take() {
            return Err(why);
        }
        let room = match cut {
            Cut::At(end) => usize::try_from(end.saturating_sub(self.offset)).unwrap_or(usize::MAX),
            Cut::Full | Cut::Line => usize::MAX,
        };
        if room == 0 || self.fill().map_err(|error| error.to_string())? == 0 {
            return Ok(false);
        }
        let unread = self.buffer.get(self.unread.clone()).unwrap_or_default();
        let room = room.min(unread.len());
        let mut input = unread.get(..room).unwrap_or_default();
        let ended = self.form.take(&mut input, batch).map_err(|refused| refused.to_string())?;
        let taken = room - input.len();
        self.unread.start += taken;
        self.offset += taken as u64;
        if ended {
            self.place = Place { offset: self.offset, line: self.form.line() };
            batch.ends_at(self.place);
        }
        Ok(true)
    }

    /// Nothing follows what was read.
    fn end(&mut self, batch: &mut Batch) -> Result<(), String> {
        batch.is_open = self.offset > self.place.offset;
        self.is_over = true;
        self.form.end(batch).map_err(|refused| refused.to_string())?;
        self.place = Place { offset: self.offset, line: self.form.line() };
        batch.ends_at(self.place);
        Ok(())
    }

    /// How much there is to read.
    fn fill(&mut self) -> io::Result<usize> {
        if self.unread.is_empty() {
            self.unread = 0..read(&mut self.source, &mut self.buffer)?;
        }
        Ok(self.unread.len())
    }
}

/// Reads the names of the columns, which a run needs that resumes in the middle.
fn read_header(source: &mut Source, table: &mut csv::Reader) -> Result<(), String> {
    let mut byte = [0];
    // Byte by byte, since a row must not be taken for read; the source has a buffer.
    while !table.knows_columns() {
        if read(source, &mut byte).map_err(|error| error.to_string())? == 0 {
            return Err("the first line, which names the columns, is no longer there".to_owned());
        }
        table.read(&mut &byte[..]).map_err(|refused| refused.to_string())?;
    }
    Ok(())
}

fn read(source: &mut Source, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// What is read at once.
const CHUNK: usize = 256 << 10;

#[cfg(test)]
mod tests;
