//! PROXY headers, which a load balancer sends before the first request, and connections with a damaged header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lacquer_net::memory::Peer;

use crate::requester::Requester;
use crate::wire::{self, Chance, Incoming, below, one_of, percent};

/// The signature of a header of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header, and the address in it.
pub struct ProxyHeader {
    pub bytes: Vec<u8>,
    /// The client's address, if the header has one.
    pub address: Option<IpAddr>,
}

pub fn choose(chance: &Chance) -> ProxyHeader {
    let last = below(chance, 250) as u8;
    let v4 = Ipv4Addr::new(192, 0, 2, last);
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1 + u16::from(last));
    let here = Ipv4Addr::new(10, 0, 1, 1);
    match below(chance, 6) {
        0 => {
            let bytes = format!("PROXY TCP4 {v4} {here} 1234 80\r\n").into_bytes();
            ProxyHeader { bytes, address: Some(v4.into()) }
        }
        1 => {
            let bytes = format!("PROXY TCP6 {v6} ::1 1234 80\r\n").into_bytes();
            ProxyHeader { bytes, address: Some(v6.into()) }
        }
        2 => ProxyHeader { bytes: second(0x20, 0, &[], chance), address: None },
        // Addresses that are too short are ignored, as in Varnish.
        5 => ProxyHeader { bytes: [SIGNATURE, &[0x21, 0x11, 0, 4, 1, 2, 3, 4]].concat(), address: None },
        3 => {
            let ends = [&v4.octets()[..], &here.octets(), &[4, 210, 0, 80]].concat();
            ProxyHeader { bytes: second(0x21, 0x11, &ends, chance), address: Some(v4.into()) }
        }
        _ => {
            let ends = [&v6.octets()[..], &Ipv6Addr::LOCALHOST.octets(), &[4, 210, 0, 80]].concat();
            ProxyHeader { bytes: second(0x21, 0x21, &ends, chance), address: Some(v6.into()) }
        }
    }
}

/// Returns a header of version 2, sometimes with an extension.
fn second(command: u8, family: u8, ends: &[u8], chance: &Chance) -> Vec<u8> {
    let mut rest = ends.to_vec();
    if percent(chance, 40) {
        let name = &b"balancer.example"[..below(chance, 16) as usize];
        rest.extend([2, 0, name.len() as u8]);
        rest.extend(name);
    }
    let length = (rest.len() as u16).to_be_bytes();
    [SIGNATURE, &[command, family], &length, &rest].concat()
}

/// Returns a header that must be refused, whatever follows.
fn damaged(chance: &Chance) -> Vec<u8> {
    let texts: [&[u8]; 5] = [
        b"PROXY TCP4 999.1.1.1 10.0.1.1 1234 80\r\n",
        b"PROXY TCP4 192.0.2.1\r\n",
        b"PROXI TCP4 192.0.2.1 10.0.1.1 1234 80\r\n",
        b"GET /calm/0 HTTP/1.1\r\nHost: world\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c\x01\x02\x03\x04\x05\x06\x07\x08\0\x50\0\x50",
    ];
    one_of(chance, &texts).to_vec()
}

/// Sends a damaged header and then a request, and checks that the connection ends without a response.
pub async fn run_damaged(peer: &Peer, incoming: &mut Incoming, requester: &Requester) {
    let chance = &requester.chance;
    let bytes = [damaged(chance), b"GET /calm/0 HTTP/1.1\r\nHost: world\r\n\r\n".to_vec()].concat();
    // The engine may close the connection before everything is written.
    let _ = wire::write(peer, &bytes, chance).await;
    while matches!(incoming.more(peer, chance).await, Ok(true)) {}
    if !incoming.bytes.is_empty() {
        let text = String::from_utf8_lossy(&incoming.bytes).into_owned();
        requester.ledger.borrow_mut().fault(&format!("behind a damaged PROXY header comes {text:?}"));
    }
}
