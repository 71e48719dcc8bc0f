//! The handshakes of an endpoint, counted in all and for each network of clients.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

/// The bits of an IPv6 address that name the network of a client, which has all addresses in it.
const NETWORK: u128 = !0 << 64;

/// The handshakes that wait or are in progress.
#[derive(Default)]
pub struct Handshakes {
    all: Cell<usize>,
    of_networks: RefCell<HashMap<IpAddr, usize>>,
}

/// A handshake, which is counted for as long as this value exists.
pub struct Handshake {
    handshakes: Rc<Handshakes>,
    network: IpAddr,
}

/// Returns the network of a client: its IPv4 address, or the /64 of its IPv6 address.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & NETWORK).into(),
        ip @ IpAddr::V4(_) => ip,
    }
}

impl Handshakes {
    pub fn all(&self) -> usize {
        self.all.get()
    }

    /// Returns the number of handshakes with the network of a client.
    pub fn of_network(&self, client: IpAddr) -> usize {
        self.of_networks.borrow().get(&network(client)).copied().unwrap_or_default()
    }

    /// Counts a handshake with a client.
    pub fn begin(self: &Rc<Self>, client: IpAddr) -> Handshake {
        let network = network(client);
        self.all.set(self.all.get() + 1);
        *self.of_networks.borrow_mut().entry(network).or_default() += 1;
        Handshake { handshakes: self.clone(), network }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let Handshakes { all, of_networks } = &*self.handshakes;
        all.set(all.get().saturating_sub(1));
        let mut of_networks = of_networks.borrow_mut();
        if let Some(count) = of_networks.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                of_networks.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_counted_by_network_until_they_end() {
        let handshakes = Rc::<Handshakes>::default();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let begin = |text: &str| handshakes.begin(ip(text));
        let open =
            [begin("192.0.2.1"), begin("::ffff:192.0.2.1"), begin("2001:db8::1"), begin("2001:db8::2")];
        let count = |text: &str| handshakes.of_network(ip(text));
        assert_eq!((handshakes.all(), count("192.0.2.1"), count("192.0.2.2")), (4, 2, 0));
        assert_eq!((count("2001:db8::ffff"), count("2001:db8:0:1::1")), (2, 0));
        drop(open);
        assert_eq!((handshakes.all(), count("192.0.2.1"), count("2001:db8::1")), (0, 0, 0));
        assert!(handshakes.of_networks.borrow().is_empty());
    }
}
