//! A row as a point, and as the JSON of one.

use super::cells::{Cells, is_number};
use super::header::Header;
use super::{Options, Refused};
use crate::batch::Batch;
use crate::json::Limits;
use crate::json::draft::Draft;
use crate::json::value::Scalar;
use crate::refusals::Refusal;
use std::borrow::Cow;

/// A row with at least one value.
#[derive(Clone, Copy, Debug)]
pub struct Row<'r> {
    line: u64,
    cells: &'r Cells,
    header: &'r Header,
    options: &'r Options,
}

impl<'r> Row<'r> {
    pub(super) const fn new(
        line: u64,
        cells: &'r Cells,
        header: &'r Header,
        options: &'r Options,
    ) -> Self {
        Self { line, cells, header, options }
    }

    /// The line at which it began, from 1.
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// Appends it as an object of our JSON points, in one line without a line end.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"name\":\"");
        escape(&self.options.prefix, out);
        escape(self.series(), out);
        out.push(b'"');
        match self.time() {
            Scalar::Null => {}
            time => {
                out.extend_from_slice(b",\"time\":");
                write(&time, out);
            }
        }
        self.members(b",\"tags\":", &self.header.tags, out);
        self.members(b",\"fields\":", &self.header.fields, out);
        out.push(b'}');
    }

    /// Writes it as a point.
    ///
    /// # Errors
    ///
    /// Why it is refused; `out` is then as it was.
    pub fn write(&self, limits: Limits, out: &mut Batch) -> Result<(), Refused> {
        self.draft(limits).and_then(|draft| draft.write(out)).map_err(|refusal| {
            let Refusal { reason, text: message } = refusal;
            Refused { line: self.line, reason, message }
        })
    }

    fn draft(&self, limits: Limits) -> Result<Draft<'r>, Refusal> {
        let mut draft = Draft::new(limits);
        let name = match &*self.options.prefix {
            "" => Cow::Borrowed(self.series()),
            prefix => Cow::Owned(format!("{prefix}{}", self.series())),
        };
        draft.named(Scalar::Text(name))?;
        draft.timed(&self.time())?;
        for index in &self.header.tags {
            draft.tag(Cow::Borrowed(self.header.key(*index)), self.cells.scalar(*index))?;
        }
        for index in &self.header.fields {
            draft.column(Cow::Borrowed(self.header.key(*index)), self.cells.scalar(*index))?;
        }
        Ok(draft)
    }

    fn series(&self) -> &'r str {
        let named = self.header.name.and_then(|index| self.cells.text(index));
        let named = named.filter(|name| !name.is_empty());
        named.or(self.options.series.as_deref()).unwrap_or("")
    }

    /// Writers that quote everything quote numbers too, and a time cannot be text of digits.
    fn time(&self) -> Scalar<'r> {
        match self.header.time.map_or(Scalar::Null, |index| self.cells.scalar(index)) {
            Scalar::Text(Cow::Borrowed("")) => Scalar::Null,
            Scalar::Text(Cow::Borrowed(text)) if is_number(text) => Scalar::Number(text),
            time => time,
        }
    }

    /// An object of these columns, unless none of them has a value.
    fn members(&self, head: &[u8], columns: &[usize], out: &mut Vec<u8>) {
        let mut before = None;
        for index in columns {
            let value = self.cells.scalar(*index);
            if value == Scalar::Null {
                continue;
            }
            match before.replace(()) {
                None => out.extend_from_slice(&[head, b"{"].concat()),
                Some(()) => out.push(b','),
            }
            out.extend_from_slice(self.header.member(*index));
            write(&value, out);
        }
        if before.is_some() {
            out.push(b'}');
        }
    }
}

fn write(value: &Scalar<'_>, out: &mut Vec<u8>) {
    match value {
        Scalar::Null | Scalar::Nested => out.extend_from_slice(b"null"),
        Scalar::Bool(truth) => out.extend_from_slice(if *truth { b"true" } else { b"false" }),
        Scalar::Number(digits) => out.extend_from_slice(digits.as_bytes()),
        Scalar::Text(text) => {
            out.push(b'"');
            escape(text, out);
            out.push(b'"');
        }
    }
}

/// The inside of a JSON text.
fn escape(text: &str, out: &mut Vec<u8>) {
    let is_odd = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
    if !text.as_bytes().iter().any(is_odd) {
        return out.extend_from_slice(text.as_bytes());
    }
    let quoted = serde_json::to_string(text).unwrap_or_default();
    out.extend_from_slice(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or("").as_bytes());
}
