//! What a command has to say: for standard output, for standard error, and as its exit status.

use crate::escape::escaped;

/// What to print and how to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printout {
    /// For standard output.
    pub out: String,
    /// For standard error.
    pub err: String,
    /// The exit status.
    pub status: u8,
}

impl Printout {
    /// Nothing but a problem, whose words may be somebody else's.
    pub fn failed(status: u8, problem: &str) -> Self {
        Self { out: String::new(), err: format!("error: {}\n", escaped(problem)), status }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_terminal_obeys_a_problem() {
        let failed = Printout::failed(2, "no \x1b[2J`é`");
        assert_eq!(failed.err, "error: no \\u{1b}[2J`é`\n");
        assert_eq!((failed.out, failed.status), (String::new(), 2));
    }
}
