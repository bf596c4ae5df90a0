//! Host names of endpoints: looked up for each new connection, with the last good answer in
//! reserve.
//!
//! A resolver that is away is no reason to hold points for a server that is not. A failed lookup is
//! noticed as `dns_failure`. What is remembered is bounded by the names in the configuration.

use crate::books::BackendBook;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Looks names up, and remembers what they stood for.
#[derive(Debug)]
pub(super) struct Lookup(Arc<Known>);

#[derive(Debug)]
struct Known {
    answers: Mutex<BTreeMap<String, Vec<SocketAddr>>>,
    book: Arc<BackendBook>,
}

impl Lookup {
    /// Counts failures in this book.
    pub(super) fn new(book: &Arc<BackendBook>) -> Self {
        Self(Arc::new(Known { answers: Mutex::default(), book: Arc::clone(book) }))
    }
}

impl Resolve for Lookup {
    fn resolve(&self, name: Name) -> Resolving {
        let known = Arc::clone(&self.0);
        Box::pin(async move {
            // The port is the URL's affair.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await;
            let addresses = known.settle(name.as_str(), found.map(Iterator::collect))?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

impl Known {
    /// The present answer, or the last one where there is none.
    fn settle(
        &self,
        name: &str,
        found: io::Result<Vec<SocketAddr>>,
    ) -> io::Result<Vec<SocketAddr>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(found) => {
                answers.insert(name.to_owned(), found.clone());
                Ok(found)
            }
            Err(error) => {
                self.book.noticed.add("dns_failure", 1);
                answers.get(name).cloned().ok_or(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_good_answer_stands_in_for_a_failed_lookup() {
        let book = Arc::default();
        let known = Arc::clone(&Lookup::new(&book).0);
        let failed = || Err(io::Error::other("no answer"));
        let [a, b] = ["127.0.0.2:0", "127.0.0.3:0"].map(|text| text.parse().unwrap());
        assert!(known.settle("one", failed()).is_err());
        assert_eq!(known.settle("one", Ok(vec![a])).unwrap(), [a]);
        assert_eq!(known.settle("one", Ok(vec![b])).unwrap(), [b]);
        assert_eq!(known.settle("one", failed()).unwrap(), [b]);
        assert!(known.settle("other", failed()).is_err());
        assert_eq!(book.noticed.counts(), [("dns_failure", 3)]);
    }
}
