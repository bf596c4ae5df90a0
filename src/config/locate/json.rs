//! Places in JSON: a raw value is a piece of the text, so its address tells its place.

use super::{Lines, Spot, Unreadable};
use crate::config::join;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

pub(super) fn locate(text: &str) -> Result<BTreeMap<String, Spot>, Unreadable> {
    let root: &RawValue = serde_json::from_str(text).map_err(|error| Unreadable {
        at: Lines::of(text).offset(text, error.line(), error.column()),
        message: without_place(&error.to_string()),
    })?;
    let mut reader = Reader { text, spots: BTreeMap::new() };
    reader.value("", root)?;
    Ok(reader.spots)
}

struct Reader<'a> {
    text: &'a str,
    spots: BTreeMap<String, Spot>,
}

impl<'a> Reader<'a> {
    fn value(&mut self, key: &str, raw: &'a RawValue) -> Result<(), Unreadable> {
        if let Ok(entries) = serde_json::from_str::<Entries<'a>>(raw.get()) {
            for (name, value) in entries.0 {
                let key = join(key, &name);
                let at = self.name_before(self.place(value).start);
                self.note(&key, at, value)?;
            }
        } else if let Ok(items) = serde_json::from_str::<Vec<&'a RawValue>>(raw.get()) {
            for (i, item) in items.into_iter().enumerate() {
                self.note(&format!("{key}[{i}]"), self.place(item), item)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, key: &str, at: Range<usize>, raw: &'a RawValue) -> Result<(), Unreadable> {
        let plain = !raw.get().starts_with(['{', '[']);
        let spot = Spot {
            value: plain.then(|| self.place(raw)),
            key: at.clone(),
            list: raw.get().starts_with('['),
        };
        if self.spots.insert(key.to_owned(), spot).is_some() {
            let message = "the key stands twice".to_owned();
            return Err(Unreadable { at: at.start, message });
        }
        self.value(key, raw)
    }

    fn place(&self, raw: &RawValue) -> Range<usize> {
        let start = (raw.get().as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        start..start + raw.get().len()
    }

    /// The name that stands before a value, quotes included.
    fn name_before(&self, value: usize) -> Range<usize> {
        let before = self.text.get(..value).unwrap_or_default();
        let end = before.rfind('"').unwrap_or_default();
        let name = before.get(..end).unwrap_or_default();
        name.rfind('"').unwrap_or_default()..end + 1
    }
}

/// The entries of an object in order, repeated names included.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Deserialize<'a> for Entries<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'a> Visitor<'a> for Collect {
            type Value = Entries<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Entries<'a>, M::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

fn without_place(message: &str) -> String {
    message.split(" at line ").next().unwrap_or(message).to_owned()
}
