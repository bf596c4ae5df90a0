//! The commonest line, a name, a number and a kind, without the grammar.
//!
//! What is not just that is left to the [grammar](super::parse), which also knows the reasons.

use super::Parsed;
use super::head::{Head, Shape, Split, split};
use crate::name::BYTES_MAX;
use crate::{Batch, scan};

/// Writes the point of a plain line.
pub(super) fn metric(line: &[u8], out: &mut Batch) -> Option<Parsed> {
    let split = split(line)?;
    let Split { head: Head { name, tail }, value, .. } = split;
    let shape = Shape::plain(tail)?;
    let is_all = name.len() + 1 + value.len() + tail.len() == line.len();
    if !is_all || !(1..=BYTES_MAX).contains(&name.len()) || scan::any(name, is_special) {
        return None;
    }
    let measure = shape.measure(&split)?;
    out.begin(std::str::from_utf8(name).ok()?).finish(measure, None, "");
    Some(Parsed { points: 1, unknown_fields: 0 })
}

/// Whether a byte ends a name, or belongs to tags or to other texts than ASCII.
const fn is_special(byte: u8) -> bool {
    !matches!(byte, b' '..=b'~') || matches!(byte, b'=' | b'|')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::{Dialects, Limits, parse};
    use proptest::prelude::*;

    proptest! {
        /// What is taken here, the grammar would take alike.
        #[test]
        fn as_the_grammar_does(
            line in "[a-z_.=,;#|\u{e6}\u{1} \n]{0,9}:[+-]?[0-9.:]{0,4}\\|(c|g|ms|h|d|s|m)(\\|@0.5|:2|\r)?",
        ) {
            let (mut here, mut there) = (Batch::new(), Batch::new());
            if let Some(parsed) = metric(line.as_bytes(), &mut here) {
                let (dialects, limits) = (Dialects::default(), Limits::default());
                let expected = parse::metric(line.as_bytes(), &dialects, &limits, &mut there);
                prop_assert_eq!(expected, Ok(parsed));
                prop_assert_eq!(here.point(0), there.point(0));
            } else {
                prop_assert!(here.is_empty());
            }
        }
    }

    #[test]
    fn plain_lines_are_taken_here() {
        for line in ["a:1|c", "a.b-c d:-2.5|g", "x:3|ms", "x:3|h", "x:3|d"] {
            assert!(metric(line.as_bytes(), &mut Batch::new()).is_some(), "{line}");
        }
    }
}
