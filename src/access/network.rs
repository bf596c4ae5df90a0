//! Networks, as `10.0.0.0/8`.

use serde::de::{Deserialize, Deserializer, Error};
use std::fmt;
use std::net::IpAddr;

/// All addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Reads `10.0.0.0/8`, `fd00::/8`, or one address alone.
    ///
    /// # Errors
    ///
    /// A sentence, and a hint behind a semicolon.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a network; {EXAMPLE}");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = bits(address);
        let prefix = match prefix {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= most).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
            None => most,
        };
        if let IpAddr::V6(six) = address
            && let Some(four) = six.to_ipv4_mapped()
            && let Some(prefix) = prefix.checked_sub(MAPPED)
        {
            return Err(format!("`{text}` is a network of IPv4; write \"{four}/{prefix}\""));
        }
        let network = Self { address, prefix };
        let first = network.masked(address);
        if first != number(address) {
            return Err(format!("`{text}` has bits beyond its first {prefix}; {EXAMPLE}"));
        }
        Ok(network)
    }

    /// How many bits its addresses share.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether it has the address. One of IPv4 that is written as one of IPv6 is one of IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        bits(address) == bits(self.address) && self.masked(address) == number(self.address)
    }

    fn masked(&self, address: IpAddr) -> u128 {
        let rest = u32::from(bits(address) - self.prefix);
        // All of 128 bits cannot be shifted out at once.
        number(address).checked_shr(rest).unwrap_or(0).checked_shl(rest).unwrap_or(0)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The first bits of an address of IPv4 that is written as one of IPv6.
const MAPPED: u8 = 96;

const EXAMPLE: &str = "write for example \"10.0.0.0/8\" or \"fd00::/8\"";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn networks_have_addresses() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.0.0.0/8", "a00::", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "127.0.0.1", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fc00::1", false),
        ] {
            let parsed = Network::parse(network).unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), expected, "{network} {address}");
        }
    }

    #[test]
    fn what_is_no_network_says_how_to_write_one() {
        for text in
            ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "host/8", "10.0.0.1/8", "::1/64"]
        {
            let problem = Network::parse(text).unwrap_err();
            assert!(problem.ends_with(EXAMPLE), "{problem}");
        }
        for (text, hint) in
            [("::ffff:10.0.0.0/104", "10.0.0.0/8"), ("::ffff:192.0.2.1", "192.0.2.1/32")]
        {
            let problem = Network::parse(text).unwrap_err();
            assert!(problem.ends_with(&format!("; write \"{hint}\"")), "{problem}");
        }
    }

    proptest! {
        /// A network has the addresses whose first bits are its own, and prints as it is read.
        #[test]
        fn a_network_is_its_first_bits(address: u32, other: u32, prefix in 0_u8..=32) {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            let text = format!("{}/{prefix}", std::net::Ipv4Addr::from(address & mask));
            let network = Network::parse(&text).unwrap();
            prop_assert_eq!(network.to_string(), text);
            let contains = network.contains(IpAddr::V4(other.into()));
            prop_assert_eq!(contains, other & mask == address & mask);
        }
    }
}
