//! The shape that a principal's points are given: a prefix before the name, tags set and dropped.
//!
//! A reserved tag is one that no client may send; only `set` fills it. Some backends replace characters
//! of a key, or write all of it in lower case. So keys that some backend might write alike are taken for
//! the same ([`is_alike`]), and so is a column of that name, which a database would mistake for the tag.

use super::config::Config;
use super::denial::Reserved;
use protocols::{Batch, Measure, Point};

/// What is done to every point of a principal; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    prefix: String,
    set: Vec<(String, String)>,
    drop: Vec<String>,
    reserved: Vec<String>,
}

/// Room for one point in its shape.
#[derive(Debug, Default)]
pub struct Shaped {
    batch: Batch,
    name: String,
}

impl Shape {
    /// As a principal's section says.
    pub fn new(config: &Config) -> Self {
        let set = config.tags.set.iter().map(|(key, value)| (key.clone(), value.clone()));
        let (drop, reserved) = (config.tags.drop.clone(), config.tags.reserved.clone());
        Self { prefix: config.prefix.clone(), set: set.collect(), drop, reserved }
    }

    /// Whether it changes any point.
    pub const fn changes(&self) -> bool {
        !self.prefix.is_empty() || !self.set.is_empty() || !self.drop.is_empty()
    }

    /// Where a client says a tag that it may not say, if it does.
    pub fn reserved(&self, point: &Point<'_>) -> Option<Reserved> {
        if self.reserved.is_empty() {
            return None;
        }
        let is_reserved = |key: &str| self.reserved.iter().any(|own| is_alike(own, key));
        let column = || match &point.measure {
            Measure::Fields(fields) => fields.iter().position(|(key, _)| is_reserved(key)),
            _ => None,
        };
        let tag = point.tags.iter().position(|tag| is_reserved(tag.key));
        tag.map(Reserved::Tag).or_else(|| column().map(Reserved::Column))
    }

    /// Writes the point as it has to be; `None` cannot happen.
    pub fn give<'s>(&self, point: &Point<'_>, into: &'s mut Shaped) -> Option<Point<'s>> {
        let Shaped { batch, name } = into;
        batch.clear();
        name.clear();
        name.push_str(&self.prefix);
        name.push_str(point.name);
        let mut writer = batch.begin(name);
        for tag in point.tags.iter().filter(|tag| !self.replaces(tag.key)) {
            writer.tag(tag.key, tag.value);
        }
        for (key, value) in &self.set {
            writer.tag(key, Some(value));
        }
        writer.finish_like(point);
        drop(writer);
        into.batch.point(0)
    }

    /// Whether what a client says under that key is left out.
    fn replaces(&self, key: &str) -> bool {
        let set = self.set.iter().map(|(key, _)| key);
        set.chain(&self.drop).any(|own| is_alike(own, key))
    }
}

/// Whether some backend might write two keys alike: they have the same letters and digits, whatever their
/// case (Datadog knows only one case), separated at the same places, whatever separates them.
pub fn is_alike(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let (mut one, mut other) = (words(one), words(other));
    loop {
        match (one.next(), other.next()) {
            (None, None) => return true,
            (Some(word), Some(same)) if word.eq_ignore_ascii_case(same) => {}
            _ => return false,
        }
    }
}

fn words(key: &str) -> impl Iterator<Item = &str> {
    key.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::statsd::{Dialects, Limits, parse_line};
    use serde_json::json;

    fn shape(config: serde_json::Value) -> Shape {
        Shape::new(&serde_json::from_value(config).unwrap())
    }

    fn with_point<T>(line: &str, see: impl FnOnce(Point<'_>) -> T) -> T {
        let mut batch = Batch::new();
        parse_line(line.as_bytes(), &Dialects::default(), &Limits::default(), &mut batch).unwrap();
        see(batch.point(0).unwrap())
    }

    #[test]
    fn points_are_given_their_shape() {
        let check = |config: serde_json::Value, line: &str, expected: &str| {
            let (shape, mut room) = (shape(config.clone()), Shaped::default());
            let shown = with_point(line, |point| {
                let given = shape.give(&point, &mut room).unwrap();
                assert_eq!((given.measure, given.time), (point.measure, point.time));
                assert_eq!(given.rest, point.rest);
                let tags = given.tags.iter().map(|tag| format!("{}={:?}", tag.key, tag.value));
                format!("{} {}", given.name, tags.collect::<Vec<_>>().join(" "))
            });
            assert_eq!(shown, expected, "{config} {line}");
        };
        check(json!({ "prefix": "p/" }), "a:1|c|#x:1", "p/a x=Some(\"1\")");
        check(json!({ "prefix": "p." }), "a:1|s|@0.5|#bare|c:7", "p.a bare=None");
        check(json!({ "tags": { "set": { "x": "2" } } }), "a:1|c|#x:1", "a x=Some(\"2\")");
        check(json!({ "tags": { "set": { "x": "2" } } }), "a:1|c", "a x=Some(\"2\")");
        check(json!({ "tags": { "drop": ["x"] } }), "a:1|c|#x:1,y:2", "a y=Some(\"2\")");
        let alike = json!({ "tags": { "set": { "pool_id": "2" } } });
        check(alike, "a:1|c|#pool\\id:evil,_pool-id:evil,Pool_ID:evil", "a pool_id=Some(\"2\")");
    }

    #[test]
    fn columns_keep_their_place() {
        let (shape, mut room) = (shape(json!({ "prefix": "p/" })), Shaped::default());
        let mut batch = Batch::new();
        let mut writer = batch.begin("a");
        writer.field("n", protocols::FieldValue::Bool(true));
        writer.finish_fields(None);
        drop(writer);
        let given = shape.give(&batch.point(0).unwrap(), &mut room).unwrap();
        assert_eq!(given.name, "p/a");
        assert!(matches!(given.measure, Measure::Fields(fields) if fields.iter().count() == 1));
    }

    #[test]
    fn reserved_tags_are_found_however_they_are_spelled() {
        let shape = shape(json!({ "tags": { "reserved": ["pool_id", "host"] } }));
        assert!(!shape.changes());
        for (line, expected) in [
            ("a:1|c", false),
            ("a:1|c|#hosts:1,pool:2,poolid:3", false),
            ("a:1|c|#x:1,host:2", true),
            ("a:1|c|#host", true),
            ("a,host=1:1|c", true),
            ("a;host=1:1|c", true),
            ("a:1|c|#pool\\id:1", true),
            ("a:1|c|#pool id:1", true),
            ("a:1|c|#pool\u{e9}\u{e9}id:1", true),
            ("a:1|c|#Host:1", true),
            ("a:1|c|#POOL-Id:1", true),
            ("a:1|c|#pool_id_x:1,x_host:1", false),
        ] {
            assert_eq!(
                with_point(line, |point| shape.reserved(&point).is_some()),
                expected,
                "{line}"
            );
        }
        let mut batch = Batch::new();
        let mut writer = batch.begin("a");
        writer.field("host", protocols::FieldValue::Text("x"));
        writer.finish_fields(None);
        drop(writer);
        let reserved = shape.reserved(&batch.point(0).unwrap());
        assert!(matches!(reserved, Some(Reserved::Column(_))), "a column hides the tag");
    }
}
