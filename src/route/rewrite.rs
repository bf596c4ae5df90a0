//! How a route changes points on their way; later routes see the original.

use super::Rewrite as Config;
use crate::mistake::Mistake;
use protocols::{Batch, Point, PointWriter};

/// A compiled `rewrite`.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// Text to put before, between and after the places of the old name; `None` keeps it.
    name: Option<Vec<String>>,
    drop: Vec<String>,
    rename: Vec<(String, String)>,
    add: Vec<(String, String)>,
}

impl Rewrite {
    /// Compiles the `rewrite` at `key`; what is wrong with it is added to `mistakes`.
    pub fn compile(config: &Config, key: &str, mistakes: &mut Vec<Mistake>) -> Self {
        let pairs = |map: &std::collections::BTreeMap<String, String>| {
            map.iter().map(|(from, to)| (from.clone(), to.clone())).collect::<Vec<_>>()
        };
        let this = Self {
            name: config
                .name
                .as_ref()
                .map(|name| name.split("${name}").map(str::to_owned).collect()),
            drop: config.tags.drop.clone(),
            rename: pairs(&config.tags.rename),
            add: pairs(&config.tags.add),
        };
        mistakes.extend(this.mistakes(config, key));
        this
    }

    /// A number by which a point that is kept for later is known to have had this rewrite: the
    /// same for the same settings, whichever process asks.
    pub fn fingerprint(config: &Config) -> u32 {
        let mut sum = flate2::Crc::new();
        // Texts and maps of texts can always be written.
        sum.update(&serde_json::to_vec(config).unwrap_or_default());
        sum.sum()
    }

    /// Writes the changed point, as the only one, into `into`.
    pub fn apply(&self, point: &Point<'_>, into: &mut Batch) {
        into.clear();
        let name = self.name.as_ref().map(|pieces| pieces.join(point.name));
        let mut writer = into.begin(name.as_deref().unwrap_or(point.name));
        self.write_tags(point, &mut writer);
        writer.finish_like(point);
    }

    fn write_tags(&self, point: &Point<'_>, writer: &mut PointWriter<'_>) {
        for tag in point.tags.iter().filter(|tag| !self.drop.iter().any(|key| key == tag.key)) {
            let renamed = self.rename.iter().find(|(from, _)| from == tag.key);
            let key = renamed.map_or(tag.key, |(_, to)| to.as_str());
            writer.tag(key, tag.value);
        }
        for (key, value) in &self.add {
            writer.tag(key, Some(value));
        }
    }

    fn mistakes(&self, config: &Config, key: &str) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if let Some(pieces) = &self.name {
            if pieces.iter().all(String::is_empty) && pieces.len() == 1 {
                mistakes.push(Mistake::new(format!("{key}.name"), "the new name is empty"));
            }
            if pieces.iter().any(|piece| piece.contains("${")) {
                let mistake =
                    Mistake::new(format!("{key}.name"), "only `${name}` can be used here");
                mistakes
                    .push(mistake.hint("write `prefix.${name}` to put a prefix before the name"));
            }
        }
        let empty = |(from, to): &(&String, &String)| from.is_empty() || to.is_empty();
        for (from, _) in config.tags.rename.iter().filter(empty) {
            let at = format!("{key}.tags.rename.{from}");
            mistakes.push(Mistake::new(at, "a tag key cannot be empty"));
        }
        for (from, _) in config.tags.add.iter().filter(empty) {
            let at = format!("{key}.tags.add.{from}");
            mistakes.push(Mistake::new(at, "a tag needs a key and a value"));
        }
        mistakes
    }
}
