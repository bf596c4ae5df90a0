//! However a stream is cut into chunks, its lines are those of the whole stream.
//!
//! Input: the limit of a line, the sizes of the chunks up to a zero, then the stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocols::frame::{Frame, LineFramer};

/// Owned frames; `None` is a line that was too long.
type Seen = Vec<Option<Vec<u8>>>;

fuzz_target!(|input: &[u8]| {
    let Some((max, input)) = input.split_first() else { return };
    let max = usize::from(*max);
    let Some(end) = input.iter().position(|byte| *byte == 0) else { return };
    let (sizes, stream) = (&input[..end], &input[end + 1..]);
    assert_eq!(framed(max, chunks(stream, sizes)), expected(max, stream));
});

fn chunks<'a>(stream: &'a [u8], sizes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut sizes = sizes.iter().cycle();
    let mut rest = stream;
    std::iter::from_fn(move || {
        let size = sizes.next().map_or(rest.len(), |size| usize::from(*size));
        let (chunk, left) = rest.split_at(size.min(rest.len()));
        rest = left;
        (!chunk.is_empty()).then_some(chunk)
    })
}

fn framed<'a>(max: usize, chunks: impl Iterator<Item = &'a [u8]>) -> Seen {
    let (mut framer, mut seen) = (LineFramer::new(max), Seen::new());
    let mut note = |frame: Frame<'_>| match frame {
        Frame::Line(line) => seen.push(Some(line.to_vec())),
        Frame::TooLong => seen.push(None),
    };
    for chunk in chunks {
        framer.feed(chunk, &mut note);
    }
    framer.finish(&mut note);
    seen
}

fn expected(max: usize, stream: &[u8]) -> Seen {
    let mut lines: Vec<_> = stream.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines.into_iter().map(|line| (line.len() <= max).then(|| line.to_vec())).collect()
}
