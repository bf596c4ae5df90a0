//! Places in YAML. The parser tells where a value begins and not where it ends, so a value is
//! taken to reach to the end of its line.

use super::{Lines, Spot, Unreadable};
use crate::config::join;
use std::collections::BTreeMap;
use std::ops::Range;
use yaml_rust2::Event;
use yaml_rust2::parser::{MarkedEventReceiver, Parser};
use yaml_rust2::scanner::Marker;

pub(super) fn locate(text: &str) -> Result<BTreeMap<String, Spot>, Unreadable> {
    let mut reader = Reader { text, lines: Lines::of(text), ..Reader::default() };
    Parser::new_from_str(text).load(&mut reader, true).map_err(|error| Unreadable {
        at: reader.place(error.marker()),
        message: error.info().to_owned(),
    })?;
    if let Some(at) = reader.second_document {
        return Err(Unreadable { at, message: "there is a second document".to_owned() });
    }
    if let Some(at) = reader.too_much {
        return Err(Unreadable { at, message: "its aliases unfold to too much".to_owned() });
    }
    Ok(reader.spots)
}

#[derive(Default)]
struct Reader<'a> {
    text: &'a str,
    lines: Lines,
    spots: BTreeMap<String, Spot>,
    /// The tables and lists that are open, outermost first.
    open: Vec<Level>,
    documents: u32,
    second_document: Option<usize>,
    unfolding: Unfolding,
    too_much: Option<usize>,
}

enum Level {
    /// A table: its key, and the name that waits for its value.
    Table(String, Option<(String, Range<usize>)>),
    /// A list: its key, and how many items it has had.
    List(String, usize),
}

/// How many values a document has once its aliases are replaced, which is done elsewhere and
/// without a limit: ten lines can ask for billions.
#[derive(Default)]
struct Unfolding {
    values: u64,
    /// The anchors of what is open, and how many values there were before it.
    open: Vec<(usize, u64)>,
    /// How many values each anchor stands for.
    anchors: BTreeMap<usize, u64>,
}

impl Unfolding {
    fn count(&mut self, event: &Event) {
        match event {
            Event::MappingStart(anchor, _) | Event::SequenceStart(anchor, _) => {
                self.open.push((*anchor, self.values));
                self.add(1);
            }
            Event::MappingEnd | Event::SequenceEnd => {
                if let Some((anchor, before)) = self.open.pop() {
                    self.anchors.insert(anchor, self.values - before);
                }
            }
            Event::Scalar(text, _, anchor, _) => {
                // A long text counts as several.
                let values = 1 + (text.len() / 64) as u64;
                self.anchors.insert(*anchor, values);
                self.add(values);
            }
            // One that is inside of what it stands for is refused elsewhere.
            Event::Alias(anchor) => self.add(self.anchors.get(anchor).copied().unwrap_or(1)),
            _ => {}
        }
    }

    fn add(&mut self, values: u64) {
        self.values = self.values.saturating_add(values);
    }
}

impl MarkedEventReceiver for Reader<'_> {
    fn on_event(&mut self, event: Event, mark: Marker) {
        self.unfolding.count(&event);
        if self.unfolding.values > VALUES_MAX && self.too_much.is_none() {
            self.too_much = Some(self.place(&mark));
        }
        match event {
            Event::DocumentStart => {
                self.documents += 1;
                if self.documents == 2 {
                    self.second_document = Some(self.place(&mark));
                }
            }
            Event::MappingStart(..) => {
                let key = self.begin(&mark, false, false);
                self.open.push(Level::Table(key, None));
            }
            Event::SequenceStart(..) => {
                let key = self.begin(&mark, false, true);
                self.open.push(Level::List(key, 0));
            }
            Event::MappingEnd | Event::SequenceEnd => drop(self.open.pop()),
            Event::Scalar(text, ..) => self.scalar(text, &mark),
            Event::Alias(_) => drop(self.begin(&mark, true, false)),
            _ => {}
        }
    }
}

impl Reader<'_> {
    fn scalar(&mut self, text: String, mark: &Marker) {
        let start = self.place(mark);
        let line = self.to_line_end(start);
        if let Some(Level::Table(key, name @ None)) = self.open.last_mut() {
            let shown = self.text.get(line.clone()).unwrap_or_default();
            let end = start + shown.find(':').unwrap_or(shown.len());
            *name = Some((text, start..end));
            // A table in a list is announced only at the colon of its first name.
            if let Some(item) = self.spots.get_mut(key).filter(|item| item.key.start > start) {
                item.key = line;
            }
        } else {
            self.begin(mark, true, false);
        }
    }

    /// A value begins: notes its place under its full key, which it returns.
    fn begin(&mut self, mark: &Marker, plain: bool, list: bool) -> String {
        let value = self.to_line_end(self.place(mark));
        let (full, at) = match self.open.last_mut() {
            None => return String::new(),
            Some(Level::Table(key, name)) => match name.take() {
                Some((name, at)) => (join(key, &name), at),
                // A table as a key: crate `config` refuses it.
                None => return String::new(),
            },
            Some(Level::List(key, count)) => {
                *count += 1;
                (format!("{key}[{}]", *count - 1), value.clone())
            }
        };
        self.spots.insert(full.clone(), Spot { key: at, value: plain.then_some(value), list });
        full
    }

    fn place(&self, mark: &Marker) -> usize {
        // Lines count from 1 and columns from 0.
        self.lines.offset(self.text, mark.line(), mark.col() + 1)
    }

    fn to_line_end(&self, start: usize) -> Range<usize> {
        let rest = self.text.get(start..).unwrap_or_default();
        start..start + rest.find('\n').unwrap_or(rest.len())
    }
}

/// Far more than any configuration has, and read in a moment.
const VALUES_MAX: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_that_unfold_to_too_much_are_refused() {
        let laughs = |levels: u32| {
            let line = |level: u32| {
                let above = format!("*l{}, ", level.saturating_sub(1)).repeat(10);
                format!("k{level}: &l{level} [{}]\n", if level == 0 { "x" } else { &above })
            };
            (0..levels).map(line).collect::<String>()
        };
        assert!(locate(&laughs(4)).is_ok());
        for levels in [7, 10, 60] {
            let error = locate(&laughs(levels)).unwrap_err();
            assert!(error.message.contains("unfold to too much"), "{levels}: {}", error.message);
        }
    }
}
