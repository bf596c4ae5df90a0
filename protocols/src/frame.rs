//! A byte stream in, whole lines out.
//!
//! Owns the unfinished line between two reads and nothing else: reading, closing and idle
//! times are the caller's. A line ends with LF, which is not part of it; a CR before the LF
//! is, and the protocol strips it.
//!
//! Limits: a line has at most `max` bytes without its LF. A longer one is reported once, as
//! soon as that is clear, and skipped to its LF; the lines around it are unharmed. No more
//! than `max` bytes are ever held. Metric: the caller counts [`Frame::TooLong`] as
//! `line_too_long`.

/// What a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A line without its LF, perhaps empty.
    Line(&'a [u8]),
    /// A line above the limit, which is being skipped.
    TooLong,
}

/// The first line of a text without what some editors write before it.
pub fn without_byte_order_mark(first: &[u8]) -> &[u8] {
    first.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(first)
}

/// UTF-8's own.
pub(crate) const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Cuts a stream into lines. A line that lies whole within one chunk is not copied.
#[derive(Debug)]
pub struct LineFramer {
    max: usize,
    /// The beginning of a line whose end has not arrived; never longer than `max`.
    tail: Vec<u8>,
    /// The present line was too long; what remains of it is dropped.
    skipping: bool,
}

impl LineFramer {
    /// For lines of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { max, tail: Vec::new(), skipping: false }
    }

    /// Takes what was read and hands on the lines that it completes.
    pub fn feed(&mut self, chunk: &[u8], mut on_line: impl FnMut(Frame<'_>)) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', chunk) {
            self.end_line(chunk.get(start..end).unwrap_or(&[]), &mut on_line);
            start = end + 1;
        }
        self.keep(chunk.get(start..).unwrap_or(&[]), &mut on_line);
    }

    /// The stream has ended: a last line without LF counts as one. The framer is as new.
    pub fn finish(&mut self, mut on_line: impl FnMut(Frame<'_>)) {
        if !self.tail.is_empty() {
            on_line(Frame::Line(&self.tail));
        }
        self.tail = Vec::new();
        self.skipping = false;
    }

    fn end_line(&mut self, piece: &[u8], on_line: &mut impl FnMut(Frame<'_>)) {
        if self.tail.is_empty() && !self.skipping {
            return on_line(self.judge(piece));
        }
        self.keep(piece, on_line);
        if !self.skipping {
            on_line(Frame::Line(&self.tail));
        }
        self.skipping = false;
        self.tail.clear();
        self.tail.shrink_to(KEPT_CAPACITY);
    }

    fn judge<'a>(&self, line: &'a [u8]) -> Frame<'a> {
        if line.len() > self.max { Frame::TooLong } else { Frame::Line(line) }
    }

    fn keep(&mut self, piece: &[u8], on_line: &mut impl FnMut(Frame<'_>)) {
        if self.skipping || piece.is_empty() {
            return;
        }
        let len = self.tail.len() + piece.len();
        if len > self.max {
            self.skipping = true;
            self.tail = Vec::new();
            return on_line(Frame::TooLong);
        }
        if len > self.tail.capacity() {
            let wanted = len.max(2 * self.tail.capacity()).min(self.max);
            self.tail.reserve_exact(wanted - self.tail.len());
        }
        self.tail.extend_from_slice(piece);
    }
}

/// What an idle connection may keep: a usual line, so that slow senders do not make us
/// allocate for each of them.
const KEPT_CAPACITY: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 12;

    /// Owned frames; `None` is a line that was too long.
    type Seen = Vec<Option<Vec<u8>>>;

    fn note(seen: &mut Seen) -> impl FnMut(Frame<'_>) {
        |frame| {
            seen.push(match frame {
                Frame::Line(line) => Some(line.to_vec()),
                Frame::TooLong => None,
            });
        }
    }

    fn framed<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Seen {
        let (mut framer, mut seen) = (LineFramer::new(MAX), Seen::new());
        for chunk in chunks {
            framer.feed(chunk, note(&mut seen));
            assert!(framer.tail.capacity() <= MAX.max(KEPT_CAPACITY));
        }
        framer.finish(note(&mut seen));
        seen
    }

    /// The same, said as simply as possible.
    fn expected(stream: &[u8]) -> Seen {
        let mut lines: Vec<_> = stream.split(|byte| *byte == b'\n').collect();
        if lines.last().is_some_and(|last| last.is_empty()) {
            lines.pop();
        }
        lines.into_iter().map(|line| (line.len() <= MAX).then(|| line.to_vec())).collect()
    }

    #[test]
    fn every_split_position_gives_the_same_lines() {
        let stream = "aa:1|c\nbb:20|c\r\n\n\nxxxxxxxxxxxxxxxxxxxxxxx:1|c\nœ:2|c\ntail".as_bytes();
        let whole = framed([stream]);
        assert_eq!(whole, expected(stream));
        assert_eq!(whole.iter().filter(|line| line.is_none()).count(), 1);
        for at in 0..=stream.len() {
            let (head, tail) = stream.split_at(at);
            assert_eq!(framed([head, tail]), whole, "split at {at}");
        }
        assert_eq!(framed(stream.chunks(1)), whole);
    }

    #[test]
    fn an_over_long_line_is_reported_before_its_end_and_only_once() {
        let (mut framer, mut seen) = (LineFramer::new(MAX), Seen::new());
        for _ in 0..1000 {
            framer.feed(b"xxxxxxxx", note(&mut seen));
        }
        assert_eq!((seen.len(), framer.tail.capacity()), (1, 0));
        framer.feed(b":1|c\nok2:1|c\n", note(&mut seen));
        assert_eq!(seen, [None, Some(b"ok2:1|c".to_vec())]);
    }

    #[test]
    fn a_line_of_just_the_limit_passes() {
        assert_eq!(
            framed([&b"123456789012\n1234567890123\n"[..]]),
            [Some(b"123456789012".to_vec()), None]
        );
    }

    #[test]
    fn the_unterminated_tail_is_a_line_once() {
        let (mut framer, mut seen) = (LineFramer::new(MAX), Seen::new());
        framer.feed(b"foo:1|c", note(&mut seen));
        assert!(framer.tail.len() == 7);
        framer.finish(note(&mut seen));
        framer.finish(note(&mut seen));
        assert_eq!(seen, [Some(b"foo:1|c".to_vec())]);
        assert_eq!(framed([&b"xxxxxxxxxxxxxxxxxxxx"[..]]), [None]);
    }

    #[test]
    fn a_whole_line_is_not_copied() {
        let chunk = b"a:1|c\nb:2|c\n";
        let mut framer = LineFramer::new(MAX);
        framer.feed(chunk, |frame| {
            let Frame::Line(line) = frame else { panic!("too long") };
            assert!(chunk.as_ptr_range().contains(&line.as_ptr()));
        });
        assert_eq!(framer.tail.capacity(), 0);
    }

    proptest! {
        /// However a stream is cut into chunks, its lines are the same.
        #[test]
        fn chunks_do_not_matter(
            stream in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..200),
            sizes in proptest::collection::vec(1usize..20, 1..20),
        ) {
            let mut rest = &stream[..];
            let mut chunks = Vec::new();
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (head, tail) = rest.split_at((*size).min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            prop_assert_eq!(framed(chunks), expected(&stream));
        }
    }
}
