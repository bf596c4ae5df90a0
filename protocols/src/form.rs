//! Readings written alike but for time and value, so that whoever has seen one knows the next.
//!
//! ```text
//!   put api.requests 1700000000 107.5 env=prod
//!   └── before ────┘ time └┘ value └─ after ─┘
//!                       between
//! ```
//!
//! All that a grammar says of such a text but for time and value is decided by its [`Form`], what
//! stands around the two. What was learnt from one text of a form holds for every other whose two
//! blanks are filled with words that are surely a time and a number: a time of ten or thirteen
//! digits, which all of these grammars read alike, and what [`Figure`] takes. Anything else is left
//! to the parsers, who know what is wrong with it.

use crate::decimal::{digits_of, first_digits, halves, other_than_digits, parse_number};
use crate::json::plain::{Plain, number_end};
use crate::json::value::Scalar;
use crate::{Number, UnixNanos};
use std::borrow::Cow;
use std::ops::Range;

/// A grammar. The same text would mean another thing in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// Lines of OpenTSDB's `put`, without their LF.
    Put,
    /// Items of OpenTSDB's `/api/put`.
    Datapoint,
    /// Items of our own JSON.
    Point,
}

/// A text without its time and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form<'a> {
    /// How it is to be read.
    pub speech: Speech,
    /// Whether the value stands before the time.
    pub value_first: bool,
    /// What stands before, between and after the two.
    pub parts: [&'a [u8]; 3],
}

/// What a form is filled with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filling {
    /// The time.
    pub time: UnixNanos,
    /// The value.
    pub figure: Figure,
    /// How many bytes the whole text has.
    pub length: usize,
}

/// A value: its text if no shorter one says the same, so that as a double and as an integer it is
/// written just so; or any other number but those that only an unsigned integer holds.
///
/// In whole words, whichever it is: it is handed on some times, and what is written in narrow
/// pieces and read in wide ones makes the processor wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Of the text; 0 for a number.
    length: u64,
    /// The text and whatever was behind it, or a double and its bits, or an integer.
    words: [u64; 2],
}

/// Who has seen forms before.
pub trait Recall {
    /// Whether a text begins with a form that is known again; its reading then comes before the
    /// point `at` that place of the batch, and its length is the answer. If it is not, the text is
    /// read in the ordinary way, and what it comes to, if anything, is the point at that place.
    ///
    /// Each text that may become a point has to be shown.
    fn recall(&mut self, text: &[u8], at: usize, speech: Speech) -> Option<usize>;
}

/// Passes over an item, if it is known again.
#[inline]
pub(crate) fn passes(
    item: &mut Plain<'_>,
    recall: &mut dyn Recall,
    at: usize,
    speech: Speech,
) -> bool {
    // This leaves the blanks away which stand before it.
    item.ends();
    let known = recall.recall(item.rest().as_bytes(), at, speech);
    item.skip(known.unwrap_or(0));
    known.is_some()
}

/// Who knows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Forgetful;

impl Recall for Forgetful {
    fn recall(&mut self, _: &[u8], _: usize, _: Speech) -> Option<usize> {
        None
    }
}

impl Speech {
    /// Takes a text apart that begins with a usual reading, without saying that it is a sound one.
    pub fn cut(self, text: &[u8]) -> Option<(Form<'_>, Filling)> {
        match self {
            Self::Put => cut_line(text),
            Self::Datapoint | Self::Point => cut_item(text, self),
        }
    }
}

impl Form<'_> {
    /// What fills a text that has this form.
    #[inline]
    pub fn filling(&self, text: &[u8]) -> Option<Filling> {
        let [before, between, after] = self.parts;
        let rest = text.strip_prefix(before)?;
        let (time, figure, rest) = if self.value_first {
            let (figure, rest) = Figure::read(rest, self.speech)?;
            let (time, rest) = read_time(rest.strip_prefix(between)?)?;
            (time, figure, rest)
        } else {
            let (time, rest) = read_time(rest)?;
            let (figure, rest) = Figure::read(rest.strip_prefix(between)?, self.speech)?;
            (time, figure, rest)
        };
        let rest = rest.strip_prefix(after)?;
        // A line ends where it ends, an item where its brace is closed.
        let ends = self.speech != Speech::Put || rest.is_empty();
        ends.then_some(Filling { time, figure, length: text.len() - rest.len() })
    }
}

