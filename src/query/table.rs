//! Rows as aligned columns: numbers to the right, everything else to the left.

use super::{Columns, cell};
use crate::escape::escaped;
use crate::store::Series;
use crate::when;

/// The whole table; empty without rows.
pub(super) fn write(series: &[Series]) -> String {
    if series.is_empty() {
        return String::new();
    }
    let columns = Columns::of(series);
    let mut lines = vec![header(&columns)];
    for one in series {
        lines.extend(one.rows.iter().map(|row| {
            let own = [(when::show(row.time), false), (one.name.clone(), false)];
            let tags = columns
                .tags
                .iter()
                .map(|key| (one.tags.get(*key).cloned().unwrap_or_default(), false));
            let fields = columns.fields.iter().map(|key| cell(row.fields.get(*key)));
            own.into_iter().chain(tags).chain(fields).map(shown).collect()
        }));
    }
    align(&without_empty(lines))
}

type Cell = (String, bool);

fn header(columns: &Columns<'_>) -> Vec<Cell> {
    columns.titles(["TIME", "NAME"]).into_iter().map(|title| shown((title, false))).collect()
}

/// What a terminal would obey is shown instead.
fn shown((text, is_number): Cell) -> Cell {
    (escaped(&text), is_number)
}

/// A column without a word in it (of a tag without a value, say) tells nothing.
fn without_empty(lines: Vec<Vec<Cell>>) -> Vec<Vec<Cell>> {
    let count = lines.first().map_or(0, Vec::len);
    let says = |line: &Vec<Cell>, at: usize| line.get(at).is_some_and(|(text, _)| !text.is_empty());
    let full: Vec<_> =
        (0..count).map(|at| lines.iter().skip(1).any(|line| says(line, at))).collect();
    let kept = lines.into_iter().map(|line| {
        let cells = line.into_iter().zip(&full).filter(|(_, full)| **full);
        cells.map(|(cell, _)| cell).collect()
    });
    kept.collect()
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
