//! At most one line a minute for each trouble, so that no fault can fill a disk.

use crate::clock::nanos;
use protocols::UnixNanos;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// When each trouble was last spoken of.
#[derive(Debug, Default)]
pub(super) struct Quiet(Mutex<BTreeMap<&'static str, UnixNanos>>);

impl Quiet {
    /// Whether this trouble may be spoken of now; if so, it may not for the next minute.
    pub(super) fn may_say(&self, trouble: &'static str, now: UnixNanos) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = said
            .get(trouble)
            .is_some_and(|last| (0..nanos(PAUSE)).contains(&now.0.saturating_sub(last.0)));
        if !recent {
            said.insert(trouble, now);
        }
        !recent
    }
}

const PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_has_a_minute_of_its_own() {
        let quiet = Quiet::default();
        let say = |trouble, secs| quiet.may_say(trouble, UnixNanos::from_secs(secs));
        assert!(say("a", 100) && say("b", 101));
        assert!(!say("a", 159) && say("a", 160) && !say("a", 161));
        assert!(say("a", 50), "the clock was set back");
    }
}
