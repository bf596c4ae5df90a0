//! Rows as CSV after RFC 4180: a header, CRLF, quotes only where they are needed.

use super::{Columns, cell};
use crate::store::Series;
use crate::when;
use std::borrow::Cow;

/// The whole file; a header alone without rows.
pub(super) fn write(series: &[Series]) -> String {
    let columns = Columns::of(series);
    let mut out = String::new();
    let titles = columns.titles(["time", "name"]);
    line(&mut out, titles.iter().map(|title| Cow::Borrowed(title.as_str())));
    for one in series {
        for row in &one.rows {
            let own = [Cow::Owned(when::show(row.time)), Cow::Borrowed(one.name.as_str())];
            let tags =
                columns.tags.iter().map(|key| one.tags.get(*key).map_or("", String::as_str).into());
            let fields = columns.fields.iter().map(|key| cell(row.fields.get(*key)).0.into());
            line(&mut out, own.into_iter().chain(tags).chain(fields));
        }
    }
    out
}

fn line<'a>(out: &mut String, cells: impl Iterator<Item = Cow<'a, str>>) {
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            out.push(',');
        }
        if cell.contains([',', '"', '\r', '\n']) {
            out.extend(["\"", cell.replace('"', "\"\"").as_str(), "\""]);
        } else {
            out.push_str(&cell);
        }
    }
    out.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Row;
    use protocols::UnixNanos;

    #[test]
    fn titles_that_are_taken_get_a_prefix() {
        let row = Row {
            time: UnixNanos(0),
            fields: serde_json::from_str(r#"{"host":1,"time":2,"x":3}"#).unwrap(),
        };
        let tags = [("host".to_owned(), "h".to_owned())].into();
        let series = [Series { name: "a,b".into(), tags, rows: vec![row] }];
        assert_eq!(
            write(&series),
            "time,name,host,field.host,field.time,x\r\n1970-01-01T00:00:00Z,\"a,b\",h,1,2,3\r\n"
        );
    }

    #[test]
    fn nothing_is_a_header_alone() {
        assert_eq!(write(&[]), "time,name\r\n");
    }
}
