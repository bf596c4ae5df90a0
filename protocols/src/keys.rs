//! Names and tags in flat storage, for tables that know series for longer than a batch.
//!
//! A [`Key`] is 12 bytes and says where a series' name and tags stand; a caller keeps it beside
//! whatever else it knows of the series. Keys are only ever added. Who drops one says so by
//! [`forget`](Keys::forget), and moves the others over to new storage once enough is forgotten.

use crate::point::{Span, TagSpan, Tags};

/// The text of names and tags.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    text: String,
    tags: Vec<TagSpan>,
    forgotten: usize,
}

/// Where a name and its tags stand in the [`Keys`] that answered it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    start: u32,
    tags: u32,
    len: u16,
    tag_count: u16,
}

impl Keys {
    /// Copies a name and its tags. `None` when either is longer than a key can say: 64 KiB of
    /// name, or as many tags.
    pub fn push(&mut self, name: &str, tags: Tags<'_>) -> Option<Key> {
        let key = Key {
            start: u32::try_from(self.text.len()).ok()?,
            tags: u32::try_from(self.tags.len()).ok()?,
            len: name.len().try_into().ok()?,
            tag_count: tags.len().try_into().ok()?,
        };
        self.reserve(text_of(name, tags), tags.len());
        self.text.push_str(name);
        for tag in tags.iter() {
            let tag =
                TagSpan { key: self.append(tag.key), value: tag.value.map(|it| self.append(it)) };
            self.tags.push(tag);
        }
        Some(key)
    }

    /// The name of a key.
    pub fn name(&self, key: Key) -> &str {
        let start = key.start as usize;
        self.text.get(start..start + usize::from(key.len)).unwrap_or_default()
    }

    /// The tags of a key, in the order in which they were given.
    pub fn tags(&self, key: Key) -> Tags<'_> {
        let start = key.tags as usize;
        let spans = self.tags.get(start..start + usize::from(key.tag_count)).unwrap_or_default();
        Tags { text: &self.text, spans }
    }

    /// How many bytes a key takes beside its own size.
    pub fn cost(&self, key: Key) -> usize {
        cost(self.name(key), self.tags(key))
    }

    /// A key is not needed any more. Answers how many bytes it took.
    pub fn forget(&mut self, key: Key) -> usize {
        let bytes = self.cost(key);
        self.forgotten += bytes;
        bytes
    }

    /// Whether most of the storage holds forgotten keys.
    pub fn is_stale(&self) -> bool {
        let all = self.text.len() + self.tags.len() * size_of::<TagSpan>();
        self.forgotten > all / 2
    }

    /// Gives back memory that nothing stands in.
    pub fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.tags.shrink_to_fit();
    }

    /// Grows by eighths: storage that lasts is to have little room that nobody uses.
    fn reserve(&mut self, text: usize, tags: usize) {
        if self.text.capacity() - self.text.len() < text {
            self.text.reserve_exact(text.max(self.text.len() / 8));
        }
        if self.tags.capacity() - self.tags.len() < tags {
            self.tags.reserve_exact(tags.max(self.tags.len() / 8));
        }
    }

    #[allow(clippy::cast_possible_truncation)] // `push` begins below 4 GiB; a tag is limited far below.
    fn append(&mut self, text: &str) -> Span {
        let start = self.text.len() as u32;
        self.text.push_str(text);
        Span { start, end: self.text.len() as u32 }
    }
}

/// How many bytes a name and its tags take in [`Keys`].
fn cost(name: &str, tags: Tags<'_>) -> usize {
    text_of(name, tags) + tags.len() * size_of::<TagSpan>()
}

fn text_of(name: &str, tags: Tags<'_>) -> usize {
    let tags = tags.iter().map(|tag| tag.key.len() + tag.value.map_or(0, str::len));
    name.len() + tags.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Measure, Tag};

    fn with_tags(tags: &[(&str, Option<&str>)], see: impl FnOnce(Tags<'_>)) {
        let mut batch = Batch::new();
        let mut writer = batch.begin("");
        for (key, value) in tags {
            writer.tag(key, *value);
        }
        writer.finish(Measure::Gauge(0.0), None, "");
        drop(writer);
        see(batch.point(0).unwrap().tags);
    }

    #[test]
    fn a_key_says_what_was_pushed() {
        let mut keys = Keys::default();
        let plain = keys.push("plain", Tags::EMPTY).unwrap();
        with_tags(&[("env", Some("a")), ("canary", None)], |tags| {
            let tagged = keys.push("", tags).unwrap();
            assert_eq!((keys.name(tagged), keys.tags(tagged)), ("", tags));
            assert_eq!(keys.cost(tagged), 10 + 2 * size_of::<TagSpan>());
        });
        assert_eq!((keys.name(plain), keys.tags(plain)), ("plain", Tags::EMPTY));
        assert_eq!(keys.tags(plain).find("env"), None::<Tag<'_>>);
    }

    #[test]
    fn what_no_key_can_say_is_refused() {
        let mut keys = Keys::default();
        assert_eq!(keys.push(&"n".repeat(1 << 16), Tags::EMPTY), None);
        let longest = "n".repeat((1 << 16) - 1);
        let key = keys.push(&longest, Tags::EMPTY).unwrap();
        assert_eq!(keys.name(key), longest);
    }

    #[test]
    fn storage_is_stale_when_most_of_it_is_forgotten() {
        let mut keys = Keys::default();
        let all: Vec<_> = (0..4).map(|_| keys.push("name", Tags::EMPTY).unwrap()).collect();
        let stale = all.iter().map(|key| {
            assert_eq!(keys.forget(*key), 4);
            keys.is_stale()
        });
        assert_eq!(stale.collect::<Vec<_>>(), [false, false, true, true]);
    }
}
