//! Listening sockets as sessions see them, and the ends of a connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A listening socket as sessions see it.
#[derive(Debug)]
pub struct Listener {
    pub name: String,
    /// The address as given with `-a`.
    pub endpoint: String,
    pub proxy: bool,
    /// The path of a UNIX socket.
    pub path: Option<String>,
}

/// One side of a connection, with the texts that the log writes for every request.
#[derive(Clone, Debug)]
pub struct Side {
    pub addr: SocketAddr,
    pub ip: String,
    pub port: String,
}

impl Side {
    pub fn of(addr: SocketAddr) -> Side {
        let addr = canonical(addr);
        Side { addr, ip: addr.ip().to_string(), port: addr.port().to_string() }
    }

    /// Returns the substitute for an address that a UNIX socket does not have.
    pub fn none() -> Side {
        Side::of(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))
    }
}

/// Returns the IPv4 address of an IPv4 client of a dual-stack socket.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}
