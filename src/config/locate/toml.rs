//! Places in TOML.

use super::{Spot, Unreadable};
use crate::config::join;
use std::collections::BTreeMap;
use std::ops::Range;
use toml_edit::{Document, Item, TableLike, Value};

pub(super) fn locate(text: &str) -> Result<BTreeMap<String, Spot>, Unreadable> {
    let document = Document::parse(text).map_err(|error| Unreadable {
        at: error.span().map_or(0, |span| span.start),
        message: error.message().lines().next().unwrap_or("this is not TOML").to_owned(),
    })?;
    let mut spots = BTreeMap::new();
    table("", document.as_table(), &mut spots);
    Ok(spots)
}

fn table(prefix: &str, table: &dyn TableLike, spots: &mut BTreeMap<String, Spot>) {
    for (name, item) in table.iter() {
        let key = join(prefix, name);
        let at = table.key(name).and_then(toml_edit::Key::span).unwrap_or_default();
        spots.insert(key.clone(), spot(at, item));
        match item {
            Item::Table(inner) => self::table(&key, inner, spots),
            Item::ArrayOfTables(tables) => {
                for (i, inner) in tables.iter().enumerate() {
                    let key = format!("{key}[{i}]");
                    let at = inner.span().unwrap_or_default();
                    spots.insert(key.clone(), Spot { key: at, value: None, list: false });
                    self::table(&key, inner, spots);
                }
            }
            Item::Value(inner) => value(&key, inner, spots),
            Item::None => {}
        }
    }
}

fn value(key: &str, value: &Value, spots: &mut BTreeMap<String, Spot>) {
    match value {
        Value::InlineTable(inner) => table(key, inner, spots),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                let key = format!("{key}[{i}]");
                let at = item.span().unwrap_or_default();
                spots.insert(
                    key.clone(),
                    Spot { value: plain(item).then(|| at.clone()), key: at, list: item.is_array() },
                );
                self::value(&key, item, spots);
            }
        }
        _ => {}
    }
}

fn spot(key: Range<usize>, item: &Item) -> Spot {
    let value = item.as_value().filter(|value| plain(value)).and_then(Value::span);
    Spot { key, value, list: item.is_array() || item.is_array_of_tables() }
}

fn plain(value: &Value) -> bool {
    !value.is_array() && !value.is_inline_table()
}