impl Figure {
    /// The text: the first so many bytes of these words, the low ones first.
    #[inline]
    pub fn text(&self) -> Option<(usize, [u64; 2])> {
        let length = usize::try_from(self.length).ok().filter(|length| *length > 0);
        length.map(|length| (length, self.words))
    }

    /// The number, where there is no text.
    pub const fn number(&self) -> Number {
        match self.words {
            [IS_DOUBLE, bits] => Number::F64(f64::from_bits(bits)),
            [_, integer] => Number::I64(integer.cast_signed()),
        }
    }

    fn of_number(number: Number) -> Option<Self> {
        let words = match number {
            Number::F64(double) => [IS_DOUBLE, double.to_bits()],
            Number::I64(integer) => [0, integer.cast_unsigned()],
            Number::U64(_) => return None,
        };
        Some(Self { length: 0, words })
    }

    /// Reads what is surely a number in that grammar, quoted or not; answers what follows it.
    #[inline(always)] // It stays in registers then; see above.
    fn read(text: &[u8], speech: Speech) -> Option<(Self, &[u8])> {
        if let Some(bytes) = text.first_chunk::<16>()
            && let Some(length) = shortest(bytes)
        {
            let rest = text.get(length..)?;
            let words = halves(u128::from_le_bytes(*bytes));
            return Some((Self { length: length as u64, words }, rest));
        }
        Self::read_odd(text, speech)
    }

    #[cold]
    fn read_odd(text: &[u8], speech: Speech) -> Option<(Self, &[u8])> {
        let of_number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = text.iter().take_while(of_number).count();
        let (word, rest) = text.split_at_checked(length)?;
        if speech != Speech::Put && number_end(word) != Some(length) {
            return None;
        }
        let figure = Self::of_number(parse_number(str::from_utf8(word).ok()?)?)?;
        Some((figure, rest))
    }
}

/// How many bytes of these are a number that is written as briefly as it can be: at most fifteen
/// digits, no zeros that say nothing, no exponent, and none that it would be written with.
#[inline]
fn shortest(bytes: &[u8; 16]) -> Option<usize> {
    let start = usize::from(bytes.first() == Some(&b'-'));
    let others = other_than_digits(u128::from_le_bytes(*bytes) >> (8 * start));
    let first_of = |marks: u128| start + marks.trailing_zeros() as usize / 8;
    let whole = first_of(others);
    let is_zero = bytes.get(start) == Some(&b'0');
    if whole == start || is_zero && whole > start + 1 {
        return None;
    }
    let mut end = whole;
    if bytes.get(whole) == Some(&b'.') {
        end = first_of(others & others.wrapping_sub(1));
        let ends_well = end > whole + 1 && bytes.get(end - 1) != Some(&b'0');
        let is_tiny =
            is_zero && bytes.get(whole + 1..).is_some_and(|rest| rest.starts_with(b"0000"));
        if !ends_well || is_tiny {
            return None;
        }
    } else if is_zero && start > 0 {
        // An integer has no minus zero.
        return None;
    }
    let goes_on = matches!(bytes.get(end), Some(b'+' | b'-' | b'.' | b'e' | b'E'));
    (end <= TEXT && !goes_on).then_some(end)
}

/// Reads a time of seconds or milliseconds of our days, which has no leading zero.
#[inline]
fn read_time(text: &[u8]) -> Option<(UnixNanos, &[u8])> {
    let is_digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    let (length, scale) = if is_digit(10) { (13, 1_000_000) } else { (10, 1_000_000_000) };
    if is_digit(13) && length == 13 || text.first() == Some(&b'0') {
        return None;
    }
    let (word, rest) = text.split_at_checked(length)?;
    let number = match text.first_chunk::<16>() {
        Some(bytes) => first_digits(bytes, length),
        None => digits_of(word),
    };
    let nanos = number?.checked_mul(scale)?;
    Some((UnixNanos(i64::try_from(nanos).ok()?), rest))
}

