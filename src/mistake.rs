//! One mistake in a configuration, by the key it is under.

/// What is wrong, where, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The full key: `backends.influx.url`, `routes[1].to[0]`. Empty for a whole file.
    pub key: String,
    /// What is wrong, as a sentence without a full stop.
    pub message: String,
    /// How to mend it ("did you mean `token`?").
    pub hint: Option<String>,
}

impl Mistake {
    /// A mistake without a hint.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into(), hint: None }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The known word nearest to a misspelt one, as a hint.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1.max(candidate.len() / 3))
        .min()
        .map(|(_, candidate)| format!("did you mean `{candidate}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_offered() {
        let known = ["token", "timeout", "url"];
        assert_eq!(did_you_mean("tokn", known).as_deref(), Some("did you mean `token`?"));
        assert_eq!(did_you_mean("retention_period", known), None);
    }
}
