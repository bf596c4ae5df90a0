//! What the rows of closed windows say, as line protocol, so that values are checked where they
//! arrive.

use memchr::memmem;

/// What a number of rows says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    pub rows: u64,
    /// The sum of all counters. Whole numbers below 2^53, so that no addition rounds.
    pub counter_sum: f64,
    /// Samples of all timers.
    pub samples: f64,
    /// Rows that are none of ours.
    pub strange: u64,
}

impl Totals {
    /// Adds the rows of a body.
    pub fn read(&mut self, body: &[u8]) {
        body.split(|byte| *byte == b'\n').filter(|row| !row.is_empty()).for_each(|row| {
            self.rows += 1;
            match (field(row, b"count"), field(row, b"mean"), field(row, b"value")) {
                (Some(count), None, None) => self.counter_sum += count,
                (Some(count), Some(_), None) => self.samples += count,
                (None, None, Some(_)) => {}
                _ => self.strange += 1,
            }
        });
    }
}

/// The number of a field, whose key has a space or a comma before it.
pub fn field(row: &[u8], key: &[u8]) -> Option<f64> {
    let fields = row.get(memchr::memchr(b' ', row)?..)?;
    let at = memmem::find_iter(fields, key).find(|at| {
        let before = at.checked_sub(1).and_then(|before| fields.get(before));
        matches!(before, Some(b' ' | b',')) && fields.get(at + key.len()) == Some(&b'=')
    })?;
    let rest = fields.get(at + key.len() + 1..)?;
    let end = rest.iter().position(|byte| matches!(byte, b',' | b' ' | b'i' | b'u'));
    std::str::from_utf8(rest.get(..end.unwrap_or(rest.len()))?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_summed_by_what_they_are() {
        let body = b"a.count,x=y count=107,rate=10.7 1700000000000000000\n\
            t count=3,rate=0.3,sum=9,mean=3,p90=4 1\n\
            g value=-1.5 1\n\
            b rate=1,count=2 1\n\
            odd words=1 1\n";
        let mut totals = Totals::default();
        totals.read(body);
        let expected = Totals { rows: 5, counter_sum: 109.0, samples: 3.0, strange: 1 };
        assert_eq!(totals, expected);
    }

    #[test]
    fn a_key_is_not_the_end_of_another() {
        let check = |row: &str, expected| assert_eq!(field(row.as_bytes(), b"count"), expected);
        check("a account=1,count=2i 1", Some(2.0));
        check("a counts=1 1", None);
        check("count=1", None);
        check("count=3 value=1 1", None);
    }
}
