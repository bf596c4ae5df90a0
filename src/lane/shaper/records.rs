//! Records that were written where they were received: copied block by block, once each has a time
//! that its series has for itself.

use super::Shaper;
use crate::lane::parcel::Record;
use crate::waybill::Source;
use protocols::influxdb::{End, TIME_MAX};
use protocols::{Kind, Skip, UnixNanos};

/// The records that go to the payload as one.
#[derive(Clone, Copy, Debug)]
struct Block<'t> {
    /// Begins with them.
    text: &'t [u8],
    bytes: usize,
    points: usize,
    /// Of all of them.
    kind: Option<Kind>,
}

impl Shaper {
    /// Appends records to the payload; `text` begins with them.
    pub(super) fn records(&mut self, text: &[u8], records: &[Record], source: Source<'_>) {
        let max = self.bytes_max();
        let mut block = Block { text, bytes: 0, points: 0, kind: None };
        for (at, record) in records.iter().enumerate() {
            if let (Some(distinct), Some(soon)) = (&self.distinct, records.get(at + SOON)) {
                distinct.announce(soon.hash);
            }
            let bytes = record.bytes as usize;
            let kind = source.kind.or(Some(record.kind));
            if block.kind != kind {
                self.copy(&mut block, source);
                block.kind = kind;
            }
            if self.names.are_watched() {
                self.watch_record(block.next(bytes));
            }
            let time = self.free_time(record.hash, record.time);
            if time != record.time {
                self.copy(&mut block, source);
                self.move_record(block.next(bytes), time, Source { kind, ..source });
                block.skip(bytes);
                continue;
            }
            let length = self.open.body.len() + block.bytes;
            if length > 0 && length + bytes > max {
                self.copy(&mut block, source);
                self.push();
            }
            block.bytes += bytes;
            block.points += 1;
            let points = self.open.points as usize + block.points;
            let length = self.open.body.len() + block.bytes;
            if points >= self.settings.batch_points as usize || length >= max {
                self.copy(&mut block, source);
                self.push_if_full();
            }
        }
        self.copy(&mut block, source);
    }

    /// Moves what is there of a block to the payload; the next one begins behind it.
    fn copy(&mut self, block: &mut Block<'_>, source: Source<'_>) {
        if block.points == 0 {
            return;
        }
        if self.open.is_empty() {
            self.open.begin(self.clock.now(), self.settings.wait);
        }
        self.written = self.written.wrapping_add(block.bytes);
        self.open.body.extend_from_slice(block.text.get(..block.bytes).unwrap_or_default());
        let source = Source { kind: block.kind, ..source };
        self.open.add(block.points, block.points, source, &self.riders);
        block.skip(block.bytes);
    }

    /// Appends a record whose time is another one now.
    fn move_record(&mut self, record: &[u8], time: UnixNanos, source: Source<'_>) {
        if time.0 > TIME_MAX {
            self.state.book.dropped.add(Skip::Unrepresentable.label(), 1);
            self.riders.lose(1, Skip::Unrepresentable.label(), None);
            return;
        }
        let blank = memchr::memrchr(b' ', record).unwrap_or(record.len());
        let start = self.open.body.len();
        self.open.body.extend_from_slice(record.get(..blank).unwrap_or(record));
        self.open.body.extend_from_slice(End::default().of(time).text());
        self.written = self.written.wrapping_add(self.open.body.len() - start);
        self.add_last(start, 1, source);
    }

    /// Names of records are written as they are.
    fn watch_record(&mut self, record: &[u8]) {
        let end = record.iter().position(|byte| matches!(byte, b',' | b' '));
        let name = record.get(..end.unwrap_or(record.len())).unwrap_or(record);
        if let Ok(name) = str::from_utf8(name) {
            self.watch_name(name);
        }
    }
}

/// How many records before its own a series is announced: a few hundred instructions.
const SOON: usize = 8;

impl<'t> Block<'t> {
    /// The record behind it.
    fn next(&self, bytes: usize) -> &'t [u8] {
        self.text.get(self.bytes..self.bytes + bytes).unwrap_or_default()
    }

    /// Begins anew, so many bytes later.
    fn skip(&mut self, bytes: usize) {
        let text = self.text.get(bytes..).unwrap_or_default();
        *self = Self { text, bytes: 0, points: 0, kind: self.kind };
    }
}