/// One blank between the words that come first; what follows the value is looked at by the parser.
fn cut_line(line: &[u8]) -> Option<(Form<'_>, Filling)> {
    let name = line.strip_prefix(b"put ")?;
    let name = name.iter().position(|byte| *byte <= b' ').filter(|length| *length > 0)?;
    let before = 4 + name + 1;
    let rest = line.get(before..).filter(|_| line.get(before - 1) == Some(&b' '))?;
    let (time, rest) = read_time(rest)?;
    let (figure, after) = Figure::read(rest.strip_prefix(b" ")?, Speech::Put)?;
    after.first().is_none_or(|byte| *byte <= b' ').then_some(())?;
    let parts = [line.get(..before)?, b" ".as_slice(), after];
    let form = Form { speech: Speech::Put, value_first: false, parts };
    Some((form, Filling { time, figure, length: line.len() }))
}

/// An object of nothing but a name, a time, a value and tags.
fn cut_item(text: &[u8], speech: Speech) -> Option<(Form<'_>, Filling)> {
    let whole = str::from_utf8(text.get(..text.len().min(ITEM_MAX))?);
    let whole =
        whole.or_else(|error| str::from_utf8(text.get(..error.valid_up_to()).unwrap_or_default()));
    let whole = whole.ok()?;
    let mut item = Plain::new(whole);
    let (mut named, mut time, mut value, mut tagged) = (None, None, None, None);
    item.members(|item, key| match key {
        "metric" | "name" => once(&mut named, item.text().map(drop)?),
        "timestamp" | "time" => once(&mut time, word(item, whole)?),
        "value" => once(&mut value, word(item, whole)?),
        "tags" => {
            once(&mut tagged, ())?;
            item.members(|item, _| item.scalar().map(drop))
        }
        _ => None,
    })?;
    let length = whole.len() - item.rest().len();
    let (time, value) = (time?, value?);
    let (nanos, []) = read_time(text.get(time.clone())?)? else { return None };
    // Behind it there is a brace, at least, which is of no number.
    let (figure, rest) = Figure::read(text.get(value.start..)?, speech)?;
    (text.len() - rest.len() == value.end).then_some(())?;
    let value_first = value.start < time.start;
    let [one, other] = if value_first { [value, time] } else { [time, value] };
    let parts =
        [text.get(..one.start)?, text.get(one.end..other.start)?, text.get(other.end..length)?];
    Some((Form { speech, value_first, parts }, Filling { time: nanos, figure, length }))
}

/// Where the next word stands, without its quotes if it has any.
fn word(item: &mut Plain<'_>, whole: &str) -> Option<Range<usize>> {
    // This leaves the blanks away which stand before it.
    item.ends();
    let start = whole.len() - item.rest().len();
    match item.scalar()? {
        Scalar::Number(word) => Some(start..start + word.len()),
        Scalar::Text(Cow::Borrowed(word)) => Some(start + 1..start + 1 + word.len()),
        _ => None,
    }
}

fn once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

/// The first word of a number that is a double.
const IS_DOUBLE: u64 = 1;

/// Fifteen digits, or fewer and a sign or a point. Such a decimal number is the only one so short
/// that gives its double.
const TEXT: usize = 15;

