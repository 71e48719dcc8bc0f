//! The properties of listening sockets that sessions use, and the addresses of a connection's ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The properties of a listening socket that its sessions use.
#[derive(Debug)]
pub struct Listener {
    pub name: String,
    /// The address as given with `-a`.
    pub endpoint: String,
    pub proxy: bool,
    /// The path of a UNIX socket.
    pub path: Option<String>,
}

/// The address of one side of a connection, with the texts that the log records for every request.
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

    /// Returns the substitute for the address that a UNIX socket does not have: `0.0.0.0:0`.
    pub fn none() -> Side {
        Side::of(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))
    }
}

/// Converts the mapped address of an IPv4 client on a dual-stack socket to its IPv4 form.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}
