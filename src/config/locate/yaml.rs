//! Places in YAML. The parser tells where a value begins and not where it ends, so a value is
//! taken to reach to the end of its line.

use super::{Spot, Unreadable, offset};
use crate::config::join;
use std::collections::BTreeMap;
use std::ops::Range;
use yaml_rust2::Event;
use yaml_rust2::parser::{MarkedEventReceiver, Parser};
use yaml_rust2::scanner::Marker;

pub(super) fn locate(text: &str) -> Result<BTreeMap<String, Spot>, Unreadable> {
    let mut reader = Reader { text, ..Reader::default() };
    Parser::new_from_str(text).load(&mut reader, true).map_err(|error| Unreadable {
        at: reader.place(error.marker()),
        message: error.info().to_owned(),
    })?;
    match reader.second_document {
        Some(at) => Err(Unreadable { at, message: "there is a second document".to_owned() }),
        None => Ok(reader.spots),
    }
}

#[derive(Default)]
struct Reader<'a> {
    text: &'a str,
    spots: BTreeMap<String, Spot>,
    /// The tables and lists that are open, outermost first.
    open: Vec<Level>,
    documents: u32,
    second_document: Option<usize>,
}

enum Level {
    /// A table: its key, and the name that waits for its value.
    Table(String, Option<(String, Range<usize>)>),
    /// A list: its key, and how many items it has had.
    List(String, usize),
}

impl MarkedEventReceiver for Reader<'_> {
    fn on_event(&mut self, event: Event, mark: Marker) {
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
        offset(self.text, mark.line(), mark.col() + 1)
    }

    fn to_line_end(&self, start: usize) -> Range<usize> {
        let rest = self.text.get(start..).unwrap_or_default();
        start..start + rest.find('\n').unwrap_or(rest.len())
    }
}
