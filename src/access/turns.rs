//! Turns at something that many clients want: so many at a time, and fewer for each address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who is at it.
#[derive(Debug)]
pub(super) struct Turns {
    most: usize,
    each: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Only those who are at it.
    by_address: HashMap<IpAddr, usize>,
}

/// Somebody's turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    by: Option<IpAddr>,
}

impl Turns {
    /// So many at a time, and so many of them for each address.
    pub(super) fn new(most: usize, each: usize) -> Self {
        Self { most, each, taken: Mutex::default() }
    }

    /// A turn for somebody there, if there is one left.
    pub(super) fn take(&self, from: Option<IpAddr>) -> Option<Turn<'_>> {
        let by = from.map(household);
        let mut taken = self.taken();
        if taken.all >= self.most {
            return None;
        }
        if let Some(by) = by {
            let count = taken.by_address.get(&by).copied().unwrap_or(0);
            if count >= self.each {
                return None;
            }
            taken.by_address.insert(by, count + 1);
        }
        taken.all += 1;
        Some(Turn { turns: self, by })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut taken = self.turns.taken();
        taken.all -= 1;
        let Some(by) = self.by else { return };
        match taken.by_address.get_mut(&by) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.by_address.remove(&by)),
        }
    }
}

/// Whoever has an IPv6 address can use all others that differ from it only in the last 64 bits.
fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() >> 64 << 64)),
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_a_few_turns_of_all() {
        let turns = Turns::new(3, 2);
        let take = |address: &str| turns.take(Some(address.parse().unwrap()));
        let first = take("192.0.2.1").unwrap();
        let second = take("::ffff:192.0.2.1").unwrap();
        assert!(take("192.0.2.1").is_none(), "it has two");
        let third = take("2001:db8::1").unwrap();
        assert!(take("192.0.2.2").is_none() && turns.take(None).is_none(), "three in all");
        drop(first);
        let fourth = take("2001:db8::ffff").unwrap();
        drop(second);
        assert!(take("2001:db8::2").is_none(), "one network, one household");
        assert!(take("2001:db8:0:1::2").is_some());
        drop((third, fourth));
        assert!(turns.taken().by_address.is_empty() && turns.taken().all == 0);
        let nobody = [turns.take(None), turns.take(None), turns.take(None)];
        assert!(nobody.iter().all(Option::is_some), "of what has no address all alike");
    }
}
