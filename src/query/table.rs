//! Rows as aligned columns: numbers to the right, everything else to the left.

use super::{Columns, cell};
use crate::store::Series;
use crate::when;

/// The whole table; empty without rows.
pub(super) fn write(series: &[Series]) -> String {
    if series.is_empty() {
        return String::new();
    }
    let columns = Columns::of(series);
    let named = series.iter().any(|one| Some(&one.name) != series.first().map(|first| &first.name));
    let mut lines = vec![header(&columns, named)];
    for one in series {
        lines.extend(one.rows.iter().map(|row| {
            let time = [(when::show(row.time), false)];
            let name = named.then(|| (one.name.clone(), false));
            let tags = columns
                .tags
                .iter()
                .map(|key| (one.tags.get(*key).cloned().unwrap_or_default(), false));
            let fields = columns.fields.iter().map(|key| cell(row.fields.get(*key)));
            time.into_iter().chain(name).chain(tags).chain(fields).map(escaped).collect()
        }));
    }
    align(&lines)
}

type Cell = (String, bool);

fn header(columns: &Columns<'_>, named: bool) -> Vec<Cell> {
    let own = ["TIME"].into_iter().chain(named.then_some("NAME"));
    let keys = columns.tags.iter().chain(&columns.fields).copied();
    own.chain(keys).map(|title| escaped((title.to_owned(), false))).collect()
}

/// What a terminal would obey is shown instead.
fn escaped((text, is_number): Cell) -> Cell {
    if !text.contains(char::is_control) {
        return (text, is_number);
    }
    let shown = text.chars().flat_map(|c| {
        let escape = c.is_control().then(|| c.escape_default());
        let plain = (!c.is_control()).then_some(c);
        escape.into_iter().flatten().chain(plain)
    });
    (shown.collect(), is_number)
}

fn align(lines: &[Vec<Cell>]) -> String {
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let column = |at: usize| lines.iter().filter_map(move |line| line.get(at));
    let widths: Vec<_> = (0..count)
        .map(|at| column(at).map(|(text, _)| text.chars().count()).max().unwrap_or(0))
        .collect();
    // A column's title stands where its numbers do.
    let numeric: Vec<_> =
        (0..count).map(|at| column(at).any(|(_, is_number)| *is_number)).collect();
    let mut out = String::new();
    for line in lines {
        let mut text = String::new();
        for (((cell, _), width), numeric) in line.iter().zip(&widths).zip(&numeric) {
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            let (before, after) =
                if *numeric { (padding, String::new()) } else { (String::new(), padding) };
            text.extend([before.as_str(), cell.as_str(), after.as_str(), "  "]);
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}
