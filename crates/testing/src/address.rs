//! Addresses for programs that need to know theirs before they listen.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// The kernel gives none of these ports to clients, which could take it before the program does.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// Returns an address on 127.0.0.1 on which nothing listens, another one at each call.
pub fn free_address() -> SocketAddr {
    static LAST: AtomicU16 = AtomicU16::new(0);
    let start = process::id().wrapping_mul(2_654_435_761) >> 16;
    let mut candidates = (0..COUNT).map(|_| {
        let next = start + u32::from(LAST.fetch_add(1, Ordering::Relaxed));
        SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + (next % u32::from(COUNT)) as u16))
    });
    candidates.find(|&address| TcpListener::bind(address).is_ok()).expect("there is a free port")
}
