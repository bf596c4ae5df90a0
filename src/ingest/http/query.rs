//! Query strings: flags, and pairs with their escapes undone.

use percent_encoding::percent_decode_str;

/// Whether `name` stands in the query, with or without a value.
pub(super) fn has(query: &str, name: &str) -> bool {
    value(query, name).is_some()
}

/// The value of `name` as sent; empty when it has none.
pub(super) fn value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then_some(value)
    })
}

/// The value of `name`, decoded; `None` as well when it is not UTF-8.
pub(super) fn text(query: &str, name: &str) -> Option<String> {
    value(query, name).and_then(decode_form)
}

/// All pairs, decoded; `None` when one is not UTF-8.
pub(super) fn pairs(query: &str) -> Option<Vec<(String, String)>> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode_form(key)?, decode_form(value)?))
        })
        .collect()
}

/// Undoes the escapes of a path.
pub(super) fn decode_path(text: &str) -> Option<String> {
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

fn decode_form(text: &str) -> Option<String> {
    decode_path(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_need_no_value() {
        for (query, expected) in [
            ("details", true),
            ("summary&details", true),
            ("details=true", true),
            ("detail", false),
            ("x=details", false),
            ("", false),
        ] {
            assert_eq!(has(query, "details"), expected, "{query}");
        }
        assert_eq!(value("a=1&b=2", "b"), Some("2"));
        assert_eq!(text("a=%ff&b=x+%79", "b").as_deref(), Some("x y"));
        assert_eq!(text("a=%ff", "a"), None);
    }

    #[test]
    fn pairs_are_decoded_once() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            pairs("a=1&b%20c=x+y%2B%26&&flag&d=%2525"),
            Some(vec![pair("a", "1"), pair("b c", "x y+&"), pair("flag", ""), pair("d", "%25")])
        );
        assert_eq!(pairs("a=%ff"), None);
        assert_eq!(decode_path("a+b%2Fc%0A"), Some("a+b/c\n".to_owned()));
    }
}
