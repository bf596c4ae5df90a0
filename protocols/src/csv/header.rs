//! What the columns of a table are for.

use super::Options;
use super::cells::Cells;
use crate::error::ParseError;
use crate::refusals::{Refusal, quoted};

/// The columns, in the order of the file.
#[derive(Debug)]
pub(super) struct Header {
    columns: Vec<Column>,
    pub(super) name: Option<usize>,
    pub(super) time: Option<usize>,
    pub(super) tags: Vec<usize>,
    pub(super) fields: Vec<usize>,
}

#[derive(Debug)]
struct Column {
    key: String,
    /// The key as a member of an object: `"key":`.
    member: Vec<u8>,
}

impl Header {
    /// Reads the first record of a file.
    pub(super) fn new(cells: &Cells, options: &Options) -> Result<Self, Refusal> {
        if cells.surplus() > 0 {
            let text = format!("there are more than {} columns", options.columns);
            return Err(Refusal::new(ParseError::TooManyFields, text));
        }
        let columns = (0..cells.len()).filter_map(|index| cells.text(index));
        let columns = columns.map(Column::new).collect::<Vec<_>>();
        unique(&columns)?;
        separators(&columns)?;
        let mut header =
            Self { columns, name: None, time: None, tags: Vec::new(), fields: Vec::new() };
        header.assign();
        header.doubtful()?;
        if header.fields.is_empty() {
            let text = "the first line names no column that could hold a value";
            return Err(Refusal::new(ParseError::NoFields, text));
        }
        if header.name.is_none() && options.series.is_none() {
            let text = "there is no column `name`, and nothing else that names the series";
            return Err(Refusal::new(ParseError::EmptyName, text));
        }
        Ok(header)
    }

    /// Gives each column its part.
    fn assign(&mut self) {
        let place = |key| self.columns.iter().position(|column| column.key == key);
        self.name = place("name");
        self.time = place("time").or_else(|| place("timestamp"));
        let reserved = [self.name, self.time];
        for (index, Column { key, .. }) in self.columns.iter().enumerate() {
            match &**key {
                _ if reserved.contains(&Some(index)) => {}
                "" | "sequence_number" => {}
                _ if tag_of(key).is_some() => self.tags.push(index),
                _ => self.fields.push(index),
            }
        }
    }

    /// What is nearly called as a column with a part of its own would be taken for a field, and its
    /// rows for points of now.
    fn doubtful(&self) -> Result<(), Refusal> {
        for key in self.fields.iter().filter_map(|index| self.columns.get(*index)) {
            let key = &*key.key;
            let trimmed = key.trim();
            let is_meant = trimmed != key && (is_reserved(trimmed) || tag_of(trimmed).is_some());
            let lower = trimmed.to_ascii_lowercase();
            let is_time = self.time.is_none() && matches!(&*lower, "time" | "timestamp");
            let meant = if is_time { &*lower } else { trimmed };
            if is_meant || is_time {
                let text = format!("the column {} is not called {}", quoted(key), quoted(meant));
                return Err(Refusal::new(ParseError::InvalidField, text));
            }
        }
        Ok(())
    }

    pub(super) const fn len(&self) -> usize {
        self.columns.len()
    }

    /// The key of a tag or of a field.
    pub(super) fn key(&self, index: usize) -> &str {
        let key = self.columns.get(index).map_or("", |column| &*column.key);
        tag_of(key).unwrap_or(key)
    }

    /// The key of a tag or of a field, as JSON has it before its value.
    pub(super) fn member(&self, index: usize) -> &[u8] {
        self.columns.get(index).map_or(&[], |column| &column.member)
    }

    /// Sees what the cells of a row mean; answers whether any field does.
    pub(super) fn judge(&self, cells: &mut Cells, options: &Options) -> Result<bool, Refusal> {
        let mut has_value = false;
        for index in &self.fields {
            has_value |= cells.judge(*index).map_err(|reason| self.bad(*index, reason))?;
        }
        if let Some(index) = self.time {
            cells.judge(index).map_err(|reason| self.bad(index, reason))?;
        }
        for index in &self.tags {
            // A tag is text, and may be called `inf`.
            let _ = cells.judge(*index);
        }
        // Whatever stands there is the name, and be it a number.
        let named = self.name.and_then(|index| cells.text(index)).is_some_and(|n| !n.is_empty());
        if has_value && !named && options.series.is_none() {
            return Err(Refusal::new(ParseError::EmptyName, "the row does not name its series"));
        }
        Ok(has_value)
    }

    fn bad(&self, index: usize, reason: ParseError) -> Refusal {
        Refusal::new(reason, format!("the column {}: {reason}", quoted(self.key(index))))
    }
}

impl Column {
    fn new(key: &str) -> Self {
        let mut member = serde_json::to_vec(tag_of(key).unwrap_or(key)).unwrap_or_default();
        member.push(b':');
        Self { key: key.to_owned(), member }
    }
}

/// `os` of `tag.os`.
fn tag_of(key: &str) -> Option<&str> {
    key.strip_prefix("tag.").filter(|key| !key.is_empty())
}

fn is_reserved(key: &str) -> bool {
    matches!(key, "name" | "time" | "timestamp" | "sequence_number")
}

/// A table whose cells, or whose lines, are separated by something else has one column, or one line,
/// only, and would be read as nothing.
fn separators(columns: &[Column]) -> Result<(), Refusal> {
    let ends = |key: &str| key.matches('\r').count() > key.matches("\r\n").count();
    let text = if columns.iter().any(|column| ends(&column.key)) {
        "a line ends with CR alone; lines end with LF or CR LF"
    } else if matches!(columns, [only] if only.key.contains([';', '\t'])) {
        "there is only one column, and a semicolon or a tab in its name; commas separate columns"
    } else {
        return Ok(());
    };
    Err(Refusal::new(ParseError::InvalidField, text))
}

/// Two columns of one name would be one series' two values of one time.
fn unique(columns: &[Column]) -> Result<(), Refusal> {
    let mut keys: Vec<&str> = columns.iter().map(|column| &*column.key).collect();
    keys.sort_unstable();
    let twice = keys.windows(2).find_map(|pair| match *pair {
        [key, next] if key == next && !key.is_empty() => Some(key),
        _ => None,
    });
    let Some(key) = twice else { return Ok(()) };
    let text = format!("the column {} stands twice in the first line", quoted(key));
    Err(Refusal::new(ParseError::DuplicateField, text))
}