/// Longer items are not worth remembering.
const ITEM_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(text: &str) -> [u8; 16] {
        let padded = format!("{text} and whatever comes next");
        *padded.as_bytes().first_chunk().unwrap()
    }

    fn check(text: &str, expected: Option<usize>) {
        assert_eq!(shortest(&bytes(text)), expected, "{text}");
    }

    #[test]
    fn a_number_in_its_shortest_form_is_found() {
        for text in
            ["0", "7", "-7", "107.5", "-0.5", "0.0001", "123456789012345", "1234567.1234567"]
        {
            check(text, Some(text.len()));
        }
        check("12,", Some(2));
        check("12\"}", Some(2));
        for text in [
            "",
            "-",
            "+1",
            ".5",
            "5.",
            "5.0",
            "00",
            "01",
            "-0",
            "-01",
            "0.0",
            "0.00001",
            "1e5",
            "1E5",
            "1.5e3",
            "1.2.3",
            "1-",
            "1+",
            "--1",
            "x",
            "1234567890123456",
            "-123456789012345",
            "12345678.1234567",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn times_of_ten_or_thirteen_digits_are_read_wherever_the_text_ends() {
        for behind in ["", " ", " 1", ",\"value\":107.5}"] {
            for (text, nanos) in [
                ("1700000001", 1_700_000_001_000_000_000),
                ("1700000001234", 1_700_000_001_234_000_000),
                ("9999999999", 0),
            ] {
                let whole = format!("{text}{behind}");
                let expected = (nanos > 0).then_some((UnixNanos(nanos), behind.as_bytes()));
                assert_eq!(read_time(whole.as_bytes()), expected, "{whole}");
            }
            for odd in [
                "",
                "170000000",
                "17000000012",
                "170000000123",
                "17000000012345",
                "0700000001",
                "17000000x1",
            ] {
                let whole = format!("{odd}{behind}");
                assert_eq!(read_time(whole.as_bytes()), None, "{whole}");
            }
        }
    }

    /// As line protocol has it.
    fn written(number: Number) -> String {
        match number {
            Number::I64(integer) => integer.to_string(),
            Number::U64(integer) => integer.to_string(),
            Number::F64(double) => {
                let text = ryu::Buffer::new().format_finite(double).to_owned();
                text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
            }
        }
    }

    /// Bytes that may be of a number, and such as a sum over many bytes at once could mistake for some.
    fn odd_bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            6 => b'0'..=b'9',
            2 => Just(b'0'),
            1 => prop::sample::select(b".-+eE \"},/:\x00\x7f\x80\xb0\xb9\xba\xff".to_vec()),
        ];
        prop::collection::vec(byte, 0..most)
    }

    fn begins_with(text: &[u8], is_part: impl Fn(&u8) -> bool) -> &str {
        let length = text.iter().take_while(|byte| is_part(byte)).count();
        str::from_utf8(&text[..length]).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn what_is_found_is_what_would_be_written(
            head in "-?(0|[0-9]{0,9})(\\.0{0,5}[0-9]{0,9})?[-+.eE]?", tail in odd_bytes(20),
        ) {
            let text = [head.as_bytes(), &tail, &[b' '; 16]].concat();
            let word = begins_with(&text, |byte| byte.is_ascii_digit() || b"+-.eE".contains(byte));
            let is_shortest = word.len() <= TEXT
                && word != "-0"
                && !word.contains('e')
                && !word.trim_start_matches('-').starts_with("0.0000")
                && parse_number(word).is_some_and(|number| written(number) == word);
            let found = shortest(text.first_chunk().unwrap());
            prop_assert_eq!(found, is_shortest.then_some(word.len()), "{:?}", word);
        }

        #[test]
        fn a_time_is_ten_or_thirteen_digits(
            head in "[0-9]{9,14}", tail in odd_bytes(9), cut in 0_usize..24,
        ) {
            let mut text = [head.as_bytes(), &tail].concat();
            text.truncate(cut);
            let word = begins_with(&text, u8::is_ascii_digit);
            let scale = match word.len() {
                10 => 1_000_000_000,
                13 => 1_000_000,
                _ => 0,
            };
            let nanos = word.parse::<i64>().ok().and_then(|number| number.checked_mul(scale));
            let expected = nanos.filter(|nanos| *nanos > 0 && !word.starts_with('0'));
            let found = read_time(&text);
            prop_assert_eq!(found.map(|(time, _)| time.0), expected, "{:?}", word);
            prop_assert!(found.is_none_or(|(_, rest)| *rest == text[word.len()..]));
        }
    }
}
