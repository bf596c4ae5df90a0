//! A prefix for the name of a point that goes on as the text it came as.

use super::bare_line;
use super::body::each_member;
use serde_json::value::RawValue;

/// Appends a line of JSON, with `prefix` before the name of the point that it describes. A line
/// that describes none is appended as it is, for its reader to say what is wrong with it. It is
/// read as [`parse_json_lines`](super::parse_json_lines) reads the first line of a body, so that no
/// point gets by without the prefix.
pub fn write_prefixed(line: &[u8], prefix: &str, out: &mut Vec<u8>) {
    let mut from = 0;
    for place in names(line) {
        // Behind the quote that opens it.
        let place = place + 1;
        out.extend_from_slice(line.get(from..place).unwrap_or(&[]));
        let quoted = serde_json::to_string(prefix).unwrap_or_default();
        let inside = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or("");
        out.extend_from_slice(inside.as_bytes());
        from = place;
    }
    out.extend_from_slice(line.get(from..).unwrap_or(&[]));
}

/// Where names stand: of `name`, or where there is none, of `metric`.
fn names(line: &[u8]) -> Vec<usize> {
    let Ok(text) = str::from_utf8(bare_line(line, true)) else { return Vec::new() };
    let (mut names, mut metrics) = (Vec::new(), Vec::new());
    let read = each_member(text, |key, value| match &*key {
        "name" => names.extend(place(line, value)),
        "metric" => metrics.extend(place(line, value)),
        _ => {}
    });
    match read {
        Ok(()) if names.is_empty() => metrics,
        Ok(()) => names,
        Err(_) => Vec::new(),
    }
}

/// Where a text begins that is a part of `line`.
fn place(line: &[u8], value: &RawValue) -> Option<usize> {
    let value = value.get();
    let place = (value.as_ptr() as usize).checked_sub(line.as_ptr() as usize)?;
    value.starts_with('"').then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::json::{Limits, parse_json_lines};

    #[test]
    fn the_name_gets_a_prefix_and_nothing_else_changes() {
        for (line, expected) in [
            (r#"{"name":"a","v":1}"#, r#"{"name":"p\"/a","v":1}"#),
            (
                r#" {"v":{"name":"x"}, "n\u0061me" : "\"a" } "#,
                r#" {"v":{"name":"x"}, "n\u0061me" : "p\"/\"a" } "#,
            ),
            (r#"{"metric":"a","value":1}"#, r#"{"metric":"p\"/a","value":1}"#),
            (r#"{"metric":"m","name":"a"}"#, r#"{"metric":"m","name":"p\"/a"}"#),
            (r#"{"name":null,"metric":"m"}"#, r#"{"name":null,"metric":"p\"/m"}"#),
            (r#"{"name":1}"#, r#"{"name":1}"#),
            (r#"[{"name":"a"}]"#, r#"[{"name":"a"}]"#),
            (r#"{"name":"a""#, r#"{"name":"a""#),
            ("\u{feff}\x0c{\"name\":\"a\"}\x0c\r", "\u{feff}\x0c{\"name\":\"p\\\"/a\"}\x0c\r"),
            ("", ""),
        ] {
            let mut out = Vec::new();
            write_prefixed(line.as_bytes(), "p\"/", &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    /// Whatever stands around a point, one that is read has the prefix.
    #[test]
    fn no_point_gets_by_without_the_prefix() {
        let around =
            ["", "\u{feff}", "\x0c", "\u{feff} \x0c\t", "\x0b", "\u{85}", "\u{a0}", "\r", "\0"];
        for before in around {
            for after in around {
                let line = format!("{before}{{\"name\":\"a\",\"value\":1}}{after}");
                let (mut out, mut batch) = (Vec::new(), Batch::new());
                write_prefixed(line.as_bytes(), "p/", &mut out);
                parse_json_lines(&out, Limits::default(), &mut batch);
                let name = batch.iter().next().map(|point| point.name.to_owned());
                assert!(name.as_ref().is_none_or(|name| name == "p/a"), "{line:?}: {name:?}");
            }
        }
    }
}
