//! Results as tables: aligned text for a terminal, or Markdown for a page.

use anyhow::Result;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{Write as _, stdout};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Text,
    Json,
    Markdown,
}

/// Rows of cells under a head, and sentences below them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    pub notes: Vec<String>,
}

/// What can be shown as tables.
pub trait Tabular {
    fn tables(&self) -> Vec<Table>;
}

/// Prints a result.
pub fn print(result: &(impl Tabular + Serialize), style: Style) -> Result<()> {
    let tables = || result.tables().into_iter();
    let text = match style {
        Style::Text => tables().map(|table| table.text()).collect::<Vec<_>>().join("\n"),
        Style::Markdown => tables().map(|table| table.markdown()).collect::<Vec<_>>().join("\n"),
        Style::Json => serde_json::to_string(result)? + "\n",
    };
    Ok(stdout().write_all(text.as_bytes())?)
}

impl Table {
    /// The first column from the left, the others from the right.
    fn text(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for row in self.lines() {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // Writing to a String does not fail.
                let _ = match column {
                    0 => write!(line, "{cell:<width$}"),
                    _ => write!(line, "  {cell:>width$}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        self.notes.iter().fold(text, |text, note| text + note + "\n")
    }

    fn markdown(&self) -> String {
        let mut lines: Vec<String> =
            self.lines().map(|row| format!("| {} |", row.join(" | "))).collect();
        let under = (0..self.head.len()).map(|column| if column == 0 { "---" } else { "---:" });
        lines.insert(1, format!("| {} |", under.collect::<Vec<_>>().join(" | ")));
        let notes = self.notes.iter().map(|note| format!("\n{note}"));
        lines.into_iter().chain(notes).fold(String::new(), |text, line| text + &line + "\n")
    }

    fn lines(&self) -> impl Iterator<Item = Vec<&str>> {
        let rows = self.rows.iter().map(|row| row.iter().map(String::as_str).collect());
        std::iter::once(self.head.clone()).chain(rows)
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.head.len()];
        for row in self.lines() {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            head: vec!["load", "rate"],
            rows: vec![
                vec!["a".to_owned(), "12.5M".to_owned()],
                vec!["long".to_owned(), "1".to_owned()],
            ],
            notes: vec!["A note.".to_owned()],
        }
    }

    #[test]
    fn text_is_aligned() {
        assert_eq!(table().text(), "load   rate\na     12.5M\nlong      1\nA note.\n");
    }

    #[test]
    fn markdown_has_a_line_under_its_head() {
        let expected = "| load | rate |\n| --- | ---: |\n| a | 12.5M |\n| long | 1 |\n\nA note.\n";
        assert_eq!(table().markdown(), expected);
    }
}
