//! Networks: an address and the number of its leading bits that count.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All addresses that have the same leading bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    first: IpAddr,
    prefix: u8,
}

impl Network {
    /// `10.0.0.0/8`, or one address. `None` if it is written in another way, or holds all addresses.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (first, prefix) = match text.split_once('/') {
            Some((first, prefix)) => (first, Some(prefix.parse().ok()?)),
            None => (text, None),
        };
        let first: IpAddr = first.parse().ok()?;
        let bits = if first.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(bits);
        let is_network = (1..=bits).contains(&prefix) && first_of(first, prefix) == first;
        // Peers are compared as IPv4 where they are mapped.
        (is_network && first.to_canonical() == first).then_some(Self { first, prefix })
    }

    pub(super) fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && first_of(address, self.prefix) == self.first
    }
}

/// The first address of the network: all bits behind the prefix are zero.
pub(super) fn first_of(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}
