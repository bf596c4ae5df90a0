//! The address that a host name stands for, looked up in the background.
//!
//! One task looks up once a period, whatever the traffic; the last good answer is kept when a
//! lookup fails, which is counted. The task ends with the shipper that holds the receiver.

use crate::books::BackendBook;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The present answer for one name.
#[derive(Debug)]
pub(super) struct Resolved(watch::Receiver<Option<SocketAddr>>);

impl Resolved {
    /// Looks the name up every period from now on; an address is taken as it is.
    pub(super) fn watch(host: &str, every: Duration, book: &Arc<BackendBook>) -> Self {
        let fixed: Option<SocketAddr> = host.parse().ok();
        let (answers, receiver) = watch::channel(fixed);
        if fixed.is_none() {
            tokio::spawn(keep_looking(host.to_owned(), every, answers, Arc::clone(book)));
        }
        Self(receiver)
    }

    /// The present address, if any lookup has succeeded.
    pub(super) fn now(&self) -> Option<SocketAddr> {
        *self.0.borrow()
    }

    /// The present address; waits for the first lookup to succeed.
    pub(super) async fn first(&mut self) -> io::Result<SocketAddr> {
        let answer = self.0.wait_for(Option::is_some).await;
        let address = answer.ok().and_then(|address| *address);
        address.ok_or_else(|| io::Error::other("the lookup ended"))
    }
}

async fn keep_looking(
    host: String,
    every: Duration,
    answers: watch::Sender<Option<SocketAddr>>,
    book: Arc<BackendBook>,
) {
    while !answers.is_closed() {
        match tokio::net::lookup_host(&host).await {
            Ok(found) => settle(&answers, &found.collect::<Vec<_>>()),
            Err(_) => book.noticed.add("dns_failure", 1),
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = answers.closed() => {}
        }
    }
}

/// Keeps the address in use as long as it is among the answers, so that a name with several
/// addresses does not move from one to the other at each lookup.
fn settle(answers: &watch::Sender<Option<SocketAddr>>, found: &[SocketAddr]) {
    answers.send_if_modified(|current| {
        let keep = current.is_some_and(|address| found.contains(&address));
        let next = if keep { *current } else { found.first().copied().or(*current) };
        let changed = next != *current;
        *current = next;
        changed
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_kept_while_it_is_among_the_answers() {
        let [a, b] = ["127.0.0.2:1", "127.0.0.3:1"].map(|text| text.parse().unwrap());
        let (answers, receiver) = watch::channel(None);
        let check = |found: &[SocketAddr], expected| {
            settle(&answers, found);
            assert_eq!(*receiver.borrow(), Some(expected));
        };
        check(&[a, b], a);
        check(&[b, a], a);
        check(&[b], b);
        check(&[], b);
    }
}
