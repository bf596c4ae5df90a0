//! A prefix for the name of a point that goes on as the text it came as.

use super::body::each_member;
use serde_json::value::RawValue;

/// Appends a line of JSON, with `prefix` before the name of the point that it describes. A line that
/// describes none is appended as it is, for its reader to say what is wrong with it.
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
    let Ok(text) = str::from_utf8(line) else { return Vec::new() };
    let (mut names, mut metrics) = (Vec::new(), Vec::new());
    let read = each_member(text, |key, value| match &*key {
        "name" => names.extend(place(text, value)),
        "metric" => metrics.extend(place(text, value)),
        _ => {}
    });
    match read {
        Ok(()) if names.is_empty() => metrics,
        Ok(()) => names,
        Err(_) => Vec::new(),
    }
}

/// Where a text begins that is a part of `line`.
fn place(line: &str, value: &RawValue) -> Option<usize> {
    let value = value.get();
    let place = (value.as_ptr() as usize).checked_sub(line.as_ptr() as usize)?;
    value.starts_with('"').then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("", ""),
        ] {
            let mut out = Vec::new();
            write_prefixed(line.as_bytes(), "p\"/", &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
