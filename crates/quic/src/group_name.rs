//! The name of a group of sockets: the address to which they are bound. Two workers know a group by it, whatever the order
//! of their listeners.

use std::net::{IpAddr, SocketAddr};

/// An IP address, a port and the scope of a link-local address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupName([u8; GroupName::LENGTH]);

/// Returns the bytes of an address. IPv4 addresses have the form of mapped IPv6 addresses.
pub fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

impl GroupName {
    pub const LENGTH: usize = 22;

    /// Returns the name of the sockets that are bound to an address.
    pub fn of(bound: SocketAddr) -> GroupName {
        let mut name = [0; GroupName::LENGTH];
        name[..16].copy_from_slice(&octets(bound.ip()));
        name[16..18].copy_from_slice(&bound.port().to_le_bytes());
        if let SocketAddr::V6(bound) = bound {
            name[18..].copy_from_slice(&bound.scope_id().to_le_bytes());
        }
        GroupName(name)
    }

    pub fn from_bytes(bytes: [u8; GroupName::LENGTH]) -> GroupName {
        GroupName(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; GroupName::LENGTH] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_as_addresses_do() {
        let addresses = [
            "192.0.2.1:443",
            "192.0.2.1:444",
            "0.0.0.0:443",
            "[::]:443",
            "[fe80::1%1]:443",
            "[fe80::1%2]:443",
        ];
        let names = addresses.map(|address| GroupName::of(address.parse().unwrap()));
        for (at, name) in names.iter().enumerate() {
            assert!(names[..at].iter().all(|other| other != name), "{}", addresses[at]);
            assert_eq!(GroupName::from_bytes(*name.as_bytes()), *name);
        }
    }
}
