//! Lines as datagrams.

/// Cuts a block of lines into datagrams of at most `max` bytes, at line borders. A datagram
/// has no LF at its end.
///
/// The reset of a negative gauge and the change that follows it stay together if `max` allows
/// it, and for those that the encoder made with `max_line` up to `max` it does. A line longer
/// than `max` cannot be cut and comes alone: whoever sends counts it as too large.
pub fn packets(body: &[u8], max: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = body;
    std::iter::from_fn(move || {
        while let Some(after) = rest.strip_prefix(b"\n") {
            rest = after;
        }
        if rest.is_empty() {
            return None;
        }
        let (packet, left) = rest.split_at_checked(packet_end(rest, max))?;
        rest = left;
        Some(without_lf(packet))
    })
}

/// Where the first packet of `body` ends, its LF included.
fn packet_end(body: &[u8], max: usize) -> usize {
    if without_lf(body).len() <= max {
        return body.len();
    }
    let window = body.get(..=max).unwrap_or(body);
    let Some(end) = memchr::memrchr(b'\n', window) else {
        return body.len() - split_line(body).1.len();
    };
    let last = memchr::memrchr(b'\n', window.get(..end).unwrap_or_default()).map_or(0, |at| at + 1);
    if last > 0 && begins_with_pair(body.get(last..).unwrap_or_default(), max) {
        return last;
    }
    end + 1
}

/// Whether the first two lines set one gauge, and fit into one packet.
fn begins_with_pair(body: &[u8], max: usize) -> bool {
    let (reset, rest) = split_line(body);
    let (change, _) = split_line(rest);
    reset.len() + 1 + change.len() <= max && is_pair(reset, change)
}

/// `n:0|g…` and `n:-5|g…`, of the same name and with the same tail.
fn is_pair(reset: &[u8], change: &[u8]) -> bool {
    let Some(colon) = memchr::memchr(b':', reset) else { return false };
    let (name, value) = reset.split_at(colon);
    let Some(tail) = value.strip_prefix(b":0|g") else { return false };
    let Some(change) = change.strip_prefix(name).and_then(|rest| rest.strip_prefix(b":-")) else {
        return false;
    };
    let Some(bar) = memchr::memchr(b'|', change) else { return false };
    change.get(bar..).and_then(|kind| kind.strip_prefix(b"|g")) == Some(tail)
}

fn split_line(body: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr(b'\n', body).unwrap_or(body.len());
    let (line, rest) = body.split_at(end);
    (line, rest.get(1..).unwrap_or_default())
}

fn without_lf(body: &[u8]) -> &[u8] {
    body.strip_suffix(b"\n").unwrap_or(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::{Encoder, TagDialect};
    use crate::{Batch, Encode, Measure, Number};
    use proptest::prelude::*;

    #[test]
    fn packets_end_at_line_borders() {
        let check = |body: &str, max: usize, expected: &[&str]| {
            let cut: Vec<_> =
                packets(body.as_bytes(), max).map(|p| str::from_utf8(p).unwrap()).collect();
            assert_eq!(cut, expected, "{body:?} at {max}");
        };
        check("", 10, &[]);
        check("\n\n", 10, &[]);
        check("a:1|c\n", 5, &["a:1|c"]);
        check("a:1|c\nb:1|c\n", 11, &["a:1|c\nb:1|c"]);
        check("a:1|c\nb:1|c\n", 10, &["a:1|c", "b:1|c"]);
        check("a:1|c\nb:1|c", 5, &["a:1|c", "b:1|c"]);
        check("a:1|c\nlooooooong:1|c\nb:1|c\n", 8, &["a:1|c", "looooooong:1|c", "b:1|c"]);
        check("a:1|c\n", usize::MAX, &["a:1|c"]);
        check("a:1|c\nb:1|c\n", 0, &["a:1|c", "b:1|c"]);
    }

    #[test]
    fn a_reset_and_its_change_stay_together() {
        let cut = |body: &str, max| {
            let packets = packets(body.as_bytes(), max).map(|p| str::from_utf8(p).unwrap());
            packets.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(cut("a:1|c\ng:0|g|#k\ng:-5|g|#k\n", 20), ["a:1|c", "g:0|g|#k\ng:-5|g|#k"]);
        // Two lines that came apart and together are too long are sent apart.
        assert_eq!(cut("g:0|g\ng:-5|g\nb:1|c\n", 8), ["g:0|g", "g:-5|g", "b:1|c"]);
        // Neither another name, another tail nor a plain value makes a pair.
        for next in ["h:-5|g", "g:-5|g|#k", "g:5|g", "g:-5|c"] {
            let body = format!("a:1|c\ng:0|g\n{next}\n");
            assert_eq!(cut(&body, 12), ["a:1|c\ng:0|g", next]);
        }
    }

    proptest! {
        /// Packets keep every line once and in order, and are longer than allowed only if
        /// they hold just one line. A reset stays with its change where it can.
        #[test]
        fn packets_lose_nothing(values in proptest::collection::vec(-3i64..4, 0..40), max in 0usize..40) {
            let mut batch = Batch::new();
            for value in values {
                batch.begin("g").finish(Measure::Reading(Number::I64(value)), None, "");
            }
            let (mut encoder, mut body) = (Encoder::new(TagDialect::Dogstatsd, 99), Vec::new());
            for point in batch.iter() {
                encoder.encode(&point, &mut body).unwrap();
            }
            let mut joined = Vec::new();
            for packet in packets(&body, max) {
                prop_assert!(max < 12 || !packet.starts_with(b"g:-"), "a change without its reset");
                let lines = packet.split(|byte| *byte == b'\n').count();
                prop_assert!(packet.len() <= max || lines == 1);
                joined.extend_from_slice(packet);
                joined.push(b'\n');
            }
            prop_assert_eq!(joined, body);
        }
    }
}
